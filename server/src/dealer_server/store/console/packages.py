"""The catalogue as operators see it: searched, in pages."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.rules.catalogue.package import Package
from dealer_server.store.console.incidents.impact import OTHER_SUPPLIER

EDITS_LOOKED_AT = 5_000
_decode = msgspec.json.Decoder(Package).decode


class PackageRow(NamedTuple):
    """`free`: how many can still be sold of one that is sold from stock. `supplier`: who makes it, first of its route.
    `cost`: what that supplier asks, in ten-thousandths of the package's currency, None where it is not known in it.
    `floor`: the package's own margin floor, in hundredths of a percent. `next_suppliers`: who is asked after it, in
    order."""

    package: Package
    updated_at: datetime
    free: int | None
    supplier: str
    cost: int | None
    floor: int | None
    next_suppliers: Sequence[str]


class PackageFilter(NamedTuple):
    """Which packages: all that is given must match. `text` is a part of the code or the name, or the code of its place;
    `place` is the code of what it is sold for, `covers` of a country that is only a part of that. `kind`: FIXED, DAILY
    or RECHARGE. `margin`: below so many hundredths of a percent of the price. `costed`: whether its cost is known.
    `alone`: whether it has no supplier after the first one that is neither down nor paused. `sold_out`: whether it is
    on sale from a stock that has none left. `codes`: one of these. `sold_since`: whether it was sold on this day or
    later."""

    text: str | None = None
    status: str | None = None
    place: str | None = None
    covers: str | None = None
    supplier: str | None = None
    kind: str | None = None
    margin: int | None = None
    costed: bool | None = None
    alone: bool | None = None
    sold_out: bool | None = None
    codes: Sequence[str] | None = None
    sold_since: date | None = None


class States(NamedTuple):
    """How many packages there are, and how many of those in each state: on sale, and not sold out, sold out, off sale;
    and how many were sold lately."""

    every: int
    on_sale: int
    off_sale: int
    sold_out: int
    sold: int


_PACKAGES = """
(SELECT p.package_code, p.document, p.updated_at, coalesce(r.supplier, p.document ->> 'supplier') AS supplier,
    (p.document ->> 'price')::bigint AS price,
    CASE WHEN r.cost_currency = p.document ->> 'currency' THEN r.cost END AS cost
FROM package p LEFT JOIN route r ON r.package_code = p.package_code AND r.position = 0) package
"""
_MARGIN = "(price - cost)::numeric * 10000 / greatest(price, 1)"
_KIND = """CASE WHEN document ->> 'type' = 'TOPUP' THEN 'RECHARGE' WHEN document ->> 'data_type' = 'TOTAL' THEN 'FIXED'
    ELSE 'DAILY' END"""
_SOLD_OUT = """(document ->> 'status' = 'ON_SALE' AND document ->> 'supplier' = 'stock' AND NOT EXISTS
    (SELECT FROM stock_profile s WHERE s.package_code = package.package_code AND taken_by IS NULL))"""

_MATCHING = (
    "($1::text IS NULL OR position(lower($1) IN lower(package_code)) > 0"
    "  OR position(lower($1) IN lower(document ->> 'package_name')) > 0"
    "  OR document ->> 'location_code' = upper($1))"
    " AND ($2::text IS NULL OR document ->> 'status' = $2)"
    " AND ($3::text IS NULL OR document ->> 'location_code' = $3)"
    " AND ($4::text IS NULL OR document -> 'locations' ? $4 AND document ->> 'location_code' <> $4)"
    " AND ($5::text IS NULL OR supplier = $5)"
    f" AND ($6::text IS NULL OR {_KIND} = $6)"
    f" AND ($7::bigint IS NULL OR {_MARGIN} < $7)"
    " AND ($8::boolean IS NULL OR (cost IS NOT NULL) = $8)"
    f" AND ($9::boolean IS NULL OR {OTHER_SUPPLIER.format(package_code='package.package_code')} <> $9)"
    f" AND ($10::boolean IS NULL OR {_SOLD_OUT} = $10)"
    " AND ($11::text[] IS NULL OR package_code = ANY($11))"
    " AND ($12::date IS NULL OR package_code IN (SELECT package_code FROM report_all WHERE day >= $12 AND sold > 0))"
)
"""Of a PackageFilter, in its order."""

_BYTES = "coalesce((document ->> 'data_bytes')::bigint, 9223372036854775807)"
_DAYS = "(document ->> 'duration')::int"
_UNKNOWN = 2**62
# What a name begins with, its place most likely; then 1 GB before 10 GB, and 7 days before 30.
_BY_NAME = ("lower(substring(document ->> 'package_name' FROM '^[^0-9]*'))", _BYTES, _DAYS)
ORDERS: Mapping[str, Sequence[str]] = {
    "name": _BY_NAME,
    "place": ("lower(coalesce(document ->> 'location_name', ''))", _BYTES, _DAYS),
    "data": (_BYTES, _DAYS),
    "supplier": ("supplier",),
    "cost": (f"coalesce({{sign}}cost, {_UNKNOWN})", *_BY_NAME),
    "price": ("{sign}price", *_BY_NAME),
    "margin": (f"coalesce({{sign}}{_MARGIN}, {_UNKNOWN})", *_BY_NAME),
    "sold": ("{sign}coalesce(sold, 0)", *_BY_NAME),
    "revenue": ("{sign}coalesce(revenue, 0)", *_BY_NAME),
}
"""What the list can be ordered by, and then by packageCode. Numbers that are equal stand by name, and what is unknown
last, whichever way round."""
_SOLD = """
(SELECT package_code, sum(sold)::bigint AS sold, sum(revenue)::bigint AS revenue FROM report_all WHERE day >= $15::date
    GROUP BY package_code) sales
