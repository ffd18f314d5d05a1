"""The API's parts, joined."""

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import msgspec
import structlog

from dealer_server.api import routes
from dealer_server.api.admission import LocalAdmission, SharedAdmission
from dealer_server.api.admission.written_ids import WrittenIds
from dealer_server.api.authenticate import Authenticator
from dealer_server.api.gateway import Gateway
from dealer_server.api.latency import LatencyRecorder
from dealer_server.api.openapi import generator
from dealer_server.api.pages import pages, with_console
from dealer_server.api.refused_calls import CallLog
from dealer_server.console.app import ConsoleApp
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place_order import OrderBatcher
from dealer_server.operations.orders.query_order import OrderQueryBatcher
from dealer_server.operations.profiles import advance, qr, usage
from dealer_server.operations.profiles.void_profile import VoidBatcher
from dealer_server.operations.refunds.refund_order import RefundBatcher
from dealer_server.operations.wallets.balance import BalanceBatcher
from dealer_server.rules.lifecycle import qr as drawing
from dealer_server.rules.money.refund import Way
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.settings import Settings
from dealer_server.webhooks.outbound import Outbound
from dealer_server.wiring.base import Base, callback_policy, suppliers_of
from dealer_server.wiring.console import console_app

log = structlog.get_logger(__name__)
VERSION = "1.0.2"


class WebApps(NamedTuple):
    """ASGI applications. `console`: None where there is none; the API serves it too unless it has a port of its own."""

    api: Gateway
    console: ConsoleApp | None


@asynccontextmanager
async def web_apps(base: Base) -> AsyncIterator[WebApps]:
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
        admission = _admission(settings, written)
        if isinstance(admission, SharedAdmission):
            stack.push_async_callback(admission.close)
        # Blocks of ids need no flush of their own: what uses them is written to the same log later.
        ids = IdAllocator(await session(synchronous_commit="off"), clock.now)
        orders = OrderBatcher(database, ids, clock.now, base.signals.order_placed)
        suppliers = suppliers_of(base)

        def way(for_refund: bool) -> Callable[[Item, Profile], Way]:
            """Whoever is called has a say; those in the house know."""
            return lambda item, _: (
                suppliers[item.supplier].way(item.package_code, for_refund)
                if item.supplier in suppliers
                else "SUPPLIER"
            )

        settled = base.signals.refund_requested
        refunds = RefundBatcher(database, base.data_keys, base.links, way(True), clock.now, settled)
        voids = VoidBatcher(database, base.data_keys, way(False), clock.now, settled)
        for batcher in (orders, refunds, voids):
            stack.push_async_callback(batcher.close)
            await batcher.open()
        call_log = CallLog(database, base.cache, clock.now, settings.proxies)
        await stack.enter_async_context(call_log.running())
        reads = await Database.open(settings.database_url, look_seconds=settings.list_seconds)
        stack.push_async_callback(reads.close)
        latency = LatencyRecorder(database, clock.now)
        await stack.enter_async_context(latency.running())
        report = functools.partial(lifecycle_tracker.report, usage_interval=settings.usage_interval)
        advance_profile = functools.partial(
            advance.advance, database, base.data_keys, base.links, report, clock.now, base.signals.webhook.set
        )
        parts = routes.Parts(
            usage=functools.partial(usage.usage, database, clock.now, base.signals.lifecycle.set),
            advance=advance_profile,
            refunds=refunds,
            voids=voids,
            database=database,
            reads=reads,
            cache=base.cache,
            orders=orders,
            queries=OrderQueryBatcher(await session(), base.data_keys),
            accounts=BalanceBatcher(await session()),
            data_keys=base.data_keys,
            links=base.links,
            clock=clock.now,
            callbacks=callback_policy(settings),
            master_keys=settings.master_keys,
            outbound=await stack.enter_async_context(Outbound(callback_policy(settings))),
            record_step=call_log.record_step,
        )
        console = await stack.enter_async_context(console_app(base, parts)) if settings.console != "" else None
        served = routes.served(test_environment=settings.environment == "test")
        generator.require_complete(served)

        @functools.cache
        def document() -> bytes:  # costs a tenth of a second, and few ask for it
            return msgspec.json.encode(generator.document(served, base_url=settings.base_url, version=VERSION))

        code_of = functools.partial(qr.code_of, database, base.data_keys)
        unsigned = pages(document, code_of, drawing.svg, drawing.png, base.health.not_ready)
        api = Gateway(
            Authenticator(base.cache, settings.master_keys, admission, clock.now, settings.proxies),
            routes.table(served, parts),
            with_console(unsigned, console) if console and settings.console is None else unsigned,
            call_log.refused,
            latency.answered,
        )
        yield WebApps(api, console)


def _admission(settings: Settings, written: WrittenIds | None) -> LocalAdmission | SharedAdmission:
    share = 1 / settings.processes
    rate, burst = settings.failed_authentications_per_second, settings.failed_authentications_burst
    if settings.valkey_url:
        return SharedAdmission(
            settings.valkey_url, share=share, failures_per_second=rate, failures_burst=burst, written=written
        )
    return LocalAdmission(share=share, failures_per_second=rate, failures_burst=burst)
