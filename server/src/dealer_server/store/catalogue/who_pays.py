"""Who pays which price for a package, and what of it was sold lately: for the page of a package."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class CustomPrice(NamedTuple):
    """A dealer's own price of the package; None: not on sale for it."""

    tenant_id: int
    name: str
    price: int | None
    updated_at: datetime


class Markup(NamedTuple):
    """How many dealers without a list and without a price of their own for the package have this markup."""

    basis_points: int
    dealers: int


class Sold(NamedTuple):
    """What some orders hold of the package; `amount` in ten-thousandths."""

    currency: str
    orders: int
    units: int
    amount: int


async def custom_prices(connection: Connection, package_code: str, limit: int) -> list[CustomPrice]:
    """By tenantId."""
    rows = await connection.fetch(
        "SELECT p.tenant_id, t.name, p.price, p.updated_at FROM price p JOIN tenant t USING (tenant_id)"
        " WHERE p.package_code = $1 ORDER BY p.tenant_id LIMIT $2",
        package_code,
        limit,
    )
    return [CustomPrice(**row) for row in rows]


async def markups(connection: Connection, package_code: str, currency: str, limit: int) -> list[Markup]:
    """Of dealers with this currency, the smallest first."""
    rows = await connection.fetch(
        "SELECT t.markup_basis_points AS basis_points, count(*)::int AS dealers"
        " FROM tenant t JOIN wallet w USING (tenant_id)"
        " WHERE w.currency = $2 AND t.price_list_id IS NULL AND NOT EXISTS"
        "  (SELECT FROM price p WHERE p.tenant_id = w.tenant_id AND p.package_code = $1)"
        " GROUP BY 1 ORDER BY 1 LIMIT $3",
        package_code,
        currency,
        limit,
    )
    return [Markup(**row) for row in rows]


async def free_stock(connection: Connection, package_code: str) -> int:
    """How many of a package that is sold from stock can still be sold."""
    return (
        await connection.fetchval(
            "SELECT count(*) FROM stock_profile WHERE package_code = $1 AND taken_by IS NULL", package_code
        )
        or 0
    )


async def sold(connection: Connection, package_code: str, orders: Sequence[tuple[int, int]]) -> list[Sold]:
    """Of these orders (tenantId, orderId), by currency."""
    rows = await connection.fetch(
        "SELECT o.currency, count(DISTINCT o.order_id)::int AS orders, sum(i.quantity)::bigint AS units,"
        " sum(i.price * (i.quantity * i.period_num::bigint))::bigint AS amount"
        " FROM unnest($2::bigint[], $3::bigint[]) AS key(tenant_id, order_id)"
        " CROSS JOIN LATERAL (SELECT * FROM orders o WHERE o.tenant_id = key.tenant_id AND o.order_id = key.order_id"
        "  OFFSET 0) o"
        " CROSS JOIN LATERAL (SELECT * FROM order_item i WHERE i.tenant_id = key.tenant_id"
        "  AND i.order_id = key.order_id AND i.package_code = $1 OFFSET 0) i"
        " GROUP BY o.currency ORDER BY o.currency",
        package_code,
        [tenant_id for tenant_id, _ in orders],
        [order_id for _, order_id in orders],
    )
    return [Sold(**row) for row in rows]
