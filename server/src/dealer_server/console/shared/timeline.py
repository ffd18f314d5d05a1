"""What happened, event by event. What happened again and again is one event with a count, which can be opened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby, pairwise, takewhile
from typing import Literal, NamedTuple

from dealer_server.console.shared import words
from dealer_server.rules.lifecycle.use import used_percent
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Order, Profile
from dealer_server.store.console.orders import ProfileTimes
from dealer_server.store.console.recharges import RechargeTimes
from dealer_server.store.webhooks.log import Attempt

FAILED, DELIVERED = "alert-circle", "qrcode"
"""The symbols of a failure for good, and of a delivery."""
AttemptRun = Sequence[Attempt]
"""Attempts one after the other with the same result."""


Step = Literal["", "PAID", "CALL", "DELIVERED"]
"""What an event is of a purchase that went as it should."""
AT_ONCE = timedelta(minutes=1)
"""Steps of a purchase within this time are one event."""


class Repeat(NamedTuple):
    """One of the times at which the same happened, or one of several events that are told as one: its `title` and
    `text`, and of a webhook `delivery_id` for the link to its page, its `attempts` and its `body`."""

    at: datetime
    facts: Sequence[tuple[str, str]]
    title: str = ""
    delivery_id: int | None = None
    text: str = ""
    attempts: Sequence[AttemptRun] = ()
    body: str = ""


class Event(NamedTuple):
    """`facts`: names and values. Of a webhook: `delivery_id` for the link to its page, `body` indented. `repeats`: each
    time, where the same happened more than once; `at` is the first. `anchor`: what links to it name it. `term`: the
    word of the field for it. `esims`: how many were delivered by this step. `detail`: as the supplier said it.
    `short`: the title where its steps stand below it."""

    at: datetime
    symbol: str
    title: str
    state: str = ""
    text: str = ""
    facts: Sequence[tuple[str, str]] = ()
    attempts: Sequence[AttemptRun] = ()
    delivery_id: int | None = None
    body: str = ""
    repeats: Sequence[Repeat] = ()
    anchor: str = ""
    term: str = ""
    step: Step = ""
    short: str = ""
    esims: int = 0
    detail: str = ""


def in_order(events: Iterable[Event]) -> list[Event]:
    """The oldest first, several that are told as one by the last of them. Those that follow each other and say the same
    are one, and so are the steps of a purchase that went well at once, all webhooks that were accepted at the first
    attempt, and all that were not needed: of a dealer without a callback URL they would be most of the timeline."""
    unneeded, accepted, others = list[Event](), list[Event](), list[Event]()
    for event in events:
        quiet = unneeded if event.state == "SKIPPED" else accepted if _accepted_at_once(event) else others
        (others if event.delivery_id is None else quiet).append(event)
    bought = _bought_at_once(sorted(others, key=_place))
    ordered = sorted([*bought, *_together(accepted, " accepted"), *_together(unneeded, "")], key=_place)
    return [_one([*same]) for _, same in groupby(ordered, key=_what)]


def _place(event: Event) -> tuple[datetime, int]:
    """Webhooks that are told as one stand where the first was, for they follow from what happened."""
    last = event.repeats[0 if event.symbol == "webhook" else -1] if event.repeats else event
    return last.at, last.delivery_id or 0


def _accepted_at_once(event: Event) -> bool:
    return event.state == "DELIVERED" and sum(len(run) for run in event.attempts) <= 1


def _together(webhooks: Sequence[Event], what: str) -> Sequence[Event]:
    if len(webhooks) < 2:
        return webhooks
    every = sorted(webhooks, key=_place)
    state = "" if what else every[0].state
    return [Event(every[0].at, every[0].symbol, f"{len(every)} webhooks{what}", state, repeats=_repeats(every))]


def _repeats(events: Iterable[Event]) -> list[Repeat]:
    return [Repeat(one.at, one.facts, one.title, one.delivery_id, one.text, one.attempts, one.body) for one in events]


def _bought_at_once(events: Sequence[Event]) -> Sequence[Event]:
    """The payment, the calls of suppliers and the delivery as one event, where nothing else lies between them."""
    first = next((at for at, event in enumerate(events) if event.step == "PAID"), len(events))
    paid = [*takewhile(lambda event: event.step and event.at - events[first].at <= AT_ONCE, events[first:])]
    while paid and paid[-1].step != "DELIVERED":
        paid.pop()
    if len(paid) < 2:
        return events
    delivered = [event for event in paid if event.step == "DELIVERED"]
    esims = sum(event.esims for event in delivered)
    words = {event.title.partition(": ")[2] for event in delivered}
    done = words.pop() if len(words) == 1 else "delivered"
    took = _seconds_text((delivered[-1].at - paid[0].at).total_seconds())
    what = "eSIM" if esims == 1 else f"{esims} eSIMs"
    title, short = f"{paid[0].title}, {what} {done} {took}", f"{what} delivered {took}"
    whole = paid[0]._replace(title=title, short=short, repeats=_repeats(paid), step="")
    return [*events[:first], whole, *events[first + len(paid) :]]


def _seconds_text(seconds: float) -> str:
    return f"in {max(seconds, 0.1):.1f} s" if seconds < 10 else f"in {seconds:.0f} s"


def _what(event: Event) -> tuple[object, ...]:
    """What an event says; webhooks are each their own."""
    own = event.repeats[0].at if event.repeats else None
    return event.symbol, event.title, event.state, event.text, event.detail, event.delivery_id, own


def _one(same: Sequence[Event]) -> Event:
    if len(same) == 1:
        return same[0]
    shared = [fact for fact in same[0].facts if all(fact in event.facts for event in same)]
    repeats = [Repeat(event.at, [fact for fact in event.facts if fact not in shared]) for event in same]
    return same[0]._replace(facts=shared, repeats=repeats)


def runs(attempts: Iterable[Attempt]) -> list[AttemptRun]:
    return [[*same] for _, same in groupby(attempts, key=lambda one: (one.http_status, one.error))]


class _LifeStep(NamedTuple):
    """A step of a profile's lifecycle. Those of one second, symbol, title and term are one event."""

    second: datetime
    symbol: str
    title: str
    term: str
    at: datetime
    profile_id: int


