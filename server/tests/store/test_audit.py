"""The audit: a clean database has no violation, and each one planted is found, under its own code and with its row."""

import asyncio
import functools
import itertools
import json
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import msgspec
import pytest

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, MasterKeys, delivery_context, profile_context
from dealer_server.operations.audit.check_invariants import (
    TITLES,
    AuditReport,
    Scope,
    check_invariants,
    report_json,
    report_text,
)
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.tenants.create import create_tenant
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import AddedPlan, Codes, Failed, Result
from dealer_server.rules.orders import identity, plans
from dealer_server.rules.orders.model import AppliedPlan, Order
from dealer_server.rules.orders.order import STOCK, NextPlan, OrderRequest, Placed
from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.store.audit.audit_log import ACT
from dealer_server.store.audit.invariants import QUERIES, violations
from dealer_server.store.profiles.plans import written
from dealer_server.store.suppliers.stock import Loaded
from dealer_server.store.tenants import data_key
from support.paths import DOCS
from support.supplier_setup import fresh

pytestmark = pytest.mark.one_server("it plants rows by hand in copies of one database; cli/test_cluster.py plants some")

MASTER_KEYS = MasterKeys({"first": b"m" * 32})
CODE = "LPA:1$smdp.example.com$MATCHING-{}"
STOCK_ICCIDS = [f"899900000000000000{number}" for number in range(1, 6)]

_numbers = itertools.count(1)


@functools.cache
def begun_at() -> datetime:
    """When the first test of this file ran."""
    return datetime.now(UTC).replace(microsecond=0)


class Prepared(NamedTuple):
    """A clean database to copy. `ids`: tenants a and b, and the orderIds by transactionId."""

    dsn: str
    data_keys: DataKeys
    ids: Mapping[str, int]


def clock() -> datetime:
    return begun_at()


def yesterday() -> datetime:
    return begun_at() - timedelta(days=1)


@pytest.fixture(scope="module")
async def prepared(database_url: str) -> Prepared:
    """Two dealers whose orders are paid, partly or wholly delivered, failed, and from stock; nobody is connected."""
    database = await Database.open(database_url)
    async with database.connection() as connection:
        keys = await data_key.load(connection, MASTER_KEYS)
        await load_stock(connection, keys)
    ids = await history(database, keys)
    for name in ("a", "b"):
        ids[name] = await dealer(database, name)
    async with database.connection() as connection:
        await connection.execute(
            f"INSERT INTO webhook_endpoint (tenant_id, url) VALUES ({ids['a']}, 'https://a.example')"
        )
    ids |= await place(
        database,
        [
            wanted(ids["a"], "a-delivered", line("DAILY", 1, period_num=3), line("PLAIN", 2)),
            wanted(ids["a"], "a-partial", line("PLAIN", 2)),
            wanted(ids["a"], "a-paid", line("PLAIN", 2)),
            wanted(ids["a"], "a-stock", line("SHELF", 1, supplier=STOCK)),
            wanted(ids["a"], "a-stock-paid", line("SHELF", 1, supplier=STOCK)),
            wanted(ids["b"], "b-delivered", line("PLAIN", 1)),
            wanted(ids["b"], "b-failed", line("PLAIN", 1)),
            wanted(ids["c"], "c-new", line("PLAIN", 1)),
        ],
    )  # fmt: skip
    async with database.connection() as connection:
        for name in ("a-delivered", "a-partial", "a-stock", "b-delivered", "b-failed"):
            await fulfil(connection, keys, ids[name[0]], ids[name], name)
        await tell(connection, keys, ids["a"], ids["a-delivered"])
    ids |= await recharge(database, keys, ids["a"], ids["a-delivered"])
    await database.close()
    return Prepared(database_url, keys, ids)


async def recharge(database: Database, keys: DataKeys, tenant_id: int, order_id: int) -> dict[str, int]:
    """The first eSIM of an order is recharged."""
    async with database.connection() as connection:
        sold = (await store.order.load(connection, [(tenant_id, order_id)], keys))[tenant_id, order_id]
        esim = sold.profiles[0]
        await connection.execute(
            "INSERT INTO profile_life (tenant_id, profile_id, order_id, line, supplier, iccid, created_at)"
            " VALUES ($1, $2, $3, 0, 'simulated', $4, $5)",
            tenant_id,
            esim.profile_id,
            order_id,
            esim.iccid,
            begun_at(),
        )
    added = NextPlan(esim.profile_id, 2, order_id, sold.version)
    order = msgspec.structs.replace(wanted(tenant_id, "a-recharge", line("PLAIN", 1)), recharge=added)
    ids = await place(database, [order])
    async with database.connection() as connection:
        await fulfil(connection, keys, tenant_id, ids["a-recharge"], "a-recharge")
        plan = AppliedPlan(2, "ADD", ids["a-recharge"], "PLAIN", 1024, applied_at=begun_at(), begun_at=begun_at())
        recharged = msgspec.structs.replace(esim, plans=(*plans.with_first(esim, order_id, "PLAIN").plans, plan))
        await connection.execute(
            "UPDATE profile SET plans = $1 WHERE profile_id = $2", written(recharged.plans), esim.profile_id
        )
    return ids


async def dealer(database: Database, name: str) -> int:
    terms = Terms(name=name, balance="1000.00", credit_limit="100.00")
    return int((await create_tenant(database, MASTER_KEYS, "test", "USD", terms, "tester", clock)).tenant_id)


async def history(database: Database, keys: DataKeys) -> dict[str, int]:
    """Dealer c, whose order was delivered yesterday, and an audit that found nothing: the checkpoint."""
    ids = {"c": await dealer(database, "c")}
    ids |= await place(database, [wanted(ids["c"], "c-old", line("PLAIN", 1))], yesterday)
    async with database.connection() as connection:
        await fulfil(connection, keys, ids["c"], ids["c-old"], "c-old")
    report = await check_invariants(database, MASTER_KEYS, keys, datetime.now(UTC), Scope(keep=True))
    assert (report.violated, report.checkpoint) == ([], True)
    return ids


async def load_stock(connection: Connection, keys: DataKeys) -> None:
    await connection.execute("INSERT INTO package VALUES ('SHELF', '{}', now())")
    loaded = [Loaded(iccid, CODE.format(iccid), iccid.encode()) for iccid in STOCK_ICCIDS]
    await store.stock.load(connection, "SHELF", loaded, keys)


def line(package_code: str, quantity: int, *, period_num: int = 1, supplier: str = "simulated") -> OrderLine:
    return OrderLine(package_code, quantity, period_num, 18_000, supplier)


def wanted(tenant_id: int, transaction_id: str, *lines: OrderLine) -> OrderRequest:
    amount = sum(one.price * one.quantity * one.period_num for one in lines)
    return OrderRequest(tenant_id, transaction_id, transaction_id.encode(), "USD", amount, lines)


async def place(database: Database, orders: list[OrderRequest], clock: Clock = clock) -> dict[str, int]:
    """Through the batcher that the API uses; the orderIds by transactionId."""
    sessions = [database.session()]
    batcher = OrderBatcher(database, IdAllocator(sessions[0], clock), clock)
    ids = {}
    for future in [batcher.submit(order) for order in orders]:
        placed = await future
        assert isinstance(placed, Placed)
        ids[placed.request.transaction_id] = placed.order_id
    await batcher.close()
    for session in sessions:
        await session.close()
    return ids


