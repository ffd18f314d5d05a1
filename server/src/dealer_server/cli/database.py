"""`dealer-server migrate`, `audit`, `retention`, `distribute`, `cluster`: the schema, whether what is stored is right,
how long it is kept, and on which machines."""

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dealer_server import settings
from dealer_server.cli.arguments import moment
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import for_programs, print_json, print_table
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.store.retention.progress import Kept


async def migrate() -> None:
    """Bring the database's schema up to this version."""
    from dealer_server.db.connection import connect, require_fit_pooler
    from dealer_server.store import schema

    url = settings.database_url()
    await require_fit_pooler(url)
    connection = await connect(url)
    try:
        for migration in await schema.migrate(connection):
            print(f"applied {migration.number:04d} {migration.name}")
        print("the schema is up to date")
    finally:
        await connection.close()


async def audit(
    *,
    tenant: int | None = None,
    since: str | None = None,
    incremental: bool = False,
    log_head: str | None = None,
    as_json: AsJson = False,
    context: Context,
) -> int:
    """Check every invariant of the ledger and of orders; the exit status is the number of violated ones.

    Args:
        since: Look only at what is new or changed since then: 24h, 7d, a date or a time.
        incremental: Look only at what is new or changed since the last audit that found nothing; at everything where
            there was none.
        log_head: The head of the audit log as an earlier audit printed it; every entry up to it must still be there.
    """
    from rich.console import Console
    from rich.progress import Progress

    from dealer_server.operations.audit.check_invariants import Scope, check_invariants, report_json, report_text

    if since is not None and incremental:
        raise SettingsError("--since and --incremental exclude each other")
    begin = moment("--since", since, context.clock())
    try:
        seen = None if log_head is None else bytes.fromhex(log_head)
    except ValueError:
        raise SettingsError(f"--log-head {log_head!r}: the hexadecimal digits that an audit printed") from None
    scope = Scope(tenant, begin, incremental, keep=True)
    master_keys = context.settings.master_keys
    with Progress(console=Console(stderr=True), disable=as_json or not sys.stderr.isatty(), transient=True) as progress:
        bar = progress.add_task("audit", total=None)
        report = await check_invariants(
            context.database, master_keys, None, context.clock(), scope, seen,
            lambda steps: progress.update(bar, total=steps, advance=1),
        )  # fmt: skip
    print(report_json(report) if as_json else report_text(report))
    return len(report.violated)


async def retention(*, as_json: AsJson = False, context: Context) -> None:
    """Show how long webhooks and the log of suppliers are kept, what there is of them, and when it was swept.

    Numbers of rows are PostgreSQL's estimates.
    """
    from dealer_server.store.retention import progress

    rows = []
    async with context.database.connection() as connection:
        for kind in progress.KINDS:
            kept = await progress.kept(connection, kind)
            days = context.settings.retention.get(kind)
            rows.append((days.days if days else 0, kept))
    if as_json:
        for days, kept in rows:
            print_json(for_programs({"days": days} | kept._asdict()))
        return
    heads = ("kind", "kept", "oldest", "rows", "MiB", "to be visited again", "deleted", "last swept")
    print_table(heads, [_kept(days, kept) for days, kept in rows])


def _kept(days: int, kept: "Kept") -> tuple[str, ...]:
    return (
        kept.kind,
        f"{days} days" if days else "for ever",
        _time(kept.oldest_at),
        str(kept.rows),
        f"{kept.size_bytes / 2**20:.1f}",
        str(kept.postponed),
        str(kept.deleted),
        _time(kept.swept_at),
    )


def _time(at: datetime | None) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else "-"


cluster = App(name="cluster", help="The nodes of a distributed database.")
SHARDS = 32


async def distribute(*, shards: int = SHARDS, dry_run: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Distribute the database over the worker nodes of its Citus cluster, by dealer.

    Stop every serve and work first. A run that was interrupted goes on where it was; run it again after each migrate
    that adds tables.

    Args:
        shards: How many parts the dealers are spread over; more than the cluster will ever have nodes.
        dry_run: Say what would be done.
    """
    from dealer_server.db.connection import connect
    from dealer_server.operations.errors import OperatorError
    from dealer_server.store import schema
    from dealer_server.store.distribution import distribute as steps

    connection = await connect(settings.database_url())
    try:
        await schema.require_current(connection)
        await steps.require_cluster(connection)
        count = 0
        async for step in steps.distribute(connection, shards, dry_run=dry_run):
            print(step.text, flush=True)
            count += 1
        print(f"{count} steps would be done" if dry_run else f"{count} steps done: the database is distributed")
    except (steps.NotACluster, steps.NodeRefused) as error:
        raise OperatorError(str(error)) from None
    finally:
        await connection.close()


@cluster.command(name="status")
async def cluster_status(*, as_json: AsJson = False, context: Context) -> None:
    """Show the nodes: which answer, and how many dealers and bytes each has."""
    from dealer_server.operations.errors import OperatorError
    from dealer_server.store.distribution import nodes

    if not context.database.distributed:
        raise OperatorError("this database is not distributed: dealer-server distribute")
    async with context.database.connection() as connection:
        found = await nodes.nodes(connection)
        waiting = await nodes.prepared_transactions(connection)
    if as_json:
        print_json({"nodes": [for_programs(node._asdict()) for node in found], "preparedTransactions": waiting})
        return
    heads = ("node", "address", "answers", "dealers", "shards", "MiB")
    print_table(heads, [_row(node) for node in found])
    print(f"transactions between their two phases: {waiting}")


def _row(node: object) -> tuple[str, ...]:
    from dealer_server.store.distribution.nodes import Node

    assert isinstance(node, Node)
    return (
        "coordinator" if node.group == 0 else f"worker {node.group}",
        f"{node.name}:{node.port}",
        "yes" if node.answers else "NO",
        str(node.dealers),
        str(node.shards),
        "-" if node.size_bytes is None else f"{node.size_bytes / 2**20:.1f}",
    )
