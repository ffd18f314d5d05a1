"""Periods, sums and statements of reports, without a database."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.reports import period as periods
from dealer_server.rules.reports import statement as rules
from dealer_server.rules.reports import sums
from dealer_server.rules.reports.period import Month, Period
from dealer_server.rules.reports.statement import KINDS, DayEntries
from dealer_server.rules.reports.sums import DaySums, Sums

TODAY = date(2026, 3, 1)
DAYS = st.dates(date(2000, 1, 1), date(2099, 12, 31))
AMOUNTS = st.integers(-(10**15), 10**15)


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("this-month", "2026-03-01", "2026-03-01"),
        ("last-month", "2026-02-01", "2026-02-28"),
        ("30-days", "2026-01-31", "2026-03-01"),
    ],
)
def test_presets_end_today_or_with_their_month(name: str, first: str, last: str):
    assert periods.preset(name, TODAY) == Period(date.fromisoformat(first), date.fromisoformat(last))


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [
        ("2026-02-01", "2026-02-01", 1),
        ("", "2026-02-10", 30),
        ("2026-02-27", "", 3),
        ("2026-04-01", "", 1),
        ("", "", 30),
        ("2025-03-01", "2026-03-01", 366),
    ],
)
def test_days_of_ones_own(first: str, last: str, days: int):
    assert len(periods.between(first, last, TODAY).days) == days


@given(DAYS, st.integers(0, 400))
def test_whole_months_are_those_of_which_every_day_is_in_the_period(first: date, more: int):
    period = Period(first, min(first + timedelta(days=more), date(2099, 12, 31)))
    start, end = period.whole_months
    days = dict.fromkeys(map(periods.month_of, period.days), 0)
    for day in period.days:
        days[periods.month_of(day)] += 1
    whole = [month for month, count in days.items() if count == len(month.period.days)]
    assert (start, end) == ((whole[0].period.first, whole[-1].next_first) if whole else (first, first))


@pytest.mark.parametrize(
    ("first", "last", "said"),
    [
        ("2026-02-30", "", "from '2026-02-30'"),
        ("", "yesterday", "to 'yesterday'"),
        ("20260201", "", "from"),
        ("1999-12-31", "", "2000-01-01"),
        ("2026-02-02", "2026-02-01", "must not be after"),
        ("2025-02-28", "2026-03-01", "longer than 366 days"),
    ],
)
def test_days_that_cannot_be_are_named(first: str, last: str, said: str):
    with pytest.raises(ValueError, match=said):
        periods.between(first, last, TODAY)


@given(DAYS)
def test_a_month_holds_its_days_and_the_next_begins_after_it(day: date):
    month = periods.month_of(day)
    assert month.period.first <= day <= month.period.last
    assert month.next_first == month.period.last + timedelta(days=1)
    assert periods.month_of(month.next_first).before == month
    assert periods.parse_month(str(month)) == month


@pytest.mark.parametrize("text", ["2026-13", "2026-1", "1999-12", "2026-10-01", "", "٢٠٢٦-10"])
def test_what_is_no_month_is_refused(text: str):
    with pytest.raises(ValueError, match="2026-10"):
        periods.parse_month(text)


def test_months_are_listed_back_to_the_first_entry():
    assert periods.months(date(2025, 12, 31), TODAY, 12) == [
        Month(2026, 3),
        Month(2026, 2),
        Month(2026, 1),
        Month(2025, 12),
    ]
    assert len(periods.months(date(2020, 1, 1), TODAY, 12)) == 12


KIND = st.sampled_from(list(KINDS))


@given(AMOUNTS, st.dictionaries(st.tuples(st.integers(1, 31), KIND), st.tuples(st.integers(1, 9), AMOUNTS)))
def test_a_statement_adds_up_whatever_moved(opening: int, moved: dict[tuple[int, rules.Kind], tuple[int, int]]):
    entries = [DayEntries(date(2026, 10, day), kind, *values) for (day, kind), values in moved.items()]
    account = rules.account(opening, entries, Month(2026, 10).period)
    assert account.opening + sum(movement.amount for movement in account.movements) == account.closing
    assert [movement.kind for movement in account.movements] == list(KINDS)
    assert account.entries == sum(one.entries for one in entries)
    balance = opening
    for day in account.days:
        balance += sum(day.amounts.values())
        assert day.balance == balance
    assert balance == account.closing
    assert [day.day for day in account.days] == sorted({one.day for one in entries})


def sold(revenue: int, cost: int) -> Sums:
    return Sums(sold=1, revenue=revenue, costed=1, cost=cost)


@pytest.mark.parametrize(
    ("row", "whole", "weak"),
    [
        (sold(100, 77), sold(1000, 700), True),
        (sold(100, 76), sold(1000, 700), False),
        (sold(100, 110), sold(1000, 700), True),
        (sold(100, 110), sold(1000, 1050), False),
        (sold(100, 95), sold(1000, 1050), False),
        (sold(100, 110), sold(1000, 1000), False),
    ],
)
def test_a_margin_is_weak_a_fifth_below_that_of_all_and_beside_a_loss_never(row: Sums, whole: Sums, weak: bool):
    assert row.margin_is_weak(whole) is weak


ROW = st.builds(
    DaySums,
    st.dates(date(2026, 10, 1), date(2026, 10, 5)),
    st.sampled_from(["USD", "JPY"]),
    st.builds(Sums, *[st.integers(-(10**12), 10**12)] * 6),
)


@given(st.lists(ROW, unique_by=lambda row: (row.day, row.currency)))
def test_totals_are_the_sums_of_the_days(rows: list[DaySums]):
    found = sums.totals(rows)
    days = Period(date(2026, 10, 1), date(2026, 10, 5)).days
    for currency, total in found.items():
        whole = Sums()
        for one in sums.series(rows, currency, days):
            whole = whole.plus(one)
        assert whole == total
    assert set(found) == {row.currency for row in rows}


def test_a_margin_is_what_is_left_after_refunds_and_costs():
    one = Sums(sold=3, revenue=54_000, refunded=1, refunds=18_000, costed=2, cost=27_000)
    assert (one.net, one.margin, one.margin_percent) == (36_000, 9_000, "25.0 %")
    assert Sums(revenue=5, refunds=5).margin_percent == ""


@pytest.mark.parametrize(
    ("sold", "refunded", "costed", "complete"),
    [(3, 0, 3, True), (3, 1, 2, True), (3, 1, 3, True), (3, 1, 1, False), (3, 3, 0, False), (0, 0, 0, False)],
)
def test_a_margin_is_complete_where_the_cost_of_all_that_is_kept_is_known(
    sold: int, refunded: int, costed: int, complete: bool
):
    assert Sums(sold=sold, refunded=refunded, costed=costed).complete == complete


@pytest.mark.parametrize(
    ("first", "last", "title"),
    [
        (date(2026, 11, 1), date(2026, 11, 30), "November 2026"),
        (date(2026, 10, 31), date(2026, 11, 29), "31 Oct – 29 Nov 2026"),
        (date(2025, 12, 30), date(2026, 1, 2), "30 Dec 2025 – 2 Jan 2026"),
        (date(2026, 11, 29), date(2026, 11, 29), "29 Nov 2026"),
    ],
)
def test_days_have_a_title(first: date, last: date, title: str):
    assert Period(first, last).title == title