async def fulfil(connection: Connection, keys: DataKeys, tenant_id: int, order_id: int, name: str) -> None:
    """Writes what the rule makes of suppliers' answers."""
    order = (await store.order.load(connection, [(tenant_id, order_id)], keys))[tenant_id, order_id]
    answers: dict[int, Result] = {}
    for profile in order.profiles[: 1 if name == "a-partial" else None]:
        iccid = STOCK_ICCIDS[0] if name == "a-stock" else f"89852{profile.profile_id:015}"
        answers[profile.profile_id] = (
            Failed() if name == "b-failed" else Codes(iccid, CODE.format(profile.profile_id), "token")
        )
        if name == "a-recharge":
            answers[profile.profile_id] = AddedPlan("ADD", 1024, None)
    after = delivery.allocate(order, answers, frozenset(item.line for item in order.items), begun_at())
    await write(connection, keys, after)
    if name == "a-stock":
        await connection.execute(
            "UPDATE stock_profile SET taken_tenant_id = $1, taken_by = $2, taken_at = $3 WHERE iccid = $4",
            tenant_id,
            order.profiles[0].profile_id,
            begun_at(),
            STOCK_ICCIDS[0],
        )


async def write(connection: Connection, keys: DataKeys, order: Order) -> None:
    await connection.execute(
        "UPDATE orders SET delivery_status = $3, order_status = $4, version = $5"
        " WHERE tenant_id = $1 AND order_id = $2",
        order.tenant_id,
        order.order_id,
        order.delivery_status,
        order.order_status,
        order.version,
    )
    for item in order.items:
        done = not any(not profile.made and not profile.failed for profile in item.profiles)
        await connection.execute(
            "UPDATE order_item SET item_status = $4, due_at = CASE WHEN NOT $5 THEN due_at END"
            " WHERE tenant_id = $1 AND order_id = $2 AND line = $3",
            order.tenant_id,
            order.order_id,
            item.line,
            item.item_status,
            done,
        )
    for profile in order.profiles:
        code = profile.activation_code
        sealed = code and keys.seal(code.encode(), profile_context(order.tenant_id, profile.profile_id))
        await connection.execute(
            "UPDATE profile SET lifecycle_status = $3, failed = $4, iccid = $5, activation_code = $6, qr_token = $7,"
            " plan_mode = $8, data_total_bytes = $9 WHERE tenant_id = $1 AND profile_id = $2",
            order.tenant_id,
            profile.profile_id,
            profile.lifecycle_status,
            profile.failed,
            profile.iccid,
            sealed,
            profile.qr_token,
            profile.plan_mode,
            profile.data_total_bytes,
        )


async def tell(connection: Connection, keys: DataKeys, tenant_id: int, order_id: int) -> None:
    """The order's ORDER_PAID went at the second attempt; its DELIVERY_UPDATED is to be tried again."""
    paid = (await connection.fetch("SELECT delivery_id FROM webhook_delivery WHERE order_id = $1", order_id))[0][0]
    await connection.execute(
        "UPDATE webhook_delivery SET state = 'DELIVERED', delivered_at = now(), due_at = NULL, attempt_count = 2,"
        " hints = '{ORDER_PAID}',"
        " body = $2 WHERE delivery_id = $1",
        paid,
        keys.seal(b"{}", delivery_context(tenant_id, paid)),
    )
    rows = await connection.fetch(
        "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, hints, body,"
        " attempt_count, due_at, created_at) VALUES ($1, $2, 'DELIVERY_UPDATED', 2, 'RETRY', '{ICCID_READY}', '', 1,"
        " $3, $3) RETURNING delivery_id",
        tenant_id,
        order_id,
        begun_at(),
    )
    updated = rows[0][0]
    await connection.execute(
        "UPDATE webhook_delivery SET body = $2 WHERE delivery_id = $1",
        updated,
        keys.seal(b"{}", delivery_context(tenant_id, updated)),
    )
    for delivery_id, number, status in ((paid, 1, 500), (paid, 2, 200), (updated, 1, None)):
        await connection.execute(
            "INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms, http_status)"
            " VALUES ($1, $2, $3, $4, 10, $5)",
            tenant_id,
            delivery_id,
            number,
            begun_at(),
            status,
        )


@pytest.fixture
async def dsn(prepared: Prepared, postgres: str) -> AsyncIterator[str]:
    """A copy of the prepared database, the test's own."""
    name = f"audit_{next(_numbers)}"
    admin = await asyncpg.connect(postgres)
    await admin.execute(f"CREATE DATABASE {name} TEMPLATE {urlsplit(prepared.dsn).path[1:]} STRATEGY file_copy")
    yield urlunsplit(urlsplit(postgres)._replace(path=f"/{name}"))
    await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()


Spoil = Callable[[str], Awaitable[None]]


@pytest.fixture
def spoil(prepared: Prepared, dsn: str) -> Spoil:
    """Runs SQL that the schema would refuse; `{a}` stands for a tenant's id, `{a_paid}` for an order's."""

    async def run(sql: str) -> None:
        connection = await asyncpg.connect(dsn)
        await connection.execute("SET session_replication_role = replica")
        await connection.execute(sql.format(**{name.replace("-", "_"): value for name, value in prepared.ids.items()}))
        await connection.close()

    return run


WHOLE, INCREMENTAL = Scope(), Scope(incremental=True, keep=True)


async def report_on(dsn: str, prepared: Prepared, scope: Scope = WHOLE) -> AuditReport:
    database = await Database.open(dsn)
    try:
        return await check_invariants(database, MASTER_KEYS, prepared.data_keys, datetime.now(UTC), scope)
    finally:
        await database.close()


async def test_a_clean_database_has_no_violation(prepared: Prepared, dsn: str) -> None:
    report = await report_on(dsn, prepared)
    assert report.violated == []
    assert [one.code for one in report.invariants] == [f"A{number}" for number in range(1, 29)]
    assert all(one.checked for one in report.invariants)
    for tenant in ("a", "b"):
        assert (await report_on(dsn, prepared, Scope(prepared.ids[tenant]))).violated == []


class Fault(NamedTuple):
    """What is planted, all that the audit then finds violated, and a row that it must name under the first code."""

    name: str
    sql: str
    violated: str
    tenant: str | None
    order: str | None = None


def refund_row(status: str, credited: str) -> str:
    """A refund of nothing in particular."""
    settled = "now()" if status == "REFUNDED" else "NULL"
    return (
        "INSERT INTO refund (tenant_id, refund_id, order_id, scope, status, amount, credited, author, created_at,"
        f" settled_at) VALUES ({{a}}, 1, {{a_paid}}, '', '{status}', 100, {credited}, 'x', now(), {settled});"
    )


def refund_line(order: str, way: str) -> str:
    """The first profile of an order, pending in that refund."""
    return (
        "INSERT INTO refund_line (tenant_id, refund_id, profile_id, line, amount, way, status)"
        f" SELECT {{a}}, 1, min(profile_id), 0, 100, '{way}', 'PENDING' FROM profile WHERE order_id = {{{order}}}"
    )


LONG_AGO = "now() - interval '1 day'"


def purchase(state: str, iccid: str, due_at: str) -> str:
    """Something bought for an order that is paid only."""
    return (
        "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state, iccid,"
        " due_at, created_at) SELECT {a}, min(profile_id), 0, {a_paid}, 0, 'u', 'remote', 's',"
        f" '{state}', {iccid}, {due_at}, now() FROM profile WHERE order_id = {{a_paid}}"
    )


REFUNDED_PROFILE = (
    "UPDATE profile SET refunded = true, cancelled = true, lifecycle_status = 'CANCELLED' WHERE order_id = {a_paid}"
)


