"""Which credential signs a tenant's webhooks? The newest active one."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.session import Session


class Signer(NamedTuple):
    """The credential that signs a tenant's webhooks; secrets sealed."""

    tenant_id: int
    app_key: str
    secret_version: int
    sealed_secret: bytes
    previous_secret: bytes | None
    previous_until: datetime | None


async def load(session: Connection | Session, tenant_ids: Sequence[int]) -> dict[int, Signer]:
    """By tenant_id; a tenant without a credential is left out."""
    credentials = await session.fetch(
        "SELECT DISTINCT ON (tenant_id) tenant_id, app_key, secret_version, sealed_secret, previous_secret,"
        " previous_until FROM credential WHERE tenant_id = ANY($1::bigint[])"
        " ORDER BY tenant_id, status = 'ACTIVE' DESC, created_at DESC",
        list(tenant_ids),
    )
    return {row["tenant_id"]: Signer(**row) for row in credentials}
