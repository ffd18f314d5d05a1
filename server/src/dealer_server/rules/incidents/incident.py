"""What is wrong, in one sentence, and how much harm does it do? The worst stands first.

A fault is broken: it loses money, or somebody is told nothing. What is degraded works, but not well, or is late, or
runs out. What waits is a task for the reader. A note is for information.

Harm is counted in minutes that an order waits: 12 orders that have waited 25 minutes are 300. What else is wrong counts
as WEIGHTS says. Sums of money are told and not counted: currencies cannot be added.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple, get_args

Kind = Literal[
    "WORKER",
    "MAILS",
    "TWO_FACTOR",
    "SUPPLIER",
    "UNCONFIRMED",
    "FAILED",
    "RETURNED",
    "RECEIVER",
    "REFUNDS",
    "VOIDS",
    "TOPUPS",
    "STOCK",
    "SUSPENDED",
    "FROZEN",
    "BALANCE",
    "CREDENTIALS",
    "CALLS",
    "SECRET",
    "PLANS",
    "UNMAILED",
]
Level = Literal["fault", "degraded", "waiting", "note"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""The worst first."""

WEIGHTS: Mapping[Kind, float] = {
    "WORKER": 100.0,  # each minute: everything stands still
    "MAILS": 0.2,  # each email and minute
    "SUPPLIER": 1.0,  # each order and minute
    "UNCONFIRMED": 2.0,  # each purchase and minute: its order waits, and what it cost may be lost
    "FAILED": 1.0,  # each order and minute: it is paid and not delivered
    "RECEIVER": 0.2,  # each webhook and minute
    "REFUNDS": 0.05,  # each refund and minute
    "VOIDS": 0.02,  # each refund and minute: the supplier is waited for
    "TOPUPS": 0.05,  # each top-up and minute: money that its dealer has sent
    "STOCK": 10.0,  # each package that is sold out
    "BALANCE": 10.0,  # each day by which a balance lasts less than a week: orders are refused after it
}
DECIDED: tuple[Kind, ...] = ("REFUNDS", "TOPUPS")
"""Each of these is a task: an operator decides about it."""
LOW = 1.0
"""Each package that is low on stock, by the share that is missing."""
IDLE = 0.1
"""What nobody waits for, such as a supplier that is down and has nothing to do, counts so for each minute."""


class Incident(NamedTuple):
    """One sentence: `text`, `since` when or `at` what time, and `detail`. `several`: the oldest of them since then.
    `next_at`: when it is tried again by itself. `subject`: the supplier's code, the dealer's tenantId, the package or
    the orderNo, "" for none; the codes of several suppliers with commas between. `harm`: in order-minutes.
    `balances`: the dealers, by tenantId, whose low balances are told with it. `waits`: items wait
    at the supplier."""

    kind: Kind
    subject: str
    level: Level
    text: str
    since: datetime | None = None
    detail: str = ""
    harm: float = 0.0
    at: datetime | None = None
    next_at: datetime | None = None
    several: bool = False
    balances: Sequence[str] = ()
    waits: bool = False


def worst_first(incidents: Iterable[Incident]) -> list[Incident]:
    """By level, and those of one level by the harm they do; a supplier that is degraded stands before what is late, for
    it makes orders fail."""
    return sorted(incidents, key=lambda one: (rank(one.level), _comes_later(one), -one.harm, one.text))


def _comes_later(incident: Incident) -> bool:
    return incident.level == "degraded" and incident.kind != "SUPPLIER"


def rank(level: Level) -> int:
    """The lowest of the worst."""
    return LEVELS.index(level)


def harm(kind: Kind, count: int, since: datetime | None, now: datetime) -> float:
    """Of so many that have waited since then; at least a minute each."""
    return WEIGHTS[kind] * count * minutes(since, now)


def minutes(since: datetime | None, now: datetime) -> float:
    """1 at least."""
    return 1.0 if since is None else max(1.0, (now - since).total_seconds() / 60)


def joined(texts: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if texts[1:] else texts)


def many(count: int, word: str, most: int | None = None) -> str:
    """1 line, 1,234 lines; "1,000 lines or more" where no more than `most` were counted."""
    text = f"{count:,} {word}{'' if count == 1 else 's'}"
    return f"{text} or more" if most is not None and count >= most else text
