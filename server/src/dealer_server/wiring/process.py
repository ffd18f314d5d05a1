"""One process: it serves the API, runs the worker, or both, until it is stopped."""

import asyncio
import gc
import resource
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from dealer_server import store, traces
from dealer_server.api import listener, replies, status
from dealer_server.api.call_metrics import Connections
from dealer_server.api.gateway import Gateway
from dealer_server.console.app import ConsoleApp
from dealer_server.db import notifications
from dealer_server.db.database import Database
from dealer_server.rules.access import access
from dealer_server.settings import CannotStart, Settings
from dealer_server.store import gauges
from dealer_server.store.webhooks import gauges as webhook_gauges
from dealer_server.wiring.api import WebApps, web_apps
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
        await stack.enter_async_context(_traces(shared, "dealer-work" if worker else "dealer-serve"))
        stopping, retiring = [asyncio.create_task(event.wait()) for event in (stop, retire)]
        ends: list[asyncio.Task[Any]] = [stopping, retiring]
        if worker:
            ends.append(asyncio.create_task(run_worker(shared, listening.supplier_events)))
            ends.append(asyncio.create_task(notifications.listen(shared.database, shared.signals.notified)))
            if listening.metrics:
                ends.append(_worker_metrics(shared, listening.metrics))
        else:
            shared.signals.notify = (await stack.enter_async_context(notifications.opened(shared.database))).notify
        servers: list[listener.Listener] = []
        if listening.api:
            opened = await stack.enter_async_context(web_apps(shared))
            servers.append(http_server(settings, opened.api))
            ends.append(asyncio.create_task(servers[0].serve(sockets=[listening.api])))
            if opened.console and listening.console:
                servers.append(http_server(settings, opened.console))
                ends.append(asyncio.create_task(servers[1].serve(sockets=[listening.console])))
            if listening.metrics and not worker:
                stack.callback(_serve_metrics(shared, opened, servers, listening.metrics).cancel)
        raise_open_files_limit()
        listening.log_addresses()
        ready(settings.base_url)
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        shared.health.draining = True
        if retire.is_set():
            await _retire(servers, stopping)
        elif stop.is_set() and servers:  # a proxy sees that this process is not ready, and goes elsewhere
            await asyncio.sleep(settings.drain_seconds)
        await _end(servers, ends)


@asynccontextmanager
async def _traces(shared: SharedParts, service: str) -> AsyncIterator[None]:
    """Raises CannotStart."""
    key = shared.data_keys.derive(b"traces")
    try:
        async with traces.exported(shared.settings.traces, key, service):
            yield
    except traces.NotInstalled as missing:
        raise CannotStart(f"DEALER_TRACES needs what is not installed: {missing}") from None


def _worker_metrics(shared: SharedParts, bound: socket.socket) -> asyncio.Task[None]:
    pages = status.worker_pages(_gauges(shared), _state(shared, {"main": shared.database}))
    return asyncio.create_task(listener.server(pages).serve(sockets=[bound]))


def _serve_metrics(
    shared: SharedParts, opened: WebApps, servers: Sequence[listener.Listener], bound: socket.socket
) -> asyncio.Task[None]:
    """Until it is cancelled: also while the process drains."""
    opened.calls.connections = lambda: [Connections(one.open_connections, one.counts) for one in servers]
    pools = {"main": shared.database, "lists": opened.lists}
    pages = status.serve_pages(opened.calls, _state(shared, pools))
    return asyncio.create_task(listener.server(pages).serve(sockets=[bound]))


async def _end(servers: Sequence[listener.Listener], tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Servers answer what they have begun; the last tasks are theirs. Raises what a task has failed with."""
    for server in servers:
        server.should_exit = True
    if servers:
        await asyncio.wait(tasks[-len(servers) :])
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


def _gauges(shared: SharedParts) -> status.ReadGauges:
    async def read() -> status.Gauges:
        async with shared.database.connection() as connection:
            now = shared.clock.now()
            return status.Gauges(
                await webhook_gauges.read(connection, now),
                await gauges.read(connection, now),
                await store.supplier.open_purchases(connection),
                await store.supplier.paused_by_worker(connection),
            )

    return read


def _state(shared: SharedParts, pools: Mapping[str, Database]) -> Callable[[], status.ProcessState]:
    return lambda: status.ProcessState(
        shared.health.not_ready(),
        shared.clock.ahead_seconds,
        {name: database.pool_size for name, database in pools.items()},
    )


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


def rarely_collecting(ready: Callable[[str], None]) -> Callable[[str], None]:
    """`ready`, before which a process begins to collect garbage rarely, for the rest of its life: what exists by then
    stays, requests leave no cycles, and the default costs a tenth of speed."""

    def collect_rarely(address: str) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        ready(address)

    return collect_rarely


def deadlines(settings: Settings) -> listener.Deadlines:
    return listener.Deadlines(
        headers=settings.header_seconds,
        body=settings.body_seconds,
        idle=settings.idle_seconds,
        unauthenticated_idle=settings.stranger_idle_seconds,
    )


def tls(settings: Settings) -> tuple[Path, Path] | None:
    return tls_pair(settings.tls_cert, settings.tls_key)
