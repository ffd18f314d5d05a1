"""Who pays which price for a package, and how much of it is in stock: for the page of a package."""

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
