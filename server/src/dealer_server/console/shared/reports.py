"""Reports and monthly statements, as operators and dealers see them: which days, in which groups, and as files."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Download, NotFound, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.reports.statement import Statement, statement
from dealer_server.rules import dates
from dealer_server.rules.money import money
from dealer_server.rules.period import change_text
from dealer_server.rules.reports import period as periods
from dealer_server.rules.reports import stack as rules_of_stack
from dealer_server.rules.reports import sums as rules
from dealer_server.rules.reports.period import PRESETS, Month, Period
from dealer_server.rules.reports.stack import Stack
from dealer_server.rules.reports.statement import Kind, account
from dealer_server.rules.reports.sums import DaySums, Sums
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.reports import report
from dealer_server.store.reports import statement as statement_store
from dealer_server.store.reports.report import Filter, Freshness, Row

SHOWN = 100
EXPORTED = 100_000
MONTHS = 12
STACKED_DAYS = 62
BEHIND = 20_000
"""Ledger entries: with more of them left, a report says that it is not complete."""
WORDS: Mapping[str, str] = {
    "day": "Day", "dealer": "Dealer", "package": "Package", "supplier": "Supplier",
    "place": "Place",
}  # fmt: skip
FILTERS = ("range", "from", "to", "by", "then", "dealer", "package", "supplier")
DRAWN = ("split",)
"""What an address says of the chart."""
SPLIT, WHOLE = "1", "0"
"""Its values: the chart of a report by dealer is split unless it is to be whole."""


class Question(NamedTuple):
    """What a report is asked. `preset`: "" for days of one's own; `problem`: what is wrong with those. `split`: the
    chart shows the groups."""

    wanted: Filter
    by: Sequence[str]
    preset: str
    problem: str
    split: bool


class Group(NamedTuple):
    """A row. `names`: of each key, its text and what stands below it; `sums` in `currency`. `change`: by how much its
    revenue of the days that are over is more or less than that of as many before; "" where there is nothing to compare
    with."""

    keys: Mapping[str, Any]
    names: Mapping[str, tuple[str, str]]
    currency: str
    sums: Sums
    change: str = ""


class Report(NamedTuple):
    """`more`: there are more groups than these. `before`: the sums of as many days before, day by day; `changes`: by
    how much a sum of the days that are over is more or less than that of as many before, "" where there is none.
    `subtotals`: of two keys, the sums of each value of the first, by it and the currency. `stack`: what the groups
    sold by day, where that is asked for."""

    question: Question
    groups: Sequence[Group]
    more: bool
    totals: Mapping[str, Sums]
    currency: str
    days: Sequence[datetime]
    series: Sequence[Sums]
    before: Sequence[Sums]
    changes: Mapping[str, str]
    freshness: Freshness
    subtotals: Mapping[tuple[Any, str], Group]
    stack: Stack | None

    @property
    def late(self) -> bool:
        return self.freshness.rebuilding is not None or self.freshness.behind > BEHIND


def question(context: RequestContext, allowed: Sequence[str], tenant_id: int | None = None) -> Question:
    """`allowed`: what may be grouped by; `tenant_id`: the dealer who asks, who names no suppliers."""
    query, today = context.query, periods.day_of(context.now)
    by = params.one_of(query, "by", tuple(allowed)) or allowed[0]
    then = params.one_of(query, "then", tuple(allowed))
    preset = params.one_of(query, "range", tuple(PRESETS)) or ""
    first, last = query.get("from", "").strip(), query.get("to", "").strip()
    problem = ""
    if not preset and (first or last):
        try:
            period = periods.between(first, last, today)
        except ValueError as why:
            period, preset, problem = periods.preset("30-days", today), "30-days", str(why)
    else:
        preset = preset or "30-days"
        period = periods.preset(preset, today)
    mine = tenant_id is not None
    wanted = Filter(
        period,
        tenant_id if mine else params.number(query, "dealer"),
        params.text(query, "package"),
        None if mine else params.text(query, "supplier"),
    )
    split = query.get("split", SPLIT if by == "dealer" and not then else WHOLE) == SPLIT
    return Question(wanted, [by, then] if then and then != by else [by], preset, problem, split)


async def load(context: RequestContext, asked: Question) -> Report:
    async with context.parts.database.connection() as connection:
        both = Period(asked.wanted.period.before.first, asked.wanted.period.last)
        rows = await report.grouped(connection, asked.wanted, asked.by, SHOWN + 1)
        every = await report.by_day(connection, asked.wanted._replace(period=both))  # has what was counted meanwhile
        freshness = await report.freshness(connection, asked.wanted.tenant_id)
        groups = await _compared(connection, asked, await _named(connection, rows[:SHOWN]), context.now)
        subtotals = await _subtotals(connection, asked, groups, context.now)
        days = asked.wanted.period.days
        totals = rules.totals(one for one in every if one.day >= days[0]) or {"USD": Sums()}
        currency = next(iter(totals))
        stacked = await _stacked(connection, asked, rows, currency, every) if asked.split else None
    series = rules.series(every, currency, days)
    before = rules.series(every, currency, asked.wanted.period.before.days)
    over = len([day for day in days if day < periods.day_of(context.now)])
    return Report(
        question=asked,
        groups=groups,
        more=len(rows) > SHOWN,
        totals=totals,
        currency=currency,
        days=[periods.start_of(day) for day in days],
        series=series,
        before=before,
        changes=changes(series[:over], before[len(before) - over :]),
        freshness=freshness,
        subtotals=subtotals,
        stack=stacked,
    )


async def _subtotals(
    connection: Connection, asked: Question, groups: Sequence[Group], now: datetime
) -> dict[tuple[Any, str], Group]:
    """Of two keys, those of each value of the first that is shown, by it and the currency."""
    if len(asked.by) == 1 or not groups:
        return {}
    first = asked._replace(by=asked.by[:1])
    values = list(dict.fromkeys(group.keys[asked.by[0]] for group in groups))
    rows = await report.among(connection, asked.wanted, first.by, values)
    found = await _compared(connection, first, await _named(connection, rows), now)
    return {(group.keys[asked.by[0]], group.currency): group for group in found}


async def _stacked(
    connection: Connection, asked: Question, rows: Sequence[Row], currency: str, every: Sequence[DaySums]
) -> Stack | None:
    """What those groups sold by day that sold most; `rows`: the first groups."""
    key, days = _split_key(asked), asked.wanted.period.days
    if key is None:
        return None
    layers = rules_of_stack.LAYERS
    most = rows[:layers] if asked.by == [key] else await report.grouped(connection, asked.wanted, [key], layers)
    top = {group.keys[key]: group.names[key][0] for group in await _named(connection, most)}
    by_day = await report.among(connection, asked.wanted, [key, "day"], list(top))
    sold = [(row.keys[key], row.keys["day"], row.sums.revenue) for row in by_day if row.currency == currency]
    total = dict(zip(days, [one.revenue for one in rules.series(every, currency, days)], strict=True))
    return rules_of_stack.stack(top, sold, total) if len(top) > 1 and any(total.values()) else None


def _split_key(asked: Question) -> str | None:
    """What a chart can show parts of. Sums of a package and day are read one by one: of a long time they are too
    many."""
    key, days = next((name for name in asked.by if name != "day"), None), asked.wanted.period.days
    return None if key in ("package", "place") and len(days) > STACKED_DAYS else key


async def _compared(connection: Connection, asked: Question, groups: list[Group], now: datetime) -> list[Group]:
    """The groups with their changes. Those of one day are compared with nothing: they differ by the day of the
    week."""
    wanted, over = asked.wanted, whole_days(asked, now)
    if "day" in asked.by or not groups or over is None:
        return groups
    values = list(dict.fromkeys(group.keys[asked.by[0]] for group in groups))

    async def revenues(period: Period) -> dict[tuple[object, ...], int]:
        rows = await report.among(connection, wanted._replace(period=period), asked.by, values)
        return {(*row.keys.values(), row.currency): row.sums.revenue for row in rows}

    sold = await revenues(over)
    sold_before = await revenues(over.before)

    def change(group: Group) -> str:
        key = *group.keys.values(), group.currency
        before = sold_before.get(key, 0)
        return change_text(sold.get(key, 0), before) if before > 0 else ""

    return [group._replace(change=change(group)) for group in groups]


def whole_days(asked: Question, now: datetime) -> Period | None:
    """The days that are over; None where there are none."""
    first, last = asked.wanted.period
    last = min(last, periods.day_of(now) - periods.DAY)
    return Period(first, last) if first <= last else None


def changes(now: Sequence[Sums], before: Sequence[Sums]) -> dict[str, str]:
    """By property of Sums: +12 %, "no change"; "" where nothing was before."""
    mine, theirs = rules.total(now), rules.total(before)
    return {
        name: change_text(getattr(mine, name), getattr(theirs, name)) if getattr(theirs, name) > 0 else ""
        for name in ("sold", "revenue", "refunds", "cost", "margin", "net")
    }


def grouping(keys: Sequence[str], word: str) -> list[tuple[str, str]]:
    """What a report can be grouped by, to choose from: "By day", where the word is By."""
    return [(key, f"{word} {WORDS[key].lower()}") for key in keys]


def chart(found: Report, name: str, context: RequestContext, path: str) -> dict[str, Any]:
    """What the page draws. `name`: what the revenue is called."""
    stack, currency = found.stack, found.currency
    layers = stack.layers if stack else ()
    return {
        "by_day": (name, amounts(found.series, "revenue", currency)),
        "before": chart_before(found.before, currency),
        "stacked": [
            ("other" if one.name == rules_of_stack.OTHERS else at, one.name, _major(one.revenues, currency))
            for at, one in enumerate(layers, 1)
        ],
        "splits": len(found.groups) > 1 and _split_key(found.question) is not None,
        "split": address(path, context, found.question, split=SPLIT),
        "whole": address(path, context, found.question, split=WHOLE),
    }


def chart_before(before: Sequence[Sums], currency: str) -> list[Decimal]:
    """The revenue of as many days before; nothing where nothing was then."""
    revenues = amounts(before, "revenue", currency)
    return revenues if any(revenues) else []


def amounts(sums: Sequence[Sums], name: str, currency: str) -> list[Decimal]:
    """A property of each, in major units."""
    return _major([getattr(one, name) for one in sums], currency)


def _major(amounts: Iterable[int], currency: str) -> list[Decimal]:
    return [Decimal(money.text(amount, currency)) for amount in amounts]


async def export(context: RequestContext, asked: Question, columns: Mapping[str, str]) -> Download:
    """All groups as CSV; the audit log records who exported them. `columns`: titles by property of Sums."""
    await params.record_export(context, "reports.export", context.user.tenant_id, FILTERS)
    async with context.parts.database.connection() as connection:
        rows = await report.grouped(connection, asked.wanted, asked.by, EXPORTED)
        groups = await _named(connection, rows)
    first, last = asked.wanted.period
    name = f"report-{first:%Y%m%d}-{last:%Y%m%d}.csv"
    return Download(name, "text/csv; charset=utf-8", _csv(asked, groups, columns))


async def _csv(asked: Question, groups: Sequence[Group], columns: Mapping[str, str]) -> AsyncIterator[bytes]:
    heads = [head for key in asked.by for head in _heads(key)]
    yield params.csv_lines([[*heads, "currency", *columns.values()]])
    for at in range(0, len(groups), 5_000):
        yield params.csv_lines([_cells(group, columns) for group in groups[at : at + 5_000]])


def _heads(key: str) -> tuple[str, ...]:
    return {"day": ("day",), "dealer": ("tenantId", "dealer"), "package": ("packageCode", "packageName"),
            "supplier": ("supplier",), "place": ("placeCode", "place")}[key]  # fmt: skip


def _cells(group: Group, columns: Mapping[str, str]) -> list[str]:
    cells = list[str]()
    for key, value in group.keys.items():
        cells += [str(value), group.names[key][0]] if key in ("dealer", "package", "place") else [str(value)]
    return [*cells, group.currency, *(value_text(group.sums, name, group.currency) for name in columns)]


def value_text(sums: Sums, name: str, currency: str) -> str:
    """A figure of a row: a number of eSIMs, a percentage, or an amount in major units."""
    if name == "margin_percent":
        return sums.margin_percent.removesuffix(" %") if sums.complete else ""
    value = getattr(sums, name)
    return str(value) if name in ("sold", "refunded", "costed") else money.text(value, currency)


async def _named(connection: Connection, rows: Sequence[Row]) -> list[Group]:
    dealers = [row.keys["dealer"] for row in rows if "dealer" in row.keys]
    packages = [row.keys["package"] for row in rows if "package" in row.keys]
    dealer_names, package_names = await report.names(connection, dealers, packages)
    codes = list({row.keys["place"] for row in rows if "place" in row.keys})
    place_names = await report.places(connection, codes) if codes else {}

    def name(key: str, value: Any) -> tuple[str, str]:
        if key == "dealer":
            return dealer_names.get(value, str(value)), str(value)
        if key == "package":
            return package_names.get(value) or value, value
        if key == "place":
            return place_names.get(value) or value or "Other", ""
        return (dates.day(value), "") if isinstance(value, date) else (str(value), "")

    return [
        Group(row.keys, {key: name(key, value) for key, value in row.keys.items()}, row.currency, row.sums)
        for row in rows
    ]


def address(path: str, context: RequestContext, asked: Question, **changed: str) -> str:
    """This report with something changed."""
    known = {name: context.query.get(name, "") for name in FILTERS + DRAWN} | {"range": asked.preset}
    return params.address(path, known | changed)


def days_query(period: Period) -> dict[str, str]:
    """What filters a list of orders to these days."""
    return {"from": period.first.isoformat(), "to": period.last.isoformat()}


# Statements


class MonthSums(NamedTuple):
    """A month with a statement; amounts in ten-thousandths."""

    month: Month
    opening: int
    moved: Mapping[Kind, int]
    closing: int


async def months(context: RequestContext, tenant_id: int) -> tuple[str, list[MonthSums]]:
    """The currency of a dealer, and the months that it has statements of, newest first."""
    today = periods.day_of(context.now)
    async with context.parts.database.connection() as connection:
        first = await statement_store.first_day(connection, tenant_id)
        wanted = periods.months(first or today, today, MONTHS)
        balance = await statement_store.opening(connection, tenant_id, wanted[-1].period.first)
        days = await statement_store.days(connection, tenant_id, Period(wanted[-1].period.first, today))
        currency = (await console_dealer.wallet(connection, tenant_id)).currency
    found = list[MonthSums]()
    for month in reversed(wanted):
        of_month = account(balance, [one for one in days if periods.month_of(one.day) == month], month.period)
        moved: dict[Kind, int] = {movement.kind: movement.amount for movement in of_month.movements}
        balance = of_month.closing
        found.insert(0, MonthSums(month, of_month.opening, moved, of_month.closing))
    return currency, found


async def monthly(context: RequestContext, tenant_id: int) -> Statement:
    """The statement that the path names. Raises NotFound, and OperatorError as `statement` does."""
    try:
        month = periods.parse_month(context.path["month"])
    except ValueError:
        raise NotFound from None
    if month.period.first > periods.day_of(context.now):
        raise NotFound
    return await statement(context.parts.database, tenant_id, month, context.now)


async def monthly_pdf(context: RequestContext, tenant_id: int) -> Download:
    from dealer_server.operations.reports.pdf.document import pdf

    found = await monthly(context, tenant_id)
    content = pdf(found, context.parts.settings.platform_name)
    return Download(f"statement-{tenant_id}-{found.month}.pdf", "application/pdf", _once(content))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
