"""Voiding a profile without giving money back: /esim/profile/cancel and /esim/profile/revoke (specification 4.4)."""

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
from dealer_server.operations.tenants.tenant import require_reason
from dealer_server.rules import refusal
from dealer_server.rules.money import refund
from dealer_server.rules.money.refund import Way
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.store.profiles import iccid
from dealer_server.store.refunds import refund as rows
from dealer_server.store.refunds.void import Void
from dealer_server.store.webhooks import webhook
from esim_dealer.wire import calls

VOIDS_PER_BATCH = 200
OrderKey = tuple[int, int]


class VoidRequest(msgspec.Struct, frozen=True):
    """A profile that is to be void: by its id, or by its iccid. `act`: of a person, for the audit log."""

    tenant_id: int
    profile_id: int | None
    iccid: str | None
    act: Actor | None = None


class VoidBatcher:
    """Where cancellations wait for the batch that writes them. One per process."""

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
            database, self._decide_all, bound=VOIDS_PER_BATCH
        )

    async def void(self, tenant_id: int, call: calls.VoidProfile, act: Actor | None = None) -> calls.Voided:
        """Repeating it is success, unless the supplier refused. A person's `act` stands in the audit log. Raises
        000105, 000111, 310404, 200004, 200002, OperatorError for a long reason."""
        if act is not None:
            require_reason(act.reason or "")
        if call.profile_id is not None and call.iccid is not None:
            raise refusal.ParameterNotAccepted("profileId and iccid exclude each other; send exactly one of them")
        if call.profile_id is None and call.iccid is None:
            raise refusal.ParameterMissing("profileId is required; accepted: exactly one of profileId and iccid")
        profile_id = None if call.profile_id is None else identity.profile_id(call.profile_id)
        if call.profile_id is not None and profile_id is None:
            raise refusal.ProfileNotFound
        return await self._batcher.submit(VoidRequest(tenant_id, profile_id, call.iccid, act))

    async def void_by_operator(self, tenant_id: int, profile_id: int, author: str, reason: str) -> calls.Voided:
        """The same for an operator: the act is in the audit log. Raises OperatorError without a reason, and 310404,
        200004, 200002."""
        require_reason(reason, "a cancellation needs a reason, for the audit log")
        return await self._batcher.submit(VoidRequest(tenant_id, profile_id, None, Actor.here(author, reason)))

    async def open(self) -> None:
        """Opens what the first call will need. Raises DatabaseLost."""
        await self._batcher.open()

    async def close(self) -> None:
        """Returns once everything submitted is answered, with its connections closed."""
        await self._batcher.close()

    async def _decide_all(
        self, session: Session, batch: Sequence[VoidRequest], wait: bool
    ) -> Sequence[Answer[calls.Voided]]:
        """Decides under locks; without `wait`, what another transaction holds is left to wait for it."""
        now = self._clock()
        located = await iccid.locate(session, [(one.tenant_id, one.profile_id, one.iccid) for one in batch])
        keys = sorted({one[:2] for one in located if one is not None})
        if not keys:
            return [refusal.ProfileNotFound() for _ in batch]
        async with session.transaction():
            locked = await store.order.lock(session, keys, wait=wait)
            mine = [
                (wanted, one) for wanted, one in zip(batch, located, strict=True) if one is None or one[:2] in locked
            ]
            found = [one for _, one in mine]
            keys = sorted(locked)
            before = await store.order.load(session, keys, self._data_keys)
            asked = await store.void.cancellations(session, keys)
            orders, voids, voiding = dict(before), [], set(asked.waiting)
            answers = [
                refusal.ProfileNotFound()
                if one is None
                else _refused(one, orders, asked.refused) or self._decide(one, orders, voiding, voids, now)
                for one in found
            ]
            changes = [(before[key], after) for key, after in orders.items() if after is not before[key]]
            if voids:
                await store.void.add_voids(session, voids)
            if changes:
                await rows.record_orders(session, changes)
                await rows.give_back_stock(session, changes)
                await webhook.order_changed(
                    session, [(after.tenant_id, after.order_id, after.version) for _, after in changes], now
                )
            fresh = {one[2] for one in found if one is not None and _open(before, one, asked.waiting)}
            await _record(session, zip([wanted for wanted, _ in mine], answers, strict=True), fresh)
            failpoints.hit("void.written")
        failpoints.hit("void.committed")
        if changes or voids:
            self._voided()
        following = iter(answers)
        return [
            next(following) if one is None or one[:2] in locked else self._batcher.wait_for_lock(wanted)
            for wanted, one in zip(batch, located, strict=True)
        ]

    def _decide(
        self,
        located: tuple[int, int, int],
        orders: dict[OrderKey, Order],
        voiding: set[int],
        voids: list[Void],
        now: datetime,
    ) -> calls.Voided:
        """Voids the profile, or has its supplier asked; what is void or asked for already stays so."""
        tenant_id, order_id, profile_id = located
        order = orders[tenant_id, order_id]
        item, profile = _profile(order, profile_id)
        if not profile.cancelled and profile_id not in voiding:
            if profile.iccid is not None and self._way(item, profile) == "SUPPLIER":
                voids.append(
                    Void(
                        *(tenant_id, profile_id, order_id, item.line, None, item.supplier, item.package_code),
                        *(profile.iccid, now, 0),
                    )
                )
                voiding.add(profile_id)
            else:
                order = orders[tenant_id, order_id] = refund.void(order, {profile_id}, now)
                item, profile = _profile(order, profile_id)
        return calls.Voided(
            order_no=order.order_no,
            item_no=identity.item_no(order_id, item.line),
            profile_id=profile_id,
            iccid=profile.iccid or UNSET,
            async_status="PENDING" if profile_id in voiding else "COMPLETED",
            cancelled=profile.cancelled,
            lifecycle_status=profile.lifecycle_status,
        )


