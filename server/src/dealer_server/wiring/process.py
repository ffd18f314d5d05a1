"""One process: it serves the API, runs the worker, or both, until it is told to stop."""

import asyncio
import gc
import resource
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import structlog
from starlette.applications import Starlette

from dealer_server import store
from dealer_server.api import listener, replies, status
from dealer_server.api.gateway import Gateway
from dealer_server.console.app import ConsoleApp
from dealer_server.rules.access import access
from dealer_server.settings import Settings
from dealer_server.wiring.api import web_apps
from dealer_server.wiring.base import Base, opened_base, tls_pair
from dealer_server.wiring.worker import run as run_worker

METRICS = "127.0.0.1:9464"
OPEN_FILES = 16_384
HOLD_SECONDS = 1.0
log = structlog.get_logger(__name__)


async def run(
    settings: Settings,
    *,
    listening: socket.socket | None,
    worker: bool,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    metrics: bool = False,
) -> None:
    """Serves the API on a bound socket, runs the worker, or both, until `stop` is set; then finishes what is in flight.

    `metrics` worker serves /metrics and /health. `ready` is told the base address once calls are answered. Raises
    CannotStart.
    """
    if listening:
        settings = settings.model_copy(update={"port": listening.getsockname()[1]})
    async with opened_base(settings) as base, AsyncExitStack() as stack:
        ends: list[asyncio.Task[Any]] = [asyncio.create_task(stop.wait())]
        if worker:
            ends.append(asyncio.create_task(run_worker(base)))
        if metrics and (bound := metrics_socket(settings)):
            ends.append(asyncio.create_task(listener.server(status_pages(base)).serve(sockets=[bound])))
        servers: list[listener.Listener] = []
        if listening:
            opened = await stack.enter_async_context(web_apps(base))
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


def status_pages(base: Base) -> Starlette:
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


def http_server(settings: Settings, app: Gateway | ConsoleApp) -> listener.Listener:
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
        unauthenticated_idle=settings.stranger_idle_seconds,
    )


def tls(settings: Settings) -> tuple[Path, Path] | None:
    return tls_pair(settings.tls_cert, settings.tls_key)


def metrics_socket(settings: Settings) -> socket.socket | None:
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
