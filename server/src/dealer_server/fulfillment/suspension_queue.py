"""Has a supplier suspend eSIMs, or let them work again, as their dealers asked (docs/decisions/0011-lives.md)."""

from collections.abc import Sequence
from datetime import datetime

import structlog

from dealer_server import failpoints, store
from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.request_queue import Claim, RequestQueue, ask_again_at
from dealer_server.rules.lifecycle import lifecycle
from dealer_server.store.profiles.suspension import Suspended, Suspension
from dealer_server.suppliers.contract import (
    Bought,
    ProfileReport,
    Remote,
    SuspensionDone,
    SuspensionOutcome,
    SuspensionRefused,
    Unknown,
)

log = structlog.get_logger()

Claimed = Claim[Suspension]


class SuspensionQueue(RequestQueue[Remote, Suspension, SuspensionOutcome]):
    """Works off the suspensions that wait for one supplier, and their ends."""

    requests = "suspensions"
    point = "suspension"

    async def _claim(self, claim_id: int, now: datetime, until: datetime, room: int) -> Sequence[Suspension]:
        return await store.suspension.claim(self._session, self.code, claim_id, now, until, room)

    async def _ask(self, request: Suspension) -> SuspensionOutcome:
        if request.void:
            return SuspensionRefused("the profile is void by now")
        return await self._supplier.set_suspended(_bought(request), request.suspended, self._clock())

    async def record(self, answered: Answered[Claimed, SuspensionOutcome | Unknown]) -> None:
        """What was done is a report of the supplier like any other, as of now."""
        session, now = self._session, self._clock()
        recorded = [_suspended(claim, outcome, now) for claim, outcome in answered]
        async with session.transaction():
            await store.order.lock(session, sorted({claim.request.order for claim, _ in answered}))
            held = await store.suspension.record(session, recorded, now)
            done = [
                one.suspension for one in recorded if one.outcome == "DONE" and one.suspension.suspension_id in held
            ]
            reports = [ProfileReport(lifecycle.suspension(act.suspended, now), unit_key=act.unit_key) for act in done]
            changed = await lifecycle_tracker.report(session, self.code, reports, self._data_keys, now)
            failpoints.hit("suspension.written")
        if changed:
            self._changed()
        failpoints.hit("suspension.recorded")


def _bought(suspension: Suspension) -> Bought:
    return Bought(
        profile_id=suspension.profile_id,
        unit_key=suspension.unit_key,
        sku=suspension.sku,
        iccid=suspension.iccid,
        supplier_ref=suspension.supplier_ref,
        unit_ref=suspension.unit_ref,
    )


def _suspended(claim: Claimed, outcome: SuspensionOutcome | Unknown, now: datetime) -> Suspended:
    claim_id, suspension = claim
    if isinstance(outcome, SuspensionDone):
        return Suspended(claim_id, suspension, "DONE", None)
    if isinstance(outcome, SuspensionRefused):
        _warn("suspension_refused", suspension, outcome.message)
        return Suspended(claim_id, suspension, "REFUSED", None)
    if isinstance(outcome, Unknown):
        _warn("suspension_unknown", suspension, outcome.reason)
    return Suspended(claim_id, suspension, None, ask_again_at(outcome, suspension.claims, now))


def _warn(event: str, suspension: Suspension, message: str) -> None:
    log.warning(event, tenant_id=suspension.tenant_id, profile_id=suspension.profile_id, supplier=suspension.supplier,
                suspended=suspension.suspended, message=message)  # fmt: skip
