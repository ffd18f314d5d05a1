"""The routes of orders: place, query, list."""

from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.orders import list as listing
from dealer_server.operations.orders.query import OrderLookup, query_order
from dealer_server.rules.orders import order, snapshot
from dealer_server.rules.orders.order import Placed, Repeated
from esim_dealer.wire import calls, operations
from esim_dealer.wire.snapshot import Snapshot

FIELDS = {
    "OrderItem.packageCode": "The package ordered.",
    "PlaceOrder.currency": "If given, it must be the wallet's.",
    "PlaceOrder.amount": "The sum of price × quantity × periodNum.",
    "Snapshot.amount": "What was paid.",
    "PlaceOrder.items": "One line per package; at most 500 profiles in all.",
    "Snapshot.items": "One per line.",
    "quantity": "How many profiles.",
    "OrderLine.price": "Your price of one unit, of one day for `DAILY_*`.",
    "OrderLine.periodNum": "Days of a `DAILY_*` package, where it is required. Otherwise 1 or absent.",
    "OrderItem.periodNum": "Days ordered; absent where it is 1.",
    "orderNo": "The platform's order number.",
    "orderId": "The same order as a number.",
    "eventType": "Webhooks only.",
    "changeHints": "Webhooks only: what changed since the last event of this type that you received.",
    "payStatus": "`REFUNDED` only when all of the amount was refunded.",
    "deliveryStatus": "How many of the profiles have their codes.",
    "orderStatus": "Where the order stands.",
    "OrderList.orderStatus": "Only these.",
    "refundAmount": "What was refunded in all, as a JSON number.",
    "duplicate": "Whether an earlier order was found under this transactionId; then nothing was charged.",
    "createTime": "When it was paid.",
    "updateTime": "When it last changed.",
    "startTime": "Ordered at or after.",
    "endTime": "Ordered before.",
    "orders": "Newest first.",
    "itemNo": "Names the line.",
    "itemStatus": "Where the line stands.",
}


@route(
    operations.ORDER,
    summary="Create an order",
    description=(
        "Buys one line per package and pays from the wallet at once. `price` is the unit price of `/package/list`, for"
        " packages sold by the day that of one day; `amount` is the sum of `price` × `quantity` × `periodNum`.\n\n"
        "`transactionId` is your idempotency key. The same one with the same content gives the order as it now stands,"
        " with `duplicate` true and no second debit, however often and however late. With other content it is refused"
        " with `310402`. A refused order leaves its `transactionId` free. After a lost answer, a `5xx` or a timeout:"
        " repeat with the same `transactionId` and a new `RT-RequestID`.\n\n"
        "What is refused here was not charged. Delivery follows: query the order, or wait for `DELIVERY_UPDATED`."
    ),
    refusals=(
        "310402",
        "310241",
        "200014",
        "200008",
        "200015",
        "200005",
        "200006",
        "200020",
        "200011",
        "200007",
    ),
)
async def place_order(parts: Parts, caller: Caller, call: calls.PlaceOrder) -> Snapshot:
    priced_lines = parts.cache.catalogue.price_lines(call, caller.access.prices)
    decision = await parts.orders.submit(order.order_request(caller.tenant_id, call, priced_lines))
    if isinstance(decision, Placed):
        return snapshot.of(order.as_placed(decision), parts.links, duplicate=False)
    assert isinstance(decision, Repeated)
    original = await parts.queries.submit(OrderLookup(caller.tenant_id, decision.order_id, None))
    assert original is not None
    return snapshot.of(original, parts.links, duplicate=True)


@route(
    operations.QUERY,
    summary="Query an order",
    description=(
        "The order as it stands, found by `orderNo`, `transactionId`, or both. An order whose delivery is under way is"
        " a normal answer: profiles without `iccid` are still to come."
    ),
    refusals=("310272",),
)
async def query(parts: Parts, caller: Caller, call: calls.QueryOrder) -> Snapshot:
    return snapshot.of(await query_order(parts.queries, caller.tenant_id, call), parts.links)


@route(
    operations.ORDER_LIST,
    summary="List orders",
    description="Your orders, newest first, from `startTime` until before `endTime`. All filters must match.",
)
async def list_orders(parts: Parts, caller: Caller, call: calls.OrderList) -> calls.Orders:
    return await listing.list_orders(parts.reads, parts.data_keys, parts.links, caller.tenant_id, call)
