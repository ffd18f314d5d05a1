"""Do the statements of an order's life find their rows by key, whatever PostgreSQL's statistics say?
(docs/decisions/0025-plans-and-foreign-keys.md)"""

import asyncio
import gc
import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from datetime import timedelta
from typing import Any

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.notices.looks import Limits
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.rules.retention.retention import Kind
from dealer_server.store.console import supplier_work, webhooks
from dealer_server.store.console.incidents import findings, receivers, waiting
from dealer_server.store.profiles import install
from dealer_server.store.suppliers import outage
from dealer_server.store.webhooks import log
from support.api_client import ApiClient, Service, running_service
from support.databases import database_named
from support.money.recharges import plans, recharged
from support.money.refunds import refund
from support.notices.told import notice_worker
from support.reports import folder
from support.webhook_fixture import Receiver

GROWING = {
    *("orders", "order_item", "profile", "profile_life", "void_request", "ledger_entry"),
    *("webhook_delivery", "webhook_attempt"),
}
LOGS = {"purchase", "supplier_call", "supplier_event"}
# Not for one order: leases of all that is in flight, every second.
SWEEPS = ("state = 'IN_FLIGHT' AND due_at <= $1",)
# All rows of a tenant, or all that are due, are read for those of one key.
KEY_FILTERED = re.compile(r"\b(order_id|delivery_id|profile_id|transaction_id) = ")
DEAD_DELIVERIES = 20_000
# Of a dealer whose receiver is dead: orders paid and delivered, whose updates wait behind their payments.
BACKLOG = f"""
INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, updated_at)
SELECT {{tenant_id}}, n, 'dead-' || n, '', 'USD', 0, now() FROM generate_series(1, {DEAD_DELIVERIES}) n;
INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
    first_profile_id)
SELECT {{tenant_id}}, n, 0, 'TEST-OK', 'simulated', 1, 1, 0, n FROM generate_series(1, {DEAD_DELIVERIES}) n;
INSERT INTO profile (tenant_id, profile_id, order_id, line, iccid, activation_code, lifecycle_status, updated_at)
SELECT {{tenant_id}}, n, n, 0, n::text, '', 'DELIVERED', now() FROM generate_series(1, {DEAD_DELIVERIES}) n;
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at)
SELECT {{tenant_id}}, n, 'ORDER_PAID', 1, 'READY', now() + interval '1 hour', now()
FROM generate_series(1, {DEAD_DELIVERIES}) n;
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at)
SELECT {{tenant_id}}, n, 'DELIVERY_UPDATED', 2, 'WAITING', now() FROM generate_series(1, {DEAD_DELIVERIES}) n;
"""

# Of a dealer that pays many orders and was topped up long ago.
ENTRIES = """
INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
SELECT {tenant_id}, 1000000 + n, CASE WHEN n < 5 THEN 'TOPUP' ELSE 'ORDER_PAY' END, 1000000 + n, 0, 0, now()
FROM generate_series(1, 20000) n;
"""
# Partial indexes that hold only what waits.
WAITING_INDEXES = ("purchase_parked", "purchase_due", "refund_pending", "topup_pending")
RETENTION: dict[Kind, timedelta] = {
    "webhook_attempt": timedelta(days=30),
    "webhook_delivery": timedelta(days=90),
    "supplier_call": timedelta(days=30),
    "supplier_event": timedelta(days=30),
}
# The backlog, given up, each with an attempt and a purchase.
LOG_OF_SUPPLIERS = """
UPDATE webhook_delivery SET state = 'FAILED', due_at = NULL, finished_at = created_at WHERE tenant_id = {tenant_id};
INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms)
SELECT tenant_id, delivery_id, 1, created_at, 1 FROM webhook_delivery WHERE tenant_id = {tenant_id};
INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state, created_at,
    finished_at) SELECT tenant_id, profile_id, 0, order_id, 0, profile_id::text, 's', 's', 'REJECTED', now(), now()
FROM profile WHERE tenant_id = {tenant_id};
INSERT INTO supplier_call (tenant_id, profile_id, position, number, supplier, kind, step, sent_at)
SELECT tenant_id, profile_id, 0, 1, 's', 'ALLOCATE', '', now() FROM purchase WHERE tenant_id = {tenant_id};
INSERT INTO supplier_event (supplier, key, kind, state, body, received_at)
SELECT 's', n::text::bytea, 'k', 'APPLIED', '', now() FROM generate_series(1, 2000) n;
"""


async def test_every_statement_of_a_life_finds_its_rows_by_key(database_url: str, postgres: str, template: str):
    receiver, others = await Receiver().start(), _sessions()
    async with (
        running_service(database_url) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
    ):
        await _trade(dealer, receiver)
        sessions = [session for session in _sessions() if session not in others]
        statements = [sql for session in sessions for sql in session.statements if _of_growing_tables(sql)]
        statements.append(install.FIND)
        assert len(statements) >= 15
        scans = [f"no rows: {scan}" for scan in await _scans(database_named(postgres, template), statements)]
        scans += [f"no statistics: {scan}" for scan in await _scans(database_url, statements)]
        await _run(service, "ANALYZE")
        scans += [f"few rows, and nothing waits: {scan}" for scan in await _scans(database_url, statements)]
        await _run(service, BACKLOG.format(tenant_id=(await service.tenant()).tenant_id))
        scans += [f"many rows, statistics of before: {scan}" for scan in await _scans(database_url, statements)]
        await _run(service, "ANALYZE")
        scans += [f"many rows wait: {scan}" for scan in await _scans(database_url, statements)]
    await receiver.close()
    assert not scans, "\n".join(scans)


