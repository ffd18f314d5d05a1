"""What happened to the recharges of eSIMs, for timelines."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection


class RechargeTimes(NamedTuple):
    """A recharge of the eSIM `profile_id`, paid by its order. `applied_at`: None of one that is not applied.
    `ended_at`: when it failed or was cancelled; while neither is so, when its order last changed."""

    profile_id: int
    order_id: int
    plan_no: int
    package_code: str
    currency: str
    amount: int
    failed: bool
    cancelled: bool
    paid_at: datetime
    applied_at: datetime | None
    ended_at: datetime


# An order's last change is that of its one recharge. One that failed is refunded after that.
_TIMES = """
SELECT r.recharges AS profile_id, r.order_id, r.plan_no, i.package_code, o.currency, o.amount,
    r.failed, r.cancelled OR r.refunded AND NOT r.failed AS cancelled,
    (SELECT created_at FROM ledger_entry e WHERE e.tenant_id = r.tenant_id AND e.entry_type = 'ORDER_PAY'
        AND e.reference = r.order_id) AS paid_at,
    CASE WHEN r.plan_mode IS NOT NULL THEN coalesce((SELECT max((plan ->> 'applied_at')::timestamptz)
        FROM profile e CROSS JOIN LATERAL jsonb_array_elements(e.plans) plan WHERE e.tenant_id = r.tenant_id
            AND e.profile_id = r.recharges AND (plan ->> 'plan_no')::smallint = r.plan_no), o.updated_at)
    END AS applied_at,
    CASE WHEN r.plan_mode IS NULL THEN coalesce(
        (SELECT max(finished_at) FROM purchase b WHERE b.tenant_id = r.tenant_id AND b.profile_id = r.profile_id),
        (SELECT min(created_at) FROM refund f WHERE f.tenant_id = r.tenant_id AND f.order_id = r.order_id AND r.failed),
        o.updated_at)
    ELSE coalesce((SELECT max(settled_at) FROM refund f WHERE f.tenant_id = r.tenant_id AND f.order_id = r.order_id),
        o.updated_at) END AS ended_at
FROM (SELECT * FROM profile WHERE tenant_id = $1 AND recharges >= $2 AND recharges < $3
    UNION ALL SELECT * FROM profile WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3
        AND recharges IS NOT NULL) r
JOIN orders o USING (tenant_id, order_id) JOIN order_item i USING (tenant_id, order_id, line)
ORDER BY r.order_id LIMIT $4
"""


async def of_profiles(connection: Connection, tenant_id: int, profiles: range, limit: int) -> list[RechargeTimes]:
    """The recharges of these eSIMs; or those with these ids themselves. The first paid stands first."""
    rows = await connection.fetch(_TIMES, tenant_id, profiles.start, profiles.stop, limit)
    return [RechargeTimes(**row) for row in rows]
