"""The one place where real parts are joined: settings in, a running API and worker out."""

import asyncio
import functools
import gc
import resource
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog
from starlette.applications import Starlette

from dealer_server import store, worker
from dealer_server.api import listener, openapi, replies, routes, status, supplier_events
from dealer_server.api.admission import LocalAdmission, SharedAdmission
from dealer_server.api.authenticate import Authenticator
from dealer_server.api.gateway import Gateway
from dealer_server.api.meter import Meter
from dealer_server.api.pages import pages, with_console
from dealer_server.api.refused import CallLog
from dealer_server.api.written_ids import WrittenIds
from dealer_server.console.door import Door
from dealer_server.console.visit import Parts as ConsoleParts
from dealer_server.fulfillment import follow
from dealer_server.fulfillment.follow import Follower, Polled
from dealer_server.fulfillment.fulfill import Fulfiller
from dealer_server.fulfillment.heard import Heard
from dealer_server.fulfillment.pulse import Pulse
from dealer_server.fulfillment.purchases import Purchaser, Terms
from dealer_server.fulfillment.refunds import Settler
from dealer_server.fulfillment.remotes import Loop, Remotes
from dealer_server.fulfillment.voids import VoidQueue, queues
from dealer_server.operations import advance, qr, usage
from dealer_server.operations.accounts import AccountDesk
from dealer_server.operations.health import Health
from dealer_server.operations.memory import LOAD_LIMIT_SECONDS, LOOK_LIMIT_SECONDS, Memory
from dealer_server.operations.numbers import Numbers
from dealer_server.operations.password import Passwords
from dealer_server.operations.place_order import OrderDesk
from dealer_server.operations.query_order import QueryDesk
from dealer_server.operations.refund_order import RefundDesk
from dealer_server.operations.void_profile import VoidDesk
from dealer_server.rules import access
from dealer_server.rules import qr as drawing
from dealer_server.rules.endpoint import Policy
from dealer_server.rules.model import Item, Profile
from dealer_server.rules.refund import Way
from dealer_server.rules.snapshot import Links
from dealer_server.settings import CannotStart, Settings
from dealer_server.store import embedded, schema
from dealer_server.store.database import Database, Session, poll, wait_until_up
from dealer_server.store.sealing import DataKeys
from dealer_server.store.supplier import Supplier as SupplierRow
from dealer_server.suppliers.contract import Remote, Supplier
from dealer_server.suppliers.simulated import Simulated
from dealer_server.suppliers.stock import Stock
from dealer_server.webhook.deliver import Deliverer
from dealer_server.webhook.outbound import Outbound
from dealer_server.webhook.repush import Repusher

VERSION = "1.0.2"
OPEN_FILES = 16_384
HOLD_SECONDS = 1.0
WARM_SECONDS = 2.0
METRICS = "127.0.0.1:9464"
log = structlog.get_logger(__name__)


class Wakes:
    """Rings the worker's bells in the same process; in others, polling hears."""

    def __init__(self) -> None:
        self.fulfillment = asyncio.Event()
        self.webhook = asyncio.Event()
        self.refund = asyncio.Event()
        self.life = asyncio.Event()

    def refund_asked(self) -> None:
        self.refund.set()
        self.webhook.set()

    def order_placed(self) -> None:
        self.fulfillment.set()
        self.webhook.set()


class Foundation:
    """What API and worker share: the database, the keys, the links."""

    def __init__(self, settings: Settings, database: Database, data_keys: DataKeys, memory: Memory, health: Health):
        self.settings = settings
        self.database = database
        self.data_keys = data_keys
        self.memory = memory
        self.clock = database.clock
        self.health = health
        self.links = Links(settings.base_url, settings.ios_install_url, settings.android_install_url)
        self.wakes = Wakes()


async def database_up(settings: Settings, stop: asyncio.Event) -> bool:
    """Waits for a database that is still starting; false where `stop` came first. Raises DatabaseLost."""
    waiting = asyncio.create_task(wait_until_up(settings.database_url, settings.database_wait_seconds))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if waiting.done():
        waiting.result()
        return True
    waiting.cancel()
    return False


