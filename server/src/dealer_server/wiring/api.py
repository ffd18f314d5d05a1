"""Joins the parts of the API."""

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec

from dealer_server.api import routes
from dealer_server.api.admission import LocalAdmission, SharedAdmission
from dealer_server.api.admission.written_ids import WrittenIds
from dealer_server.api.authenticate import Authenticator
from dealer_server.api.call_metrics import CallMetrics
from dealer_server.api.gateway import Face, Gateway
from dealer_server.api.key_uses import KeyUses
from dealer_server.api.latency import LatencyRecorder
from dealer_server.api.openapi import generator
from dealer_server.api.own_dialect import OwnDialect
from dealer_server.api.pages import pages as unsigned_pages
from dealer_server.api.pages import with_console, with_docs
from dealer_server.api.refused_calls import CallLog
from dealer_server.api.routes import Route
from dealer_server.api.rt import routes as rt_routes
from dealer_server.api.rt.dialect import RtDialect
from dealer_server.api.served_calls import CallSample
from dealer_server.console.app import ConsoleApp
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.reads import Reads
from dealer_server.db.session import Session
from dealer_server.docs_site.app import DocsApp, is_docs
from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.orders.query import OrderQueryBatcher
from dealer_server.operations.profiles import advance, show_install_page, show_qr
from dealer_server.operations.profiles.query_usage import query_usage
from dealer_server.operations.profiles.send_sms import SmsSender
from dealer_server.operations.profiles.suspend import Suspender
from dealer_server.operations.profiles.void import VoidBatcher
from dealer_server.operations.recharges.place import RechargeBatcher
from dealer_server.operations.refunds.request import RefundBatcher
from dealer_server.operations.wallets.query_balance import BalanceBatcher
from dealer_server.operations.webhooks.delivery_counts import DeliveryCounts
from dealer_server.rules.esim import qr as drawing
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.rules.refunds.refund import Way
from dealer_server.webhooks.outbound import Outbound
from dealer_server.wiring.console import console_app
from dealer_server.wiring.shared import SharedParts, callback_policy, suppliers_of

VERSION = "1.0.2"


class WebApps(NamedTuple):
    """ASGI applications. `console`: None where there is none; the API serves it too unless it has a port of its own.
    `lists`: what reads lists of dealers."""

    api: Gateway
    console: ConsoleApp | None
    calls: CallMetrics
    lists: Database


@asynccontextmanager
async def web_apps(shared: SharedParts) -> AsyncIterator[WebApps]:
    """The API and the console; leaving them waits for the orders that were accepted."""
    settings, now = shared.settings, shared.clock.now
    async with AsyncExitStack() as stack:
        admission = await _admission(stack, shared)
        call_log = CallLog(shared.database, shared.cache, now, settings.proxies)
        await stack.enter_async_context(call_log.running())
        sample = CallSample(shared.database, now, settings.proxies)
        await stack.enter_async_context(sample.running())
        latency = LatencyRecorder(shared.database, now)
        await stack.enter_async_context(latency.running())
        calls = CallMetrics()
        key_uses = KeyUses(shared.database, now)
        await stack.enter_async_context(key_uses.running())
        parts = await _parts(stack, shared, call_log)
        console = await stack.enter_async_context(console_app(shared, parts)) if settings.console != "" else None
        served = routes.served(test_environment=settings.environment == "test")
        unsigned = _pages(shared, served)
        pages = with_console(unsigned, console) if console and settings.console is None else unsigned
        authenticator = Authenticator(
            shared.cache, settings.master_keys, admission, now, settings.proxies, key_uses.note
        )
        seen = (call_log.refused, latency.answered, calls.answered, sample)
        own = Face(OwnDialect(authenticator), routes.table(served, parts))
        rt = Face(RtDialect(authenticator), rt_routes.table(parts))
        api = Gateway([own, rt], pages, *seen)
        yield WebApps(api, console, calls, parts.reads)


async def _admission(stack: AsyncExitStack, shared: SharedParts) -> LocalAdmission | SharedAdmission:
    settings = shared.settings
    share = 1 / (settings.processes * settings.instances)
    # Failures are counted by each process alone; together the processes of one serve allow what is set.
    rate = settings.failed_authentications_per_second / settings.processes
    burst = math.ceil(settings.failed_authentications_burst / settings.processes)
    if not settings.valkey_url:
        return LocalAdmission(share=share, failures_per_second=rate, failures_burst=burst)
    written = WrittenIds(shared.database.session(), shared.database.session())
    await stack.enter_async_context(written.running())
    admission = SharedAdmission(
        settings.valkey_url, share=share, failures_per_second=rate, failures_burst=burst, written=written
    )
    stack.push_async_callback(admission.close)
    return admission


