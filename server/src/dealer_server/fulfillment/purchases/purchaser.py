"""Fulfills the purchases at a remote supplier. Claiming a purchase writes down what is about to be asked; after that it
is called.

Calls run side by side and are recorded as they end. Each stands in the database as SENT before its socket is opened. A
worker that dies leaves SENT rows: their lease runs out, and the supplier is asked what became of them.
"""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import perf_counter
from typing import NamedTuple

import msgspec
import structlog

from dealer_server import failpoints, metrics, traces
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.engine import Context, Decision, FulfillmentEngine, OrderKey, RowKey
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.purchases import purchase_decision, supplier_changes
from dealer_server.fulfillment.purchases.breaker import Breaker, Refusals
from dealer_server.fulfillment.purchases.purchase_decision import PurchaseDecision
from dealer_server.fulfillment.purchases.purchase_planner import PurchasePlanner
from dealer_server.fulfillment.results import made_of, void_of
from dealer_server.fulfillment.supplier_calls import outcome_of, plan_seconds
from dealer_server.rules.catalogue import margin
from dealer_server.rules.delivery.delivery import Failed
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.suppliers import purchase as purchases
from dealer_server.store.suppliers.purchase import Claimed, Hop
from dealer_server.suppliers.contract import (
    CALL_SECONDS,
    Applied,
    Done,
    Outcome,
    Purchase,
    RechargedEsim,
    Rejected,
    Remote,
    Unit,
    Unknown,
)

log = structlog.get_logger()

LEASE_SECONDS = 75.0  # a call ends before, with time left to record
Verdict = Done | Applied | Rejected
_verdict: msgspec.json.Decoder[Verdict] = msgspec.json.Decoder(Verdict)


class PurchaseTerms(NamedTuple):
    """How long an order waits for its only supplier, and what of the dealer's price a purchase leaves, unless its
    package has a floor of its own. None: no floor, but a supplier's new price is taken up to what the dealer paid."""

    patience_seconds: float = purchase_decision.PATIENCE_SECONDS
    margin_floor_basis_points: int | None = None


_TERMS = PurchaseTerms()


class PurchaseClaim(NamedTuple):
    claim_id: int
    purchase: Claimed

    @property
    def order(self) -> OrderKey:
        return self.purchase.tenant_id, self.purchase.order_id

    @property
    def recharged_order(self) -> OrderKey | None:
        order_id = self.purchase.recharged_order_id
        return None if order_id is None else (self.purchase.tenant_id, order_id)


@dataclass
class PurchaseDecisions(Decision):
    """What becomes of each purchase that is still claimed."""

    purchases: list[tuple[Claimed, PurchaseDecision]] = field(default_factory=list)


