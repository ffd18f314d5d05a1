"""What does a supplier's answer mean for a purchase? Pure.

Only Rejected sends a unit elsewhere or gives it up. A purchase that is Unknown stays with its supplier until its fate
is known, or an operator decides (docs/decisions/0010-purchases.md).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.suppliers.purchase import Answered, Claimed, Hop, New, State
from dealer_server.suppliers.contract import Applied, Done, Outcome, Pending, Rejected, Unknown

PARK_SECONDS = 3_600.0  # unknown for so long: an operator has to find out
PENDING_SECONDS = 86_400.0  # pending for so long: an operator has to ask
# How long the only supplier of a unit may be down, out of money or wrongly set up.
PATIENCE_SECONDS = 3_600.0
POLL_LONGEST_SECONDS = 300.0
FRESH_IDS = 5  # how often a clash of ids is answered with other ones
TRIES_BEFORE_ELSEWHERE = 3
HELD_SECONDS = 5.0
_MAY_PASS = ("TEMPORARY", "INSUFFICIENT_FUNDS", "CONFIG")


class PurchaseDecision(NamedTuple):
    """What becomes of a purchase: how it stands, what is planned instead, and whether the unit has failed for good."""

    answered: Answered
    instead: New | None = None
    failed: bool = False


def decide(
    purchase: Claimed,
    outcome: Outcome,
    route: Sequence[Hop],
    plans_ids: bool,
    now: datetime,
    patience: float = PATIENCE_SECONDS,
    ceiling: int | None = None,
) -> PurchaseDecision:
    """`route` is the package's; `plans_ids` as in the supplier's Caps. `ceiling`: what the unit may cost at most."""
    if isinstance(outcome, Done | Applied):
        return PurchaseDecision(_done(purchase, outcome))
    if isinstance(outcome, Pending):
        return PurchaseDecision(_pending(purchase, outcome, now))
    if isinstance(outcome, Rejected):
        if _affordable(purchase, outcome.asks, ceiling):
            return PurchaseDecision(_repriced(purchase, outcome, now))
        decision = _rejected(purchase, outcome, route, plans_ids, now, patience)
        return decision._replace(answered=decision.answered._replace(supplier_ref=outcome.supplier_ref))
    reason = outcome.reason if isinstance(outcome, Unknown) else f"answered with {type(outcome).__name__}"
    return PurchaseDecision(_unknown(purchase, reason, now))


def first_hop(supplier: str, package_code: str, route: Sequence[Hop]) -> Hop:
    """Where a unit is bought first: at the supplier its line was sold from, or else at the first remote supplier of the
    route."""
    hop = next((hop for hop in route if hop.supplier == supplier), None)
    hop = hop or next((hop for hop in route if hop.supplier != STOCK), None)
    return hop or Hop(supplier, package_code, None, None)


def own_hop(supplier: str, package_code: str, route: Sequence[Hop]) -> Hop:
    """Where an eSIM is recharged: at the supplier that made it, and nowhere else."""
    return next((hop for hop in route if hop.supplier == supplier), Hop(supplier, package_code, None, None))


def dropped(purchase: Claimed) -> PurchaseDecision:
    """Nothing was asked for yet, and its profile does not need it any more."""
    return PurchaseDecision(Answered(purchase.key, "DROPPED", None, reason="not wanted any more", outcome="DROPPED"))


def put_off(purchase: Claimed, now: datetime) -> PurchaseDecision:
    """A pending refund names its profile: nothing is bought until the refund is settled."""
    return PurchaseDecision(Answered(purchase.key, "PLANNED", now + timedelta(seconds=HELD_SECONDS), outcome="HELD"))


def kept_until_settled(
    purchase: Claimed, outcome: Done | Applied | Rejected, verdict: bytes, now: datetime
) -> PurchaseDecision:
    """A clear answer about a profile that a pending refund names is kept, sealed, until the refund is settled."""
    made = outcome if isinstance(outcome, Done | Applied) else None
    return PurchaseDecision(
        Answered(
            purchase.key,
            "UNKNOWN",
            now + timedelta(seconds=HELD_SECONDS),
            supplier_ref=made and made.supplier_ref,
            unit_ref=made and made.unit_ref,
            unknown_since=purchase.unknown_since or now,
            outcome="HELD",
            verdict=verdict,
        )
    )


def _done(purchase: Claimed, outcome: Done | Applied) -> Answered:
    return Answered(
        purchase.key,
        "DONE",
        None,
        supplier_ref=outcome.supplier_ref,
        unit_ref=outcome.unit_ref,
        iccid=outcome.iccid if isinstance(outcome, Done) else None,
        outcome="DONE",
    )


def _pending(purchase: Claimed, outcome: Pending, now: datetime) -> Answered:
    if (now - purchase.created_at).total_seconds() > PENDING_SECONDS:
        return _parked(purchase, "pending for a day", now)
    seconds = min(max(outcome.poll_after_seconds, 0.0), POLL_LONGEST_SECONDS)
    return Answered(
        purchase.key,
        "PENDING",
        now + timedelta(seconds=seconds),
        step=outcome.step,
        supplier_ref=outcome.supplier_ref,
        unit_ref=outcome.unit_ref,
        outcome="PENDING",
    )


def _unknown(purchase: Claimed, reason: str, now: datetime) -> Answered:
    since = purchase.unknown_since or now
    if (now - since).total_seconds() > PARK_SECONDS:
        return _parked(purchase, reason, now)
    due = now + timedelta(seconds=retry_seconds(purchase.failures + 1))
    return Answered(purchase.key, "UNKNOWN", due, failures=purchase.failures + 1, unknown_since=since, reason=reason,
                    outcome="UNKNOWN")  # fmt: skip


def _parked(purchase: Claimed, reason: str, now: datetime) -> Answered:
    return Answered(
        purchase.key,
        "PARKED",
        None,
        failures=purchase.failures + 1,
        unknown_since=purchase.unknown_since or now,
        reason=reason,
        outcome="PARKED",
    )


def _affordable(purchase: Claimed, asks: int | None, ceiling: int | None) -> bool:
    """Whether a supplier's new price is taken: one that fell is, one that rose up to the ceiling."""
    if asks is None or purchase.cost is None or asks == purchase.cost:
        return False
    return asks < purchase.cost or (ceiling is not None and asks <= ceiling)


