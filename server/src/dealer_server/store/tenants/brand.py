"""A dealer's brand, which its install pages show."""

from collections.abc import Mapping
from typing import Any

from dealer_server.db.connection import Connection
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.brand.logo import Logo

COLUMNS = ("name", "colour", "support_email", "support_phone", "support_url", "sales_url", "logo_type", "logo")
_TEXTS = COLUMNS[:6]


def from_columns(columns: Mapping[str, Any], prefix: str = "") -> Brand:
    """The brand in a row that has its columns, each with this prefix. NULLs: there is none."""
    kind, content = columns[f"{prefix}logo_type"], columns[f"{prefix}logo"]
    texts = {name: columns[prefix + name] or "" for name in _TEXTS}
    return Brand(**texts, logo=None if kind is None else Logo(kind, content))


async def find(connection: Connection, tenant_id: int) -> Brand:
    row = await connection.fetchrow(f"SELECT {', '.join(COLUMNS)} FROM brand WHERE tenant_id = $1", tenant_id)
    return Brand() if row is None else from_columns(row)


async def lock(connection: Connection, tenant_id: int) -> Brand | None:
    """The brand, locked until the transaction ends; None where there is no such dealer."""
    await connection.execute(
        "INSERT INTO brand (tenant_id) SELECT tenant_id FROM tenant WHERE tenant_id = $1 ON CONFLICT DO NOTHING",
        tenant_id,
    )
    row = await connection.fetchrow(
        f"SELECT {', '.join(COLUMNS)} FROM brand WHERE tenant_id = $1 FOR NO KEY UPDATE", tenant_id
    )
    return None if row is None else from_columns(row)


async def put(connection: Connection, tenant_id: int, brand: Brand) -> None:
    """Of a brand that is locked."""
    await connection.execute(
        "UPDATE brand SET name = $2, colour = $3, support_email = $4, support_phone = $5, support_url = $6,"
        " sales_url = $7, logo_type = $8, logo = $9 WHERE tenant_id = $1",
        tenant_id,
        *[getattr(brand, name) for name in _TEXTS],
        brand.logo.media_type if brand.logo else None,
        brand.logo.content if brand.logo else None,
    )
