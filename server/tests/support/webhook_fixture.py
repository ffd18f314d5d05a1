"""Dealers and orders in a real database, and receivers that listen on loopback, for webhook tests."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, MasterKeys, credential_context, profile_context
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.store.tenants import credential
from dealer_server.store.webhooks import endpoints, enqueue
from dealer_server.store.webhooks.endpoints import Endpoint
from dealer_server.webhooks.loop import Deliverer, Options
from dealer_server.webhooks.outbound import Outbound
from dealer_server.webhooks.post import Poster
from dealer_server.webhooks.prepare import Preparer
from dealer_server.wiring.due_work import DueWorkPoller
from esim_dealer.webhook import Event, verify
from support.patience import PATIENCE

LOOPBACK = Policy(allow_loopback=True)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
_order_ids = itertools.count(217_000_000_000_000)
_profile_ids = itertools.count(10**12, 1_000)


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    """A whole HTTP answer."""
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class TestClock:
    """Real time, and more: tests move it forward or back."""

    __test__ = False

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def advance(self, seconds: float) -> None:
        self.ahead += timedelta(seconds=seconds)


class StillClock(TestClock):
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self._from = datetime.now(UTC)

    def __call__(self) -> datetime:
        return self._from + self.ahead


@dataclass
class Request:
    """One webhook as it arrived."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)
    connection: asyncio.StreamReader | None = field(default=None, repr=False, compare=False)

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)

    @property
    def event(self) -> str:
        return self.json["eventType"]

    @property
    def number(self) -> int:
        return int(self.headers["rt-delivery-attempt"])

    def verified(self, secret: str, now: float | None = None) -> Event:
        return verify(self.headers, self.body, secret, now=now, tolerance_seconds=10**9)


Answering = Callable[[Request, asyncio.StreamWriter], Awaitable[bytes | None]]


