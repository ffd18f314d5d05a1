"""Codes that an operator loaded from a file (docs/guides/stock.md), as a supplier.

There is nobody to ask: whether a code is left is known only inside the transaction that takes it. So no outcome is
unknown, and no code is handed out twice.
"""

from datetime import datetime

from dealer_server.rules.refunds.refund import Way
from dealer_server.suppliers.contract import Caps, FromStock, Outcome, Unit, VoidDone, VoidOutcome, VoidUnit


class Stock:
    code = "stock"
    caps = Caps(parallel=1, lifecycle=None)
    reports = None

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        return FromStock()

    def way(self, package_code: str, for_refund: bool) -> Way:
        return "AT_ONCE"

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """There is nobody to tell: the code is void because the service says so."""
        return VoidDone()
