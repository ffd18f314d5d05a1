"""How is an order read back? Concurrent /esim/query calls share one statement (docs/decisions/0001-group-commit.md)."""

import asyncio
from collections.abc import Sequence

import msgspec

from dealer_server import store
from dealer_server.db.batcher import Batcher
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from esim_dealer.wire.calls import QueryOrder

ORDERS_PER_STATEMENT = 200


class OrderLookup(msgspec.Struct, frozen=True):
    """Which order: by orderId, by transactionId, or by both, which must agree."""

    tenant_id: int
    order_id: int | None
    transaction_id: str | None


class OrderQueryBatcher:
    """Answers the queries that arrive together with one statement. One per process."""

    def __init__(self, session: Session, data_keys: DataKeys):
        self._session = session
        self._data_keys = data_keys
        self._batcher: Batcher[OrderLookup, Order | None] = Batcher(
            self._run, bound=ORDERS_PER_STATEMENT, name="order_queries"
        )

    def submit(self, lookup: OrderLookup) -> asyncio.Future[Order | None]:
        return self._batcher.submit(lookup)

    async def _run(self, batch: Sequence[OrderLookup]) -> Sequence[Order | None]:
        keys = await self._keys(batch)
        orders = await store.order.load(self._session, list({key for key in keys if key}), self._data_keys)
        return [_if_agreeing(orders.get(key), lookup) if key else None for key, lookup in zip(keys, batch, strict=True)]

    async def _keys(self, batch: Sequence[OrderLookup]) -> list[tuple[int, int] | None]:
        """(tenant_id, orderId) of each; None where the transactionId is unknown."""
        unresolved = [
            (lookup.tenant_id, lookup.transaction_id)
            for lookup in batch
            if lookup.order_id is None and lookup.transaction_id is not None
        ]
        ids = await store.order.ids(self._session, unresolved) if unresolved else {}
        keys: list[tuple[int, int] | None] = []
        for lookup in batch:
            order_id = lookup.order_id
            if order_id is None:
                order_id = ids.get((lookup.tenant_id, lookup.transaction_id or ""))
            keys.append(None if order_id is None else (lookup.tenant_id, order_id))
        return keys


async def query_order(batcher: OrderQueryBatcher, tenant_id: int, call: QueryOrder) -> Order:
    """The order a call names by orderNo, transactionId or both. Raises 000105, 310272."""
    if call.order_no is None and call.transaction_id is None:
        raise refusal.ParameterMissing("orderNo or transactionId is required")
    order_id = None
    if call.order_no is not None:
        order_id = identity.order_id(call.order_no)
        if order_id is None:
            raise refusal.OrderNotFound
    order = await batcher.submit(OrderLookup(tenant_id, order_id, call.transaction_id))
    if order is None:
        raise refusal.OrderNotFound
    return order


def _if_agreeing(order: Order | None, lookup: OrderLookup) -> Order | None:
    """The order, if it has the transactionId of the lookup."""
    if order is None or lookup.transaction_id is None or order.transaction_id == lookup.transaction_id:
        return order
    return None
