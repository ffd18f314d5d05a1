"""API latency of days that are over, as serve would have left it: a new `dealer-server dev` begins with it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dealer_server.db.connection import Connection

_PROCESS = 0  # of none that runs


async def write(connection: Connection, spreads: Mapping[tuple[datetime, bool], Sequence[int]]) -> None:
    """`spreads`: calls by how long they took (rules/access/latency_histogram.py), by minute and whether they wrote."""
    await connection.copy_records_to_table(
        "api_minute",
        records=[(minute, _PROCESS, writes, spread, 0) for (minute, writes), spread in spreads.items()],
        columns=("minute", "process", "writes", "spread", "failed"),
    )
