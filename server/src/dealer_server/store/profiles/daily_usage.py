"""The usage of an eSIM by day as it is stored: a JSON array of days and counts, NULL while none was reported."""

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.rules.lifecycle.daily_usage import Counts

_decoder = msgspec.json.Decoder(Counts)
_encoder = msgspec.json.Encoder()


def read(stored: str | None) -> Counts:
    return () if stored is None else _decoder.decode(stored)


def written(counts: Counts) -> str | None:
    return _encoder.encode(counts).decode() if counts else None


async def of_profile(connection: Connection, tenant_id: int, profile_id: int) -> Counts:
    """() where no supplier reports on it."""
    return read(
        await connection.fetchval(
            "SELECT daily_usage FROM profile_life WHERE tenant_id = $1 AND profile_id = $2", tenant_id, profile_id
        )
    )