def failure_events(
    order: Order, failed_at: Mapping[int, datetime], answers: Mapping[int, str] = {}, *, suppliers: bool = True
) -> Iterator[Event]:
    """Failures for good, of suppliers that keep no record of a purchase. Recharges tell of their own. `answers`: why,
    by line. `suppliers`: they are named."""
    for item in order.items if order.recharges is None else ():
        by_time: dict[datetime, list[str]] = {}
        for profile in item.profiles:
            if at := failed_at.get(profile.profile_id):
                by_time.setdefault(at, []).append(str(profile.profile_id))
        for at, ids in by_time.items():
            facts = [("eSIMs", some_text(ids))] if ids[1:] else ()
            title = failure_title(order, item.line, item.supplier if suppliers else "")
            yield Event(at, FAILED, title, "", answers.get(item.line, ""), facts)


def failure_title(order: Order, line: int, supplier: str) -> str:
    """`supplier`: "" where it is not named."""
    subject = "The recharge" if order.recharges is not None else f"Item {line + 1}" if order.items[1:] else "Delivery"
    return f"{subject} failed{f' at {supplier}' if supplier else ''}"


_SMDP_TITLES = {
    "DOWNLOAD": "a phone downloads it",
    "INSTALLATION": "installed on a phone",
    "ENABLED": "installed and turned on in the phone",
    "DISABLED": "turned off in the phone",
    "DELETED": "deleted from the phone",
}
_SAID_BY_ITS_PLAN = ("GOT_RESOURCE", "IN_USE", "USED_UP", "USED_EXPIRED", "UNUSED_EXPIRED")


def profile_events(
    order: Order, profiles: Sequence[ProfileTimes], tries: Mapping[int, int] = {}, *, suppliers: bool = True
) -> Iterator[Event]:
    """What happened to eSIMs of the order. `suppliers`: theirs are named, and their words are as they came; else
    `tries` says at which try each was delivered."""
    esims = {profile.profile_id: profile for profile in order.profiles}
    steps = sorted(
        _LifeStep(at.replace(microsecond=0), symbol, title, term, at, profile.profile_id)
        for profile in profiles
        for at, symbol, title, term in (
            (
                profile.delivered_at,
                DELIVERED,
                _delivered(profile.supplier) if suppliers else _delivered_at(tries.get(profile.profile_id, 1)),
                "",
            ),
            *_word_steps(profile, raw=suppliers),
            *((*step, "") for step in _plan_steps(profile, esims.get(profile.profile_id))),
        )
        if at is not None
    )
    found = list[_LifeEvent]()
    for (second, symbol, title, term), group in groupby(steps, key=lambda step: step[:4]):
        together = [*group]
        found.append(_LifeEvent(second, [step.profile_id for step in together], symbol, title, term, together[0].at))
    for _, group in groupby(found, key=lambda one: (one.second, one.esims, one.symbol == DELIVERED)):
        same = [*group]
        if sum(one.symbol in _PLAN_SYMBOLS for one in same) > 1:  # told in the order in which plans follow each other
            yield from (_life_event([one]) for one in same)
        else:
            yield _life_event(same)


