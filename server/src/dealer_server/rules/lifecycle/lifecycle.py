"""What becomes of an eSIM after its delivery? (specification 3.4 to 3.6; docs/decisions/0011-lives.md)

Reports may come late, twice and out of order, and the result is the same: each field moves only upwards in an order of
its own, so what a profile shows depends on which reports there were, not on when they came.

- smdpStatus and esimStatus go by the rank of the word, then by when it was so, then by its spelling. A word we do not
  know has the lowest rank: it is shown until a word comes that we know to be further on.
- usage, the volume and the end of validity: the greatest that was reported. A plan begins with the earliest sign of
  use, and ends with the earliest report that says so; else when its supplier says; else after its period.
- Whether an eSIM is suspended goes by the latest word of it. That lies on top of all else: it stops no clock and holds
  up no end.
- lifecycleStatus is the furthest that any one report shows. A cancelled profile keeps all but its raw words, so that a
  report that cancels is the one thing that must not come before the others.
- A recharge begins a new generation (docs/decisions/0030-recharges.md): at once where its supplier adds to the plan,
  and when the plan before it ends where it queues. That a plan is over, by word or by time, holds within its generation
  only; a report of an earlier one says what it says of use, and ends nothing (generations.py).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec

from dealer_server.rules.lifecycle import generations
from dealer_server.rules.lifecycle.daily_usage import Counts, counted
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders.model import AppliedPlan, Profile
from esim_dealer.wire.vocabulary import LifecycleStatus, PlanUseStatus

T = TypeVar("T", datetime, str)


class Lifecycle(msgspec.Struct, frozen=True):
    """What is known of a delivered profile beyond what its dealer sees.

    unused_until: when it expires unless it is used. plan_seconds: how long its plan lasts. smdp_at, esim_at: since when
    the words shown are so; None: since the delivery, or because time made it so. ended_at: the earliest word that the
    plan is over. valid_until: when the supplier says that it will be. suspended_word_at, resumed_word_at: the latest
    words that it is suspended, and that it is not. live_status, live_at: the furthest word that does not say that it is
    over. daily_usage: what was reported of each day.
    """

    unused_until: datetime | None = None
    plan_seconds: int | None = None
    smdp_at: datetime | None = None
    esim_at: datetime | None = None
    ended_at: datetime | None = None
    valid_until: datetime | None = None
    eid: str | None = None
    suspended_word_at: datetime | None = None
    resumed_word_at: datetime | None = None
    live_status: str | None = None
    live_at: datetime | None = None
    daily_usage: Counts = ()


POLL_SECONDS, POLL_JITTER = 900.0, 0.1


class LifecycleTerms(msgspec.Struct, frozen=True):
    """How the eSIMs of a supplier are followed after their delivery.

    plan_speed: plans run so many times faster. first_refresh_seconds: how long after the delivery the supplier is asked
    first; None: not before the plan is over. scripted_packages: their eSIMs change by themselves after the delivery.
    """

    plan_speed: float = 1.0
    first_refresh_seconds: float | None = POLL_SECONDS
    scripted_packages: tuple[str, ...] = ()


_SMDP_RANK: Mapping[str, int] = {
    "RELEASED": 0,
    "DOWNLOAD": 1,
    "INSTALLATION": 2,
    "ENABLED": 3,
    "DISABLED": 3,
    "DELETED": 4,
}
_ESIM_RANK: Mapping[str, int] = {
    "GOT_RESOURCE": 0,
    "IN_USE": 1,
    "SUSPENDED": 1,
    "USED_UP": 2,
    "USED_EXPIRED": 2,
    "UNUSED_EXPIRED": 2,
    "CANCEL": 3,
    "REVOKE": 3,  # of the RT family, too
    "REVOKED": 3,
}
_OVER, _VOID = 2, 3
_SAYS_SUSPENDED: Mapping[str, bool] = {"SUSPENDED": True, "IN_USE": False}
_IN_USE = ("IN_USE", "USED_UP", "USED_EXPIRED")
_LIVE = {"USED_UP": "IN_USE", "USED_EXPIRED": "IN_USE", "UNUSED_EXPIRED": "GOT_RESOURCE"}
_LIFECYCLE: tuple[LifecycleStatus, ...] = ("DELIVERED", "ACTIVATING", "ACTIVATED")
_ALWAYS = datetime.min.replace(tzinfo=UTC)


def apply(profile: Profile, life: Lifecycle, report: Report) -> tuple[Profile, Lifecycle]:
    """The profile after a report on it. Without codes there is nothing to report on: it stays what it is."""
    if profile.iccid is None:
        return profile, life
    generation = generations.of(profile, report)
    if not profile.cancelled:
        while generation > profile.generation:  # what it is about has begun, though nothing told of the end before it
            profile, life = _with_next_plan(profile, life, report.at, life.ended_at)
        over = _rank(_ESIM_RANK, report.esim_status) == _OVER
        profile = generations.with_report(profile, report, generation, _started_at(report), over=over)
    present = _in_present(profile, report, generation)
    shown, known = _with_words(profile, life, present)
    if profile.cancelled:
        return shown, known
    counts = counted(known.daily_usage, report.at, report.data_usage_bytes)
    known = msgspec.structs.replace(known, daily_usage=counts)
    used, known = _with_suspension(*_with_use(shown, known, present, _reached(report)), report)
    if _rank(_ESIM_RANK, report.esim_status) == _VOID:
        return _cancelled(used), known
    return _with_plans_that_follow(used, known)


def recharge(
    profile: Profile, life: Lifecycle, added: AppliedPlan, queued_begun: int | None = None
) -> tuple[Profile, Lifecycle]:
    """The profile, which has its first plan in `plans`, once its supplier has applied another one: whatever was over is
    not. Nothing changes of a cancelled one. `queued_begun`: how many queued plans had begun at the supplier when it
    added this one, where it says so: more may have begun there than was told here, or only after that."""
    assert profile.plans and added.applied_at is not None, "a plan is added to those that were applied before"
    if profile.cancelled:
        return msgspec.structs.replace(profile, plans=(*profile.plans, added)), life
    if added.mode == "QUEUE":
        queued = msgspec.structs.replace(profile, plans=(*profile.plans, added))
        return _with_plans_that_follow(queued, life)
    if queued_begun is not None:
        while generations.queued_begun(profile) < queued_begun and any(plan.waits for plan in profile.plans):
            profile, life = _with_next_plan(profile, life, added.applied_at, life.ended_at)
        if generations.queued_begun(profile) > queued_begun:
            return msgspec.structs.replace(profile, plans=generations.with_earlier(profile, added, queued_begun)), life
    word = _live_word(profile, life)
    total = profile.data_total_bytes
    renewed = msgspec.structs.replace(
        profile,
        plans=generations.with_begun(profile, added, added.applied_at, life.ended_at),
        esim_status=word[0],
        plan_use_status="NOT_STARTED",
        data_total_bytes=None if total is None or added.data_bytes is None else total + added.data_bytes,
    )
    seconds = None if life.plan_seconds is None else life.plan_seconds + (added.seconds or 0)
    known = msgspec.structs.replace(
        life,
        esim_at=word[1],
        ended_at=None,
        plan_seconds=seconds,
        valid_until=_greater(life.valid_until, added.ends_at),
    )
    return _with_plan(renewed, known), known


def _with_plans_that_follow(profile: Profile, life: Lifecycle) -> tuple[Profile, Lifecycle]:
    """The profile with the plan that begins as the one in use is over. One that was never used has none."""
    while profile.plan_use_status == "ENDED" and profile.plan_use_start_at and generations.following(profile):
        ended = life.ended_at or profile.plan_use_end_at
        assert ended is not None, "a plan that was used and is over has its end"
        profile, life = _with_next_plan(profile, life, ended, ended)
    return profile, life


def _with_next_plan(
    profile: Profile, life: Lifecycle, at: datetime, ended: datetime | None
) -> tuple[Profile, Lifecycle]:
    """The profile as its next plan begins: at `at`, or when the plan before it `ended` if that was earlier."""
    plan = generations.next_plan(profile)
    word = _live_word(profile, life)
    begun = msgspec.structs.replace(
        profile,
        plans=generations.with_begun(profile, plan, _lesser(at, ended) or at, ended),
        esim_status=word[0],
        plan_use_status="STARTED",
        plan_use_start_at=None,
        data_total_bytes=plan.data_bytes,
        data_usage_bytes=0,
    )
    known = msgspec.structs.replace(
        life, esim_at=word[1], ended_at=None, plan_seconds=plan.seconds, valid_until=plan.ends_at
    )
    return _with_plan(generations.with_start(begun), known), known


def not_after(report: Report, now: datetime) -> Report:
    """The report as of now where it is of later."""
    since = report.suspended_at
    return msgspec.structs.replace(report, at=min(report.at, now), suspended_at=since and min(since, now))


def suspension(suspended: bool, at: datetime) -> Report:
    """The report that an eSIM is suspended, or works again, from this moment on."""
    return Report(at, suspended=suspended, suspended_at=at if suspended else None)


def by_time(profile: Profile, life: Lifecycle, now: datetime) -> tuple[Profile, Lifecycle]:
    """The profile once its plan's period, or the time it may lie unused, is over; with the plan that begins then."""
    profile, life = _with_plans_that_follow(profile, life)  # one that a refund kept from beginning
    while (over := over_at(profile, life)) is not None and over <= now:
        word = "UNUSED_EXPIRED" if profile.plan_use_status == "NOT_STARTED" else "USED_EXPIRED"
        esim_status, esim_at = _later(_ESIM_RANK, (profile.esim_status, life.esim_at), (word, None))
        ended = msgspec.structs.replace(profile, esim_status=esim_status, plan_use_status="ENDED")
        life = msgspec.structs.replace(life, esim_at=esim_at)
        profile, life = _with_plans_that_follow(_with_plan(ended, life), life)
    return profile, life