async def test_every_statement_of_the_sweep_finds_its_rows_by_key(database_url: str, postgres: str, template: str):
    database = await Database.open(database_url)
    others = _sessions()
    sweeper = Sweeper(database, lambda: database.clock.now() + timedelta(days=100), RETENTION)
    [session] = [session for session in _sessions() if session not in others]
    async with database.connection() as connection:
        tenant_id = await store.tenant.create(connection, "Swept", 0)
        await connection.execute(BACKLOG.format(tenant_id=tenant_id))
        await connection.execute(LOG_OF_SUPPLIERS.format(tenant_id=tenant_id))
    deleted = await sweeper.sweep()
    assert all(deleted.values()), deleted
    statements = [sql for sql in session.statements if _of_growing_tables(sql, GROWING | LOGS)]
    assert len(statements) >= 10
    scans = await _scans(database_named(postgres, template), statements, GROWING | LOGS)
    scans += await _scans(database_url, statements, GROWING | LOGS)
    async with database.connection() as connection:
        await connection.execute("ANALYZE")
    scans += await _scans(database_url, statements, GROWING | LOGS)
    await sweeper.close()
    await database.close()
    assert not scans, "\n".join(scans)


async def test_the_page_of_a_supplier_finds_its_calls_by_key(database_url: str, postgres: str, template: str):
    statements = [
        supplier_work.LATEST_CALLS,
        supplier_work.CALL_COUNTS,
        supplier_work.CALL_HOURS,
        outage.WAITING,
        supplier_work.WAITING_ORDERS,
    ]
    scans = await _scans(database_named(postgres, template), statements, GROWING | LOGS)
    database = await Database.open(database_url)
    async with database.connection() as connection:
        tenant_id = await store.tenant.create(connection, "Called", 0)
        await connection.execute(BACKLOG.format(tenant_id=tenant_id))
        await connection.execute(LOG_OF_SUPPLIERS.format(tenant_id=tenant_id))
    scans += await _scans(database_url, statements, GROWING | LOGS)
    async with database.connection() as connection:
        await connection.execute("ANALYZE")
    scans += await _scans(database_url, statements, GROWING | LOGS)
    await database.close()
    assert not scans, "\n".join(scans)


async def test_what_adds_up_reports_finds_its_rows_by_key(database_url: str, postgres: str, template: str):
    growing = GROWING | {"purchase", "refund", "refund_line", "report_day", "wallet_day"}
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        folder(service.database) as one,
    ):
        await dealer.order()
        others = _sessions()
        await one.fold()
        [session] = [session for session in others if any("report_cursor" in sql for sql in session.statements)]
        statements = [sql for sql in session.statements if _of_growing_tables(sql, growing)]
        assert len(statements) == 2
        scans = await _scans(database_named(postgres, template), statements, growing)
        await _run(service, BACKLOG.format(tenant_id=dealer.tenant_id))
        await _run(service, ENTRIES.format(tenant_id=dealer.tenant_id))
        scans += await _scans(database_url, statements, growing)
        await _run(service, "ANALYZE")
        scans += await _scans(database_url, statements, growing)
    # What is to be added is found by an index of that alone.
    assert not [scan for scan in scans if not scan.startswith("purchase_to_report")], "\n".join(scans)


async def test_the_look_at_balances_finds_top_ups_by_their_kind(database_url: str, postgres: str, template: str):
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        notice_worker(service, limits=Limits()) as one,
    ):
        await dealer.order()
        await one.look()
        statements = [sql for session in _sessions() for sql in session.statements if "wallet_look l" in sql]
        [moved] = set(statements)
        scans = await _scans(database_named(postgres, template), [moved])
        await _run(service, ENTRIES.format(tenant_id=dealer.tenant_id))
        scans += await _scans(database_url, [moved])
        await _run(service, "ANALYZE")
        scans += await _scans(database_url, [moved])
        assert "ledger_entry_tenant_id_entry_type_reference_key" in await _indexes(database_url, moved)
    assert not scans, "\n".join(scans)


