"""`dealer-server dev`, `serve` and `work`: the processes of the service."""

import socket
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dealer_server import logs, settings
from dealer_server.cli.command import AsJson
from dealer_server.settings import SettingsError


async def dev(
    *,
    port: int = 8080,
    data: Path | None = None,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    speed: float | None = None,
    as_json: AsJson = False,
) -> None:
    """Run the whole service on an embedded PostgreSQL with a demo dealer.

    Args:
        port: The API's port on 127.0.0.1; 0 takes a free one.
        data: The data folder; the next start continues with its data.
        fresh: Start with an empty data folder.
        speed: How many times faster the simulated network, and the plans of its eSIMs, run.
    """
    from dealer_server.dev import run as development

    await development.run(port, data, fresh=fresh, as_json=as_json, speed=speed)


async def serve(*, host: str | None = None, port: int | None = None, share_nothing: bool = False) -> None:
    """Serve the API.

    Args:
        share_nothing: Allow several serve processes on one database without DEALER_VALKEY_URL: each counts alone.
    """
    from dealer_server.api import listener
    from dealer_server.wiring import process, start_checks
    from dealer_server.wiring.shared import database_up

    opened = settings.read(host=host, port=port)
    logs.configure(opened.environment == "production")
    start_checks.require_protection(opened)
    try:
        listening = listener.bind(opened.host, opened.port)
    except socket.gaierror as error:
        raise SettingsError(f"cannot listen on {opened.host}: {error.strerror}") from None
    stop = process.stop_on_signal()
    if not await database_up(opened, stop):
        return
    async with start_checks.serve_lock(opened, share_nothing):
        await process.run(opened, listening=listening, worker=False, ready=_print_ready, stop=stop)


async def work(*, metrics: str | None = None) -> None:
    """Run the worker: fulfillment and webhooks. Any number may run on one database.

    Args:
        metrics: HOST:PORT of /metrics and /health (default 127.0.0.1:9464, where that is free); "" for none.
    """
    from dealer_server.wiring import process
    from dealer_server.wiring.shared import database_up

    opened = settings.read(metrics=metrics)
    logs.configure(opened.environment == "production")
    stop = process.stop_on_signal()
    if not await database_up(opened, stop):
        return
    await process.run(
        opened, listening=None, worker=True, metrics=True, ready=lambda _: _print_ready("worker"), stop=stop
    )


def _print_ready(address: str) -> None:
    print(f"ready: {address}", file=sys.stderr, flush=True)
