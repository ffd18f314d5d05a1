"""What the console shows of dealers: the list, and one with its credentials, prices and endpoint."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.tenants.tenant import RtFace
from esim_dealer.wire.vocabulary import EndpointState


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
    endpoint: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit

    @property
    def low(self) -> bool:
        return self.available < self.low_balance_threshold


class Dealer(NamedTuple):
    """`markup_basis_points`: hundredths of a percent on the default dealer price. `edits_ip_allow`, `manages_keys`:
    what the dealer may change by itself."""

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
    edits_ip_allow: bool
    manages_keys: bool
    rt_face: RtFace

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


class Price(NamedTuple):
    """A dealer's own price of a package; None: not on sale for it."""

    package_code: str
    price: int | None
    updated_at: datetime


_MATCHING = (
    "($1::text IS NULL OR position(lower($1) IN lower(t.name)) > 0 OR t.tenant_id::text = $1"
    " OR EXISTS (SELECT FROM credential c WHERE c.tenant_id = t.tenant_id AND starts_with(c.app_key, $1)))"
)
ORDERS = {
    "": "t.tenant_id",
    "name": "lower(t.name)",
    "balance": "w.balance",
    "orders": "w.order_count",
    "profiles": "w.profile_count",
}
"""What the list can be ordered by: a row for each dealer is read."""


async def list_dealers(
    connection: Connection, text: str | None, start: int, limit: int, order: str = "", *, descending: bool = False
) -> list[DealerRow]:
    """From row `start` on, in one of ORDERS; `text` is a part of the name, or of an AppKey its beginning."""
    direction = "DESC" if descending else "ASC"
    rows = await connection.fetch(
        "SELECT t.tenant_id, t.name, t.status, w.frozen, w.currency, w.balance, w.credit_limit,"
        " w.low_balance_threshold, w.order_count, w.profile_count,"
        " coalesce(e.state, 'NOT_SET') AS endpoint, coalesce(e.consecutive_failures, 0) AS consecutive_failures,"
        " e.last_success_at"
        " FROM tenant t JOIN wallet w USING (tenant_id) LEFT JOIN webhook_endpoint e ON e.tenant_id = w.tenant_id"
        f" WHERE {_MATCHING}"
        f" ORDER BY {ORDERS[order]} {direction}, t.tenant_id OFFSET $2 LIMIT $3",
        text,
        start,
        limit,
    )
    return [DealerRow(**row) for row in rows]


async def count_dealers(connection: Connection, text: str | None) -> int:
    return await connection.fetchval(f"SELECT count(*) FROM tenant t WHERE {_MATCHING}", text) or 0


async def dealer(connection: Connection, tenant_id: int) -> Dealer | None:
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name, t.status, t.qps, t.ip_allow, t.markup_basis_points, t.created_at, w.currency,"
        " w.balance, w.credit_limit, w.low_balance_threshold, w.frozen, w.order_count, w.profile_count,"
        " t.edits_ip_allow, t.manages_keys, t.rt_face"
        " FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.tenant_id = $1",
        tenant_id,
    )
    return Dealer(**row) if row else None


async def prices(connection: Connection, tenant_id: int, limit: int) -> list[Price]:
    """The dealer's own prices, by package; the others follow its markup."""
    rows = await connection.fetch(
        "SELECT package_code, price, updated_at FROM price WHERE tenant_id = $1 ORDER BY package_code LIMIT $2",
        tenant_id,
        limit,
    )
    return [Price(**row) for row in rows]