def _repriced(purchase: Claimed, outcome: Rejected, now: datetime) -> Answered:
    return Answered(
        purchase.key,
        "PLANNED",
        now,
        failures=purchase.failures,
        reason=f"{outcome.code}: {outcome.message}",
        outcome="REPRICED",
        cost=outcome.asks,
    )


def _rejected(
    purchase: Claimed, outcome: Rejected, route: Sequence[Hop], plans_ids: bool, now: datetime, patience: float
) -> PurchaseDecision:
    reason = f"{outcome.code}: {outcome.message}"
    if (outcome.code == "TEMPORARY" or outcome.whole) and purchase.was in ("SENT", "UNKNOWN"):
        return PurchaseDecision(
            _unknown(purchase, reason, now)
        )  # the question did not get through: it is as unknown as before
    if outcome.code == "TEMPORARY" and purchase.was == "PENDING":
        late = (now - purchase.created_at).total_seconds() > PENDING_SECONDS
        return PurchaseDecision(_parked(purchase, reason, now) if late else _again(purchase, "PENDING", outcome, now))
    state: State = "WRITTEN_OFF" if outcome.written_off else "REJECTED"
    said = "SKIPPED" if outcome.unasked else state
    rejected = Answered(purchase.key, state, None, reason=reason, outcome=f"{said} {outcome.code}")
    if outcome.code == "CONFLICT" and plans_ids and purchase.position + 1 < FRESH_IDS:
        return PurchaseDecision(
            rejected, _instead(purchase, Hop(purchase.supplier, purchase.sku, purchase.cost, purchase.cost_currency))
        )
    following = _following(purchase.supplier, route) if outcome.retry_elsewhere else None
    if outcome.code in _MAY_PASS and not _given_up(purchase, outcome, following is not None, now, patience):
        return PurchaseDecision(_again(purchase, "PLANNED", outcome, now))
    if following is not None:
        return PurchaseDecision(rejected, _instead(purchase, following))
    return PurchaseDecision(rejected, failed=True)


def _given_up(purchase: Claimed, outcome: Rejected, elsewhere: bool, now: datetime, patience: float) -> bool:
    if elsewhere:
        return outcome.code != "TEMPORARY" or purchase.failures + 1 >= TRIES_BEFORE_ELSEWHERE
    return (now - purchase.created_at).total_seconds() > patience


def _again(purchase: Claimed, state: State, outcome: Rejected, now: datetime) -> Answered:
    failures = purchase.failures + 1
    due = now + timedelta(seconds=retry_seconds(failures))
    said = "SKIPPED" if outcome.unasked else "REJECTED"
    return Answered(purchase.key, state, due, failures=failures, reason=f"{outcome.code}: {outcome.message}",
                    outcome=f"{said} {outcome.code}")  # fmt: skip


def _following(supplier: str, route: Sequence[Hop]) -> Hop | None:
    """The next supplier on the route; None at its end, and for a supplier that is not on it any more."""
    codes = [hop.supplier for hop in route]
    at = codes.index(supplier) + 1 if supplier in codes else len(route)
    return route[at] if at < len(route) else None


def _instead(purchase: Claimed, hop: Hop) -> New:
    return New(
        tenant_id=purchase.tenant_id,
        profile_id=purchase.profile_id,
        position=purchase.position + 1,
        order_id=purchase.order_id,
        line=purchase.line,
        unit_key=purchase.unit_key,
        **hop._asdict(),
        recharges=purchase.recharges,
    )