@asynccontextmanager
async def foundation(settings: Settings) -> AsyncIterator[Foundation]:
    """Raises OlderSchema, NewerSchema, CannotOpen where the sealing keys do not fit, DatabaseLost."""
    database = await Database.open(settings.database_url)
    try:
        async with database.connection() as connection:
            await schema.require_current(connection)
            data_keys = await store.data_key.load(connection, settings.master_keys)
        async with remembering(settings.database_url) as memory:
            health = Health(database)
            looking = asyncio.create_task(health.watch())
            try:
                yield Foundation(settings, database, data_keys, memory, health)
            finally:
                looking.cancel()
                await asyncio.wait([looking])
                await health.close()
    finally:
        await database.close()


@asynccontextmanager
async def remembering(dsn: str) -> AsyncIterator[Memory]:
    """The memory of dealers and packages, on connections of its own: whoever lists does not keep others from being
    authenticated. Raises DatabaseLost."""
    async with AsyncExitStack() as stack:
        pools = []
        for seconds in (LOOK_LIMIT_SECONDS, LOAD_LIMIT_SECONDS):
            pools.append(await Database.open(dsn, size=2, look_seconds=seconds))
            stack.push_async_callback(pools[-1].close)
        memory = await Memory.open(*pools)
        watching = asyncio.create_task(memory.watch())
        stack.callback(watching.cancel)
        yield memory


class Doors(NamedTuple):
    """ASGI applications. `console`: None where there is none; the API serves it too unless it has a port of its own."""

    api: Gateway
    console: Door | None


@asynccontextmanager
async def doors(base: Foundation) -> AsyncIterator[Doors]:
    """The API and the console; leaving them waits for the orders that were taken."""
    settings, database, clock = base.settings, base.database, base.clock
    async with AsyncExitStack() as stack:

        async def session(**options: str) -> Session:
            one = database.session(**options)
            stack.push_async_callback(one.close)
            await one.open()
            return one

        written = WrittenIds(database.session(), database.session()) if settings.valkey_url else None
        if written is not None:
            await stack.enter_async_context(written.running())
        admitting = admission(settings, written)
        if isinstance(admitting, SharedAdmission):
            stack.push_async_callback(admitting.close)
        # Blocks of ids need no flush of their own: what uses them is written to the same log later.
        numbers = Numbers(await session(synchronous_commit="off"), clock.now)
        orders = OrderDesk(database, numbers, clock.now, base.wakes.order_placed)
        makers = suppliers(settings, base)

        def way(for_refund: bool) -> Callable[[Item, Profile], Way]:
            """Whoever is called has a say; those in the house know."""
            return lambda item, _: (
                makers[item.supplier].way(item.package_code, for_refund) if item.supplier in makers else "SUPPLIER"
            )

        settled = base.wakes.refund_asked
        refunds = RefundDesk(database, base.data_keys, base.links, way(True), clock.now, settled)
        voids = VoidDesk(database, base.data_keys, way(False), clock.now, settled)
        for desk in (orders, refunds, voids):
            stack.push_async_callback(desk.close)
            await desk.open()
        call_log = CallLog(database, base.memory, clock.now, settings.proxies)
        await stack.enter_async_context(call_log.running())
        reads = await Database.open(settings.database_url, look_seconds=settings.list_seconds)
        stack.push_async_callback(reads.close)
        meter = Meter(database, clock.now)
        await stack.enter_async_context(meter.running())
        reporting = functools.partial(follow.report, usage_interval=settings.usage_interval)
        moving = functools.partial(
            advance.advance, database, base.data_keys, base.links, reporting, clock.now, base.wakes.webhook.set
        )
        parts = routes.Parts(
            usage=functools.partial(usage.usage, database, clock.now, base.wakes.life.set),
            advance=moving if settings.environment == "test" else None,
            refunds=refunds,
            voids=voids,
            database=database,
            reads=reads,
            memory=base.memory,
            orders=orders,
            queries=QueryDesk(await session(), base.data_keys),
            accounts=AccountDesk(await session()),
            data_keys=base.data_keys,
            links=base.links,
            clock=clock.now,
            callbacks=callback_policy(settings),
            master_keys=settings.master_keys,
            outbound=await stack.enter_async_context(Outbound(callback_policy(settings))),
            managed=call_log.managed,
        )
        console = await stack.enter_async_context(console_door(base, parts)) if settings.console != "" else None
        rows = routes.operations(parts)
        openapi.require_complete(rows)

        @functools.cache
        def document() -> bytes:  # costs a tenth of a second, and few ask for it
            return msgspec.json.encode(openapi.document(rows, base_url=settings.base_url, version=VERSION))

        code_of = functools.partial(qr.code_of, database, base.data_keys)
        served = pages(document, code_of, drawing.svg, drawing.png, base.health.not_ready)
        api = Gateway(
            Authenticator(base.memory, settings.master_keys, admitting, clock.now, settings.proxies),
            routes.table(rows),
            with_console(served, console) if console and settings.console is None else served,
            call_log.refused,
            meter.answered,
        )
        yield Doors(api, console)


