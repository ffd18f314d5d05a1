"""`dealer-server dev`, `serve` and `work`: the processes of the service."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from dealer_server import error_reports, settings
from dealer_server.cli.command import AsJson
from dealer_server.settings import CannotStart

if TYPE_CHECKING:
    from dealer_server.wiring.listening import Listening


async def dev(
    *,
    port: int = 8080,
    data: Path | None = None,
    fresh: Annotated[bool, Parameter(negative="")] = False,
    speed: float | None = None,
    cluster: Annotated[bool, Parameter(negative="")] = False,
    history: Annotated[int, Parameter(validator=validators.Number(gte=0, lte=400))] = 0,
    as_json: AsJson = False,
) -> None:
    """Run the whole service on an embedded PostgreSQL with a demo dealer.

    Args:
        port: The API's port on 127.0.0.1; 0 takes a free one.
        data: The data folder; the next start continues with its data.
        fresh: Start with an empty data folder.
        speed: How many times faster the simulated network, and the plans of its eSIMs, run.
        cluster: On a cluster of Citus, a coordinator and two workers, from the PostgreSQL that DEALER_CITUS names.
        history: How many days of made-up orders a new data folder begins with.
    """
    from dealer_server.dev import run as development

    if cluster and history:
        raise CannotStart("--history does not go with --cluster; leave out one of them")
    await development.run(port, data, fresh=fresh, as_json=as_json, speed=speed, on_cluster=cluster, days=history)


async def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    processes: int | None = None,
    port_per_process: bool | None = None,
    metrics: str | None = None,
    share_nothing: bool = False,
) -> int | None:
    """Serve the API.

    Args:
        processes: How many processes; several need DEALER_VALKEY_URL. SIGHUP replaces them one after the other.
        port_per_process: Give each process a port of its own, PORT, PORT + 1 and so on, for a proxy in front.
        metrics: HOST:PORT of /metrics (default 127.0.0.1:9474, where that is free), the next port for each process.
        share_nothing: Allow several serve processes on one database without DEALER_VALKEY_URL: each counts alone.
    """
    from dealer_server.wiring import child, listening

    opened = settings.read(
        host=host, port=port, processes=processes, port_per_process=port_per_process, serve_metrics=metrics
    )
    _configure_logs(opened)
    started = child.inherited()
    if started is None and opened.processes > 1:
        if not opened.valkey_url and not share_nothing:
            raise CannotStart(
                "several processes of serve need DEALER_VALKEY_URL, to see each request id once and to share QPS;"
                " --share-nothing starts them without: each then counts alone"
            )
        return await _several(listening.of_serve(opened))

    from dealer_server.wiring import process, start_checks
    from dealer_server.wiring.shared import database_up

    start_checks.require_protection(opened)
    started = started or child.Standalone(listening.of_serve(opened)[0], _print_ready)
    stop = process.stop_on_signal()
    started.watch_parent(stop)
    if await database_up(opened, stop):
        async with start_checks.serve_lock(opened, share_nothing):
            await process.run(
                opened,
                listening=started.listening,
                worker=False,
                ready=process.rarely_collecting(started.ready),
                stop=stop,
                retire=started.retire,
            )
    return None


async def work(*, metrics: str | None = None, processes: int | None = None) -> int | None:
    """Run the worker: fulfillment and webhooks. Any number may run on one database.

    Args:
        metrics: HOST:PORT of /metrics and /health (default 127.0.0.1:9464, where that is free); "" for none. Of several
            processes each has the next port.
        processes: How many processes. SIGHUP replaces them one after the other.
    """
    from dealer_server.wiring import child, listening

    opened = settings.read(metrics=metrics, processes=processes)
    _configure_logs(opened)
    started = child.inherited()
    if started is None and opened.processes > 1:
        return await _several(listening.of_work(opened))

    from dealer_server.wiring import process
    from dealer_server.wiring.shared import database_up

    started = started or child.Standalone(listening.of_work(opened)[0], _print_ready)
    stop = process.stop_on_signal()
    started.watch_parent(stop)
    if await database_up(opened, stop):
        await process.run(
            opened,
            listening=started.listening,
            worker=True,
            ready=process.rarely_collecting(lambda _: started.ready("worker")),
            stop=stop,
            retire=started.retire,
        )
    return None


def _configure_logs(opened: settings.Settings) -> None:
    """Raises CannotStart."""
    from dealer_server import logs

    try:
        report = error_reports.opened(opened.sentry_dsn.get_secret_value(), opened.environment)
    except (error_reports.NotInstalled, ValueError) as error:
        raise CannotStart(f"DEALER_SENTRY_DSN: {error}") from None
    logs.configure(opened.environment == "production", report)


async def _several(bound: Sequence["Listening"]) -> int:
    """The parent of a process for each."""
    from dealer_server.wiring.parent import Parent

    return await Parent(bound, _print_ready).run()


def _print_ready(address: str) -> None:
    print(f"ready: {address}", file=sys.stderr, flush=True)
