"""Codes an operator loaded from a file (docs/guides/stock.md), as a supplier.

There is nobody to ask: whether a code is left is known only inside the transaction that takes it, so no outcome can be
unknown and nothing is handed out twice (suppliers 3 rule 7).
"""

from datetime import datetime

from dealer_server.suppliers.contract import FromStock, Outcome, Unit


class Stock:
    code = "stock"
    parallel = 1

    async def allocate(self, unit: Unit, now: datetime) -> Outcome:
        return FromStock()