async def test_the_incidents_of_the_console_are_found_by_key(database_url: str, postgres: str, template: str):
    """By keys, and by the indexes of what is parked or waits for an operator, which are small."""
    statements = [
        *(findings._UNCONFIRMED, findings._REFUNDS, findings._FAILED, waiting._WAITING, waiting._LINES),
        *(receivers._WORST, receivers._ONE, webhooks._ENDPOINTS),
    ]
    scans = await _scans(database_named(postgres, template), statements, GROWING | LOGS | {"refund", "refund_line"})
    database = await Database.open(database_url)
    async with database.connection() as connection:
        tenant_id = await store.tenant.create(connection, "Watched", 0)
        await connection.execute(BACKLOG.format(tenant_id=tenant_id))
        await connection.execute("ANALYZE")
    await database.close()
    scans += await _scans(database_url, statements, GROWING | LOGS | {"refund", "refund_line"})
    assert not [scan for scan in scans if not scan.startswith(WAITING_INDEXES)], "\n".join(scans)


async def test_a_dealers_deliveries_are_counted_by_the_index_alone(database_url: str):
    database = await Database.open(database_url)
    async with database.connection() as connection:
        counted = []
        for number in range(2):
            tenant_id = await store.tenant.create(connection, f"Counted {number}", 0)
            await connection.execute(BACKLOG.format(tenant_id=tenant_id))
            counted.append(await log.count(connection, tenant_id, log.Filter(own_only=True), 2 * DEAD_DELIVERIES))
        await connection.execute("VACUUM (ANALYZE) webhook_delivery")
        explained = await connection.fetch(f"EXPLAIN {log._COUNT_OWN.replace('$1', str(tenant_id))}")
        found = await log.count(connection, tenant_id, log.Filter(own_only=True))
        rt = "UPDATE webhook_delivery SET event_type = 'RT_X' WHERE tenant_id = $1 AND order_id > 10"
        await connection.execute(rt, tenant_id)
        others = await log.count(connection, tenant_id, log.Filter(own_only=True))
    await database.close()
    assert counted == [2 * DEAD_DELIVERIES] * 2
    assert found == log.MOST_COUNTED + 1 and others == 20
    plan = "\n".join(line for (line,) in explained)
    assert "Index Only Scan using webhook_delivery_pkey" in plan and "Seq Scan" not in plan, plan


async def _trade(dealer: ApiClient, receiver: Receiver) -> None:
    """Orders with both webhooks, a repeated order, a refund, a cancellation, recharges and the refund of one."""
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    placed = await asyncio.gather(*[dealer.order() for _ in range(12)])
    orders = [await dealer.delivered(reply.data["orderNo"]) for reply in placed]
    assert (await dealer.order(transactionId=orders[0]["transactionId"])).data["duplicate"]
    await refund(dealer, orders[0])
    profile = orders[1]["items"][0]["profiles"][0]
    await dealer.post("/esim/profile/cancel", {"profileId": profile["profileId"]})
    for order in orders[2:5]:  # the first under locks; the others in one statement, as the package is known by then
        await recharged(dealer, order)
    queued = await recharged(dealer, orders[2], "TEST-TOPUP-QUEUE")
    assert (await refund(dealer, queued)).code == "000000"
    assert len(await plans(dealer, orders[2])) == 3
    await receiver.received(2 * len(orders) + 1)


def _sessions() -> list[Session]:
    gc.unfreeze()  # what a process has made at its start is hidden from get_objects
    return [found for found in gc.get_objects() if isinstance(found, Session)]


def _of_growing_tables(sql: str, growing: Set[str] = GROWING) -> bool:
    return not growing.isdisjoint(re.findall(r"\w+", sql)) and not any(sweep in sql for sweep in SWEEPS)


async def _run(service: Service, sql: str) -> None:
    async with service.database.connection() as connection:
        await connection.execute(sql)


async def _scans(database_url: str, statements: Sequence[str], growing: Set[str] = GROWING) -> list[str]:
    """The scans of growing tables that no index condition bounds, or one without a key that the statement gives; each
    with its statement."""
    session, found = Session(database_url, {}), list[str]()
    for sql in statements:
        parameters = max([int(number) for number in re.findall(r"\$(\d+)", sql)], default=0)
        await session.execute(f"PREPARE explained AS {sql}")
        given = f"({', '.join(['NULL'] * parameters)})" if parameters else ""
        [row] = await session.fetch(f"EXPLAIN (FORMAT JSON) EXECUTE explained{given}")
        await session.execute("DEALLOCATE explained")
        for node in _nodes(json.loads(row["QUERY PLAN"])[0]["Plan"]):
            if node.get("Relation Name") in growing and "Scan" in node["Node Type"] and not _bounded(node):
                used = node.get("Index Name", node["Node Type"])
                found.append(f"{used}, filter {node.get('Filter')}: {' '.join(sql.split())}")
    await session.close()
    return found


async def _indexes(database_url: str, sql: str) -> set[str]:
    """The indexes that a statement with one parameter uses."""
    session = Session(database_url, {})
    await session.execute(f"PREPARE explained AS {sql}")
    [row] = await session.fetch("EXPLAIN (FORMAT JSON) EXECUTE explained(NULL)")
    await session.close()
    return {node.get("Index Name", "") for node in _nodes(json.loads(row["QUERY PLAN"])[0]["Plan"])}


def _bounded(scan: Mapping[str, Any]) -> bool:
    return ("Index Cond" in scan or "TID Cond" in scan) and not KEY_FILTERED.search(scan.get("Filter", ""))


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
