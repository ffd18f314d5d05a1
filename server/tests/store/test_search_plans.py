"""Do searches find their rows by key, whatever PostgreSQL's statistics say?
(docs/decisions/0025-plans-and-foreign-keys.md, docs/decisions/0041-search.md)"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from asyncpg.connection import LoggedQuery

from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.operations.search.collect import SearchCollector
from dealer_server.store.console import orders, profiles, queues, search
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.console.profiles import ProfileFilter
from dealer_server.store.search import find
from support.databases import database_named

GROWING = {"orders", "profile", "search_page", "webhook_delivery", "refund", "refund_line", "purchase"}
ORDERS = 20_000
ROWS = f"""
INSERT INTO wallet (tenant_id, currency) SELECT {{tenant_id}}, 'USD' ON CONFLICT DO NOTHING;
INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, remark, updated_at)
SELECT {{tenant_id}}, n * 1000, 'shop-' || md5(n::text), '', 'USD', 0, 'stand ' || n, now()
FROM generate_series(1, {ORDERS}) n;
INSERT INTO profile (tenant_id, profile_id, order_id, line, iccid, activation_code, lifecycle_status, updated_at)
SELECT {{tenant_id}}, n, n * 1000, 0, (8944000000000000000 + n * 7919)::text, '', 'DELIVERED', now()
FROM generate_series(1, {ORDERS}) n;
"""


async def test_every_statement_of_a_search_finds_its_rows_by_key(database_url: str, postgres: str, template: str):
    database = await Database.open(database_url)
    async with database.connection() as connection:
        tenant_id = await connection.fetchval("INSERT INTO tenant (name) VALUES ('Sought') RETURNING tenant_id")
    statements = await _statements(database, tenant_id)
    assert len(statements) >= 8
    scans = [f"no rows: {scan}" for scan in await _scans(database_named(postgres, template), statements)]
    async with database.connection() as connection:
        await connection.execute("ANALYZE")
        await connection.execute(ROWS.format(tenant_id=tenant_id))
    scans += [f"statistics of before: {scan}" for scan in await _scans(database_url, statements)]
    collector = SearchCollector(database, database.clock.now)
    assert await collector.collect() == ORDERS and await collector.collect() == 0
    await collector.close()
    async with database.connection() as connection:
        found = await find.texts(connection, None, ("md5", "stand"), None, 5)
        assert not found.hits and found.further is None
        [hit] = (await find.texts(connection, tenant_id, ("stand 19999",), None, 5)).hits
        assert hit.order_id == 19_999_000 and hit.remark == "stand 19999"
        assert [one.order_id for one in (await find.texts(connection, None, ("shop-",), 5_000, 9)).hits] == [
            *(4_000, 3_000, 2_000, 1_000)
        ]
        await connection.execute("ANALYZE")
    scans += [f"statistics of now: {scan}" for scan in await _scans(database_url, statements)]
    await database.close()
    assert not scans, "\n".join(scans)


async def _statements(database: Database, tenant_id: int) -> list[str]:
    """Those of searches, as they are sent."""
    seen: list[str] = []

    def note(record: LoggedQuery) -> None:
        seen.append(record.query)

    async with database.connection() as connection:
        with connection.query_logger(note):
            await find.texts(connection, tenant_id, ("word",), None, 8)
            await find.beginning(connection, None, "shop", 8)
            await find.iccids(connection, None, "1234", 8)
            await search.orders(connection, None, 1, "x")
            await search.profiles(connection, None, 1, "x")
            await search.deliveries(connection, None, 1)
            for whose in (None, tenant_id):  # lists, and how many they list
                await profiles.list_profiles(connection, ProfileFilter(whose, iccid="1234"), None, 8)
                await profiles.count(connection, ProfileFilter(whose), ("IN_USE",), 100)
                await orders.count_orders(connection, OrderFilter(whose), 100)
            await queues.order_of(connection, 1)
            await queues.esims_of(connection, [(tenant_id, 1)], 8)
    return list(dict.fromkeys(seen))


async def _scans(database_url: str, statements: list[str]) -> list[str]:
    """The scans of growing tables that no index condition bounds."""
    session, found = Session(database_url, {}), list[str]()
    for sql in statements:
        count = max([int(number) for number in re.findall(r"\$(\d+)", sql)], default=0)
        await session.execute("SET plan_cache_mode = force_generic_plan")
        await session.execute(f"PREPARE explained AS {sql}")
        given = f"({', '.join(['NULL'] * count)})" if count else ""
        [row] = await session.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE explained{given}")
        await session.execute("DEALLOCATE explained")
        for node in _nodes(json.loads(row["QUERY PLAN"])[0]["Plan"]):
            if node.get("Relation Name") in GROWING and "Scan" in node["Node Type"] and "Index Cond" not in node:
                found.append(f"{node['Node Type']}: {' '.join(sql.split())}")
    await session.close()
    return found


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
