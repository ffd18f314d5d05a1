"""What would become of an order now? Nothing is locked and nothing moves (specification 4.2.1)."""

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.orders import check, order, priced_lines
from dealer_server.rules.orders.pricing import PriceList
from esim_dealer.wire.calls import CheckOrder, OrderCheck


async def check_order(
    database: Database, catalogue: Catalogue, prices: PriceList, tenant_id: int, call: CheckOrder
) -> OrderCheck:
    """Transaction, wallet and stock as they stood together at one moment. Raises 000105, 000106, 000108."""
    offers = [catalogue.offer(line.package_code, prices) for line in call.items]
    priced = priced_lines.price_check(call, prices.currency, offers)
    request = order.order_request(tenant_id, call, priced)
    key = (tenant_id, request.transaction_id)
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        wallet = await store.wallet.load(connection, tenant_id)
        before = (await store.order.find(connection, [key])).get(key) if call.transaction_id else None
        stock = await store.stock.count_up_to(connection, list(request.from_stock), check.STOCK_COUNTED)
    return check.answer(call, offers, order.check(request, before, wallet, stock), before, wallet, stock)
