"""A row that another transaction locks: which calls wait for it, and what they are answered."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from dealer_server.db.batcher import Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.operations.catalogue import load_stock
from dealer_server.store.tenants import data_key
from support.api_client import ApiClient, Reply, Service
from support.patience import PATIENCE
from support.store_fixture import stock_csv

WALLET = "SELECT FROM wallet WHERE tenant_id = $1 FOR UPDATE"


@asynccontextmanager
async def held(service: Service, sql: str, *args: object) -> AsyncIterator[None]:
    """Another session's transaction, which locks rows and stays open."""
    holder = await asyncpg.connect(service.database.dsn)
    try:
        async with holder.transaction():
            await holder.execute(sql, *args) if not args else await holder.fetch(sql, *args)
            yield
    finally:
        await holder.close()


async def lock_is_waited_for(service: Service) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                if await connection.fetchval(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    " AND datname = current_database()"
                ):
                    return
            await asyncio.sleep(0.01)


async def delivered(client: ApiClient, package: str = "TEST-OK") -> tuple[str, int]:
    """A delivered order's orderNo, and the id of its only profile."""
    placed = await client.order(package)
    data = await client.delivered(placed.data["orderNo"])
    return data["orderNo"], int(data["items"][0]["profiles"][0]["profileId"])


async def test_a_locked_wallet_does_not_delay_other_dealers(service: Service, dealer: ApiClient, stranger: ApiClient):
    orders = [await delivered(stranger) for _ in range(2)]
    await delivered(dealer)
    async with held(service, WALLET, dealer.tenant_id):
        waiting = asyncio.create_task(dealer.order(transactionId=(key := secrets.token_hex(8))))
        await lock_is_waited_for(service)
        for _ in range(10):
            assert (await stranger.order()).code == "000000"
        assert (await stranger.post("/esim/refund", {"orderNo": orders[0][0]})).code == "000000"
        assert (await stranger.post("/esim/profile/cancel", {"profileId": orders[1][1]})).code == "000000"
    assert (await waiting).code in ("000000", "900001")
    assert (await dealer.order(transactionId=key)).code == "000000"
    assert (await dealer.post("/account/balance")).data["balance"] == "996.40"
    assert await service.audit() == []


async def test_orders_of_a_locked_wallet_are_answered_busy(service: Service, dealer: ApiClient):
    order_no, _ = await delivered(dealer)
    key = secrets.token_hex(8)
    async with held(service, WALLET, dealer.tenant_id):
        for refused in (
            await dealer.order(transactionId=key),
            await dealer.post("/esim/refund", {"orderNo": order_no}),
        ):
            assert (refused.status, refused.code, refused.data) == (503, "900001", {})
            assert refused.headers["Retry-After"]
    placed = await dealer.order(transactionId=key)
    assert (placed.code, placed.data["duplicate"]) == ("000000", False)
    assert (await dealer.post("/esim/refund", {"orderNo": order_no})).data["status"] == "REFUNDED"
    assert await service.audit() == []


async def test_a_locked_order_does_not_delay_other_orders(service: Service, dealer: ApiClient, stranger: ApiClient):
    mine, theirs = await delivered(dealer), [await delivered(stranger) for _ in range(2)]
    sql = "SELECT FROM orders WHERE tenant_id = $1 FOR UPDATE"
    async with held(service, sql, dealer.tenant_id):
        waiting = [
            asyncio.create_task(dealer.post("/esim/profile/cancel", {"profileId": mine[1]})),
            asyncio.create_task(dealer.post("/esim/refund", {"orderNo": mine[0]})),
        ]
        await lock_is_waited_for(service)
        assert (await stranger.post("/esim/profile/cancel", {"profileId": theirs[0][1]})).data["cancelled"] is True
        assert (await stranger.post("/esim/refund", {"orderNo": theirs[1][0]})).data["status"] == "REFUNDED"
        # Fulfilment records orders of both dealers.
        await stranger.delivered((await stranger.order()).data["orderNo"])
    for one in waiting:
        assert (await one).code in ("000000", "900001", "200003")
    assert await service.audit() == []


