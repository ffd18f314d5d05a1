"""The last refused calls of each dealer, and the steps of a dealer's first run.

Anybody who knows an AppKey, which is no secret, can send calls that are refused as not signed. These have a ring buffer
of their own, so that they push no signed call out of the log.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.connection import Connection

KEPT_UNSIGNED = 200
KEPT_SIGNED = 800
KEPT = KEPT_UNSIGNED + KEPT_SIGNED
UNSIGNED = frozenset(("path", "query string", "method", "size", "content type", "failed authentications", "headers",
                      "header form", "active", "address", "timestamp", "signature"))  # fmt: skip
"""The checks that a call can fail without a valid signature."""
Step = Literal["HEALTH", "BALANCE", "WEBHOOK", "CREDENTIALS", "LIVE"]


class RefusedCall(NamedTuple):
    """One row. `headers` and `data` are JSON; `body_head` is None where the call was refused with its body unread."""

    tenant_id: int
    at: datetime
    address: str
    method: str
    path: str
    app_key: str
    request_id: str | None
    trace_id: str
    code: str
    failed: str
    message: str
    data: str
    headers: str
    body_head: bytes | None
    body_bytes: int | None
    body_sha256: str | None


class CallRow(NamedTuple):
    """A call in a list. `code`: "" of one that succeeded. `microseconds`: None of one that was refused. `body_head`: of
    one that was refused. `subject`: see ServedCall; of one that succeeded. `total`: how many calls fit; `left`: how
    many of them are not newer than the page."""

    number: int
    at: datetime
    method: str
    path: str
    code: str
    failed: str
    message: str
    address: str
    app_key: str
    request_id: str | None
    microseconds: int | None
    body_head: bytes | None
    subject_kind: str
    subject: str
    total: int
    left: int


_COLUMNS = ", ".join(RefusedCall._fields)
_TYPES = {int: "bigint", datetime: "timestamptz", bytes | None: "bytea", int | None: "integer"}
_ARRAYS = ", ".join(
    f"${at}::{_TYPES.get(kind, 'text')}[]" for at, kind in enumerate(RefusedCall.__annotations__.values(), 1)
)
_REPLACED = ", ".join(f"{name} = excluded.{name}" for name in ("number", *RefusedCall._fields) if name != "tenant_id")
_COUNTED = len(RefusedCall._fields)
# Counters are locked in tenant order, so that two processes that write at once wait for each other in one direction.
# turn: which of its kind a call is. Of two that come to one slot at once the newer one stays.
_WRITE = f"""
WITH call AS (
    SELECT *, failed = ANY(${_COUNTED + 1}::text[]) AS unsigned,
        row_number() OVER (PARTITION BY tenant_id ORDER BY nth) AS place,
        row_number() OVER (PARTITION BY tenant_id, failed = ANY(${_COUNTED + 1}::text[]) ORDER BY nth) AS turn
    FROM unnest({_ARRAYS}) WITH ORDINALITY AS call({_COLUMNS}, nth)
), fresh AS (
    SELECT tenant_id, dropped, count(place) AS kept, count(place) FILTER (WHERE unsigned) AS unsigned
    FROM unnest(${_COUNTED + 2}::bigint[], ${_COUNTED + 3}::bigint[]) AS lost(tenant_id, dropped)
        LEFT JOIN call USING (tenant_id) GROUP BY tenant_id, dropped
), counted AS (
    INSERT INTO refused_count AS c (tenant_id, written, dropped, unsigned)
    SELECT tenant_id, kept, dropped, unsigned FROM fresh ORDER BY tenant_id
    ON CONFLICT (tenant_id) DO UPDATE SET written = c.written + excluded.written,
        dropped = c.dropped + excluded.dropped, unsigned = c.unsigned + excluded.unsigned
    RETURNING tenant_id, written, unsigned
), begun AS (
    SELECT tenant_id, counted.written - kept AS written, counted.unsigned - fresh.unsigned AS unsigned
    FROM fresh JOIN counted USING (tenant_id)
), numbered AS (
    SELECT call.*, written + place AS number,
        CASE WHEN call.unsigned THEN (begun.unsigned + turn) % {KEPT_UNSIGNED}
            ELSE {KEPT_UNSIGNED} + (written - begun.unsigned + turn) % {KEPT_SIGNED} END AS slot
    FROM call JOIN begun USING (tenant_id)
)
INSERT INTO refused_call (slot, number, {_COLUMNS})
SELECT DISTINCT ON (tenant_id, slot) slot, number, {_COLUMNS} FROM numbered ORDER BY tenant_id, slot, number DESC
ON CONFLICT (tenant_id, slot) DO UPDATE SET {_REPLACED}
"""


async def hurry(connection: Connection) -> None:
    """This transaction's commit waits for no disk and no standby: a crash may shorten this log."""
    await connection.execute("SET LOCAL synchronous_commit = off")


