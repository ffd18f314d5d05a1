"""What were the sums of some days, by day, dealer, package or supplier?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.sums import DaySums, Sums

KEYS: Mapping[str, str] = {
    "day": "day", "dealer": "tenant_id", "package": "package_code", "supplier": "supplier", "place": "place",
}  # fmt: skip
"""What a report may be grouped by, and its column."""
_TYPES: Mapping[str, str] = {"day": "date", "dealer": "bigint", "package": "text", "supplier": "text", "place": "text"}
_SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in Sums._fields)
_WORK_MEMORY = "64MB"
"""For the groups of one report: a hash in memory takes a third of the time of a sort on disk."""
_FIRST_VALUES = 4
"""Of the first of two keys so many values are looked into, then four times as many."""
_WANTED = "day BETWEEN $1 AND $2 AND ($3::text IS NULL OR package_code = $3) AND ($4::text IS NULL OR supplier = $4)"


_PLACED = (
    "(SELECT s.*, coalesce(p.place, '') AS place FROM {rows} LEFT JOIN (SELECT package_code,"
    " document ->> 'location_code' AS place FROM package) p ON p.package_code = s.package_code) s"
)
"""With the place where each package works; '' of one that is not in the catalogue any more."""


class Filter(NamedTuple):
    period: Period
    tenant_id: int | None = None
    package_code: str | None = None
    supplier: str | None = None


class Row(NamedTuple):
    """`keys`: what it is the sum of, by name of KEYS."""

    keys: Mapping[str, Any]
    currency: str
    sums: Sums


async def by_day(connection: Connection, wanted: Filter) -> list[DaySums]:
    """Each day with anything, in each currency."""
    rows = await connection.fetch(
        f"SELECT day, currency, {_SUMS} {_from(wanted, ('day',))} GROUP BY day, currency ORDER BY day, currency",
        *_arguments(wanted),
    )
    return [DaySums(row["day"], row["currency"], _sums(row)) for row in rows]


async def grouped(connection: Connection, wanted: Filter, by: Sequence[str], limit: int) -> list[Row]:
    """The first groups, by one or two of KEYS and the currency: the newest days first, of others those with the most
    revenue. Of two keys, the groups of one value of the first stand together."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL work_mem = '{_WORK_MEMORY}'")
        if len(by) == 1:
            return await _groups(connection, wanted, by, limit)
        return await _nested(connection, wanted, by, limit)


async def _nested(connection: Connection, wanted: Filter, by: Sequence[str], limit: int) -> list[Row]:
    """Only so many values of the first key are looked into as these groups need."""
    values = dict.fromkeys(row.keys[by[0]] for row in await _groups(connection, wanted, by[:1], None))
    at, some, found = 0, _FIRST_VALUES, list[Row]()
    while at < len(values) and len(found) < limit:
        found += await _groups(connection, wanted, by, limit - len(found), list(values)[at : at + some])
        at, some = at + some, some * _FIRST_VALUES
    return found


async def _groups(
    connection: Connection, wanted: Filter, by: Sequence[str], limit: int | None, among: Sequence[Any] | None = None
) -> list[Row]:
    """`among`: the values of the first key that are wanted, in their order; None: all."""
    keys = [KEYS[name] for name in by]
    order = [*(f"{key} DESC" for key in keys if key == "day"), "sum(revenue) DESC", "sum(cost) DESC", *keys, "currency"]
    arguments = [*_arguments(wanted), limit]
    only = ""
    if among is not None:
        values = f"$6::{_TYPES[by[0]]}[]"
        only = f"AND {keys[0]} = ANY({values})"
        order.insert(0, f"array_position({values}, {keys[0]})")
        arguments.append(among)
    rows = await connection.fetch(
        f"SELECT {', '.join(keys)}, currency, {_SUMS} {_from(wanted, by)} {only} GROUP BY {', '.join(keys)}, currency"
        " HAVING (sum(sold), sum(revenue), sum(refunded), sum(refunds), sum(costed), sum(cost))"
        f" <> (0, 0, 0, 0, 0, 0) ORDER BY {', '.join(order)} LIMIT $5",
        *arguments,
    )
    return [Row({name: row[KEYS[name]] for name in by}, row["currency"], _sums(row)) for row in rows]


