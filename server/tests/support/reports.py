"""Sums of reports as the worker left them, added up by hand where a test wants them at once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.operations.reports.fold import ReportFolder, rebuild


@asynccontextmanager
async def folder(database: Database, facts_at_once: int = 5_000) -> AsyncIterator[ReportFolder]:
    one = ReportFolder(database, facts_at_once)
    yield one
    await one.close()


async def folded(database: Database) -> int:
    """Adds all that is new; how many facts that were."""
    async with folder(database) as one:
        return await one.fold()


async def rebuilt(database: Database) -> None:
    """Adds everything up anew, after a test has changed what was added."""
    await rebuild(database, clock.now, lambda left: None)


async def sums(database: Database, tenant_id: int) -> dict[tuple[str, str, str], tuple[int, ...]]:
    """By package, supplier and currency: sold, revenue, refunded, refunds, costed, cost over all days."""
    rows = await fetch(
        database,
        "SELECT package_code, supplier, currency, sum(sold)::int, sum(revenue)::int, sum(refunded)::int,"
        " sum(refunds)::int, sum(costed)::int, sum(cost)::int FROM report_day WHERE tenant_id = $1 GROUP BY 1, 2, 3",
        tenant_id,
    )
    return {row[:3]: row[3:] for row in rows}


async def kinds(database: Database, tenant_id: int) -> dict[str, tuple[int, int]]:
    """The number of entries of each kind, and their sum."""
    rows = await fetch(
        database,
        "SELECT kind, sum(entries)::int, sum(amount)::bigint FROM wallet_day WHERE tenant_id = $1 GROUP BY kind",
        tenant_id,
    )
    return {row[0]: row[1:] for row in rows}


async def fetch(database: Database, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    async with database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *arguments)]
