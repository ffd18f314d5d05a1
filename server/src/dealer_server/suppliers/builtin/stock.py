"""Codes an operator loaded from a file (docs/guides/stock.md), as a supplier.

There is nobody to ask: whether a code is left is known only inside the transaction that takes it, so no outcome can be
unknown and nothing is handed out twice (suppliers 3 rule 7).
"""

from datetime import datetime

from dealer_server.rules.money.refund import Way
from dealer_server.suppliers.contract import FromStock, Outcome, Unit, VoidDone, VoidOutcome, VoidUnit


class Stock:
    code = "stock"
    parallel = 1

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        return FromStock()

    def way(self, package_code: str, for_refund: bool) -> Way:
        return "AT_ONCE"

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """There is nobody to tell: the code is void in our books."""
        return VoidDone()
