"""How does the platform fare as a whole? Gauges of metrics.py beside those of webhooks, from the tables."""

from datetime import UTC, datetime

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity

MOST = 100_000
"""Of what waits no more is counted."""
_NEVER = datetime.fromtimestamp(0, UTC)

# Lines wait for a built-in supplier while they are due, for another while their purchases are.
_GAUGES = f"""
SELECT waiting.*,
    (SELECT count(*) FROM wallet WHERE balance + credit_limit < low_balance_threshold) AS wallets_low,
    (SELECT count(*) FROM wallet WHERE frozen) AS wallets_frozen,
    (SELECT count(*) FROM (SELECT FROM refund WHERE status = 'REFUNDING' LIMIT {MOST}) r) AS refunds_open,
    (SELECT count(*) FROM topup WHERE status = 'PENDING') AS topups_pending,
    (SELECT at FROM audit_checkpoint) AS audited_at, (SELECT at FROM worker_seen) AS worker_seen_at
FROM (SELECT count(DISTINCT (tenant_id, order_id)) AS orders_waiting, min(order_id) AS oldest FROM (
        (SELECT tenant_id, order_id FROM order_item WHERE due_at IS NOT NULL LIMIT {MOST})
        UNION ALL (SELECT tenant_id, order_id FROM purchase WHERE due_at IS NOT NULL LIMIT {MOST})) w) waiting
"""


async def read(connection: Connection, now: datetime) -> dict[str, float]:
    """The values by the names in metrics.py."""
    row = await connection.fetchrow(_GAUGES)
    assert row is not None
    values = dict(row)
    oldest, audited, seen = values.pop("oldest"), values.pop("audited_at"), values.pop("worker_seen_at")
    waited = 0.0 if oldest is None else (now - identity.created_at(oldest)).total_seconds()
    return values | {
        "orders_oldest_waiting_seconds": max(waited, 0.0),
        "audit_clean_timestamp_seconds": (audited or _NEVER).timestamp(),
        "worker_seen_timestamp_seconds": (seen or _NEVER).timestamp(),
    }
