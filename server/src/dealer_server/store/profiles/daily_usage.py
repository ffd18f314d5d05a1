"""The usage of an eSIM by day as it is stored: a JSON array of days and counts, NULL while none was reported."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.rules.lifecycle.daily_usage import Counts

_decoder = msgspec.json.Decoder(Counts)
_encoder = msgspec.json.Encoder()


class Reported(NamedTuple):
    """What its supplier reported of an eSIM, and when last."""

    days: Counts = ()
    at: datetime | None = None


def read(stored: str | None) -> Counts:
    return () if stored is None else _decoder.decode(stored)


def written(counts: Counts) -> str | None:
    return _encoder.encode(counts).decode() if counts else None


async def of_profile(connection: Connection, tenant_id: int, profile_id: int) -> Reported:
    row = await connection.fetchrow(
        "SELECT daily_usage, reported_at FROM profile_life WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return Reported(read(row["daily_usage"]), row["reported_at"]) if row else Reported()
