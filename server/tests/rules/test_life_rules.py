"""What reports and time make of a profile. Pure: profiles, lives and reports in, profiles and lives out."""

import itertools
import random
from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.delivery import delivery
from dealer_server.rules.lifecycle import lifecycle as life
from dealer_server.rules.lifecycle.daily_usage import MOST_DAYS, by_day
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from esim_dealer.wire import snapshot as wire

DELIVERED_AT = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
GB = 2**30
DAY = 86_400
NEW = Profile(
    1, "DELIVERED", iccid="8900000000000000009", activation_code="LPA:1$a.example$B", qr_token="t",
    esim_status="GOT_RESOURCE", smdp_status="RELEASED", data_total_bytes=GB,
)  # fmt: skip
TERMS = Lifecycle(unused_until=DELIVERED_AT + timedelta(days=180), plan_seconds=7 * DAY)


def at(seconds: float) -> datetime:
    return DELIVERED_AT + timedelta(seconds=seconds)


def told(*reports: Report, profile: Profile = NEW, known: Lifecycle = TERMS) -> tuple[Profile, Lifecycle]:
    for report in reports:
        profile, known = life.apply(profile, known, report)
    return profile, known


def smdp(word: str, seconds: float = 1) -> Report:
    return Report(at(seconds), smdp_status=word)


def esim(word: str, seconds: float = 1) -> Report:
    return Report(at(seconds), esim_status=word)


def used(size: int, seconds: float = 1) -> Report:
    return Report(at(seconds), data_usage_bytes=size)


# Each report


@pytest.mark.parametrize(
    ("report", "lifecycle", "plan"),
    [
        (smdp("RELEASED"), "DELIVERED", "NOT_STARTED"),
        (smdp("DOWNLOAD"), "ACTIVATING", "NOT_STARTED"),
        (smdp("INSTALLATION"), "ACTIVATING", "NOT_STARTED"),
        (smdp("ENABLED"), "ACTIVATED", "NOT_STARTED"),
        (smdp("DISABLED"), "DELIVERED", "NOT_STARTED"),
        (smdp("DELETED"), "DELIVERED", "NOT_STARTED"),
        (smdp("ERROR"), "DELIVERED", "NOT_STARTED"),
        (esim("GOT_RESOURCE"), "DELIVERED", "NOT_STARTED"),
        (esim("IN_USE"), "ACTIVATED", "STARTED"),
        (esim("SUSPENDED"), "DELIVERED", "NOT_STARTED"),
        (esim("USED_UP"), "ACTIVATED", "ENDED"),
        (esim("USED_EXPIRED"), "ACTIVATED", "ENDED"),
        (esim("UNUSED_EXPIRED"), "DELIVERED", "ENDED"),
        (esim("CANCEL"), "CANCELLED", "NOT_STARTED"),
        (esim("REVOKED"), "CANCELLED", "NOT_STARTED"),
        (esim("ROAMING_BLOCKED"), "DELIVERED", "NOT_STARTED"),
        (used(0), "DELIVERED", "NOT_STARTED"),
        (used(1), "ACTIVATED", "STARTED"),
        (Report(at(1), plan_started_at=at(0)), "DELIVERED", "STARTED"),
    ],
)
def test_what_one_report_makes_of_a_new_profile(report: Report, lifecycle: str, plan: str):
    profile, _ = told(report)
    assert (profile.lifecycle_status, profile.plan_use_status) == (lifecycle, plan)
    assert profile.activated == (lifecycle == "ACTIVATED") and profile.cancelled == (lifecycle == "CANCELLED")
    assert profile.smdp_status == (report.smdp_status or "RELEASED"), "raw words are passed on as they are"
    assert profile.esim_status == (report.esim_status or "GOT_RESOURCE")
    assert profile.data_usage_bytes == (report.data_usage_bytes or 0)


def test_lifecycle_never_moves_back():
    profile, _ = told(smdp("ENABLED", 1), smdp("DOWNLOAD", 2), smdp("DELETED", 3))
    assert (profile.lifecycle_status, profile.smdp_status) == ("ACTIVATED", "DELETED")


