"""`python -m bench`: measures everything on this machine in one run (bench/README.md)."""

import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench.cases.groups import DEFAULT_GROUPS, GROUPS
from bench.cases.suite import Bench, Options
from bench.support import machine, programs, report
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Reading
from dealer_server.dev.embedded import EmbeddedError

app = App(name="bench", help="Measures the service on this machine.", version_flags=[])
_FILE_WIDTH = 150
QUICK = Options(seconds=3, runs=1, stored=50_000, calls=50_000, deliveries=2_000)


@app.command
def show(file: Path) -> None:
    """Print the tables of a run that was kept under bench/results/."""
    report.show(report.Results.load(file), _console())


@app.default
def main(
    *,
    only: Annotated[list[str] | None, Parameter(negative="")] = None,
    seconds: int = 20,
    runs: int = 3,
    stored: int = 1_000_000,
    calls: int = 1_000_000,
    deliveries: int = 10_000,
    quick: Annotated[bool, Parameter(negative="")] = False,
    folder: Path | None = None,
    profiler: Path | None = None,
) -> None:
    """Measure, print a table and keep it as JSON under bench/results/.

    Parameters
    ----------
    only
        Groups to measure: orders, locked, processes, restarts, refunds, recharges, reads, rt, life, statements, dead,
        webhooks, dev, memory, stored, backup, console, cluster (needs DEALER_CITUS, only where it is named).
    seconds
        How long each run takes.
    runs
        How often each is measured (webhooks five times, or once); the median counts.
    stored
        How many orders are there already, in the groups `stored`, `backup` and `console`.
    calls
        How many calls `serve` answers before its memory is looked at.
    deliveries
        How many webhooks wait to be delivered, in the group `webhooks`.
    quick
        A short trial of everything, whose figures mean little.
    folder
        Where the database is made; its disk counts. A temporary folder unless given.
    profiler
        The program py-spy; records what servers do into bench/results/raw/, which disturbs the figures.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = QUICK if quick else Options(seconds, runs, stored, calls, deliveries, profiler)
    try:
        programs.require_all()
        groups = _groups(only)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="esim-bench-", dir=folder, ignore_cleanup_errors=True) as made:
            sys.exit(_measure(Path(made), options, groups))
    except (Failed, EmbeddedError) as error:
        sys.exit(f"bench: {error}")


def _groups(only: list[str] | None) -> list[str]:
    wanted = [name for part in only or DEFAULT_GROUPS for name in part.split(",")]
    if unknown := [name for name in wanted if name not in GROUPS]:
        raise Failed(f"--only {unknown[0]}: there are {', '.join(GROUPS)}")
    return wanted


def _measure(folder: Path, options: Options, groups: list[str]) -> int:
    """The exit status: 0 where everything could be measured, whatever the figures."""
    folder.chmod(0o711)  # PostgreSQL runs as a user of its own when we are root
    console, results, failure = _console(), report.Results(), ""
    facts = machine.facts(folder)
    # No refreshing in the background: it would be measured.
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console, auto_refresh=False
    ) as progress:
        task = progress.add_task("preparing")

        def note(key: str, title: str, reading: Reading) -> None:
            results.add(key, title, reading)
            progress.console.print(report.line(title, reading), highlight=False, soft_wrap=True)

        instance = Instance(folder)
        try:
            instance.prepare()
            bench = Bench(instance, options, note)
            try:
                for group in groups:
                    progress.update(task, description=group, refresh=True)
                    GROUPS[group](bench)
            finally:
                bench.close()
        except Failed as failed:
            failure = str(failed)
        except (Exception, KeyboardInterrupt) as error:
            failure = repr(error)
            progress.console.print_exception()
        finally:
            instance.stop()
    if not results.readings:
        raise Failed(failure)
    report.show(results, console)
    file = results.keep(
        facts,
        {**options._asdict(), "profiler": str(options.profiler or ""), "groups": groups},
        _part(options, groups, failure),
        failure,
    )
    console.print(f"kept in {file}")
    if failure:
        console.print(f"[red]broken off: {failure}", highlight=False, markup=True)
    return 1 if failure else 0


def _part(options: Options, groups: list[str], failure: str) -> str:
    """What of a whole run it is, for the file's name."""
    parts = [] if groups == DEFAULT_GROUPS else groups
    marks = {"quick": options == QUICK, "profiled": options.profiler is not None, "broken-off": bool(failure)}
    return "".join(f"-{part}" for part in [*parts, *(mark for mark, on in marks.items() if on)])


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)


if __name__ == "__main__":
    app()
