"""Has suppliers void profiles: each is asked until it answers, with no transaction open.

Only a clear answer counts. A timeout, a reset or nonsense is Unknown: the supplier is asked again, and until then
nothing is credited and nothing is shown as void.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment.call_pool import Answered, CallPool
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.refunds import refund
from dealer_server.store.orders.save import VOID, save
from dealer_server.store.profiles import lifecycle
from dealer_server.store.refunds import void as void_requests
from dealer_server.store.refunds.void import Void, Voided
from dealer_server.store.webhooks import enqueue
from dealer_server.suppliers.contract import (
    Builtin,
    NotVoided,
    Pending,
    Supplier,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)

log = structlog.get_logger()

LEASE_SECONDS = 60.0  # a call ends before, with time left to record
ASK_SECONDS = 45.0


class VoidClaim(NamedTuple):
    claim_id: int
    void: Void


class VoidQueue:
    """Works off the voids that wait for one supplier; `settle` is called when a refund may go on."""

    poll_seconds = 0.2
    interval_seconds = 0.0
    grace_seconds = 5.0
    keeps_locked = True

    def __init__(
        self,
        supplier: Supplier,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None],
        settle: Callable[[], None],
    ):
        self.name = f"voids at {supplier.code}"
        self.parallel = supplier.caps.parallel
        self.wake = asyncio.Event()
        self._supplier = supplier
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self._settle = settle
        self._pool = CallPool[VoidClaim, VoidOutcome](self)

    async def run(self) -> None:
        """Until cancelled; see CallPool."""
        try:
            await self._pool.run()
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """As many as may be asked for at a time; how many there were."""
        return await self._pool.run_once()

    async def begin(self, room: int) -> int:
        if not room:
            return 0
        now, claim_id = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        voids = await void_requests.claim_voids(self._session, self._supplier.code, claim_id, now, until, room)
        if voids:
            failpoints.hit("void.claimed")
        for void in voids:
            claim = VoidClaim(claim_id, void)
            self._pool.start([claim], self._ask(claim))
        return len(voids)

    async def _ask(self, claim: VoidClaim) -> Answered[VoidClaim, VoidOutcome]:
        void = claim.void
        unit = VoidUnit(
            profile_id=void.profile_id,
            package_code=void.package_code,
            iccid=void.iccid,
            for_refund=void.refund_id is not None,
            asked_at=void.created_at,
            asked_before=void.claims > 1,
            unit_key=void.unit_key,
            sku=void.sku,
            matching_id=void.matching_id,
            supplier_ref=void.supplier_ref,
            unit_ref=void.unit_ref,
        )
        try:
            async with asyncio.timeout(ASK_SECONDS):
                outcome = await self._supplier.void(unit, self._clock())
        except asyncio.CancelledError:
            return [(claim, Unknown("this worker ended before the answer came"))]
        except Exception as error:
            outcome = Unknown(fault_text(error))
        failpoints.hit("void.answered")
        return [(claim, outcome)]

    def unanswered(self, claim: VoidClaim, fault: str) -> VoidOutcome:
        return Unknown(f"its answer could not be recorded: {fault}")

    async def give_up(self, claim: VoidClaim, error: Exception) -> None:
        """It is recorded as unknown, so that the supplier is asked again."""
        await self.record([(claim, self.unanswered(claim, fault_text(error)))])

    async def record(self, answered: Answered[VoidClaim, VoidOutcome]) -> None:
        session, now = self._session, self._clock()
        voids = [claim.void for claim, _ in answered]
        voided = [_voided(claim.claim_id, claim.void, outcome, now) for claim, outcome in answered]
        gone = {(void.tenant_id, void.profile_id) for void in voided if void.outcome == "VOIDED"}
        cancelled = {
            (void.tenant_id, void.order_id)
            for void in voids
            if void.refund_id is None and (void.tenant_id, void.profile_id) in gone
        }
        async with session.transaction():
            await store.order.lock(session, sorted(cancelled))
            recorded = await store.void.record_voids(session, voided, now)
            refused = {(void.tenant_id, void.profile_id) for void in voided if void.outcome == "REFUSED"} & recorded
            if refused:  # it may be in use, which its dealer should see
                await lifecycle.make_due(session, sorted(refused), now)
            if cancelled:
                await self._cancel(
                    {
                        (void.tenant_id, void.order_id, void.profile_id)
                        for void in voids
                        if void.refund_id is None and (void.tenant_id, void.profile_id) in gone & recorded
                    },
                    now,
                )
        if cancelled:
            self._changed()
        if any(void.refund_id is not None for void in voids):
            self._settle()
        failpoints.hit("void.recorded")

    async def _cancel(self, profiles: set[tuple[int, int, int]], now: datetime) -> None:
        """Voids profiles that their dealers cancelled, with the events that say so."""
        session = self._session
        by_order: dict[tuple[int, int], set[int]] = {}
        for tenant_id, order_id, profile_id in profiles:
            by_order.setdefault((tenant_id, order_id), set()).add(profile_id)
        before = await store.order.load(session, list(by_order), self._data_keys)
        changes = [
            (order, after)
            for key, order in before.items()
            if (after := refund.void(order, by_order[key], now)) is not order
        ]
        if changes:
            await save(session, changes, VOID)
            await enqueue.order_changed(
                session, [(after.tenant_id, after.order_id, after.version) for _, after in changes], now
            )


def _voided(claim_id: int, void: Void, outcome: VoidOutcome, now: datetime) -> Voided:
    waiting = Voided(claim_id, void.tenant_id, void.profile_id, outcome=None, due_at=None, reason=None)
    if isinstance(outcome, VoidDone):
        return waiting._replace(outcome="VOIDED")
    if isinstance(outcome, NotVoided):
        log.warning("void_refused", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    message=outcome.message)  # fmt: skip
        return waiting._replace(outcome="REFUSED", reason=outcome.message)
    if isinstance(outcome, Pending):
        seconds = min(max(outcome.poll_after_seconds, 0.05), 3_600.0)
    else:
        seconds = retry_seconds(void.claims)
        log.warning("void_unknown", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    reason=outcome.reason)  # fmt: skip
    return waiting._replace(due_at=now + timedelta(seconds=seconds))


def queues(
    database: Database,
    suppliers: Mapping[str, Builtin],
    data_keys: DataKeys,
    clock: Clock,
    changed: Callable[[], None],
    settle: Callable[[], None],
) -> list[VoidQueue]:
    return [
        VoidQueue(supplier, database.session(), data_keys, clock, changed, settle) for supplier in suppliers.values()
    ]