def _open(before: Mapping[OrderKey, Order], located: tuple[int, int, int], waiting: Collection[int]) -> bool:
    """Whether the profile was neither void nor about to be."""
    tenant_id, order_id, profile_id = located
    return profile_id not in waiting and not _profile(before[tenant_id, order_id], profile_id)[1].cancelled


async def _record(
    session: Session, done: Iterable[tuple[VoidRequest, calls.Voided | Exception]], fresh: set[int]
) -> None:
    """The acts of people that were carried out: of each of these profiles one."""
    for wanted, answer in done:
        if wanted.act is None or isinstance(answer, Exception) or answer.profile_id not in fresh:
            continue
        fresh.remove(answer.profile_id)
        detail = {
            "orderNo": answer.order_no,
            "profileId": answer.profile_id,
            "reason": wanted.act.reason,
            "asyncStatus": answer.async_status,
        }
        audit_context.source.set(wanted.act.source)  # of this batch alone: it is no request of anybody
        await store.audit_log.record_act(session, wanted.act.author, "profile.cancel", wanted.tenant_id, detail)


def _refused(
    located: tuple[int, int, int], orders: dict[OrderKey, Order], refused: Collection[int]
) -> refusal.Refusal | None:
    """Why the profile stays what it is: 200004 while a refund holds it, 200002 once its supplier said no."""
    tenant_id, order_id, profile_id = located
    _, profile = _profile(orders[tenant_id, order_id], profile_id)
    if profile.held:
        return refusal.RefundInProgress(
            "a refund of this profile is in progress; wait for REFUND_COMPLETED, or query the order"
        )
    if profile_id in refused and not profile.cancelled:
        return refusal.StatusForbids(
            "the supplier refused to cancel this profile; it stays as it is. Please contact the operator",
            {"profileId": profile_id, "reason": "REFUSED_BY_SUPPLIER"},
        )
    return None


def _profile(order: Order, profile_id: int) -> tuple[Item, Profile]:
    return next(
        (item, profile) for item in order.items for profile in item.profiles if profile.profile_id == profile_id
    )
