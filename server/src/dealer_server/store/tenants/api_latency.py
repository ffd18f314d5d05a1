"""API latency per minute: each process replaces its rows of a minute until the minute ends."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection

KEPT = timedelta(days=2)


class Minute(NamedTuple):
    """`spread` counts calls by duration (rules/access/latency_histogram.py); `failed` of them ended in an internal
    error."""

    writes: bool
    spread: Sequence[int]
    failed: int


async def put(connection: Connection, minute: datetime, process: int, counted: Sequence[Minute]) -> None:
    """Replaces what this process counted in a minute. It is not flushed: a crash of the server may lose it."""
    await connection.execute("SET LOCAL synchronous_commit = off")
    await connection.executemany(
        "INSERT INTO api_minute (minute, process, writes, spread, failed) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (minute, process, writes) DO UPDATE SET spread = excluded.spread, failed = excluded.failed",
        [(minute, process, row.writes, row.spread, row.failed) for row in counted],
    )


async def sweep(connection: Connection, now: datetime) -> None:
    await connection.execute("DELETE FROM api_minute WHERE minute < $1", now - KEPT)
