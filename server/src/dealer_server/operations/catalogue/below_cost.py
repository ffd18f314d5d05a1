"""Which prices lie below what their package costs? They are set only once that is confirmed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.orders import pricing
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.price_lists import price_list
from dealer_server.rules.price_lists.price_list import Cost

Priced = Callable[[Package, Cost | None], int | None]
"""What a package costs, by what it costs us; None: it is not sold."""

MOST_NAMED = 3


class Loss(NamedTuple):
    """A price below the cost; both in ten-thousandths."""

    package_code: str
    price: int
    cost: int
    currency: str

    @property
    def text(self) -> str:
        cost = cost_text(self.cost)
        return f"{self.package_code}: {money.text(self.price, self.currency)} is below the cost {cost} {self.currency}"


class BelowCost(OperatorError):
    """Nothing was written: it was not confirmed."""

    def __init__(self, losses: Sequence[Loss]):
        self.losses = losses
        more = f"; and {len(losses) - MOST_NAMED} more" if len(losses) > MOST_NAMED else ""
        super().__init__(
            "; ".join(loss.text for loss in losses[:MOST_NAMED]) + f"{more}. Confirm prices below the cost"
        )


def require_confirmed(losses: Sequence[Loss], confirmed: bool) -> None:
    """Raises BelowCost."""
    if losses and not confirmed:
        raise BelowCost(losses)


def new_losses(packages: Iterable[Package], costs: Mapping[str, Cost], before: Priced, after: Priced) -> list[Loss]:
    """The prices that changed and are below the cost now."""
    found = []
    for package in packages:
        cost = costs.get(package.package_code)
        known, paid = price_list.current_cost(package, cost), after(package, cost)
        if known is not None and paid is not None and paid < known and paid != before(package, cost):
            found.append(Loss(package.package_code, paid, known, package.currency))
    return found


async def require_terms_confirmed(connection: Connection, before: PriceList, after: PriceList, confirmed: bool) -> None:
    """Of the custom prices and the markup of a dealer; those of its price list were confirmed with the list. Raises
    BelowCost."""
    if confirmed or before == after:
        return
    costs = await store.price_list.costs(connection)
    packages = await store.package.some(connection, costs)
    require_confirmed(new_losses(packages, costs, _paid(before), _paid(after)), confirmed)


def _paid(prices: PriceList) -> Priced:
    single, listed = dict(prices.single), None if prices.price_list_id is None else {}
    return lambda package, _: pricing.agreed(package, prices, single, listed)


def cost_text(cost: int) -> str:
    """A cost in major units with 2 or 4 decimals: suppliers ask for parts of the smallest amount too."""
    whole, rest = divmod(cost, money.SCALE)
    return f"{whole}.{rest:04}".removesuffix("00")
