"""The days that a list is filtered by: what is chosen, and ranges to choose with one click. Days are of UTC."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import NamedTuple

from dealer_server.console.shared import params, reports
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.rules import dates
from dealer_server.rules.reports.period import PRESETS

RANGES = (("Today", 0, 0), ("Yesterday", 1, 1), ("7 days", 6, 0), ("30 days", 29, 0))
"""Names, and how many days ago each begins and ends."""


class Range(NamedTuple):
    name: str
    href: str
    current: bool


class Dates(NamedTuple):
    """`text`: the range that is chosen, in words; "" for any time. `first`, `last`: as they stand in the address.
    `without`: the address of the list of any time. `faults`: what is wrong with them, of "from" and "to"."""

    text: str
    first: str
    last: str
    ranges: Sequence[Range]
    without: str
    faults: Mapping[str, str] = {}


def of(context: RequestContext, path: str) -> Dates:
    """Of the list at this path."""
    kept, today = params.filters(context), context.now.date()
    first, last = kept.get("from", ""), kept.get("to", "")
    ranges = list[Range]()
    for name, begins, ends in _ranges(today):
        days = {"from": f"{begins}", "to": f"{ends}"}
        current = (first, last) == (days["from"], days["to"])
        ranges.append(Range(name, params.address(path, kept | days), current))
    text = next((one.name for one in ranges if one.current), _text(first, last))
    without = params.address(path, kept | {"from": "", "to": ""})
    return Dates(text, first, last, ranges, without, params.faults(kept))


def _ranges(today: date) -> list[tuple[str, date, date]]:
    """Names, first and last days."""
    near = [(name, today - timedelta(days=begins), today - timedelta(days=ends)) for name, begins, ends in RANGES]
    month = today.replace(day=1)
    before = month - timedelta(days=1)
    return [*near, ("This month", month, today), ("Last month", before.replace(day=1), before)]


def of_report(context: RequestContext, path: str, asked: reports.Question) -> Dates:
    """Of a report, which is always of some days."""
    first, last = map(str, asked.wanted.period)
    ranges = [
        Range(
            title,
            reports.address(path, context, asked, **{"range": name, "from": "", "to": ""}),
            name == asked.preset and not asked.problem,
        )
        for name, title in PRESETS.items()
    ]
    text = next((one.name for one in ranges if one.current), _text(first, last))
    return Dates(text, first, last, ranges, path)


def _text(first: str, last: str) -> str:
    begin, end = _said(first), _said(last)
    if begin == end:
        return begin
    return f"{begin} to {end}" if begin and end else f"Since {begin}" if begin else f"Until {end}"


def _said(typed: str) -> str:
    """What an address says of a day or a minute, as people say it; as it stands where it is none."""
    with suppress(ValueError):
        at = datetime.fromisoformat(typed)
        return dates.minute(at) if "T" in typed else dates.day(at)
    return typed
