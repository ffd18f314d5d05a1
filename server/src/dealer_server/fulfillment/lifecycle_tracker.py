"""What becomes of eSIMs after their delivery: told by their suppliers, asked of them, and by time (suppliers 3 rule 8).

Whoever hears of eSIMs calls `report`: the events' door, the test environment's hand, and the loop here, which asks
suppliers that do not tell by themselves and ends plans whose time is over. All is written in one transaction with the
event that tells the dealer; what changes nothing that is shown tells nothing.
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
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.fulfillment.supplier_calls import fault_text
from dealer_server.fulfillment.worker_loop import keep_working
from dealer_server.rules.delivery import delivery
from dealer_server.rules.lifecycle import lifecycle, usage
from dealer_server.rules.lifecycle.lifecycle import Lifecycle, Report
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.orders.save import LIFECYCLE, save
from dealer_server.store.profiles import lifecycle as rows
from dealer_server.store.profiles.lifecycle import Row, Written
from dealer_server.store.webhooks import enqueue
from dealer_server.store.webhooks.enqueue import USAGE_INTERVAL
from dealer_server.suppliers.contract import CALL_SECONDS, Bought, ProfileReport, Remote, ReportSource, Unasked

log = structlog.get_logger()

LIVES_PER_BATCH = 200
LEASE_SECONDS = CALL_SECONDS + 15.0
OrderKey = tuple[int, int]


class Changed(NamedTuple):
    """A profile that is shown otherwise than before."""

    tenant_id: int
    order_id: int
    profile_id: int


class Moved(NamedTuple):
    """A life after what was heard of it, and its profile."""

    row: Row
    life: Lifecycle
    profile: Profile


async def report(
    session: Connection | Session,
    supplier: str,
    sightings: Sequence[ProfileReport],
    data_keys: DataKeys,
    now: datetime,
    *,
    usage_interval: timedelta = USAGE_INTERVAL,
) -> list[Changed]:
    """Takes in what a supplier said of its eSIMs, within the caller's transaction; the profiles that changed by it.

    What names no eSIM of this supplier changes nothing. Call it before other locks are taken.
    """
    names = [(one.iccid, one.unit_key, one.supplier_ref) for one in sightings]
    found = await rows.named(session, supplier, names)
    heard: dict[int, list[Report]] = {}
    for sighting, profiles in zip(sightings, found, strict=True):
        for _, _, profile_id in profiles:
            heard.setdefault(profile_id, []).append(sighting.report)
    keys = sorted({one for profiles in found for one in profiles})
    if not keys:
        return []
    orders = sorted({key[:2] for key in keys})
    await store.order.lock(session, orders)
    locked = await rows.lock(session, [(tenant_id, profile_id) for tenant_id, _, profile_id in keys])
    before = await store.order.load(session, orders, data_keys)
    moved = [_heard(row, before, heard[row.profile_id], now) for row in locked.values()]
    await rows.record(session, [_after_report(one) for one in moved], now)
    return await _write(session, before, moved, now, usage_interval)


def _heard(row: Row, orders: Mapping[OrderKey, Order], reports: Sequence[Report], now: datetime) -> Moved:
    """A report from the future, by a clock that is wrong, is one of now: it would outlast all that follow."""
    profile, known = _profile(orders[row.order], row.profile_id), row.life
    for one in reports:
        profile, known = lifecycle.apply(profile, known, msgspec.structs.replace(one, at=min(one.at, now)))
    return Moved(row, known, profile)


def _after_report(one: Moved) -> Written:
    due = lifecycle.next_due(one.profile, one.life, one.row.due_at, timed=True)
    return Written(one.row.key, one.life, due, one.row.claim, one.row.claims, reported=True, asked=True)


async def _write(
    session: Connection | Session,
    before: Mapping[OrderKey, Order],
    moved: Sequence[Moved],
    now: datetime,
    usage_interval: timedelta,
) -> list[Changed]:
    """Writes the orders whose profiles are shown otherwise, with the events that say so."""
    profiles = {one.profile.profile_id: one.profile for one in moved}
    changes = [(order, after) for order in before.values() if (after := _settled(order, profiles, now)) is not order]
    if not changes:
        return []
    changed = [
        (after, new)
        for was, after in changes
        for old, new in zip(was.profiles, after.profiles, strict=True)
        if new != old
    ]
    await save(session, changes, LIFECYCLE)
    versions = [(after.tenant_id, after.order_id, after.version) for _, after in changes]
    await enqueue.order_changed(session, versions, now, _only_usage(changes), usage_interval)
    failpoints.hit("life.written")
    return [Changed(order.tenant_id, order.order_id, profile.profile_id) for order, profile in changed]


def _settled(order: Order, profiles: Mapping[int, Profile], now: datetime) -> Order:
    items = tuple(
        msgspec.structs.replace(
            item, profiles=tuple(profiles.get(profile.profile_id, profile) for profile in item.profiles)
        )
        for item in order.items
    )
    return delivery.settle(order, items, now)


def _only_usage(changes: Sequence[tuple[Order, Order]]) -> Collection[OrderKey]:
    """The orders of which nothing but usage changed, and no mark of it was crossed (decisions 6)."""
    return {
        (after.tenant_id, after.order_id)
        for before, after in changes
        if all(_more_of_the_same(old, new) for old, new in zip(before.profiles, after.profiles, strict=True))
    }


def _more_of_the_same(old: Profile, new: Profile) -> bool:
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


def _bought(row: Row) -> Bought:
    return Bought(
        profile_id=row.profile_id,
        unit_key=row.unit_key,
        sku=row.sku,
        iccid=row.iccid,
        supplier_ref=row.supplier_ref,
        unit_ref=row.unit_ref,
        package_code=row.package_code,
        delivered_at=row.created_at,
        data_bytes=row.data_total_bytes,
        cancelled=row.cancelled,
    )


# The loop


class LifecycleTracker:
    """Looks after the eSIMs of one supplier that are due. One connection, one batch at a time."""

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
            await keep_working(f"lives at {self._source.code}", self.run_once, self.wake)
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """One batch; how many lives it had."""
        now, claim_id = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        due = await rows.claim(self._session, self._source.code, claim_id, now, until, LIVES_PER_BATCH)
        if not due:
            return 0
        failpoints.hit("life.claimed")
        heard = await self._ask(due)
        failpoints.hit("life.asked")
        if await self._record_or_split(claim_id, due, heard):
            self._changed()
        failpoints.hit("life.recorded")
        return len(due)

    async def _ask(self, due: Sequence[Row]) -> dict[int, list[Report]] | None:
        """What is told of each that was asked, by profileId; None where no answer came."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                told = await self._refresh(due)
        except Exception as error:
            log.warning("lives_not_told", supplier=self._source.code, lives=len(due), error=fault_text(error))
            return None
        left = {one.profile_id for one in told if isinstance(one, Unasked)}
        sightings = [one for one in told if isinstance(one, ProfileReport)]
        return {
            one.profile_id: [sighting.report for sighting in sightings if _names(sighting, one)]
            for one in due
            if one.profile_id not in left
        }

    async def _refresh(self, due: Sequence[Row]) -> Sequence[ProfileReport | Unasked]:
        if not self._source.polled:
            return ()
        return await self._source.refresh([_bought(row) for row in due], self._clock())

    async def _record_or_split(
        self, claim_id: int, due: Sequence[Row], heard: Mapping[int, Sequence[Report]] | None
    ) -> bool:
        """Whether any profile changed. What cannot be recorded harms no other."""
        try:
            return await self._record(claim_id, due, heard)
        except DatabaseLost:
            raise
        except Exception as error:
            if len(due) == 1:
                log.error("life_not_recorded", supplier=due[0].supplier, profile_id=due[0].profile_id,
                          error=fault_text(error))  # fmt: skip
                return False
        return any([await self._record_or_split(claim_id, [one], heard) for one in due])

    async def _record(self, claim_id: int, due: Sequence[Row], heard: Mapping[int, Sequence[Report]] | None) -> bool:
        session, now = self._session, self._clock()
        orders = sorted({one.order for one in due})
        async with session.transaction():
            await store.order.lock(session, orders)
            held = await rows.lock(session, [one.key for one in due], claim_id)
            before = await store.order.load(session, orders, self._data_keys)
            moved = [self._moved(row, before, (heard or {}).get(row.profile_id, ()), now) for row in held.values()]
            await rows.record(session, [self._after(one, heard, now) for one in moved], now)
            changed = await _write(session, before, moved, now, self._usage_interval)
        return bool(changed)

    def _moved(self, row: Row, orders: Mapping[OrderKey, Order], reports: Sequence[Report], now: datetime) -> Moved:
        heard = _heard(row, orders, reports, now)
        if not self._source.timed:
            return heard
        profile, known = lifecycle.by_time(heard.profile, heard.life, now)
        return Moved(row, known, profile)

    def _after(self, one: Moved, heard: Mapping[int, Sequence[Report]] | None, now: datetime) -> Written:
        """Asked again in a while, sooner where no answer came, at once where there was no time to ask. A call that
        fails is no reason to let a plan run on."""
        row = one.row
        again, claims = self._again(row, heard, now)
        due = lifecycle.next_due(one.profile, one.life, again, timed=self._source.timed)
        reported = bool(heard and heard.get(row.profile_id))
        return Written(row.key, one.life, due, None, claims, reported, self._source.polled)

    def _again(
        self, row: Row, heard: Mapping[int, Sequence[Report]] | None, now: datetime
    ) -> tuple[datetime | None, int]:
        """When, and how many claims in a row have led to nothing by now."""
        if heard is None:
            return now + timedelta(seconds=retry_seconds(row.claims)), row.claims
        if row.profile_id not in heard:
            return now, row.claims - 1  # as before this claim
        return self._source.next_refresh_at(_bought(row), now), 0


def _names(sighting: ProfileReport, one: Row) -> bool:
    """Whether it is this eSIM that is meant: by unit_key, else by supplier_ref, else by ICCID."""
    if sighting.unit_key is not None:
        return sighting.unit_key == one.unit_key
    if sighting.supplier_ref is not None:
        return sighting.supplier_ref == one.supplier_ref
    return sighting.iccid is not None and sighting.iccid == one.iccid


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
