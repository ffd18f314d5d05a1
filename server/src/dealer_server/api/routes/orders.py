"""The routes of orders: place, query, list."""

from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.orders import list as listing
from dealer_server.operations.orders.check import check_order
from dealer_server.operations.orders.query import OrderLookup, query_order
from dealer_server.rules.orders import order, snapshot
from dealer_server.rules.orders.order import Decision, Placed, Repeated
from esim_dealer.wire import calls, operations
from esim_dealer.wire.snapshot import Snapshot

FIELDS = {
    "OrderItem.packageCode": "The package ordered.",
    "PlaceOrder.currency": "If given, it must be the wallet's.",
    "PlaceOrder.amount": "The sum of price × quantity × periodNum.",
    "Snapshot.amount": "What was paid.",
    "PlaceOrder.items": "One line per package; at most 500 profiles in all.",
    "Snapshot.items": "One per line.",
    "CheckOrder.transactionId": "The one the order shall have: an order that has it already is told of.",
    "CheckOrder.currency": "If given, it must be the wallet's.",
    "CheckOrder.amount": "What you would send with the order. Left out: the sum of the lines.",
    "CheckOrder.items": "As those of an order; the prices may be left out.",
    "CheckLine.price": "What you would send with the order. Left out: your price of now.",
    "CheckLine.periodNum": "Days of a `DAILY_*` package, where it is required. Otherwise 1 or absent.",
    "OrderCheck.amount": "What the order costs now; absent where a line has no price.",
    "OrderCheck.items": "One per line, in the order of the call.",
    "OrderCheck.duplicate": "Whether it would repeat the order `orderNo`; then nothing would be charged.",
    "OrderCheck.orderNo": "The order that has this transactionId, where there is one.",
    "wouldRefuse": "What `/esim/order` would answer now; absent where it would not refuse.",
    "WouldRefuse.code": "The result code.",
    "WouldRefuse.message": "What is wrong and what is accepted.",
    "WouldRefuse.data": "What else a program can use; often empty.",
    "OrderCheck.balanceAfter": "What the wallet would hold after the order; absent where the order would be refused.",
    "CheckedItem.periodNum": "As in the call.",
    "CheckedItem.price": "Your price now, of one unit, of one day for `DAILY_*`; absent where you have none.",
    "CheckedItem.amount": "price × quantity × periodNum.",
    "availability": "Whether this line can be had now.",
    "stock": "Profiles left, counted to 500, of a package that comes from stock only. Else absent.",
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
    return await placed_or_repeated(parts, caller, decision)


async def placed_or_repeated(parts: Parts, caller: Caller, decision: Decision) -> Snapshot:
    """The answer to a call that places an order: as it was placed or, where it repeats one, as that stands now."""
    if isinstance(decision, Placed):
        return snapshot.placed(decision)
    assert isinstance(decision, Repeated)
    original = await parts.queries.submit(OrderLookup(caller.tenant_id, decision.order_id, None))
    assert original is not None
    return snapshot.of(original, parts.links, duplicate=True)


@route(
    operations.ORDER_CHECK,
    summary="Check an order",
    description=(
        "Takes what `/esim/order` takes and answers what would become of it now: your price and the availability of"
        " each line, the amount, the balance before and after, and as `wouldRefuse` the refusal that `/esim/order`"
        " would give. Nothing is bought, reserved or locked: price, stock and balance may change until you order.\n\n"
        "`transactionId`, `amount` and each `price` may be left out. Where `wouldRefuse` is absent, `currency`,"
        " `amount` and `items` of the answer can be sent to `/esim/order` as they are, with a `transactionId`. A call"
        " that is malformed is refused as `/esim/order` refuses it."
    ),
)
async def check(parts: Parts, caller: Caller, call: calls.CheckOrder) -> calls.OrderCheck:
    return await check_order(parts.reads, parts.cache.catalogue, caller.access.prices, caller.tenant_id, call)


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
    return await parts.lists.run(
        lambda reads: listing.list_orders(reads, parts.data_keys, parts.links, caller.tenant_id, call), exact=True
    )
