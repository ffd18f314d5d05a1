"""Orders of all dealers: the list, its export, and all that happened to one."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

from dealer_server.console.operator import permissions, timeline
from dealer_server.console.operator.permissions import LOOK, PAGE, PUSH
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import (
    Answer,
    Download,
    NotFound,
    Page,
    Redirect,
    RequestContext,
    Route,
)
from dealer_server.db.connection import Connection
from dealer_server.operations.webhooks import resend
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import whole_seconds
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console.orders import Listed, Wanted
from dealer_server.store.orders import order
from dealer_server.store.orders.listing import Window
from dealer_server.store.refunds import refund
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.log import Filter

STATUSES = ("PAID", "FULFILLING", "COMPLETED", "REFUNDING", "REFUNDED", "PENDING", "PARTIAL", "DELIVERED", "FAILED")
FILTERS = ("dealer", "status", "package", "from", "to")
ROWS_PER_CHUNK = 5_000
EVENTS = 200
DELIVERIES = 50
PROFILES = 100
STILL_MOVING = timedelta(minutes=10)
COLUMNS = ("orderNo", "createTime", "tenantId", "dealer", "transactionId", "packages", "currency", "amount",
           "refundAmount", "payStatus", "deliveryStatus", "orderStatus")  # fmt: skip


def _wanted(query: Mapping[str, str]) -> Wanted:
    return Wanted(
        params.number(query, "dealer"),
        params.one_of(query, "status", STATUSES),
        params.text(query, "package"),
        params.day(query, "from"),
        params.day(query, "to", after=True),
    )


async def orders(context: RequestContext) -> Page:
    wanted = _wanted(context.query)
    async with context.parts.database.connection() as connection:
        found = await console_orders.page(connection, wanted, params.number(context.query, "before"), PAGE)
        dealers = await console_dealers.names(connection, wanted.tenant_id)
    filters = {name: value for name, value in context.query.items() if name not in ("before", "trail")}
    return permissions.page(
        context,
        "orders",
        orders=found.rows,
        pager=permissions.pager(context, "/console/orders", found),
        dealers=dealers,
        statuses=STATUSES,
        filtered=wanted != Wanted(),
        export=params.address("/console/orders.csv", filters),
    )


async def export(context: RequestContext) -> Download:
    """What the list shows, all of it, a few thousand rows at a time."""
    wanted = _wanted(context.query)
    await params.exported(context, "orders.export", wanted.tenant_id, FILTERS)
    return Download(f"orders-{context.now:%Y%m%d-%H%M%S}.csv", "text/csv; charset=utf-8", _csv(context, wanted))


async def _csv(context: RequestContext, wanted: Wanted) -> AsyncIterator[bytes]:
    yield params.csv_lines([COLUMNS])
    before: int | None = None
    while True:
        async with context.parts.database.connection() as connection:
            found = await console_orders.page(connection, wanted, before, ROWS_PER_CHUNK)
        if found.rows:
            yield params.csv_lines([_cells(one) for one in found.rows])
        if (before := found.next) is None:
            return


def _cells(one: Listed) -> tuple[str, ...]:
    return (
        identity.order_no(one.order_id),
        f"{identity.created_at(one.order_id):%Y-%m-%dT%H:%M:%SZ}",
        str(one.tenant_id),
        one.dealer,
        one.transaction_id,
        "; ".join(f"{code} x{quantity}" for code, quantity in one.lines),
        one.currency,
        money.text(one.amount, one.currency),
        money.text(one.refund_amount, one.currency),
        *(one.pay_status, one.delivery_status, one.order_status),
    )


async def one_order(context: RequestContext) -> Page:
    """The order with everything that is known of it, on one line of time."""
    order_id = identity.order_id(context.path["order_no"])
    async with context.parts.database.connection() as connection:
        owner = None if order_id is None else await console_orders.whose(connection, order_id)
        if order_id is None or owner is None:
            raise NotFound
        known = await _known(connection, context, owner[0], order_id)
        remark = await console_orders.remark(connection, owner[0], order_id)
    shown = known.order
    return permissions.page(
        context,
        "order",
        order=shown,
        dealer=owner[1],
        remark=remark,
        events=timeline.tell(known),
        profiles=[(item, profile) for item in shown.items for profile in item.profiles][:PROFILES],
        profile_count=len(shown.profiles),
        moving=_moving(shown, context),
    )


def _moving(shown: Order, context: RequestContext) -> bool:
    """Whether more is to be expected, so that the page looks again."""
    settled = shown.order_status in ("COMPLETED", "REFUNDED")
    return not settled or context.now - whole_seconds(shown.updated_at) < STILL_MOVING


async def _known(connection: Connection, context: RequestContext, tenant_id: int, order_id: int) -> timeline.Known:
    key, keys = (tenant_id, order_id), context.parts.data_keys
    found = (await order.load(connection, [key], keys))[key]
    span = range(found.items[0].first_profile_id, found.items[-1].first_profile_id + found.items[-1].quantity)
    deliveries = await log.page(connection, tenant_id, Filter(order_id), Window(DELIVERIES, 0, None))
    ids = [one.delivery_id for one in deliveries]
    return timeline.Known(
        found,
        await console_orders.movements(connection, tenant_id, order_id),
        await console_orders.purchases(connection, tenant_id, span, EVENTS),
        await console_orders.calls(connection, tenant_id, span, EVENTS),
        await console_orders.lives(connection, tenant_id, span, EVENTS),
        await console_orders.voids(connection, tenant_id, order_id, EVENTS),
        await refund.of_orders(connection, [key]),
        deliveries,
        await log.attempts(connection, tenant_id, ids),
        await console_orders.bodies(connection, tenant_id, ids if permissions.permissions(context).codes else [], keys),
    )


async def send_again(context: RequestContext) -> Answer:
    """The order as it stands, as a new event."""
    number = context.path["order_no"]
    order_id = identity.order_id(number)
    async with context.parts.database.connection() as connection:
        owner = None if order_id is None else await console_orders.whose(connection, order_id)
    if owner is None:
        raise NotFound
    await resend.sync(context.parts.database, owner[0], [number], context.author, lambda: context.now)
    return Redirect(f"/console/orders/{number}", "The snapshot goes out")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/orders", LOOK, orders, "Orders"),
    Route("GET", "/console/orders.csv", LOOK, export),
    Route("GET", "/console/orders/{order_no}", LOOK, one_order),
    Route("POST", "/console/orders/{order_no}/sync", PUSH, send_again),
)
