"""Which orders has a dealer? /esim/order/list (specification 4.7, docs/decisions/0003-totals-from-counters.md)."""

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.paging import paged, utc, wanted, window
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.orders.listing import OrderFilter
from esim_dealer.wire import calls


async def list_orders(
    database: Database, data_keys: DataKeys, links: Links, tenant_id: int, call: calls.OrderList
) -> calls.Orders:
    """Newest first; all filters must match. Raises 000108."""
    pager = wanted(call.pager)
    filters = OrderFilter(
        start=utc("startTime", call.start_time),
        end=utc("endTime", call.end_time),
        order_status=call.order_status,
        updated_since=utc("updatedSince", call.updated_since),
    )
    async with database.connection() as connection:
        ids = await store.listing.order_ids(connection, tenant_id, filters, window(pager))
        if filters.empty:
            total = await store.listing.order_total(connection, tenant_id)
        else:
            total = await store.listing.order_count(connection, tenant_id, filters)
        page = ids[: pager.page_size]
        orders = await store.order.load(connection, [(tenant_id, order_id) for order_id in page], data_keys)
    return calls.Orders(
        orders=tuple(snapshot.of(orders[tenant_id, order_id], links) for order_id in page),
        pager=paged(pager, total, page[-1] if len(ids) > len(page) else None),
    )
