"""Which profiles has a dealer? /esim/profile/list (specification 4.8)."""

from datetime import datetime
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.paging import paged, utc, wanted, window
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.orders.listing import ProfileFilter
from esim_dealer.wire import calls

_ALL_PROFILE_IDS = (0, 2**53)


class Found(NamedTuple):
    """A page of profiles, each with its order and line. `after`: the last one's id where another page follows."""

    profiles: list[tuple[Order, Item, Profile]]
    total: int
    after: int | None


async def list_profiles(
    database: Database, data_keys: DataKeys, links: Links, tenant_id: int, call: calls.ProfileList
) -> calls.Profiles:
    """As `find_profiles` finds them."""
    pager = wanted(call.pager)
    found = await find_profiles(database, data_keys, tenant_id, call)
    records = tuple([_record(order, item, profile, links) for order, item, profile in found.profiles])
    return calls.Profiles(records=records, pager=paged(pager, found.total, found.after))


async def find_profiles(database: Database, data_keys: DataKeys, tenant_id: int, call: calls.ProfileList) -> Found:
    """Profiles that have their codes; others only by lifecycleStatus PENDING or their profileId.

    All filters must match; ids that name nothing of this dealer give an empty page. Raises 000108.
    """
    pager = wanted(call.pager)
    rows = window(pager)
    async with database.connection() as connection:
        search = await _search(connection, tenant_id, call)
        if search is None:
            return Found([], 0, None)
        filters, span = search
        ids = await store.listing.profile_ids(connection, tenant_id, filters, span, rows)
        if filters.empty:
            total = await store.listing.allocated_total(connection, tenant_id)
        else:
            total = await store.listing.profile_count(connection, tenant_id, filters, span)
        page = ids[: pager.page_size]
        order_keys = sorted({(tenant_id, order_id) for order_id, _ in page})
        orders = await store.order.load(connection, order_keys, data_keys)
    found = [(order := orders[tenant_id, order_id], *order.find_profile(profile_id)) for order_id, profile_id in page]
    return Found(found, total, page[-1][1] if len(ids) > len(page) else None)


async def _search(
    connection: Connection, tenant_id: int, call: calls.ProfileList
) -> tuple[ProfileFilter, tuple[int, int]] | None:
    """The filters with the service's own ids, and the range of profileIds that can match; None where none can."""
    start, end, updated_since = _times(call)
    order_ids: set[int] = set()
    line = profile_id = None
    if call.order_no is not None:
        order_id = identity.order_id(call.order_no)
        if order_id is None:
            return None
        order_ids.add(order_id)
    if call.transaction_id is not None:
        by_transaction = await store.order.ids(connection, [(tenant_id, call.transaction_id)])
        order_ids.update(by_transaction.values() or {-1})
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
    span = _ALL_PROFILE_IDS if order_id is None else await store.listing.profile_span(connection, tenant_id, order_id)
    if span is None:
        return None
    status = call.lifecycle_status
    filters = ProfileFilter(
        order_id=order_id,
        line=line,
        profile_id=profile_id,
        iccid=call.iccid,
        package_code=call.package_code,
        lifecycle_status=[status] if isinstance(status, str) else status,
        plan_use_status=call.plan_use_status,
        cancelled=call.cancelled,
        start=start,
        end=end,
        updated_since=updated_since,
    )
    return filters, span


def _times(call: calls.ProfileList) -> tuple[datetime | None, datetime | None, datetime | None]:
    """startTime, endTime and updatedSince in UTC."""
    return utc("startTime", call.start_time), utc("endTime", call.end_time), utc("updatedSince", call.updated_since)


def _record(order: Order, item: Item, profile: Profile, links: Links) -> calls.ProfileRecord:
    return calls.ProfileRecord(
        order_no=order.order_no,
        transaction_id=order.transaction_id,
        item_no=identity.item_no(order.order_id, item.line),
        package_code=item.package_code,
        profile=snapshot.profile(profile, item, order.tenant_id, links),
    )