def test_enabled_and_disabled_go_by_time():
    assert told(smdp("DISABLED", 5), smdp("ENABLED", 3))[0].smdp_status == "DISABLED"
    assert told(smdp("DISABLED", 5), smdp("ENABLED", 7))[0].smdp_status == "ENABLED"


def test_a_word_nobody_knows_is_shown_until_a_known_one_is_further_on():
    profile, known = told(smdp("ERROR", 4))
    assert profile.smdp_status == "ERROR"
    assert told(smdp("DOWNLOAD", 2), profile=profile, known=known)[0].smdp_status == "DOWNLOAD"
    assert told(smdp("ERROR", 9), smdp("ENABLED", 2))[0].smdp_status == "ENABLED"


def test_a_plan_begins_with_the_earliest_sign_and_lasts_its_period():
    profile, _ = told(used(5, 90), esim("IN_USE", 60), Report(at(99), plan_started_at=at(30)))
    assert profile.plan_use_start_at == at(30) and profile.plan_use_end_at == at(30 + 7 * DAY)


def test_a_supplier_that_says_when_it_ends_is_believed():
    profile, _ = told(esim("IN_USE", 60), Report(at(60), plan_ends_at=at(3 * DAY)))
    assert profile.plan_use_end_at == at(3 * DAY)
    assert told(Report(at(60), plan_ends_at=at(3 * DAY)))[0].plan_use_end_at is None, "it has not begun"


def test_a_plan_ends_with_the_earliest_word_that_says_so():
    profile, _ = told(esim("IN_USE", 60), esim("USED_EXPIRED", 500), esim("USED_UP", 400))
    assert (profile.plan_use_status, profile.plan_use_end_at) == ("ENDED", at(400))
    assert profile.esim_status == "USED_EXPIRED", "the later word"


def test_usage_and_volume_only_grow():
    profile, _ = told(used(500, 5), used(300, 9), Report(at(9), data_total_bytes=GB // 2))
    assert (profile.data_usage_bytes, profile.data_total_bytes) == (500, GB)
    assert told(Report(at(9), data_total_bytes=2 * GB))[0].data_total_bytes == 2 * GB
    unlimited = msgspec.structs.replace(NEW, data_total_bytes=None)
    assert told(Report(at(9), data_total_bytes=GB), profile=unlimited)[0].data_total_bytes is None


def test_a_cancelled_profile_changes_its_raw_words_only():
    void = msgspec.structs.replace(NEW, lifecycle_status="CANCELLED", cancelled=True)
    report = Report(at(9), "ENABLED", "IN_USE", data_usage_bytes=5, plan_ends_at=at(99))
    profile, known = told(report, profile=void)
    assert profile == msgspec.structs.replace(void, smdp_status="ENABLED", esim_status="IN_USE")
    assert known == msgspec.structs.replace(TERMS, smdp_at=at(9), esim_at=at(9), live_status="IN_USE", live_at=at(9))


def test_what_a_cancelling_report_says_of_use_counts():
    profile, _ = told(Report(at(9), esim_status="REVOKED", data_usage_bytes=5))
    assert (profile.lifecycle_status, profile.data_usage_bytes, profile.activated) == ("CANCELLED", 5, True)


def test_nothing_is_told_of_a_profile_without_codes():
    pending = Profile(1)
    assert told(Report(at(9), "ENABLED", "IN_USE"), profile=pending, known=Lifecycle()) == (pending, Lifecycle())


# Suspended


def shown(*reports: Report) -> tuple[bool, datetime | None]:
    profile, _ = told(*reports)
    return profile.shows_suspended, profile.suspended_at if profile.shows_suspended else None


SUSPENDED, RESUMED = life.suspension(True, at(100)), life.suspension(False, at(200))


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([SUSPENDED], (True, at(100))),
        ([SUSPENDED, RESUMED], (False, None)),
        ([SUSPENDED, esim("IN_USE", 101)], (False, None)),
        ([SUSPENDED, esim("IN_USE", 99)], (True, at(100))),
        ([SUSPENDED, esim("SUSPENDED", 150)], (True, at(100))),  # the supplier's own word does not move it
        ([SUSPENDED, used(5, 150)], (True, at(100))),
        ([SUSPENDED, smdp("DISABLED", 150)], (True, at(100))),
        ([esim("SUSPENDED", 50)], (True, None)),  # since when is not known
        ([esim("SUSPENDED", 50), esim("IN_USE", 60)], (False, None)),
        ([SUSPENDED, RESUMED, esim("SUSPENDED", 250)], (True, None)),
        ([SUSPENDED, RESUMED, life.suspension(True, at(300))], (True, at(300))),
        ([SUSPENDED, Report(at(150), esim_status="IN_USE", suspended=True)], (True, at(100))),
        ([SUSPENDED, Report(at(150), esim_status="GOT_RESOURCE", suspended=False)], (False, None)),
        ([SUSPENDED, esim("USED_UP", 150)], (False, None)),
        ([esim("USED_UP", 50), SUSPENDED], (False, None)),
        ([SUSPENDED, esim("CANCEL", 150)], (False, None)),
    ],
)
def test_the_latest_word_says_whether_it_is_suspended(reports: list[Report], expected: tuple[bool, datetime | None]):
    for order in itertools.permutations(reports):
        if not any(report.esim_status == "CANCEL" for report in order[:-1]):  # what comes after it does not count
            assert shown(*order) == expected


