"""Which operations may an AppKey call? (specification 2.1)"""

from collections.abc import Collection, Iterable, Mapping
from typing import get_args

from dealer_server.rules import refusal
from esim_dealer.wire.vocabulary import Scope

SCOPES: tuple[Scope, ...] = get_args(Scope)
MEANINGS: Mapping[Scope, str] = {
    "read": "Read: balance, statement, packages, orders, eSIMs, webhooks",
    "order": "Order, recharge, suspend, cancel, send SMS, set webhooks",
    "money": "Request refunds and top-ups",
}


def refuse_scope(path: str, needed: Scope, scopes: Collection[Scope]) -> refusal.Refusal | None:
    """101007 for an operation outside the AppKey's scopes."""
    if needed in scopes:
        return None
    has = in_order(scopes)
    return refusal.ScopeMissing(
        f"{path} needs an AppKey with the scope {needed}; this one has: {', '.join(has)}",
        {"requiredScope": needed, "scopes": has},
    )


def in_order(scopes: Iterable[str]) -> list[Scope]:
    """Each once, in the order of SCOPES."""
    given = set(scopes)
    return [scope for scope in SCOPES if scope in given]


def parse(scopes: Iterable[str]) -> list[Scope]:
    """Raises ValueError for a word that is none, and for none at all."""
    given = list(scopes)
    for word in given:
        if word not in SCOPES:
            raise ValueError(f"scope is {word!r}; accepted: {', '.join(SCOPES)}")
    if not given:
        raise ValueError(f"no scope is chosen; accepted: one or more of {', '.join(SCOPES)}")
    return in_order(given)