@pytest.fixture
async def stocked(service: Service) -> None:
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    first = secrets.randbelow(10**7)
    assert (await load_stock.load_stock(service.database, keys, "DEMO-STOCK", stock_csv(4, first), "test")).loaded == 4


def from_stock(quantity: int) -> dict[str, object]:
    line = {"packageCode": "DEMO-STOCK", "quantity": quantity, "price": "2.50"}
    return {"items": [line], "amount": f"{2.5 * quantity:.2f}"}


async def test_a_locked_stock_code_delays_no_order(service: Service, dealer: ApiClient, stocked: None):
    """The next code is held elsewhere: the one after it is sold, and others meanwhile buy what they like."""
    sql = "SELECT FROM stock_profile WHERE taken_by IS NULL AND package_code = $1 ORDER BY iccid LIMIT 1 FOR UPDATE"
    async with held(service, sql, "DEMO-STOCK"):
        for _ in range(2):
            placed = await dealer.order(**from_stock(1))
            assert (await dealer.delivered(placed.data["orderNo"]))["deliveryStatus"] == "DELIVERED"
        refused = asyncio.create_task(dealer.order(**from_stock(2)))
        assert (await dealer.order()).code == "000000"
        assert (await refused).code == "900001"  # whether it is free is not known while it is held
    assert (await dealer.order(**from_stock(2))).code == "000000"
    assert (await dealer.order(**from_stock(1))).code == "200011"
    assert await service.audit() == []


def log_of(dsn: str) -> Path:
    [folder] = parse_qs(urlsplit(dsn).query)["host"]
    return Path(folder).parent / "log"


async def test_expected_refusals_raise_no_database_error(service: Service, dealer: ApiClient, stocked: None):
    log = log_of(service.database.dsn)
    before = len(log.read_bytes())

    async def buy(**changed: object) -> Reply:
        return await dealer.order(**changed)

    key = secrets.token_hex(8)
    assert (await buy(transactionId=key)).code == "000000"
    assert (await buy(transactionId=key)).data["duplicate"] is True
    await service.change(dealer.tenant_id, balance="5")  # the process remembers more
    codes = [(await buy(transactionId=secrets.token_hex(8))).code for _ in range(3)]
    assert codes == ["000000", "000000", "200007"]
    await service.change(dealer.tenant_id, balance="50", frozen=True)
    assert (await buy()).code == "200020"
    await service.change(dealer.tenant_id, frozen=False)
    assert (await buy(**from_stock(4))).code == "000000"
    assert (await buy(**from_stock(1))).code == "200011"
    assert b"ERROR" not in log.read_bytes()[before:]


# Batches


async def test_closing_a_batch_answers_all_its_waiters():
    begun = asyncio.Event()

    async def run(items: Sequence[int]) -> Sequence[int]:
        begun.set()
        return await asyncio.get_running_loop().create_future()

    batcher: Batcher[int, int] = Batcher(run, bound=1)
    before = asyncio.all_tasks()
    futures = [batcher.submit(number) for number in range(3)]
    await begun.wait()
    for task in asyncio.all_tasks() - before:
        task.cancel()
    lost = await asyncio.wait_for(asyncio.gather(*futures, return_exceptions=True), PATIENCE)
    assert [one.sent for one in lost if isinstance(one, DatabaseLost)] == [True, False, False]


async def test_a_programming_error_is_not_reported_as_a_lost_database(service: Service):
    with pytest.raises(FileNotFoundError):
        async with service.database.connection():
            raise FileNotFoundError("a file of ours")
    database: Database = service.database
    with pytest.raises(ConnectionRefusedError):
        async with database.transaction():
            raise ConnectionRefusedError("a supplier of ours")