def entry(tenant: str, amount: str, entry_type: str, reference: str) -> str:
    """One more entry of a tenant's ledger, booked as it should be."""
    return (
        f"UPDATE wallet SET version = version + 1, balance = balance + {amount} WHERE tenant_id = {tenant};"
        "INSERT INTO ledger_entry (tenant_id, version, entry_type, reference, amount, balance_after, created_at)"
        f" SELECT tenant_id, version, '{entry_type}', {reference}, {amount}, balance, now() FROM wallet"
        f" WHERE tenant_id = {tenant};"
    )


NO_SECOND_DEBIT = "ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_tenant_id_entry_type_reference_key;"
PAID_EVENT = "event_type = 'ORDER_PAID' AND order_id"

FAULTS = (
    Fault("a balance without an entry", "UPDATE wallet SET balance = balance + 1 WHERE tenant_id = {a}", "A1", "a"),
    Fault("a version without an entry", "UPDATE wallet SET version = version + 1 WHERE tenant_id = {a}", "A2", "a"),
    Fault(
        "an entry is gone",
        "DELETE FROM ledger_entry WHERE tenant_id = {a} AND reference = {a_partial}",
        "A2 A1 A3 A5",
        "a",
    ),
    Fault(
        "an entry's balance is off",
        "UPDATE ledger_entry SET balance_after = balance_after + 1 WHERE reference = {a_partial}",
        "A3",
        "a",
    ),
    Fault(
        "a wallet is overdrawn",
        "ALTER TABLE wallet DROP CONSTRAINT wallet_covers_its_debits;"
        "UPDATE wallet SET credit_limit = 0 WHERE tenant_id = {b};" + entry("{b}", "-1e8::bigint", "REFUND", "1"),
        "A4 A7",
        "b",
    ),
    Fault(
        "a debit of no order", "UPDATE ledger_entry SET reference = 7 WHERE reference = {a_paid}", "A5", "a", "a-paid"
    ),
    Fault("a second debit", NO_SECOND_DEBIT + entry("{a}", "0", "ORDER_PAY", "{a_paid}"), "A5", "a", "a-paid"),
    Fault(
        "a debit of another amount",
        "UPDATE ledger_entry SET amount = amount - 100 WHERE reference = {b_delivered}",
        "A5 A1 A3",
        "b",
        "b-delivered",
    ),
    Fault(
        "an order in another currency",
        "UPDATE orders SET currency = 'EUR' WHERE order_id = {a_paid}",
        "A5",
        "a",
        "a-paid",
    ),
    Fault(
        "a line at another price", "UPDATE order_item SET price = 9e18 WHERE order_id = {a_paid}", "A6", "a", "a-paid"
    ),
    Fault(
        "a line for more days",
        "UPDATE order_item SET period_num = 4 WHERE order_id = {a_delivered} AND line = 0",
        "A6",
        "a",
        "a-delivered",
    ),
    Fault(
        "more refunded than paid",
        "ALTER TABLE orders DROP CONSTRAINT refunds_stay_within_the_amount;"
        "UPDATE orders SET refund_amount = amount + 1 WHERE order_id = {a_paid}",
        "A7",
        "a",
        "a-paid",
    ),
    Fault("a refund without a credit", "UPDATE orders SET refund_amount = 100 WHERE order_id = {a_paid}", "A7", "a"),
    Fault("a credit without a refund", entry("{a}", "100", "REFUND", "1"), "A7", "a"),
    Fault(
        "a refund that credited nothing",
        refund_row("REFUNDED", "100") + "UPDATE orders SET refund_amount = 100 WHERE order_id = {a_paid}",
        "A7 A13",
        "a",
    ),
    Fault("a refunded profile of no refund", REFUNDED_PROFILE, "A8 A11 A16", "a", "a-paid"),
    Fault(
        "a held profile of no refund",
        "UPDATE profile SET held = true WHERE order_id = {a_partial} AND iccid IS NOT NULL",
        "A8 A11",
        "a",
        "a-partial",
    ),
    Fault(
        "a refund whose supplier is not asked",
        refund_row("REFUNDING", "0") + refund_line("a_paid", "SUPPLIER"),
        "A16 A8",
        "a",
        "a-paid",
    ),
    Fault(
        "a profile of another order in a refund",
        refund_row("REFUNDING", "0") + refund_line("a_partial", "REVIEW"),
        "A20 A8",
        "a",
        "a-paid",
    ),
    Fault(
        "a refund of another tenant",
        refund_row("REFUNDING", "0") + "UPDATE refund SET tenant_id = {b}",
        "A20 A16",
        "b",
        "a-paid",
    ),
    Fault("a refund that waits for nobody", refund_row("REFUNDING", "0"), "A16", "a"),
    Fault(
        "a profile outside its line",
        "UPDATE profile SET profile_id = profile_id + 1000 WHERE order_id = {a_paid}",
        "A9",
        "a",
        "a-paid",
    ),
    Fault(
        "lines that share profileIds",
        "UPDATE order_item SET first_profile_id = first_profile_id - 1 WHERE order_id = {a_partial}",
        "A9",
        "a",
        "a-partial",
    ),
    Fault(
        "two tenants have one iccid",
        "UPDATE profile SET iccid = (SELECT iccid FROM profile WHERE order_id = {b_delivered})"
        " WHERE order_id = {a_partial} AND iccid IS NOT NULL",
        "A9",
        "b",
        "b-delivered",
    ),
    Fault(
        "a stock code for another profile",
        "UPDATE stock_profile SET taken_by = (SELECT min(profile_id) FROM profile WHERE order_id = {a_paid})"
        " WHERE taken_by = (SELECT profile_id FROM profile WHERE order_id = {a_stock})",
        "A9",
        "a",
        "a-stock",
    ),
    Fault(
        "a stock code handed out and not taken",
        "UPDATE stock_profile SET taken_by = NULL, taken_tenant_id = NULL",
        "A9 A21",
        "a",
        "a-stock",
    ),
    Fault(
        "a code from nowhere",
        "UPDATE profile SET iccid = '8999999999999999999' WHERE order_id = {a_stock}",
        "A9",
        "a",
        "a-stock",
    ),
    Fault(
        "a profile is missing",
        "DELETE FROM profile WHERE profile_id = (SELECT max(profile_id) FROM profile WHERE order_id = {a_paid})",
        "A10 A22",
        "a",
        "a-paid",
    ),
    Fault(
        "nothing delivered",
        "UPDATE orders SET delivery_status = 'PARTIAL' WHERE order_id = {a_paid}",
        "A10",
        "a",
        "a-paid",
    ),
    Fault(
        "all delivered too soon",
        "UPDATE orders SET delivery_status = 'DELIVERED' WHERE order_id = {a_partial}",
        "A10",
        "a",
        "a-partial",
    ),
    Fault(
        "not failed",
        "UPDATE orders SET delivery_status = 'PENDING' WHERE order_id = {b_failed}",
        "A10",
        "b",
        "b-failed",
    ),
    Fault(
        "completed too soon",
        "UPDATE orders SET order_status = 'COMPLETED' WHERE order_id = {a_partial}",
        "A11",
        "a",
        "a-partial",
    ),
    Fault(
        "an item behind its profiles",
        "UPDATE order_item SET item_status = 'PENDING' WHERE order_id = {a_delivered} AND line = 1",
        "A11",
        "a",
        "a-delivered",
    ),
    Fault(
        "a refunded order with profiles left",
        "UPDATE orders SET order_status = 'REFUNDED' WHERE order_id = {a_paid}",
        "A11",
        "a",
        "a-paid",
    ),
    Fault(
        "refunded without refund",
        "UPDATE orders SET pay_status = 'REFUNDED' WHERE order_id = {a_paid}",
        "A11",
        "a",
        "a-paid",
    ),
    Fault(
        "cancelled and delivered",
        "UPDATE profile SET cancelled = true WHERE order_id = {b_delivered}",
        "A11",
        "b",
        "b-delivered",
    ),
    Fault(
        "codes without a link",
        "UPDATE profile SET qr_token = NULL WHERE order_id = {b_delivered}",
        "A11",
        "b",
        "b-delivered",
    ),
    Fault(
        "a transactionId used twice",
        "ALTER TABLE orders DROP CONSTRAINT orders_transaction_id_tenant_id_key;"
        "UPDATE orders SET transaction_id = 'a-paid' WHERE order_id = {a_partial}",
        "A12",
        "a",
    ),
    Fault("no ORDER_PAID", f"DELETE FROM webhook_delivery WHERE {PAID_EVENT} = {{b_failed}}", "A13", "b", "b-failed"),
    Fault(
        "two ORDER_PAID",
        "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at)"
        " VALUES ({b}, {b_failed}, 'ORDER_PAID', 1, 'SKIPPED', now())",
        "A13",
        "b",
        "b-failed",
    ),
    Fault(
        "a ninth attempt",
        f"UPDATE webhook_delivery SET attempt_count = 9 WHERE {PAID_EVENT} = {{a_delivered}}",
        "A14",
        "a",
        "a-delivered",
    ),
    Fault(
        "an attempt that was not counted",
        "UPDATE webhook_attempt SET number = 3 WHERE number = 2",
        "A14",
        "a",
        "a-delivered",
    ),
    Fault("an attempt is missing", "DELETE FROM webhook_attempt WHERE number = 1", "A14", "a", "a-delivered"),
    Fault(
        "attempts of nothing", "UPDATE webhook_attempt SET delivery_id = 999999 WHERE http_status IS NULL", "A14", "a"
    ),
    Fault("delivered without a 2xx", "UPDATE webhook_attempt SET http_status = 301", "A14", "a", "a-delivered"),
    Fault(
        "in flight past its lease",
        "UPDATE webhook_delivery SET state = 'IN_FLIGHT', claim = 1, due_at = due_at - interval '1 hour'"
        f" WHERE {PAID_EVENT} = {{a_paid}}",
        "A14",
        "a",
        "a-paid",
    ),
    Fault(
        "attempted before it was frozen",
        f"UPDATE webhook_delivery SET body = NULL WHERE {PAID_EVENT} = {{a_delivered}}",
        "A15",
        "a",
        "a-delivered",
    ),
    Fault(
        "a body without hints",
        "UPDATE webhook_delivery SET hints = NULL WHERE event_type = 'DELIVERY_UPDATED'",
        "A15",
        "a",
        "a-delivered",
    ),
    Fault(
        "an ORDER_PAID of a later version",
        f"UPDATE webhook_delivery SET order_version = 2 WHERE {PAID_EVENT} = {{a_delivered}}",
        "A15",
        "a",
        "a-delivered",
    ),
    Fault(
        "an event of a version to come",
        "UPDATE webhook_delivery SET order_version = 3 WHERE event_type = 'DELIVERY_UPDATED'",
        "A15",
        "a",
        "a-delivered",
    ),
    Fault(
        "work without a subject",
        "UPDATE order_item SET due_at = now() WHERE order_id = {b_failed}",
        "A16",
        "b",
        "b-failed",
    ),
    Fault(
        "a subject without work",
        "UPDATE order_item SET due_at = NULL WHERE order_id = {a_partial}",
        "A16",
        "a",
        "a-partial",
    ),
    Fault(
        "a life due since long",
        "INSERT INTO profile_life (tenant_id, profile_id, order_id, line, supplier, iccid, created_at, due_at)"
        " SELECT tenant_id, profile_id, order_id, line, 'simulated', 'none', now(), now() - interval '2 hours'"
        " FROM profile WHERE order_id = {a_paid} ORDER BY profile_id LIMIT 1",
        "A16",
        "a",
        "a-paid",
    ),
    Fault(
        "work due since long",
        "UPDATE order_item SET due_at = due_at - interval '16 minutes' WHERE order_id = {a_paid}",
        "A16",
        "a",
        "a-paid",
    ),
    Fault(
        "a delivery that nobody wakes",
        f"UPDATE webhook_delivery SET state = 'WAITING', due_at = NULL WHERE {PAID_EVENT} = {{a_paid}}",
        "A16",
        "a",
        "a-paid",
    ),
    Fault("an eSIM bought for nobody", purchase("DONE", "'8999'", "NULL"), "A17", "a", "a-paid"),
    Fault(
        "a recharge bought for nobody",
        purchase("WRITTEN_OFF", "NULL", "NULL") + "; UPDATE purchase SET state = 'DONE', recharges = 1",
        "A17",
        "a",
        "a-paid",
    ),
    Fault(
        "a recharge of nobody's eSIM",
        "UPDATE profile SET recharges = 1 WHERE order_id = {a_recharge}",
        "A26",
        "a",
        "a-recharge",
    ),
    Fault(
        "a line that recharges another eSIM",
        "UPDATE order_item SET recharges_order_id = 1 WHERE order_id = {a_recharge}",
        "A26",
        "a",
        "a-recharge",
    ),
    Fault("a plan is missing", "UPDATE profile SET plan_no = 4 WHERE order_id = {a_recharge}", "A26", "a"),
    *[
        Fault(what, f"UPDATE profile SET plans = {value} WHERE order_id = {{a_delivered}}", "A26", "a", "a-delivered")
        for what, value in (
            ("an eSIM without what its recharge added", "NULL"),
            ("an eSIM without the plan it was sold with", "plans - 0"),
            ("a plan of another volume", "jsonb_set(plans, '{{1,data_bytes}}', '1')"),
            ("a plan of another order", "jsonb_set(plans, '{{1,order_id}}', '1')"),
            ("a plan that is queued at the eSIM alone", "jsonb_set(plans, '{{1,mode}}', '\"QUEUE\"')"),
            ("a plan that a refund holds at the eSIM alone", "jsonb_set(plans, '{{1,held}}', 'true')"),
            ("a plan that is cancelled at the eSIM alone", "jsonb_set(plans, '{{1,cancelled}}', 'true')"),
        )
    ],
    Fault("a purchase that waits since long", purchase("PLANNED", "NULL", LONG_AGO), "A16", "a", "a-paid"),
    Fault(
        "codes that were never bought",
        "INSERT INTO supplier (code, kind, settings, event_token) VALUES ('simulated', 'x', '', 't')",
        "A17 A19",
        "b",
        "b-delivered",
    ),
    Fault("an adjustment by nobody", "UPDATE audit_log SET author = '' WHERE tenant_id = {a}", "A18 A24", "a"),
    Fault("an act by somebody else", "UPDATE audit_log SET author = 'x' WHERE tenant_id = {a}", "A24", "a"),
    Fault("an act from elsewhere", "UPDATE audit_log SET source = 'x' WHERE tenant_id = {b}", "A24", "b"),
    Fault("an act at another time", "UPDATE audit_log SET at = at + interval '1 us' WHERE tenant_id = {a}", "A24", "a"),
    Fault("an act taken out of the log", "DELETE FROM audit_log WHERE tenant_id = {a}", "A24 A18", "b"),
    Fault("an act taken off the log", "DELETE FROM audit_log WHERE tenant_id = {b}", "A24 A18", None),
    Fault(
        "an act written around the log",
        "INSERT INTO audit_log (author, action, tenant_id, hash) VALUES ('x', 'tenant.set', {b}, 'x')",
        "A24",
        "b",
    ),
    Fault("a log without its head", "DELETE FROM audit_head", "A24", None),
    Fault(
        "an order of another hour",
        "UPDATE orders SET updated_at = now() + interval '1 hour' WHERE order_id = {a_paid}",
        "A25",
        "a",
        "a-paid",
    ),
    Fault(
        "a debit of another hour",
        "UPDATE ledger_entry SET created_at = now() + interval '1 hour' WHERE reference = {b_delivered}",
        "A25",
        "b",
    ),
    Fault(
        "a line nobody took is due in an hour",
        "UPDATE order_item SET due_at = now() + interval '1 hour' WHERE order_id = {a_paid}",
        "A25",
        "a",
        "a-paid",
    ),
    Fault(
        "a line that was taken is due in two hours",
        "UPDATE order_item SET due_at = now() + interval '2 hours', claim = 1 WHERE order_id = {a_paid}",
        "A25",
        "a",
        "a-paid",
    ),
    Fault(
        "a purchase is due in an hour",
        purchase("PLANNED", "NULL", "now() + interval '1 hour'"),
        "A25",
        "a",
        "a-paid",
    ),
    Fault(
        "a refund is due in an hour",
        refund_row("REFUNDING", "0") + "UPDATE refund SET due_at = now() + interval '1 hour'",
        "A25",
        "a",
    ),
    Fault(
        "a delivery is due in an hour",
        f"UPDATE webhook_delivery SET due_at = now() + interval '1 hour' WHERE {PAID_EVENT} = {{a_paid}}",
        "A25",
        "a",
        "a-paid",
    ),
    Fault(
        "a lease of an hour",
        "UPDATE webhook_delivery SET state = 'IN_FLIGHT', claim = 1, due_at = now() + interval '1 hour'"
        f" WHERE {PAID_EVENT} = {{a_paid}}",
        "A25",
        "a",
        "a-paid",
    ),
    *[
        Fault(f"a value of {table} that cannot be", f"UPDATE {table} SET {values} WHERE {where}", violated, "a")
        for table, values, where, violated in (
            ("orders", "pay_status = 'OWED'", "order_id = {a_paid}", "A27"),
            ("ledger_entry", "entry_type = 'GIFT'", "reference = {a_paid}", "A27 A5"),
            ("order_item", "period_num = 0", "order_id = {a_delivered}", "A27 A6"),
            ("profile", "suspended_at = now()", "order_id = {a_delivered}", "A27"),
            ("webhook_delivery", "trigger = 'HAND'", PAID_EVENT + " = {a_paid}", "A27"),
        )
    ],
    Fault("an adjustment without a record", entry("{a}", "500", "ADJUST", "77"), "A18", "a"),
    Fault("a top-up without a record", entry("{b}", "500", "TOPUP", "77"), "A18", "b"),
    Fault(
        "another version's secret before the reset",
        "UPDATE credential SET previous_secret = sealed_secret WHERE tenant_id = {b}",
        "A19",
        "b",
    ),
    Fault("another tenant's secret", "UPDATE credential SET tenant_id = {a}, signs_webhooks = false", "A19", "a"),
    Fault(
        "another profile's code",
        "UPDATE profile SET activation_code = (SELECT activation_code FROM profile WHERE order_id = {b_delivered})"
        " WHERE order_id = {a_stock}",
        "A19",
        "a",
    ),
    Fault("a code cut short", "UPDATE profile SET activation_code = '\\x0001' WHERE order_id = {a_stock}", "A19", "a"),
    Fault("a data key of no master key", "UPDATE data_key SET sealed_key = '\\x0178'", "A19", None),
    Fault(
        "a data key that is gone",
        "UPDATE stock_profile SET activation_code = '\\x7777' || substr(activation_code, 3) WHERE taken_by IS NULL",
        "A19",
        None,
    ),
    Fault(
        "a body of another delivery",
        "UPDATE webhook_delivery d SET body = o.body FROM webhook_delivery o"
        " WHERE o.body IS NOT NULL AND o.event_type = 'ORDER_PAID' AND d.event_type = 'DELIVERY_UPDATED'",
        "A19",
        "a",
    ),
    Fault(
        "an order without a wallet",
        "DELETE FROM wallet WHERE tenant_id = {b}",
        "A20 A1 A2",
        "b",
        "b-failed",
    ),
    Fault(
        "a line of another tenant",
        "UPDATE order_item SET tenant_id = {b} WHERE order_id = {a_paid}",
        "A20 A6 A10 A16",
        "b",
        "a-paid",
    ),
    Fault(
        "a profile of another tenant",
        "UPDATE profile SET tenant_id = {b} WHERE order_id = {a_paid}",
        "A20 A10 A16 A22",
        "b",
        "a-paid",
    ),
    Fault(
        "an event of another tenant",
        "UPDATE webhook_delivery SET tenant_id = {b} WHERE order_id = {a_paid}",
        "A20 A13",
        "b",
        "a-paid",
    ),
    Fault(
        "a life of nothing",
        "INSERT INTO profile_life (tenant_id, profile_id, order_id, line, supplier, iccid, created_at)"
        " SELECT tenant_id, profile_id + 1000, order_id, line, 'simulated', 'none', now()"
        " FROM profile WHERE order_id = {a_paid} ORDER BY profile_id LIMIT 1",
        "A20",
        "a",
        "a-paid",
    ),
    Fault("a debit of another tenant", entry("{b}", "0", "ORDER_PAY", "{a_paid}"), "A20 A5", "b", "a-paid"),
    Fault(
        "a stock code of another tenant",
        "UPDATE stock_profile SET taken_tenant_id = {b} WHERE taken_by IS NOT NULL",
        "A20 A9 A21",
        "a",
    ),
    Fault(
        "a waiting profile's code can be sold once more",
        "UPDATE stock_profile SET taken_tenant_id = NULL, taken_by = NULL, taken_at = NULL"
        " FROM profile p WHERE taken_by = p.profile_id AND p.iccid IS NULL",
        "A21",
        "a",
        "a-stock-paid",
    ),
    Fault(
        "a stock code for what is made elsewhere",
        "UPDATE stock_profile SET taken_by = (SELECT min(profile_id) FROM profile WHERE order_id = {a_paid}),"
        " taken_tenant_id = {a} WHERE iccid = (SELECT min(iccid) FROM stock_profile WHERE taken_by IS NULL)",
        "A9",
        "a",
    ),
    Fault("a miscounted order", "UPDATE wallet SET order_count = order_count + 1 WHERE tenant_id = {a}", "A22", "a"),
    Fault("a miscounted profile", "UPDATE wallet SET profile_count = 0 WHERE tenant_id = {b}", "A22", "b"),
    Fault(
        "a sweep by a wrong clock",
        "UPDATE retention SET deleted_before = now() - interval '28 days' WHERE kind = 'supplier_event'",
        "A25",
        None,
    ),
    Fault("orderIds handed out again", "UPDATE id_block SET next = {a_paid} WHERE kind = 'order'", "A23", "a"),
    Fault("profileIds handed out again", "UPDATE id_block SET next = 5 WHERE kind = 'profile'", "A23", "b"),
    Fault(
        "two tenants have one orderId",
        "UPDATE orders SET order_id = {a_paid} WHERE order_id = {b_failed};"
        "UPDATE order_item SET order_id = {a_paid} WHERE order_id = {b_failed};"
        "UPDATE profile SET order_id = {a_paid} WHERE order_id = {b_failed};"
        "UPDATE webhook_delivery SET order_id = {a_paid} WHERE order_id = {b_failed};"
        "UPDATE ledger_entry SET reference = {a_paid} WHERE reference = {b_failed}",
        "A23 A20",
        "b",
        "a-paid",
    ),
)


