"""How does a dealer do? Its sales of 30 days beside those before, how long its balance lasts, and how its endpoint
answers: for the list of dealers and the page of one."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.shared import reports
from dealer_server.db.connection import Connection
from dealer_server.rules.axis import Number
from dealer_server.rules.incidents.dealer import is_low
from dealer_server.rules.incidents.receiver import Health, health
from dealer_server.rules.period import period
from dealer_server.rules.reports import recent
from dealer_server.rules.reports.period import day_of
from dealer_server.rules.reports.recent import Recent, days_left
from dealer_server.rules.reports.sums import DaySums, Sums
from dealer_server.store.console.dealers import Dealer, DealerRow
from dealer_server.store.reports import report
from dealer_server.store.webhooks import answers
from dealer_server.store.webhooks.answers import Answered

LONG_DAYS = 60
"""A balance that lasts longer is not told of."""


class ExportedDealer(NamedTuple):
    row: DealerRow
    health: Health


class ListedDealer(NamedTuple):
    """`days_left`: None where nothing was spent lately, or it lasts long. `numbers`: its revenue of 30 days."""

    row: DealerRow
    health: Health
    recent: Recent
    numbers: Sequence[Number]
    days_left: int | None

    @property
    def is_low(self) -> bool:
        return is_low(self.days_left)


class Sales(NamedTuple):
    """Of the page of a dealer. `changes`: by property of Sums, of the days that are over; `days_left` as above."""

    recent: Recent
    total: Sums
    changes: Mapping[str, str]
    refunded: str
    days_left: int | None

    @property
    def is_low(self) -> bool:
        return is_low(self.days_left)


async def endpoint_answers(connection: Connection, tenant_ids: Sequence[int], now: datetime) -> Mapping[int, Answered]:
    """Of the attempts of the last 24 hours, which say on every page how healthy an endpoint is."""
    return await answers.of_dealers(connection, tenant_ids, period("24h", None, None, now).start)


async def of_rows(connection: Connection, rows: Sequence[DealerRow], now: datetime) -> list[ListedDealer]:
    ids, today = [row.tenant_id for row in rows], day_of(now)
    wanted = report.Filter(recent.compared(today))
    days = dict[int, list[DaySums]]()
    for found in await report.among(connection, wanted, ["dealer", "day"], ids) if ids else ():
        one = DaySums(found.keys["day"], found.currency, found.sums)
        days.setdefault(found.keys["dealer"], []).append(one)
    answered = await endpoint_answers(connection, ids, now)

    def listed(row: DealerRow) -> ListedDealer:
        sold = recent.recent(days.get(row.tenant_id, ()), row.currency, today)
        numbers = reports.amounts(sold.sums, "revenue", row.currency)
        left = _told(days_left(row.balance + row.credit_limit, sold))
        return ListedDealer(row, word(row, answered), sold, numbers, left)

    return [listed(row) for row in rows]


async def exported(connection: Connection, rows: Sequence[DealerRow], now: datetime) -> list[ExportedDealer]:
    answered = await endpoint_answers(connection, [row.tenant_id for row in rows], now)
    return [ExportedDealer(row, word(row, answered)) for row in rows]


def word(row: DealerRow, answered: Mapping[int, Answered]) -> Health:
    one = answered.get(row.tenant_id, Answered())
    return health(row.endpoint, row.consecutive_failures, row.last_success_at, one.accepted, one.attempts)


async def sales(connection: Connection, dealer: Dealer, now: datetime) -> Sales:
    today = day_of(now)
    days = await report.by_day(connection, report.Filter(recent.compared(today), dealer.tenant_id))
    found = recent.recent(days, dealer.currency, today)
    total = found.total
    changes = reports.changes(found.sums[:-1], found.before[1:])
    refunded = f"{100 * total.refunds / total.revenue:.1f} % of revenue" if total.revenue else ""
    return Sales(found, total, changes, refunded, _told(days_left(dealer.available, found)))


def _told(days: int | None) -> int | None:
    return days if days is not None and days <= LONG_DAYS else None
