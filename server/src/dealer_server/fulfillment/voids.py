"""Profiles that a supplier has to void: asked until there is an answer, with no transaction open (suppliers 3).

Only a clear answer counts. A timeout, a reset or nonsense is Unknown: the supplier is asked again, and nothing is
credited or called void meanwhile.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import kill_points, store
from dealer_server.clock import Clock
from dealer_server.fulfillment import answers
from dealer_server.fulfillment.ask import fault_text
from dealer_server.fulfillment.batches import keep_working
from dealer_server.rules import refund
from dealer_server.store import refund as rows
from dealer_server.store import webhook
from dealer_server.store.database import Database, Session
from dealer_server.store.refund import Void, Voided
from dealer_server.store.sealing import DataKeys
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

VOIDS_PER_BATCH = 100
LEASE_SECONDS = 60.0
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
        self.wake = asyncio.Event()
        self._supplier = supplier
        self._parallel = parallel
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self._settle = settle

    async def run(self) -> None:
        """Until cancelled; answers that came are recorded."""
        try:
            await keep_working(f"voids at {self._supplier.code}", self.run_once, self.wake)
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """One batch; how many voids it had."""
        now, claim = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        voids = await rows.claim_voids(self._session, self._supplier.code, claim, now, until, VOIDS_PER_BATCH)
        if not voids:
            return 0
        kill_points.reach("void.claimed")
        outcomes = await self._ask(voids)
        kill_points.reach("void.answered")
        await self._record(claim, voids, outcomes)
        kill_points.reach("void.recorded")
        return len(voids)

    async def _ask(self, voids: Sequence[Void]) -> list[VoidOutcome]:
        places = asyncio.Semaphore(self._parallel)

        async def one(void: Void) -> VoidOutcome:
            unit = VoidUnit(void.profile_id, void.package_code, void.iccid, void.refund_id is not None,
                            void.created_at, void.claims > 1, *void.bought)  # fmt: skip
            try:
                async with places, asyncio.timeout(ASK_SECONDS):
                    return await self._supplier.void(unit, self._clock())
            except Exception as error:
                return Unknown(fault_text(error))

        return list(await asyncio.gather(*(one(void) for void in voids)))

    async def _record(self, claim: int, voids: Sequence[Void], outcomes: Sequence[VoidOutcome]) -> None:
        session, now = self._session, self._clock()
        voided = [_voided(void, outcome, now) for void, outcome in zip(voids, outcomes, strict=True)]
        gone = {(one.tenant_id, one.profile_id) for one in voided if one.outcome == "VOIDED"}
        cancelled = {
            (void.tenant_id, void.order_id)
            for void in voids
            if void.refund_id is None and (void.tenant_id, void.profile_id) in gone
        }
        async with session.transaction():
            await store.order.lock(session, sorted(cancelled))
            recorded = await rows.record_voids(session, claim, voided, now)
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
            await rows.record_orders(session, changes)
            await webhook.order_changed(
                session, [(after.tenant_id, after.order_id, after.version) for _, after in changes], now
            )


def _voided(void: Void, outcome: VoidOutcome, now: datetime) -> Voided:
    if isinstance(outcome, VoidDone):
        return Voided(void.tenant_id, void.profile_id, "VOIDED", None, None)
    if isinstance(outcome, NotVoided):
        log.warning("void_refused", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    message=outcome.message)  # fmt: skip
        return Voided(void.tenant_id, void.profile_id, "REFUSED", None, outcome.message)
    if isinstance(outcome, Pending):
        seconds = min(max(outcome.poll_after_seconds, 0.05), 3_600.0)
    else:
        seconds = answers.retry_seconds(void.claims)
        log.warning("void_unknown", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    reason=outcome.reason)  # fmt: skip
    return Voided(void.tenant_id, void.profile_id, None, now + timedelta(seconds=seconds), None)


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