def over_at(profile: Profile, life: Lifecycle) -> datetime | None:
    """When time alone ends it; None where it will not."""
    if profile.iccid is None or profile.cancelled or profile.plan_use_status == "ENDED":
        return None
    return profile.plan_use_end_at if profile.plan_use_status == "STARTED" else _expires_at(life)


def next_due(profile: Profile, life: Lifecycle, ask_at: datetime | None, *, timed: bool) -> datetime | None:
    """When to look at it again: at `ask_at`, which is when its supplier is asked next, or, where `timed`, when time
    ends it. Never once it is over."""
    if profile.iccid is None or profile.cancelled or profile.plan_use_status == "ENDED":
        return None
    return min([at for at in (ask_at, over_at(profile, life) if timed else None) if at is not None], default=None)


def poll_seconds(fraction: float) -> float:
    """How long until a polled supplier is asked again; `fraction` in [0, 1) spreads it."""
    return POLL_SECONDS * (1 + POLL_JITTER * (2 * fraction - 1))


def _with_words(profile: Profile, life: Lifecycle, report: Report) -> tuple[Profile, Lifecycle]:
    smdp = _later(_SMDP_RANK, (profile.smdp_status, life.smdp_at), (report.smdp_status, report.at))
    esim = _later(_ESIM_RANK, (profile.esim_status, life.esim_at), (report.esim_status, report.at))
    live = _later(_ESIM_RANK, (life.live_status, life.live_at), (_live(report.esim_status), report.at))
    return (
        msgspec.structs.replace(profile, smdp_status=smdp[0], esim_status=esim[0]),
        msgspec.structs.replace(
            life,
            smdp_at=smdp[1],
            esim_at=esim[1],
            eid=_greater(life.eid, report.eid),
            live_status=live[0],
            live_at=live[1] if live[0] is not None else None,
        ),
    )


