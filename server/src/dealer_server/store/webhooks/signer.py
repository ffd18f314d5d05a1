"""Which credential signs a tenant's webhooks? The chosen one while it is active, else the oldest active."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import columns_of


class Signer(NamedTuple):
    """The credential that signs a tenant's webhooks; secrets sealed."""

    tenant_id: int
    app_key: str
    secret_version: int
    sealed_secret: bytes
    previous_secret: bytes | None
    previous_until: datetime | None


SIGNER_FIRST = "status = 'ACTIVE' DESC, signs_webhooks DESC, created_at"


async def load(connection: Connection, tenant_id: int) -> Signer | None:
    """None for a tenant without a credential."""
    row = await connection.fetchrow(
        f"SELECT {columns_of(Signer)} FROM credential WHERE tenant_id = $1 ORDER BY {SIGNER_FIRST} LIMIT 1", tenant_id
    )
    return Signer(**row) if row else None
