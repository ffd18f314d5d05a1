"""What became of the eSIMs that made-up orders sold? Each life follows from the id of its order, by the rules that real
answers and reports go through, so that it is stored as the service itself would have left it.
"""

import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

import msgspec

from dealer_server.dev import wholesalers
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.lifecycle import daily_usage, lifecycle
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Part, Scope, Way
from dealer_server.store.past.orders import PastOrder, PastRefund, Told

FAILED, GIVEN_BACK = 0.02, 0.03
"""Of all orders."""
ASKED_BACK, REVIEWED_AFTER = 0.04, timedelta(days=3)
"""Of those delivered so lately that an operator has not yet reviewed what was asked."""
NEVER_INSTALLED = 0.08
"""Of all eSIMs."""
REMARKS = ("Trip cancelled", "Bought twice", "Wrong country", "The phone takes no eSIM", "Customer changed their mind")
BUYERS = (
    *(
        "Ana Costa",
        "Ben Okafor",
        "Chloé Martin",
        "Deniz Kaya",
        "Elena Rossi",
        "Farid Haddad",
        "Grace Lee",
        "Hugo Weber",
    ),
    *("Ines Duarte", "Jonas Lind", "Kavya Nair", "Liam Walsh", "Mina Park", "Noah Visser", "Olga Novak"),
)
"""Whom a dealer names in the remark of three orders of four."""
MARKS = (0.5, 0.8, 0.9)
"""Usage that its supplier reports."""
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


class Sold(NamedTuple):
    """An order of one line. Its profiles have the ids from order_id on."""

    order_id: int
    delivered_seconds: int
    package: Package
    quantity: int

    @property
    def amount(self) -> int:
        return self.package.price * self.quantity


class _State(NamedTuple):
    """An eSIM from this moment on."""

    at: datetime
    profile: Profile
    life: Lifecycle


def lived(sold: Sold, number: int, now: datetime) -> PastOrder:
    """The order until now. `number` counts those of its dealer. Who that is, is known to who writes it."""
    chance = Random(f"buyer of {sold.order_id}")
    return _lived(sold, number, now)._replace(remark=chance.choice(BUYERS) if chance.random() < 0.75 else None)


def _lived(sold: Sold, number: int, now: datetime) -> PastOrder:
    chance = Random(sold.order_id)
    order, placed_at = _placed(sold, number), identity.created_at(sold.order_id)
    at, paid = placed_at + timedelta(seconds=sold.delivered_seconds), Told("ORDER_PAID", order, placed_at)
    fate = chance.random()
    if fate < FAILED:
        return _failed(order, at, paid)
    answers = {profile.profile_id: _codes(profile.profile_id, sold.package) for profile in order.profiles}
    delivered = delivery.allocate(order, answers, frozenset([0]), at)
    begun = {one.profile_id: _begun(sold.package, at) for one in delivered.profiles}
    past = PastOrder(delivered, at, begun, [paid, Told("DELIVERY_UPDATED", delivered, at)])
    asked_at = at + chance.uniform(0.2, 30) * HOUR
    if fate < FAILED + GIVEN_BACK and asked_at < now:
        return _given_back(past, asked_at, chance.choice(REMARKS), "dealer")
    if fate < FAILED + GIVEN_BACK + ASKED_BACK and now - REVIEWED_AFTER < at < asked_at < now:
        return _asked_back(past, asked_at, chance.choice(REMARKS))
    return _used(past, sold.package, chance, now)


def _placed(sold: Sold, number: int) -> Order:
    profiles = tuple(Profile(sold.order_id + at) for at in range(sold.quantity))
    code, supplier = sold.package.package_code, wholesalers.FIRST.code
    item = Item(0, code, supplier, sold.quantity, 1, sold.package.price, sold.order_id, "PAID", profiles)
    at = identity.created_at(sold.order_id)
    return Order(0, sold.order_id, f"shop-{number}", "USD", sold.amount, 0, "PAID", "PENDING", "PAID", 1, at, (item,))


def _codes(profile_id: int, package: Package) -> Codes:
    code = f"LPA:1$rsp.wholesale.example${secrets.token_hex(13).upper()}"
    return Codes(wholesalers.past_iccid(profile_id), code, secrets.token_urlsafe(16),
                 data_total_bytes=package.data_bytes)  # fmt: skip


def _begun(package: Package, at: datetime) -> Lifecycle:
    return Lifecycle(at + package.unused_valid_days * DAY, package.duration * 86_400)


def _failed(order: Order, at: datetime, paid: Told) -> PastOrder:
    """Its supplier could not deliver: it is refunded at once."""
    ids = frozenset(profile.profile_id for profile in order.profiles)
    failed = delivery.allocate(order, dict.fromkeys(ids, Failed()), frozenset([0]), at)
    held = refund.hold(failed, ids, at)
    past = PastOrder(held, None, {}, [paid, Told("DELIVERY_UPDATED", held, at)])
    return _given_back(past, at, "Could not be delivered", "system")


