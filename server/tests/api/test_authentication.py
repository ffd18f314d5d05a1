"""Whose call it is stays known whatever others do: slow lists, changes of other dealers, a slow database."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from dealer_server import clock
from dealer_server.api.admission import LocalAdmission
from dealer_server.api.authenticate import Authenticator, read_head
from dealer_server.operations.cache import Cache
from dealer_server.rules import refusal
from dealer_server.store.orders import listing
from dealer_server.store.orders.listing import OrderFilter, Window
from dealer_server.store.tenants import tenant as tenants
from support.api_client import PREFIX, ApiClient, Service, running_service
from support.patience import PATIENCE

LISTS = ("/esim/order/list", "/esim/profile/list", "/account/statement", "/webhook/delivery/list")


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Without a worker, which would wait for the locked tables too."""
    async with running_service(database_url, worker=False, list_seconds=2.0, stranger_idle_seconds=0.3) as service:
        yield service


@asynccontextmanager
async def locked(service: Service, *tables: str) -> AsyncIterator[None]:
    """Nobody reads these tables."""
    async with service.database.transaction() as connection:
        await connection.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        yield


async def answers(client: ApiClient, code: str) -> None:
    """Returns once the API answers so."""
    async with asyncio.timeout(PATIENCE):
        while (await client.post("/health")).code != code:
            await asyncio.sleep(0.02)


async def in_memory(service: Service, dealer: ApiClient) -> None:
    """Returns once the process knows the dealer, and has taken in every change before: also that it was created."""
    async with service.client(await service.tenant(qps=0)) as other:
        await answers(other, "000000")
        await service.change(other.tenant_id, status="DISABLED")
        await answers(other, "101006")
    await answers(dealer, "000000")


async def test_slow_lists_of_one_dealer_keep_nobody_from_being_authenticated(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    async with locked(service, "orders", "profile", "ledger_entry", "webhook_delivery"):
        lists = [asyncio.create_task(dealer.post(path)) for path in LISTS * 5]
        while not await waiting(service):
            await asyncio.sleep(0.02)
        for _ in range(3):  # of whom nothing is in memory at first
            assert (await stranger.post("/health")).code == "000000"
        for reply in await asyncio.gather(*lists):
            assert (reply.status, reply.code) == (503, "900001") and reply.headers["Retry-After"]
    for path in LISTS:
        assert (await dealer.post(path)).code == "000000"


async def waiting(service: Service) -> int:
    async with service.database.connection() as connection:
        return await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") or 0


async def test_a_change_of_one_dealer_forgets_no_other(service: Service, dealer: ApiClient, stranger: ApiClient):
    await answers(stranger, "000000")
    await in_memory(service, dealer)
    await service.change(stranger.tenant_id, status="DISABLED")
    await answers(stranger, "101006")  # so the process has taken the change in
    async with locked(service, "credential"):  # no dealer could be read now
        assert (await dealer.post("/health")).code == "000000"
    await service.change(stranger.tenant_id, status="ACTIVE")
    await answers(stranger, "000000")


async def test_a_change_that_names_no_dealer_forgets_all(service: Service, dealer: ApiClient):
    """A process of the version before, beside this one, counts changes and names nobody."""
    await answers(dealer, "000000")
    async with service.database.transaction() as connection:
        await connection.execute("UPDATE credential SET status = 'DISABLED' WHERE app_key = $1", dealer.app_key)
        await connection.execute("UPDATE change SET version = version + 1 WHERE subject = 'tenant'")
    await answers(dealer, "101006")


async def test_many_calls_of_a_dealer_read_it_once(service: Service, dealer: ApiClient, stranger: ApiClient):
    async with locked(service, "credential"):
        calls = [asyncio.create_task(dealer.post("/health")) for _ in range(20)]
        while not await waiting(service):
            await asyncio.sleep(0.02)
        other = asyncio.create_task(stranger.post("/health"))
        while await waiting(service) < 2:
            await asyncio.sleep(0.02)
        assert await waiting(service) == 2
    assert {reply.code for reply in await asyncio.gather(*calls, other)} == {"000000"}


async def test_dealers_are_trusted_for_a_while_when_changes_cannot_be_seen_and_no_longer(
    service: Service, dealer: ApiClient
):
    await in_memory(service, dealer)
    async with locked(service, "change", "credential"):
        assert (await dealer.post("/health")).code == "000000"
        await answers(dealer, "900001")
    await answers(dealer, "000000")


async def test_a_connection_of_a_dealer_is_kept_and_one_of_a_stranger_is_not(service: Service, dealer: ApiClient):
    parts = urlsplit(service.url)

    def request(path: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"POST {path} HTTP/1.1", "Host: test", "Content-Length: 2", *(f"{n}: {v}" for n, v in headers.items())]
        return "\r\n".join([*lines, "", "{}"]).encode()

    async def status(connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], raw: bytes) -> bytes:
        reader, writer = connection
        writer.write(raw)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return head[9:12]

    async with asyncio.timeout(PATIENCE):
        known, stranger = [await asyncio.open_connection(parts.hostname, parts.port) for _ in range(2)]
        assert await status(known, request(f"{PREFIX}/health", dealer.headers(b"{}"))) == b"200"
        unsigned = {"Content-Type": "application/json"}
        assert await status(stranger, request(f"{PREFIX}/health", unsigned)) == b"401"
        assert await stranger[0].read() == b""
        assert await status(known, request(f"{PREFIX}/health", dealer.headers(b"{}"))) == b"200"
        for _, writer in (known, stranger):
            writer.close()


