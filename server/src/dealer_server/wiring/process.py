"""One process: it serves the API, runs the worker, or both, until it is stopped."""

import asyncio
import gc
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from dealer_server import store
from dealer_server.api import listener, replies, status
from dealer_server.api.gateway import Gateway
from dealer_server.console.app import ConsoleApp
from dealer_server.db import notifications
from dealer_server.rules.access import access
from dealer_server.settings import Settings
from dealer_server.store.webhooks import gauges as webhook_gauges
from dealer_server.wiring.api import web_apps
from dealer_server.wiring.listening import Listening
from dealer_server.wiring.shared import SharedParts, opened_parts, tls_pair
from dealer_server.wiring.worker import run as run_worker

OPEN_FILES = 16_384


async def run(
    settings: Settings,
    *,
    listening: Listening,
    worker: bool,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    retire: asyncio.Event | None = None,
) -> None:
    """Serves what has a socket, runs the worker, or both, until `stop` is set; then finishes what is in flight.

    `ready` is called with the base address once calls are answered. `retire` is set where another process has taken
    over: connections are then not cut before their next answer. Raises CannotStart.
    """
    retire = retire or asyncio.Event()
    if listening.api:
        settings = settings.model_copy(update={"port": listening.api.getsockname()[1]})
    async with opened_parts(settings) as shared, AsyncExitStack() as stack:
        stopping, retiring = [asyncio.create_task(event.wait()) for event in (stop, retire)]
        ends: list[asyncio.Task[Any]] = [stopping, retiring]
        if worker:
            ends.append(asyncio.create_task(run_worker(shared, listening.supplier_events)))
            ends.append(asyncio.create_task(notifications.listen(shared.database, shared.signals.notified)))
        else:
            shared.signals.notify = (await stack.enter_async_context(notifications.opened(shared.database))).notify
        if listening.metrics:
            ends.append(asyncio.create_task(listener.server(status_pages(shared)).serve(sockets=[listening.metrics])))
        servers: list[listener.Listener] = []
        if listening.api:
            opened = await stack.enter_async_context(web_apps(shared))
            servers.append(http_server(settings, opened.api))
            ends.append(asyncio.create_task(servers[0].serve(sockets=[listening.api])))
            if opened.console and listening.console:
                servers.append(http_server(settings, opened.console))
                ends.append(asyncio.create_task(servers[1].serve(sockets=[listening.console])))
        raise_open_files_limit()
        tune_garbage_collection()
        listening.log_addresses()
        ready(settings.base_url)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        shared.health.draining = True
        if retire.is_set():
            await _retire(servers, stopping)
        for server in servers:
            server.should_exit = True
        if servers:
            await asyncio.wait(ends[-len(servers) :])
        await _cancel(ends)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Raises what one of them has failed with."""
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


async def _retire(servers: Sequence[listener.Listener], stopping: asyncio.Task[Any]) -> None:
    """Until no connection is left, or the process is stopped."""
    leaving = asyncio.gather(*[server.retire() for server in servers])
    await asyncio.wait([leaving, stopping], return_when=asyncio.FIRST_COMPLETED)
    leaving.cancel()


def stop_on_signal() -> asyncio.Event:
    """Set by Ctrl-C and by SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


def status_pages(shared: SharedParts) -> Starlette:
    async def gauges() -> tuple[Mapping[str, float], status.PurchasesOpen]:
        async with shared.database.connection() as connection:
            webhooks = await webhook_gauges.read(connection, shared.clock.now())
            return webhooks, await store.supplier.open_purchases(connection)

    return status.pages(gauges, shared.health.not_ready)


def http_server(settings: Settings, app: Gateway | ConsoleApp) -> listener.Listener:
    return listener.server(
        app,
        deadlines=deadlines(settings),
        limits=listener.Limits(settings.connections, settings.connections_per_address),
        tls=tls(settings),
        new_trace_id=lambda: replies.trace_id().decode(),
        exempt=lambda peer: access.is_trusted(peer, settings.proxies),
    )


def raise_open_files_limit() -> None:
    """Raises the limit of open files: each connection of a dealer and each webhook in flight is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def tune_garbage_collection() -> None:
    """Collects rarely: what exists by now stays, requests leave no cycles, and the default costs a tenth of speed."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def deadlines(settings: Settings) -> listener.Deadlines:
    return listener.Deadlines(
        headers=settings.header_seconds,
        body=settings.body_seconds,
        idle=settings.idle_seconds,
        unauthenticated_idle=settings.stranger_idle_seconds,
    )


def tls(settings: Settings) -> tuple[Path, Path] | None:
    return tls_pair(settings.tls_cert, settings.tls_key)
