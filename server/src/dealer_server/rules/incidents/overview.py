"""What is wrong on the whole platform? What was found in the database, as incidents."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from dealer_server.rules.incidents import receiver, supplier
from dealer_server.rules.incidents.dealer import FEW_DAYS
from dealer_server.rules.incidents.incident import (
    DECIDED,
    LOW,
    WEIGHTS,
    Incident,
    Kind,
    Level,
    harm,
    joined,
    many,
    minutes,
    worst_first,
)
from dealer_server.rules.incidents.receiver import Receiver
from dealer_server.rules.incidents.supplier import Supplier, Waiting
from dealer_server.rules.money import money

Queue = Literal["UNCONFIRMED", "FAILED", "REFUNDS", "VOIDS", "TOPUPS"]
WORKER_SILENT = timedelta(minutes=3)
"""A worker is seen about once a minute."""
QUEUES_COUNTED = 1_000
NAMED = 3
MAILS_COUNTED = 1_000
TRIED = 3
"""An email that was tried so often without success tells nobody."""


class Queued(NamedTuple):
    """What waits in a queue, QUEUES_COUNTED at most. `amounts`: what it is about, in ten-thousandths by currency.
    `subject`: the supplier, of unconfirmed purchases."""

    queue: Queue
    total: int
    oldest_at: datetime
    amounts: Mapping[str, int] = {}
    subject: str = ""


class LowStock(NamedTuple):
    """`free`: how many eSIMs of the package can still be sold."""

    package_code: str
    free: int


class Balance(NamedTuple):
    """Of a dealer whose balance lasts for no more than FEW_DAYS. `topped_up`: a top-up of it waits."""

    tenant_id: int
    name: str
    available: int
    currency: str
    days: int
    topped_up: bool = False


class Mails(NamedTuple):
    """Emails of the last day that failed, or failed repeatedly so far: MAILS_COUNTED at most. `sent`: whether any was
    sent after the oldest of them was written. `problem`: of the newest."""

    failing: int
    since: datetime
    sent: bool
    problem: str


class Findings(NamedTuple):
    """`worker_seen_at`: None where none ever was. `stock_low`: stock below this is low. `queue_hours`: what waits for
    longer is late; 0: nothing is. `more_receivers`: how many fail beside these. `one_factor`: the reader signs in by a
    password alone."""

    worker_seen_at: datetime | None
    suppliers: Sequence[tuple[Supplier, Waiting]]
    queues: Sequence[Queued]
    receivers: Sequence[Receiver]
    more_receivers: int
    stock: Sequence[LowStock]
    stock_low: int
    queue_hours: float
    balances: Sequence[Balance] = ()
    mails: Mails | None = None
    one_factor: bool = False


def incidents(found: Findings, now: datetime) -> list[Incident]:
    """The worst first. A balance for which a top-up waits is told with the top-ups."""
    queues = [queue(one, found.queue_hours, now) for one in found.queues]
    topups = any(one.kind == "TOPUPS" for one in queues if one)
    low = [one for one in found.balances if topups and one.topped_up]
    told: list[Incident | None] = [
        _worker(found.worker_seen_at, now),
        *supplier.incidents(found.suppliers, now),
        *[_with_balances(one, low) if one and low and one.kind == "TOPUPS" else one for one in queues],
        *[receiver.incident(one, now) for one in found.receivers],
        _more_receivers(found.more_receivers),
        *_stock(found.stock, found.stock_low),
        *[_balance(one) for one in found.balances if one not in low],
        _mails(found.mails, now),
        _two_factor() if found.one_factor else None,
    ]
    return worst_first(incident for incident in told if incident is not None)


def _worker(seen_at: datetime | None, now: datetime) -> Incident | None:
    detail = "nothing is delivered, no webhook is sent"
    if seen_at is None:
        return Incident("WORKER", "", "fault", "No worker has run yet", None, detail, WEIGHTS["WORKER"])
    if now - seen_at <= WORKER_SILENT:
        return None
    hurt = WEIGHTS["WORKER"] * minutes(seen_at, now)
    return Incident("WORKER", "", "fault", "No worker has been seen", seen_at, detail, hurt)


def _mails(mails: Mails | None, now: datetime) -> Incident | None:
    if mails is None:
        return None
    count = many(mails.failing, "email", MAILS_COUNTED)
    hurt = harm("MAILS", mails.failing, mails.since, now)
    if mails.sent:
        text = f"{count} could not be sent"
        return Incident("MAILS", "", "degraded", text, mails.since, mails.problem, hurt, several=mails.failing > 1)
    detail = f"{count} not sent" + (f" ({mails.problem})" if mails.problem else "")
    return Incident("MAILS", "", "fault", "No email has been sent", mails.since, detail, hurt)


def _two_factor() -> Incident:
    detail = "your password alone opens the console"
    return Incident("TWO_FACTOR", "", "note", "Two-factor sign-in is off for your account", detail=detail)


def _more_receivers(count: int) -> Incident | None:
    if count <= 0:
        return None
    text = f"{count:,} more endpoints are failing or paused" if count > 1 else "1 more endpoint is failing or paused"
    return Incident("RECEIVER", "", "fault", text, harm=WEIGHTS["RECEIVER"] * count)


_TEXTS: Mapping[Queue, tuple[str, str]] = {
    "UNCONFIRMED": (
        "purchase at {subject}{worth} has been unconfirmed",
        "purchases at {subject}{worth} are unconfirmed",
    ),
    "FAILED": (
        "failed order{worth} has waited for a refund",
        "failed orders{worth} wait for a refund",
    ),
    "REFUNDS": ("refund{worth} has waited for a decision", "refunds{worth} wait for a decision"),
    "VOIDS": (
        "refund{worth} has waited for its supplier to cancel the eSIM",
        "refunds{worth} wait for suppliers to cancel the eSIMs",
    ),
    "TOPUPS": ("top-up{worth} has waited for approval", "top-ups{worth} wait for approval"),
}
_AT_ONCE: tuple[Kind, ...] = ("UNCONFIRMED", "FAILED")


def queue(queued: Queued, hours: float, now: datetime) -> Incident | None:
    """Refunds and top-ups are a task; once one of them has waited for long, the queue is degraded."""
    kind: Kind = queued.queue
    late = kind in _AT_ONCE or (hours > 0 and now - queued.oldest_at > timedelta(hours=hours))
    if not queued.total or not (late or kind in DECIDED):
        return None
    one, several = _TEXTS[queued.queue]
    more = "" if queued.total < QUEUES_COUNTED else " or more"
    amounts = amounts_text(queued.amounts)
    words, worth = one if queued.total == 1 else several, f", {amounts}," if amounts else ""
    text = f"{queued.total:,}{more} {words.format(subject=queued.subject, worth=worth)}"
    hurt = harm(kind, queued.total, queued.oldest_at, now)
    level: Level = "fault" if kind in _AT_ONCE else "degraded" if late else "waiting"
    return Incident(kind, queued.subject, level, text, queued.oldest_at, harm=hurt, several=queued.total > 1)


def _with_balances(topups: Incident, low: Sequence[Balance]) -> Incident:
    """`low`: the shortest first."""
    worst = _balance(low[0])
    lasts = "last" if low[2:] else "lasts"
    more = f", {many(len(low) - 1, 'more balance')} {lasts} {FEW_DAYS} days or less" if low[1:] else ""
    hurt = topups.harm + sum(_balance(one).harm for one in low)
    detail, dealers = f"{worst.text[:1].lower()}{worst.text[1:]}{more}", [str(one.tenant_id) for one in low]
    return topups._replace(level="degraded", detail=detail, harm=hurt, balances=dealers)


def _balance(of: Balance) -> Incident:
    left, hurt = money.shown(of.available, of.currency), WEIGHTS["BALANCE"] * (FEW_DAYS + 1 - of.days)
    lasts = f"about {many(of.days, 'day')}" if of.days else "less than a day"
    text = f"The balance of {of.name} lasts {lasts}"
    detail = f"{left} left, at the pace of the last 7 days"
    return Incident("BALANCE", str(of.tenant_id), "degraded", text, None, detail, hurt)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """120.00 USD and 5.00 EUR; "" for none."""
    return joined([money.shown(amount, code) for code, amount in sorted(amounts.items()) if amount])


def _stock(stock: Iterable[LowStock], low: int) -> Iterator[Incident]:
    short = sorted((one for one in stock if one.free < low), key=lambda one: (one.free, one.package_code))
    sold_out, left = [one for one in short if not one.free], [one for one in short if one.free]
    for rows, words in ((sold_out, "sold out"), (left, "low on stock")):
        if not rows:
            continue
        hurt = sum(LOW * (1 - one.free / low) if one.free else WEIGHTS["STOCK"] for one in rows)
        named = [one.package_code if not one.free else f"{one.package_code} has {one.free:,}" for one in rows[:NAMED]]
        more = f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else ""
        if len(rows) == 1:
            left_text = many(rows[0].free, "eSIM") + " left" if rows[0].free else ""
            text, detail = f"Package {rows[0].package_code} is {words}", left_text
        else:
            text, detail = f"{len(rows):,} packages are {words}", ", ".join(named) + more
        subject = rows[0].package_code if len(rows) == 1 else ""
        yield Incident("STOCK", subject, "fault" if rows is sold_out else "degraded", text, None, detail, hurt)
