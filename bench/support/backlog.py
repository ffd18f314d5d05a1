"""What if webhooks wait? Dealers with a receiver each, delivered orders, and the events that are due for them.

Events wait behind breakers that are open (`hold`), which cost the worker nothing; one UPDATE lets all of them go.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from bench.support import growth
from bench.support.calls import Dealer
from bench.support.failure import Failed
from bench.support.instance import Instance
from dealer_server import clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.store.webhooks import enqueue
from dealer_server.store.webhooks.circuit_breaker import BREAKER_FAILURES

Key = tuple[int, int]
"""An order's tenant_id and order_id."""

OVER = timedelta(minutes=10)
_CHANGED_AT_ONCE = 500
_LOOK_SECONDS = 0.05
_RECORDED_LOOKS = 200

# Of each order its payment, which goes first, and its delivery, which waits behind it.
FIRST_EVENTS = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at)
SELECT tenant_id, order_id, event_type, order_version, state, CASE WHEN state = 'READY' THEN {growth.AT} END,
    {growth.AT}
FROM stored, (VALUES ('ORDER_PAID', 1, 'READY'), ('DELIVERY_UPDATED', 2, 'WAITING'))
    AS event(event_type, order_version, state)
ORDER BY order_id, order_version
"""

_CHANGE = """
WITH key AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)
), used AS (
    UPDATE profile p SET updated_at = $3,
        esim_status = CASE WHEN esim_status = 'IN_USE' THEN 'USED_UP' ELSE 'IN_USE' END
    FROM key WHERE p.tenant_id = key.tenant_id AND p.profile_id = key.order_id
)
UPDATE orders o SET version = version + 1, updated_at = $3
FROM key WHERE o.tenant_id = key.tenant_id AND o.order_id = key.order_id
RETURNING o.tenant_id, o.order_id, o.version
"""


def load(instance: Instance, database: str, dealers: Sequence[Dealer], urls: Sequence[str], count: int) -> None:
    """`count` orders of these dealers; both first events of half of them are due, so `count` as well, and held."""
    instance.subscribe(database, dict(zip(dealers, urls, strict=True)))
    growth.load(instance, database, count // 2, OVER, OVER, dealers=dealers, events=FIRST_EVENTS)
    growth.load(instance, database, count - count // 2, OVER, dealers=dealers)
    instance.run(database, hold)
    growth.vacuum(instance, database)


async def hold(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(
            f"UPDATE webhook_endpoint SET consecutive_failures = {BREAKER_FAILURES},"
            " probe_at = now() + interval '1 day'"
        )


async def release(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("UPDATE webhook_endpoint SET consecutive_failures = 0, probe_at = NULL")


async def orders(database: Database) -> list[Key]:
    """All of them, one dealer's after the other's by turns."""
    async with database.connection() as connection:
        found = await connection.fetch("SELECT tenant_id, order_id FROM orders ORDER BY order_id")
    return [(row[0], row[1]) for row in found]


async def change_all(database: Database) -> int:
    """A DELIVERY_UPDATED comes due of every order, held; how many."""
    await hold(database)
    keys = await orders(database)
    for at in range(0, len(keys), _CHANGED_AT_ONCE):
        async with database.transaction() as connection:
            await change(connection, keys[at : at + _CHANGED_AT_ONCE], clock.now())
    async with database.connection() as connection:
        await connection.execute("VACUUM (ANALYZE)")
    return len(keys)


async def change(connection: Connection, keys: Sequence[Key], now: datetime) -> list[tuple[int, int, int]]:
    """Changes orders as a supplier's news would, and tells of it in the same transaction; (tenant, order, version)."""
    columns = [[key[0] for key in keys], [key[1] for key in keys]]
    changes = [(row[0], row[1], row[2]) for row in await connection.fetch(_CHANGE, *columns, now)]
    await enqueue.order_changed(connection, changes, now)
    return changes


async def recorded(database: Database, but: int | None = None) -> None:
    """Returns when no delivery is left unfinished, of any tenant `but` this one. Raises Failed where some stay."""
    left = 0
    for _ in range(_RECORDED_LOOKS):
        async with database.connection() as connection:
            left = await connection.fetchval(
                "SELECT count(*) FROM webhook_delivery WHERE state IN ('WAITING', 'READY', 'IN_FLIGHT', 'RETRY')"
                " AND tenant_id IS DISTINCT FROM $1",
                but,
            )
        if not left:
            return
        await asyncio.sleep(_LOOK_SECONDS)
    raise Failed(f"{left} deliveries were received and not recorded")
