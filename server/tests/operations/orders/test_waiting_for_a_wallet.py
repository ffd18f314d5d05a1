"""Orders and recharges that wait for a wallet which another transaction holds."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.rules.orders.order import OrderRequest, Placed
from dealer_server.rules.orders.priced_lines import OrderLine
from support.api_client import ApiClient, Service
from support.databases import lock_waiters
from support.patience import PATIENCE

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)


@asynccontextmanager
async def sessions(database: Database, count: int) -> AsyncIterator[list[Session]]:
    opened = [database.session() for _ in range(count)]
    try:
        yield opened
    finally:
        for session in opened:
            await session.close()


def order(tenant_id: int, number: int) -> Placed:
    line = OrderLine("TEST-OK", 1, 1, 18_000, "simulated")
    return Placed(OrderRequest(tenant_id, f"o-{number}", b"1", "USD", line.price, (line,)), number, number, NOW)


async def test_two_that_wait_for_a_wallet_do_not_wait_for_each_other(service: Service, dealer: ApiClient):
    """A third transaction has read the wallet, as a foreign key does, since before it was changed."""
    tenant_id = dealer.tenant_id
    async with sessions(service.database, 5) as [holder, reader, look, *waiting]:
        async with reader.transaction():
            async with holder.transaction():
                await holder.execute(f"UPDATE wallet SET updated_at = updated_at WHERE tenant_id = {tenant_id}")
                await reader.execute(f"SELECT FROM wallet WHERE tenant_id = {tenant_id} FOR KEY SHARE")
                writes = [
                    asyncio.create_task(store.order.write(session, [order(tenant_id, number)], wait=True))
                    for number, session in enumerate(waiting, 1)
                ]
                async with asyncio.timeout(PATIENCE):
                    while len(await look.fetch(f"SELECT FROM {lock_waiters()}")) < len(writes):
                        await asyncio.sleep(0.01)
            assert [written.whole for written in await asyncio.gather(*writes)] == [True, True]
        entries = await look.fetch(
            "SELECT e.version, balance_after, w.version AS last, balance, order_count, profile_count"
            " FROM ledger_entry e JOIN wallet w USING (tenant_id) WHERE tenant_id = $1 ORDER BY e.version DESC LIMIT 2",
            tenant_id,
        )
    once, twice = 10_000_000 - 18_000, 10_000_000 - 2 * 18_000
    last = entries[0]["last"]
    assert [tuple(entry) for entry in entries] == [
        (last, twice, last, twice, 2, 2),
        (last - 1, once, last, twice, 2, 2),
    ]
