"""Reading orders back. Concurrent /esim/query calls share one statement (architecture: group commit, point 3)."""

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
    """Where queries wait for the statement that answers them together. One per process."""

    def __init__(self, session: Session, data_keys: DataKeys):
        self._session = session
        self._data_keys = data_keys
        self._desk: Batcher[OrderLookup, Order | None] = Batcher(self._run, bound=ORDERS_PER_STATEMENT)

    def submit(self, sought: OrderLookup) -> asyncio.Future[Order | None]:
        return self._desk.submit(sought)

    async def _run(self, batch: Sequence[OrderLookup]) -> Sequence[Order | None]:
        keys = await self._keys(batch)
        orders = await store.order.load(self._session, list({key for key in keys if key}), self._data_keys)
        return [_agreeing(orders.get(key), sought) if key else None for key, sought in zip(keys, batch, strict=True)]

    async def _keys(self, batch: Sequence[OrderLookup]) -> list[tuple[int, int] | None]:
        """(tenant_id, orderId) of each; None where the transactionId is unknown."""
        unresolved = [
            (sought.tenant_id, sought.transaction_id)
            for sought in batch
            if sought.order_id is None and sought.transaction_id is not None
        ]
        ids = await store.order.ids(self._session, unresolved) if unresolved else {}
        keys: list[tuple[int, int] | None] = []
        for sought in batch:
            order_id = sought.order_id
            if order_id is None:
                order_id = ids.get((sought.tenant_id, sought.transaction_id or ""))
            keys.append(None if order_id is None else (sought.tenant_id, order_id))
        return keys


async def query_order(desk: OrderQueryBatcher, tenant_id: int, call: QueryOrder) -> Order:
    """The order a call names by orderNo, transactionId or both. Raises 000105, 310272."""
    if call.order_no is None and call.transaction_id is None:
        raise refusal.ParameterMissing("orderNo or transactionId is required")
    order_id = None
    if call.order_no is not None:
        order_id = identity.order_id(call.order_no)
        if order_id is None:
            raise refusal.OrderNotFound
    found = await desk.submit(OrderLookup(tenant_id, order_id, call.transaction_id))
    if found is None:
        raise refusal.OrderNotFound
    return found


def _agreeing(order: Order | None, sought: OrderLookup) -> Order | None:
    if order is None or sought.transaction_id is None or order.transaction_id == sought.transaction_id:
        return order
    return None
