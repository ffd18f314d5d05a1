"""kill -9 of the API and of the worker, at every named point (trust, Faults): what was acknowledged is there, a retry
gives exactly one order, the books are right, everything is delivered and told."""

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest

from buyers import MAJOR, Buyers
from dealer_server import clock
from dealer_server.kill_points import Armed
from dealer_server.operations import catalogue, stock, webhook
from dealer_server.rules.catalogue import generate
from dealer_server.rules.endpoint import Policy
from dealer_server.store import data_key
from dealer_server.store.database import Database
from door import Door, Service, test_settings
from esim_dealer.wire import signing
from esim_dealer.wire.calls import SetWebhook
from processes import PATIENCE, environment, running
from shop import stock_csv
from webhook_stage import Receiver

OPENING = 10_000_000
DEALERS = 3
KILLED = -9
DEAD_SESSIONS = "pg_stat_activity WHERE datname = current_database() AND application_name = 'esim-dealer lane'"

# A delay kills in the middle of what follows the point: the COMMIT, or the one statement of the fast path.
SERVE_POINTS = [
    Armed("order.before_begin"),
    Armed("order.locked", 2),
    Armed("order.written", 2),
    Armed("order.written", 2, 0.0002),
    Armed("order.committed", 3),
    Armed("order.fast.before", 5),
    Armed("order.fast.before", 5, 0.0004),
    Armed("order.fast.committed", 5),
]
WORK_POINTS = [
    Armed("fulfillment.claimed", 2),
    Armed("fulfillment.answered", 2),
    Armed("fulfillment.written", 2),
    Armed("fulfillment.written", 3, 0.0002),
    Armed("fulfillment.recorded", 3),
    Armed("webhook.claimed", 2),
    Armed("webhook.frozen", 2),
    Armed("webhook.posted", 20),
    Armed("webhook.recorded", 3),
]


@dataclass
class Ground:
    """A database, its dealers and the endpoint where they receive webhooks."""

    url: str
    service: Service
    buyers: Buyers
    receiver: Receiver
    kills: Counter[str] = field(default_factory=Counter)
    placed_unseen: int = 0  # orders nobody was told of when the process died, and that were there
    lost_unseen: int = 0  # and that were not

    @property
    def database(self) -> Database:
        return self.service.database

    async def check(self) -> None:
        await self.buyers.check(self.database)
        assert await self.service.audit() == []

    async def rows(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        async with self.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def leases_run_out(self) -> None:
        """A minute passes for what a dead worker held."""
        async with self.database.connection() as connection:
            await connection.execute("UPDATE order_item SET due_at = due_at - interval '1 minute' WHERE claim <> 0")
            await connection.execute(
                "UPDATE webhook_delivery SET due_at = due_at - interval '1 minute' WHERE state = 'IN_FLIGHT'"
            )

    async def becomes_empty(self, what: str) -> None:
        """Returns once no row is there."""
        async with asyncio.timeout(PATIENCE):
            while await self.rows(f"SELECT 1 FROM {what} LIMIT 1"):
                await asyncio.sleep(0.02)


@pytest.fixture
async def ground(database_url: str) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        opened = test_settings(database_url)
        database = await Database.open(database_url)
        stack.push_async_callback(database.close)
        service = Service("", database, opened)
        await catalogue.put(database, generate.catalogue("test"), "test", clock.now)
        async with database.connection() as connection:
            keys = await data_key.load(connection, opened.master_keys)
        await stock.load_stock(database, keys, "DEMO-STOCK", stock_csv(10_000), "test")
        receiver = await Receiver().start()
        stack.push_async_callback(receiver.close)
        http = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=PATIENCE))
        doors = []
        for _ in range(DEALERS):
            made = await service.tenant(balance=str(OPENING), qps=0)
            call = SetWebhook(callback_url=receiver.url)
            await webhook.set_webhook(database, Policy(allow_loopback=True), int(made.tenant_id), call, clock.now())
            doors.append(Door("", int(made.tenant_id), made.app_key, made.app_secret, http))
        yield Ground(database_url, service, Buyers(doors, OPENING * MAJOR, _any_line), receiver)


def _any_line() -> tuple[str, int]:
    """Mostly what memory may decide; what is sold from stock takes the locking path."""
    return random.choices([("TEST-OK", 1), ("TEST-PARTIAL", 3), ("DEMO-STOCK", 2)], [6, 1, 1])[0]


async def test_every_point_kills_once_and_nothing_is_lost(ground: Ground):
    await _survives(ground, SERVE_POINTS, WORK_POINTS)