def test_a_suspension_stops_no_clock():
    used_up = told(esim("IN_USE", 60), SUSPENDED)
    assert life.over_at(*used_up) == at(7 * DAY + 60)
    ended, _ = life.by_time(*used_up, at(7 * DAY + 60))
    assert (ended.plan_use_status, ended.esim_status, ended.shows_suspended) == ("ENDED", "USED_EXPIRED", False)
    unused, _ = life.by_time(*told(SUSPENDED), at(180 * DAY))
    assert (unused.plan_use_status, unused.shows_suspended) == ("ENDED", False)


def test_a_suspension_changes_nothing_else():
    before, _ = told(esim("IN_USE", 60), used(5, 70))
    after, _ = told(esim("IN_USE", 60), used(5, 70), SUSPENDED)
    assert after == msgspec.structs.replace(before, suspended=True, suspended_at=at(100))


def test_a_report_from_the_future_counts_as_of_now():
    late = life.not_after(Report(at(900), suspended=True, suspended_at=at(800)), at(100))
    assert late == SUSPENDED
    early = Report(at(50), suspended=True, suspended_at=at(40))
    assert life.not_after(early, at(100)) == early


# Time


def test_time_ends_a_plan():
    profile, known = told(esim("IN_USE", 60))
    assert life.by_time(profile, known, at(7 * DAY)) == (profile, known)
    ended, _ = life.by_time(profile, known, at(7 * DAY + 60))
    assert (ended.plan_use_status, ended.esim_status) == ("ENDED", "USED_EXPIRED")
    assert (ended.plan_use_end_at, ended.lifecycle_status) == (at(7 * DAY + 60), "ACTIVATED")


def test_what_is_never_used_expires():
    installed, known = told(smdp("INSTALLATION"))
    ended, _ = life.by_time(installed, known, at(180 * DAY))
    assert (ended.plan_use_status, ended.esim_status, ended.plan_use_start_at) == ("ENDED", "UNUSED_EXPIRED", None)
    assert (ended.plan_use_end_at, ended.lifecycle_status) == (at(180 * DAY), "ACTIVATING")


def test_what_a_supplier_said_of_the_end_wins_over_what_time_said():
    profile, known = told(esim("IN_USE", 60), esim("USED_UP", 400))
    assert life.by_time(profile, known, at(8 * DAY)) == (profile, known)
    late = told(esim("USED_UP", 400), profile=(ended := life.by_time(*told(esim("IN_USE", 60)), at(8 * DAY)))[0],
                known=ended[1])  # fmt: skip
    assert late == (profile, known), "also where it comes late"


def test_time_ends_nothing_that_is_void_or_has_no_codes():
    void = msgspec.structs.replace(NEW, lifecycle_status="CANCELLED", cancelled=True)
    for profile in (void, Profile(1)):
        assert life.by_time(profile, TERMS, at(999 * DAY)) == (profile, TERMS)
        assert life.over_at(profile, TERMS) is None


