"""Orders of all dealers: the list, its export, and all that happened to one."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

from dealer_server.console import asked
from dealer_server.console.operator import own, timeline
from dealer_server.console.operator.own import LOOK, PAGE, PUSH
from dealer_server.console.visit import Answer, Download, Go, NotHere, Page, Route, Visit
from dealer_server.operations import repush
from dealer_server.rules import identity, money
from dealer_server.rules.model import Order
from dealer_server.rules.snapshot import whole_seconds
from dealer_server.store import console_dealers, console_orders, order, refund, webhook_log
from dealer_server.store.console_orders import Listed, Wanted
from dealer_server.store.database import Connection
from dealer_server.store.listing import Window
from dealer_server.store.webhook_log import Filter

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
        asked.number(query, "dealer"),
        asked.one_of(query, "status", STATUSES),
        asked.text(query, "package"),
        asked.day(query, "from"),
        asked.day(query, "to", after=True),
    )


async def orders(visit: Visit) -> Page:
    wanted = _wanted(visit.query)
    async with visit.parts.database.connection() as connection:
        found = await console_orders.page(connection, wanted, asked.number(visit.query, "before"), PAGE)
        dealers = await console_dealers.names(connection, wanted.tenant_id)
    filters = {name: value for name, value in visit.query.items() if name not in ("before", "trail")}
    return own.page(
        visit,
        "orders",
        orders=found.rows,
        pager=own.pager(visit, "/console/orders", found),
        dealers=dealers,
        statuses=STATUSES,
        filtered=wanted != Wanted(),
        export=asked.address("/console/orders.csv", filters),
    )


async def export(visit: Visit) -> Download:
    """What the list shows, all of it, a few thousand rows at a time."""
    wanted = _wanted(visit.query)
    await asked.exported(visit, "orders.export", wanted.tenant_id, FILTERS)
    return Download(f"orders-{visit.now:%Y%m%d-%H%M%S}.csv", "text/csv; charset=utf-8", _csv(visit, wanted))


async def _csv(visit: Visit, wanted: Wanted) -> AsyncIterator[bytes]:
    yield asked.csv_lines([COLUMNS])
    before: int | None = None
    while True:
        async with visit.parts.database.connection() as connection:
            found = await console_orders.page(connection, wanted, before, ROWS_PER_CHUNK)
        if found.rows:
            yield asked.csv_lines([_cells(one) for one in found.rows])
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


async def one_order(visit: Visit) -> Page:
    """The order with everything that is known of it, on one line of time."""
    order_id = identity.order_id(visit.path["order_no"])
    async with visit.parts.database.connection() as connection:
        owner = None if order_id is None else await console_orders.whose(connection, order_id)
        if order_id is None or owner is None:
            raise NotHere
        known = await _known(connection, visit, owner[0], order_id)
        remark = await console_orders.remark(connection, owner[0], order_id)
    shown = known.order
    return own.page(
        visit,
        "order",
        order=shown,
        dealer=owner[1],
        remark=remark,
        events=timeline.tell(known),
        profiles=[(item, profile) for item in shown.items for profile in item.profiles][:PROFILES],
        profile_count=len(shown.profiles),
        moving=_moving(shown, visit),
    )


def _moving(shown: Order, visit: Visit) -> bool:
    """Whether more is to be expected, so that the page looks again."""
    settled = shown.order_status in ("COMPLETED", "REFUNDED")
    return not settled or visit.now - whole_seconds(shown.updated_at) < STILL_MOVING


async def _known(connection: Connection, visit: Visit, tenant_id: int, order_id: int) -> timeline.Known:
    key, keys = (tenant_id, order_id), visit.parts.data_keys
    found = (await order.load(connection, [key], keys))[key]
    span = range(found.items[0].first_profile_id, found.items[-1].first_profile_id + found.items[-1].quantity)
    deliveries = await webhook_log.page(connection, tenant_id, Filter(order_id), Window(DELIVERIES, 0, None))
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
        await webhook_log.attempts(connection, tenant_id, ids),
        await console_orders.bodies(connection, tenant_id, ids if own.may(visit).codes else [], keys),
    )


async def send_again(visit: Visit) -> Answer:
    """The order as it stands, as a new event."""
    number = visit.path["order_no"]
    order_id = identity.order_id(number)
    async with visit.parts.database.connection() as connection:
        owner = None if order_id is None else await console_orders.whose(connection, order_id)
    if owner is None:
        raise NotHere
    await repush.sync(visit.parts.database, owner[0], [number], visit.author, lambda: visit.now)
    return Go(f"/console/orders/{number}", "The snapshot goes out")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/orders", LOOK, orders, "Orders"),
    Route("GET", "/console/orders.csv", LOOK, export),
    Route("GET", "/console/orders/{order_no}", LOOK, one_order),
    Route("POST", "/console/orders/{order_no}/sync", PUSH, send_again),
)
