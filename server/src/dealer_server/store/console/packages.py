"""The catalogue as operators see it: searched, in pages by packageCode."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue.package import Package

_decode = msgspec.json.Decoder(Package).decode


class PackageRow(NamedTuple):
    """`free`: how many can still be sold of one that is sold from stock."""

    package: Package
    updated_at: datetime
    free: int | None


class PackageFilter(NamedTuple):
    """Which packages: all that is given must match. `text` is a part of the code or the name, or the code of its place;
    `place` is the code of what it is sold for, `covers` of a country that is only a part of that."""

    text: str | None = None
    status: str | None = None
    place: str | None = None
    covers: str | None = None


_MATCHING = (
    "($1::text IS NULL OR position(lower($1) IN lower(package_code)) > 0"
    "  OR position(lower($1) IN lower(document ->> 'package_name')) > 0"
    "  OR document ->> 'location_code' = upper($1))"
    " AND ($2::text IS NULL OR document ->> 'status' = $2)"
    " AND ($3::text IS NULL OR document ->> 'location_code' = $3)"
    " AND ($4::text IS NULL OR document -> 'locations' ? $4 AND document ->> 'location_code' <> $4)"
)
"""Of a PackageFilter, in its order."""

ORDERS = {
    "code": "package_code",
    "place": "lower(coalesce(document ->> 'location_name', ''))",
    "price": "(document ->> 'price')::bigint",
    "retail": "(document ->> 'retail_price')::bigint",
    "supplier": "document ->> 'supplier'",
}
"""What the list can be ordered by, and then by code."""


async def list_packages(
    connection: Connection,
    filters: PackageFilter,
    after: str | None,
    limit: int,
    order: str = "code",
    *,
    descending: bool = False,
) -> list[PackageRow]:
    """After the package seen last, in one of ORDERS."""
    place, direction = f"({ORDERS[order]}, package_code)", "DESC" if descending else "ASC"
    rows = await connection.fetch(
        "SELECT document::text AS document, updated_at, CASE WHEN document ->> 'supplier' = 'stock' THEN"
        "  (SELECT count(*) FROM stock_profile s WHERE s.package_code = package.package_code AND taken_by IS NULL)"
        " END AS free"
        " FROM package"
        f" WHERE {_MATCHING}"
        f" AND ($5::text IS NULL OR {place} {'<' if descending else '>'}"
        f"  (SELECT {ORDERS[order]}, package_code FROM package WHERE package_code = $5))"
        f" ORDER BY {ORDERS[order]} {direction}, package_code {direction} LIMIT $6",
        *filters,
        after,
        limit,
    )
    return [PackageRow(_decode(row["document"]), row["updated_at"], row["free"]) for row in rows]


async def count_packages(connection: Connection, filters: PackageFilter) -> int:
    return await connection.fetchval(f"SELECT count(*) FROM package WHERE {_MATCHING}", *filters) or 0


async def by_code(connection: Connection, package_codes: Sequence[str]) -> dict[str, Package]:
    """Those of these packages that are there."""
    rows = await connection.fetch(
        "SELECT document::text AS document FROM package WHERE package_code = ANY($1::text[])", list(package_codes)
    )
    packages = [_decode(row["document"]) for row in rows]
    return {package.package_code: package for package in packages}


async def lock(connection: Connection, package_codes: Sequence[str]) -> dict[str, Package]:
    """The same, locked until the transaction ends; a dealer's own price may still name them."""
    rows = await connection.fetch(
        "SELECT document::text AS document FROM package WHERE package_code = ANY($1::text[]) ORDER BY package_code"
        " FOR NO KEY UPDATE",
        list(package_codes),
    )
    packages = [_decode(row["document"]) for row in rows]
    return {package.package_code: package for package in packages}