class Receiver:
    """A dealer's endpoint: an HTTP server over raw sockets, so that tests may break every rule of HTTP.

    `answers` are sent one after the other, and the last one repeatedly: bytes, a status, or a function of the request
    and the open connection.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[bytes | int | Answering] = [OK]
        self.under_way = self.most_under_way = 0
        self.connections = 0
        self._arrived = asyncio.Condition()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> "Receiver":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.close()

    async def received(self, count: int) -> list[Request]:
        """The requests, once there are so many."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests

    async def until(self, holds: Callable[["Request"], bool]) -> Request:
        """The first request of which this holds, once there is one."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: any(map(holds, self.requests)))
        return next(filter(holds, self.requests))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        self.connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await self._exchange(await _read(reader), writer)
        writer.close()
        self._open.discard(writer)

    async def _exchange(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            reply = self.answers[min(len(self.requests), len(self.answers) - 1)]
            self.requests.append(request)
            async with self._arrived:
                self._arrived.notify_all()
            if callable(reply):
                reply = await reply(request, writer)
            if isinstance(reply, int):
                reply = answer(reply)
            if reply is not None:
                writer.write(reply)
                await writer.drain()
        finally:
            self.under_way -= 1


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(head[0].split(" ")[1], headers, body, connection=reader)


async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
    """An answer that never comes."""
    await asyncio.Event().wait()


async def hang_until_left(request: Request, writer: asyncio.StreamWriter) -> None:
    """An answer that never comes; returns when the client closes the connection."""
    assert request.connection is not None
    await request.connection.read()


@dataclass
class Dealer:
    tenant_id: int
    app_key: str
    secret: str


@dataclass
class WebhookFixture:
    """A database with its keys, a clock, and what webhook tests do with them."""

    database: Database
    data_keys: DataKeys
    master_keys: MasterKeys
    clock: TestClock
    links: Links = field(default_factory=lambda: Links("https://esim.test"))

    async def dealer(self, url: str = "") -> Dealer:
        """A dealer with a wallet, a credential and, if given, an endpoint."""
        async with self.database.transaction() as connection:
            tenant_id = await store.tenant.create(connection, "dealer", 0)
            await store.wallet.create(connection, tenant_id, "USD", 0)
            dealer = Dealer(tenant_id, f"ak_test_{tenant_id}", f"sk_test_{tenant_id}")
            sealed = self.master_keys.seal(dealer.secret.encode(), credential_context(tenant_id, dealer.app_key, 1))
            await credential.add(connection, tenant_id, dealer.app_key, sealed)
            if url:
                await endpoints.set_url(connection, tenant_id, url, self.clock())
        return dealer

    async def order(self, dealer: Dealer, *, quantity: int = 1, paid_event: bool = True) -> int:
        """A paid order, with its ORDER_PAID as placing an order leaves it."""
        order_id, first_profile_id, now = next(_order_ids), next(_profile_ids), self.clock()
        async with self.database.transaction() as connection:
            await connection.execute(
                "INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, updated_at)"
                " VALUES ($1, $2, $3, '', 'USD', 18000, $4)", dealer.tenant_id, order_id, f"t-{order_id}", now
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num,"
                " price, first_profile_id) VALUES ($1, $2, 0, 'TEST-OK', 'simulated', $3, 1, 18000, $4)",
                dealer.tenant_id, order_id, quantity, first_profile_id
            )  # fmt: skip
            await connection.execute(
                "INSERT INTO profile (tenant_id, profile_id, order_id, line, updated_at)"
                " SELECT $1, $2::bigint + n, $3, 0, $4 FROM generate_series(0, $5::int - 1) AS n",
                dealer.tenant_id, first_profile_id, order_id, now, quantity
            )  # fmt: skip
            if paid_event:
                await connection.execute(
                    "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at,"
                    " created_at, finished_at) SELECT $1, $2, 'ORDER_PAID', 1, CASE WHEN active THEN 'READY' ELSE"
                    " 'SKIPPED' END, CASE WHEN active THEN $3::timestamptz END, $3, CASE WHEN NOT active THEN"
                    " $3::timestamptz END FROM (SELECT EXISTS (SELECT FROM webhook_endpoint WHERE tenant_id = $1 AND"
                    " state = 'ACTIVE') AS active) endpoint", dealer.tenant_id, order_id, now
                )  # fmt: skip
        return order_id

    async def change(self, dealer: Dealer, order_id: int, **columns: Any) -> int:
        """Changes the order as fulfillment would, in one transaction with its event; its new version."""
        async with self.database.transaction() as connection:
            return await self.change_in(connection, dealer, order_id, **columns)

    async def change_in(self, connection: Any, dealer: Dealer, order_id: int, **columns: Any) -> int:
        now = self.clock()
        await store.order.lock(connection, [(dealer.tenant_id, order_id)])
        sets = "".join(f", {name} = ${number}" for number, name in enumerate(columns, 4))
        version = await connection.fetchval(
            f"UPDATE orders SET version = version + 1, updated_at = $3{sets}"
            " WHERE tenant_id = $1 AND order_id = $2 RETURNING version",
            dealer.tenant_id, order_id, now, *columns.values()
        )  # fmt: skip
        await enqueue.order_changed(connection, [(dealer.tenant_id, order_id, version)], now)
        return version

    async def allocate(self, dealer: Dealer, order_id: int) -> int:
        """Gives the order's profiles their codes, so that the first DELIVERY_UPDATED has something to report."""
        async with self.database.transaction() as connection:
            for row in await connection.fetch("SELECT profile_id FROM profile WHERE order_id = $1", order_id):
                profile_id = row[0]
                code = f"LPA:1$rsp.test$M{profile_id}".encode()
                await connection.execute(
                    "UPDATE profile SET iccid = $3, activation_code = $4, qr_token = 'token',"
                    " lifecycle_status = 'DELIVERED' WHERE tenant_id = $1 AND profile_id = $2",
                    dealer.tenant_id, profile_id, f"89{profile_id:018d}",
                    self.data_keys.seal(code, profile_context(dealer.tenant_id, profile_id))
                )  # fmt: skip
            return await self.change_in(
                connection, dealer, order_id, delivery_status="DELIVERED", order_status="COMPLETED"
            )

    async def use(self, dealer: Dealer, order_id: int, usage_bytes: int) -> int:
        """Reports usage on the order's profiles."""
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE profile SET data_usage_bytes = $3 WHERE tenant_id = $1 AND order_id = $2",
                dealer.tenant_id, order_id, usage_bytes
            )  # fmt: skip
            return await self.change_in(connection, dealer, order_id)

    async def deliveries(self, dealer: Dealer, order_id: int | None = None) -> list[Mapping[str, Any]]:
        """A dealer's deliveries in order of change."""
        async with self.database.connection() as connection:
            return await connection.fetch(
                "SELECT * FROM webhook_delivery WHERE tenant_id = $1 AND ($2::bigint IS NULL OR order_id = $2)"
                " ORDER BY order_id, order_version, delivery_id", dealer.tenant_id, order_id
            )  # fmt: skip

    async def states(self, dealer: Dealer, order_id: int | None = None) -> list[tuple[str, str]]:
        return [(one["event_type"], one["state"]) for one in await self.deliveries(dealer, order_id)]

    async def attempts(self, dealer: Dealer) -> list[Mapping[str, Any]]:
        async with self.database.connection() as connection:
            return await connection.fetch(
                "SELECT * FROM webhook_attempt WHERE tenant_id = $1 ORDER BY delivery_id, number", dealer.tenant_id
            )

    async def endpoint(self, dealer: Dealer) -> Endpoint:
        async with self.database.connection() as connection:
            endpoint = await endpoints.find(connection, dealer.tenant_id)
        assert endpoint is not None
        return endpoint

    async def execute(self, sql: str, *args: Any) -> None:
        async with self.database.connection() as connection:
            await connection.execute(sql, *args)

    @asynccontextmanager
    async def deliverer(
        self, policy: Policy = LOOPBACK, wake: asyncio.Event | None = None, **options: Any
    ) -> AsyncIterator[Deliverer]:
        """A worker that is driven by hand: `run_once`, `settle`, `upkeep.step`."""
        outbound_options: dict[str, Any] = {"total_seconds": PATIENCE, "connect_seconds": PATIENCE}
        outbound_options |= {name: options.pop(name) for name in ("total_seconds", "resolver") if name in options}
        async with Outbound(policy, **outbound_options) as outbound:
            deliverer = Deliverer(
                self.database,
                Preparer(self.data_keys, self.links),
                Poster(outbound, self.master_keys, self.clock),
                self.clock,
                wake or asyncio.Event(),
                Options(**options),
            )
            try:
                yield deliverer
            finally:
                await deliverer.stop()

    @asynccontextmanager
    async def running(self, policy: Policy = LOOPBACK, **options: Any) -> AsyncIterator[asyncio.Event]:
        """A running worker; yields the event that wakes it."""
        wake = asyncio.Event()
        poller = DueWorkPoller(self.database, self.clock, list, {"webhooks": wake})
        async with self.deliverer(policy, wake, **options) as deliverer:
            tasks = [asyncio.create_task(loop.run()) for loop in (deliverer, poller)]
            try:
                yield wake
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)


