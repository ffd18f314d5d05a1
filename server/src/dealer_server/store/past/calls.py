"""Calls of days that are over, written as serve would have left them: a new `dealer-server dev` begins with them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.tenants import credential, served_call
from dealer_server.store.tenants.served_call import KEPT, ServedCall

_PROCESS = 0  # of none that runs


class PastCaller(NamedTuple):
    """A dealer's AppKey with its calls, the oldest first, all from one address."""

    app_key: str
    calls: Sequence[ServedCall]


async def write(
    connection: Connection, callers: Sequence[PastCaller], spreads: Mapping[tuple[datetime, bool], Sequence[int]]
) -> None:
    """`spreads`: all calls by how long they took (rules/access/latency_histogram.py), by minute and whether they
    wrote."""
    await connection.copy_records_to_table(
        "api_minute",
        records=[(minute, _PROCESS, writes, spread, 0) for (minute, writes), spread in spreads.items()],
        columns=("minute", "process", "writes", "spread", "failed"),
    )
    for app_key, calls in callers:
        if calls:
            last = calls[-1]
            await served_call.write(connection, calls[-KEPT:], {last.tenant_id: len(calls)})
            await credential.record_uses(connection, [(app_key, last.address)], last.at)
