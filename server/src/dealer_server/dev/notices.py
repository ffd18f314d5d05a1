"""What were made-up dealers and their operator told of in the last weeks? Top-ups that were asked for and reviewed,
plans about to end."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta

from dealer_server.operations.topups import review
from dealer_server.rules.notices import ending_plans
from dealer_server.rules.notices.ending_plans import EndingPlan
from dealer_server.rules.notices.notice import OPERATORS, NewNotice
from dealer_server.rules.reports.period import day_of
from dealer_server.store.past.notices import PastNotice
from dealer_server.store.past.orders import Entry, PastOrder
from dealer_server.store.wallets.topup import Topup

DAYS = 21
LOOKED_AFTER = timedelta(seconds=20)
"""A top-up was asked for, or midnight, at which the plans of the next day are looked for."""


def told(
    tenant_id: int, orders: Sequence[PastOrder], entries: Sequence[Entry], topups: Sequence[Topup], now: datetime
) -> list[PastNotice]:
    """Not that of today, which the service itself looks for."""
    since = now - timedelta(days=DAYS)
    found = [one for one in (*_asked(topups), *_reviewed(tenant_id, entries, topups)) if one.at >= since]
    for back in range(DAYS):
        day = day_of(now) - timedelta(days=back)
        at = ending_plans.begin_of(day - timedelta(days=1)) + LOOKED_AFTER
        plans = sorted(_ending(tenant_id, orders, day, at), key=lambda plan: (plan.ends_at, plan.profile_id))
        listed = [plan._replace(total=len(plans)) for plan in plans[: ending_plans.MOST_LISTED]]
        found += [PastNotice(at, notice) for notice in ending_plans.notices(listed, day)]
    return found


def _asked(topups: Sequence[Topup]) -> Iterator[PastNotice]:
    """What the operator was told of, until it was reviewed."""
    for topup in topups:
        at = topup.created_at + LOOKED_AFTER
        if topup.reviewed_at is not None and at < topup.reviewed_at:
            data = {"count": 1, "oldestTime": f"{topup.created_at:%Y-%m-%dT%H:%M:%SZ}"}
            yield PastNotice(at, NewNotice(OPERATORS, "TOPUP_WAITING", str(topup.topup_id), data), topup.reviewed_at)


def _reviewed(tenant_id: int, entries: Sequence[Entry], topups: Sequence[Topup]) -> Iterator[PastNotice]:
    for topup in topups:
        if topup.reviewed_at is not None:
            before = [entry for entry in entries if entry.created_at < topup.reviewed_at]
            balance = before[-1].balance_after if before else 0
            own = topup._replace(tenant_id=tenant_id)
            yield PastNotice(topup.reviewed_at, review.notice(own, topup.status, topup.reject_reason, balance))


def _ending(tenant_id: int, orders: Sequence[PastOrder], day: date, at: datetime) -> Iterator[EndingPlan]:
    """Plans that were in use `at` and were to end on this day."""
    for order in orders:
        code = order.order.items[0].package_code
        for one in order.order.profiles:
            life, start, end = order.lives.get(one.profile_id), one.plan_use_start_at, one.plan_use_end_at
            if life is None or not life.plan_seconds or start is None or end is None or not one.iccid:
                continue
            period = timedelta(seconds=life.plan_seconds)
            if period >= ending_plans.SHORTEST and start < at < end and day_of(start + period) == day:
                yield EndingPlan(tenant_id, one.profile_id, one.iccid, code, start + period, 0)
