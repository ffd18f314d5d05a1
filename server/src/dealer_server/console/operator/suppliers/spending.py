"""What was bought from suppliers in 30 days, and for how long does our balance at each last?"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import Period
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter

SUPPLIERS = 100
LOW_DAYS = 7
"""A balance that lasts no longer is to be topped up."""


class Spending(NamedTuple):
    """`bought`: purchases and their cost, by currency, in 30 days. `days_left`: of the balance, at the cost of the last
    7 whole days; None where one of them is not known."""

    bought: Mapping[str, Sums]
    days_left: int | None

    @property
    def is_low(self) -> bool:
        return self.days_left is not None and self.days_left <= LOW_DAYS


async def spending(connection: Connection, rows: Sequence[SupplierRow], today: date) -> Mapping[str, Spending]:
    """By code."""
    bought = await _by_supplier(connection, recent.shown(today))
    lately = await _by_supplier(connection, recent.pace(today))
    return {row.code: Spending(bought.get(row.code, {}), _days_left(row, lately.get(row.code, {}))) for row in rows}


async def _by_supplier(connection: Connection, period: Period) -> Mapping[str, Mapping[str, Sums]]:
    found: dict[str, dict[str, Sums]] = {}
    for row in await report.grouped(connection, Filter(period), ("supplier",), SUPPLIERS):
        if row.sums.costed:
            found.setdefault(row.keys["supplier"], {})[row.currency] = row.sums
    return found


def _days_left(row: SupplierRow, lately: Mapping[str, Sums]) -> int | None:
    if row.balance is None or row.currency is None or row.currency not in lately:
        return None
    return recent.lasts(row.balance, lately[row.currency].cost)
