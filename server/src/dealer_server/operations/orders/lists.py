"""Pages of a dealer's own orders and profiles (decisions 4)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.orders.listing import OrderFilter, ProfileFilter, Window
from esim_dealer.wire import calls

_EVERYWHERE = (0, 2**53)


async def list_orders(
    database: Database, data_keys: DataKeys, links: Links, tenant_id: int, call: calls.OrderList
) -> calls.Orders:
    pager = call.pager or calls.Pager()
    start, end, since = _times(call)
    wanted = OrderFilter(start, end, call.order_status, since)
    async with database.connection() as connection:
        ids = await store.listing.order_ids(connection, tenant_id, wanted, window(pager))
        if wanted.empty:
            total = await store.listing.order_total(connection, tenant_id)
        else:
            total = await store.listing.order_count(connection, tenant_id, wanted)
        page, after = _cut(ids, pager)
        found = await store.order.load(connection, [(tenant_id, order_id) for order_id in page], data_keys)
    return calls.Orders(
        orders=tuple(snapshot.of(found[tenant_id, order_id], links) for order_id in page),
        pager=paged(pager, total, after),
    )


async def list_profiles(
    database: Database, data_keys: DataKeys, links: Links, tenant_id: int, call: calls.ProfileList
) -> calls.Profiles:
    """Profiles that have their codes; others only by lifecycleStatus PENDING or their profileId.

    All filters are AND-ed; ids that name nothing of this dealer give an empty page.
    """
    pager = call.pager or calls.Pager()
    shown = window(pager)
    async with database.connection() as connection:
        located = await _locate(connection, tenant_id, call)
        if located is None:
            return calls.Profiles(records=(), pager=paged(pager, 0, None))
        wanted, span = located
        ids = await store.listing.profile_ids(connection, tenant_id, wanted, span, shown)
        if wanted.empty:
            total = await store.listing.allocated_total(connection, tenant_id)
        else:
            total = await store.listing.profile_count(connection, tenant_id, wanted, span)
        page, _ = _cut(ids, pager)
        found = await store.order.load(connection, sorted({(tenant_id, order_id) for order_id, _ in page}), data_keys)
    records = tuple(_record(found[tenant_id, order_id], profile_id, links) for order_id, profile_id in page)
    after = page[-1][1] if len(ids) > len(page) else None
    return calls.Profiles(records=records, pager=paged(pager, total, after))


async def _locate(
    connection: Connection, tenant_id: int, call: calls.ProfileList
) -> tuple[ProfileFilter, tuple[int, int]] | None:
    """The filter in our own ids, and the profileIds it can match at all; None where it can match nothing."""
    start, end, since = _times(call)
    order_ids: set[int] = set()
    line = profile_id = None
    if call.order_no is not None:
        order_id = identity.order_id(call.order_no)
        if order_id is None:
            return None
        order_ids.add(order_id)
    if call.transaction_id is not None:
        found = await store.order.ids(connection, [(tenant_id, call.transaction_id)])
        order_ids.update(found.values() or {-1})
    if call.item_no is not None:
        item = identity.order_and_line(call.item_no)
        if item is None:
            return None
        order_ids.add(item[0])
        line = item[1]
    if call.profile_id is not None:
        profile_id = identity.profile_id(call.profile_id)
        if profile_id is None:
            return None
    if len(order_ids) > 1:
        return None
    order_id = order_ids.pop() if order_ids else None
    span = _EVERYWHERE if order_id is None else await store.listing.profile_span(connection, tenant_id, order_id)
    if span is None:
        return None
    status = call.lifecycle_status
    return (
        ProfileFilter(
            order_id,
            line,
            profile_id,
            call.iccid,
            call.package_code,
            [status] if isinstance(status, str) else status,
            call.plan_use_status,
            call.cancelled,
            start,
            end,
            since,
        ),
        span,
    )


def _times(call: calls.OrderList | calls.ProfileList) -> tuple[datetime | None, datetime | None, datetime | None]:
    """startTime, endTime and updatedSince in UTC."""
    return utc("startTime", call.start_time), utc("endTime", call.end_time), utc("updatedSince", call.updated_since)


def utc(name: str, at: datetime | None) -> datetime | None:
    """Raises 000108 for a time whose offset carries it out of the years 1 to 9999, where databases end too."""
    try:
        return at and at.astimezone(UTC)
    except OverflowError:
        raise refusal.ParameterInvalid(f"{name} is out of range; accepted: the years 1 to 9999 in UTC") from None


def window(pager: calls.Pager) -> Window:
    """One row more than the page, to know whether another follows."""
    if pager.after:
        after = identity.profile_id(pager.after)
        if after is None:
            raise refusal.ParameterInvalid("pager.after is malformed; accepted: pager.next of the previous answer")
        return Window(pager.page_size + 1, 0, after)
    return Window(pager.page_size + 1, (pager.page_num - 1) * pager.page_size, None)


def _cut(ids: Sequence, pager: calls.Pager) -> tuple[Sequence, int | None]:
    page = ids[: pager.page_size]
    return page, page[-1] if len(ids) > len(page) else None


def paged(pager: calls.Pager, total: int, after: int | None) -> calls.Page:
    """Which page this is; `after` is the id of its last row where another page follows."""
    return calls.Page(
        page_num=pager.page_num,
        page_size=pager.page_size,
        total=total,
        next=UNSET if after is None else str(after),
    )


def _record(order: Order, profile_id: int, links: Links) -> calls.ProfileRecord:
    item = next(one for one in order.items if any(profile.profile_id == profile_id for profile in one.profiles))
    profile = next(profile for profile in item.profiles if profile.profile_id == profile_id)
    return calls.ProfileRecord(
        order_no=order.order_no,
        transaction_id=order.transaction_id,
        item_no=identity.item_no(order.order_id, item.line),
        package_code=item.package_code,
        profile=snapshot.profile(profile, item, order.tenant_id, links),
    )
