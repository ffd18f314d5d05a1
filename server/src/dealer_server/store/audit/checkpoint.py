"""What did the last audit that found nothing cover? The next incremental audit goes on from there."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, columns_of
from dealer_server.store.audit.unfinished import WORK


class Checkpoint(NamedTuple):
    """The time of the audit's snapshot, and the end of the audit log in it: `last_act` of `acts`, with its hash."""

    at: datetime
    acts: int
    last_act: int
    hash: bytes


async def last(connection: Connection) -> Checkpoint | None:
    row = await connection.fetchrow(f"SELECT {columns_of(Checkpoint)} FROM audit_checkpoint")
    return as_value(Checkpoint, row) if row else None


class Snapshot(NamedTuple):
    """What a transaction sees, by its name, and when it began."""

    name: str
    at: datetime


async def export_snapshot(connection: Connection) -> Snapshot | None:
    """Lets other connections see what this transaction sees, for as long as it is open. None on a standby, which can
    record nothing."""
    row = await connection.fetchrow(
        "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_export_snapshot() END AS name, now() AS at"
    )
    return as_value(Snapshot, row) if row and row["name"] else None


async def record(connection: Connection, snapshot: Snapshot) -> None:
    """Writes the checkpoint of a snapshot in place of the one before.

    Call it first in a repeatable read transaction. Raises asyncpg.SerializationError or asyncpg.UniqueViolationError
    where another audit wrote one after the snapshot.
    """
    await connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot.name}'")
    await connection.execute("DELETE FROM audit_checkpoint")
    await connection.execute(
        "INSERT INTO audit_checkpoint (at, acts, last_act, hash) SELECT $1, acts,"
        " coalesce((SELECT max(audit_id) FROM audit_log), 0), hash FROM audit_head",
        snapshot.at,
    )
    await connection.execute("DELETE FROM audit_checkpoint_wallet")
    await connection.execute(
        "INSERT INTO audit_checkpoint_wallet (tenant_id, version, balance, order_count, profile_count)"
        " SELECT tenant_id, version, balance, order_count, profile_count FROM wallet"
    )
    await connection.execute("DELETE FROM audit_checkpoint_order")
    await connection.execute("SET LOCAL enable_seqscan = off")  # each kind of work has an index of its own
    await connection.execute(f"INSERT INTO audit_checkpoint_order (tenant_id, order_id) {' UNION '.join(WORK)}")
