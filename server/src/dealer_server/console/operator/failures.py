"""What of an order failed for good: why, what became of its money, and what its dealer was told."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server.console.operator.timeline import History, answer_of
from dealer_server.rules.incidents.refused import refused
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.store.suppliers.purchase import Hop
from dealer_server.store.webhooks.log import Delivery

_coded = re.compile(r"([A-Z][A-Z0-9_]*): (.+)", re.DOTALL).fullmatch


class LineActs(NamedTuple):
    """What can be done about a line, which counts from 1. `retries`: it may be retried now; `others`: suppliers that
    may make it instead."""

    line: int
    retries: bool
    others: Sequence[str]


class Cause(NamedTuple):
    """Why some profiles of a line failed. `words`: in words, "" where the code says nothing. `code`, `message`: the
    supplier's, "" where none is kept. `tried`: the suppliers that were asked, in order; `others`: those of the route
    that were not. `acts`: None where nothing can be done any more, for their money is given back."""

    item: Item
    profiles: int
    supplier: str
    words: str
    code: str
    message: str
    tried: Sequence[str]
    others: Sequence[str]
    acts: LineActs | None


class Failure(NamedTuple):
    """`refunded`, `refunding`, `held`: of their money what is given back, what is on its way, and what is neither.
    `in_review`: an operator decides about it. `told`: the latest webhook of the order that was needed."""

    causes: Sequence[Cause]
    refunded: int
    refunding: int
    held: int
    in_review: bool
    told: Delivery | None


def of(history: History, routes: Mapping[str, Sequence[Hop]]) -> Failure | None:
    """None where nothing failed. `routes`: of the packages of the order."""
    order = history.order
    failed = {profile.profile_id: item for item in order.items for profile in item.profiles if profile.failed}
    if not failed:
        return None
    amounts = {"refunded": 0, "refunding": 0, "held": 0}
    for item in order.items:
        for profile in item.profiles:
            if profile.failed:
                where = "refunded" if profile.refunded else "refunding" if profile.held else "held"
                amounts[where] += item.price * item.period_num
    refunds = [one for one in history.refunds if any(line.profile_id in failed for line in one.lines)]
    return Failure(
        causes=_causes(history, routes),
        **amounts,
        in_review=any(line.way == "REVIEW" and line.status == "PENDING" for one in refunds for line in one.lines),
        told=next((one for one in history.deliveries if one.state != "SKIPPED"), None),
    )


def _causes(history: History, routes: Mapping[str, Sequence[Hop]]) -> list[Cause]:
    latest = {purchase.profile_id: purchase for purchase in history.purchases}
    asked: dict[int, list[str]] = defaultdict(list)
    for purchase in history.purchases:
        asked[purchase.profile_id].append(purchase.supplier)
    found: dict[tuple[int, str, str, bool], list[Profile]] = defaultdict(list)
    for item in history.order.items:
        for profile in item.profiles:
            if profile.failed:
                purchase, done = latest.get(profile.profile_id), profile.refunded or profile.held
                supplier = purchase.supplier if purchase else item.supplier
                reason = (purchase.reason or "") if purchase else answer_of(supplier, item.package_code)
                found[item.line, supplier, reason, done].append(profile)
    items = {item.line: item for item in history.order.items}
    causes = list[Cause]()
    for (line, supplier, reason, done), profiles in found.items():
        item, coded = items[line], _coded(reason)
        recharge = profiles[0].recharges is not None
        others = [hop.supplier for hop in routes.get(item.package_code, ()) if hop.supplier != supplier]
        acts = None if done else LineActs(line + 1, True, () if recharge else others)
        code, message = (coded[1], coded[2]) if coded else ("", reason)
        tried = list(dict.fromkeys(asked[profiles[0].profile_id])) or [supplier]
        untried = [hop.supplier for hop in routes.get(item.package_code, ()) if hop.supplier not in tried]
        cause = Cause(item, len(profiles), supplier, refused(reason).words, code, message, tried, untried, acts)
        causes.append(cause)
    return causes