SINCE = Scope(since=datetime.now(UTC) - timedelta(hours=1))
# Of dealer c, which had a past at the checkpoint.
FAULTS_BEHIND_THE_CHECKPOINT = (
    ("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = {c}", "A1"),
    ("UPDATE wallet SET version = version + 1 WHERE tenant_id = {c}", "A2"),
    ("DELETE FROM wallet WHERE tenant_id = {c}", "A1 A2 A20"),
    ("UPDATE ledger_entry SET balance_after = balance_after + 1 WHERE reference = {c_new}", "A3"),
    ("UPDATE ledger_entry SET version = version + 1 WHERE reference = {c_new}", "A2 A3"),
    ("DELETE FROM ledger_entry WHERE reference = {c_new}", "A1 A2 A5"),
    ("UPDATE wallet SET order_count = order_count + 1 WHERE tenant_id = {c}", "A22"),
    ("UPDATE wallet SET profile_count = profile_count - 1 WHERE tenant_id = {c}", "A22"),
    ("UPDATE audit_log SET author = 'x' WHERE tenant_id = {a}", "A24"),
    ("UPDATE audit_head SET acts = acts + 1", "A24"),
    ("UPDATE id_block SET next = {c_new}", "A23"),
    ("UPDATE orders SET transaction_id = 'c-new' WHERE order_id = {c_old}", "A12"),
)


