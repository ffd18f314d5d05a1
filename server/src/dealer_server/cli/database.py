"""`dealer-server migrate`, `audit`, `retention`: the schema, whether what is stored is right, how long it is kept."""

from datetime import datetime
from typing import TYPE_CHECKING

from dealer_server import settings
from dealer_server.cli.command import AsJson, Context
from dealer_server.cli.output import camel_case, print_json, print_table
from dealer_server.settings import SettingsError

if TYPE_CHECKING:
    from dealer_server.store.retention.progress import Kept


async def migrate() -> None:
    """Bring the database's schema up to this version."""
    from dealer_server.db.connection import connect
    from dealer_server.store import schema

    connection = await connect(settings.database_url())
    try:
        for migration in await schema.migrate(connection):
            print(f"applied {migration.number:04d} {migration.name}")
        print("the schema is up to date")
    finally:
        await connection.close()


async def audit(
    *, tenant: int | None = None, log_head: str | None = None, as_json: AsJson = False, context: Context
) -> int:
    """Check every invariant of the ledger and of orders; the exit status is the number of violated ones.

    Args:
        log_head: The head of the audit log as an earlier audit printed it; every entry up to it must still be there.
    """
    from dealer_server.operations.audit.check_invariants import check_invariants, report_json, report_text

    try:
        seen = None if log_head is None else bytes.fromhex(log_head)
    except ValueError:
        raise SettingsError(f"--log-head {log_head!r}: the hexadecimal digits that an audit printed") from None
    report = await check_invariants(context.database, context.settings.master_keys, None, context.clock(), tenant, seen)
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
            print_json({camel_case(name): value for name, value in ({"days": days} | kept._asdict()).items()})
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
