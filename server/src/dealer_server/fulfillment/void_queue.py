"""Profiles that a supplier has to void: asked until there is an answer, with no transaction open (suppliers 3).

Only a clear answer counts. A timeout, a reset or nonsense is Unknown: the supplier is asked again, and nothing is
credited or called void meanwhile.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import scheduling
from dealer_server.fulfillment.call_pool import CallPool
from dealer_server.fulfillment.supplier_calls import fault_text
from dealer_server.rules.money import refund
from dealer_server.store.profiles import lifecycle
from dealer_server.store.refunds.void import Void, Voided
from dealer_server.store.webhooks import webhook
from dealer_server.suppliers.contract import (
    NotVoided,
    Pending,
    Remote,
    Supplier,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)

log = structlog.get_logger()

LEASE_SECONDS = 60.0  # a call ends before, with time left to record
ASK_SECONDS = 45.0


class VoidQueue:
    """Works off the voids that wait for one supplier; `settle` is rung when a refund may go on."""

    def __init__(
        self,
        supplier: Supplier | Remote,
        parallel: int,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None],
        settle: Callable[[], None],
    ):
        self._supplier = supplier
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self._settle = settle
        self._calls = CallPool[tuple[int, Void], VoidOutcome](
            f"voids at {supplier.code}", parallel, self._claim, self._record, self._unrecorded
        )
        self.wake = self._calls.wake

    async def run(self) -> None:
        """Until cancelled; see Calls."""
        try:
            await self._calls.run()
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """As many as may be asked for at a time; how many there were."""
        return await self._calls.run_once()

    async def _claim(self, room: int) -> int:
        if not room:
            return 0
        now, claim = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        voids = await store.void.claim_voids(self._session, self._supplier.code, claim, now, until, room)
        if voids:
            failpoints.hit("void.claimed")
        for void in voids:
            self._calls.start((claim, void), self._ask(void))
        return len(voids)

    async def _ask(self, void: Void) -> VoidOutcome:
        unit = VoidUnit(void.profile_id, void.package_code, void.iccid, void.refund_id is not None,
                        void.created_at, void.claims > 1, void.unit_key, void.sku, void.matching_id,
                        void.supplier_ref, void.unit_ref)  # fmt: skip
        try:
            async with asyncio.timeout(ASK_SECONDS):
                outcome = await self._supplier.void(unit, self._clock())
        except asyncio.CancelledError:
            return Unknown("this worker ended before the answer came")
        except Exception as error:
            outcome = Unknown(fault_text(error))
        failpoints.hit("void.answered")
        return outcome

    def _unrecorded(self, claim: tuple[int, Void], fault: str) -> VoidOutcome:
        return Unknown(f"its answer could not be recorded: {fault}")

    async def _record(self, answers: Sequence[tuple[tuple[int, Void], VoidOutcome]]) -> None:
        session, now = self._session, self._clock()
        voids = [void for (_, void), _ in answers]
        voided = [_voided(claim, void, outcome, now) for (claim, void), outcome in answers]
        gone = {(one.tenant_id, one.profile_id) for one in voided if one.outcome == "VOIDED"}
        cancelled = {
            (void.tenant_id, void.order_id)
            for void in voids
            if void.refund_id is None and (void.tenant_id, void.profile_id) in gone
        }
        async with session.transaction():
            await store.order.lock(session, sorted(cancelled))
            recorded = await store.void.record_voids(session, voided, now)
            refused = {(one.tenant_id, one.profile_id) for one in voided if one.outcome == "REFUSED"} & recorded
            if refused:  # perhaps it is in use: its dealer should see that
                await lifecycle.look_at(session, sorted(refused), now)
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
        """Voids profiles whose dealers cancelled them, and tells."""
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
            await store.refund.record_orders(session, changes)
            await webhook.order_changed(
                session, [(after.tenant_id, after.order_id, after.version) for _, after in changes], now
            )


def _voided(claim: int, void: Void, outcome: VoidOutcome, now: datetime) -> Voided:
    if isinstance(outcome, VoidDone):
        return Voided(claim, void.tenant_id, void.profile_id, "VOIDED", None, None)
    if isinstance(outcome, NotVoided):
        log.warning("void_refused", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    message=outcome.message)  # fmt: skip
        return Voided(claim, void.tenant_id, void.profile_id, "REFUSED", None, outcome.message)
    if isinstance(outcome, Pending):
        seconds = min(max(outcome.poll_after_seconds, 0.05), 3_600.0)
    else:
        seconds = scheduling.retry_seconds(void.claims)
        log.warning("void_unknown", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    reason=outcome.reason)  # fmt: skip
    return Voided(claim, void.tenant_id, void.profile_id, None, now + timedelta(seconds=seconds), None)


def queues(
    database: Database,
    suppliers: Mapping[str, Supplier],
    data_keys: DataKeys,
    clock: Clock,
    changed: Callable[[], None],
    settle: Callable[[], None],
) -> list[VoidQueue]:
    return [
        VoidQueue(supplier, supplier.parallel, database.session(), data_keys, clock, changed, settle)
        for supplier in suppliers.values()
    ]
