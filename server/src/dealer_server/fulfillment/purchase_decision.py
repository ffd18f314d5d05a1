"""What does a supplier's answer make of a purchase? Pure.

Only Rejected sends a unit elsewhere or gives it up; what is Unknown stays with the supplier that may have it, until it
is known or an operator says so (suppliers 3 rules 2 and 3).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.suppliers.purchase import Answered, Claimed, Hop, New, State
from dealer_server.suppliers.contract import Done, Outcome, Pending, Rejected, Unknown

PARK_SECONDS = 3_600.0  # unknown for so long: an operator has to find out
PENDING_SECONDS = 86_400.0  # at it for so long: an operator has to ask
# How long one waits, where there is no other supplier, for one that is down, out of money or wrongly set up.
PATIENCE_SECONDS = 3_600.0
POLL_LONGEST_SECONDS = 300.0
FRESH_IDS = 5  # how often a clash of ids is answered with other ones
TRIES_BEFORE_ELSEWHERE = 3
HELD_SECONDS = 5.0
_MAY_PASS = ("TEMPORARY", "INSUFFICIENT_FUNDS", "CONFIG")
_BURNT = "CANCEL"  # how the step begins in which a supplier's ids were given up: nothing can be asked for with them


class PurchaseDecision(NamedTuple):
    """What becomes of a purchase: how it stands, what is planned instead, and whether the unit has failed for good."""

    answered: Answered
    instead: New | None = None
    failed: bool = False


def decide(
    one: Claimed,
    outcome: Outcome,
    route: Sequence[Hop],
    plans_ids: bool,
    now: datetime,
    patience: float = PATIENCE_SECONDS,
    ceiling: int | None = None,
) -> PurchaseDecision:
    """`route` is the package's; `plans_ids` as in the supplier's Caps. `ceiling`: what the unit may cost at most."""
    if isinstance(outcome, Done):
        return PurchaseDecision(_done(one, outcome))
    if isinstance(outcome, Pending):
        return PurchaseDecision(_pending(one, outcome, now))
    if isinstance(outcome, Rejected):
        if _affordable(one, outcome.asks, ceiling):
            return PurchaseDecision(_repriced(one, outcome, now))
        judged = _rejected(one, outcome, route, plans_ids, now, patience)
        return judged._replace(answered=judged.answered._replace(supplier_ref=outcome.supplier_ref))
    reason = outcome.reason if isinstance(outcome, Unknown) else f"answered with {type(outcome).__name__}"
    return PurchaseDecision(_unknown(one, reason, now))


def first_hop(supplier: str, package_code: str, route: Sequence[Hop]) -> Hop:
    """Where a unit is bought first: at the supplier its line was sold from, or else at the first remote supplier of the
    route."""
    hop = next((hop for hop in route if hop.supplier == supplier), None)
    hop = hop or next((hop for hop in route if hop.supplier != STOCK), None)
    return hop or Hop(supplier, package_code, None, None)


def dropped(purchase: Claimed) -> PurchaseDecision:
    """Nothing was asked for yet, and its profile does not need it any more."""
    return PurchaseDecision(Answered(purchase.key, "DROPPED", None, reason="not wanted any more", outcome="DROPPED"))


def put_off(purchase: Claimed, now: datetime) -> PurchaseDecision:
    """A pending refund names its profile: nothing is bought until the refund is settled."""
    return PurchaseDecision(Answered(purchase.key, "PLANNED", now + timedelta(seconds=HELD_SECONDS), outcome="HELD"))


def kept_until_settled(purchase: Claimed, outcome: Done | Rejected, verdict: bytes, now: datetime) -> PurchaseDecision:
    """A clear answer about a profile that a pending refund names is kept, sealed, until the refund is settled."""
    made = outcome if isinstance(outcome, Done) else None
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


def _done(one: Claimed, outcome: Done) -> Answered:
    return Answered(one.key, "DONE", None, None, outcome.supplier_ref, outcome.unit_ref, outcome.iccid, outcome="DONE")


def _pending(one: Claimed, outcome: Pending, now: datetime) -> Answered:
    if (now - one.created_at).total_seconds() > PENDING_SECONDS:
        return _parked(one, "pending for a day", now)
    seconds = min(max(outcome.poll_after_seconds, 0.0), POLL_LONGEST_SECONDS)
    return Answered(
        one.key,
        "PENDING",
        now + timedelta(seconds=seconds),
        outcome.step,
        outcome.supplier_ref,
        outcome.unit_ref,
        outcome="PENDING",
    )


def _unknown(one: Claimed, reason: str, now: datetime) -> Answered:
    since = one.unknown_since or now
    if (now - since).total_seconds() > PARK_SECONDS:
        return _parked(one, reason, now)
    due = now + timedelta(seconds=retry_seconds(one.failures + 1))
    return Answered(one.key, "UNKNOWN", due, failures=one.failures + 1, unknown_since=since, reason=reason,
                    outcome="UNKNOWN")  # fmt: skip


def _parked(one: Claimed, reason: str, now: datetime) -> Answered:
    return Answered(one.key, "PARKED", None, failures=one.failures + 1, unknown_since=one.unknown_since or now,
                    reason=reason, outcome="PARKED")  # fmt: skip


def _affordable(one: Claimed, asks: int | None, ceiling: int | None) -> bool:
    """Whether a supplier's new price is taken: one that fell is, one that rose up to the ceiling."""
    if asks is None or one.cost is None or asks == one.cost:
        return False
    return asks < one.cost or (ceiling is not None and asks <= ceiling)


