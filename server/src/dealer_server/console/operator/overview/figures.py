"""How do sales go in a period, and how did they go in the one before? Each figure leads to its list."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, NamedTuple

from dealer_server.console.operator.overview.hours import Counted
from dealer_server.console.operator.timeline import duration_text
from dealer_server.console.shared.params import address
from dealer_server.console.shared.rendering import many
from dealer_server.rules.access import latency_histogram
from dealer_server.rules.axis import Number
from dealer_server.rules.incidents.health import is_degraded, share_text
from dealer_server.rules.money import money
from dealer_server.rules.period import HOUR, Period, change_text, grouped, starts
from dealer_server.store.console.overview import Hour

Value = Callable[[Hour], float]
Values = Callable[[Sequence[Hour]], Sequence[Number]]


class Figure(NamedTuple):
    """`value`: a text, or an amount in major units where there is a `currency`. `change`: against the period before, ""
    where it cannot be said. `numbers`: of the small line below it, named by `label`, where no chart shows them; `open`:
    the last one is not over yet. `href`: the list of it. `degraded`: by rules/incidents/health.py."""

    title: str
    value: str
    href: str
    currency: str = ""
    change: str = ""
    note: str = ""
    numbers: Sequence[Number] = ()
    label: str = ""
    open: bool = False
    degraded: bool = False


class Chart(NamedTuple):
    """`figure`: what it comes to. `values` by `times`; `open`: the last one is not over yet. `before`: the values of
    the period before, None where that is not over; nothing where it is not known or all of it is 0."""

    key: str
    title: str
    figure: Figure
    times: Sequence[datetime]
    values: Sequence[Number]
    before: Sequence[Number | None]
    unit: str
    open: bool
    by_day: bool


def bucket_text(of: Period) -> str:
    """How long what a chart shows as one is."""
    return "hour" if by_hours(of) else "day"


def by_hours(of: Period) -> bool:
    """Whether charts show hours; else they show days, as reports have them."""
    return of.bucket == HOUR


def span(of: Period) -> Mapping[str, str]:
    """The filter of a list that shows the same days."""
    last = (of.end - timedelta(seconds=1)).date()
    return {"from": f"{of.start:%Y-%m-%d}"} | ({} if of.open else {"to": f"{last:%Y-%m-%d}"})


def figures(counted: Counted, of: Period) -> list[Figure]:
    """Those that no chart shows. What is not counted yet is said."""
    found = [_webhooks(counted, of), _latency(counted, of)]
    if not counted.missing:
        return found
    so_far = f"so far, {of.hours - counted.missing:,} of {of.hours:,} hours are counted"
    return [one._replace(note=so_far, numbers=(), degraded=False) for one in found]


def orders_chart(counted: Counted, of: Period) -> Chart:
    def orders(hours: Sequence[Hour]) -> list[float]:
        return grouped(hours, of, lambda hour: hour.orders)

    return _chart(counted, of, "orders-chart", f"Orders per {bucket_text(of)}", _orders(counted, of), "", orders)


def turnover_chart(counted: Counted, of: Period) -> Chart:
    """Hour by hour; that of days is made of reports (sales.py)."""
    currency = main_currency(counted.hours)

    def turnover(hours: Sequence[Hour]) -> list[Decimal]:
        return [_major(amount, currency) for amount in grouped(hours, of, _turnover_in(currency))]

    title = f"Revenue per {bucket_text(of)}, {currency}"
    return _chart(counted, of, "turnover-chart", title, _turnover(counted, of), currency, turnover)


def _chart(counted: Counted, of: Period, key: str, title: str, figure: Figure, unit: str, values: Values) -> Chart:
    return Chart(
        key,
        title,
        figure,
        starts(of),
        values(counted.hours),
        _before(counted, of, values),
        unit,
        of.open,
        not by_hours(of),
    )


def _before(counted: Counted, of: Period, values: Values) -> list[Number | None]:
    """Of the buckets of the period before that are over; None for the others."""
    size, every = of.bucket // HOUR, len(starts(of))
    hours = counted.previous or ()
    found = values(hours[: len(hours) // size * size])[: every - of.open]
    return [*found, *[None] * (every - len(found))] if any(found) else []


def _orders(counted: Counted, of: Period) -> Figure:
    return Figure(
        title="Orders",
        value=f"{sum(hour.orders for hour in counted.hours):,}",
        href=address("/console/orders", span(of)),
        change=_change(counted, of, lambda hour: hour.orders),
    )


def main_currency(hours: Sequence[Hour]) -> str:
    """The one with the most."""
    totals = _totals(hours)
    return totals.most_common(1)[0][0] if totals else "USD"


def _totals(hours: Sequence[Hour]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for hour in hours:
        totals.update(hour.turnover)
    return totals


def _turnover(counted: Counted, of: Period) -> Figure:
    """The currency with the most; the others as a note."""
    totals, currency = _totals(counted.hours), main_currency(counted.hours)
    others = [money.shown(amount, code) for code, amount in totals.most_common(3) if code != currency]
    return Figure(
        title="Revenue",
        value=money.text(totals[currency], currency),
        currency=currency,
        href=address("/console/orders", span(of)),
        change=_change(counted, of, _turnover_in(currency)),
        note=f"and {', '.join(others)}" if others else "",
    )


def _turnover_in(currency: str) -> Value:
    return lambda hour: hour.turnover.get(currency, 0)


def _major(amount: float, currency: str) -> Decimal:
    return Decimal(money.text(int(amount), currency))


def _webhooks(counted: Counted, of: Period) -> Figure:
    attempts, answered = sum(hour.attempts for hour in counted.hours), sum(hour.answered for hour in counted.hours)
    share = grouped(counted.hours, of, lambda hour: hour.answered)
    tried = grouped(counted.hours, of, lambda hour: hour.attempts)
    before = _compared(counted, of)
    compared = counted.hours[: of.compared_hours]
    now = sum(hour.answered for hour in compared), sum(hour.attempts for hour in compared)
    was = sum(hour.answered for hour in before), sum(hour.attempts for hour in before)
    change = ""
    if now[1] and was[1] and not counted.missing:
        points = 100 * now[0] / now[1] - 100 * was[0] / was[1]
        change = f"{'+' if points > 0 else '−'}{abs(points):.1f} points" if abs(points) >= 0.05 else "no change"
    return Figure(
        title="Webhooks",
        value=share_text(answered, attempts),
        href="/console/webhooks",
        change=change,
        degraded=is_degraded(answered, attempts),
        note=f"of {many(attempts, 'attempt')} accepted" if attempts else "None was sent.",
        numbers=[100 * good / count if count else 100 for good, count in zip(share, tried, strict=True)]
        if attempts
        else [],
        label=f"share of webhook attempts accepted, per {bucket_text(of)}",
        open=of.open,
    )


def _latency(counted: Counted, of: Period) -> Figure:
    """Of calls that write; of those that read where there are no others."""
    reads, writes = _spread(counted.hours, "reads"), _spread(counted.hours, "writes")
    failed, calls = sum(hour.failed for hour in counted.hours), sum(reads) + sum(writes)
    slow_reads, slow_writes = (latency_histogram.percentile(part, 95) for part in (reads, writes))
    shown = slow_writes or slow_reads
    notes = [f"of {many(calls, 'call')}"] if calls else ["No call was answered yet."]
    notes += [f"reads {duration_text(slow_reads)}"] if slow_writes and slow_reads else []
    notes += [f"{failed:,} failed"] if failed else []
    size = of.bucket // timedelta(hours=1)
    which = "writes" if slow_writes else "reads"
    return Figure(
        title="API latency (p95)",
        value=duration_text(shown) if shown else "–",
        href="",
        note=", ".join(notes),
        numbers=[
            latency_histogram.percentile(_spread(counted.hours[at : at + size], which), 95) or 0.0
            for at in range(0, len(counted.hours), size)
        ]
        if calls
        else [],
        label=f"seconds within which 95 % of the calls were answered, per {bucket_text(of)}",
        open=of.open,
    )


def _spread(hours: Sequence[Hour], which: Literal["reads", "writes"]) -> list[int]:
    """How many calls of all these hours took how long."""
    return [sum(counts) for counts in zip(*(getattr(hour, which) for hour in hours), strict=True)]


def _compared(counted: Counted, of: Period) -> Sequence[Hour]:
    """The hours of the period before that are compared, as reports do: those next to it."""
    return (counted.previous or ())[-of.compared_hours :] if of.compared_hours else ()


def _change(counted: Counted, of: Period, value: Value) -> str:
    """Of the hours that are compared with as many of the period before."""
    if counted.previous is None or counted.missing:
        return ""
    return change_text(
        sum(value(hour) for hour in counted.hours[: of.compared_hours]),
        sum(value(hour) for hour in _compared(counted, of)),
    )


def compares_hours(of: Period) -> bool:
    """Else whole days are compared, as reports do."""
    return of.compared_hours == of.closed_hours and of.open