@pytest.mark.parametrize("scope", (INCREMENTAL, SINCE), ids=("incremental", "since"))
@pytest.mark.parametrize(("sql", "violated"), FAULTS_BEHIND_THE_CHECKPOINT)
async def test_what_came_after_the_checkpoint_follows_from_it(
    prepared: Prepared, dsn: str, spoil: Spoil, sql: str, violated: str, scope: Scope
) -> None:
    """Since a time the first entry is taken as it is; nothing says what the wallet and the log had counted before."""
    await spoil("ALTER TABLE orders DROP CONSTRAINT orders_transaction_id_tenant_id_key;" + sql)
    report = await report_on(dsn, prepared, scope)
    if scope == SINCE and (violated == "A22" or "acts" in sql):
        assert report.violated == [] and not report["A22"].checked
    else:
        assert report.violated == violated.split(), report_text(report)


OLD_FAULTS = (
    ("UPDATE orders SET amount = amount + 1 WHERE order_id = {c_old}", "A5 A6"),
    ("UPDATE profile SET qr_token = NULL WHERE order_id = {c_old}", "A11"),
    ("DELETE FROM webhook_delivery WHERE order_id = {c_old}", "A13"),
    ("UPDATE ledger_entry SET created_at = created_at + interval '2 days' WHERE reference = {c_old}", "A25"),
    ("UPDATE audit_log SET author = 'x' WHERE tenant_id = {c}", "A24"),
)