async def test_the_clock_of_authentication_is_the_one_it_was_given(service: Service, dealer: ApiClient):
    raw = b"{}"
    head = read_head([(name.lower().encode(), value.encode()) for name, value in dealer.headers(raw).items()])
    memory = await Cache.open(service.database)
    for ahead in (timedelta(hours=1), timedelta()):
        authenticator = Authenticator(
            memory,
            service.settings.master_keys,
            LocalAdmission(),
            lambda by=ahead: clock.now() + by,
            (),
            used=lambda app_key, address: None,
        )
        if ahead:
            with pytest.raises(refusal.TimestampOutsideWindow):
                await authenticator.authenticate(head, "127.0.0.1", raw)
        else:
            caller, _ = await authenticator.authenticate(head, "127.0.0.1", raw)
            assert caller.tenant_id == dealer.tenant_id


async def test_the_table_of_changes_stays_small_and_says_when_it_does_not_know(service: Service, dealer: ApiClient):
    async with service.database.transaction() as connection:
        before = await tenants.changes(connection, 0)
        for _ in range(tenants.CHANGES_KEPT + 5):
            await tenants.touch(connection, dealer.tenant_id)
        kept = await connection.fetchval("SELECT count(*) FROM tenant_change")
        missed = await tenants.changes(connection, before.version)
        last = await tenants.changes(connection, missed.version - 3)
        now = await tenants.changes(connection, missed.version)
    assert kept == tenants.CHANGES_KEPT
    assert missed.tenants is None
    assert last.tenants == {dealer.tenant_id}
    assert now.tenants == frozenset()


async def test_orders_of_a_status_are_counted_and_listed_by_an_index(service: Service, dealer: ApiClient):
    async with service.database.transaction() as connection:
        await fill(connection, dealer.tenant_id, 20_000)
    async with service.database.connection() as connection:
        await connection.execute("ANALYZE orders")
        for status, count in (("REFUNDING", 20), ("FULFILLING", 40), ("COMPLETED", 19_940), ("PAID", 0)):
            wanted = OrderFilter(None, None, status, None)
            assert await listing.order_count(connection, dealer.tenant_id, wanted) == count
            ids = await listing.order_ids(connection, dealer.tenant_id, wanted, Window(5, 0, None))
            assert len(ids) == min(count, 5)
        for sql in (
            "SELECT count(*)" + listing.orders_of("REFUNDING"),
            "SELECT order_id" + listing.orders_of("REFUNDING") + " ORDER BY order_id DESC LIMIT 21",
        ):
            await connection.execute("SET plan_cache_mode = force_generic_plan")
            plan = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", dealer.tenant_id, 0, 2**53, None)
            await connection.execute("RESET plan_cache_mode")
            assert any("orders_not_completed" in row[0] for row in plan), plan


async def fill(connection, tenant_id: int, count: int) -> None:
    """Orders long over, but every five hundredth or thousandth."""
    await connection.execute(
        "INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, order_status, updated_at)"
        " SELECT $1, n, n::text, '', 'USD', 0, CASE WHEN n % 1000 = 0 THEN 'REFUNDING' WHEN n % 500 = 1 THEN"
        "  'FULFILLING' ELSE 'COMPLETED' END, now() FROM generate_series(1, $2::int) n",
        tenant_id,
        count,
    )
    await connection.execute("UPDATE wallet SET order_count = $2 WHERE tenant_id = $1", tenant_id, count)
