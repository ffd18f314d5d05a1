"""Where does a dealer receive webhooks? One endpoint per tenant: its URL, its state, its record."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import columns_of
from dealer_server.store.webhooks.dialects import is_rt
from esim_dealer.wire.vocabulary import EndpointState


class Endpoint(NamedTuple):
    url: str  # '' once it was removed
    state: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    updated_at: datetime
    standard_headers: bool
    rt_url: str  # of the RT family's dialect; '' where there is none
    rt_state: EndpointState

    def state_for(self, event_type: str) -> EndpointState:
        """The state of the receiver of such events."""
        return self.rt_state if is_rt(event_type) else self.state


async def find(connection: Connection, tenant_id: int) -> Endpoint | None:
    row = await connection.fetchrow(
        f"SELECT {columns_of(Endpoint)} FROM webhook_endpoint WHERE tenant_id = $1",
        tenant_id,
    )
    return Endpoint(**row) if row else None


async def set_url(
    connection: Connection, tenant_id: int, url: str, now: datetime, *, standard_headers: bool | None = None
) -> None:
    """Sets and enables the URL, with no failures on record; '' removes it. `standard_headers`: None leaves them."""
    await connection.execute(
        "INSERT INTO webhook_endpoint AS e (tenant_id, url, state, updated_at, standard_headers)"
        " VALUES ($1, $2, $3, $4, coalesce($5, false))"
        " ON CONFLICT (tenant_id) DO UPDATE SET url = excluded.url, state = excluded.state,"
        " updated_at = excluded.updated_at, consecutive_failures = 0, probe_at = NULL,"
        " last_success_at = CASE WHEN e.url = excluded.url THEN e.last_success_at END,"
        " standard_headers = coalesce($5, e.standard_headers)",
        tenant_id,
        url,
        "ACTIVE" if url else "NOT_SET",
        now,
        standard_headers,
    )


async def set_rt_url(connection: Connection, tenant_id: int, url: str, now: datetime) -> None:
    """The same of the URL of the RT family's dialect."""
    await connection.execute(
        "INSERT INTO webhook_endpoint AS e (tenant_id, rt_url, rt_state, state, updated_at)"
        " VALUES ($1, $2, $3, 'NOT_SET', $4)"
        " ON CONFLICT (tenant_id) DO UPDATE SET rt_url = excluded.rt_url, rt_state = excluded.rt_state,"
        " updated_at = excluded.updated_at, consecutive_failures = 0, probe_at = NULL",
        tenant_id,
        url,
        "ACTIVE" if url else "NOT_SET",
        now,
    )
