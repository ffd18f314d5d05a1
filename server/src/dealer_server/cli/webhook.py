"""`dealer-server webhook`: deliveries that failed, and sending them again."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from dealer_server.cli.arguments import moment
from dealer_server.cli.command import AsJson, CommandContext, Context
from dealer_server.cli.output import for_programs, print_json, print_result, print_table
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.operations.webhooks.resend import DeliverySelection, Part
    from dealer_server.store.webhooks.resend import Job

app = App(name="webhook", help="Webhooks: which failed, and sending them again.")
Yes = Annotated[bool, Parameter(name=("--yes", "-y"), negative="", help="Do not ask.")]
Wait = Annotated[bool, Parameter(negative="", help="Return once the job is done.")]
Since = Annotated[str | None, Parameter(help="From this time on: a time, or 30m, 24h, 7d for so long ago.")]
Until = Annotated[str | None, Parameter(help="Before this time.")]


@app.command(name="failures")
async def list_failures(
    *, tenant: int | None = None, since: Since = None, until: Until = None, as_json: AsJson = False, context: Context
) -> None:
    """Count the deliveries that ended FAILED, by dealer, event and result of the last attempt."""
    from dealer_server.operations.webhooks import resend

    now = context.clock()
    start, end = moment("--since", since, now), moment("--until", until, now)
    failures = await resend.failures(context.database, tenant, start, end)
    if as_json:
        for failure in failures:
            print_json(_fields(failure))
    elif failures:
        rows = [
            (
                str(failure.tenant_id),
                failure.event_type,
                " ".join(filter(None, (failure.error, str(failure.http_status or "")))) or "attempts no longer kept",
                str(failure.total),
                f"{failure.oldest_at:%Y-%m-%dT%H:%M:%SZ}",
                f"{failure.newest_at:%Y-%m-%dT%H:%M:%SZ}",
            )
            for failure in failures
        ]
        print_table(("tenant", "event", "last attempt", "count", "oldest", "newest"), rows)
    else:
        print("no delivery ended FAILED")


@app.command(name="resend")
async def resend_deliveries(
    *delivery: int,
    tenant: int | None = None,
    state: list[str] | None = None,
    event_type: str | None = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    wait: Wait = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Send deliveries again, with the same bytes and ids, one attempt each: by id, or all that match.

    Args:
        delivery: Ids of deliveries (with --tenant).
        tenant: Of this dealer only.
        state: FAILED (default), SKIPPED, SUPERSEDED or DELIVERED; repeat for several.
        event_type: ORDER_PAID, DELIVERY_UPDATED or REFUND_COMPLETED; with RT_ before it an event of the RT family.
    """
    from dealer_server.operations.webhooks import resend

    if delivery:
        sent = await resend.resend(context.database, _required(tenant), delivery, context.author, context.clock)
        print_result(
            as_json, {"resent": sent}, f"{sent} deliveries are sent again" if sent != 1 else "1 delivery is sent again"
        )
        return
    start, end = _range(since, until, context.clock())
    states: Any = tuple(state or ("FAILED",))
    kind: Any = event_type
    selection = resend.DeliverySelection("RESEND", tenant, start, end, states, kind)
    await _send_many(context, selection, yes, wait, as_json)


@app.command(name="sync")
async def sync_orders(
    *order: str,
    tenant: int | None = None,
    since: Since = None,
    until: Until = None,
    yes: Yes = False,
    wait: Wait = False,
    as_json: AsJson = False,
    context: Context,
) -> None:
    """Send orders as they are now, as new events: by orderNo, or all placed in a time range.

    Args:
        order: orderNos (with --tenant).
        tenant: Of this dealer only.
    """
    from dealer_server.operations.webhooks import resend

    if order:
        sent = await resend.sync(context.database, _required(tenant), order, context.author, context.clock)
        print_result(as_json, {"sent": sent}, f"{sent} snapshots are sent" if sent != 1 else "1 snapshot is sent")
        return
    if since is None:
        raise SettingsError("webhook sync takes orderNos, or --since for all orders placed since")
    start, end = _range(since, until, context.clock())
    await _send_many(context, resend.DeliverySelection("SYNC", tenant, start, end), yes, wait, as_json)


