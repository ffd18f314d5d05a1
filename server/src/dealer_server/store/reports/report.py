"""What were the sums of some days, by day, dealer, package or supplier?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.sums import DaySums, Sums

KEYS: Mapping[str, str] = {"day": "day", "dealer": "tenant_id", "package": "package_code", "supplier": "supplier"}
"""What a report may be grouped by, and its column."""
_SUMS = ", ".join(f"sum({name})::bigint AS {name}" for name in Sums._fields)
_WORK_MEMORY = "64MB"
"""For the groups of one report: a hash in memory takes a third of the time of a sort on disk."""
_WANTED = (
    "FROM {table} WHERE day BETWEEN $1 AND $2 AND ($3::text IS NULL OR package_code = $3)"
    " AND ($4::text IS NULL OR supplier = $4)"
)


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
        f"SELECT day, currency, {_SUMS} {_source(wanted)} GROUP BY day, currency ORDER BY day, currency",
        *_arguments(wanted),
    )
    return [DaySums(row["day"], row["currency"], _sums(row)) for row in rows]


async def grouped(connection: Connection, wanted: Filter, by: Sequence[str], limit: int) -> list[Row]:
    """The first groups, by one or two of KEYS and the currency: newest days first, then the most revenue."""
    keys = [KEYS[name] for name in by]
    order = [*(f"{key} DESC" for key in keys if key == "day"), "sum(revenue) DESC", "sum(cost) DESC", *keys, "currency"]
    async with connection.transaction():
        await connection.execute(f"SET LOCAL work_mem = '{_WORK_MEMORY}'")
        rows = await connection.fetch(
            f"SELECT {', '.join(keys)}, currency, {_SUMS} {_source(wanted, by)} GROUP BY {', '.join(keys)}, currency"
            " HAVING (sum(sold), sum(revenue), sum(refunded), sum(refunds), sum(costed), sum(cost))"
            f" <> (0, 0, 0, 0, 0, 0) ORDER BY {', '.join(order)} LIMIT $5",
            *_arguments(wanted),
            limit,
        )
    return [Row({name: row[KEYS[name]] for name in by}, row["currency"], _sums(row)) for row in rows]


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
        "SELECT coalesce(sum(w.version - coalesce(c.version, 0)), 0)::bigint AS behind,"
        " (SELECT started_at FROM report_rebuild) AS rebuilding"
        " FROM wallet w LEFT JOIN report_cursor c USING (tenant_id) WHERE $1::bigint IS NULL OR w.tenant_id = $1",
        tenant_id,
    )
    assert row is not None, "a sum has a row"
    return Freshness(**row)


def _source(wanted: Filter, by: Sequence[str] = ()) -> str:
    """The sums of all dealers, unless one is wanted or each."""
    if wanted.tenant_id is not None:
        return f"{_WANTED.format(table='report_day')} AND tenant_id = {wanted.tenant_id:d}"
    return _WANTED.format(table="report_day" if "dealer" in by else "report_all")


def _arguments(wanted: Filter) -> tuple[object, ...]:
    return *wanted.period, wanted.package_code, wanted.supplier


def _sums(row: Any) -> Sums:
    return Sums(**{name: row[name] for name in Sums._fields})
