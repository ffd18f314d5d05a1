"""A dealer's orders: the list, one order with its eSIMs, and giving money back."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from dealer_server.acting import Act
from dealer_server.console import asked
from dealer_server.console.dealer import own
from dealer_server.console.dealer.own import EVERYONE, MONEY, PAGE, SECRETS
from dealer_server.console.visit import Answer, Go, NotHere, Page, Route, Visit
from dealer_server.rules import identity, money, refund, snapshot
from dealer_server.rules.model import Item, Order, Profile
from dealer_server.store import console_dealer, console_orders, order
from dealer_server.store.console_dealer import Span
from esim_dealer.wire import calls
from esim_dealer.wire import snapshot as wire

STATUSES = ("PAID", "FULFILLING", "COMPLETED", "REFUNDING", "REFUNDED", "PENDING", "PARTIAL", "DELIVERED", "FAILED")
PROFILES = 50
PRINTED = 20
DELIVERIES = 20
REFUNDS = 20
STILL_MOVING = timedelta(minutes=10)


class Shown(NamedTuple):
    """A profile on a page: as the rules see it, as the dealer gets it, and what can still be done with it."""

    profile: Profile
    wire: wire.Profile
    package_code: str
    item_no: str
    refundable: bool
    voidable: bool


class Line(NamedTuple):
    """One line of an order; amounts in major units."""

    item: Item
    item_no: str
    price: str
    amount: str


async def orders(visit: Visit) -> Answer:
    if sought := asked.text(visit.query, "q"):
        return await _sought(visit, sought)
    status = asked.one_of(visit.query, "status", STATUSES)
    span = span_of(visit)
    async with visit.parts.database.connection() as connection:
        found, following = await console_dealer.orders(connection, visit.tenant_id, span, status, PAGE)
    pages = asked.pager(visit, "/console/orders", following)
    return own.page(visit, "orders", orders=found, pages=pages, statuses=STATUSES, sought="")


def span_of(visit: Visit) -> Span:
    """The ids of the days that were asked for, and before the page's `before`."""
    start, end = asked.day(visit.query, "from"), asked.day(visit.query, "to", after=True)
    first, last = identity.ids_between(start, end)
    before = asked.number(visit.query, "before")
    return Span(first, last if before is None else min(before, last))


async def _sought(visit: Visit, sought: str) -> Answer:
    if there := await own.meant(visit, sought):
        return there
    pages = asked.pager(visit, "/console/orders", None)
    return own.page(visit, "orders", orders=(), pages=pages, statuses=STATUSES, sought=sought)


async def one(visit: Visit) -> Page:
    """The order as it stands; it renews itself while it is young or something is pending."""
    found = await load(visit, _order_id(visit))
    async with visit.parts.database.connection() as connection:
        about = (connection, visit.tenant_id, found.order_id)
        voiding = await console_dealer.voids_waiting(*about)
        refunds = await console_dealer.refunds(*about, REFUNDS)
        remark = await console_orders.remark(*about)
        deliveries = await console_dealer.deliveries_of(*about, DELIVERIES)
    profiles = shown(visit, found, voiding)
    return own.page(
        visit,
        "order",
        order=found,
        lines=[_line(found, item) for item in found.items],
        profiles=profiles[:PROFILES],
        profile_count=len(profiles),
        refunds=refunds,
        remark=remark,
        deliveries=deliveries,
        refundable=money.text(_refundable(found, voiding), found.currency),
        moving=_still_moving(visit, found),
    )


async def printed(visit: Visit) -> Page:
    """The QR codes of an order on paper, a few to a page."""
    found = await load(visit, _order_id(visit))
    first = asked.number(visit.query, "first") or 0
    ready = [one for one in shown(visit, found, frozenset()) if one.profile.iccid and not one.profile.cancelled]
    following = first + PRINTED if first + PRINTED < len(ready) else None
    return own.page(
        visit, "print", order=found, profiles=ready[first : first + PRINTED], first=first, count=len(ready),
        following=following,
    )  # fmt: skip


async def refund_order(visit: Visit) -> Go:
    """All that can be refunded of the order, of one line, or one profile, as /esim/refund does it."""
    order_no = identity.order_no(_order_id(visit))
    item_no, profile_id = asked.text(visit.form, "item_no"), asked.text(visit.form, "profile_id")
    items: list[dict[str, object]] | None = None if item_no is None else [{"itemNo": item_no}]
    if items and profile_id:
        items[0]["profiles"] = [{"profileId": profile_id}]
    remark = asked.text(visit.form, "reason")
    wanted = own.call(calls.RefundOrder, orderNo=order_no, items=items, remark=remark)
    given = await visit.parts.refunds.refund(visit.tenant_id, wanted, Act.here(visit.author, remark))
    amount = f"{given.refund_amount} {given.currency}"
    said = f"{amount} is refunded" if given.status == "REFUNDED" else f"The refund of {amount} is in progress"
    return Go(f"/console/orders/{order_no}", said)


async def load(visit: Visit, order_id: int) -> Order:
    """The dealer's own order. Raises NotHere."""
    key = (visit.tenant_id, order_id)
    async with visit.parts.database.connection() as connection:
        found = await order.load(connection, [key], visit.parts.data_keys)
    if key not in found:
        raise NotHere
    return found[key]


def shown(visit: Visit, found: Order, voiding: frozenset[int]) -> Sequence[Shown]:
    return [
        Shown(
            profile,
            snapshot.profile(profile, item, found.tenant_id, visit.parts.links),
            item.package_code,
            identity.item_no(found.order_id, item.line),
            refund.refuse(profile, voiding) is None,
            not (profile.cancelled or profile.held or profile.profile_id in voiding),
        )
        for item in found.items
        for profile in item.profiles
    ]


def _order_id(visit: Visit) -> int:
    """Raises NotHere."""
    order_id = identity.order_id(visit.path["order_no"])
    if order_id is None:
        raise NotHere
    return order_id


def _line(found: Order, item: Item) -> Line:
    amount = item.price * item.quantity * item.period_num
    return Line(
        item, identity.item_no(found.order_id, item.line),
        money.text(item.price, found.currency), money.text(amount, found.currency),
    )  # fmt: skip


def _refundable(found: Order, voiding: frozenset[int]) -> int:
    """What giving back everything that can be would bring."""
    return sum(
        item.price * item.period_num
        for item in found.items
        for profile in item.profiles
        if refund.refuse(profile, voiding) is None
    )


def _still_moving(visit: Visit, found: Order) -> bool:
    pending = found.order_status in ("PAID", "FULFILLING", "REFUNDING")
    return pending or visit.now - found.updated_at < STILL_MOVING


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/orders", EVERYONE, orders, "Orders"),
    Route("GET", "/console/orders/{order_no}", EVERYONE, one),
    Route("GET", "/console/orders/{order_no}/print", SECRETS, printed),
    Route("POST", "/console/orders/{order_no}/refund", MONEY, refund_order),
)