@asynccontextmanager
async def webhook_fixture(database_url: str) -> AsyncIterator[WebhookFixture]:
    """On a migrated database; deliveries are deleted after each test."""
    database = await Database.open(database_url)
    master_keys = MasterKeys({"test": bytes(32)})
    async with database.connection() as connection:
        data_keys = await store.data_key.load(connection, master_keys)
    try:
        yield WebhookFixture(database, data_keys, master_keys, TestClock())
    finally:
        async with database.connection() as connection:
            await connection.execute("TRUNCATE webhook_attempt, webhook_delivery")
        await database.close()


@asynccontextmanager
async def listening(count: int) -> AsyncIterator[list[Receiver]]:
    receivers = [await Receiver().start() for _ in range(count)]
    try:
        yield receivers
    finally:
        for one in receivers:
            await one.close()


async def deliver_all(deliverer: Deliverer) -> int:
    """Drives a worker until nothing is due; how many attempts it made."""
    made = 0
    async with asyncio.timeout(PATIENCE):
        while (started := await deliverer.run_once()) or deliverer.tasks:  # what was not sent is recorded all the same
            made += started
            await deliverer.settle()
    return made


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Returns once the condition holds: for effects that no receiver sees."""
    async with asyncio.timeout(PATIENCE):
        while not await condition():
            await asyncio.sleep(0.01)
