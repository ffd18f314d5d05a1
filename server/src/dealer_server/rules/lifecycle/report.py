"""What does a supplier say of an eSIM? One report, in its raw words."""

from datetime import datetime

import msgspec


class Report(msgspec.Struct, frozen=True):
    """A supplier's report on one eSIM, in its raw words. None: it says nothing of this.

    `at` is when it was so (the device's or the supplier's time). plan_started_at, plan_ends_at: where the supplier
    gives them itself. data_usage_bytes counts from the beginning of the first plan. queued_begun: how many of the
    queued plans have begun, by a supplier who knows. generation, where that is None: the one in which the supplier was
    asked; None where it reported by itself: `at` tells. suspended: None where esim_status alone says it (SUSPENDED: it
    is; IN_USE: it is not). suspended_at: since when, where that is known.
    """

    at: datetime
    smdp_status: str | None = None
    esim_status: str | None = None
    eid: str | None = None
    data_usage_bytes: int | None = None
    data_total_bytes: int | None = None
    plan_started_at: datetime | None = None
    plan_ends_at: datetime | None = None
    suspended: bool | None = None
    suspended_at: datetime | None = None
    queued_begun: int | None = None
    generation: int | None = None