async def write(connection: Connection, calls: Sequence[RefusedCall], dropped: Mapping[int, int]) -> None:
    """Adds them to the ring buffers, oldest first; counts those that were `dropped`."""
    lost = {**dict.fromkeys([call.tenant_id for call in calls], 0), **dropped}
    columns = list(zip(*calls, strict=True)) or [()] * _COUNTED
    await connection.execute(_WRITE, *columns, list(UNSIGNED), list(lost), list(lost.values()))


Outcome = Literal["refused", "succeeded"]


class CallFilter(NamedTuple):
    """Which calls: all that is given must match. From `start` on, and before `end`. `named`: one of its ids, or the
    number that names what it was about."""

    code: str | None = None
    path: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    outcome: Outcome | None = None
    named: str | None = None


_CALLS = f"""
WITH call AS (
    SELECT number, at, method, path, code, failed, message, address, app_key, request_id, NULL::integer AS microseconds,
        body_head, '' AS subject_kind, '' AS subject
    FROM refused_call WHERE tenant_id = $1 AND $6::text IS DISTINCT FROM 'succeeded' AND ($2::text IS NULL OR code = $2)
        AND ($7::text IS NULL OR $7 IN (request_id, trace_id) OR position(convert_to($7, 'UTF8') IN body_head) > 0)
    UNION ALL
    SELECT number, at, 'POST', path, '', '', '', address, app_key, request_id, microseconds, NULL, subject_kind, subject
    FROM served_call WHERE tenant_id = $1 AND $6::text IS DISTINCT FROM 'refused' AND $2::text IS NULL
        AND ($7::text IS NULL OR $7 IN (request_id, trace_id, subject))
), fitting AS (
    SELECT *, count(*) OVER () AS total FROM call
    WHERE ($3::text IS NULL OR path = $3) AND ($4::timestamptz IS NULL OR at >= $4)
        AND ($5::timestamptz IS NULL OR at < $5)
)
SELECT {", ".join(name for name in CallRow._fields if name != "left")}, count(*) OVER () AS left FROM fitting
WHERE ($8::timestamptz IS NULL OR at < $8) ORDER BY at DESC FETCH FIRST $9 ROWS WITH TIES
"""


async def list_calls(
    connection: Connection, tenant_id: int, filters: CallFilter, before: datetime | None, limit: int
) -> Sequence[CallRow]:
    """Newest first, those that were refused and those that succeeded. More than `limit` where the last ones are of one
    moment. At most as many rows are scanned as are kept of both, 1 500."""
    rows = await connection.fetch(_CALLS, tenant_id, *filters, before, limit)
    return sorted((CallRow(**row) for row in rows), key=lambda one: (one.at, one.number), reverse=True)


class Kept(NamedTuple):
    """How many calls are kept, when the last one was refused, and of those that succeeded since a time: how long half
    of them took at most, and 95 %, in microseconds; None where there are none."""

    refused: int
    last_refused: datetime | None
    succeeded: int
    median: float | None
    slow: float | None