async def _parts(stack: AsyncExitStack, shared: SharedParts, call_log: CallLog) -> routes.Parts:
    """What the routes work with, opened; the stack closes it."""
    settings, database, now = shared.settings, shared.database, shared.clock.now
    orders, recharges, refunds, voids = await _batchers(stack, shared)
    reads = await Database.open(settings.database_url, read_timeout_seconds=settings.list_seconds)
    stack.push_async_callback(reads.close)
    lists = Reads(
        "api",
        reads,
        settings.read_database_url,
        bound_seconds=settings.read_lag_seconds,
        read_timeout_seconds=settings.list_seconds,
    )
    report = functools.partial(lifecycle_tracker.report, usage_interval=settings.usage_interval)
    return routes.Parts(
        database=database,
        reads=reads,
        lists=await stack.enter_async_context(lists.running()),
        cache=shared.cache,
        orders=orders,
        queries=OrderQueryBatcher(await _session(stack, database), shared.data_keys),
        accounts=BalanceBatcher(await _session(stack, database)),
        data_keys=shared.data_keys,
        links=shared.links,
        clock=now,
        callbacks=callback_policy(settings),
        delivery_counts=DeliveryCounts(),
        master_keys=settings.master_keys,
        outbound=await stack.enter_async_context(Outbound(callback_policy(settings))),
        recharges=recharges,
        refunds=refunds,
        voids=voids,
        suspender=Suspender(
            database, shared.data_keys, suppliers_of(shared), report, now, shared.signals.refund_requested
        ),
        record_step=call_log.record_step,
        sms=SmsSender(database, shared.data_keys, suppliers_of(shared), now, shared.signals.lifecycle.set),
        usage=functools.partial(query_usage, database, now, shared.signals.lifecycle.set),
        advance=functools.partial(
            advance.advance_profile, database, shared.data_keys, shared.links, report, now, shared.signals.webhook.set
        ),
    )


async def _batchers(
    stack: AsyncExitStack, shared: SharedParts
) -> tuple[OrderBatcher, RechargeBatcher, RefundBatcher, VoidBatcher]:
    database, now = shared.database, shared.clock.now
    # Blocks of ids need no flush of their own: what uses them is written to the same log later.
    # On one server a block is in the log before the rows that use it; on a cluster they are in that of another node.
    flushed = "on" if database.distributed else "off"
    ids = IdAllocator(await _session(stack, database, synchronous_commit=flushed), now)
    suppliers = suppliers_of(shared)

    def way(for_refund: bool) -> Callable[[Item, Profile], Way]:
        """How a profile is voided: remote suppliers have to agree, builtin ones decide at once."""
        return lambda item, _: (
            suppliers[item.supplier].way(item.package_code, for_refund) if item.supplier in suppliers else "SUPPLIER"
        )

    settled = shared.signals.refund_requested
    orders = OrderBatcher(database, ids, now, shared.signals.order_placed)
    recharges = RechargeBatcher(database, ids, now, shared.signals.order_placed)
    refunds = RefundBatcher(database, shared.data_keys, shared.links, way(True), now, settled)
    voids = VoidBatcher(database, shared.data_keys, way(False), now, settled)
    for batcher in (orders, recharges, refunds, voids):
        stack.push_async_callback(batcher.close)
        await _open_early(batcher.open())
    return orders, recharges, refunds, voids


async def _session(stack: AsyncExitStack, database: Database, **options: str) -> Session:
    session = database.session(**options)
    stack.push_async_callback(session.close)
    await _open_early(session.open())
    return session


async def _open_early(opening: Awaitable[object]) -> None:
    """So that the first call does not wait for connections. Where the database is slow, that call opens them."""
    with suppress(DatabaseLost):
        await opening


def _pages(shared: SharedParts, served: tuple[Route[Any, Any], ...]) -> Callable[..., Awaitable[None]]:
    @functools.cache
    def document() -> bytes:  # made for the first reader: it takes a tenth of a second
        return msgspec.json.encode(generator.document(served, base_url=shared.settings.base_url, version=VERSION))

    code_of = functools.partial(show_qr.code_of, shared.database, shared.data_keys)
    install_page = functools.partial(
        show_install_page.install_page,
        shared.database,
        shared.data_keys,
        lambda: shared.cache.catalogue,
        shared.links,
        shared.clock.now,
    )
    pages = unsigned_pages(document, code_of, drawing.svg, drawing.png, shared.health.not_ready, install_page)
    return with_docs(pages, DocsApp(lambda: msgspec.json.decode(document()), shared.settings), is_docs)