_PLAN_SYMBOLS = ("player-play", "flag")


class _LifeEvent(NamedTuple):
    """A step that these eSIMs took in one second."""

    second: datetime
    esims: Sequence[int]
    symbol: str
    title: str
    term: str
    at: datetime


def _life_event(steps: Sequence[_LifeEvent]) -> Event:
    """What the same eSIMs did in the same second: the last step, which is that of a plan, says most."""
    first, said, esims = steps[0], [*reversed(steps)], steps[0].esims
    ids = [str(profile_id) for profile_id in esims]
    subject = f"eSIM {ids[0]}" if len(ids) == 1 else f"{len(ids)} eSIMs"
    return Event(
        first.at,
        said[0].symbol,
        f"{subject}: {said[0].title}",
        text=_capital(", ".join(one.title for one in said[1:])),
        facts=[("eSIMs", some_text(ids))] if ids[1:] else (),
        term=", ".join(one.term for one in said if one.term),
        step="DELIVERED" if first.symbol == DELIVERED else "",
        esims=len(ids),
    )


def _word_steps(profile: ProfileTimes, *, raw: bool) -> Iterator[tuple[datetime | None, str, str, str]]:
    """When its supplier's words became what they are, as people say them, without what its plan says; with its own
    words where `raw`."""
    smdp, esim = profile.smdp_status or "unknown", profile.esim_status or "unknown"
    term = f"SM-DP+ status: {words.text(smdp)}"
    title = _SMDP_TITLES.get(smdp, term)
    yield profile.smdp_at, "download", title, term if raw and title != term else ""
    if esim not in _SAID_BY_ITS_PLAN:
        yield profile.esim_at, "device-mobile", f"status on the device: {words.text(esim)}", ""


def _delivered(supplier: str) -> str:
    return "delivered from stock" if supplier == STOCK else f"delivered by {supplier}"


_LATER = {2: "the second try", 3: "the third try"}


def _delivered_at(number: int) -> str:
    """`number`: of the try."""
    return "delivered" if number == 1 else f"delivered at {_LATER.get(number, f'try {number}')}"


def _plan_steps(times: ProfileTimes, esim: Profile | None) -> Iterator[tuple[datetime | None, str, str]]:
    """When its plans started and ended: also those before the one in use. Time ends a plan without a word."""
    plans = () if esim is None else esim.plans
    if not plans:
        yield times.started_at, "player-play", "plan started"
    begun = [plan for plan in plans if plan.begun_at is not None]
    for plan in begun:
        if plan.mode != "ADD":
            yield plan.begun_at, "player-play", f"plan {plan.plan_no} started"
    for before, plan in pairwise(begun):
        yield plan.ended_before, "flag", f"plan {before.plan_no} {'used up' if plan.mode == 'ADD' else 'ended'}"
    if esim is not None and esim.plan_use_status == "ENDED":
        used_up = used_percent(esim) >= 100
        yield times.ended_at or esim.plan_use_end_at, "flag", f"plan ended{', all data used' if used_up else ''}"


