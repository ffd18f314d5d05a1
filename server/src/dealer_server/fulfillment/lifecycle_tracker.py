"""Follows eSIMs after their delivery: by what their suppliers report, by asking them, and by time.

All reports go through `report`: those in suppliers' messages, those made by /test/profile/advance, and those that the
loop here gets from suppliers that are asked. All is written in one transaction with the event for the
dealer; a report that changes nothing that is shown makes no event.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.fulfillment.worker_loop import keep_working
from dealer_server.rules.delivery import delivery
from dealer_server.rules.lifecycle import lifecycle, usage
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.orders.save import LIFECYCLE, save
from dealer_server.store.profiles import lifecycle as profiles
from dealer_server.store.profiles.lifecycle import FollowedProfile, Written
from dealer_server.store.webhooks import changes as told
from dealer_server.store.webhooks.enqueue import USAGE_INTERVAL
from dealer_server.suppliers.contract import CALL_SECONDS, Bought, ProfileReport, Remote, ReportSource, Unasked

log = structlog.get_logger()

PROFILES_PER_BATCH = 200
LEASE_SECONDS = CALL_SECONDS + 15.0
OrderKey = tuple[int, int]
Reports = Mapping[int, Sequence[Report]]
"""What was reported, by profileId. A profile that could not be asked about is missing."""


class Changed(NamedTuple):
    """A profile that is shown otherwise than before."""

    tenant_id: int
    order_id: int
    profile_id: int


class ProfileAfter(NamedTuple):
    """A followed profile as it was stored, and what it is after reports and time."""

    stored: FollowedProfile
    life: Lifecycle
    profile: Profile


async def report(
    session: Connection | Session,
    supplier: str,
    reports: Sequence[ProfileReport],
    data_keys: DataKeys,
    now: datetime,
    *,
    usage_interval: timedelta = USAGE_INTERVAL,
) -> list[Changed]:
    """Applies a supplier's reports on its eSIMs, within the caller's transaction; the profiles that changed by it.

    A report that names no eSIM of this supplier changes nothing. Call it before other locks are taken.
    """
    names = [(report.iccid, report.unit_key, report.supplier_ref) for report in reports]
    named = await profiles.named(session, supplier, names)
    by_profile: dict[int, list[Report]] = {}
    for profile_report, keys in zip(reports, named, strict=True):
        for _, _, profile_id in keys:
            by_profile.setdefault(profile_id, []).append(profile_report.report)
    keys = sorted({key for keys in named for key in keys})
    if not keys:
        return []
    orders = sorted({key[:2] for key in keys})
    await store.order.lock(session, orders)
    locked = await profiles.lock(session, [(tenant_id, profile_id) for tenant_id, _, profile_id in keys])
    before = await store.order.load(session, orders, data_keys)
    followed = [_after_reports(by_profile[stored.profile_id], stored, before, now) for stored in locked.values()]
    await profiles.record(session, [_written_report(each) for each in followed], now)
    return await _write(session, before, followed, data_keys, now, usage_interval)


def _after_reports(
    reports: Sequence[Report], stored: FollowedProfile, orders: Mapping[OrderKey, Order], now: datetime
) -> ProfileAfter:
    """A report from the future, by a clock that is wrong, counts as of now: it would outlast all that follow. A volume
    told while its supplier recharges the eSIM is left out: it may have been added there already, and is added here."""
    profile, life = _profile(orders[stored.order], stored.profile_id), stored.life
    for each in reports:
        total = None if stored.recharging else each.data_total_bytes
        counted = msgspec.structs.replace(lifecycle.not_after(each, now), data_total_bytes=total)
        profile, life = lifecycle.apply(profile, life, counted)
    return ProfileAfter(stored, life, profile)


def _written_report(followed: ProfileAfter) -> Written:
    stored = followed.stored
    return Written(
        key=stored.key,
        life=followed.life,
        due_at=lifecycle.next_due(followed.profile, followed.life, stored.due_at, timed=True),
        claim=stored.claim,
        claims=stored.claims,
        reported=True,
        asked=True,
    )


async def _write(
    session: Connection | Session,
    before: Mapping[OrderKey, Order],
    followed: Sequence[ProfileAfter],
    data_keys: DataKeys,
    now: datetime,
    usage_interval: timedelta,
) -> list[Changed]:
    """Writes the orders whose profiles are shown otherwise, with the events that say so."""
    by_id = {each.profile.profile_id: each.profile for each in followed}
    changes = [
        (order, after) for order in before.values() if (after := delivery.with_profiles(order, by_id, now)) is not order
    ]
    if not changes:
        return []
    await save(session, changes, LIFECYCLE)
    await told.tell(session, changes, data_keys, now, _only_usage(changes), usage_interval)
    failpoints.hit("life.written")
    return [
        Changed(after.tenant_id, after.order_id, new.profile_id)
        for was, after in changes
        for old, new in zip(was.profiles, after.profiles, strict=True)
        if new != old
    ]


def _only_usage(changes: Sequence[tuple[Order, Order]]) -> Collection[OrderKey]:
    """The orders of which nothing but usage changed, and no mark of it was crossed (specification 6.3)."""
    return {
        (after.tenant_id, after.order_id)
        for before, after in changes
        if all(_only_more_usage(old, new) for old, new in zip(before.profiles, after.profiles, strict=True))
    }


def _only_more_usage(old: Profile, new: Profile) -> bool:
    same = msgspec.structs.replace(new, data_usage_bytes=old.data_usage_bytes) == old
    return same and not usage.crossed(old.data_usage_bytes, new.data_usage_bytes, new.data_total_bytes)


def _profile(order: Order, profile_id: int) -> Profile:
    return next(profile for profile in order.profiles if profile.profile_id == profile_id)


class PollingSource:
    """A remote supplier: asked at intervals, where it can be asked at all. Some report the end of plans themselves."""

    def __init__(self, remote: Remote):
        self.code = remote.code
        self.polled = remote.caps.polled
        self.timed = not remote.caps.own_plan_end
        self._remote = remote

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> Sequence[ProfileReport | Unasked]:
        return await self._remote.refresh(bought, now)

    def next_refresh_at(self, bought: Bought, now: datetime) -> datetime | None:
        fraction = secrets.randbelow(1_000) / 1_000
        return now + timedelta(seconds=lifecycle.poll_seconds(fraction)) if self.polled else None


def _bought(stored: FollowedProfile) -> Bought:
    return Bought(
        profile_id=stored.profile_id,
        unit_key=stored.unit_key,
        sku=stored.sku,
        iccid=stored.iccid,
        supplier_ref=stored.supplier_ref,
        unit_ref=stored.unit_ref,
        package_code=stored.package_code,
        delivered_at=stored.created_at,
        data_bytes=stored.data_total_bytes,
        cancelled=stored.cancelled,
        plans=stored.plans,
    )


class LifecycleTracker:
    """Works off the due profiles of one supplier. One connection, one batch at a time."""

    def __init__(
        self,
        source: ReportSource,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None],
        *,
        usage_interval: timedelta = USAGE_INTERVAL,
    ):
        self.code = source.code
        self.wake = asyncio.Event()
        self._source = source
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self._usage_interval = usage_interval

    async def run(self) -> None:
        """Until cancelled; a batch that is begun is ended."""
        try:
            await keep_working(f"profiles at {self._source.code}", self.run_once, self.wake)
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """One batch; how many profiles it had."""
        now, claim_id = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        due = await profiles.claim(self._session, self._source.code, claim_id, now, until, PROFILES_PER_BATCH)
        if not due:
            return 0
        failpoints.hit("life.claimed")
        reports = await self._refresh(due)
        failpoints.hit("life.asked")
        if await self._record_or_split(claim_id, due, reports):
            self._changed()
        failpoints.hit("life.recorded")
        return len(due)

    async def _refresh(self, due: Sequence[FollowedProfile]) -> Reports | None:
        """None where no answer came."""
        if not self._source.polled:
            return {stored.profile_id: () for stored in due}
        try:
            async with asyncio.timeout(CALL_SECONDS):
                answers = await self._source.refresh([_bought(stored) for stored in due], self._clock())
        except Exception as error:
            log.warning("refresh_failed", supplier=self._source.code, profiles=len(due), error=fault_text(error))
            return None
        unasked = {answer.profile_id for answer in answers if isinstance(answer, Unasked)}
        reports = [answer for answer in answers if isinstance(answer, ProfileReport)]
        return {
            stored.profile_id: [
                _in_generation(answer.report, stored) for answer in reports if _is_about(answer, stored)
            ]
            for stored in due
            if stored.profile_id not in unasked
        }

    async def _record_or_split(self, claim_id: int, due: Sequence[FollowedProfile], reports: Reports | None) -> bool:
        """Whether any profile changed. A report that cannot be recorded does not affect the others."""
        try:
            return await self._record(claim_id, due, reports)
        except DatabaseLost:
            raise
        except Exception as error:
            if len(due) == 1:
                log.error("report_not_recorded", supplier=due[0].supplier, profile_id=due[0].profile_id,
                          error=fault_text(error))  # fmt: skip
                return False
        return any([await self._record_or_split(claim_id, [stored], reports) for stored in due])

    async def _record(self, claim_id: int, due: Sequence[FollowedProfile], reports: Reports | None) -> bool:
        session, now = self._session, self._clock()
        orders = sorted({stored.order for stored in due})
        async with session.transaction():
            await store.order.lock(session, orders)
            held = await profiles.lock(session, [stored.key for stored in due], claim_id)
            made_due = _made_due(due, held)
            reports = _still_told(reports, due, held)
            before = await store.order.load(session, orders, self._data_keys)
            followed = [
                self._after_reports_and_time(stored, before, (reports or {}).get(stored.profile_id, ()), now)
                for stored in held.values()
            ]
            written = [self._written(each, reports, now, again=each.stored.key in made_due) for each in followed]
            await profiles.record(session, written, now)
            changed = await _write(session, before, followed, self._data_keys, now, self._usage_interval)
        return bool(changed)

    def _after_reports_and_time(
        self, stored: FollowedProfile, orders: Mapping[OrderKey, Order], reports: Sequence[Report], now: datetime
    ) -> ProfileAfter:
        followed = _after_reports(reports, stored, orders, now)
        if not self._source.timed:
            return followed
        profile, life = lifecycle.by_time(followed.profile, followed.life, now)
        return ProfileAfter(stored, life, profile)

    def _written(self, followed: ProfileAfter, reports: Reports | None, now: datetime, *, again: bool) -> Written:
        """Due again after a while, sooner where no answer came, at once where there was no time to ask, or `again`. A
        call that fails is no reason to let a plan run on."""
        stored = followed.stored
        refresh_at, claims = self._next_refresh(stored, reports, now)
        if again or (self._source.polled and followed.profile.generation != stored.generation):
            refresh_at = now  # in the second case a plan has begun, of which it was not asked yet
        return Written(
            key=stored.key,
            life=followed.life,
            due_at=lifecycle.next_due(followed.profile, followed.life, refresh_at, timed=self._source.timed),
            claim=None,
            claims=claims,
            reported=bool(reports and reports.get(stored.profile_id)),
            asked=self._source.polled,
        )

    def _next_refresh(
        self, stored: FollowedProfile, reports: Reports | None, now: datetime
    ) -> tuple[datetime | None, int]:
        """When, and how many claims in a row have led to nothing by now."""
        if reports is None:
            return now + timedelta(seconds=retry_seconds(stored.claims)), stored.claims
        if stored.profile_id not in reports:
            return now, stored.claims - 1  # as before this claim
        return self._source.next_refresh_at(_bought(stored), now), 0


def _in_generation(report: Report, asked: FollowedProfile) -> Report:
    """It answers what was asked before a recharge that was applied meanwhile, unless its supplier says which plan it is
    about."""
    if report.queued_begun is not None:
        return report
    return msgspec.structs.replace(report, generation=asked.generation)


def _made_due(asked: Sequence[FollowedProfile], held: Mapping[int, FollowedProfile]) -> Collection[profiles.Key]:
    """Those made due since they were claimed, by a message of their supplier or a dealer who asks: the answer may be
    older."""
    now_held = [(stored, held[stored.profile_id]) for stored in asked if stored.profile_id in held]
    return {stored.key for stored, present in now_held if present.due_at != stored.due_at}


def _still_told(
    reports: Reports | None, asked: Sequence[FollowedProfile], held: Mapping[int, FollowedProfile]
) -> Reports | None:
    """Without what was told of eSIMs that were recharged since they were asked about: they are asked about anew."""
    if reports is None:
        return None
    recharged = {
        stored.profile_id
        for stored in asked
        if stored.profile_id in held and held[stored.profile_id].generation != stored.generation
    }
    return {profile_id: told for profile_id, told in reports.items() if profile_id not in recharged}


def _is_about(report: ProfileReport, stored: FollowedProfile) -> bool:
    """Whether it is this eSIM that is meant: by unit_key, else by supplier_ref, else by ICCID."""
    if report.unit_key is not None:
        return report.unit_key == stored.unit_key
    if report.supplier_ref is not None:
        return report.supplier_ref == stored.supplier_ref
    return report.iccid is not None and report.iccid == stored.iccid


def trackers(
    database: Database,
    sources: Sequence[ReportSource],
    data_keys: DataKeys,
    clock: Clock,
    changed: Callable[[], None],
    usage_interval: timedelta,
) -> list[LifecycleTracker]:
    return [
        LifecycleTracker(source, database.session(), data_keys, clock, changed, usage_interval=usage_interval)
        for source in sources
    ]