"""


async def list_packages(
    connection: Connection,
    filters: PackageFilter,
    after: str | None,
    limit: int,
    order: str = "name",
    *,
    descending: bool = False,
    since: date | None = None,
) -> list[PackageRow]:
    """After the package seen last, in one of ORDERS. `since`: the first day whose sales count in an order by them."""
    by_number, by_sales = "{sign}" in ORDERS[order][0], order in ("sold", "revenue")
    keys = [*(key.format(sign="-" if descending else "") for key in ORDERS[order]), "package_code"]
    down = descending and not by_number
    packages = f"{_PACKAGES} LEFT JOIN {_SOLD} USING (package_code)" if by_sales else _PACKAGES
    rows = await connection.fetch(
        "SELECT document::text AS package, updated_at, CASE WHEN document ->> 'supplier' = 'stock' THEN"
        "  (SELECT count(*) FROM stock_profile s WHERE s.package_code = package.package_code AND taken_by IS NULL)"
        " END AS free, supplier, cost, (SELECT margin_floor_basis_points FROM route_terms t"
        "  WHERE t.package_code = package.package_code) AS floor, ARRAY(SELECT n.supplier FROM route n"
        "  WHERE n.package_code = package.package_code AND n.position > 0 ORDER BY n.position) AS next_suppliers"
        f" FROM {packages}"
        f" WHERE {_MATCHING}"
        f" AND ($13::text IS NULL OR ({', '.join(keys)}) {'<' if down else '>'}"
        f"  (SELECT {', '.join(keys)} FROM {packages} WHERE package_code = $13))"
        f" ORDER BY {', '.join(f'{key} DESC' if down else key for key in keys)} LIMIT $14",
        *filters,
        after,
        limit,
        *([since] if by_sales else ()),
    )
    return [PackageRow(**{**row, "package": _decode(row["package"])}) for row in rows]


class Edit(NamedTuple):
    """Who changed a package last, and when."""

    author: str
    at: datetime


async def last_edit(connection: Connection, package_code: str) -> Edit | None:
    """Among the newest EDITS_LOOKED_AT entries of the audit log."""
    row = await connection.fetchrow(
        "SELECT author, at FROM audit_log WHERE audit_id > (SELECT max(audit_id) - $2 FROM audit_log)"
        " AND action IN ('catalog.create', 'catalog.edit') AND detail ->> 'package' = $1"
        " ORDER BY audit_id DESC LIMIT 1",
        package_code,
        EDITS_LOOKED_AT,
    )
    return Edit(**row) if row else None


async def count_packages(connection: Connection, filters: PackageFilter) -> int:
    return await connection.fetchval(f"SELECT count(*) FROM {_PACKAGES} WHERE {_MATCHING}", *filters) or 0


async def count_states(connection: Connection, filters: PackageFilter, since: date) -> States:
    """Of those that match, whatever their state. `since`: the first day whose sales count."""
    row = await connection.fetchrow(
        f"SELECT count(*) AS every, count(*) FILTER (WHERE document ->> 'status' = 'ON_SALE' AND NOT {_SOLD_OUT})"
        "  AS on_sale,"
        " count(*) FILTER (WHERE document ->> 'status' = 'OFF_SALE') AS off_sale,"
        f" count(*) FILTER (WHERE {_SOLD_OUT}) AS sold_out, count(*) FILTER (WHERE package_code IN"
        "  (SELECT package_code FROM report_all WHERE day >= $13 AND sold > 0)) AS sold"
        f" FROM {_PACKAGES} WHERE {_MATCHING}",
        *filters._replace(status=None, sold_out=None, sold_since=None),
        since,
    )
    assert row is not None, "a count has a row"
    return States(**row)


class Costs(NamedTuple):
    """Of how many packages the cost is known, and how many of those on sale cost more than their dealer price."""

    known: int
    losses: int


async def costs(connection: Connection) -> Costs:
    row = await connection.fetchrow(
        "SELECT count(*) AS known, count(*) FILTER (WHERE r.cost > (p.document ->> 'price')::bigint"
        "  AND p.document ->> 'status' = 'ON_SALE') AS losses FROM route r JOIN package p USING (package_code)"
        " WHERE r.position = 0 AND r.cost_currency = p.document ->> 'currency'"
    )
    assert row is not None, "a count has a row"
    return Costs(**row)


async def places(connection: Connection) -> list[tuple[str, str]]:
    """(code, name) of every place that packages are made for, by name."""
    rows = await connection.fetch(
        "SELECT DISTINCT document ->> 'location_code' AS code, document ->> 'location_name' AS name FROM package"
        " ORDER BY 2, 1"
    )
    return [(row["code"], row["name"]) for row in rows]


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
