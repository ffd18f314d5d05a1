"""What does the statement of a wallet look like as a PDF file?"""

from collections.abc import Callable, Sequence
from datetime import UTC, date
from typing import NamedTuple

from dealer_server.operations.reports.pdf.page import INK, MARGIN, QUIET, RIGHT, Paper
from dealer_server.operations.reports.statement import Statement
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.reports.statement import KINDS, before
from dealer_server.store.wallets.ledger import Entry

ROW = 15.0
_DAY_END = 128.0
_ENTRY_WORDS = {"ORDER_PAY": "Order", "REFUND": "Refund", "TOPUP": "Top-up", "ADJUST": "Adjustment"}


class Column(NamedTuple):
    """`at`: where it begins, or where its numbers end."""

    title: str
    at: float
    is_number: bool = False
    most: float | None = None


def pdf(statement: Statement, platform: str) -> bytes:
    """The same statement gives the same bytes. `platform`: the name that stands above it."""
    title = f"Statement of dealer {statement.tenant_id}, {statement.month.title}"
    paper = Paper(title, platform, f"{platform} · {title}")
    _head(paper, statement, platform)
    _summary(paper, statement)
    _packages(paper, statement)
    if statement.entries is None:
        _days(paper, statement)
    elif statement.entries:
        _entries(paper, statement, statement.entries)
    return paper.finished()


def amount_text(amount: int, currency: str) -> str:
    """1,234.50; −1,234.50 below zero."""
    whole, point, fraction = money.text(abs(amount), currency).partition(".")
    return f"{'−' if amount < 0 else ''}{int(whole):,}{point}{fraction}"


def _head(paper: Paper, statement: Statement, platform: str) -> None:
    first, last = statement.month.period
    paper.y -= 12
    paper.text(MARGIN, platform, 11, bold=True, most=300)
    paper.number(RIGHT, "Statement", 11, grey=QUIET)
    paper.line(10)
    paper.y -= 44
    paper.text(MARGIN, statement.dealer, 17, bold=True, most=RIGHT - MARGIN)
    paper.y -= 20
    so_far = "" if statement.complete else ". The month is not over: this is the statement so far"
    paper.text(MARGIN, f"Dealer {statement.tenant_id} · {_day(first)} to {_day(last)} (UTC){so_far}", 9, grey=QUIET)
    paper.y -= 14
    paper.text(MARGIN, f"All amounts in {statement.currency}", 9, grey=QUIET)
    paper.y -= 30


def _summary(paper: Paper, statement: Statement) -> None:
    account, currency = statement.account, statement.currency
    heads = (Column("Wallet", MARGIN), Column("Entries", 400, True), Column(f"Amount, {currency}", RIGHT, True))
    _table_head(paper, heads)
    opening = f"Opening balance, end of {_day(before(statement.month.period))}"
    _row(paper, heads, (opening, "", amount_text(account.opening, currency)))
    for movement in account.movements:
        cells = KINDS[movement.kind], f"{movement.entries:,}", amount_text(movement.amount, currency)
        _row(paper, heads, cells)
    closing = f"Closing balance, end of {_day(statement.month.period.last)}" if statement.complete else "Balance so far"
    _row(paper, heads, (closing, f"{account.entries:,}", amount_text(account.closing, currency)), bold=True)
    paper.y -= 18


def _packages(paper: Paper, statement: Statement) -> None:
    if not statement.packages:
        return
    currency = statement.currency
    heads = (
        Column("Package", MARGIN, most=190),
        Column("Sold", 280, True),
        Column("Paid", 355, True),
        Column("Refunded", 415, True),
        Column("Refunds", 480, True),
        Column("Net", RIGHT, True),
    )
    _section(paper, heads, "By package")
    for one in statement.packages:
        name = f"{one.name} ({one.package_code})" if one.name else one.package_code
        paid, back = amount_text(one.revenue, currency), amount_text(-one.refunds, currency)
        cells = (
            name,
            f"{one.sold:,}",
            paid,
            f"{one.refunded:,}",
            back,
            amount_text(one.revenue - one.refunds, currency),
        )
        _row(paper, heads, cells, again=heads)
    sums = [sum(column) for column in zip(*((p.sold, p.revenue, p.refunded, p.refunds) for p in statement.packages),
                                          strict=True)]  # fmt: skip
    sold, revenue, refunded, refunds = sums
    total = ("Total", f"{sold:,}", amount_text(revenue, currency), f"{refunded:,}", amount_text(-refunds, currency),
             amount_text(revenue - refunds, currency))  # fmt: skip
    _row(paper, heads, total, bold=True)
    paper.y -= 18


def _days(paper: Paper, statement: Statement) -> None:
    step = (RIGHT - _DAY_END) / (len(KINDS) + 1)
    kinds = (Column(KINDS[kind], _DAY_END + step * number, True) for number, kind in enumerate(KINDS, 1))
    heads = (Column("Day", MARGIN), Column("Entries", _DAY_END, True), *kinds, Column("Balance", RIGHT, True))
    _section(paper, heads, f"By day: {statement.account.entries:,} entries", 7)
    for one in statement.account.days:
        amounts = [amount_text(one.amounts.get(kind, 0), statement.currency) for kind in KINDS]
        cells = (str(one.day), f"{one.entries:,}", *amounts, amount_text(one.balance, statement.currency))
        _row(paper, heads, cells, again=heads, size=7)


def _entries(paper: Paper, statement: Statement, entries: Sequence[Entry]) -> None:
    heads = (
        Column("Time (UTC)", MARGIN),
        Column("Entry", 160),
        Column("Number", 240),
        Column("Amount", 460, True),
        Column("Balance", RIGHT, True),
    )
    _section(paper, heads, "Entries")
    for entry in entries:
        cells = (
            f"{entry.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
            _ENTRY_WORDS[entry.entry_type],
            _number(entry),
            amount_text(entry.amount, statement.currency),
            amount_text(entry.balance_after, statement.currency),
        )
        _row(paper, heads, cells, again=heads)


def _number(entry: Entry) -> str:
    if entry.order_id is not None:
        return identity.order_no(entry.order_id)
    return "" if entry.topup_id is None else identity.topup_no(entry.topup_id)


def _section(paper: Paper, heads: Sequence[Column], title: str, size: float = 8) -> None:
    paper.room_for(5 * ROW)
    paper.text(MARGIN, title, 11, bold=True)
    paper.y -= 20
    _table_head(paper, heads, size)


def _table_head(paper: Paper, heads: Sequence[Column], size: float = 8) -> None:
    for column in heads:
        write: Callable[..., None] = paper.number if column.is_number else paper.text
        write(column.at, column.title, size, grey=QUIET)
    paper.line(5, QUIET)
    paper.y -= ROW + 2


def _row(
    paper: Paper, heads: Sequence[Column], cells: Sequence[str], *, bold: bool = False,
    again: Sequence[Column] | None = None, size: float = 8.5,
) -> None:  # fmt: skip
    """`again`: the head that begins the next page."""
    if not paper.room_for(ROW) and again:
        paper.y -= 12
        _table_head(paper, again, min(size, 8))
    for column, cell in zip(heads, cells, strict=True):
        if column.is_number:
            paper.number(column.at, cell, size, bold=bold)
        else:
            paper.text(column.at, cell, size, bold=bold, grey=INK, most=column.most)
    paper.line(4.5)
    paper.y -= ROW


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
