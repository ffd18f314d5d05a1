"""What is wrong with a supplier, and what waits for it?"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.rules import dates
from dealer_server.rules.incidents.health import is_degraded, is_failing, share_of
from dealer_server.rules.incidents.incident import IDLE, WEIGHTS, Incident, harm, joined, many, minutes
from dealer_server.rules.incidents.refused import refused

COUNTED = 10_000
LONG = timedelta(minutes=10)
"""Lines that wait longer at a supplier that answers are told of."""


class Waiting(NamedTuple):
    """Lines without an answer of one supplier, of COUNTED purchases at most. `oldest_at`: when the first purchase was
    planned. `failing`: purchases whose last try failed, of `purchases`; `reason`: why, of the oldest one."""

    purchases: int
    lines: int
    orders: int
    oldest_at: datetime | None
    failing: int = 0
    reason: str = ""


NOTHING = Waiting(0, 0, 0, None)


class Supplier(NamedTuple):
    """`up`: None where no worker has asked it yet; `since`: since when it has been up or down. `changed_at`: since when
    it has been paused. `paused_reason`: why a worker paused it; "" where an operator did. `answered`: of the calls of
    the last 24 hours, of which so many were `asked`. `cause`: why the latest one failed, "" where it is not told.
    `bad_since`: of one that answers, since when it has been degraded or failing; None where it is not told."""

    code: str
    paused: bool
    paused_reason: str
    changed_at: datetime
    up: bool | None
    since: datetime | None
    packages: int
    answered: int = 0
    asked: int = 0
    cause: str = ""
    bad_since: datetime | None = None

    @property
    def is_degraded(self) -> bool:
        return bool(self.up) and is_degraded(self.answered, self.asked)

    @property
    def is_failing(self) -> bool:
        return bool(self.up) and is_failing(self.answered, self.asked)


def incidents(suppliers: Iterable[tuple[Supplier, Waiting]], now: datetime) -> list[Incident]:
    """Of all of them; those of which nothing is said but that they fail are one, and so are those that are degraded."""
    found = [(one, incident(one, waiting, now)) for one, waiting in suppliers]
    bad = [one for one, told in found if told and told == _bad(one)]
    others = [told for one, told in found if told and one not in bad]
    alike = [[one for one in bad if one.is_failing is failing] for failing in (True, False)]
    return [*others, *(_bad(*some) for some in alike if some)]


def incident(supplier: Supplier, waiting: Waiting, now: datetime) -> Incident | None:
    """None where nothing is wrong: it answers, or an operator paused it and nothing waits."""
    code, waits = supplier.code, _waits(waiting, now)
    if supplier.paused:
        if not (waiting.lines or supplier.paused_reason):
            return None
        why = f" ({supplier.paused_reason})" if supplier.paused_reason else ""
        text, since = f"Supplier {code} has been paused{why}", supplier.changed_at
    elif supplier.up is False:
        since = supplier.since
        text = f"Supplier {code} {'has been' if since else 'is'} down"
    elif supplier.is_failing and waiting.lines:
        told, hurt = _bad(supplier), harm("SUPPLIER", waiting.orders, waiting.oldest_at, now)
        return told._replace(detail=f"{told.detail}; {waits}", harm=told.harm + hurt, waits=True)
    elif waiting.oldest_at is not None and now - waiting.oldest_at > LONG:
        items = many(waiting.lines, "item", COUNTED)
        text = f"{items} {'has' if waiting.lines == 1 else 'have'} waited at supplier {code}"
        hurt = harm("SUPPLIER", waiting.orders, waiting.oldest_at, now)
        return Incident("SUPPLIER", code, "degraded", text, waiting.oldest_at, _tries(waiting), hurt, waits=True)
    else:
        return _bad(supplier) if supplier.is_degraded else None
    hurt = harm("SUPPLIER", waiting.orders, waiting.oldest_at, now) if waiting.orders else 0.0
    hurt += supplier.packages * (WEIGHTS["STOCK"] + IDLE * minutes(since, now))  # none of them can be sold there
    tries = _tries(waiting) if waiting.lines else ""
    detail = "; ".join(filter(None, (waits, tries)))
    return Incident("SUPPLIER", code, "fault", text, since, detail, hurt, waits=bool(waiting.lines))


def _bad(*suppliers: Supplier) -> Incident:
    """All degraded, or all failing. Each call that failed made an order wait for a minute, or for the next supplier."""
    codes, failing = [one.code for one in suppliers], suppliers[0].is_failing
    shares = [share_of(one.answered, one.asked) for one in suppliers]
    causes = dict.fromkeys(one.cause for one in suppliers if one.cause)
    detail = f"{joined(shares)} calls succeeded in the last 24 hours"
    detail += f", the latest failed: {', '.join(causes)}" if causes else ""
    hurt = WEIGHTS["SUPPLIER"] * sum(one.asked - one.answered for one in suppliers)
    since = None if codes[1:] else suppliers[0].bad_since
    are = "are" if codes[1:] else "has been" if since else "is"
    text = f"Supplier{'s' * bool(codes[1:])} {joined(codes)} {are} {'failing' if failing else 'degraded'}"
    return Incident("SUPPLIER", ",".join(codes), "fault" if failing else "degraded", text, since, detail, hurt)


def _waits(waiting: Waiting, now: datetime) -> str:
    if not waiting.lines or waiting.oldest_at is None:
        return "nothing waits for it"
    items, age = many(waiting.lines, "item", COUNTED), dates.lasted(waiting.oldest_at, now)
    return f"1 item waits, for {age}" if waiting.lines == 1 else f"{items} wait, the oldest for {age}"


def _tries(waiting: Waiting) -> str:
    """How many of the last tries failed, and why."""
    answer = refused(waiting.reason)
    why = answer.words or answer.raw
    if not waiting.failing:
        return ""
    share = f"the last attempt for {waiting.failing:,} of {many(waiting.purchases, 'eSIM')} failed"
    return f"{share} ({why})" if why else share
