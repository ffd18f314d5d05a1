"""What is wrong on the whole platform? Each statement reads a small table or a partial index, as far as a bound."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.rules.incidents.overview import MAILS_COUNTED, QUEUES_COUNTED, TRIED, LowStock, Mails, Queue, Queued
from dealer_server.rules.orders import identity

_PENDING_REFUNDS = 5_000
"""As many as the queue of refunds looks at (store/console/queues.py)."""


async def worker_seen_at(connection: Connection) -> datetime | None:
    return await connection.fetchval("SELECT at FROM worker_seen")


async def queued(connection: Connection, *, failed: bool) -> list[Queued]:
    """What waits in queues. `failed`: also the orders that failed and were not refunded; to be asked where they are not
    refunded by themselves."""
    found = [
        *_summed("UNCONFIRMED", await connection.fetch(_UNCONFIRMED)),
        *_summed("TOPUPS", await connection.fetch(_TOPUPS)),
    ]
    refunds = await connection.fetch(_REFUNDS_BY_NODE if is_distributed(connection) else _REFUNDS)
    found += _summed("REFUNDS", [row for row in refunds if row["review"]])
    found += _summed("VOIDS", [row for row in refunds if not row["review"]])
    if failed:
        rows = [
            {**row, "oldest_at": identity.created_at(row["oldest"]), "subject": ""}
            for row in await connection.fetch(_FAILED)
        ]
        found += _summed("FAILED", rows)
    return found


def _summed(queue: Queue, rows: Sequence[Mapping[str, Any]]) -> list[Queued]:
    """One for each subject; each row is of one subject and currency."""
    by_subject: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_subject[row["subject"]].append(row)
    return [
        Queued(
            queue=queue,
            total=sum(row["total"] for row in of),
            oldest_at=min(row["oldest_at"] for row in of),
            amounts={row["currency"]: int(row["amount"]) for row in of if row["currency"] and row["amount"]},
            subject=subject,
        )
        for subject, of in by_subject.items()
    ]


_UNCONFIRMED = f"""
SELECT supplier AS subject, cost_currency AS currency, count(*)::int AS total, sum(cost) AS amount,
    min(coalesce(unknown_since, created_at)) AS oldest_at
FROM (SELECT * FROM purchase WHERE state = 'PARKED' LIMIT {QUEUES_COUNTED}) p GROUP BY supplier, cost_currency
"""
_TOPUPS = f"""
SELECT '' AS subject, currency, count(*)::int AS total, sum(amount) AS amount, min(created_at) AS oldest_at
FROM (SELECT * FROM topup WHERE status = 'PENDING' LIMIT {QUEUES_COUNTED}) t GROUP BY currency
"""
_OLDEST_REFUNDS = (
    "(SELECT tenant_id, refund_id, amount, created_at FROM refund WHERE status = 'REFUNDING'"
    f" ORDER BY refund_id LIMIT {_PENDING_REFUNDS}) r"
)
_REFUNDS = f"""
SELECT '' AS subject, review, currency, count(*)::int AS total, sum(amount) AS amount, min(created_at) AS oldest_at
FROM (SELECT r.*, EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id
        AND l.way = 'REVIEW' AND l.status = 'PENDING') AS review
    FROM {_OLDEST_REFUNDS}) r JOIN wallet USING (tenant_id)
GROUP BY review, currency
"""
# Where tables are distributed by tenant, the oldest of all nodes cannot be compared with the lines of each.
_REFUNDS_BY_NODE = _REFUNDS.replace(_OLDEST_REFUNDS, "refund r WHERE status = 'REFUNDING'")
_FAILED = f"""
SELECT currency, count(*)::int AS total, sum(amount - refund_amount) AS amount, min(order_id) AS oldest
FROM (SELECT o.* FROM tenant t CROSS JOIN LATERAL (
        SELECT order_id, currency, amount, refund_amount, delivery_status FROM orders o
        WHERE o.tenant_id = t.tenant_id AND o.order_status = 'FULFILLING' ORDER BY order_id LIMIT {QUEUES_COUNTED}
    ) o WHERE o.delivery_status = 'FAILED' LIMIT {QUEUES_COUNTED}) failed
GROUP BY currency
"""


async def low_stock(connection: Connection, below: int) -> list[LowStock]:
    """Packages that a worker found low on stock, with what is left of them, up to `below`."""
    if not below:
        return []
    rows = await connection.fetch(
        "SELECT c.subject AS package_code, (SELECT count(*)::int FROM (SELECT FROM stock_profile s"
        "  WHERE s.package_code = c.subject AND taken_by IS NULL LIMIT $1) free) AS free"
        " FROM notice_condition c WHERE notice_type = 'STOCK_LOW' LIMIT $2",
        below,
        QUEUES_COUNTED,
    )
    return [LowStock(**row) for row in rows]


async def failing_mails(connection: Connection, start: datetime) -> Mails | None:
    """Of emails that have failed since then, or failed TRIED times so far; None where there is none."""
    rows = await connection.fetch(_FAILING_MAILS, start)
    if not rows:
        return None
    oldest, newest = min(rows, key=lambda row: row["created_at"]), max(rows, key=lambda row: row["created_at"])
    sent = await connection.fetchval(_SENT_MAIL, oldest["created_at"])
    return Mails(min(len(rows), MAILS_COUNTED), oldest["created_at"], bool(sent), newest["problem"] or "")


_FAILING_MAILS = f"""
(SELECT created_at, problem FROM (SELECT * FROM notice_delivery WHERE user_id IS NOT NULL AND state = 'FAILED'
        ORDER BY delivery_id DESC LIMIT {MAILS_COUNTED}) d WHERE finished_at >= $1)
UNION ALL
(SELECT created_at, problem FROM notice_delivery WHERE user_id IS NOT NULL AND due_at IS NOT NULL
    AND state IN ('RETRY', 'IN_FLIGHT') AND attempt_count - (state = 'IN_FLIGHT')::int >= {TRIED} LIMIT {MAILS_COUNTED})
"""
_SENT_MAIL = f"""
SELECT EXISTS (SELECT FROM (SELECT * FROM notice_delivery WHERE user_id IS NOT NULL ORDER BY delivery_id DESC
    LIMIT {MAILS_COUNTED}) d WHERE state = 'DELIVERED' AND finished_at > $1)
"""
