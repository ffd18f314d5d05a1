"""What eSIMs cost at their suppliers."""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection


class Cost(NamedTuple):
    """Of some eSIMs, in the currency of most of it. `bought`: how many purchases; `costed`: those with a cost in it."""

    cost: int
    currency: str
    bought: int
    costed: int


_OF_LINES = """
SELECT line, cost_currency, sum(cost)::bigint AS cost, count(*)::int AS bought FROM purchase
WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3 AND state IN ('DONE', 'WRITTEN_OFF')
GROUP BY line, cost_currency
"""
_OF_ORDERS = """
SELECT key.tenant_id, key.order_id, p.cost_currency, sum(p.cost)::bigint AS cost, count(*)::int AS bought
FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)
JOIN order_item i ON i.tenant_id = key.tenant_id AND i.order_id = key.order_id
JOIN purchase p ON p.tenant_id = key.tenant_id AND p.profile_id >= i.first_profile_id
    AND p.profile_id < i.first_profile_id + i.quantity
WHERE p.state IN ('DONE', 'WRITTEN_OFF') GROUP BY key.tenant_id, key.order_id, p.cost_currency
"""


async def of_lines(connection: Connection, tenant_id: int, profiles: range) -> dict[int, Cost]:
    """By line, of those of an order that were bought."""
    rows = await connection.fetch(_OF_LINES, tenant_id, profiles.start, profiles.stop)
    by_line: dict[int, list[tuple[str | None, int, int]]] = {}
    for row in rows:
        by_line.setdefault(row["line"], []).append((row["cost_currency"], row["cost"] or 0, row["bought"]))
    return {line: cost for line, parts in by_line.items() if (cost := _cost(parts))}


async def of_orders(connection: Connection, orders: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Cost]:
    """By tenant and orderId."""
    rows = await connection.fetch(_OF_ORDERS, *columns(orders, 2)) if orders else []
    by_order: dict[tuple[int, int], list[tuple[str | None, int, int]]] = {}
    for row in rows:
        key = row["tenant_id"], row["order_id"]
        by_order.setdefault(key, []).append((row["cost_currency"], row["cost"] or 0, row["bought"]))
    return {key: cost for key, parts in by_order.items() if (cost := _cost(parts))}


def _cost(parts: Sequence[tuple[str | None, int, int]]) -> Cost | None:
    """Parts: currency, cost, purchases."""
    known = [(cost, currency, bought) for currency, cost, bought in parts if currency]
    if not known:
        return None
    cost, currency, costed = max(known)
    return Cost(cost, currency, sum(bought for _, _, bought in parts), costed)
