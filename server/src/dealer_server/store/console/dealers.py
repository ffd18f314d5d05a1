"""What the console shows of dealers: the list, and one with its credentials, prices and endpoint."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection

NAMES = 500


class DealerRow(NamedTuple):
    """A dealer in a list; amounts in ten-thousandths."""

    tenant_id: int
    name: str
    status: str
    frozen: bool
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    order_count: int
    profile_count: int
    endpoint: str
    consecutive_failures: int

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit

    @property
    def low(self) -> bool:
        return self.available < self.low_balance_threshold


class Dealer(NamedTuple):
    """`markup_basis_points`: hundredths of a percent on the default dealer price."""

    tenant_id: int
    name: str
    status: str
    qps: int
    ip_allow: list[str]
    markup_basis_points: int
    created_at: datetime
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    frozen: bool
    order_count: int
    profile_count: int

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


class Credential(NamedTuple):
    """`previous_until`: until when the secret before opens calls too."""

    app_key: str
    status: str
    secret_version: int
    previous_until: datetime | None
    created_at: datetime


class Price(NamedTuple):
    """A dealer's own price of a package; None: not on sale for it."""

    package_code: str
    price: int | None
    updated_at: datetime


async def names(connection: Connection, chosen: int | None = None) -> list[tuple[int, str]]:
    """(tenant_id, name) for a select: the chosen dealer, and the first few hundred by name."""
    rows = await connection.fetch(
        "SELECT tenant_id, name FROM tenant ORDER BY tenant_id IS NOT DISTINCT FROM $2 DESC, lower(name), tenant_id"
        " LIMIT $1",
        *(NAMES, chosen),
    )
    return [(row["tenant_id"], row["name"]) for row in rows]


async def list_dealers(connection: Connection, text: str | None, after: int | None, limit: int) -> list[DealerRow]:
    """By tenantId; `text` is a part of the name, or of an AppKey its beginning."""
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, t.status, w.frozen, w.currency, w.balance, w.credit_limit,"
        " w.low_balance_threshold, w.order_count, w.profile_count,"
        " coalesce(e.state, 'NOT_SET') AS endpoint, coalesce(e.consecutive_failures, 0) AS consecutive_failures"
        " FROM tenant t JOIN wallet w USING (tenant_id) LEFT JOIN webhook_endpoint e USING (tenant_id)"
        " WHERE ($1::text IS NULL OR position(lower($1) IN lower(t.name)) > 0 OR t.tenant_id::text = $1"
        "  OR EXISTS (SELECT FROM credential c WHERE c.tenant_id = t.tenant_id AND starts_with(c.app_key, $1)))"
        " AND ($2::bigint IS NULL OR t.tenant_id > $2) ORDER BY t.tenant_id LIMIT $3",
        *(text, after, limit),
    )
    return [DealerRow(**row) for row in rows]


async def dealer(connection: Connection, tenant_id: int) -> Dealer | None:
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name, t.status, t.qps, t.ip_allow, t.markup_basis_points, t.created_at, w.currency,"
        " w.balance, w.credit_limit, w.low_balance_threshold, w.frozen, w.order_count, w.profile_count"
        " FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.tenant_id = $1",
        tenant_id,
    )
    return Dealer(**row) if row else None


async def credentials(connection: Connection, tenant_id: int) -> list[Credential]:
    rows = await connection.fetch(
        "SELECT app_key, status, secret_version, previous_until, created_at FROM credential WHERE tenant_id = $1"
        " ORDER BY created_at, app_key",
        tenant_id,
    )
    return [Credential(**row) for row in rows]


async def prices(connection: Connection, tenant_id: int, limit: int) -> list[Price]:
    """The dealer's own prices, by package; the others follow its markup."""
    rows = await connection.fetch(
        "SELECT package_code, price, updated_at FROM price WHERE tenant_id = $1 ORDER BY package_code LIMIT $2",
        tenant_id,
        limit,
    )
    return [Price(**row) for row in rows]
