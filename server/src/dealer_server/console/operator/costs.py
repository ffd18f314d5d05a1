"""What did the eSIMs of an order cost, and what is left of their price? Known where suppliers' costs are."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server.rules.money import percent
from dealer_server.rules.orders.model import Order
from dealer_server.store.console.orders import OrderRow
from dealer_server.store.suppliers.cost import Cost


class Margin(NamedTuple):
    """`cost` in `currency`; `left`: of the price, None where it is in another currency or some costs are not known."""

    cost: int
    currency: str
    left: int | None
    kept: int

    @property
    def percent(self) -> str:
        """Of what is paid and not given back."""
        if self.left is None or self.kept <= 0:
            return ""
        return percent.one_decimal(percent.share(self.left, self.kept))


def of_lines(order: Order, costs: Mapping[int, Cost]) -> dict[int, Margin]:
    """By line, of those with a cost."""
    found: dict[int, Margin] = {}
    for item in order.items:
        if cost := costs.get(item.line):
            kept = item.price * item.period_num * sum(not profile.refunded for profile in item.profiles)
            made = sum(profile.made for profile in item.profiles)
            found[item.line] = _margin(cost, kept, made, order.currency)
    return found


def of_order(margins: Mapping[int, Margin], order: Order) -> Margin | None:
    """Of all lines together; None where one of them is not known."""
    every = [margins.get(item.line) for item in order.items]
    known = [one for one in every if one is not None and one.left is not None]
    if len(known) < len(every):
        return None
    cost, kept = sum(one.cost for one in known), sum(one.kept for one in known)
    return Margin(cost, order.currency, kept - cost, kept)


def of_rows(rows: Sequence[OrderRow], costs: Mapping[tuple[int, int], Cost]) -> dict[int, Margin]:
    """By orderId, of those orders of a list whose costs are all known."""
    found: dict[int, Margin] = {}
    for row in rows:
        if cost := costs.get((row.tenant_id, row.order_id)):
            esims = sum(quantity for _, quantity in row.lines)
            made = esims if row.delivery_status == "DELIVERED" else cost.bought
            margin = _margin(cost, row.amount - row.refund_amount, made, row.currency)
            if margin.left is not None:
                found[row.order_id] = margin
    return found


def _margin(cost: Cost, kept: int, made: int, currency: str) -> Margin:
    complete = cost.costed >= max(made, cost.bought) and cost.currency == currency
    return Margin(cost.cost, cost.currency, kept - cost.cost if complete else None, kept)
