"""A sample of each dealer's calls that succeeded, the newest of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

KEPT = 500
"""How many calls of a dealer are kept."""


class ServedCall(NamedTuple):
    """`microseconds`: from its last byte to its answer. `subject`: the value of the parameter `subject_kind`, such as
    transactionId; both are "" where it names nothing."""

    tenant_id: int
    at: datetime
    path: str
    request_id: str
    trace_id: str
    address: str
    microseconds: int
    body_bytes: int
    answer_bytes: int
    app_key: str = ""
    subject_kind: str = ""
    subject: str = ""


_COLUMNS = ", ".join(ServedCall._fields)
_TYPES = ("bigint", "timestamptz", "text", "text", "text", "text", "integer", "integer", "integer", "text", "text",
          "text")  # fmt: skip
_ARRAYS = ", ".join(f"${at}::{kind}[]" for at, kind in enumerate(_TYPES, 1))
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in ("number", *ServedCall._fields) if name != "tenant_id")
# Counters are locked in tenant order, as those of refused calls are. Of two that come to one slot the newer one stays.
_WRITE = f"""
WITH call AS (
    SELECT *, row_number() OVER (PARTITION BY tenant_id ORDER BY nth) AS turn
    FROM unnest({_ARRAYS}) WITH ORDINALITY AS call({_COLUMNS}, nth)
), fresh AS (
    SELECT * FROM unnest($13::bigint[], $14::bigint[], $15::bigint[]) AS fresh(tenant_id, served, kept)
), counted AS (
    INSERT INTO served_count AS c (tenant_id, served, kept) SELECT * FROM fresh ORDER BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET served = c.served + excluded.served, kept = c.kept + excluded.kept
    RETURNING tenant_id, kept
), numbered AS (
    SELECT call.*, counted.kept - fresh.kept + turn AS number
    FROM call JOIN fresh USING (tenant_id) JOIN counted USING (tenant_id)
)
INSERT INTO served_call (slot, number, {_COLUMNS})
SELECT DISTINCT ON (tenant_id, number % {KEPT}) number % {KEPT}, number, {_COLUMNS} FROM numbered
ORDER BY tenant_id, number % {KEPT}, number DESC
ON CONFLICT (tenant_id, slot) DO UPDATE SET {_REPLACED}
"""


async def write(connection: Connection, calls: Sequence[ServedCall], served: Mapping[int, int]) -> None:
    """Adds them to the rings, oldest first. `served`: how many succeeded, of each of their dealers. The commit waits
    for no disk and no standby: a crash may shorten this log."""
    kept = Counter(call.tenant_id for call in calls)
    await connection.execute("SET LOCAL synchronous_commit = off")
    columns = zip(*calls, strict=True)
    await connection.execute(_WRITE, *columns, list(kept), [served[one] for one in kept], list(kept.values()))


async def find(connection: Connection, tenant_id: int, number: int) -> ServedCall | None:
    """None also where newer calls replaced it. At most as many rows are scanned as are kept."""
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM served_call WHERE tenant_id = $1 AND number = $2", tenant_id, number
    )
    return ServedCall(**row) if row else None


async def served(connection: Connection, tenant_id: int) -> int:
    """How many calls of the dealer have succeeded, about."""
    return await connection.fetchval("SELECT served FROM served_count WHERE tenant_id = $1", tenant_id) or 0
