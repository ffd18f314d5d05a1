"""What is kept of refused calls: enough to find one's fault, of each dealer for itself, bounded, and never a secret."""

import asyncio
import hashlib
import json
import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dealer_server import clock
from dealer_server.api.authenticate import read_head
from dealer_server.api.refused_calls import HEAD_BYTES, PER_KEY, CallLog, described
from dealer_server.console.shared.api_log.words import CHECKS
from dealer_server.db.database import Database
from dealer_server.operations.cache import Cache
from dealer_server.rules import refusal
from dealer_server.store.console import api_log as rows
from dealer_server.store.console.api_log import KEPT, KEPT_SIGNED, KEPT_UNSIGNED, UNSIGNED, CallFilter, RefusedCall
from support.api_client import PREFIX, ApiClient, Service
from support.console.refused_calls import kept, refuse
from support.patience import PATIENCE

REFUSED = CallFilter(outcome="refused")
AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)


async def newest(service: Service, client: ApiClient, count: int = 1) -> RefusedCall:
    [line, *_] = await kept(service, client, count)
    async with service.database.connection() as connection:
        found = await rows.find(connection, client.tenant_id, line.number)
    assert found is not None
    return found


def call(tenant_id: int, trace_id: str = "trace", failed: str = "operation") -> RefusedCall:
    return RefusedCall(
        tenant_id,
        AT,
        "192.0.2.1",
        "POST",
        "/open-api/v1/health",
        "ak_test_1",
        None,
        trace_id,
        "101003",
        failed,
        "message",
        "{}",
        "[]",
        b"{}",
        2,
        hashlib.sha256(b"{}").hexdigest(),
    )


# What is kept of a call


async def test_a_call_with_a_wrong_signature_is_kept_with_all_that_was_to_be_signed(
    service: Service, dealer: ApiClient
):
    body = json.dumps({"orderNo": "D261120081530000001"}).encode()
    headers = dealer.headers(body, **{"X-Signature": "0" * 64})
    reply = await dealer.send(f"{PREFIX}/esim/query", body, headers)
    assert reply.code == "101003"
    found = await newest(service, dealer)
    received = dict(json.loads(found.headers))
    assert received["rt-timestamp"] == headers["RT-Timestamp"]
    assert received["rt-requestid"] == headers["RT-RequestID"] == found.request_id
    assert received["rt-accesscode"] == dealer.app_key
    assert received["x-signature"] == "0" * 64
    assert (found.code, found.failed, found.path) == ("101003", "signature", f"{PREFIX}/esim/query")
    assert (found.body_head, found.body_bytes) == (body, len(body))
    assert found.body_sha256 == reply.data["bodySha256"]
    assert (found.message, json.loads(found.data)) == (reply.message, reply.data)
    assert found.trace_id == reply.headers["X-Trace-Id"]
    assert found.address == "127.0.0.1"


async def test_each_refused_call_says_at_which_check_it_failed(service: Service, dealer: ApiClient):
    used = str(uuid.uuid4())
    await dealer.post("/health", **{"RT-RequestID": used})
    await dealer.post("/nothing")
    await dealer.send(f"{PREFIX}/health?a=1", b"{}", dealer.headers(b"{}"))
    await dealer.send(f"{PREFIX}/health", b"", dealer.headers(b""), method="GET")
    await dealer.post("/health", **{"Content-Type": "text/plain"})
    await dealer.post("/health", **{"X-Signature": None})
    await dealer.post("/health", **{"RT-Timestamp": "1763626530"})
    await dealer.post("/health", **{"RT-Timestamp": "1763626530000"})
    await dealer.post("/health", **{"RT-RequestID": used})
    await dealer.post("/health", b"{")
    await dealer.post("/esim/order", {"transactionId": "t-1"})
    await dealer.order(amount="1.79")
    failed = [line.failed for line in reversed(await kept(service, dealer, 11))]
    assert failed == [
        *("path", "query string", "method", "content type", "headers", "header form", "timestamp", "request id"),
        *("JSON", "parameters", "operation"),
    ]


