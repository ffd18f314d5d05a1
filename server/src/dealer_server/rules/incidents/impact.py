"""What does a supplier that is down or paused stop, and where do its orders go meanwhile?"""

from collections.abc import Collection, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from dealer_server.rules.incidents.incident import many

DAYS = 7
"""So many days of sales, today among them, say how much is sold lately."""


class Impact(NamedTuple):
    """`packages` on sale go to the supplier first; `alone`: so many of them have no other supplier that can be asked.
    `sold`: eSIMs of all of them since `first_day`."""

    packages: int
    alone: int
    sold: int


def first_day(now: datetime) -> date:
    """Of the sales that say how much is sold lately."""
    return now.date() - timedelta(days=DAYS - 1)


def rate_text(sold: int, now: datetime) -> str:
    """How much is sold lately: "about 14 eSIMs sold an hour", "about 3 eSIMs sold a day"."""
    hours = max(1, (DAYS - 1) * 24 + now.hour)
    for name, length in (("an hour", 1), ("a day", 24)):
        count = (2 * sold * length + hours) // (2 * hours)
        if count:
            return f"about {many(count, 'eSIM')} sold {name} lately"
    return "less than 1 eSIM sold a day" if sold else f"none sold in {DAYS} days"


def following(route: Sequence[str], supplier: str, usable: Collection[str]) -> str | None:
    """The next supplier of a route that can be asked instead of this one; None without one."""
    after = route[route.index(supplier) + 1 :] if supplier in route else ()
    return next((code for code in after if code in usable), None)