@pytest.mark.parametrize(("sql", "violated"), OLD_FAULTS)
async def test_a_fault_in_what_did_not_change_is_found_by_the_whole_audit_alone(
    prepared: Prepared, dsn: str, spoil: Spoil, sql: str, violated: str
) -> None:
    await spoil(sql)
    incremental = await report_on(dsn, prepared, INCREMENTAL)
    assert (incremental.violated, incremental.checkpoint) == ([], True)
    assert (await report_on(dsn, prepared)).violated == violated.split()


async def test_work_that_was_open_at_the_checkpoint_is_looked_at_however_it_ended(
    prepared: Prepared, dsn: str, spoil: Spoil
) -> None:
    """b-delivered has no open work at the checkpoint, a-paid has: it ends without a trace of when."""
    assert (await report_on(dsn, prepared, INCREMENTAL)).checkpoint
    await spoil("UPDATE audit_checkpoint SET at = now() + interval '1 hour'")
    await spoil("UPDATE order_item SET due_at = NULL WHERE order_id = {a_paid};"
                "UPDATE webhook_delivery SET state = 'SKIPPED', due_at = NULL WHERE order_id = {a_paid};"
                "UPDATE orders SET amount = amount + 1 WHERE order_id = {b_delivered}")  # fmt: skip
    assert (await report_on(dsn, prepared, INCREMENTAL)).violated == ["A16"]
    assert (await report_on(dsn, prepared)).violated == ["A5", "A6", "A16"]


async def test_an_incremental_audit_without_a_checkpoint_is_one_of_everything(
    prepared: Prepared, dsn: str, spoil: Spoil
) -> None:
    await spoil("DELETE FROM audit_checkpoint")
    report = await report_on(dsn, prepared, INCREMENTAL)
    assert (report.violated, report.covered, report.checkpoint) == ([], None, True)


async def test_who_may_only_read_audits_everything_and_leaves_no_checkpoint(prepared: Prepared, dsn: str) -> None:
    report = await report_on(f"{dsn}&default_transaction_read_only=on", prepared, Scope(keep=True))
    assert (report.violated, report.checkpoint) == ([], False)


async def test_the_report_of_an_incremental_audit_says_what_it_covered(prepared: Prepared, dsn: str) -> None:
    report = await report_on(dsn, prepared, INCREMENTAL)
    assert report.covered and report.covered.from_checkpoint
    assert (report.covered.orders, report.covered.deliveries) == (9, 10)
    assert json.loads(report_json(report))["covered"]["entries"] == report.covered.entries
    assert "9 orders" in report_text(report)
    whole = await report_on(dsn, prepared)
    assert json.loads(report_json(whole))["covered"] is None


IMPOSSIBLE_VALUES = {
    "orders": ("order_status = 'SOLD'", "pay_status = 'OWED'", "delivery_status = 'SENT'"),
    "ledger_entry": ("entry_type = 'GIFT'",),
    "order_item": (
        *("line = line + 100", "line = line - 100", "quantity = 0", "quantity = 101", "period_num = 0", "price = -1"),
        "item_status = 'SENT'",
    ),
    "profile": (
        *("lifecycle_status = 'LOST'", "plan_use_status = 'PAUSED'", "plan_mode = 'SWAP'", "data_usage_bytes = -1"),
        *("recharges = NULL, plan_no = 2", "recharges = NULL, plan_no = 1, plan_mode = 'ADD'"),
        *("recharges = 1, plan_no = 1, iccid = NULL", "recharges = 1, plan_no = 2, iccid = 'x'"),
        *("held = true, refunded = true", "suspended_at = now()"),
    ),
    "webhook_delivery": (
        *("event_type = 'SMS'", "state = 'LOST', due_at = NULL", "trigger = 'HAND'"),
        *("state = 'READY', due_at = NULL", "state = 'WAITING', due_at = now()", "state = 'READY', claim = 1"),
        *("state = 'IN_FLIGHT', claim = NULL", "state = 'DELIVERED', due_at = NULL, delivered_at = NULL"),
    ),
}


async def test_every_value_that_cannot_be_is_named(prepared: Prepared, dsn: str) -> None:
    queries = [query.sql for query in QUERIES if query.invariant == "A27"]
    connection = await asyncpg.connect(dsn)
    missed = []
    for table, values in IMPOSSIBLE_VALUES.items():
        for value in values:
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"UPDATE {table} SET {value} WHERE ctid = (SELECT ctid FROM {table} LIMIT 1)")
            found = [await violations(connection, sql, None, datetime.now(UTC)) for sql in queries]
            if [one.total for one in found if one.total] != [1]:
                missed.append((table, value))
            await transaction.rollback()
    await connection.close()
    assert missed == []


ELSEWHERE = {"A28"}  # its faults are planted in test_audit_reports.py
PLANTED: dict[tuple[Fault, bool], set[tuple[str, str]]] = {}
"""What was found so far of each fault, by the whole or by the incremental audit."""


