"""How the API answered, minute by minute: each process writes its own row of a minute again until the minute ends."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection

KEPT = timedelta(days=2)


class Minute(NamedTuple):
    """`spread` counts calls by how long they took (rules/access/latency_histogram.py); `failed` of them were answered
    with a fault of ours."""

    writes: bool
    spread: Sequence[int]
    failed: int


async def put(connection: Connection, minute: datetime, process: int, counted: Sequence[Minute]) -> None:
    """What this process counted in a minute so far, in place of what it said before. A crash may shorten it."""
    await connection.execute("SET LOCAL synchronous_commit = off")
    await connection.executemany(
        "INSERT INTO api_minute (minute, process, writes, spread, failed) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT (minute, process, writes) DO UPDATE SET spread = excluded.spread, failed = excluded.failed",
        [(minute, process, *one) for one in counted],
    )


async def sweep(connection: Connection, now: datetime) -> None:
    await connection.execute("DELETE FROM api_minute WHERE minute < $1", now - KEPT)