class Purchaser(FulfillmentEngine[PurchaseClaim, Outcome, PurchaseDecisions]):
    """`paused`: why nothing new is bought from the supplier. What waits for it goes to the next of the route, or waits
    on; what it may have sold is asked about all the same."""

    point = "purchase"
    keeps_locked = True  # an answer may have cost money

    def __init__(self, remote: Remote, context: Context, terms: PurchaseTerms = _TERMS, paused: str | None = None):
        super().__init__(remote, "purchases", remote.caps.parallel, context)
        self._remote = remote
        self._planner = PurchasePlanner(remote, context)
        self._breaker = Breaker()
        metrics.watch_breaker(self.code, lambda: not self._breaker.closed(self._clock()))
        self._refusals = Refusals()
        self._terms = terms
        self._paused = paused
        self._answers_again = False

    def answers_again(self) -> None:
        """The supplier was seen to be up: what it left unknown is asked about now."""
        self._answers_again = True
        self.wake.set()

    # Claim

    async def begin(self, room: int) -> int:
        await self._pause_if_refused()
        if self._answers_again:
            await purchases.make_unknown_due(self._session, self.code, self._clock())
            self._answers_again = False
        return await self._planner.begin(room) + (await self._claim(room) if room else 0)

    async def _claim(self, room: int) -> int:
        """Starts calls for due purchases; how many it claimed."""
        session, claim_id, now = self._session, secrets.randbits(62), self._clock()
        until = now + timedelta(seconds=LEASE_SECONDS)
        async with session.transaction():
            claimed = await purchases.claim(
                session, self.code, claim_id, now, until, room, new_too=self._breaker.closed(now)
            )
            ready = await self._with_ids(claimed)
        failpoints.hit("purchase.claimed")
        for purchase, has_ids in ready:
            claim = PurchaseClaim(claim_id, purchase)
            self._pool.start([claim], self._ask(claim, has_ids))
        return len(claimed)

    async def _with_ids(self, claimed: Sequence[Claimed]) -> list[tuple[Claimed, bool]]:
        """Gives those that need them ids of ours, before their first call; whether each has what it needs."""
        bare = [
            purchase
            for purchase in claimed
            if self._caps.plans_ids
            and self._paused is None
            and purchase.planned_iccid is None
            and purchase.wanted
            and purchase.verdict is None
        ]
        ids = {purchase.key: _matching_id() for purchase in bare}
        given = await purchases.plan_ids(
            self._session, self.code, [(purchase.key, purchase.sku, ids[purchase.key]) for purchase in bare]
        )
        return [
            (
                purchase._replace(planned_iccid=given.get(purchase.key), planned_matching_id=ids[purchase.key]),
                purchase.key in given,
            )
            if purchase.key in ids
            else (purchase, True)
            for purchase in claimed
        ]

    # Ask

    async def _ask(self, claim: PurchaseClaim, has_ids: bool) -> Answered[PurchaseClaim, Outcome]:
        purchase = claim.purchase
        if purchase.verdict is not None:
            return [(claim, self._opened(purchase))]
        outcome = self._refused_here(purchase, has_ids) or await self._call(purchase)
        return [(claim, outcome)]

    def _refused_here(self, purchase: Claimed, has_ids: bool) -> Rejected | None:
        """Why the supplier is not even asked."""
        new = purchase.was == "PLANNED"
        if new and not purchase.wanted:
            return Rejected("NOT_ALLOWED", False, "not wanted any more")
        if new and self._paused is not None:
            return Rejected("CONFIG", True, f"the supplier is paused; {self._paused}", unasked=True)
        if new and (why := self._below_floor(purchase)):
            return Rejected("NOT_ALLOWED", True, why, unasked=True)
        if not has_ids:
            return Rejected(
                "OUT_OF_STOCK", True, f"no ICCID of {purchase.sku} is left in the loaded range", unasked=True
            )
        if new and purchase.held:
            return Rejected("TEMPORARY", False, "a refund is in progress", unasked=True)
        return None

    def _below_floor(self, purchase: Claimed) -> str | None:
        """Why it is not bought here at its cost; None where it is, or where the two are in different currencies."""
        floor = self._floor(purchase)
        if floor is None or purchase.cost is None or purchase.cost_currency != purchase.currency:
            return None
        return margin.below_floor(purchase.price, purchase.cost, purchase.currency, floor)

    def _floor(self, purchase: Claimed) -> int | None:
        own = purchase.margin_floor_basis_points
        return self._terms.margin_floor_basis_points if own is None else own

    async def _call(self, purchase: Claimed) -> Outcome:
        failpoints.hit("purchase.sending")
        asked = purchase.was in ("SENT", "UNKNOWN")
        call = self._remote.probe if asked else self._remote.allocate
        began = perf_counter()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                outcome = await outcome_of(call(self._purchase(purchase), self._clock()))
        except TimeoutError as error:
            outcome = Unknown(fault_text(error))
        except asyncio.CancelledError:
            return Unknown("this worker ended before the answer came")
        failpoints.hit("purchase.answered")
        kind, word = "probe" if asked else "buy", type(outcome).__name__.upper()
        metrics.supplier_called(self.code, kind, word, perf_counter() - began)
        traces.request(f"{kind} {self.code}", purchase.order_id, word, word == "UNKNOWN", began)
        if self._breaker.record(outcome, self._clock()):
            self.answers_again()
        self._refusals.record(outcome)
        return outcome

    def unanswered(self, claim: PurchaseClaim, fault: str) -> Outcome:
        log.error("purchase_not_recorded", unit_key=claim.purchase.unit_key, supplier=self.code, error=fault)
        return Unknown(f"its answer could not be recorded: {fault}")

    def _unit(self, purchase: Claimed) -> Unit:
        package = self._context.package(purchase.package_code)
        return Unit(
            unit_key=purchase.unit_key,
            profile_id=purchase.profile_id,
            package_code=purchase.package_code,
            position=purchase.profile_id - purchase.first_profile_id + 1,
            quantity=purchase.quantity,
            period_num=purchase.period_num,
            data_bytes=None
            if package is None or package.data_bytes is None
            else package.data_bytes * purchase.period_num,
            paid_at=purchase.created_at,
            plan_seconds=None if package is None else plan_seconds(package, purchase.period_num),
            remark=purchase.remark,
            recharges=_recharged(purchase),
        )

    def _purchase(self, purchase: Claimed) -> Purchase:
        return Purchase(
            unit=self._unit(purchase),
            sku=purchase.sku,
            step=purchase.step,
            planned_iccid=purchase.planned_iccid,
            planned_matching_id=purchase.planned_matching_id,
            supplier_ref=purchase.supplier_ref,
            unit_ref=purchase.unit_ref,
            cost=purchase.cost,
            cost_currency=purchase.cost_currency,
            unknown_since=purchase.unknown_since,
        )

    def _opened(self, purchase: Claimed) -> Outcome:
        """What an operator found out, or an answer that was kept."""
        assert purchase.verdict is not None
        return _verdict.decode(self._data_keys.open(purchase.verdict, purchases.verdict_context(purchase.unit_key)))

    # Decide and record

    async def _held(self, claims: Sequence[PurchaseClaim]) -> Collection[RowKey]:
        held = set[RowKey]()
        for claim_id in {claim.claim_id for claim in claims}:
            keys = [claim.purchase.key for claim in claims if claim.claim_id == claim_id]
            held |= await purchases.held(self._session, claim_id, keys)
        return held

    async def _decide(
        self,
        answered: Answered[PurchaseClaim, Outcome],
        held: Collection[RowKey],
        orders: Mapping[OrderKey, Order],
        now: datetime,
    ) -> PurchaseDecisions:
        mine = [(claim, outcome) for claim, outcome in answered if claim.purchase.key in held]
        routes = await purchases.routes(self._session, sorted({claim.purchase.package_code for claim, _ in mine}))
        decisions = PurchaseDecisions()
        for claim, outcome in mine:
            purchase, order = claim.purchase, orders[claim.order]
            profile = _profile(order, purchase)
            decision = self._decided(purchase, outcome, order, profile, routes.get(purchase.package_code, ()), now)
            decisions.purchases.append((purchase, decision))
            if decision.failed:
                decisions.results[purchase.profile_id] = Failed()
            elif decision.answered.state == "DONE" and isinstance(outcome, Done | Applied):
                decisions.results[purchase.profile_id] = made_of(outcome, self._unit(purchase))
                if isinstance(outcome, Done) and not _wanted(profile):
                    decisions.voids.append(
                        void_of(order, purchase.line, purchase.profile_id, self.code, outcome.iccid, now)
                    )
        return decisions

    def _decided(
        self, purchase: Claimed, outcome: Outcome, order: Order, profile: Profile, route: Sequence[Hop], now: datetime
    ) -> PurchaseDecision:
        wanted, new = _wanted(profile), purchase.was == "PLANNED"
        if new and not wanted and isinstance(outcome, Rejected) and not outcome.written_off:
            return purchase_decision.dropped(purchase)
        if wanted and profile.held and isinstance(outcome, Verdict):
            if new and isinstance(outcome, Rejected):
                return purchase_decision.put_off(purchase, now)
            sealed = purchases.seal_verdict(self._data_keys, purchase.unit_key, msgspec.json.encode(outcome))
            return purchase_decision.kept_until_settled(purchase, outcome, sealed, now)
        decision = purchase_decision.decide(
            purchase,
            outcome,
            route if wanted and purchase.recharges is None else (),
            self._caps.plans_ids and wanted,
            now,
            self._terms.patience_seconds,
            self._ceiling(purchase, order),
        )
        if purchase.verdict is not None and isinstance(outcome, Unknown):  # it was given: it is not asked for again
            return decision._replace(answered=decision.answered._replace(verdict=purchase.verdict))
        return decision

    def _ceiling(self, purchase: Claimed, order: Order) -> int | None:
        """What the unit may cost at most; None where its cost is in another currency than the dealer paid in."""
        if purchase.cost_currency != order.currency:
            return None
        return margin.ceiling(order.items[purchase.line].price, self._floor(purchase) or 0)

    async def _write(
        self,
        decided: PurchaseDecisions,
        before: Mapping[OrderKey, Order],
        after: Mapping[OrderKey, Order],
        now: datetime,
    ) -> None:
        decisions = [decision for _, decision in decided.purchases]
        await purchases.record(self._session, [decision.answered for decision in decisions], now)
        if instead := [decision.instead for decision in decisions if decision.instead is not None]:
            await purchases.add(self._session, instead, now)

    async def _recorded(self, decided: PurchaseDecisions) -> None:
        for purchase, decision in decided.purchases:
            answered = decision.answered
            metrics.purchases.labels(self.code, answered.outcome.split()[0]).inc()
            if answered.state in ("PARKED", "REJECTED", "WRITTEN_OFF", "UNKNOWN") and answered.reason:
                log.warning("purchase_" + answered.state.lower(), unit_key=purchase.unit_key, supplier=self.code,
                            reason=answered.reason)  # fmt: skip
        accepted = [
            (purchase, decision.answered.cost)
            for purchase, decision in decided.purchases
            if decision.answered.cost is not None
        ]
        if accepted:
            await supplier_changes.reprice(self._session, self.code, accepted)

    async def give_up(self, claim: PurchaseClaim, error: Exception) -> None:
        """It is recorded as unknown, so that the supplier is asked what became of it."""
        await self.record([(claim, self.unanswered(claim, fault_text(error)))])

    # The supplier as a whole

    async def _pause_if_refused(self) -> None:
        """Pauses the supplier once it has refused us as a whole too often in a row; an operator resumes it."""
        reason = self._refusals.too_many()
        if reason is not None:
            self._paused = reason  # at once; the supervisor sees it within a second, and starts this anew
            await supplier_changes.pause(self._session, self.code, reason, self._clock())


def _matching_id() -> str:
    """128 random bits in letters and digits that every activation code may hold."""
    return secrets.token_hex(16).upper()


def _wanted(profile: Profile) -> bool:
    return profile.lifecycle_status == "PENDING" and not profile.failed and not profile.refunded


def _profile(order: Order, purchase: Claimed) -> Profile:
    profiles = order.items[purchase.line].profiles
    return next(profile for profile in profiles if profile.profile_id == purchase.profile_id)


def _recharged(purchase: Claimed) -> RechargedEsim | None:
    if purchase.recharges is None:
        return None
    return RechargedEsim(
        profile_id=purchase.recharges,
        iccid=purchase.recharged_iccid or "",
        unit_key=purchase.recharged_unit_key or "",
        sku=purchase.recharged_sku or "",
        supplier_ref=purchase.recharged_supplier_ref,
        unit_ref=purchase.recharged_unit_ref,
    )
