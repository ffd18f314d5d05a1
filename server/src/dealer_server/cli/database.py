"""`dealer-server migrate` and `audit`: the schema, and whether what is stored is right."""

from dealer_server import settings
from dealer_server.cli.command import AsJson, Context
from dealer_server.settings import SettingsError


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