@pytest.mark.soak
async def test_hundreds_of_kills_lose_nothing(ground: Ground):
    await _survives(ground, _anywhere(SERVE_POINTS, 130), _anywhere(WORK_POINTS, 110))
    print(ground.kills, f"placed unseen {ground.placed_unseen}, lost unseen {ground.lost_unseen}")
    assert ground.kills.total() == 240 and ground.placed_unseen and ground.lost_unseen


def _anywhere(points: Sequence[Armed], count: int) -> Iterable[Armed]:
    """Every point in turn, at a random arrival and, where it is delayed, after a random time."""
    for point in itertools.islice(itertools.cycle(points), count):
        times = random.randint(1, 4 * point.times)
        yield Armed(point.name, times, random.uniform(0.00001, 0.0015) if point.seconds else 0)


async def _survives(ground: Ground, serve_at: Iterable[Armed], work_at: Iterable[Armed]) -> None:
    over = asyncio.Event()
    worked = asyncio.create_task(_kill_worker(ground, work_at))
    worked.add_done_callback(lambda _: over.set())
    await _kill_api(ground, serve_at, over)
    await worked
    await _all_is_well(ground)


async def _kill_api(ground: Ground, points: Iterable[Armed], over: asyncio.Event) -> None:
    """Dealers buy while the API dies at one point after the other; then until it is over."""
    buyers, env = ground.buyers, environment(ground.url)
    for point in points:
        async with running("serve", "--port", "0", env=env, kill_at=str(point)) as serve:
            async with buyers.buying(await serve.ready()):
                assert await serve.ended() == KILLED, serve.said
        ground.kills[point.name] += 1
        await _count_unseen(ground)
        await ground.check()
    async with running("serve", "--port", "0", env=env) as serve, buyers.buying(await serve.ready()):
        await over.wait()


async def _kill_worker(ground: Ground, points: Iterable[Armed]) -> None:
    for point in points:
        async with running("work", env=environment(ground.url), kill_at=str(point)) as work:
            assert await work.ended() == KILLED, work.said
        ground.kills[point.name] += 1
        await ground.leases_run_out()


async def _count_unseen(ground: Ground) -> None:
    keys = [one.key for one in ground.buyers.unknown]
    found = await ground.rows(
        "SELECT FROM orders JOIN unnest($1::bigint[], $2::text[]) AS key(tenant_id, transaction_id)"
        " USING (tenant_id, transaction_id)",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    ground.placed_unseen += len(found)
    ground.lost_unseen += len(keys) - len(found)


async def _all_is_well(ground: Ground) -> None:
    """With API and worker up again: outcomes are known, retries change nothing, all is delivered and told."""
    buyers, env = ground.buyers, environment(ground.url)
    await ground.becomes_empty(DEAD_SESSIONS)  # what was sent before a kill is still carried out
    await ground.leases_run_out()
    async with running("serve", "--port", "0", env=env) as serve, running("work", env=env):
        url = await serve.ready()
        await buyers.settle(url)
        await ground.check()
        await buyers.all_again(url)
        await ground.becomes_empty("orders WHERE delivery_status <> 'DELIVERED'")
        await ground.becomes_empty("webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED')")
        await ground.check()
    refusals = {(reply.status, reply.code) for reply in buyers.replies}
    assert refusals <= {(503, "900001")}, refusals
    await _every_profile_is_bought_once(ground)
    _all_was_told(ground)


async def _every_profile_is_bought_once(ground: Ground) -> None:
    [(profiles, iccids, wanted)] = await ground.rows(
        "SELECT count(*), count(DISTINCT iccid), (SELECT sum(quantity) FROM order_item) FROM profile"
    )
    assert profiles == iccids == wanted
    [(taken, sold)] = await ground.rows(
        "SELECT (SELECT count(*) FROM stock_profile WHERE taken_by IS NOT NULL),"
        " (SELECT sum(quantity) FROM order_item WHERE package_code = 'DEMO-STOCK')"
    )
    assert taken == sold


def _all_was_told(ground: Ground) -> None:
    """Every order got ORDER_PAID and DELIVERY_UPDATED, each delivery always with the same bytes, 8 times at most."""
    told, said = defaultdict(set), defaultdict(list)
    for request in ground.receiver.requests:
        told[request.json["orderNo"]].add(request.event)
        said[request.headers[signing.DELIVERY_ID.lower()]].append(request)
    for purchase in ground.buyers.purchases:
        assert told[purchase.order_no] == {"ORDER_PAID", "DELIVERY_UPDATED"}, purchase
    for requests in said.values():
        assert len({request.body for request in requests}) == 1
        assert len({request.number for request in requests}) == len(requests) <= 8