@asynccontextmanager
async def console_door(base: Foundation, parts: routes.Parts) -> AsyncIterator[Door]:
    """The console, on connections of its own: however many look at pages, calls of dealers do not wait for them."""
    database = await Database.open(base.settings.database_url, look_seconds=base.settings.console_seconds)
    door = Door(
        ConsoleParts(
            database=database,
            data_keys=base.data_keys,
            master_keys=base.settings.master_keys,
            links=base.links,
            settings=base.settings,
            refunds=parts.refunds,
            voids=parts.voids,
            outbound=parts.outbound,
            callbacks=parts.callbacks,
            passwords=Passwords(),
        ),
        base.clock.now,
    )
    warming = asyncio.create_task(_warm(door))
    try:
        yield door
    finally:
        warming.cancel()
        await database.close()


async def _warm(door: Door) -> None:
    """A little later, so that starting does not take longer for it."""
    await asyncio.sleep(WARM_SECONDS)
    await door.warm()


def admission(settings: Settings, written: WrittenIds | None) -> LocalAdmission | SharedAdmission:
    share = 1 / settings.processes
    rate, burst = settings.failed_authentications_per_second, settings.failed_authentications_burst
    if settings.valkey_url:
        return SharedAdmission(
            settings.valkey_url, share=share, failures_per_second=rate, failures_burst=burst, written=written
        )
    return LocalAdmission(share=share, failures_per_second=rate, failures_burst=burst)


def callback_policy(settings: Settings) -> Policy:
    production = settings.environment == "production"
    return Policy(require_https=production, allow_loopback=settings.webhook_allow_loopback and not production)


def suppliers(settings: Settings, base: Foundation) -> Mapping[str, Supplier]:
    """Every supplier this deployment can buy from, by its code. `simulated` makes no real eSIMs: test only."""
    stock = Stock()
    if settings.environment == "production":
        return {stock.code: stock}
    simulated = Simulated(base.data_keys.derive(b"simulated supplier"), settings.supplier_speed)
    return {stock.code: stock, simulated.code: simulated}


def watching(settings: Settings) -> socket.socket | None:
    """Where the worker's /metrics and /health are served. Several workers of one machine share no port: unless an
    address was asked for, the first one has it. Raises OSError."""
    if settings.metrics == "":
        return None
    host, _, port = (settings.metrics or METRICS).rpartition(":")
    try:
        bound = listener.bind(host.strip("[]"), int(port))
    except OSError:
        if settings.metrics:
            raise
        log.warning("metrics_not_served", address=METRICS, reason="taken; set DEALER_METRICS for each worker")
        return None
    log.info("metrics_served", address=f"{host}:{bound.getsockname()[1]}")
    return bound


async def work(base: Foundation) -> None:
    """The worker's loops, until cancelled."""
    settings, wakes, clock = base.settings, base.wakes, base.clock
    policy = callback_policy(settings)
    makers = suppliers(settings, base)
    settler = Settler(base.database, base.data_keys, base.links, clock.now, wakes.webhook.set)
    fulfiller = Fulfiller(
        database=base.database,
        suppliers=makers,
        data_keys=base.data_keys,
        package=lambda code: base.memory.shelf.package(code),
        clock=clock.now,
        changed=wakes.refund_asked,
        refund_failed=settings.refund_failed,
    )
    voids = queues(base.database, makers, base.data_keys, clock.now, wakes.webhook.set, settler.wake.set)
    sources = [follow.Network(maker) for maker in makers.values() if isinstance(maker, Simulated)]
    followers = follow.followers(
        base.database, sources, base.data_keys, clock.now, wakes.webhook.set, settings.usage_interval
    )
    remotes = remotes_of(base, settler.wake.set)
    async with Outbound(policy) as outbound:
        deliverer = Deliverer(
            database=base.database,
            data_keys=base.data_keys,
            master_keys=settings.master_keys,
            links=base.links,
            clock=clock.now,
            outbound=outbound,
            schedule=settings.schedule,
        )
        repusher = Repusher(base.database, clock.now, wakes.webhook)
        await worker.run(
            fulfiller.run(wakes.fulfillment),
            deliverer.run(wakes.webhook),
            repusher.run(),
            settler.run(),
            *(queue.run() for queue in voids),
            remotes.run(),
            events_door(base, remotes),
            *(follower.run() for follower in followers),
            _ring(wakes.refund, [settler.wake.set, *(queue.wake.set for queue in voids), remotes.wake]),
            _ring(wakes.life, [remotes.wake, *(follower.wake.set for follower in followers)]),
        )


