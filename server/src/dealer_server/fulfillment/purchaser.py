"""Buys units from one Remote: claim (which writes down what is about to be asked), call, record.

Calls run side by side and are recorded as they come; each stands in the database as SENT before its socket is opened.
A worker that dies leaves SENT rows; their lease runs out, and the supplier is asked what became of them.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import structlog

from dealer_server import failpoints, metrics, store
from dealer_server.clock import Clock
from dealer_server.db.errors import LockTimeout
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import purchase_decision, record
from dealer_server.fulfillment.breaker import Breaker, Refusals
from dealer_server.fulfillment.call_pool import CallPool
from dealer_server.fulfillment.planner import Planner
from dealer_server.fulfillment.purchase_decision import PurchaseDecision
from dealer_server.fulfillment.supplier_calls import checked, fault_text
from dealer_server.rules.catalogue import margin
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.refunds.void import Void
from dealer_server.store.suppliers import purchase as rows
from dealer_server.store.suppliers import supplier as suppliers
from dealer_server.store.suppliers.purchase import Answered, Claimed
from dealer_server.suppliers.contract import (
    CALL_SECONDS,
    Done,
    Outcome,
    Purchase,
    Rejected,
    Remote,
    Unit,
    Unknown,
)

log = structlog.get_logger()

LEASE_SECONDS = 75.0  # a call ends before, with time left to record
OrderKey = tuple[int, int]
Verdict = Done | Rejected
_verdict: msgspec.json.Decoder[Verdict] = msgspec.json.Decoder(Verdict)


class PurchaseTerms(NamedTuple):
    """How long an order waits for its only supplier, and what of the dealer's price a supplier's new price leaves."""

    patience_seconds: float = purchase_decision.PATIENCE_SECONDS
    margin_floor_basis_points: int = 0


_TERMS = PurchaseTerms()


class Purchaser:
    """Works off the lines and purchases of one Remote. One connection; its calls run side by side.

    `paused`: why nothing new is bought from it. What waits for it goes to the next of the route, or waits on; what it
    may have sold is asked about all the same.
    """

    def __init__(
        self,
        remote: Remote,
        session: Session,
        data_keys: DataKeys,
        package: Callable[[str], Package | None],
        clock: Clock,
        changed: Callable[[], None],
        refund_failed: bool = True,
        terms: PurchaseTerms = _TERMS,
        paused: str | None = None,
    ):
        self.code = remote.code
        self._remote = remote
        self._session = session
        self._data_keys = data_keys
        self._package = package
        self._clock = clock
        self._changed = changed
        self._refund_failed = refund_failed
        self._planner = Planner(remote.code, session, data_keys, clock, changed)
        self._breaker = Breaker()
        self._refusals = Refusals()
        self._terms = terms
        self._paused = paused
        self._answers_again = False
        self._calls = CallPool[tuple[int, Claimed], Outcome](
            f"purchases at {self.code}", remote.caps.parallel, self._begin, self._record, self._unrecorded
        )
        self.wake = self._calls.wake

    async def run(self) -> None:
        """Until cancelled; see Calls."""
        try:
            await self._calls.run()
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """What is due now, and the calls for it, to their end; how much there was."""
        count = await self._calls.run_once()
        await self._pause_if_refused()
        return count

    # Purchases are called for

    def answers_again(self) -> None:
        """The supplier was seen to be up: what it left unknown is asked about now."""
        self._answers_again = True
        self.wake.set()

    async def _begin(self, room: int) -> int:
        await self._pause_if_refused()
        if self._answers_again:
            await rows.ask_again(self._session, self.code, self._clock())
            self._answers_again = False
        return await self._planner.plan() + (await self._claim(room) if room else 0)

    async def _claim(self, room: int) -> int:
        """Starts calls for due purchases; how many it took."""
        session, claim_id, now = self._session, secrets.randbits(62), self._clock()
        until = now + timedelta(seconds=LEASE_SECONDS)
        async with session.transaction():
            taken = await rows.claim(session, self.code, claim_id, now, until, room, new_too=self._breaker.closed(now))
            asked = await self._with_ids(taken)
        failpoints.hit("purchase.claimed")
        for one, ready in asked:
            self._calls.start((claim_id, one), self._call(one, ready))
        return len(taken)

    async def _with_ids(self, taken: Sequence[Claimed]) -> list[tuple[Claimed, bool]]:
        """Gives those that need them ids of ours, before their first call; whether each has what it needs."""
        bare = [
            one
            for one in taken
            if self._remote.caps.plans_ids
            and self._paused is None
            and one.planned_iccid is None
            and one.wanted
            and one.verdict is None
        ]
        ids = {one.key: _matching_id() for one in bare}
        given = await rows.plan_ids(self._session, self.code, [(one.key, one.sku, ids[one.key]) for one in bare])
        return [
            (one._replace(planned_iccid=given.get(one.key), planned_matching_id=ids[one.key]), one.key in given)
            if one.key in ids
            else (one, True)
            for one in taken
        ]

    async def _call(self, one: Claimed, ready: bool) -> Outcome:
        if one.verdict is not None:
            return self._opened(one)
        if one.was == "PLANNED" and not one.wanted:
            return Rejected("NOT_ALLOWED", False, "not wanted any more")
        if self._paused is not None and one.was == "PLANNED":
            return Rejected("CONFIG", True, f"the supplier is paused; {self._paused}")
        if not ready:
            return Rejected("OUT_OF_STOCK", True, f"no ICCID of {one.sku} is left in the loaded range")
        if one.held and one.was == "PLANNED":
            return Rejected("TEMPORARY", False, "a refund is in progress")
        try:
            async with asyncio.timeout(CALL_SECONDS):
                failpoints.hit("purchase.sending")
                purchase, now = self._purchase(one), self._clock()
                ask = self._remote.probe if one.was in ("SENT", "UNKNOWN") else self._remote.allocate
                outcome = checked(await ask(purchase, now))
        except asyncio.CancelledError:
            return Unknown("this worker ended before the answer came")
        except Exception as error:
            outcome = Unknown(fault_text(error))
        failpoints.hit("purchase.answered")
        if self._breaker.saw(outcome, self._clock()):
            self.answers_again()
        self._refusals.saw(outcome)
        return outcome

    def _purchase(self, one: Claimed) -> Purchase:
        unit = Unit(
            one.unit_key,
            one.profile_id,
            one.package_code,
            one.profile_id - one.first_profile_id + 1,
            one.quantity,
            one.period_num,
            self._data_bytes(one),
            one.created_at,
            one.remark,
        )
        return Purchase(unit, one.sku, one.step, one.planned_iccid, one.planned_matching_id, one.supplier_ref,
                        one.unit_ref, one.cost, one.cost_currency, one.unknown_since)  # fmt: skip

    def _data_bytes(self, one: Claimed) -> int | None:
        package = self._package(one.package_code)
        return None if package is None or package.data_bytes is None else package.data_bytes * one.period_num

    # Answers are recorded

    def _unrecorded(self, claim: tuple[int, Claimed], fault: str) -> Outcome:
        _, one = claim
        log.error("purchase_not_recorded", unit_key=one.unit_key, supplier=self.code, error=fault)
        return Unknown(f"its answer could not be recorded: {fault}")

    async def _record(self, answers: Sequence[tuple[tuple[int, Claimed], Outcome]]) -> None:
        session, now = self._session, self._clock()
        keys = sorted({(one.tenant_id, one.order_id) for (_, one), _ in answers})
        async with session.transaction():
            await store.order.lock(session, keys)
            held = set[rows.Key]()
            for claim_id in {claim_id for (claim_id, _), _ in answers}:
                held |= await rows.held(session, claim_id, [one.key for (of, one), _ in answers if of == claim_id])
            mine = [(one, outcome) for (_, one), outcome in answers if one.key in held]
            before = await store.order.load(session, keys, self._data_keys)
            routes = await rows.routes(session, sorted({one.package_code for one, _ in mine}))
            judged = [
                self._judge(one, outcome, before[one.tenant_id, one.order_id], routes.get(one.package_code, []))
                for one, outcome in mine
            ]
            await rows.record(session, [one.answered for one in judged], now)
            if instead := [one.instead for one in judged if one.instead is not None]:
                await rows.add(session, instead, now)
            settled = dict(self._settled(mine, judged))
            after = await record.put(
                session, before, settled, {}, self._data_keys, refund_failed=self._refund_failed, now=now
            )
            if voids := list(_unwanted(mine, judged, before, now)):
                await store.void.add_voids(session, voids)
            failpoints.hit("purchase.written")
        self._tell(mine, judged)
        if voids or any(after[key] is not before[key] for key in keys):
            self._changed()
        await self._reprice([(one, what.answered.cost) for (one, _), what in zip(mine, judged, strict=True)])
        failpoints.hit("purchase.recorded")

    def _judge(self, one: Claimed, outcome: Outcome, order: Order, route: Sequence[rows.Hop]) -> PurchaseDecision:
        now = self._clock()
        profile = _profile({(one.tenant_id, one.order_id): order}, one)
        wanted = _wanted(profile)
        if one.was == "PLANNED" and not wanted and isinstance(outcome, Rejected) and not outcome.written_off:
            return PurchaseDecision(Answered(one.key, "DROPPED", None, reason="not wanted any more", outcome="DROPPED"))
        if wanted and profile.held and isinstance(outcome, Verdict):
            if one.was == "PLANNED" and isinstance(outcome, Rejected):
                due = now + timedelta(seconds=purchase_decision.HELD_SECONDS)
                return PurchaseDecision(Answered(one.key, "PLANNED", due, outcome="HELD"))
            sealed = rows.seal_verdict(self._data_keys, one.unit_key, msgspec.json.encode(outcome))
            return PurchaseDecision(purchase_decision.kept(one, outcome, sealed, now))
        judged = purchase_decision.decide(
            one,
            outcome,
            route if wanted else [],
            self._remote.caps.plans_ids and wanted,
            now,
            self._terms.patience_seconds,
            self._ceiling(one, order),
        )
        if one.verdict is not None and isinstance(outcome, Unknown):  # it was given: it is not asked for again
            return judged._replace(answered=judged.answered._replace(verdict=one.verdict))
        return judged

    def _ceiling(self, one: Claimed, order: Order) -> int | None:
        """What the unit may cost at most; None where its cost is in another currency than the dealer paid in."""
        if one.cost_currency != order.currency:
            return None
        return margin.ceiling(order.items[one.line].price, self._terms.margin_floor_basis_points)

    async def _reprice(self, taken: Sequence[tuple[Claimed, int | None]]) -> None:
        """Prices that were accepted are the route's costs from now on; one act in the audit log for each change. In a
        transaction of its own: routes are locked before orders (docs/decisions/0016). Where it is not carried out, the
        next purchase is refused at the old cost and comes back here."""
        accepted = {
            (one.package_code, one.sku, one.cost_currency): (one, cost) for one, cost in taken if cost is not None
        }
        if not accepted:
            return
        acts = list[dict[str, object]]()
        try:
            async with self._session.transaction():
                for (code, sku, currency), (one, cost) in sorted(accepted.items(), key=lambda each: each[0][:2]):
                    old = await rows.reprice(self._session, code, rows.Hop(self.code, sku, one.cost, currency), cost)
                    if old is not None:
                        acts.append({"code": self.code, "package": code, "sku": sku, "before": old, "after": cost,
                                     "currency": currency})  # fmt: skip
                for detail in acts:
                    await self._record_act("supplier.cost", detail)
        except LockTimeout:
            log.warning("supplier_price_not_recorded", supplier=self.code, reason="its route is locked")
            return
        for detail in acts:
            log.warning("supplier_price_accepted", supplier=self.code, package_code=detail["package"],
                        sku=detail["sku"], before=detail["before"], after=detail["after"],
                        currency=detail["currency"])  # fmt: skip

    async def _record_act(self, action: str, detail: Mapping[str, object]) -> None:
        await store.audit_log.record_act(self._session, "system", action, None, detail)

    async def _pause_if_refused(self) -> None:
        """Pauses the supplier once it has refused us as a whole too often in a row; an operator resumes it."""
        reason = self._refusals.too_many()
        if reason is None:
            return
        async with self._session.transaction():
            paused = await suppliers.pause(self._session, self.code, reason)
            self._paused = reason  # at once; Remotes sees it within a second, and starts this anew
            if paused:
                detail = {"code": self.code, "after": {"status": "PAUSED", "reason": reason}}
                await self._record_act("supplier.status", detail)
        if paused:
            metrics.suppliers_paused.labels(self.code).inc()
            log.error("supplier_paused", supplier=self.code, reason=reason)

    def _opened(self, one: Claimed) -> Outcome:
        assert one.verdict is not None
        text = self._data_keys.open(one.verdict, rows.verdict_context(one.unit_key))
        return _verdict.decode(text)

    def _settled(
        self, mine: Sequence[tuple[Claimed, Outcome]], judged: Sequence[PurchaseDecision]
    ) -> Iterator[tuple[int, Codes | Failed]]:
        for (one, outcome), what in zip(mine, judged, strict=True):
            if what.failed:
                yield one.profile_id, Failed()
            elif what.answered.state == "DONE" and isinstance(outcome, Done):
                yield (
                    one.profile_id,
                    Codes(
                        outcome.iccid,
                        outcome.activation_code,
                        secrets.token_urlsafe(16),
                        outcome.esim_status,
                        outcome.smdp_status,
                        self._data_bytes(one),
                    ),
                )

    def _tell(self, mine: Sequence[tuple[Claimed, Outcome]], judged: Sequence[PurchaseDecision]) -> None:
        for (one, _), what in zip(mine, judged, strict=True):
            metrics.purchases.labels(self.code, what.answered.outcome.split()[0]).inc()
            if what.answered.state in ("PARKED", "REJECTED", "WRITTEN_OFF", "UNKNOWN") and what.answered.reason:
                log.warning("purchase_" + what.answered.state.lower(), unit_key=one.unit_key, supplier=self.code,
                            reason=what.answered.reason)  # fmt: skip


def _matching_id() -> str:
    """128 random bits in letters and digits that every activation code may hold."""
    return secrets.token_hex(16).upper()


def _wanted(profile: Profile) -> bool:
    return profile.lifecycle_status == "PENDING" and not profile.failed and not profile.refunded


def _profile(orders: Mapping[OrderKey, Order], one: Claimed) -> Profile:
    item = orders[one.tenant_id, one.order_id].items[one.line]
    return next(profile for profile in item.profiles if profile.profile_id == one.profile_id)


def _unwanted(
    mine: Sequence[tuple[Claimed, Outcome]],
    judged: Sequence[PurchaseDecision],
    orders: Mapping[OrderKey, Order],
    now: datetime,
) -> Iterator[Void]:
    """What was bought for a profile that is void by now is voided at its supplier, not handed out."""
    for (one, outcome), what in zip(mine, judged, strict=True):
        if what.answered.state == "DONE" and isinstance(outcome, Done) and not _wanted(_profile(orders, one)):
            yield Void(one.tenant_id, one.profile_id, one.order_id, one.line, None, one.supplier, one.package_code,
                       outcome.iccid, now, 0)  # fmt: skip
