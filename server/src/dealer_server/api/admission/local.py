"""Admission by the memory of one process."""

import msgspec

from dealer_server.api.admission.failed_authentications import FailedAuthentications
from dealer_server.api.admission.request_ids import UsedRequestIds
from dealer_server.rules.access import rate_limit
from dealer_server.rules.access.rate_limit import Allowance


class Admission(msgspec.Struct, frozen=True, gc=False):
    """`fresh` is False for a request id used before. `allowance` is None where none applies: a reused id, or QPS 0."""

    fresh: bool
    allowance: Allowance | None


REUSED = Admission(False, None)
UNLIMITED = Admission(True, None)


class LocalAdmission:
    """Admission in the memory of this process, which may give away `share` of each tenant's QPS."""

    shared = False
    degraded = False

    def __init__(self, *, share: float = 1.0, failures_per_second: float = 50, failures_burst: int = 200) -> None:
        self._share = share
        self._used = UsedRequestIds()
        self._full_at: dict[int, float] = {}
        self._failures = FailedAuthentications(failures_per_second, failures_burst)
        # Bound methods, not wrappers: they run on every call, and a wrapper costs as much as some of them.
        self.use_request_id = self._used.use
        self.failed_authentication = self._failures.record
        self.authentication_blocked = self._failures.wait_seconds

    def admit(
        self,
        app_key: str,
        request_id: str,
        tenant_id: int,
        qps: int,
        now: float,
        wall: float | None = None,
        writes: bool = False,
    ) -> Admission:
        """The request id first, and only when it is fresh a token of the tenant. The id stays used either way.

        Ids age by `wall`, the clock their timestamps are checked against, so that setting it back opens no replay.
        """
        if not self._used.use(app_key, request_id, now if wall is None else wall):
            return REUSED
        return Admission(True, self.take(tenant_id, qps, now)) if qps else UNLIMITED

    def take(self, tenant_id: int, qps: int, now: float) -> Allowance | None:
        """Take one of the tenant's calls of this second. None when it has no limit (qps 0)."""
        if not qps:
            return None
        own_rate = qps * self._share
        burst = max(own_rate * rate_limit.BURST_SECONDS, 1.0)
        before = self._full_at.get(tenant_id, 0.0)
        full_at = rate_limit.spend(before, now, own_rate, burst)
        if full_at is None:
            return rate_limit.refused(rate_limit.debt_seconds(before, now, own_rate, burst), own_rate, burst, qps)
        self._full_at[tenant_id] = full_at
        return rate_limit.allowed(full_at - now, own_rate, burst, qps)