def on_its_page(events: Iterable[Event], profile_id: int) -> list[Event]:
    """Events of one eSIM without its number, for its own page."""

    def others(facts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        return [fact for fact in facts if fact != ("eSIM", str(profile_id))]

    return [
        event._replace(
            title=_without_number(event.title, profile_id),
            facts=others(event.facts),
            repeats=[
                one._replace(title=_without_number(one.title, profile_id), facts=others(one.facts))
                for one in event.repeats
            ],
        )
        for event in events
    ]


def by_name(events: Iterable[Event], order: Order) -> list[Event]:
    """Events of an order that name its eSIMs as its page does: of one package by their place in it, else by ICCID; the
    only one of an order needs no name."""
    if len(order.profiles) == 1:
        [profile] = order.profiles
        return on_its_page(events, profile.recharges or profile.profile_id)
    count, alike = len(order.profiles), len(order.items) == 1
    names = {
        f"eSIM {profile.profile_id}:": f"eSIM {f'{at} of {count}' if alike else profile.iccid}:"
        for at, profile in enumerate(order.profiles, 1)
        if profile.iccid
    }

    def named(title: str) -> str:
        head, colon, text = title.partition(":")
        return f"{names.get(head + colon, head + colon)}{text}"

    return [
        event._replace(
            title=named(event.title), repeats=[one._replace(title=named(one.title)) for one in event.repeats]
        )
        for event in events
    ]


def _without_number(title: str, profile_id: int) -> str:
    head, _, text = title.partition(f"eSIM {profile_id}: ")
    if head:
        return title.replace(f" eSIM {profile_id}", " it")
    return text if text.startswith("eSIM") else _capital(text)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def recharge_events(recharges: Sequence[RechargeTimes], order_id: int, *, bought: bool) -> Iterator[Event]:
    """What happened to recharges: of the eSIMs of this order, or that which this order is. Its payment is told of
    already then and, where it was `bought` of a supplier, its failure."""
    for recharge in recharges:
        subject = f"eSIM {recharge.profile_id}:"
        order_no = identity.order_no(recharge.order_id)
        facts = [("order", order_no), ("plan", str(recharge.plan_no)), ("package", recharge.package_code)]
        if recharge.order_id != order_id:
            title = f"{subject} recharge paid, {money.shown(recharge.amount, recharge.currency)}"
            yield Event(recharge.paid_at, "shopping-cart", title, "PAID", "", facts)
        if recharge.applied_at is not None:
            yield Event(recharge.applied_at, "plus", f"{subject} recharge applied", "DELIVERED", "", facts)
        if recharge.failed and not (bought and recharge.order_id == order_id):
            yield Event(recharge.ended_at, "alert-circle", f"{subject} recharge failed", "FAILED", "", facts)
        if recharge.cancelled and not recharge.failed:
            yield Event(recharge.ended_at, "ban", f"{subject} recharge cancelled", "CANCELLED", "", facts)


def some_text(ids: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(ids[:most]) + (f" and {len(ids) - most} more" if len(ids) > most else "")


_CODES = ("ICCID_READY", "QR_CODE_READY", "ACTIVATION_CODE_READY")
_TELLING = (
    *_CODES,
    "REFUND_AMOUNT_UPDATED",
    "PROFILE_CANCELLED",
    "PLAN_USE_STARTED",
    "PLAN_USE_ENDED",
    "USAGE_UPDATED",
    "ESIM_STATUS_CHANGED",
    "SMDP_STATUS_CHANGED",
)
"""What says most stands first; all other changes follow from these."""
_INSTALLED = {"PROFILE_LIFECYCLE_CHANGED", "SMDP_STATUS_CHANGED"}
_MORE_THAN_INSTALLED = {*_CODES, "PROFILE_CANCELLED", "PLAN_USE_STARTED", "PLAN_USE_ENDED", "ESIM_STATUS_CHANGED"}
"""A delivered eSIM that goes on at the SM-DP+, and in nothing else, was installed (specification 3.4)."""


def changes_text(event_type: str, hints: Sequence[str] | None) -> str:
    """What a webhook says above all, where its type does not say it already. The page of the webhook has all of it."""
    said = [hint for hint in hints or () if hint != event_type and event_type != "REFUND_COMPLETED"]
    if {*said} >= _INSTALLED and not _MORE_THAN_INSTALLED & {*said}:
        return "eSIM installed"
    telling = [hint for hint in _TELLING if hint in said] or said[:1]
    texts = ["eSIM delivered" if hint in _CODES else words.text(hint) for hint in telling]
    first, *others = [*dict.fromkeys(texts)][: 1 if telling[:1] and telling[0] in _CODES else 2] or [""]
    return ", ".join([first, *[one if one[1:2].isupper() else one[:1].lower() + one[1:] for one in others]])


def event_text(event_type: str, hints: Sequence[str] | None) -> str:
    """What a webhook says above all; of one that was never sent its type."""
    return changes_text(event_type, hints) or words.text(event_type)