async def kept(connection: Connection, tenant_id: int, since: datetime) -> Kept:
    row = await connection.fetchrow(
        "SELECT (SELECT count(*) FROM refused_call WHERE tenant_id = $1) AS refused,"
        " (SELECT max(at) FROM refused_call WHERE tenant_id = $1) AS last_refused, count(*) AS succeeded,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY microseconds) FILTER (WHERE at >= $2) AS median,"
        " percentile_cont(0.95) WITHIN GROUP (ORDER BY microseconds) FILTER (WHERE at >= $2) AS slow"
        " FROM served_call WHERE tenant_id = $1",
        tenant_id,
        since,
    )
    assert row is not None, "an aggregate has a row"
    return Kept(**row)


async def paths(connection: Connection, tenant_id: int, outcome: Outcome | None) -> Sequence[tuple[str, int]]:
    """The paths of the calls that are kept, with how many there are of each."""
    rows = await connection.fetch(
        "SELECT path, count(*) AS calls FROM ("
        " SELECT path FROM refused_call WHERE tenant_id = $1 AND $2::text IS DISTINCT FROM 'succeeded'"
        " UNION ALL SELECT path FROM served_call WHERE tenant_id = $1 AND $2::text IS DISTINCT FROM 'refused') call"
        " GROUP BY path ORDER BY calls DESC, path LIMIT 50",
        tenant_id,
        outcome,
    )
    return [(row["path"], row["calls"]) for row in rows]


async def codes(connection: Connection, tenant_id: int) -> Sequence[tuple[str, int]]:
    """The result codes of the calls that are kept, with how many there are of each."""
    rows = await connection.fetch(
        "SELECT code, count(*) AS calls FROM refused_call WHERE tenant_id = $1 GROUP BY code ORDER BY calls DESC, code",
        tenant_id,
    )
    return [(row["code"], row["calls"]) for row in rows]


async def find(connection: Connection, tenant_id: int, number: int) -> RefusedCall | None:
    """None also where newer calls replaced it. At most 1 000 rows are scanned."""
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM refused_call WHERE tenant_id = $1 AND number = $2", tenant_id, number
    )
    return RefusedCall(**row) if row else None


async def counts(connection: Connection, tenant_id: int) -> tuple[int, int]:
    """How many were written ever, and how many were dropped."""
    row = await connection.fetchrow("SELECT written, dropped FROM refused_count WHERE tenant_id = $1", tenant_id)
    return (row["written"], row["dropped"]) if row else (0, 0)


async def refused_since(connection: Connection, tenant_id: int, since: datetime) -> int:
    """How many of the calls that are kept were refused since then; at most 1 000 rows are scanned."""
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM refused_call WHERE tenant_id = $1 AND at >= $2", tenant_id, since
    )
    return count or 0


async def record_steps(connection: Connection, steps: Iterable[tuple[int, Step]], now: datetime) -> None:
    """(tenant_id, step) done for the first time; later times change nothing."""
    await connection.executemany(
        "INSERT INTO first_run (tenant_id, step, done_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        [(tenant_id, step, now) for tenant_id, step in steps],
    )


async def steps(connection: Connection, tenant_id: int) -> Mapping[Step, datetime]:
    rows = await connection.fetch("SELECT step, done_at FROM first_run WHERE tenant_id = $1", tenant_id)
    return {row["step"]: row["done_at"] for row in rows}


async def orders_named(connection: Connection, tenant_id: int, transaction_ids: Collection[str]) -> Mapping[str, int]:
    """The orders that the dealer gave these transactionIds."""
    rows = await connection.fetch(
        "SELECT transaction_id, order_id FROM orders WHERE tenant_id = $1 AND transaction_id = ANY($2::text[])",
        tenant_id,
        sorted(transaction_ids),
    )
    return {row["transaction_id"]: row["order_id"] for row in rows}
