"""Whichever sums a report reads, of days, of months or of all dealers, its groups are those of the days."""

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import date, timedelta
from itertools import pairwise, permutations
from typing import Any

import pytest

from dealer_server.db.database import Database
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter
from support.reports import fetch

FIRST = date(2026, 1, 1)
DEALERS = range(1, 13)
PACKAGES = (*(f"P{number}" for number in range(7)), "TEST-OK", "TEST-ASYNC")
"""The last two are in the catalogue, so that their place is known."""
PLACE = "coalesce((SELECT document ->> 'location_code' FROM package p WHERE p.package_code = r.package_code), '')"
ADDED = """
INSERT INTO report_day AS r SELECT * FROM unnest($1::bigint[], $2::date[], $3::text[], $4::text[], $5::text[],
    $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
ON CONFLICT (tenant_id, day, package_code, supplier, currency) DO UPDATE SET sold = r.sold + excluded.sold,
    revenue = r.revenue + excluded.revenue
"""
OF_ALL = """
INSERT INTO report_all SELECT day, package_code, supplier, currency, sum(sold), sum(revenue), sum(refunded),
    sum(refunds), sum(costed), sum(cost) FROM report_day GROUP BY 1, 2, 3, 4
"""
PERIODS = [
    Period(FIRST, date(2026, 6, 30)),
    Period(date(2026, 1, 20), date(2026, 4, 10)),
    Period(date(2026, 2, 1), date(2026, 2, 28)),
    Period(date(2026, 3, 5), date(2026, 3, 25)),
    Period(date(2026, 5, 31), date(2026, 5, 31)),
]


@pytest.fixture(scope="module")
async def database(database_url: str) -> AsyncIterator[Database]:
    """Sums of half a year: added in several steps, some of them taken away again."""
    made = random.Random(7)
    opened = await Database.open(database_url)
    for _ in range(4):
        rows = {}
        for _ in range(600):
            day = FIRST + timedelta(days=made.randrange(181))
            key = made.choice(DEALERS), day, made.choice(PACKAGES), made.choice("st"), made.choice(("USD", "EUR"))
            rows[key] = [made.randrange(1, 1000) for _ in Sums._fields]
        columns = [list(column) for column in zip(*[(*key, *sums) for key, sums in rows.items()], strict=True)]
        await fetch(opened, ADDED, *columns)
        await fetch(opened, "DELETE FROM report_day WHERE tenant_id = $1 AND day > $2", 3, date(2026, 4, 4))
    await fetch(opened, "UPDATE report_day SET day = day + 181 WHERE tenant_id = 5 AND day < $1", date(2026, 2, 9))
    await fetch(opened, OF_ALL)
    yield opened
    await opened.close()


async def expected(database: Database, wanted: Filter, by: Sequence[str]) -> dict[tuple[Any, ...], Sums]:
    keys = [PLACE if name == "place" else report.KEYS[name] for name in by]
    sql = f"SELECT {', '.join(keys)}, currency, {', '.join(Sums._fields)} FROM report_day r WHERE day BETWEEN $1 AND $2"
    sql += " AND tenant_id = coalesce($3, tenant_id) AND package_code = coalesce($4, package_code)"
    sql += " AND supplier = coalesce($5, supplier)"
    found: dict[tuple[Any, ...], Sums] = defaultdict(Sums)
    rows = await fetch(database, sql, *wanted.period, wanted.tenant_id, wanted.package_code, wanted.supplier)
    for row in rows:
        key = row[: len(by) + 1]
        found[key] = found[key].plus(Sums(*row[len(by) + 1 :]))
    return found


@pytest.mark.parametrize("period", PERIODS, ids=str)
@pytest.mark.parametrize("by", [*permutations(report.KEYS, 1), *permutations(report.KEYS, 2)], ids=" and ".join)
async def test_groups_are_those_of_the_days(database: Database, by: tuple[str, ...], period: Period):
    for tenant_id, package, supplier in [(None, None, None), (4, None, None), (None, "P1", None), (5, "P2", "s")]:
        wanted = Filter(period, tenant_id, package, supplier)
        async with database.connection() as connection:
            rows = await report.grouped(connection, wanted, by, 100_000)
            some = await report.grouped(connection, wanted, by, 7)
            days = await report.by_day(connection, wanted)
        sums = {(*row.keys.values(), row.currency): row.sums for row in rows}
        assert len(sums) == len(rows) and sums == await expected(database, wanted, by)
        assert some == rows[:7]
        assert {(one.day, one.currency): one.sums for one in days} == await expected(database, wanted, ("day",))


async def test_of_two_keys_the_first_is_in_the_order_it_has_alone(database: Database):
    wanted = Filter(PERIODS[0])
    async with database.connection() as connection:
        dealers = await report.grouped(connection, wanted, ["dealer"], 100)
        rows = await report.grouped(connection, wanted, ["dealer", "package"], 1_000)
    order = dict.fromkeys(row.keys["dealer"] for row in dealers)
    assert list(dict.fromkeys(row.keys["dealer"] for row in rows)) == list(order)
    switches = sum(one.keys["dealer"] != next_one.keys["dealer"] for one, next_one in pairwise(rows))
    assert switches == len(order) - 1
