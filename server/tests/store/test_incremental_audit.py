"""Does an incremental audit look at every order that changed, however it changed, and at no others? Does it find their
rows by key or by time?"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import pytest

from dealer_server import clock
from dealer_server.db.connection import Connection
from dealer_server.operations.audit.check_invariants import AuditReport, Scope, check_invariants
from dealer_server.operations.webhooks import resend
from dealer_server.rules.orders import identity
from dealer_server.store.audit import checkpoint, excerpt
from dealer_server.store.audit.invariants import QUERIES
from dealer_server.store.webhooks.order_queue import UNFINISHED
from support.api_client import ApiClient, Service
from support.databases import database_named
from support.webhook_fixture import Receiver, eventually

INCREMENTAL = Scope(incremental=True, keep=True)
# They hold only rows that are not over, or codes that nobody bought.
PARTIAL_INDEXES = {
    "order_item_due",
    "webhook_delivery_unfinished",
    "purchase_due",
    "purchase_parked",
    "refund_pending",
    "refund_due",
    "void_request_due",
    "suspension_due",
    "stock_profile_free",
}
MANY = 20_000
# A dealer's orders of long ago, whose webhooks were skipped.
OLD_ORDERS = f"""
INSERT INTO tenant (tenant_id, name) VALUES (1, 'old');
INSERT INTO wallet (tenant_id, currency, version) VALUES (1, 'USD', {MANY});
INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, updated_at)
SELECT 1, n, 'old-' || n, '', 'USD', 0, now() - interval '1 year' FROM generate_series(1, {MANY}) n;
INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)
SELECT 1, n, 'ORDER_PAY', n, 0, 0, now() - interval '1 year' FROM generate_series(1, {MANY}) n;
INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num, price,
    first_profile_id)