async def test_a_call_refused_unread_is_kept_without_its_body(service: Service, dealer: ApiClient):
    await dealer.post("/health")
    await dealer.send(f"{PREFIX}/health", b"", dealer.headers(b""), method="GET")
    found = await newest(service, dealer)
    assert (found.failed, found.body_head, found.body_bytes, found.body_sha256) == ("method", None, None, None)


async def test_a_first_call_of_a_dealer_is_kept_although_nothing_of_it_is_in_memory(
    service: Service, dealer: ApiClient
):
    await dealer.post("/health", **{"Content-Type": "text/plain"})
    assert (await newest(service, dealer)).code == "000109"


async def test_of_a_long_body_the_beginning_is_kept_and_the_hash_of_all(service: Service, dealer: ApiClient):
    body = json.dumps({"padding": "x" * 100_000}).encode()
    await dealer.post("/health", body, **{"X-Signature": "f" * 64})
    found = await newest(service, dealer)
    assert found.body_head == body[:HEAD_BYTES]
    assert (found.body_bytes, found.body_sha256) == (len(body), hashlib.sha256(body).hexdigest())


async def test_a_secret_that_was_sent_by_mistake_is_hidden_wherever_it_stands(service: Service, dealer: ApiClient):
    secret = dealer.app_secret
    await dealer.post("/health", {"appSecret": secret}, **{"X-Signature": secret})
    await dealer.post(f"/{secret}")
    await dealer.post("/esim/query", {"orderNo": secret})
    lines = await kept(service, dealer, 3)
    async with service.database.connection() as connection:
        found = [await rows.find(connection, dealer.tenant_id, line.number) for line in lines]
    assert secret not in repr(found)
    assert "sk_test_(hidden)" in repr(found)


# What is not


async def test_a_successful_call_leaves_nothing(service: Service, dealer: ApiClient):
    assert (await dealer.order()).code == "000000"
    await dealer.post("/nothing")
    assert [line.code for line in await kept(service, dealer, 1)] == ["000112"]


async def test_a_call_with_an_unknown_app_key_is_nobodys(service: Service, dealer: ApiClient, stranger: ApiClient):
    for app_key in ("ak_test_nobody", "ak test", ""):
        reply = await dealer.post("/health", **{"RT-AccessCode": app_key})
        assert reply.code in ("101005", "000102"), reply
    await dealer.post("/nothing", **{"RT-AccessCode": "ak_test_nobody"})
    await dealer.post("/nothing", **{"RT-AccessCode": None})
    await dealer.post("/nothing")
    assert len(await kept(service, dealer, 1)) == 1
    async with service.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM refused_call WHERE app_key <> $1 AND app_key !~ "
                                         "'^ak_test_[A-Za-z0-9]{24}$'", dealer.app_key) == 0  # fmt: skip
        assert await rows.list_calls(connection, stranger.tenant_id, REFUSED, None, KEPT) == []


async def test_a_dealer_finds_its_own_refused_calls_only(service: Service, dealer: ApiClient, stranger: ApiClient):
    await dealer.post("/mine")
    await stranger.post("/theirs")
    [mine], [theirs] = await kept(service, dealer, 1), await kept(service, stranger, 1)
    assert (mine.path, theirs.path) == (f"{PREFIX}/mine", f"{PREFIX}/theirs")
    await dealer.post("/mine/again")
    [again, _] = await kept(service, dealer, 2)
    async with service.database.connection() as connection:
        assert await rows.find(connection, stranger.tenant_id, again.number) is None


# The rings


