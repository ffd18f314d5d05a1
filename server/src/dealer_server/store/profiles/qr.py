"""What does a QR link show? The activation code of a profile."""

from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys, profile_context


class Linked(NamedTuple):
    token: str
    cancelled: bool
    activation_code: str


async def find(connection: Connection, tenant_id: int, profile_id: int, keys: DataKeys) -> Linked | None:
    """The profile's QR token and activation code; None where it has none."""
    row = await connection.fetchrow(
        "SELECT qr_token, cancelled, activation_code FROM profile"
        " WHERE tenant_id = $1 AND profile_id = $2 AND qr_token IS NOT NULL AND activation_code IS NOT NULL",
        tenant_id,
        profile_id,
    )
    if row is None:
        return None
    return Linked(
        token=row["qr_token"],
        cancelled=row["cancelled"],
        activation_code=keys.open(row["activation_code"], profile_context(tenant_id, profile_id)).decode(),
    )
