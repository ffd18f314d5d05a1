"""How is a profile cancelled without a refund? /esim/profile/cancel and /esim/profile/revoke (specification 4.4).

Cancellations are decided in batches, as refunds are. What no supplier has to void is void at once; for the rest its
supplier is asked (fulfillment/void_queue.py).
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET

from dealer_server import audit_context, failpoints, store
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer
from dealer_server.db.database import Database
from dealer_server.db.locking_batcher import LockingBatcher
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.operations.errors import require_reason
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Way
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.orders.save import VOID, save
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.refunds import refund as refund_store
from dealer_server.store.refunds.void import Void
from dealer_server.store.webhooks import changes as told
from esim_dealer.wire import calls

VOIDS_PER_BATCH = 200
OrderKey = tuple[int, int]  # tenant_id, order_id
ProfileKey = tuple[int, int, int]  # tenant_id, order_id, profile_id


class VoidRequest(msgspec.Struct, frozen=True):
    """A profile to be cancelled, named by its id or its ICCID. `act`: the person who asks, for the audit log."""

    tenant_id: int
    profile_id: int | None
    iccid: str | None
    act: Actor | None = None


class VoidBatcher:
    """Decides and writes the cancellations that arrive together as one batch. One per process."""

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        way: Callable[[Item, Profile], Way],
        clock: Clock,
        voided: Callable[[], None] = lambda: None,
    ):
        self._data_keys = data_keys
        self._way = way
        self._clock = clock
        self._voided = voided
        self._batcher: LockingBatcher[VoidRequest, calls.Voided] = LockingBatcher(
            database, self._decide_all, bound=VOIDS_PER_BATCH, name="voids"
        )

    async def void(self, tenant_id: int, call: calls.VoidProfile, act: Actor | None = None) -> calls.Voided:
        """A repeat is success, unless the supplier refused. `act`: the person who asks at the console, recorded in the
        audit log. Raises 000105, 000111, 310404, 200004, 200002; OperatorError for a long reason."""
        if act is not None:
            require_reason(act.reason or "")
        profile_id, iccid = profile_key(call.profile_id, call.iccid)
        return await self._submit(VoidRequest(tenant_id, profile_id, iccid, act))

    async def void_by_operator(self, tenant_id: int, profile_id: int, author: str, reason: str) -> calls.Voided:
        """The same for an operator, recorded in the audit log. Raises OperatorError without a reason, and 310404,
        200004, 200002."""
        require_reason(reason, "a cancellation needs a reason, for the audit log")
        return await self._submit(VoidRequest(tenant_id, profile_id, None, Actor.current(author, reason)))

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self._batcher.close()

    def _submit(self, request: VoidRequest) -> asyncio.Future[calls.Voided]:
        return self._batcher.submit(request)

    async def _decide_all(
        self, session: Session, batch: Sequence[VoidRequest], wait: bool
    ) -> Sequence[Answer[calls.Voided]]:
        """Decides under locks. Without `wait`, profiles of orders that another transaction holds are left to the lock
        waiters."""
        now = self._clock()
        located = await iccids.locate(
            session, [(request.tenant_id, request.profile_id, request.iccid) for request in batch]
        )
        order_keys = sorted({profile[:2] for profile in located if profile is not None})
        if not order_keys:
            return [refusal.ProfileNotFound() for _ in batch]
        async with session.transaction():
            locked = await store.order.lock(session, order_keys, wait=wait)
            free = [
                (request, profile)
                for request, profile in zip(batch, located, strict=True)
                if profile is None or profile[:2] in locked
            ]
            before = await store.order.load(session, sorted(locked), self._data_keys)
            cancellations = await store.void.cancellations(session, sorted(locked))
            voids = _VoidBatch(before, cancellations.waiting, cancellations.refused, self._way, now)
            answers = [refusal.ProfileNotFound() if profile is None else voids.decide(profile) for _, profile in free]
            await voids.write(session, self._data_keys)
            requests = [request for request, _ in free]
            newly_voided = {profile[2] for _, profile in free if profile is not None and voids.was_open(profile)}
            await _record_acts(session, zip(requests, answers, strict=True), newly_voided)
            failpoints.hit("void.written")
        failpoints.hit("void.committed")
        if voids.has_new:
            self._voided()
        remaining = iter(answers)
        return [
            next(remaining) if profile is None or profile[:2] in locked else self._batcher.wait_for_lock(request)
            for request, profile in zip(batch, located, strict=True)
        ]


class _VoidBatch:
    """The orders of one batch while its cancellations are decided, one after the other. `waiting`: profiles whose
    cancellation waits for a supplier; `refused`: those whose supplier refused."""

    def __init__(
        self,
        orders: Mapping[OrderKey, Order],
        waiting: Collection[int],
        refused: Collection[int],
        way: Callable[[Item, Profile], Way],
        now: datetime,
    ):
        self._before = orders
        self._orders = dict(orders)
        self._waiting_before = waiting
        self._waiting = set(waiting)
        self._refused = refused
        self._way = way
        self._now = now
        self._voids: list[Void] = []

    @property
    def has_new(self) -> bool:
        """Whether there was anything to write."""
        return bool(self._voids or self._changes())

    def decide(self, key: ProfileKey) -> calls.Voided | refusal.Refusal:
        """Cancels the profile, or has its supplier asked. A profile that is void, or waits for its supplier, stays as
        it is."""
        tenant_id, order_id, profile_id = key
        order = self._orders[tenant_id, order_id]
        item, profile = order.find_profile(profile_id)
        refused = _refuse(profile, self._refused)
        if refused is not None:
            return refused
        if not profile.cancelled and profile_id not in self._waiting:
            if profile.iccid is not None and self._way(item, profile) == "SUPPLIER":
                self._voids.append(_void(order, item, profile, profile.iccid, self._now))
                self._waiting.add(profile_id)
                # A recharge that looked at the eSIM before is decided again (store/orders/order.py).
                self._orders[tenant_id, order_id] = msgspec.structs.replace(order, version=order.version + 1)
            else:
                order = self._orders[tenant_id, order_id] = refund.void(order, {profile_id}, self._now)
                item, profile = order.find_profile(profile_id)
        return calls.Voided(
            order_no=order.order_no,
            item_no=identity.item_no(order_id, item.line),
            profile_id=profile_id,
            iccid=profile.iccid or UNSET,
            async_status="PENDING" if profile_id in self._waiting else "COMPLETED",
            cancelled=profile.cancelled,
            lifecycle_status=profile.lifecycle_status,
        )

    def was_open(self, key: ProfileKey) -> bool:
        """Whether the profile was neither void nor waiting for its supplier before this batch."""
        tenant_id, order_id, profile_id = key
        _, profile = self._before[tenant_id, order_id].find_profile(profile_id)
        return profile_id not in self._waiting_before and not profile.cancelled

    async def write(self, session: Session, data_keys: DataKeys) -> None:
        if self._voids:
            await store.void.add_voids(session, self._voids)
        if changes := self._changes():
            await save(session, changes, VOID)
            await refund_store.give_back_stock(session, changes)
            if shown := [(before, after) for before, after in changes if after.items is not before.items]:
                await told.tell(session, shown, data_keys, self._now)

    def _changes(self) -> list[tuple[Order, Order]]:
        before = self._before
        return [(before[key], after) for key, after in self._orders.items() if after is not before[key]]


def _void(order: Order, item: Item, profile: Profile, iccid: str, now: datetime) -> Void:
    return Void(
        tenant_id=order.tenant_id,
        profile_id=profile.profile_id,
        order_id=order.order_id,
        line=item.line,
        refund_id=None,
        supplier=item.supplier,
        package_code=item.package_code,
        iccid=iccid,
        created_at=now,
        claims=0,
    )


def _refuse(profile: Profile, refused_by_supplier: Collection[int]) -> refusal.Refusal | None:
    """Why the profile cannot be cancelled: 200004 while a refund holds it, 200002 once its supplier has refused."""
    if profile.held:
        return refusal.RefundInProgress(
            "a refund of this profile is in progress; wait for REFUND_COMPLETED, or query the order"
        )
    if profile.profile_id in refused_by_supplier and not profile.cancelled:
        return refusal.StatusForbids(
            "the supplier refused to cancel this profile; it stays as it is. Please contact the operator",
            {"profileId": profile.profile_id, "reason": "REFUSED_BY_SUPPLIER"},
        )
    return None


async def _record_acts(
    session: Session, decided: Iterable[tuple[VoidRequest, calls.Voided | Exception]], newly_voided: set[int]
) -> None:
    """Records the cancellations that people asked for, one per profile."""
    for request, answer in decided:
        if request.act is None or isinstance(answer, Exception) or answer.profile_id not in newly_voided:
            continue
        newly_voided.remove(answer.profile_id)
        detail = {
            "orderNo": answer.order_no,
            "profileId": answer.profile_id,
            "reason": request.act.reason,
            "asyncStatus": answer.async_status,
        }
        # The batch runs in a task of its own, which has the source of no request.
        audit_context.source.set(request.act.source)
        await record_act(session, request.act.author, "profile.cancel", request.tenant_id, detail)