def test_when_to_look_again():
    assert life.next_due(NEW, TERMS, None, timed=True) == TERMS.unused_until
    assert life.next_due(NEW, TERMS, at(5), timed=True) == at(5)
    started, known = told(esim("IN_USE", 60))
    assert life.next_due(started, known, at(30 * DAY), timed=True) == at(7 * DAY + 60)
    assert life.next_due(started, known, at(30 * DAY), timed=False) == at(30 * DAY)
    assert life.next_due(started, known, None, timed=False) is None
    over, known = told(esim("USED_UP", 60))
    assert life.next_due(over, known, at(5), timed=True) is None, "nothing more after the end"


def test_polls_are_spread_by_a_tenth():
    assert life.poll_seconds(0) == 810 and life.poll_seconds(0.5) == 900 and 989 < life.poll_seconds(0.999) < 990


# Any order, any repetition

SMDP = st.sampled_from([None, "RELEASED", "DOWNLOAD", "INSTALLATION", "ENABLED", "DISABLED", "DELETED", "ERROR"])
ESIM = st.sampled_from(
    [None, "GOT_RESOURCE", "IN_USE", "SUSPENDED", "USED_UP", "USED_EXPIRED", "UNUSED_EXPIRED", "BLOCKED"]
)
SECONDS = st.integers(0, 20).map(lambda hours: at(hours * 3_600))
REPORTS = st.builds(
    Report,
    at=SECONDS,
    smdp_status=SMDP,
    esim_status=ESIM,
    eid=st.sampled_from([None, "89049032123451234512345678901235", "89049032007108882600137544319616"]),
    data_usage_bytes=st.none() | st.integers(0, 2 * GB),
    data_total_bytes=st.none() | st.integers(GB, 2 * GB),
    plan_started_at=st.none() | SECONDS,
    plan_ends_at=st.none() | SECONDS.map(lambda then: then + timedelta(days=3)),
    suspended=st.none() | st.booleans(),
    suspended_at=st.none() | SECONDS,
)
STORY = [
    smdp("DOWNLOAD", 10),
    smdp("INSTALLATION", 20),
    smdp("ENABLED", 30),
    esim("IN_USE", 40),
    used(GB // 2, 50),
    smdp("DISABLED", 60),
    smdp("ENABLED", 70),
    used(GB, 80),
    esim("USED_UP", 90),
    smdp("DELETED", 100),
]


@given(st.lists(REPORTS, max_size=8).flatmap(lambda told: st.tuples(st.just(told), st.permutations(told + told))))
def test_any_order_and_repetition_of_reports_gives_the_same(both: tuple[list[Report], list[Report]]):
    in_order, shuffled = both
    assert told(*in_order) == told(*shuffled)
    assert life.by_time(*told(*in_order), at(99 * DAY)) == life.by_time(*told(*shuffled), at(99 * DAY))


@given(st.permutations(STORY), st.lists(st.sampled_from(STORY), max_size=10), st.sampled_from(["CANCEL", "REVOKED"]))
def test_any_order_of_a_life_story_gives_the_same_snapshot(story: list[Report], again: list[Report], word: str):
    """A cancellation is final for all but the raw words: what comes after it may be missing, so it stands last."""
    expected = told(*STORY)
    assert told(*story, *again) == expected
    last = esim(word, 200)
    assert told(*story, *again, last, *again) == told(*STORY, last)
    assert told(*STORY, last)[0].lifecycle_status == "CANCELLED"


@given(st.permutations([(who, report) for who in (0, 1) for report in STORY]), st.data())
def test_the_orders_snapshot_is_the_same_too(story: list[tuple[int, Report]], data: st.DataObject):
    """Two profiles of a line, one report at a time, some of them twice."""
    again = data.draw(st.lists(st.sampled_from(story), max_size=6))
    assert lived(story + again) == lived([(who, report) for report in STORY for who in (0, 1)])


def lived(story: list[tuple[int, Report]]) -> wire.Snapshot:
    profiles = [msgspec.structs.replace(NEW, profile_id=number) for number in (1, 2)]
    lives = [TERMS, TERMS]
    item = Item(0, "TEST-OK", "simulated", 2, 1, 18_000, 1, "DELIVERED", tuple(profiles))
    order = Order(1, 7, "t", "USD", 36_000, 0, "PAID", "DELIVERED", "COMPLETED", 2, DELIVERED_AT, (item,))
    for who, report in story:
        profiles[who], lives[who] = life.apply(profiles[who], lives[who], report)
        items = (msgspec.structs.replace(order.items[0], profiles=tuple(profiles)),)
        order = delivery.settle(order, items, DELIVERED_AT)
    return snapshot.of(order, Links("https://esim.example.com"))


@given(st.permutations([*STORY, SUSPENDED]), st.lists(st.sampled_from([*STORY, SUSPENDED]), max_size=10))
def test_the_end_outranks_a_suspension_whichever_came_first(story: list[Report], again: list[Report]):
    lived, known = told(*story, *again)
    assert lived.suspended and not lived.shows_suspended
    assert msgspec.structs.replace(lived, suspended=False, suspended_at=None) == told(*STORY)[0]
    assert (known.suspended_word_at, known.resumed_word_at) == (at(100), at(40))


@given(st.permutations(STORY[:8]), st.integers(0, 8))
def test_time_may_pass_between_the_reports(story: list[Report], where: int):
    """Not so much that the plan is over: what was told of its end stays told."""
    profile, known = told(*story[:where])
    profile, known = life.by_time(profile, known, at(6 * DAY))
    assert told(*story[where:], profile=profile, known=known) == told(*STORY[:8])


@given(st.lists(REPORTS, min_size=1, max_size=8))
def test_nothing_moves_back(reports: list[Report]):
    profile, known = NEW, TERMS
    ranks = ("DELIVERED", "ACTIVATING", "ACTIVATED"), ("NOT_STARTED", "STARTED", "ENDED")
    for one, seconds in zip(reports, itertools.count(0, 40 * 3_600)):
        before = profile
        profile, known = life.by_time(*life.apply(profile, known, one), at(seconds))
        assert ranks[0].index(profile.lifecycle_status) >= ranks[0].index(before.lifecycle_status)
        assert ranks[1].index(profile.plan_use_status) >= ranks[1].index(before.plan_use_status)
        assert profile.data_usage_bytes >= before.data_usage_bytes and profile.activated >= before.activated
        assert (profile.plan_use_status == "NOT_STARTED") <= (profile.data_usage_bytes == 0)
        assert (profile.lifecycle_status == "ACTIVATED") == profile.activated


# Usage by day


@given(st.lists(st.tuples(st.integers(0, 40 * DAY), st.integers(0, 2 * GB)), max_size=12), st.randoms())
def test_the_order_of_reports_does_not_change_usage_by_day(reports: list[tuple[int, int]], chance: random.Random):
    counts = told(*(used(size, seconds) for seconds, size in reports))[1].daily_usage
    chance.shuffle(reports)
    assert told(*(used(size, seconds) for seconds, size in reports))[1].daily_usage == counts
    assert sum(day.used for day in by_day(counts)) == max((size for _, size in reports), default=0)


def test_days_without_a_report_used_nothing_and_the_next_plan_counts_on():
    first, third, fourth = date(2026, 11, 20), date(2026, 11, 22), date(2026, 11, 23)
    counts = told(used(5, 60), used(9, 3600), used(20, 2 * DAY), used(19, 2 * DAY + 60), used(26, 3 * DAY))[1]
    assert counts.daily_usage == ((first, 9), (third, 20), (fourth, 26))
    assert [day.used for day in by_day(counts.daily_usage)] == [9, 0, 11, 6]


def test_the_newest_days_are_kept():
    counts = told(*(used(size, size * DAY) for size in range(1, 100)))[1].daily_usage
    assert len(counts) == MOST_DAYS and counts[-1][1] == 99
    assert {day.used for day in by_day(counts)} == {1}, "the first only says how much was used before"
    sparse = told(used(3), used(7, 300 * DAY))[1].daily_usage
    assert len(by_day(sparse)) == MOST_DAYS and by_day(sparse)[-1].used == 4
    assert by_day(()) == []
