"""`dealer-server webhook`: what failed to reach dealers, and sending it again."""

import asyncio
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from dealer_server import settings
from dealer_server.cli import AsJson, author, moment, opened_database, run
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.db.database import Database
    from dealer_server.operations.webhooks.resend import DeliverySelection, Part
    from dealer_server.store.webhooks.resend import Job

app = App(name="webhook", help="Webhooks: what failed, and sending it again.")
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative="", help="Do not ask.")]
Wait = Annotated[bool, Parameter(negative="", help="Return once the job is done.")]
Since = Annotated[str | None, Parameter(help="From when on: a time, or 30m, 24h, 7d for so long ago.")]
Until = Annotated[str | None, Parameter(help="Before when.")]


@app.command
def failures(*, tenant: int | None = None, since: Since = None, until: Until = None, as_json: AsJson = False) -> None:
    """Show what ended FAILED, by dealer, event and what the last attempt met."""

    async def show() -> None:
        from dealer_server.operations.webhooks import resend

        async with opened_database(settings.read()) as database:
            now = database.clock.now()
            start, end = moment("--since", since, now), moment("--until", until, now)
            found = await resend.failures(database, tenant, start, end)
        if as_json:
            for one in found:
                print(msgspec.json.encode(_fields(one)).decode())
            return
        rows = [
            (
                str(one.tenant_id),
                one.event_type,
                " ".join(filter(None, (one.error, str(one.http_status or "")))) or "attempts no longer kept",
                str(one.total),
                f"{one.oldest_at:%Y-%m-%dT%H:%M:%SZ}",
                f"{one.newest_at:%Y-%m-%dT%H:%M:%SZ}",
            )
            for one in found
        ]
        if rows:
            _table(("tenant", "event", "last attempt", "count", "oldest", "newest"), rows)
        else:
            print("no delivery has failed for good")

    run(show())


