"""How is a profile suspended? /esim/profile/suspend and /esim/profile/unsuspend (specification 4.13).

The eSIMs of a builtin supplier are suspended at once. For those of a remote one the act is a row that the worker
carries out (fulfillment/suspension_queue.py): the API process does not call suppliers.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from dealer_server import audit_context, failpoints, store
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import require_reason
from dealer_server.operations.profiles.advance import ReportHandler
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.lifecycle import lifecycle
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.profiles.suspension import Act, Seller
from dealer_server.suppliers import registry
from dealer_server.suppliers.contract import Builtin, ProfileReport
from esim_dealer.wire import calls

REFUSAL_STANDS = timedelta(minutes=10)


class _Located(NamedTuple):
    """A profile of a locked order. `seller`: None where it was not bought from a remote supplier."""

    order: Order
    item: Item
    profile: Profile
    seller: Seller | None

    @property
    def key(self) -> tuple[int, int]:
        return self.order.tenant_id, self.profile.profile_id


class Offer(NamedTuple):
    """What can be asked of a profile: SUSPEND, UNSUSPEND or nothing. asked: what was asked and is under way."""

    possible: Literal["SUSPEND", "UNSUSPEND"] | None
    asked: Literal["SUSPEND", "UNSUSPEND"] | None


class Suspender:
    """`report` records a supplier's reports; `changed` is called after each commit."""

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        suppliers: Mapping[str, Builtin],
        report: ReportHandler,
        clock: Clock,
        changed: Callable[[], None],
    ):
        self._database = database
        self._data_keys = data_keys
        self._suppliers = suppliers
        self._report = report
        self._clock = clock
        self._changed = changed

    async def suspend(self, tenant_id: int, call: calls.SuspendProfile, act: Actor | None = None) -> calls.Suspended:
        """A repeat is success, unless the supplier has just refused. `act`: the person who asks at the console,
        recorded in the audit log. Raises 000105, 000111, 310404, 200022, 200010, 200002, 200004; OperatorError for a
        long reason."""
        return await self._set(tenant_id, call, True, act)

    async def unsuspend(self, tenant_id: int, call: calls.SuspendProfile, act: Actor | None = None) -> calls.Suspended:
        """Raises what `suspend` raises."""
        return await self._set(tenant_id, call, False, act)

    async def offer(self, connection: Connection, order: Order, profile_id: int) -> Offer:
        """For a page that shows the profile."""
        item, profile = order.find_profile(profile_id)
        key = order.tenant_id, profile_id
        found = _Located(order, item, profile, await store.suspension.seller(connection, key))
        acts = [act for act in await store.suspension.latest(connection, key) if act.outcome is None]
        suspends = acts[-1].suspended if acts else profile.suspended
        possible = profile.iccid is not None and not profile.over and not profile.held and self._supported(found)
        return Offer(
            possible=("UNSUSPEND" if suspends else "SUSPEND") if possible else None,
            asked=("SUSPEND" if suspends else "UNSUSPEND") if acts else None,
        )

    async def _set(
        self, tenant_id: int, call: calls.SuspendProfile, suspended: bool, act: Actor | None
    ) -> calls.Suspended:
        if act is not None:
            require_reason(act.reason or "")
        named = profile_key(call.profile_id, call.iccid)

        async def work(connection: Connection) -> calls.Suspended:
            found = await self._locate(connection, tenant_id, *named)
            acts = await store.suspension.latest(connection, found.key)
            now = self._clock()
            voids = await store.void.cancellations(connection, [(tenant_id, found.order.order_id)])
            self._refuse(found, acts, suspended, found.profile.profile_id in voids.waiting, now)
            waiting = await self._carry_out(connection, found, acts, suspended, now)
            answer = await self._answer(connection, found, waiting)
            if act is not None:
                await _record_act(connection, act, tenant_id, suspended, answer)
            failpoints.hit("suspend.written")
            return answer

        answer = await self._database.run(work)
        self._changed()
        return answer

    async def _locate(
        self, connection: Connection, tenant_id: int, profile_id: int | None, iccid: str | None
    ) -> _Located:
        [located] = await iccids.locate(connection, [(tenant_id, profile_id, iccid)])
        if located is None:
            raise refusal.ProfileNotFound
        key = located[:2]
        await store.order.lock(connection, [key])
        order = (await store.order.load(connection, [key], self._data_keys))[key]
        item, profile = order.find_profile(located[2])
        return _Located(order, item, profile, await store.suspension.seller(connection, (tenant_id, located[2])))

    def _refuse(self, found: _Located, acts: list[Act], suspended: bool, voiding: bool, now: datetime) -> None:
        """Raises 200022, 200010, 200002, 200004."""
        profile = found.profile
        if not self._supported(found):
            raise refusal.NotSupported("the supplier of this profile cannot suspend it")
        if profile.cancelled:
            raise refusal.StatusForbids("the profile is void")
        if profile.iccid is None:
            raise refusal.NotAllocated
        if profile.over:
            raise refusal.StatusForbids("the plan of this profile has ended")
        if profile.held:
            raise refusal.RefundInProgress("a refund of this profile is in progress")
        if voiding:
            raise refusal.StatusForbids("the supplier is asked to cancel this profile")
        last = acts[-1] if acts and profile.suspended != suspended else None
        if last and last.outcome == "REFUSED" and last.suspended == suspended and _is_recent(last, now):
            raise refusal.StatusForbids(
                "the supplier refused this; the profile stays as it is",
                {"profileId": profile.profile_id, "reason": "REFUSED_BY_SUPPLIER"},
            )

    def _supported(self, found: _Located) -> bool:
        """Which remote supplier it will come from is open until it has codes."""
        if found.seller is None and found.item.supplier not in self._suppliers:
            return found.profile.iccid is None
        return registry.caps_of(found.item.supplier if found.seller is None else found.seller.kind).suspend

    async def _carry_out(
        self, connection: Connection, found: _Located, acts: list[Act], suspended: bool, now: datetime
    ) -> bool:
        """Does it, or has the worker do it, unless it is so or under way; whether the supplier has still to answer."""
        under_way = [act for act in acts if act.outcome is None]
        while under_way and under_way[-1].suspended != suspended:
            if not await store.suspension.withdraw(connection, found.key, under_way[-1].suspension_id, now):
                break
            under_way.pop()
        if (under_way[-1].suspended if under_way else found.profile.suspended) == suspended:
            return bool(under_way)
        profile = found.order.tenant_id, found.order.order_id, found.profile.profile_id
        if found.seller is not None:
            await store.suspension.add(connection, profile, suspended, found.seller.code, None, now)
            return True
        reported = ProfileReport(lifecycle.suspension(suspended, now), iccid=found.profile.iccid)
        await self._report(connection, found.item.supplier, [reported], self._data_keys, now)
        await store.suspension.add(connection, profile, suspended, found.item.supplier, "DONE", now)
        return False

    async def _answer(self, connection: Connection, found: _Located, waiting: bool) -> calls.Suspended:
        key = found.order.tenant_id, found.order.order_id
        order = (await store.order.load(connection, [key], self._data_keys))[key]
        item, profile = order.find_profile(found.profile.profile_id)
        assert profile.iccid is not None, "a profile without codes is refused"
        return calls.Suspended(
            order_no=order.order_no,
            item_no=identity.item_no(order.order_id, item.line),
            profile_id=profile.profile_id,
            iccid=profile.iccid,
            async_status="PENDING" if waiting else "COMPLETED",
            cancelled=profile.cancelled,
            lifecycle_status=profile.lifecycle_status,
            suspended=profile.shows_suspended,
        )


def _is_recent(act: Act, now: datetime) -> bool:
    return act.finished_at is not None and now - act.finished_at < REFUSAL_STANDS


async def _record_act(
    connection: Connection, act: Actor, tenant_id: int, suspended: bool, answer: calls.Suspended
) -> None:
    detail = {
        "orderNo": answer.order_no,
        "profileId": answer.profile_id,
        "reason": act.reason,
        "asyncStatus": answer.async_status,
    }
    audit_context.source.set(act.source)
    await record_act(connection, act.author, "profile.suspend" if suspended else "profile.unsuspend", tenant_id, detail)