@app.command(name="jobs")
async def list_jobs(*, as_json: AsJson = False, context: Context) -> None:
    """List the jobs that send many webhooks again, newest first."""
    from dealer_server.operations.webhooks import resend

    jobs = await resend.jobs(context.database)
    if as_json:
        _print_jobs(jobs)
    elif jobs:
        print_table(("job", "tenant", "kind", "sent", "of", "author", "state"), map(_job_row, jobs))
    else:
        print("there were no jobs")


@app.command(name="stop")
async def stop_job(job: int, *, as_json: AsJson = False, context: Context) -> None:
    """Stop a job; webhooks that it has sent stay sent."""
    from dealer_server.operations.webhooks import resend

    stopped = await resend.stop(context.database, job, context.author, context.clock)
    print_result(as_json, _fields(stopped), f"job {job} is stopped after {stopped.done} of {stopped.total}")


async def _send_many(
    context: CommandContext, selection: "DeliverySelection", yes: bool, wait: bool, as_json: bool
) -> None:
    """Shows the count, asks, creates a job for each dealer, and with `wait` follows them to their end."""
    from dealer_server.operations.webhooks import resend

    parts = await resend.count(context.database, selection)
    if not parts:
        print_result(as_json, {"jobs": [], "count": 0}, "nothing matches")
        return
    if not yes:
        _confirm(parts, selection.kind)
    jobs = await resend.begin(context.database, selection, parts, context.author, context.clock)
    if wait:
        jobs = [await _finished(context, job, as_json) for job in jobs]
    if as_json:
        _print_jobs(jobs)
    elif not wait:
        print(f"the worker sends them: {len(jobs)} job{'s' if len(jobs) > 1 else ''}, see `dealer-server webhook jobs`")


def _confirm(parts: "Sequence[Part]", kind: str) -> None:
    """Ends the process where the answer is no. Raises SettingsError where there is no terminal to ask on."""
    what = "deliveries" if kind == "RESEND" else "orders"
    for part in parts:
        print(f"{part.total:>9,} {what} of {part.tenant_id} {part.name}", file=sys.stderr)
    if not sys.stdin.isatty():
        raise SettingsError("nothing was sent; --yes sends what is counted above")
    print("send them again? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.exit(1)


async def _finished(context: CommandContext, job: "Job", as_json: bool) -> "Job":
    """Follows a job to its end."""
    from rich.console import Console
    from rich.progress import Progress

    from dealer_server.operations.webhooks import resend

    with Progress(console=Console(stderr=True), disable=as_json) as progress:
        bar = progress.add_task(f"tenant {job.tenant_id}", total=job.total)
        while job.finished_at is None:
            await asyncio.sleep(0.2)
            job = await resend.job(context.database, job.job_id)
            progress.update(bar, completed=job.done)
        progress.update(bar, completed=job.total)
    return job


def _required(tenant: int | None) -> int:
    if tenant is None:
        raise SettingsError("--tenant is needed: the dealer they belong to")
    return tenant


def _range(since: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    start = moment("--since", since, now) or datetime.fromtimestamp(0, now.tzinfo)
    return start, moment("--until", until, now) or now


def _print_jobs(jobs: "Sequence[Job]") -> None:
    for job in jobs:
        print_json(_fields(job))


def _job_row(job: "Job") -> tuple[str, ...]:
    state = "running" if job.finished_at is None else f"ended {job.finished_at:%Y-%m-%dT%H:%M:%SZ}"
    return str(job.job_id), str(job.tenant_id), job.kind, str(job.done), str(job.total), job.author, state


def _fields(row: Any) -> dict[str, object]:
    return for_programs(row._asdict())