@app.command
def resend(
    *delivery: int,
    tenant: int | None = None,
    state: list[str] | None = None,
    event_type: str | None = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Send deliveries again, with the same bytes and ids, one try each: those named, or those that match.

    Args:
        delivery: Ids of deliveries (with --tenant).
        tenant: Of this dealer only.
        state: FAILED (default), SKIPPED, SUPERSEDED or DELIVERED; repeat for several.
        event_type: ORDER_PAID, DELIVERY_UPDATED or REFUND_COMPLETED.
    """

    async def again() -> None:
        from dealer_server.operations.webhooks import resend

        async with opened_database(settings.read()) as database:
            if delivery:
                sent = await resend.resend(database, _needed(tenant), delivery, author(), database.clock.now)
                _say(as_json, {"resent": sent}, f"{sent} go again" if sent != 1 else "1 goes again")
                return
            start, end = _range(since, until, database.clock.now())
            states: Any = tuple(state or ("FAILED",))
            kind: Any = event_type
            await _in_bulk(
                database, resend.DeliverySelection("RESEND", tenant, start, end, states, kind), yes, wait, as_json
            )

    run(again())


@app.command
def sync(
    *order: str,
    tenant: int | None = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Send orders as they stand now, as new events: those named, or those placed in a time range.

    Args:
        order: orderNos (with --tenant).
        tenant: Of this dealer only.
    """

    async def push() -> None:
        from dealer_server.operations.webhooks import resend

        async with opened_database(settings.read()) as database:
            if order:
                sent = await resend.sync(database, _needed(tenant), order, author(), database.clock.now)
                _say(as_json, {"sent": sent}, f"{sent} snapshots go out" if sent != 1 else "1 snapshot goes out")
                return
            if since is None:
                raise SettingsError("webhook sync takes orderNos, or --since for those placed since")
            start, end = _range(since, until, database.clock.now())
            await _in_bulk(database, resend.DeliverySelection("SYNC", tenant, start, end), yes, wait, as_json)

    run(push())


@app.command
def jobs(*, as_json: AsJson = False) -> None:
    """Show the jobs that send many again, newest first."""

    async def show() -> None:
        from dealer_server.operations.webhooks import resend

        async with opened_database(settings.read()) as database:
            found = await resend.jobs(database)
        if as_json:
            for job in found:
                print(msgspec.json.encode(_fields(job)).decode())
        elif found:
            _table(("job", "tenant", "kind", "sent", "of", "author", "state"), [_job_row(job) for job in found])
        else:
            print("there were no jobs")

    run(show())


@app.command
def stop(job: int, *, as_json: AsJson = False) -> None:
    """End a job where it is."""

    async def end() -> None:
        from dealer_server.operations.webhooks import resend

        async with opened_database(settings.read()) as database:
            stopped = await resend.stop(database, job, author(), database.clock.now)
        _say(as_json, _fields(stopped), f"job {job} is stopped after {stopped.done} of {stopped.total}")

    run(end())


async def _in_bulk(database: "Database", chosen: "DeliverySelection", yes: bool, wait: bool, as_json: bool) -> None:
    """Shows the count, asks, makes the jobs, and waits for them where that is wanted."""
    from dealer_server.operations.webhooks import resend

    parts = await resend.count(database, chosen)
    if not parts:
        _say(as_json, {"jobs": [], "count": 0}, "nothing matches")
        return
    if not yes:
        _confirm(parts, chosen.kind)
    jobs = await resend.begin(database, chosen, parts, author(), database.clock.now)
    if wait:
        jobs = [await _done(database, job, as_json) for job in jobs]
    if as_json:
        for job in jobs:
            print(msgspec.json.encode(_fields(job)).decode())
    elif not wait:
        print(f"the worker goes on with {len(jobs)} job{'s' if len(jobs) > 1 else ''}; `dealer-server webhook jobs`")


def _confirm(parts: "list[Part]", kind: str) -> None:
    """Raises SettingsError where nobody can be asked; leaves where the answer is no."""
    what = "deliveries" if kind == "RESEND" else "orders"
    for part in parts:
        print(f"{part.total:>9,} {what} of {part.tenant_id} {part.name}", file=sys.stderr)
    if not sys.stdin.isatty():
        raise SettingsError("nothing was sent; --yes sends what is counted above")
    print("send them again? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.exit(1)


async def _done(database: "Database", job: "Job", as_json: bool) -> "Job":
    """Follows a job to its end."""
    from rich.console import Console
    from rich.progress import Progress

    from dealer_server.operations.webhooks import resend

    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        bar = progress.add_task(f"tenant {job.tenant_id}", total=job.total)
        while job.finished_at is None:
            await asyncio.sleep(0.2)
            job = await resend.job(database, job.job_id)
            progress.update(bar, completed=job.done)
        progress.update(bar, completed=job.total)
    return job


def _needed(tenant: int | None) -> int:
    if tenant is None:
        raise SettingsError("--tenant says whose they are")
    return tenant


def _range(since: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    start = moment("--since", since, now) or datetime.fromtimestamp(0, now.tzinfo)
    return start, moment("--until", until, now) or now


def _job_row(job: "Job") -> tuple[str, ...]:
    state = "running" if job.finished_at is None else f"ended {job.finished_at:%Y-%m-%dT%H:%M:%SZ}"
    return str(job.job_id), str(job.tenant_id), job.kind, str(job.done), str(job.total), job.author, state


def _fields(row: Any) -> dict[str, object]:
    """A row for programs: names as on the wire."""
    words = {name: name.removesuffix("_at").split("_") + ["time"] * name.endswith("_at") for name in row._fields}
    return {head + "".join(map(str.capitalize, rest)): getattr(row, name) for name, (head, *rest) in words.items()}


def _say(as_json: bool, fields: dict[str, object], line: str) -> None:
    print(msgspec.json.encode(fields).decode() if as_json else line)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
