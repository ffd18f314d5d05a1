"""Has suppliers void profiles. Until one has answered clearly nothing is credited, and nothing is shown as void."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.request_queue import Claim, RequestQueue, ask_again_at
from dealer_server.rules.refunds import refund
from dealer_server.store.orders.save import VOID, save
from dealer_server.store.profiles import lifecycle
from dealer_server.store.refunds.void import Void, Voided
from dealer_server.store.webhooks import changes as told
from dealer_server.suppliers.contract import (
    Builtin,
    NotVoided,
    Supplier,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)

log = structlog.get_logger()

VoidClaim = Claim[Void]


class VoidQueue(RequestQueue[Supplier, Void, VoidOutcome]):
    """Works off the voids that wait for one supplier; `settle` is called when a refund may go on."""

    requests = "voids"
    point = "void"

    def __init__(
        self,
        supplier: Supplier,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None],
        settle: Callable[[], None],
    ):
        super().__init__(supplier, session, data_keys, clock, changed)
        self._settle = settle

    async def _claim(self, claim_id: int, now: datetime, until: datetime, room: int) -> Sequence[Void]:
        return await store.void.claim_voids(self._session, self.code, claim_id, now, until, room)

    async def _ask(self, request: Void) -> VoidOutcome:
        unit = VoidUnit(
            profile_id=request.profile_id,
            package_code=request.package_code,
            iccid=request.iccid,
            for_refund=request.refund_id is not None,
            asked_at=request.created_at,
            asked_before=request.claims > 1,
            unit_key=request.unit_key,
            sku=request.sku,
            matching_id=request.matching_id,
            supplier_ref=request.supplier_ref,
            unit_ref=request.unit_ref,
        )
        return await self._supplier.void(unit, self._clock())

    async def record(self, answered: Answered[VoidClaim, VoidOutcome]) -> None:
        session, now = self._session, self._clock()
        voids = [claim.request for claim, _ in answered]
        voided = [_voided(claim.claim_id, claim.request, outcome, now) for claim, outcome in answered]
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
            await told.tell(session, changes, self._data_keys, now)


def _voided(claim_id: int, void: Void, outcome: VoidOutcome, now: datetime) -> Voided:
    waiting = Voided(claim_id, void.tenant_id, void.profile_id, outcome=None, due_at=None, reason=None)
    if isinstance(outcome, VoidDone):
        return waiting._replace(outcome="VOIDED")
    if isinstance(outcome, NotVoided):
        log.warning("void_refused", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    message=outcome.message)  # fmt: skip
        return waiting._replace(outcome="REFUSED", reason=outcome.message)
    if isinstance(outcome, Unknown):
        log.warning("void_unknown", tenant_id=void.tenant_id, profile_id=void.profile_id, supplier=void.supplier,
                    reason=outcome.reason)  # fmt: skip
    return waiting._replace(due_at=ask_again_at(outcome, void.claims, now))


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