def _given_back(past: PastOrder, at: datetime, remark: str, author: str) -> PastOrder:
    """All of the order is refunded."""
    order, settled_at = past.order, at + timedelta(seconds=1 if author == "system" else 0)
    parts = _parts(order, "AT_ONCE")
    scope = Scope({0: frozenset(part.profile_id for part in parts)} if author == "system" else None)
    after = refund.credit(order, parts, settled_at)
    told = [Told("DELIVERY_UPDATED", after, settled_at), Told("REFUND_COMPLETED", after, settled_at)]
    return past._replace(
        order=after,
        told=[*past.told, *told],
        refund=PastRefund(_refund_id(order, at), scope.digest, parts, remark, author, at, settled_at),
    )


def _asked_back(past: PastOrder, at: datetime, remark: str) -> PastOrder:
    """A refund of all of the order waits for an operator's word."""
    parts = _parts(past.order, "REVIEW")
    order = refund.hold(past.order, [part.profile_id for part in parts], at)
    return past._replace(
        order=order,
        told=[*past.told, Told("DELIVERY_UPDATED", order, at)],
        refund=PastRefund(_refund_id(order, at), Scope(None).digest, parts, remark, "dealer", at, None),
    )


def _parts(order: Order, way: Way) -> list[Part]:
    [item] = order.items
    return [Part(0, profile.profile_id, profile.iccid, item.price, way) for profile in item.profiles]


def _refund_id(order: Order, at: datetime) -> int:
    return identity.first_id_at(int(at.timestamp())) + order.order_id % identity.SEQUENCE


def _used(past: PastOrder, package: Package, chance: Random, now: datetime) -> PastOrder:
    assert past.delivered_at is not None
    states = [
        state
        for profile in past.order.profiles
        for state in _states(
            profile, past.lives[profile.profile_id], _reports(past.delivered_at, package, chance, now), now
        )
    ]
    states.sort(key=lambda state: state.at)
    order, lives, told = past.order, {**past.lives}, [*past.told]
    for at, profile, life in states:
        after = delivery.with_profiles(order, {profile.profile_id: profile}, at)
        if after is not order:
            told.append(Told("DELIVERY_UPDATED", after, at))
        order, lives[profile.profile_id] = after, _with_days(life, profile, at)
    reported = {profile.profile_id: at for at, profile, _ in states}
    return past._replace(order=order, lives=lives, told=told, reported=reported)


def _states(profile: Profile, life: Lifecycle, reports: Sequence[Report], now: datetime) -> Iterator[_State]:
    for report in reports:
        profile, life = lifecycle.apply(profile, life, report)
        yield _State(report.at, profile, life)
    over = lifecycle.over_at(profile, life)
    if over is not None and over <= now:
        yield _State(over, *lifecycle.by_time(profile, life, over))


def _with_days(life: Lifecycle, profile: Profile, last: datetime) -> Lifecycle:
    """With what was used on the days until its last report, some more and some less."""
    began, used = profile.plan_use_start_at, profile.data_usage_bytes
    counts, chance = life.daily_usage, Random(profile.profile_id)
    if began is None or not used or began >= last:
        return life
    midnight = began.replace(hour=23, minute=59, second=0, microsecond=0)
    while midnight < last:
        share = (midnight - began + chance.uniform(-0.4, 0.4) * DAY) / (last - began)
        counts = daily_usage.counted(counts, midnight, int(used * min(max(share, 0.01), 1)))
        midnight += DAY
    return msgspec.structs.replace(life, daily_usage=counts)


def _reports(delivered_at: datetime, package: Package, chance: Random, now: datetime) -> list[Report]:
    """What its supplier reported of one eSIM until now: a traveller installs it, uses it for some days, and may use it
    up. Where the plan starts with the installation, it is installed where it is used."""
    soon, by_install = chance.random() < 0.7, package.activation_type == "FIRST_INSTALL"
    installed_at = delivered_at + (chance.uniform(0.03, 2) * HOUR if soon else chance.expovariate(1 / 3) * DAY)
    used_at = installed_at + (chance.uniform(0.1, 3) * HOUR if chance.random() < 0.6 else chance.expovariate(0.5) * DAY)
    used_at = installed_at if by_install else used_at
    trip = min(package.duration, chance.uniform(4, 16)) * DAY
    share = chance.betavariate(2, 1.4) * 1.3
    last = min(now - chance.uniform(0.05, 8) * HOUR, used_at + trip)
    if chance.random() < NEVER_INSTALLED:
        return []
    volume = package.data_bytes or 0
    found = [
        Report(installed_at, smdp_status="INSTALLATION"),
        Report(used_at, "ENABLED", "IN_USE", data_usage_bytes=int(volume * share * 0.01)),
        *(
            Report(used_at + trip * (mark / share), data_usage_bytes=int(volume * mark))
            for mark in MARKS
            if mark < min(share, 1)
        ),
    ]
    if share >= 1:
        found.append(Report(used_at + trip / share, esim_status="USED_UP", data_usage_bytes=volume))
    elif last > used_at:
        found.append(Report(last, data_usage_bytes=int(volume * share * ((last - used_at) / trip))))
    return sorted((report for report in found if report.at <= now), key=lambda report: report.at)