def _in_present(profile: Profile, report: Report, generation: int) -> Report:
    """What a report of this generation says of the present one. What it says of usage counts from the beginning of the
    plans in use."""
    used = None if report.data_usage_bytes is None else max(report.data_usage_bytes - profile.used_before, 0)
    if generation == profile.generation:
        return msgspec.structs.replace(report, data_usage_bytes=used)
    word, added = report.esim_status, generations.added_since(profile, generation)
    shared = added is not None  # else another volume, another time
    return msgspec.structs.replace(
        report,
        esim_status=_live(word) if _rank(_ESIM_RANK, word) <= _OVER else word,
        data_usage_bytes=used,
        data_total_bytes=report.data_total_bytes + added if shared and report.data_total_bytes is not None else None,
        plan_ends_at=report.plan_ends_at if shared else None,
    )


def _live_word(profile: Profile, life: Lifecycle) -> "Word":
    """The furthest word of it that does not say that it is over."""
    return _later(_ESIM_RANK, (life.live_status, life.live_at), (_live(profile.esim_status), life.esim_at))


def _live(word: str | None) -> str | None:
    """How far an eSIM which this word is said of had come while it was not over; None for one that is void."""
    return None if _rank(_ESIM_RANK, word) == _VOID or word is None else _LIVE.get(word, word)