@pytest.mark.parametrize("scope", (WHOLE, INCREMENTAL), ids=("whole", "incremental"))
@pytest.mark.parametrize("fault", FAULTS, ids=[f"{one.violated.split()[0]} {one.name}" for one in FAULTS])
async def test_a_planted_fault_is_named(prepared: Prepared, dsn: str, spoil: Spoil, fault: Fault, scope: Scope) -> None:
    await spoil(fault.sql)
    report = await report_on(dsn, prepared, scope)
    PLANTED[fault, scope.incremental] = {
        (one.code, str(row["fault"])) for one in report.invariants for row in one.samples
    }
    codes = fault.violated.split()
    assert sorted(report.violated) == sorted(codes), report_text(report)
    assert not report.checkpoint
    found = report[codes[0]]
    assert found.violations >= len(found.samples) > 0
    samples = [(row.get("tenant_id"), row.get("order_id")) for row in found.samples]
    tenant_id = fault.tenant and prepared.ids[fault.tenant]
    if fault.order:
        assert (tenant_id, prepared.ids[fault.order]) in samples
    else:
        assert tenant_id in [sample[0] for sample in samples]


async def test_the_runbook_mends_a_wallet_that_was_written_to(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("UPDATE wallet SET balance = balance + 1 WHERE tenant_id = {a}")
    await spoil("UPDATE ledger_entry SET balance_after = balance_after + 1 WHERE tenant_id = {a} AND version > 1")
    assert (await report_on(dsn, prepared)).violated == ["A1", "A3"]
    runbook = (DOCS / "operating/runbooks.md").read_text()
    [mending] = re.findall(r"```sql\n(.*?)```", runbook, re.DOTALL)
    connection = await asyncpg.connect(dsn)
    await connection.execute(re.sub(r"\bN\b", str(prepared.ids["a"]), mending))
    await connection.close()
    assert (await report_on(dsn, prepared)).violated == []


@pytest.mark.parametrize("incremental", (False, True))
def test_every_statement_of_the_audit_finds_a_planted_fault(incremental: bool) -> None:
    planted = [found for (_, how), found in PLANTED.items() if how == incremental]
    if len(planted) < len(FAULTS):
        pytest.skip("not every fault was planted in this run")
    found = set().union(*planted)
    statements = [(one.invariant, one.fault) for one in QUERIES if one.invariant not in ELSEWHERE]
    assert [one for one in statements if one not in found] == []


def test_every_invariant_that_is_checked_has_a_planted_fault() -> None:
    planted = {fault.violated.split()[0] for fault in FAULTS}
    assert planted == TITLES.keys() - ELSEWHERE


async def test_an_audit_of_one_tenant_sees_no_other(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("UPDATE wallet SET balance = balance + 1; UPDATE orders SET amount = amount + 1;"
                "UPDATE profile SET activated = NOT activated")  # fmt: skip
    everywhere = await report_on(dsn, prepared)
    for name in ("a", "b"):
        report = await report_on(dsn, prepared, Scope(prepared.ids[name]))
        assert report.violated == everywhere.violated
        rows = [row for one in report.invariants for row in one.samples]
        assert {row["tenant_id"] for row in rows} == {prepared.ids[name]}
    assert everywhere["A1"].violations == 3


async def test_a_log_that_was_written_anew_does_not_lead_to_the_head_that_was_seen(
    prepared: Prepared, dsn: str, spoil: Spoil
) -> None:
    """Who may do everything in the database can chain other acts; not to a head that somebody noted."""
    seen = bytes.fromhex((await report_on(dsn, prepared)).log_head)
    database = await Database.open(dsn)
    await set_tenant(database, prepared.ids["a"], Terms(name="later"), "tester", clock)
    assert (await check_invariants(database, MASTER_KEYS, None, begun_at(), seen=seen)).violated == []
    await spoil(
        "DELETE FROM audit_log WHERE action = 'tenant.set';"
        "UPDATE audit_log SET author = 'x' WHERE audit_id = (SELECT max(audit_id) FROM audit_log);"
        f"UPDATE audit_log act SET hash = sha256(b.hash || {ACT}) FROM audit_log b WHERE b.audit_id = act.audit_id - 1"
        " AND act.audit_id = (SELECT max(audit_id) FROM audit_log); UPDATE audit_head SET (acts, hash) ="
        " (SELECT audit_id, hash FROM audit_log ORDER BY audit_id DESC LIMIT 1)"
    )
    unseen = await check_invariants(database, MASTER_KEYS, None, begun_at())
    found = await check_invariants(database, MASTER_KEYS, None, begun_at(), seen=seen)
    await database.close()
    assert (unseen.violated, found.violated) == ([], ["A24"])
    assert found["A24"].samples[0]["seen"] == seen.hex()


async def test_many_violations_are_counted_and_twenty_are_named(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("INSERT INTO ledger_entry SELECT {a}, n, 'ADJUST', n, 0, 0, now() FROM generate_series(1001, 1100) n")
    found = (await report_on(dsn, prepared))["A18"]
    assert (found.violations, len(found.samples)) == (100, 20)


async def test_old_attempts_that_were_deleted_are_not_missed(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("DELETE FROM webhook_attempt WHERE number = 1")
    await spoil("UPDATE webhook_delivery SET created_at = created_at - interval '31 days'")
    assert (await report_on(dsn, prepared)).violated == []
    await spoil("DELETE FROM webhook_attempt")
    assert (await report_on(dsn, prepared)).violated == []


SWEPT = "UPDATE retention SET deleted_before = now() - interval '40 days' WHERE kind LIKE 'webhook%';"
OLDER = "order_id = order_id - 41 * 86400000000"
OLD_ORDER = f"""
UPDATE orders SET {OLDER} WHERE order_id = {{b_failed}};
UPDATE order_item SET {OLDER} WHERE order_id = {{b_failed}};
UPDATE profile SET {OLDER} WHERE order_id = {{b_failed}};
UPDATE ledger_entry SET reference = reference - 41 * 86400000000 WHERE reference = {{b_failed}};
"""
OLD_REFUND = "UPDATE refund SET settled_at = now() - interval '41 days'"


async def test_events_that_were_deleted_for_their_age_are_not_missed(
    prepared: Prepared, dsn: str, spoil: Spoil
) -> None:
    await spoil(SWEPT + OLD_ORDER + "DELETE FROM webhook_delivery WHERE order_id = {b_failed}")
    assert (await report_on(dsn, prepared)).violated == []
    await spoil("UPDATE retention SET deleted_before = now() - interval '42 days'")
    assert (await report_on(dsn, prepared)).violated == ["A13"]


async def test_young_event_of_a_refund_is_missed_beside_an_old_one(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil(SWEPT + refund_row("REFUNDED", "100") + OLD_REFUND)
    without_money = {"A13"} & set((await report_on(dsn, prepared)).violated)
    assert without_money == set()
    await spoil(refund_row("REFUNDED", "100").replace("{a}, 1,", "{a}, 2,"))
    assert "A13" in (await report_on(dsn, prepared)).violated
    await spoil(
        "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at)"
        " VALUES ({a}, {a_paid}, 'REFUND_COMPLETED', 1, 'SKIPPED', now() - interval '41 days')"
    )
    assert "A13" in (await report_on(dsn, prepared)).violated


async def test_all_attempts_of_a_young_delivery_are_missed(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("DELETE FROM webhook_attempt WHERE http_status IS NULL")
    assert (await report_on(dsn, prepared)).violated == ["A14"]
    await spoil(SWEPT + "UPDATE webhook_delivery SET created_at = created_at - interval '41 days'")
    assert (await report_on(dsn, prepared)).violated == []


async def test_a_resent_delivery_may_have_more_than_eight_attempts(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil(
        "UPDATE webhook_delivery SET attempt_count = 9, trigger = 'RESEND' WHERE event_type = 'DELIVERY_UPDATED'"
    )
    assert (await report_on(dsn, prepared)).violated == []


async def test_secrets_without_a_key_are_not_checked(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("UPDATE profile SET activation_code = '\\x0001' WHERE activation_code IS NOT NULL")
    database = await Database.open(dsn)
    nothing = await check_invariants(database, None, None, begun_at())
    by_master_keys_alone = await check_invariants(database, MASTER_KEYS, None, begun_at())
    await database.close()
    assert nothing.violated == []
    assert not nothing["A19"].checked and "activation code" in nothing["A19"].note
    assert by_master_keys_alone.violated == ["A19"]
    assert by_master_keys_alone["A19"].checked


async def test_the_first_audit_of_a_new_database_is_whole(postgres: str, template: str) -> None:
    """It has no data key yet, and nothing that one would open."""
    async with fresh(postgres, template) as url:
        database = await Database.open(url)
        report = await check_invariants(database, MASTER_KEYS, None, begun_at(), Scope(keep=True))
        await database.close()
    assert (report.violated, [one.note for one in report.invariants if not one.checked]) == ([], [])
    assert report.checkpoint


async def test_the_report_is_json_for_programs_and_text_for_people(prepared: Prepared, dsn: str, spoil: Spoil) -> None:
    await spoil("UPDATE orders SET delivery_status = 'DELIVERED' WHERE order_id = {a_paid}")
    report = await report_on(dsn, prepared)
    content = json.loads(report_json(report))
    assert content["violated"] == ["A10"]
    (sample,) = next(one for one in content["invariants"] if one["code"] == "A10")["samples"]
    assert sample["orderId"] == prepared.ids["a-paid"]
    assert sample["fault"] == "delivery_status does not say how many live profiles have codes"
    text = report_text(report)
    assert f"orderId={prepared.ids['a-paid']}" in text
    assert text.endswith("1 violated: A10")


@pytest.mark.parametrize("scope", (WHOLE, INCREMENTAL), ids=("whole", "incremental"))
async def test_an_audit_beside_orders_sees_them_whole(prepared: Prepared, dsn: str, scope: Scope) -> None:
    database = await Database.open(dsn)
    stop = asyncio.Event()

    async def order_on() -> int:
        batches = 0
        while not stop.is_set():
            orders = [wanted(prepared.ids["ab"[n % 2]], f"beside-{batches}-{n}", line("PLAIN", 2)) for n in range(10)]
            await place(database, orders)
            batches += 1
        return batches

    shopping = asyncio.create_task(order_on())
    for _ in range(3):
        assert (await check_invariants(database, MASTER_KEYS, prepared.data_keys, begun_at(), scope)).violated == []
    stop.set()
    assert await shopping > 1
    assert (await check_invariants(database, MASTER_KEYS, prepared.data_keys, begun_at(), scope)).violated == []
    await database.close()


# lifecycle_status, failed, refunded, cancelled, has codes
PROFILES = (
    ("PENDING", False, False, False, False),
    ("PENDING", True, False, False, False),
    ("DELIVERED", False, False, False, True),
    ("ACTIVATING", False, False, False, True),
    ("ACTIVATED", False, False, False, True),
    ("CANCELLED", False, False, True, False),
    ("CANCELLED", True, False, True, False),
    ("CANCELLED", False, False, True, True),
    ("CANCELLED", False, True, True, False),
    ("CANCELLED", True, True, True, False),
    ("CANCELLED", False, True, True, True),
)
ITEM_STATUSES = ("PAID", "PENDING", "DELIVERED", "ACTIVATING", "ACTIVATED", "FAILED", "REFUNDED")
DELIVERY_STATUSES = ("PENDING", "PARTIAL", "DELIVERED", "FAILED")
UNUSED = ("DELIVERED", "ACTIVATING")
ORDER_STATUSES = ("PAID", "FULFILLING", "COMPLETED", "REFUNDING", "REFUNDED")


class Random(NamedTuple):
    """Rows of random orders, with statuses that need not fit."""

    orders: list[tuple]
    items: list[tuple]
    profiles: list[tuple]


def random_orders(tenant_id: int, number: int, keys: DataKeys) -> Random:
    chance, rows = random.Random(5), Random([], [], [])
    profile_id = first = identity.first_id_at(1_900_000_000)
    for order_id in range(first, first + number):
        statuses = chance.choice(DELIVERY_STATUSES), chance.choice(ORDER_STATUSES)
        rows.orders.append((tenant_id, order_id, str(order_id), b"", "USD", 0, begun_at(), *statuses))
        kinds = chance.sample(PROFILES, chance.randint(1, 3))
        for line in range(chance.choice((1, 1, 1, 2))):
            quantity, status = chance.randint(1, 3), chance.choice(ITEM_STATUSES)
            rows.items.append((tenant_id, order_id, line, "P", "s", quantity, 1, 0, profile_id, status))
            for _ in range(quantity):
                *states, ready = chance.choice(kinds)
                sealed = keys.seal(b"code", profile_context(tenant_id, profile_id))
                codes = (str(profile_id), sealed, "token") if ready else (None, None, None)
                rows.profiles.append((tenant_id, profile_id, order_id, line, *states, *codes, begun_at()))
                profile_id += 1
    return rows


async def insert(connection: Connection, rows: Random) -> None:
    for table, columns, records in (
        (
            "orders",
            "order_id transaction_id digest currency amount updated_at delivery_status order_status",
            rows.orders,
        ),
        (
            "order_item",
            "order_id line package_code supplier quantity period_num price first_profile_id item_status",
            rows.items,
        ),
        (
            "profile",
            "profile_id order_id line lifecycle_status failed refunded cancelled iccid activation_code qr_token"
            " updated_at",
            rows.profiles,
        ),
    ):
        await connection.copy_records_to_table(table, records=records, columns=["tenant_id", *columns.split()])


async def test_the_audit_and_the_rule_agree_about_every_status(prepared: Prepared, dsn: str) -> None:
    """The audit finds A10 or A11 violated in just those random orders that `rules.delivery.settle` would change."""
    rows = random_orders(prepared.ids["a"], 6_000, prepared.data_keys)
    keys = [(prepared.ids["a"], order_id) for _, order_id, *_ in rows.orders]
    found: dict[str, set[int]] = {"A10": set(), "A11": set()}
    database = await Database.open(dsn)
    async with database.connection() as connection:
        await insert(connection, rows)
        loaded = await store.order.load(connection, keys, prepared.data_keys)
        for query in QUERIES:
            if query.invariant in found and "profile's" not in query.fault:
                found[query.invariant] |= {row["order_id"] for row in await connection.fetch(query.sql)}
    await database.close()
    expected: dict[str, set[int]] = {"A10": set(), "A11": set()}
    for order in loaded.values():
        settled = delivery.settle(order, order.items, begun_at())
        if settled.delivery_status != order.delivery_status:
            expected["A10"].add(order.order_id)
        if (settled.order_status, settled.items) != (order.order_status, order.items) or is_ahead(order):
            expected["A11"].add(order.order_id)
    assert found == expected
    assert 100 < len(expected["A11"]) < len(keys) - 100


def is_ahead(order: Order) -> bool:
    """What the rule keeps, since statuses never move back, although nothing can have brought it about."""
    return (order.order_status == "REFUNDED" and not all(profile.refunded for profile in order.profiles)) or any(
        (item.item_status == "REFUNDED" and not all(profile.refunded for profile in item.profiles))
        or (item.item_status == "ACTIVATED" and any(profile.lifecycle_status in UNUSED for profile in item.profiles))
        for item in order.items
    )
