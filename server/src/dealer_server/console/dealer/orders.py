"""A dealer's orders: the list, one order with its eSIMs, and giving money back."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from dealer_server.audit_context import Actor
from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.permissions import EVERYONE, MONEY, PAGE, SECRETS
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.rules.money import money, refund
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.store.console import dealer
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console.dealer import Span
from dealer_server.store.orders import order
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


async def orders(context: RequestContext) -> Answer:
    if sought := params.text(context.query, "q"):
        return await _sought(context, sought)
    status = params.one_of(context.query, "status", STATUSES)
    span = span_of(context)
    async with context.parts.database.connection() as connection:
        found, following = await dealer.orders(connection, context.tenant_id, span, status, PAGE)
    pages = params.pager(context, "/console/orders", following)
    return permissions.page(context, "orders", orders=found, pages=pages, statuses=STATUSES, sought="")


def span_of(context: RequestContext) -> Span:
    """The ids of the days that were asked for, and before the page's `before`."""
    start, end = params.day(context.query, "from"), params.day(context.query, "to", after=True)
    first, last = identity.ids_between(start, end)
    before = params.number(context.query, "before")
    return Span(first, last if before is None else min(before, last))


async def _sought(context: RequestContext, sought: str) -> Answer:
    if there := await permissions.meant(context, sought):
        return there
    pages = params.pager(context, "/console/orders", None)
    return permissions.page(context, "orders", orders=(), pages=pages, statuses=STATUSES, sought=sought)


async def one(context: RequestContext) -> Page:
    """The order as it stands; it renews itself while it is young or something is pending."""
    found = await load(context, _order_id(context))
    async with context.parts.database.connection() as connection:
        about = (connection, context.tenant_id, found.order_id)
        voiding = await dealer.voids_waiting(*about)
        refunds = await dealer.refunds(*about, REFUNDS)
        remark = await console_orders.remark(*about)
        deliveries = await dealer.deliveries_of(*about, DELIVERIES)
    profiles = shown(context, found, voiding)
    return permissions.page(
        context,
        "order",
        order=found,
        lines=[_line(found, item) for item in found.items],
        profiles=profiles[:PROFILES],
        profile_count=len(profiles),
        refunds=refunds,
        remark=remark,
        deliveries=deliveries,
        refundable=money.text(_refundable(found, voiding), found.currency),
        moving=_still_moving(context, found),
    )


async def printed(context: RequestContext) -> Page:
    """The QR codes of an order on paper, a few to a page."""
    found = await load(context, _order_id(context))
    first = params.number(context.query, "first") or 0
    ready = [one for one in shown(context, found, frozenset()) if one.profile.iccid and not one.profile.cancelled]
    following = first + PRINTED if first + PRINTED < len(ready) else None
    return permissions.page(
        context, "print", order=found, profiles=ready[first : first + PRINTED], first=first, count=len(ready),
        following=following,
    )  # fmt: skip


async def refund_order(context: RequestContext) -> Redirect:
    """All that can be refunded of the order, of one line, or one profile, as /esim/refund does it."""
    order_no = identity.order_no(_order_id(context))
    item_no, profile_id = params.text(context.form, "item_no"), params.text(context.form, "profile_id")
    items: list[dict[str, object]] | None = None if item_no is None else [{"itemNo": item_no}]
    if items and profile_id:
        items[0]["profiles"] = [{"profileId": profile_id}]
    remark = params.text(context.form, "reason")
    wanted = permissions.call(calls.RefundOrder, orderNo=order_no, items=items, remark=remark)
    given = await context.parts.refunds.refund(context.tenant_id, wanted, Actor.current(context.author, remark))
    amount = f"{given.refund_amount} {given.currency}"
    said = f"{amount} is refunded" if given.status == "REFUNDED" else f"The refund of {amount} is in progress"
    return Redirect(f"/console/orders/{order_no}", said)


async def load(context: RequestContext, order_id: int) -> Order:
    """The dealer's own order. Raises NotHere."""
    key = (context.tenant_id, order_id)
    async with context.parts.database.connection() as connection:
        found = await order.load(connection, [key], context.parts.data_keys)
    if key not in found:
        raise NotFound
    return found[key]


def shown(context: RequestContext, found: Order, voiding: frozenset[int]) -> Sequence[Shown]:
    return [
        Shown(
            profile,
            snapshot.profile(profile, item, found.tenant_id, context.parts.links),
            item.package_code,
            identity.item_no(found.order_id, item.line),
            refund.refuse(profile, voiding) is None,
            not (profile.cancelled or profile.held or profile.profile_id in voiding),
        )
        for item in found.items
        for profile in item.profiles
    ]


def _order_id(context: RequestContext) -> int:
    """Raises NotHere."""
    order_id = identity.order_id(context.path["order_no"])
    if order_id is None:
        raise NotFound
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


def _still_moving(context: RequestContext, found: Order) -> bool:
    pending = found.order_status in ("PAID", "FULFILLING", "REFUNDING")
    return pending or context.now - found.updated_at < STILL_MOVING


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/orders", EVERYONE, orders, "Orders"),
    Route("GET", "/console/orders/{order_no}", EVERYONE, one),
    Route("GET", "/console/orders/{order_no}/print", SECRETS, printed),
    Route("POST", "/console/orders/{order_no}/refund", MONEY, refund_order),
)