def remotes_of(base: Foundation, settle: Callable[[], None]) -> Remotes:
    """Every Remote at work: what buys from it and what voids at it. One that an operator paused is asked nothing; from
    one that a worker paused nothing new is bought."""
    database, wakes, clock, settings = base.database, base.wakes, base.clock, base.settings

    def loops(remote: Remote, supplier: SupplierRow) -> list[Loop]:
        if supplier.status != "ACTIVE" and supplier.paused_reason is None:
            return []
        purchaser = Purchaser(
            remote,
            database.session(),
            base.data_keys,
            lambda code: base.memory.shelf.package(code),
            clock.now,
            wakes.refund_asked,
            settings.refund_failed,
            Terms(settings.supplier_patience_seconds, settings.margin_floor_basis_points),
            supplier.paused_reason,
        )
        return [
            purchaser,
            Pulse(database, remote, clock.now, purchaser.answers_again),
            Follower(
                Polled(remote),
                database.session(),
                base.data_keys,
                clock.now,
                wakes.webhook.set,
                usage_interval=settings.usage_interval,
            ),
            VoidQueue(
                remote, remote.caps.parallel, database.session(), base.data_keys, clock.now, wakes.webhook.set, settle
            ),
        ]

    return Remotes(database, base.data_keys, loops)


async def events_door(base: Foundation, remotes: Remotes) -> None:
    """Serves what suppliers tell us, where an address is set for it, until cancelled."""
    settings, clock = base.settings, base.clock
    if not settings.supplier_events:
        return
    host, _, port = settings.supplier_events.rpartition(":")
    bound = listener.bind(host.strip("[]"), int(port))

    def known(code: str) -> supplier_events.Known | None:
        running = remotes.get(code)
        return None if running is None else supplier_events.Known(running.remote, running.supplier.event_token)

    heard = Heard(
        base.database.session(),
        base.data_keys,
        clock.now,
        base.wakes.webhook.set,
        remotes.wake,
        settings.usage_interval,
    )
    log.info("supplier_events_served", address=f"{host}:{bound.getsockname()[1]}")
    try:
        await listener.server(
            supplier_events.door(known, heard.take, clock.now),
            tls=tls_pair(settings.supplier_events_cert, settings.supplier_events_key),
            client_ca=settings.supplier_events_ca,
        ).serve(sockets=[bound])
    finally:
        await heard.close()


async def _ring(bell: asyncio.Event, others: Sequence[Callable[[], None]]) -> None:
    """Passes a bell on, for ever."""
    while True:
        await bell.wait()
        bell.clear()
        for ring in others:
            ring()


def require_protection(settings: Settings) -> None:
    """In production calls are encrypted on their way, here or in a proxy. Raises CannotStart."""
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise CannotStart("DEALER_TLS_CERT and DEALER_TLS_KEY go together")
    if settings.environment == "production" and not settings.tls_cert and not settings.trusted_proxies:
        raise CannotStart(
            "in production serve needs TLS: set DEALER_TLS_CERT and DEALER_TLS_KEY, or DEALER_TRUSTED_PROXIES to the"
            " proxy that ends TLS in front"
        )
    if certificate_and_key := tls(settings):
        try:
            listener.tls_context(*certificate_and_key)
        except OSError as error:  # ssl.SSLError is one
            raise CannotStart(f"DEALER_TLS_CERT and DEALER_TLS_KEY: {error.strerror or error}") from None


