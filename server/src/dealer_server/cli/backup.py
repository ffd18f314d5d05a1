"""`dealer-server backup`: whether the service can be brought back from a backup."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from dealer_server import clock, settings
from dealer_server.cli.command import AsJson
from dealer_server.cli.output import print_json
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.operations.audit.check_invariants import StepDone
    from dealer_server.operations.backup.check import BackupReport

app = App(name="backup", help="Whether the service can be brought back from a backup.")


@app.command(name="check")
async def check(
    dump: Path | None = None,
    *,
    on: str | None = None,
    restored: str | None = None,
    jobs: int | None = None,
    keep: bool = False,
    as_json: AsJson = False,
) -> int:
    """Restore a dump into a scratch database and check it there: schema, sealing keys, audit. The exit status is 0
    where the service can be brought back from it.

    Args:
        dump: What `pg_dump --format custom` or `--format directory` wrote.
        on: The address of a database of the server that the scratch database is made on; default DATABASE_URL.
        restored: Instead of a dump: the address of a database that was restored already. It is migrated.
        jobs: How many tables are restored at a time; default one for each core.
        keep: Keep the scratch database.
    """
    from dealer_server.db import scratch
    from dealer_server.operations.backup.check import check_backup
    from dealer_server.operations.errors import OperatorError

    if (dump is None) == (restored is None):
        raise SettingsError("one of a dump and --restored is expected")
    server = restored or on or settings.database_url()
    keys = settings.read(DATABASE_URL=server).master_keys
    seconds: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        progress = stack.enter_context(_progress(shown=not as_json and sys.stderr.isatty()))
        try:
            if dump is not None:
                server = await stack.enter_async_context(scratch.database(server, keep=keep))
                with progress("restore"):
                    began = time.monotonic()
                    await scratch.restore(dump, server, jobs or os.cpu_count() or 1)
                    seconds["restore"] = round(time.monotonic() - began, 2)
        except scratch.CannotRestore as error:
            raise OperatorError(str(error)) from None
        report = await check_backup(server, keys, clock.now, progress)
    seconds |= report.seconds
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(report) | {"ok": not report.problems, "seconds": seconds})
    else:
        print(_text(report, seconds))
    return 1 if report.problems else 0


@contextmanager
def _progress(*, shown: bool):
    """What tells of each part as it runs, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not shown, transient=True) as progress:

        @contextmanager
        def part(name: str) -> "Iterator[StepDone]":
            bar = progress.add_task(name, total=None)
            yield lambda steps: progress.update(bar, total=steps, advance=1)
            progress.update(bar, total=1, completed=1)

        yield part


def _text(report: "BackupReport", seconds: dict[str, float]) -> str:
    newest = f"{report.newest_order_at:%Y-%m-%dT%H:%M:%SZ}" if report.newest_order_at else "none"
    lines = [
        f"orders        {report.orders:,}, the newest of {newest}",
        f"schema        {report.migration}" + (f", after {len(report.migrated)} migrations" if report.migrated else ""),
        f"secrets       {report.canaries} canaries opened",
        f"audit log     {report.log_head}",
        "took          " + ", ".join(f"{name} {took} s" for name, took in seconds.items()),
        *(f"PROBLEM       {problem}" for problem in report.problems),
    ]
    return "\n".join(
        [*lines, "the service can be brought back from it" if not report.problems else "do not rely on it"]
    )
