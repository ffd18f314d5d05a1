"""Following delivered eSIMs: suppliers are asked and heard, time passes, workers die; each profile shows what is so."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.fulfillment.lifecycle_tracker import (
    LEASE_SECONDS,
    Changed,
    LifecycleTracker,
    PollingSource,
)
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders.model import Profile
from dealer_server.store.profiles import lifecycle as profiles
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.contract import (
    Bought,
    Caps,
    Event,
    Health,
    Outcome,
    ProfileReport,
    Purchase,
    Rejected,
    ReportSource,
    Unasked,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)
from support import store_fixture as shops
from support.store_fixture import SEED, START, StoreFixture
from support.webhook_fixture import eventually

GB = 2**30
WEEK, HALF_A_YEAR = 7 * 86_400, 180 * 86_400
CODE = "elsewhere"


@pytest.fixture
async def fixture(database_url: str) -> AsyncIterator[StoreFixture]:
    async with shops.opened(database_url) as fixture:
        yield fixture
        assert await fixture.violations() == []


@dataclass
class Upstream:
    """A supplier over a network that knows its eSIMs by ICCID, and remembers what it was asked. `most`: of how many it
    has the time to tell at once."""

    says: Callable[[Bought, datetime], Report | None] = lambda bought, now: Report(now)
    caps: Caps = field(default_factory=lambda: Caps(polled=True))
    asked: list[Bought] = field(default_factory=list)
    code: str = CODE
    most: int | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> Sequence[ProfileReport | Unasked]:
        asked = bought[: self.most]
        self.asked.extend(asked)
        await self.open.wait()
        told = ((one, self.says(one, now)) for one in asked)
        sightings = [ProfileReport(report, iccid=one.iccid) for one, report in told if report is not None]
        return [*sightings, *(Unasked(one.profile_id) for one in bought[len(asked) :])]

    async def allocate(self, purchase: Purchase, now: datetime) -> Outcome:
        return Rejected("NOT_ALLOWED", False, "it sells nothing here")

    async def probe(self, purchase: Purchase, now: datetime) -> Outcome:
        return Unknown("it sells nothing here")

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        return VoidDone()

    def parse_event(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        return Event(b"", "NONE")

    async def health(self) -> Health:
        return Health(True, "")

    async def close(self) -> None: ...


class Lives:
    """Delivered eSIMs and those who follow them."""

    def __init__(self, fixture: StoreFixture, dealer: int, order_id: int):
        self.fixture = fixture
        self.dealer = dealer
        self.order_id = order_id
        self.changes = 0

    async def look(self, source: ReportSource) -> int:
        """All that is due at a supplier now; how many lives that were."""
        worker, total = self.tracker(source), 0
        while lives := await worker.run_once():
            total += lives
        await worker._session.close()
        return total

    def tracker(self, source: ReportSource) -> LifecycleTracker:
        def changed() -> None:
            self.changes += 1

        return LifecycleTracker(
            source, self.fixture.database.session(), self.fixture.data_keys, self.fixture.time, changed
        )

    async def report(self, *sightings: ProfileReport, supplier: str = CODE) -> list[Changed]:
        async with self.fixture.database.transaction() as connection:
            return await lifecycle_tracker.report(
                connection, supplier, sightings, self.fixture.data_keys, self.fixture.time()
            )

    async def profiles(self) -> tuple[Profile, ...]:
        return (await self.fixture.load(self.dealer, self.order_id)).profiles

    async def profile(self) -> Profile:
        return (await self.profiles())[0]

    async def due(self) -> float | None:
        """In how many seconds the first life is looked at."""
        return (await self.fixture.rows(
            "SELECT extract(epoch FROM due_at - $2)::float8 FROM profile_life WHERE order_id = $1 ORDER BY profile_id",
            self.order_id, self.fixture.time(),
        ))[0][0]  # type: ignore[return-value]  # fmt: skip

    async def moved_to(self, supplier: str) -> None:
        await self.fixture.rows("UPDATE profile_life SET supplier = $1, due_at = $2", supplier, self.fixture.time())


async def delivered(
    fixture: StoreFixture, package: str = "TEST-OK", quantity: int = 1, dealer: int | None = None
) -> Lives:
    dealer = dealer or await fixture.dealer()
    order_id = await fixture.order(dealer, (package, quantity))
    await fixture.fulfil()
    return Lives(fixture, dealer, order_id)


async def elsewhere(fixture: StoreFixture, quantity: int = 1) -> Lives:
    """Delivered eSIMs whose supplier is the upstream, who is due to be asked."""
    lives = await delivered(fixture, quantity=quantity)
    await lives.moved_to(CODE)
    return lives


def network(speed: float = 1.0) -> Simulated:
    return Simulated(SEED, speed)


# Births


async def test_a_life_begins_with_the_delivery(fixture: StoreFixture):
    lives = await delivered(fixture, quantity=2)
    [first, second] = await fixture.rows(
        "SELECT supplier, unused_until, plan_seconds, created_at, due_at, reported_at FROM profile_life"
        " WHERE order_id = $1",
        lives.order_id,
    )
    until = START + timedelta(seconds=HALF_A_YEAR)
    assert first == second == ("simulated", until, WEEK, START, until, None)


async def test_plans_sold_by_the_day_last_their_days(fixture: StoreFixture):
    package = next(one for one in shops.PACKAGES.values() if one.data_type == "DAILY_UNLIMITED")
    dealer = await fixture.dealer()
    await fixture.order(dealer, (package.package_code, 1, 5))
    await fixture.fulfil()
    assert await fixture.rows("SELECT plan_seconds FROM profile_life") == [(5 * 86_400,)]


async def test_a_faster_network_has_shorter_plans(fixture: StoreFixture):
    dealer = await fixture.dealer()
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfil(Simulated(SEED, 10.0))
    assert await Lives(fixture, dealer, order_id).due() == HALF_A_YEAR / 10
    assert await fixture.rows("SELECT plan_seconds FROM profile_life") == [(WEEK // 10,)]


async def test_codes_from_stock_have_no_life(fixture: StoreFixture):
    await fixture.load_stock(1)
    await delivered(fixture, "DEMO-STOCK")
    assert await fixture.rows("SELECT 1 FROM profile_life") == []


# Time


async def test_time_ends_a_plan_and_the_dealer_is_told(fixture: StoreFixture):
    lives = await delivered(fixture)
    iccid = (await lives.profile()).iccid
    assert await lives.report(
        ProfileReport(Report(fixture.time(), esim_status="IN_USE"), iccid=iccid), supplier="simulated"
    )
    assert await lives.due() == WEEK
    fixture.time.passes(WEEK - 1)
    assert await lives.look(network()) == 0
    fixture.time.passes(1)
    assert await lives.look(network()) == 1 and lives.changes == 1
    ended = await lives.profile()
    assert (ended.plan_use_status, ended.esim_status, ended.plan_use_end_at) == (
        "ENDED",
        "USED_EXPIRED",
        fixture.time(),
    )
    assert await lives.due() is None
    assert [one[0] for one in await fixture.events(lives.dealer, lives.order_id)] == [
        "ORDER_PAID",
        *["DELIVERY_UPDATED"] * 3,
    ]


async def test_what_is_never_used_expires(fixture: StoreFixture):
    lives = await delivered(fixture, quantity=3)
    fixture.time.passes(HALF_A_YEAR)
    assert await lives.look(network()) == 3 and await lives.look(network()) == 0
    for one in await lives.profiles():
        assert (one.plan_use_status, one.esim_status, one.lifecycle_status) == ("ENDED", "UNUSED_EXPIRED", "DELIVERED")


async def test_a_void_profile_is_not_followed(fixture: StoreFixture):
    lives = await delivered(fixture)
    await fixture.rows("UPDATE profile SET lifecycle_status = 'CANCELLED', cancelled = true")
    before = await lives.profile()
    fixture.time.passes(HALF_A_YEAR)
    assert await lives.look(network()) == 1 and await lives.profile() == before
    assert await lives.due() is None


async def test_a_story_follows_from_the_time_of_delivery(fixture: StoreFixture):
    lives = await delivered(fixture, "TEST-LIFECYCLE")
    seen = []
    for _ in range(12):
        await lives.look(network())
        one = await lives.profile()
        seen.append((one.smdp_status, one.esim_status, round(one.data_usage_bytes / GB * 100), one.plan_use_status))
        fixture.time.passes(1)
    assert seen == [
        ("RELEASED", "GOT_RESOURCE", 0, "NOT_STARTED"),
        ("DOWNLOAD", "GOT_RESOURCE", 0, "NOT_STARTED"),
        ("INSTALLATION", "GOT_RESOURCE", 0, "NOT_STARTED"),
        ("ENABLED", "GOT_RESOURCE", 0, "NOT_STARTED"),
        ("ENABLED", "IN_USE", 0, "STARTED"),
        ("ENABLED", "IN_USE", 25, "STARTED"),
        ("ENABLED", "IN_USE", 50, "STARTED"),
        ("ENABLED", "IN_USE", 80, "STARTED"),
        ("ENABLED", "IN_USE", 100, "STARTED"),
        *[("ENABLED", "USED_UP", 100, "ENDED")] * 3,
    ]
    times = await lives.profile()
    assert (times.plan_use_start_at, times.plan_use_end_at) == (
        START + timedelta(seconds=4),
        START + timedelta(seconds=9),
    )


async def test_a_story_ends_with_the_profile(fixture: StoreFixture):
    lives = await delivered(fixture, "TEST-LIFECYCLE")
    await lives.look(network())
    await fixture.rows("UPDATE profile SET lifecycle_status = 'CANCELLED', cancelled = true")
    before = await lives.profile()
    fixture.time.passes(10)
    assert await lives.look(network()) == 1 and await lives.profile() == before
    assert await lives.due() is None


async def test_a_story_seen_late_ends_in_the_same_snapshot(fixture: StoreFixture):
    dealer = await fixture.dealer()
    closely, late = [await delivered(fixture, "TEST-LIFECYCLE", dealer=dealer) for _ in range(2)]
    await fixture.rows("UPDATE profile_life SET supplier = 'out of sight' WHERE order_id = $1", late.order_id)
    for _ in range(10):
        fixture.time.passes(1)
        await closely.look(network())
    await late.moved_to("simulated")
    await late.look(network())
    assert shown(await closely.profile()) == shown(await late.profile())


def shown(profile: Profile) -> list[object]:
    """All of it but what names it."""
    ids = ("profile_id", "iccid", "activation_code", "qr_token")
    return [getattr(profile, name) for name in Profile.__struct_fields__ if name not in ids]


# Asking


async def test_a_supplier_that_does_not_tell_is_asked_every_quarter_of_an_hour(fixture: StoreFixture):
    lives, upstream = await elsewhere(fixture, quantity=2), Upstream()
    for count in (2, 4, 6):
        assert await lives.look(PollingSource(upstream)) == 2 and len(upstream.asked) == count
        due = await lives.due()
        assert due is not None and 810 <= due < 990
        fixture.time.passes(990)
    assert lives.changes == 0, "nothing new is no event"
    assert {one.sku for one in upstream.asked} == {"TEST-OK"} and len({one.iccid for one in upstream.asked}) == 2
    upstream.says = lambda bought, now: Report(now, esim_status="IN_USE", data_usage_bytes=5)
    assert await lives.look(PollingSource(upstream)) == 2
    upstream.says = lambda bought, now: Report(now, esim_status="USED_UP", data_usage_bytes=GB)
    fixture.time.passes(990)
    assert await lives.look(PollingSource(upstream)) == 2 and await lives.due() is None, "nothing more after the end"
    assert {one.plan_use_status for one in await lives.profiles()} == {"ENDED"}


async def test_a_supplier_that_does_not_answer_is_asked_again_later_and_later(fixture: StoreFixture):
    def no_answer(bought: Bought, now: datetime) -> Report:
        raise TimeoutError

    lives, upstream = await elsewhere(fixture), Upstream(no_answer)
    for seconds in (5, 10, 20, 40):
        assert await lives.look(PollingSource(upstream)) == 1 and await lives.due() == seconds
        fixture.time.passes(seconds)
    upstream.says = lambda bought, now: Report(now)
    assert await lives.look(PollingSource(upstream)) == 1
    assert await fixture.rows("SELECT claims, claim FROM profile_life") == [(0, None)]


async def test_what_there_was_no_time_to_ask_of_is_asked_of_at_once(fixture: StoreFixture):
    lives, upstream = await elsewhere(fixture, quantity=5), Upstream(most=2)
    assert await lives.look(PollingSource(upstream)) == 5 + 3 + 1, "each time all that is left"
    assert len(upstream.asked) == len({one.iccid for one in upstream.asked}) == 5
    found = await fixture.rows(
        "SELECT claims, claim, reported_at = $1, due_at > $1 + interval '800 s' FROM profile_life", fixture.time()
    )
    assert found == [(0, None, True, True)] * 5


async def test_to_leave_an_esim_for_later_is_not_to_hear_of_it(fixture: StoreFixture):
    def no_answer(bought: Bought, now: datetime) -> Report:
        raise TimeoutError

    lives, upstream = await elsewhere(fixture), Upstream(no_answer)
    await lives.look(PollingSource(upstream))
    fixture.time.passes(5)
    upstream.says, upstream.most = lambda bought, now: Report(now), 0
    worker = lives.tracker(PollingSource(upstream))
    assert await worker.run_once() == 1 and await lives.due() == 0
    await worker._session.close()
    assert await fixture.rows("SELECT claims, claim, reported_at FROM profile_life") == [(1, None, None)]


async def test_a_plan_ends_also_while_its_supplier_does_not_answer(fixture: StoreFixture):
    def no_answer(bought: Bought, now: datetime) -> Report:
        raise ConnectionError

    lives = await elsewhere(fixture)
    await lives.look(PollingSource(Upstream(lambda bought, now: Report(now, esim_status="IN_USE"))))
    fixture.time.passes(WEEK)
    assert await lives.look(PollingSource(Upstream(no_answer))) == 1
    assert (await lives.profile()).plan_use_status == "ENDED"


async def test_what_a_supplier_cannot_tell_of_stays_as_it_is(fixture: StoreFixture):
    lives, upstream = await elsewhere(fixture), Upstream(lambda bought, now: None)
    before = await lives.profile()
    assert await lives.look(PollingSource(upstream)) == 1 and await lives.profile() == before
    assert await fixture.rows("SELECT reported_at FROM profile_life") == [(None,)]


async def test_a_supplier_that_ends_plans_itself_is_waited_for(fixture: StoreFixture):
    lives = await elsewhere(fixture)
    upstream = Upstream(lambda bought, now: Report(now, esim_status="IN_USE"), Caps(polled=True, own_plan_end=True))
    await lives.look(PollingSource(upstream))
    fixture.time.passes(WEEK + HALF_A_YEAR)
    await lives.look(PollingSource(upstream))
    assert (await lives.profile()).plan_use_status == "STARTED"
    upstream.says = lambda bought, now: Report(now, esim_status="USED_EXPIRED")
    fixture.time.passes(990)
    await lives.look(PollingSource(upstream))
    assert (await lives.profile()).plan_use_status == "ENDED"


async def test_a_supplier_that_cannot_be_asked_is_not_asked(fixture: StoreFixture):
    lives, upstream = await elsewhere(fixture), Upstream(caps=Caps())
    await fixture.rows("UPDATE profile_life SET asked_at = $1", fixture.time())
    assert await lives.look(PollingSource(upstream)) == 1 and upstream.asked == []
    assert await fixture.rows("SELECT asked_at FROM profile_life") == [(None,)], "nobody waits for its answer"
    assert await lives.due() == HALF_A_YEAR


async def test_a_worker_that_was_too_slow_writes_nothing(fixture: StoreFixture):
    lives, slow = await elsewhere(fixture), Upstream(lambda bought, now: Report(now, smdp_status="DELETED"))
    slow.open.clear()
    worker = lives.tracker(PollingSource(slow))
    working = asyncio.create_task(worker.run_once())
    await eventually(lambda: asyncio.sleep(0, bool(slow.asked)))
    fixture.time.passes(LEASE_SECONDS)
    await lives.look(PollingSource(Upstream(lambda bought, now: Report(now, smdp_status="ENABLED"))))
    slow.open.set()
    assert await working == 1
    assert (await lives.profile()).smdp_status == "ENABLED"
    await worker._session.close()


async def test_a_message_that_comes_while_the_supplier_is_asked_is_not_lost(fixture: StoreFixture):
    """The answer was made before the message: it is asked again at once."""
    lives, upstream = await elsewhere(fixture), Upstream(lambda bought, now: Report(now, smdp_status="ENABLED"))
    upstream.open.clear()
    worker = lives.tracker(PollingSource(upstream))
    working = asyncio.create_task(worker.run_once())
    await eventually(lambda: asyncio.sleep(0, bool(upstream.asked)))
    fixture.time.passes(1)
    keys = [(lives.dealer, (await lives.profile()).profile_id)]
    await profiles.make_due(worker._session, keys, fixture.time())
    upstream.open.set()
    assert await working == 1
    assert await lives.due() == 0
    assert await worker.run_once() == 1 and len(upstream.asked) == 2
    assert (await lives.due() or 0) > 800, "once"
    await worker._session.close()


async def test_what_cannot_be_recorded_harms_no_other(fixture: StoreFixture):
    dealer = await fixture.dealer()
    broken, good = [await delivered(fixture, dealer=dealer) for _ in range(2)]
    await good.moved_to(CODE)
    [(sealed,)] = await fixture.rows("SELECT activation_code FROM profile WHERE order_id = $1", broken.order_id)
    put = "UPDATE profile SET activation_code = $2 WHERE order_id = $1"
    await fixture.rows(put, broken.order_id, b"no key opens this")
    upstream = Upstream(lambda bought, now: Report(now, smdp_status="ENABLED"))
    assert await good.look(PollingSource(upstream)) == 2
    assert (await good.profile()).smdp_status == "ENABLED"
    assert await broken.due() == LEASE_SECONDS, "it comes due again"
    await fixture.rows(put, broken.order_id, sealed)


# Being told


async def test_reports_in_one_message_change_an_order_once(fixture: StoreFixture):
    lives = await elsewhere(fixture, quantity=2)
    told = [
        ProfileReport(Report(fixture.time(), smdp_status=word), iccid=one.iccid)
        for one in await lives.profiles()
        for word in ("ENABLED", "DOWNLOAD", "INSTALLATION")
    ]
    assert len(await lives.report(*told)) == 2
    order = await fixture.load(lives.dealer, lives.order_id)
    assert order.version == 3 and order.items[0].item_status == "ACTIVATED"
    assert await lives.report(*told) == [], "the same again"
    assert (await fixture.load(lives.dealer, lives.order_id)).version == 3


async def test_reports_in_any_order_leave_the_same_rows(fixture: StoreFixture):
    """Each in a transaction of its own, some twice; three profiles, the first of which hears them in order."""
    lives, shuffle = await elsewhere(fixture, quantity=3), random.Random(7)
    now = fixture.time()
    words = (
        {"smdp_status": "DOWNLOAD"}, {"smdp_status": "INSTALLATION"}, {"smdp_status": "ENABLED"},
        {"esim_status": "IN_USE"}, {"data_usage_bytes": GB // 2}, {"smdp_status": "DISABLED"},
        {"smdp_status": "ENABLED"}, {"esim_status": "USED_UP", "data_usage_bytes": GB}, {"smdp_status": "DELETED"},
    )  # fmt: skip
    fixture.time.passes(60)
    story = [Report(now + timedelta(seconds=number), **said) for number, said in enumerate(words)]
    for number, profile in enumerate(await lives.profiles()):
        told = story + story if number == 0 else shuffle.sample(story + story, 2 * len(story))
        for report in told:
            await lives.report(ProfileReport(report, iccid=profile.iccid))
    first, *others = [shown(profile) for profile in await lives.profiles()]
    assert others == [first, first]
    known = "smdp_at, esim_at, ended_at, valid_until, due_at"
    assert len(await fixture.rows(f"SELECT DISTINCT {known} FROM profile_life")) == 1


async def test_what_is_none_of_its_esims_changes_nothing(fixture: StoreFixture):
    lives = await elsewhere(fixture)
    report = Report(fixture.time(), smdp_status="ENABLED")
    iccid = (await lives.profile()).iccid
    assert await lives.report(ProfileReport(report, iccid="8900000000000000009")) == []
    assert await lives.report(ProfileReport(report, iccid=iccid), supplier="another") == []
    assert await lives.report(ProfileReport(report, unit_key="u-1-0-1"), ProfileReport(report, supplier_ref="x")) == []
    assert await lives.report(ProfileReport(report)) == [] and await lives.report() == []
    assert (await lives.profile()).smdp_status == "RELEASED"


async def test_an_esim_is_also_known_by_what_it_was_bought_as(fixture: StoreFixture):
    lives = await elsewhere(fixture)
    profile = await lives.profile()
    await fixture.rows(
        "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
        " supplier_ref, iccid, created_at) VALUES ($1, $2, 0, $3, 0, 'u-1', $4, 'SKU', 'DONE', 'REF', $5, $6)",
        lives.dealer, profile.profile_id, lives.order_id, CODE, profile.iccid, fixture.time(),
    )  # fmt: skip
    assert await lives.report(ProfileReport(Report(fixture.time(), smdp_status="DOWNLOAD"), unit_key="u-1"))
    assert await lives.report(ProfileReport(Report(fixture.time(), smdp_status="ENABLED"), supplier_ref="REF"))
    upstream = Upstream()
    await lives.moved_to(CODE)
    await lives.look(PollingSource(upstream))
    [asked] = upstream.asked
    assert (asked.unit_key, asked.sku, asked.supplier_ref) == ("u-1", "SKU", "REF")


async def test_a_clock_that_is_ahead_outlasts_nothing(fixture: StoreFixture):
    lives = await elsewhere(fixture)
    iccid = (await lives.profile()).iccid
    ahead = fixture.time() + timedelta(days=9_999)
    await lives.report(ProfileReport(Report(ahead, smdp_status="ENABLED"), iccid=iccid))
    fixture.time.passes(5)
    await lives.report(ProfileReport(Report(fixture.time(), smdp_status="DISABLED"), iccid=iccid))
    assert (await lives.profile()).smdp_status == "DISABLED"


async def test_a_suppliers_own_cancellation_is_told(fixture: StoreFixture):
    lives = await elsewhere(fixture)
    iccid = (await lives.profile()).iccid
    assert await lives.report(ProfileReport(Report(fixture.time(), esim_status="REVOKED"), iccid=iccid))
    profile = await lives.profile()
    assert (profile.lifecycle_status, profile.cancelled, profile.refunded) == ("CANCELLED", True, False)
    assert await lives.due() is None
    assert await lives.report(ProfileReport(Report(fixture.time(), "ENABLED", data_usage_bytes=5), iccid=iccid))
    late = await lives.profile()
    assert (late.smdp_status, late.lifecycle_status, late.data_usage_bytes) == ("ENABLED", "CANCELLED", 0)