@asynccontextmanager
async def alone_or_shared(settings: Settings, share_nothing: bool) -> AsyncIterator[None]:
    """Several serve processes on one database count request ids and QPS together, or were told not to.

    Raises CannotStart.
    """
    session, shared = Session(settings.database_url, {}), bool(settings.valkey_url) or share_nothing

    async def hold() -> None:
        if not await store.serving.hold(session, shared=shared):
            log.error("another_serve_runs_on_this_database")  # it started while this one had lost the database

    try:
        if settings.environment == "production" and await store.serving.cluster_name(session) == embedded.MARK:
            raise CannotStart("the embedded PostgreSQL is for trial: set DATABASE_URL to a server of yours")
        if not await store.serving.hold(session, shared=shared):
            raise CannotStart(
                "another serve runs on this database: set DEALER_VALKEY_URL for both, so that they share request ids"
                " and QPS, or start each with --share-nothing"
            )
        holding = asyncio.create_task(poll(HOLD_SECONDS, hold))
        try:
            yield
        finally:
            holding.cancel()
            await asyncio.wait([holding])
    finally:
        await session.close()


async def run(
    settings: Settings,
    *,
    listening: socket.socket | None,
    worker: bool,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    watched: bool = False,
) -> None:
    """Serves the API on a bound socket, runs the worker, or both, until `stop` is set; then finishes what is in flight.

    `watched` worker serves /metrics and /health. `ready` is told the base address once calls are answered. Raises
    CannotStart.
    """
    if listening:
        settings = settings.model_copy(update={"port": listening.getsockname()[1]})
    async with foundation(settings) as base, AsyncExitStack() as stack:
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
        if worker:
            ends.append(asyncio.create_task(work(base)))
        if watched and (bound := watching(settings)):
            ends.append(asyncio.create_task(listener.server(status_pages(base)).serve(sockets=[bound])))
        servers: list[listener.Listener] = []
        if listening:
            opened = await stack.enter_async_context(doors(base))
            servers.append(http_server(settings, opened.api))
            ends.append(asyncio.create_task(servers[0].serve(sockets=[listening])))
            if opened.console and settings.console:
                servers.append(http_server(settings, opened.console))
                ends.append(asyncio.create_task(servers[1].serve(sockets=[console_socket(settings.console)])))
        open_many_files()
        collect_rarely()
        ready(settings.base_url)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        base.health.draining = True
        for server in servers:
            server.should_exit = True
        if servers:
            await asyncio.wait(ends[-len(servers) :])
        for task in ends:
            task.cancel()
        for ended in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


def status_pages(base: Foundation) -> Starlette:
    async def gauges() -> tuple[Mapping[str, float], status.PurchasesOpen]:
        async with base.database.connection() as connection:
            webhooks = await store.webhook.gauges(connection, base.clock.now())
            return webhooks, await store.supplier.gauges(connection)

    return status.pages(gauges, base.health.not_ready)


def console_socket(address: str) -> socket.socket:
    """Raises OSError."""
    host, _, port = address.rpartition(":")
    bound = listener.bind(host.strip("[]"), int(port))
    log.info("console_served", address=f"{host}:{bound.getsockname()[1]}")
    return bound


def http_server(settings: Settings, app: Gateway | Door) -> listener.Listener:
    return listener.server(
        app,
        deadlines=deadlines(settings),
        limits=listener.Limits(settings.connections, settings.connections_per_address),
        tls=tls(settings),
        new_trace_id=lambda: replies.trace_id().decode(),
        exempt=lambda peer: access.is_trusted(peer, settings.proxies),
    )


def open_many_files() -> None:
    """Each connection of a dealer and each webhook under way is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def collect_rarely() -> None:
    """What is built by now stays, and a request leaves no cycles: looking for them often costs a tenth of the speed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def deadlines(settings: Settings) -> listener.Deadlines:
    return listener.Deadlines(
        headers=settings.header_seconds,
        body=settings.body_seconds,
        idle=settings.idle_seconds,
        stranger_idle=settings.stranger_idle_seconds,
    )


def tls(settings: Settings) -> tuple[Path, Path] | None:
    return tls_pair(settings.tls_cert, settings.tls_key)


def tls_pair(cert: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    return None if cert is None or key is None else (cert, key)
