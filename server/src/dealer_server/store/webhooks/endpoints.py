"""Where does a dealer receive webhooks? One endpoint per tenant: its URL, its state, its record."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from esim_dealer.wire.vocabulary import EndpointState


class Endpoint(NamedTuple):
    url: str  # '' once it was removed
    state: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    updated_at: datetime


async def find(connection: Connection, tenant_id: int) -> Endpoint | None:
    row = await connection.fetchrow(
        "SELECT url, state, consecutive_failures, last_success_at, updated_at FROM webhook_endpoint"
        " WHERE tenant_id = $1",
        tenant_id,
    )
    return Endpoint(**row) if row else None


async def set_url(connection: Connection, tenant_id: int, url: str, now: datetime) -> None:
    """Sets and enables the URL, with no failures on record; '' removes it."""
    await connection.execute(
        "INSERT INTO webhook_endpoint AS e (tenant_id, url, state, updated_at) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (tenant_id) DO UPDATE SET url = excluded.url, state = excluded.state,"
        " updated_at = excluded.updated_at, consecutive_failures = 0, probe_at = NULL,"
        " last_success_at = CASE WHEN e.url = excluded.url THEN e.last_success_at END",
        tenant_id,
        url,
        "ACTIVE" if url else "NOT_SET",
        now,
    )
