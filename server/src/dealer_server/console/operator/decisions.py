"""A refund that waits for an operator's decision: who asks and why, what was used of it, and what it cost. The page of
its order and the queue show the same."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.console.operator.timeline import History
from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity
from dealer_server.store.console import queues
from dealer_server.store.console.queues import RefundEsim, RefundRow

ESIMS = 1_000
"""Of all refunds of a page so many eSIMs are looked at."""


class Decision(NamedTuple):
    """`esims`: those that used most stand first."""

    row: RefundRow
    esims: Sequence[RefundEsim]

    @property
    def number(self) -> str:
        return identity.refund_no(self.row.refund_id)

    @property
    def suppliers(self) -> Sequence[str]:
        return [*dict.fromkeys(esim.supplier for esim in self.esims)]

    @property
    def costs(self) -> Sequence[tuple[str, int]]:
        """What suppliers took for its eSIMs, by currency, as far as that is known."""
        sums = Counter[str]()
        for esim in self.esims:
            if esim.cost is not None and esim.cost_currency:
                sums[esim.cost_currency] += esim.cost
        return sorted(sums.items())


async def of_rows(connection: Connection, rows: Sequence[RefundRow]) -> list[Decision]:
    esims = await queues.esims_of(connection, [(row.tenant_id, row.refund_id) for row in rows], ESIMS)
    return [Decision(row, esims.get(row.refund_id, ())) for row in rows]


async def of_order(connection: Connection, history: History) -> list[Decision]:
    """Those of an order, the oldest first."""
    ids = [refund.refund_id for refund in history.refunds if refund.waits_for_review]
    if not ids:
        return []
    tenant_id = history.order.tenant_id
    rows = await queues.refunds(connection, "REVIEW", None, len(ids), tenant_id, only=ids, oldest_first=True)
    return await of_rows(connection, rows)
