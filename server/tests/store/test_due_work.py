"""Is all work found that is due, and by the indexes of what is due?"""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from dealer_server.db.session import Session
from dealer_server.store import due_work
from dealer_server.store.due_work import FIND, DueWork
from support.databases import database_named

pytestmark = pytest.mark.one_server("on a cluster all work is taken to be due")

NOW = datetime(2026, 11, 20, 8, 15, tzinfo=UTC)
NOTHING = DueWork([], [])
KEY = "tenant_id, order_id, profile_id, line"
OF_SUPPLIER = {
    "order_item": "tenant_id, order_id, line, package_code, quantity, period_num, price, first_profile_id, supplier,"
    " due_at) VALUES (1, 1, 0, '', 1, 1, 0, 1, 'one'",
    "purchase": f"{KEY}, position, unit_key, sku, created_at, supplier, due_at) VALUES (1, 1, 1, 0, 0, '', '', now(),"
    " 'one'",
    "void_request": f"{KEY}, package_code, iccid, created_at, supplier, due_at) VALUES (1, 1, 1, 0, '', '', now(),"
    " 'one'",
    "profile_life": f"{KEY}, iccid, created_at, supplier, due_at) VALUES (1, 1, 1, 0, '', now(), 'one'",
    "suspension": "tenant_id, order_id, profile_id, suspended, created_at, supplier, due_at) VALUES (1, 1, 1, true,"
    " now(), 'one'",
    "sms": "tenant_id, sms_id, transaction_id, profile_id, digest, message, iccid, status, created_at, supplier,"
    " due_at) VALUES (1, 1, '', 1, '', '', '', 'PENDING', now(), 'one'",
}
OF_KIND = {
    "refunds": "refund (tenant_id, refund_id, order_id, scope, status, amount, author, created_at, due_at)"
    " VALUES (1, 1, 1, '', 'REFUNDING', 0, '', now()",
    "buyer_mails": "buyer_mail (tenant_id, order_id, profile_id, mail, language, created_at, due_at)"
    " VALUES (1, 1, 1, '', '', now()",
    "notices": "notice_delivery (tenant_id, created_at, due_at) VALUES (1, now()",
}
# Of webhooks, those that are to be sent later count too.
WITHOUT_TIME = {
    "webhooks": "webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at)"
    " VALUES (1, 1, 'ORDER_PAID', 1, 'RETRY', '2030-01-01Z', now())",
    "resends": "webhook_job (tenant_id, kind, start_at, end_at, total, author, created_at)"
    " VALUES (1, 'RESEND', now(), now(), 1, '', now())",
    "notices": "notice (tenant_id, notice_type, fact, data, created_at) VALUES (1, '', '', '{}', now())",
}
INDEXES = {
    *("order_item_due", "purchase_due", "void_request_due", "profile_life_due", "suspension_due", "sms_due"),
    *("refund_due", "webhook_delivery_due", "webhook_job_running", "buyer_mail_due", "notice_new"),
    "notice_delivery_due",
}
MANY = """
INSERT INTO profile_life (tenant_id, profile_id, order_id, line, iccid, created_at, supplier, due_at)
    SELECT 1, n, n, 0, n::text, now(), 'one', now() + interval '1 day' FROM generate_series(1, 5000) n;
INSERT INTO purchase (tenant_id, order_id, profile_id, line, position, unit_key, sku, created_at, supplier, due_at)
    SELECT 1, n, n, 0, 0, n::text, '', now(), 'one', now() + interval '1 day' FROM generate_series(1, 5000) n;
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at)
    SELECT 1, n, 'ORDER_PAID', 1, 'RETRY', now() + interval '1 day', now() FROM generate_series(1, 5000) n;
"""


@pytest.fixture
async def session(database_url: str) -> AsyncIterator[Session]:
    """In a transaction that is rolled back, and in which rows need no dealer."""
    session = Session(database_url, {})
    await session.execute("BEGIN; SET LOCAL session_replication_role = replica")
    yield session
    await session.execute("ROLLBACK")
    await session.close()


@pytest.mark.parametrize("table", OF_SUPPLIER)
async def test_work_for_a_supplier_is_found_once_it_is_due(session: Session, table: str):
    assert await due_work.find(session, ["one", "other"], NOW) == NOTHING
    await session.execute(f"INSERT INTO {table} ({OF_SUPPLIER[table]}, '{NOW}')")
    assert await due_work.find(session, ["one", "other"], NOW - timedelta(milliseconds=1)) == NOTHING
    assert await due_work.find(session, ["one", "other"], NOW) == DueWork(["one"], [])
    assert await due_work.find(session, ["other"], NOW) == NOTHING


@pytest.mark.parametrize("kind", OF_KIND)
async def test_other_work_is_found_once_it_is_due(session: Session, kind: str):
    await session.execute(f"INSERT INTO {OF_KIND[kind]}, '{NOW}')")
    assert await due_work.find(session, ["one"], NOW - timedelta(milliseconds=1)) == NOTHING
    assert await due_work.find(session, ["one"], NOW) == DueWork([], [kind])


@pytest.mark.parametrize("kind", WITHOUT_TIME)
async def test_what_waits_without_a_time_is_found(session: Session, kind: str):
    await session.execute(f"INSERT INTO {WITHOUT_TIME[kind]}")
    assert await due_work.find(session, ["one"], NOW) == DueWork([], [kind])


async def test_each_look_uses_the_index_of_what_is_due(session: Session, postgres: str, template: str):
    """In an empty database, with statistics from when it was empty, and with new ones."""
    empty = Session(database_named(postgres, template), {})
    assert await _indexes(empty) == INDEXES
    await empty.close()
    await session.execute(MANY)
    assert await _indexes(session) == INDEXES
    await session.execute("ANALYZE profile_life, purchase, webhook_delivery")
    assert await _indexes(session) == INDEXES


async def _indexes(session: Session) -> set[str]:
    """The indexes by which the statement looks for rows."""
    await session.execute(f"PREPARE explained AS {FIND}")
    [row] = await session.fetch("EXPLAIN (FORMAT JSON) EXECUTE explained(NULL, NULL)")
    await session.execute("DEALLOCATE explained")
    waiting, used = [json.loads(row["QUERY PLAN"])[0]["Plan"]], set[str]()
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if "Relation Name" in node:
            used.add(node.get("Index Name", node["Node Type"]))
    return used