SELECT 1, n, 0, 'TEST-OK', 'simulated', 1, 1, 0, n FROM generate_series(1, {MANY}) n;
INSERT INTO profile (tenant_id, profile_id, order_id, line, iccid, activation_code, lifecycle_status, updated_at)
SELECT 1, n, n, 0, n::text, '', 'DELIVERED', now() - interval '1 year' FROM generate_series(1, {MANY}) n;
INSERT INTO profile_life (tenant_id, profile_id, order_id, line, supplier, iccid, created_at, due_at)
SELECT 1, n, n, 0, 'simulated', n::text, now() - interval '1 year', now() + interval '1 day'
FROM generate_series(1, {MANY}) n;
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at)
SELECT 1, n, 'ORDER_PAID', 1, 'SKIPPED', now() - interval '1 year' FROM generate_series(1, {MANY}) n;
"""


class Orders(NamedTuple):
    """A dealer with its delivered orders, each named for what becomes of it."""

    dealer: ApiClient
    refunded: str
    cancelled: str
    living: str
    resent: str
    synced: str
    untouched: str


@pytest.fixture
async def orders(service: Service) -> AsyncIterator[Orders]:
    receiver = await Receiver().start()
    async with service.client(await service.tenant(balance="1000", qps=0)) as dealer:
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        numbers = [(await dealer.order()).data["orderNo"] for _ in range(len(Orders._fields) - 1)]
        for number in numbers:
            await dealer.delivered(number)
        await eventually(lambda: all_is_told(service, dealer.tenant_id))
        yield Orders(dealer, *numbers)
    await receiver.close()


async def all_is_told(service: Service, tenant_id: int) -> bool:
    sql = f"SELECT count(*) FROM webhook_delivery WHERE {UNFINISHED} AND tenant_id = $1"
    async with service.database.connection() as connection:
        return not await connection.fetchval(sql, tenant_id)


async def audit(service: Service, scope: Scope) -> AuditReport:
    return await check_invariants(
        service.database, service.settings.master_keys, None, service.database.clock.now(), scope
    )


async def run(service: Service, sql: str, *arguments: object) -> None:
    async with service.database.connection() as connection:
        await connection.execute(sql, *arguments)


async def keep_checkpoint(service: Service) -> None:
    """A whole audit that found nothing. What came before is then older than the margin."""
    report = await audit(service, Scope(keep=True))
    assert (report.violated, report.checkpoint) == ([], True)
    await run(service, "SELECT pg_sleep(1)")  # ids hold whole seconds
    await run(service, "UPDATE audit_checkpoint SET at = date_trunc('second', now()) + $1::interval", excerpt.MARGIN)


async def spoiled(service: Service, scope: Scope) -> set[str]:
    """The orders that the audit finds to have another amount than their lines."""
    report = await audit(service, scope)
    return {identity.order_no(row["order_id"]) for row in report["A6"].samples}


async def profile_id(dealer: ApiClient, order_no: str) -> str:
    return (await dealer.post("/esim/query", {"orderNo": order_no})).data["items"][0]["profiles"][0]["profileId"]


async def test_every_kind_of_change_is_looked_at_and_an_untouched_order_is_not(service: Service, orders: Orders):
    dealer = orders.dealer
    await keep_checkpoint(service)
    await dealer.post("/esim/refund", {"orderNo": orders.refunded})
    await dealer.post("/esim/profile/cancel", {"profileId": await profile_id(dealer, orders.cancelled)})
    await dealer.post(
        "/test/profile/advance", {"profileId": await profile_id(dealer, orders.living), "step": "INSTALL"}
    )
    await resend.sync(service.database, dealer.tenant_id, [orders.synced], "test", clock.now)
    listed = (await dealer.post("/webhook/delivery/list", {"orderNo": orders.resent})).data
    await dealer.post("/webhook/delivery/resend", {"deliveryId": listed["deliveries"][0]["deliveryId"]})
    new = (await dealer.order()).data["orderNo"]
    await dealer.delivered(new)
    # Of the amounts this one is in no report: what reports add up meanwhile stays right.
    await run(service, "UPDATE orders SET amount = amount + 1 WHERE tenant_id = $1", dealer.tenant_id)
    found, found_by_all = await spoiled(service, INCREMENTAL), await spoiled(service, Scope())
    await run(service, "UPDATE orders SET amount = amount - 1 WHERE tenant_id = $1", dealer.tenant_id)
    assert found_by_all == {*orders[1:], new}
    assert found == found_by_all - {orders.untouched}


async def test_a_chain_of_audits_covers_only_what_changed_and_ends_where_it_finds_something(
    service: Service, orders: Orders
):
    await keep_checkpoint(service)
    nothing = await audit(service, INCREMENTAL)
    assert nothing.checkpoint and nothing.covered and nothing.covered.entries < 5
    await keep_checkpoint(service)
    new = (await orders.dealer.order()).data["orderNo"]
    await run(service, "UPDATE orders SET amount = amount + 1 WHERE order_id = $1", identity.order_id(new))
    for _ in range(2):
        found = await audit(service, INCREMENTAL)
        assert "A6" in found.violated and not found.checkpoint
    await run(service, "UPDATE orders SET amount = amount - 1 WHERE order_id = $1", identity.order_id(new))
    assert (await audit(service, INCREMENTAL)).checkpoint


async def test_an_audit_of_one_dealer_or_since_a_time_is_no_checkpoint(service: Service):
    await keep_checkpoint(service)
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    for scope in (Scope(since=hour_ago, keep=True), Scope(tenant_id=1, keep=True), Scope()):
        report = await audit(service, scope)
        assert (report.violated, report.checkpoint) == ([], False)


async def test_an_older_snapshot_does_not_replace_a_newer_checkpoint(service: Service):
    async with (
        service.database.connection() as older,
        older.transaction(isolation="repeatable_read", readonly=True),
    ):
        snapshot = await checkpoint.export_snapshot(older)
        assert snapshot
        await keep_checkpoint(service)
        async with service.database.connection() as connection:
            with pytest.raises((asyncpg.SerializationError, asyncpg.UniqueViolationError)):
                async with connection.transaction(isolation="repeatable_read"):
                    await checkpoint.record(connection, snapshot)


async def test_a_chain_of_audits_beside_orders_finds_nothing(service: Service, orders: Orders):
    await audit(service, Scope(keep=True))

    async def trade() -> None:
        for _ in range(5):
            placed = [(await orders.dealer.order()).data["orderNo"] for _ in range(4)]
            await orders.dealer.delivered(placed[0])
            await orders.dealer.post("/esim/refund", {"orderNo": placed[0]})

    trading = asyncio.create_task(trade())
    while not trading.done():
        report = await audit(service, INCREMENTAL)
        assert (report.violated, report.checkpoint) == ([], True)
    await trading
    assert (await audit(service, INCREMENTAL)).violated == []
    assert (await audit(service, Scope())).violated == []


@pytest.mark.parametrize("from_checkpoint", (True, False))
async def test_no_statement_of_an_incremental_audit_reads_a_growing_table_whole(
    postgres: str, template: str, from_checkpoint: bool
):
    name = f"excerpt_{from_checkpoint}".lower()
    admin = await asyncpg.connect(postgres)
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    await admin.close()
    connection = await asyncpg.connect(database_named(postgres, name))
    scans = [f"no rows: {scan}" for scan in await scans_of(connection, from_checkpoint)]
    await connection.execute(OLD_ORDERS)
    scans += [f"no statistics: {scan}" for scan in await scans_of(connection, from_checkpoint)]
    await connection.execute("VACUUM ANALYZE")
    scans += [f"many rows: {scan}" for scan in await scans_of(connection, from_checkpoint)]
    await connection.close()
    assert not scans, "\n".join(scans)


async def scans_of(connection: Connection, from_checkpoint: bool) -> list[str]:
    """The scans of growing tables that neither a condition on an index nor what an index holds bounds."""
    now = datetime.now(UTC)
    start = excerpt.Start(now, checkpoint.Checkpoint(now, 0, 0, b"") if from_checkpoint else None)
    found = list[str]()
    async with connection.transaction(isolation="repeatable_read"):
        await excerpt.create(connection)
        for step in [step for part in excerpt.steps(start) for step in part]:
            await excerpt.set_locally(connection, step.settings)
            sql, arguments = step.numbered(excerpt.values(start, now))
            found += [scan async for scan in unbounded(connection, sql, *arguments)]
        await excerpt.fill(connection, start, now, lambda: None)
        for query in QUERIES:
            sql = f"SELECT FROM ({query.excerpt_sql}) found WHERE $1::bigint IS NULL AND $2::timestamptz IS NOT NULL"
            found += [scan async for scan in scanned(connection, sql, None, now)]
    return found


async def unbounded(connection: Connection, sql: str, *arguments: object) -> AsyncIterator[str]:
    async for node in growing(connection, sql, *arguments):
        index = node.get("Index Name", "")
        bounded = "Index Cond" in node or node["Node Type"] == "Bitmap Heap Scan" or index in PARTIAL_INDEXES
        last_act = index == "audit_log_pkey" and "LIMIT 1" in sql
        if not (bounded or last_act):
            yield f"{index or node['Node Type']}, filter {node.get('Filter')}: {' '.join(sql.split())}"


async def scanned(connection: Connection, sql: str, *arguments: object) -> AsyncIterator[str]:
    async for node in growing(connection, sql, *arguments):
        yield f"{node['Relation Name']}: {' '.join(sql.split())}"


async def growing(connection: Connection, sql: str, *arguments: object) -> AsyncIterator[Mapping[str, Any]]:
    """The scans of the real tables that grow."""
    [row] = await connection.fetch(f"EXPLAIN (FORMAT JSON, VERBOSE) {sql}", *arguments)
    for node in nodes(json.loads(row["QUERY PLAN"])[0]["Plan"]):
        real = not re.match("pg_temp", node.get("Schema", ""))
        if real and node.get("Relation Name") in excerpt.KEYS and "Scan" in node["Node Type"]:
            yield node


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