def _with_use(profile: Profile, life: Lifecycle, report: Report, told: LifecycleStatus) -> tuple[Profile, Lifecycle]:
    """`told`: how far it has come by the report, whichever plan that is about."""
    over = _rank(_ESIM_RANK, report.esim_status) == _OVER
    known = msgspec.structs.replace(
        life,
        ended_at=_lesser(life.ended_at, report.at if over else None),
        valid_until=_greater(life.valid_until, report.plan_ends_at),
    )
    reached = max(profile.lifecycle_status, told, key=_LIFECYCLE.index)
    total = profile.data_total_bytes  # None is unlimited, whatever a supplier says of fair use
    moved = msgspec.structs.replace(
        profile,
        lifecycle_status=reached,
        activated=profile.activated or reached == "ACTIVATED",
        data_total_bytes=None if total is None else max(total, report.data_total_bytes or 0),
        data_usage_bytes=max(profile.data_usage_bytes, report.data_usage_bytes or 0),
    )
    return _with_plan(moved, known), known


def _with_suspension(profile: Profile, life: Lifecycle, report: Report) -> tuple[Profile, Lifecycle]:
    """It is suspended while the latest word that says so is later than the latest that says otherwise. What is told of
    since when holds only if it is later than that, too."""
    said = _says_suspended(report)
    suspended = _greater(life.suspended_word_at, _greater(report.suspended_at, report.at if said else None))
    resumed = _greater(life.resumed_word_at, report.at if said is False else None)
    since = _greater(profile.suspended_at, report.suspended_at)
    return (
        msgspec.structs.replace(
            profile, suspended=_is_after(suspended, resumed), suspended_at=since if _is_after(since, resumed) else None
        ),
        msgspec.structs.replace(life, suspended_word_at=suspended, resumed_word_at=resumed),
    )


def _says_suspended(report: Report) -> bool | None:
    if report.suspended is not None:
        return report.suspended
    return _SAYS_SUSPENDED.get(report.esim_status or "")


def _is_after(at: datetime | None, other: datetime | None) -> bool:
    return at is not None and (other is None or at > other)


def _with_plan(profile: Profile, life: Lifecycle) -> Profile:
    """The profile with what follows from when its plan began and ended."""
    start, status = profile.plan_use_start_at, _plan_status(profile, life)
    end = life.ended_at
    if end is None and start is not None:
        period = None if life.plan_seconds is None else start + timedelta(seconds=life.plan_seconds)
        end = life.valid_until or period
    elif end is None and status == "ENDED":
        end = _expires_at(life)
    elif end is not None and start is not None:
        end = max(end, start)  # a supplier may have told of the end of a plan before it had told that it has it
    return msgspec.structs.replace(profile, plan_use_status=status, plan_use_end_at=end)


def _plan_status(profile: Profile, life: Lifecycle) -> PlanUseStatus:
    if life.ended_at is not None or profile.plan_use_status == "ENDED":
        return "ENDED"
    return "NOT_STARTED" if profile.plan_use_start_at is None else "STARTED"


def _expires_at(life: Lifecycle) -> datetime | None:
    return _lesser(life.unused_until, life.valid_until)


def _cancelled(profile: Profile) -> Profile:
    return msgspec.structs.replace(profile, lifecycle_status="CANCELLED", cancelled=True)


def _reached(report: Report) -> LifecycleStatus:
    if report.smdp_status == "ENABLED" or _shows_use(report):
        return "ACTIVATED"
    return "ACTIVATING" if report.smdp_status in ("DOWNLOAD", "INSTALLATION") else "DELIVERED"


def _shows_use(report: Report) -> bool:
    return report.esim_status in _IN_USE or bool(report.data_usage_bytes)


def _started_at(report: Report) -> datetime | None:
    return _lesser(report.plan_started_at, report.at if _shows_use(report) else None)


Word = tuple[str | None, datetime | None]
"""A raw word, and since when it is so."""


def _later(ranks: Mapping[str, int], left: Word, right: Word) -> Word:
    """The word that is further on. None is no word."""
    return max(left, right, key=lambda word: (_rank(ranks, word[0]), word[1] or _ALWAYS, word[0] or ""))


def _rank(ranks: Mapping[str, int], word: str | None) -> int:
    return -1 if word is None else ranks.get(word, 0)


def _lesser(left: datetime | None, right: datetime | None) -> datetime | None:
    return min([value for value in (left, right) if value is not None], default=None)


def _greater(left: T | None, right: T | None) -> T | None:
    return max([value for value in (left, right) if value is not None], default=None)
