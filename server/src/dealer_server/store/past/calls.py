"""Calls of days that are over, written as serve would have left them: a new `dealer-server dev` begins with them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.console import api_log
from dealer_server.store.console.api_log import RefusedCall
from dealer_server.store.tenants import call_hour, credential, served_call
from dealer_server.store.tenants.call_hour import CallHour
from dealer_server.store.tenants.served_call import KEPT, ServedCall

_PROCESS = 0  # of none that runs


class PastCaller(NamedTuple):
    """A dealer's AppKey with its calls, the oldest first, all from one address. `refused`: those that were."""

    app_key: str
    calls: Sequence[ServedCall]
    refused: Sequence[RefusedCall] = ()


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
    for app_key, calls, refused in callers:
        if calls:
            last = calls[-1]
            await served_call.write(connection, calls[-KEPT:], {last.tenant_id: len(calls)})
            await credential.record_uses(connection, [(app_key, last.address)], last.at)
            await api_log.write(connection, refused, {})
            await call_hour.add(connection, _hours(last.tenant_id, calls, refused))


def _hours(tenant_id: int, served: Sequence[ServedCall], refused: Sequence[RefusedCall]) -> list[CallHour]:
    """The newest that are kept."""
    of_served, of_refused = _by_hour(served), _by_hour(refused)
    hours = sorted({*of_served, *of_refused})
    hours = [hour for hour in hours if hours[-1] - hour < timedelta(hours=call_hour.KEPT)]
    return [CallHour(tenant_id, hour, of_served[hour], of_refused[hour]) for hour in hours]


def _by_hour(calls: Sequence[ServedCall] | Sequence[RefusedCall]) -> Counter[datetime]:
    return Counter(call.at.replace(minute=0, second=0, microsecond=0) for call in calls)