async def among(connection: Connection, wanted: Filter, by: Sequence[str], values: Sequence[Any]) -> list[Row]:
    """The groups of these values of the first key."""
    return await _groups(connection, wanted, by, None, values)


async def names(
    connection: Connection, dealers: Sequence[int], packages: Sequence[str]
) -> tuple[dict[int, str], dict[str, str]]:
    """Of dealers and of packages."""
    tenants = await connection.fetch("SELECT tenant_id, name FROM tenant WHERE tenant_id = ANY($1::bigint[])", dealers)
    sold = await connection.fetch(
        "SELECT package_code, document ->> 'package_name' AS name FROM package WHERE package_code = ANY($1::text[])",
        packages,
    )
    return {row["tenant_id"]: row["name"] for row in tenants}, {row["package_code"]: row["name"] for row in sold}


async def places(connection: Connection, codes: Sequence[str]) -> dict[str, str]:
    """The names of places by their codes."""
    rows = await connection.fetch(
        "SELECT document ->> 'location_code' AS code, min(document ->> 'location_name') AS name FROM package"
        " WHERE document ->> 'location_code' = ANY($1::text[]) GROUP BY 1",
        codes,
    )
    return {row["code"]: row["name"] for row in rows}


async def suppliers(connection: Connection) -> list[str]:
    """Those that a report may name."""
    rows = await connection.fetch(
        "SELECT code FROM supplier UNION SELECT DISTINCT document ->> 'supplier' FROM package ORDER BY 1"
    )
    return [row["code"] for row in rows]


class Freshness(NamedTuple):
    """How many ledger entries are not in the sums yet. `rebuilding`: since when everything is added up anew."""

    behind: int
    rebuilding: datetime | None


async def freshness(connection: Connection, tenant_id: int | None = None) -> Freshness:
    row = await connection.fetchrow(
        "SELECT behind, (SELECT started_at FROM report_rebuild) AS rebuilding FROM ("
        "  SELECT coalesce(sum(w.version - coalesce(c.version, 0)), 0)::bigint AS behind"
        "  FROM wallet w LEFT JOIN report_cursor c USING (tenant_id) WHERE $1::bigint IS NULL OR w.tenant_id = $1) w",
        tenant_id,
    )
    assert row is not None, "a sum has a row"
    return Freshness(**row)


def _from(wanted: Filter, by: Sequence[str]) -> str:
    """The fewest sums that come to what is asked: of months where days are not told apart."""
    dealers = wanted.tenant_id is not None or "dealer" in by
    packages = wanted.package_code is not None or "package" in by or "place" in by
    tenant = f"= {wanted.tenant_id:d}" if wanted.tenant_id is not None else "> 0" if dealers else "= 0"
    months = f"FROM report_sum WHERE kind = '{'PACKAGE_MONTH' if packages else 'MONTH'}' AND tenant_id {tenant}"
    if not packages:
        days = f"FROM report_sum WHERE kind = 'DAY' AND tenant_id {tenant}"
    elif dealers:
        days = f"FROM report_day WHERE tenant_id {tenant}"
    else:
        days = "FROM report_all WHERE true"
    columns = ", ".join(
        ("day", *(["tenant_id"] if dealers else []), "package_code", "supplier", "currency", *Sums._fields)
    )
    start, end = wanted.period.whole_months
    parts = [days]
    if "day" not in by and start < end:
        parts = [f"{months} AND day >= '{start}' AND day < '{end}'"]
        parts += [f"{days} AND day < '{start}'", f"{days} AND day >= '{end}'"]
    rows = f"({' UNION ALL '.join(f'SELECT {columns} {part}' for part in parts)}) s"
    return f"FROM {_PLACED.format(rows=rows) if 'place' in by else rows} WHERE {_WANTED}"


def _arguments(wanted: Filter) -> tuple[object, ...]:
    return *wanted.period, wanted.package_code, wanted.supplier


def _sums(row: Any) -> Sums:
    return Sums(**{name: row[name] for name in Sums._fields})