def _repriced(one: Claimed, outcome: Rejected, now: datetime) -> Answered:
    return Answered(one.key, "PLANNED", now, failures=one.failures, reason=f"{outcome.code}: {outcome.message}",
                    outcome="REPRICED", cost=outcome.asks)  # fmt: skip


def _rejected(
    one: Claimed, outcome: Rejected, route: Sequence[Hop], plans_ids: bool, now: datetime, patience: float
) -> PurchaseDecision:
    reason = f"{outcome.code}: {outcome.message}"
    if (outcome.code == "TEMPORARY" or outcome.whole) and one.was in ("SENT", "UNKNOWN"):
        return PurchaseDecision(
            _unknown(one, reason, now)
        )  # the question did not get through: it is as unknown as before
    if outcome.code == "TEMPORARY" and one.was == "PENDING":
        late = (now - one.created_at).total_seconds() > PENDING_SECONDS
        return PurchaseDecision(_parked(one, reason, now) if late else _again(one, "PENDING", outcome, now))
    state: State = "WRITTEN_OFF" if outcome.written_off else "REJECTED"
    rejected = Answered(one.key, state, None, reason=reason, outcome=f"{state} {outcome.code}")
    if outcome.code == "CONFLICT" and plans_ids and one.position + 1 < FRESH_IDS:
        return PurchaseDecision(rejected, _instead(one, Hop(one.supplier, one.sku, one.cost, one.cost_currency)))
    following = _following(one.supplier, route) if outcome.retry_elsewhere else None
    may_pass = outcome.code in _MAY_PASS and not one.step.startswith(_BURNT)
    if may_pass and not _given_up(one, outcome, following is not None, now, patience):
        return PurchaseDecision(_again(one, "PLANNED", outcome, now))
    if following is not None:
        return PurchaseDecision(rejected, _instead(one, following))
    return PurchaseDecision(rejected, failed=True)


def _given_up(one: Claimed, outcome: Rejected, elsewhere: bool, now: datetime, patience: float) -> bool:
    if elsewhere:
        return outcome.code != "TEMPORARY" or one.failures + 1 >= TRIES_BEFORE_ELSEWHERE
    return (now - one.created_at).total_seconds() > patience


def _again(one: Claimed, state: State, outcome: Rejected, now: datetime) -> Answered:
    failures = one.failures + 1
    due = now + timedelta(seconds=retry_seconds(failures))
    return Answered(one.key, state, due, failures=failures, reason=f"{outcome.code}: {outcome.message}",
                    outcome=f"REJECTED {outcome.code}")  # fmt: skip


def _following(supplier: str, route: Sequence[Hop]) -> Hop | None:
    """Whoever stands behind this supplier; None at the end, and for one that is not on the route any more."""
    codes = [hop.supplier for hop in route]
    at = codes.index(supplier) + 1 if supplier in codes else len(route)
    return route[at] if at < len(route) else None


def _instead(one: Claimed, hop: Hop) -> New:
    return New(one.tenant_id, one.profile_id, one.position + 1, one.order_id, one.line, one.unit_key, *hop)
