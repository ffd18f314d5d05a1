"""Which prices lie below what their package costs? They are set only once that is confirmed."""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.operations.errors import OperatorError
from dealer_server.rules.money import money

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


def cost_text(cost: int) -> str:
    """A cost in major units with 2 or 4 decimals: suppliers ask for parts of the smallest amount too."""
    whole, rest = divmod(cost, money.SCALE)
    return f"{whole}.{rest:04}".removesuffix("00")
