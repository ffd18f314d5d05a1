"""What happened, event by event. What happened again and again is one event with a count, which can be opened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from typing import NamedTuple

from dealer_server.console.shared import words
from dealer_server.rules.lifecycle.use import used_percent
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Order, Profile
from dealer_server.store.console.orders import ProfileTimes
from dealer_server.store.console.recharges import RechargeTimes
from dealer_server.store.webhooks.log import Attempt

FAILED = "alert-circle"
"""The symbol of a failure for good."""
AttemptRun = Sequence[Attempt]
"""Attempts one after the other with the same result."""


class Repeat(NamedTuple):
    """One of the times at which the same happened. Of a webhook: its `title`, and `delivery_id` for the link to its
    page."""

    at: datetime
    facts: Sequence[tuple[str, str]]
    title: str = ""
    delivery_id: int | None = None


class Event(NamedTuple):
    """`facts`: names and values. Of a webhook: `delivery_id` for the link to its page, `body` indented. `repeats`: each
    time, where the same happened more than once; `at` is the first. `anchor`: what links to it name it."""

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


def in_order(events: Iterable[Event]) -> list[Event]:
    """The oldest first. Those that follow each other and say the same are one, and so are all webhooks that were not
    needed: of a dealer without a callback URL they would be most of the timeline."""
    unneeded, others = [], []
    for event in events:
        (unneeded if event.delivery_id is not None and event.state == "SKIPPED" else others).append(event)
    if len(unneeded) > 1:
        unneeded = [_unneeded(sorted(unneeded, key=lambda event: event.at))]
    ordered = sorted([*others, *unneeded], key=lambda event: (event.at, event.delivery_id or 0))
    return [_one([*same]) for _, same in groupby(ordered, key=_what)]


def _unneeded(webhooks: Sequence[Event]) -> Event:
    repeats = [Repeat(one.at, one.facts, one.title, one.delivery_id) for one in webhooks]
    first = webhooks[0]
    return Event(first.at, first.symbol, f"{len(webhooks)} webhooks", first.state, repeats=repeats)


def _what(event: Event) -> tuple[object, ...]:
    """What an event says; webhooks are each their own."""
    return event.symbol, event.title, event.state, event.text, event.delivery_id


def _one(same: Sequence[Event]) -> Event:
    if len(same) == 1:
        return same[0]
    shared = [fact for fact in same[0].facts if all(fact in event.facts for event in same)]
    repeats = [Repeat(event.at, [fact for fact in event.facts if fact not in shared]) for event in same]
    return same[0]._replace(facts=shared, repeats=repeats)


def runs(attempts: Iterable[Attempt]) -> list[AttemptRun]:
    return [[*same] for _, same in groupby(attempts, key=lambda one: (one.http_status, one.error))]


class _Step(NamedTuple):
    """A step of a profile's lifecycle. Those of one second, symbol and title are one event."""

    second: datetime
    symbol: str
    title: str
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
    "INSTALLATION": "installed",
    "ENABLED": "turned on in the phone",
    "DISABLED": "turned off in the phone",
    "DELETED": "deleted from the phone",
}
_SAID_BY_ITS_PLAN = ("GOT_RESOURCE", "IN_USE", "USED_UP", "USED_EXPIRED", "UNUSED_EXPIRED")


def profile_events(order: Order, profiles: Sequence[ProfileTimes], *, suppliers: bool = True) -> Iterator[Event]:
    """What happened to eSIMs of the order. `suppliers`: theirs are named, and their words are as they came."""
    esims = {profile.profile_id: profile for profile in order.profiles}
    steps = sorted(
        _Step(at.replace(microsecond=0), symbol, title, at, profile.profile_id)
        for profile in profiles
        for at, symbol, title in (
            (profile.delivered_at, "qrcode", _delivered(profile.supplier) if suppliers else "delivered"),
            *_word_steps(profile, raw=suppliers),
            *_plan_steps(profile, esims.get(profile.profile_id)),
        )
        if at is not None
    )
    for (_, symbol, title), group in groupby(steps, key=lambda step: step[:3]):
        together = list(group)
        ids = [str(step.profile_id) for step in together]
        subject = f"eSIM {ids[0]}" if len(ids) == 1 else f"{len(ids)} eSIMs"
        facts = [("eSIMs", some_text(ids))] if ids[1:] else ()
        yield Event(together[0].at, symbol, f"{subject}: {title}", facts=facts)


def _word_steps(profile: ProfileTimes, *, raw: bool) -> Iterator[tuple[datetime | None, str, str]]:
    """When its supplier's words became what they are. Not `raw`: as people say them, without what its plan says."""
    smdp, esim = profile.smdp_status or "unknown", profile.esim_status or "unknown"
    title = f"SM-DP+ status: {words.text(smdp)}"
    yield profile.smdp_at, "download", title if raw else _SMDP_TITLES.get(smdp, title)
    if raw or esim not in _SAID_BY_ITS_PLAN:
        yield profile.esim_at, "device-mobile", f"device status: {words.text(esim)}"


def _delivered(supplier: str) -> str:
    return "delivered from stock" if supplier == STOCK else f"delivered by {supplier}"


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
    return [event._replace(title=_without_number(event.title, profile_id)) for event in events]


def _without_number(title: str, profile_id: int) -> str:
    head, _, text = title.partition(f"eSIM {profile_id}: ")
    if head:
        return title.replace(f" eSIM {profile_id}", " it")
    return text if text.startswith("eSIM") else text[:1].upper() + text[1:]


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
