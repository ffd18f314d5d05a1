"""What do the dealers of each price list buy?"""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.rules.reports import recent, sums
from dealer_server.rules.reports.sums import DaySums, Sums
from dealer_server.store.catalogue.price_list import Payer
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter


class ListSales(NamedTuple):
    """Who has a list, by name, and what they bought in the last 30 days, by currency."""

    dealers: Sequence[Payer]
    bought: Mapping[str, Sums]

    @property
    def main(self) -> tuple[str, Sums] | None:
        """The currency in which most was bought."""
        return next(iter(self.bought.items()), None)


async def by_list(connection: Connection, today: date) -> Mapping[int | None, ListSales]:
    """Of active dealers, by the list that they have now; None: those without one."""
    payers: dict[int | None, list[Payer]] = {}
    for payer in await store.price_list.payers(connection):
        payers.setdefault(payer.price_list_id, []).append(payer)
    every = [payer.tenant_id for of in payers.values() for payer in of]
    bought: dict[int, list[DaySums]] = {}
    for row in await report.among(connection, Filter(recent.shown(today)), ("dealer",), every):
        bought.setdefault(row.keys["dealer"], []).append(DaySums(today, row.currency, row.sums))
    return {
        of: ListSales(dealers, sums.totals(one for dealer in dealers for one in bought.get(dealer.tenant_id, ())))
        for of, dealers in payers.items()
    }
