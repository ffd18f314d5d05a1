"""Which plans end soon, and when is that told? Those of the next day (UTC), on the day before."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from dealer_server.rules.notices.notice import NewNotice

SHORTEST = timedelta(days=3)
"""Of shorter plans nothing is told: their end is near from the beginning."""
MOST_LISTED = 50


class EndingPlan(NamedTuple):
    """A plan in use that no other follows. `package_code`: of the eSIM. `total`: how many the dealer has that day."""

    tenant_id: int
    profile_id: int
    iccid: str
    package_code: str
    ends_at: datetime
    total: int


def day(now: datetime) -> date:
    """The day whose plans are told of now."""
    return now.astimezone(UTC).date() + timedelta(days=1)


def begin_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def notices(plans: Sequence[EndingPlan], day: date) -> list[NewNotice]:
    """One for each dealer. `plans`: the first MOST_LISTED of each dealer."""
    of_dealers: dict[int, list[EndingPlan]] = {}
    for plan in plans:
        of_dealers.setdefault(plan.tenant_id, []).append(plan)
    return [
        NewNotice(tenant_id, "PLANS_ENDING", day.isoformat(), _data(of_dealer, day))
        for tenant_id, of_dealer in of_dealers.items()
    ]


def _data(plans: Sequence[EndingPlan], day: date) -> dict[str, Any]:
    return {
        "date": day.isoformat(),
        "count": plans[0].total,
        "plans": [
            {
                "profileId": plan.profile_id,
                "iccid": plan.iccid,
                "packageCode": plan.package_code,
                "planUseEndTime": f"{plan.ends_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            }
            for plan in plans
        ],
    }