@pytest.mark.parametrize(("failed", "most"), [("operation", KEPT_SIGNED), ("signature", KEPT_UNSIGNED)])
async def test_the_last_of_each_kind_are_kept(
    service: Service, dealer: ApiClient, stranger: ApiClient, failed: str, most: int
):
    async with service.database.connection() as connection:
        await rows.write(connection, [call(stranger.tenant_id)], {})
        for batch in range(21):
            calls = [call(dealer.tenant_id, str(batch * 50 + number), failed) for number in range(1, 51)]
            await rows.write(connection, calls, {dealer.tenant_id: 1})
        found = await rows.list_calls(connection, dealer.tenant_id, REFUSED, None, 2 * KEPT)
        assert [line.number for line in found] == list(range(1050, 1050 - most, -1))
        assert await rows.find(connection, dealer.tenant_id, 1050 - most) is None
        oldest = await rows.find(connection, dealer.tenant_id, 1051 - most)
        assert oldest is not None and oldest.trace_id == str(1051 - most)
        assert await rows.counts(connection, dealer.tenant_id) == (1050, 21)
        assert await rows.codes(connection, dealer.tenant_id) == [("101003", most)]
        assert len(await rows.list_calls(connection, stranger.tenant_id, REFUSED, None, KEPT)) == 1
        page = await rows.list_calls(connection, dealer.tenant_id, CallFilter("101003"), None, 2)
        assert len(page) == most and page[0].total == page[0].left == most, "all of one moment are on one page"


async def test_each_kind_of_call_leaves_the_other_where_it_is(service: Service, dealer: ApiClient):
    """One count goes over both, in whatever order they come, and more may come at once than a ring holds."""
    kinds = ["operation", "signature", "signature", "path"] * 400
    async with service.database.connection() as connection:
        await rows.write(connection, [call(dealer.tenant_id, failed=failed) for failed in kinds], {})
        await rows.write(connection, [call(dealer.tenant_id, failed="QPS")], {})
        found = await rows.list_calls(connection, dealer.tenant_id, REFUSED, None, 2 * KEPT)
        assert await rows.counts(connection, dealer.tenant_id) == (1601, 0)
        assert await rows.find(connection, dealer.tenant_id, 1601) is not None
    numbered = [(number, failed) for number, failed in enumerate([*kinds, "QPS"], 1)]
    signed = [one for one in numbered if one[1] not in UNSIGNED]
    unsigned = [one for one in numbered if one[1] in UNSIGNED]
    expected = sorted(signed[-KEPT_SIGNED:] + unsigned[-KEPT_UNSIGNED:], reverse=True)
    assert [(line.number, line.failed) for line in found] == expected


def test_nobody_need_have_signed_what_fails_at_the_signature_or_before():
    checks = [check for check, _ in CHECKS]
    assert set(checks[: checks.index("signature") + 1]) == UNSIGNED


async def test_processes_that_write_at_once_share_the_numbers(service: Service, dealer: ApiClient, stranger: ApiClient):
    async def writes(*tenants: int) -> None:
        for _ in range(20):
            async with service.database.connection() as connection:
                await rows.write(connection, [call(tenant_id) for tenant_id in tenants for _ in range(3)], {})

    both = (dealer.tenant_id, stranger.tenant_id)
    await asyncio.gather(writes(*both), writes(*reversed(both)), writes(*both))
    async with service.database.connection() as connection:
        for tenant_id in both:
            found = await rows.list_calls(connection, tenant_id, REFUSED, None, KEPT)
            assert [line.number for line in found] == list(range(180, 0, -1))


# A log of its own


@pytest.fixture
async def memory(service: Service) -> Cache:
    return await Cache.open(service.database)


@pytest.fixture
async def alone(service: Service, memory: Cache) -> CallLog:
    """A log that nothing is written of before it runs."""
    return CallLog(service.database, memory, clock.now, ())


async def test_what_comes_too_fast_is_counted_and_hides_nobody_elses(
    service: Service, dealer: ApiClient, stranger: ApiClient, memory: Cache, alone: CallLog
):
    await memory.load_caller(stranger.app_key)
    refuse(alone, stranger.app_key)
    async with alone.running():
        await kept(service, stranger, 1)
        await memory.load_caller(dealer.app_key)
        for _ in range(PER_KEY + 30):
            refuse(alone, dealer.app_key)
        refuse(alone, stranger.app_key)
    async with service.database.connection() as connection:
        assert await rows.counts(connection, dealer.tenant_id) == (PER_KEY, 30)
        assert await rows.counts(connection, stranger.tenant_id) == (2, 0)


async def test_a_flood_of_calls_that_nobody_signed_leaves_room_for_signed_ones(
    service: Service, dealer: ApiClient, stranger: ApiClient, memory: Cache, alone: CallLog
):
    for client in (dealer, stranger):
        await memory.load_caller(client.app_key)
    async with alone.running():
        for _ in range(PER_KEY + 30):
            refuse(alone, dealer.app_key)
        for _ in range(PER_KEY + 2):
            refuse(alone, dealer.app_key, why=refusal.RequestIdUsed())
    async with service.database.connection() as connection:
        assert await rows.counts(connection, dealer.tenant_id) == (2 * PER_KEY, 32)
        assert await rows.codes(connection, dealer.tenant_id) == [("101003", PER_KEY), ("101004", PER_KEY)]


async def test_a_flood_of_made_up_app_keys_leaves_room_for_dealers(
    service: Service, dealer: ApiClient, stranger: ApiClient, memory: Cache, alone: CallLog
):
    async with alone.running():
        await memory.load_caller(dealer.app_key)
        for number in range(5_000):
            refuse(alone, f"ak_test_{number}")
        refuse(alone, dealer.app_key)
    assert len(await kept(service, dealer, 1)) == 1


async def test_what_waits_at_the_end_is_written(service: Service, dealer: ApiClient, alone: CallLog):
    async with alone.running():
        refuse(alone, dealer.app_key)
    assert len(await kept(service, dealer, 1)) == 1


async def test_a_lost_database_loses_the_log_and_nothing_else(dealer: ApiClient, service: Service):
    async with AsyncExitStack() as stack:
        database = await Database.open(service.database.dsn)
        stack.push_async_callback(database.close)
        log = CallLog(database, await Cache.open(database), clock.now, ())
        await stack.enter_async_context(log.running())
        await database.close()
        refuse(log, dealer.app_key)
    async with service.database.connection() as connection:
        assert await rows.list_calls(connection, dealer.tenant_id, REFUSED, None, KEPT) == []


_NAMES = st.sampled_from([b"rt-accesscode", b"rt-requestid", b"rt-timestamp", b"x-signature", b"user-agent", b"host",
                          b"x-forwarded-for", b"content-type"])  # fmt: skip


@given(
    st.lists(st.tuples(_NAMES, st.binary(max_size=400)), max_size=30), st.binary(max_size=50), st.binary(max_size=50)
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_sent_can_be_kept(headers: list[tuple[bytes, bytes]], path: bytes, body: bytes):
    headers = [
        (b"rt-accesscode", b"ak_test_1"),
        *((name, value) for name, value in headers if name[3:] != b"accesscode"),
    ]
    scope = {"method": "POST", "raw_path": path, "query_string": b"", "headers": headers, "client": None}
    found = described(refusal.SignatureMismatch(), scope, read_head(headers), body, b"trace", "ak_test_1", AT, ())
    for text in found:
        if isinstance(text, str):
            assert "\0" not in text
            text.encode()
    assert len(json.loads(found.headers)) <= 20


# The first run


async def test_the_first_signed_health_and_balance_are_noted_once(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    for _ in range(2):
        await dealer.post("/health")
        await dealer.post("/account/balance")
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                if len(steps := await rows.steps(connection, dealer.tenant_id)) == 2:
                    break
            await asyncio.sleep(0.02)
    assert set(steps) == {"HEALTH", "BALANCE"}
    async with service.database.connection() as connection:
        await rows.record_steps(connection, [(dealer.tenant_id, "HEALTH")], AT)
        assert await rows.steps(connection, dealer.tenant_id) == steps
        assert await rows.steps(connection, stranger.tenant_id) == {}
