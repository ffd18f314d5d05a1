"""What do the looks of the worker see: wallets that moved, stocks that are low, queues that wait?"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session
from dealer_server.rules.catalogue.package import ALWAYS_SOLD_OUT
from dealer_server.rules.notices.ending_plans import MOST_LISTED, EndingPlan
from dealer_server.rules.notices.low_balance import Told, WalletState
from dealer_server.store.profiles.ending import TOLD_OF

# A dealer has few top-ups, found by their kind. The + 0 keeps the planner from walking back through all entries.
_MOVED = """
SELECT w.tenant_id, w.currency, w.version, w.balance, w.credit_limit, w.low_balance_threshold AS threshold,
    coalesce(top.version, 0) AS topup_version, coalesce(e.balance_after, 0) AS topup_balance,
    l.told, l.since
FROM wallet w LEFT JOIN wallet_look l USING (tenant_id)
    CROSS JOIN LATERAL (SELECT max(version + 0) AS version FROM ledger_entry e
        WHERE e.tenant_id = w.tenant_id AND e.entry_type = 'TOPUP' AND e.reference > 0) top
    LEFT JOIN ledger_entry e ON e.tenant_id = w.tenant_id AND e.version = top.version
WHERE w.version > 0 AND (l.tenant_id IS NULL
    OR (l.version, l.threshold, l.credit_limit) <> (w.version, w.low_balance_threshold, w.credit_limit))
ORDER BY w.tenant_id LIMIT $1
"""
_PUT = f"""
INSERT INTO wallet_look AS l (tenant_id, version, threshold, credit_limit, told, since)
SELECT * FROM {
    batch(
        "seen", tenant_id="bigint", version="bigint", threshold="bigint", credit_limit="bigint", told="smallint",
        since="bigint"
    )
} ORDER BY tenant_id
ON CONFLICT (tenant_id) DO UPDATE SET version = excluded.version, threshold = excluded.threshold,
    credit_limit = excluded.credit_limit, told = excluded.told, since = excluded.since
RETURNING 1
"""  # fmt: skip
_LOOK_LOCK = 5_382_027


class Stock(NamedTuple):
    """A package on sale from stock; `free`: how many can still be sold, `most` at most."""

    package_code: str
    name: str
    free: int


class Waiting(NamedTuple):
    """What waits for an operator for longer than allowed."""

    total: int
    oldest_at: datetime


async def only_look(session: Session) -> bool:
    """Whether no other worker looks at present; holds until the transaction ends."""
    [row] = await session.fetch(f"SELECT pg_try_advisory_xact_lock({_LOOK_LOCK}) AS taken")
    return bool(row["taken"])


async def moved_wallets(session: Session, limit: int) -> list[tuple[WalletState, Told]]:
    """Wallets that changed since the last look, each with what was told of it."""
    return [
        (
            WalletState(**{name: row[name] for name in WalletState._fields}),
            Told() if row["told"] is None else Told(row["told"], row["since"]),
        )
        for row in await session.fetch(_MOVED, limit)
    ]


async def put_looks(session: Session, seen: Sequence[tuple[WalletState, Told]]) -> None:
    rows = [(w.tenant_id, w.version, w.threshold, w.credit_limit, told.level, told.since) for w, told in seen]
    await session.fetch(_PUT, *columns(rows, 6))


async def names(session: Session, tenant_ids: Sequence[int]) -> dict[int, str]:
    """Of dealers."""
    rows = await session.fetch(
        "SELECT tenant_id, name FROM tenant WHERE tenant_id = ANY($1::bigint[])", list(tenant_ids)
    )
    return {row["tenant_id"]: row["name"] for row in rows}


async def stocks(session: Session, most: int) -> list[Stock]:
    """Of every package on sale from stock; without the one of test environments that is always sold out."""
    rows = await session.fetch(
        "SELECT p.package_code, p.document ->> 'package_name' AS name, (SELECT count(*) FROM (SELECT"
        "  FROM stock_profile s WHERE s.package_code = p.package_code AND taken_by IS NULL LIMIT $1) free) AS free"
        " FROM package p WHERE p.document ->> 'supplier' = 'stock' AND p.document ->> 'status' = 'ON_SALE'"
        " AND p.package_code <> $2 ORDER BY p.package_code",
        most,
        ALWAYS_SOLD_OUT,
    )
    return [Stock(**row) for row in rows]


async def conditions(session: Session, notice_type: str) -> Mapping[str, datetime]:
    """What holds at present and was told of: since when, by subject."""
    rows = await session.fetch("SELECT subject, since FROM notice_condition WHERE notice_type = $1", notice_type)
    return {row["subject"]: row["since"] for row in rows}


async def begin_conditions(session: Session, notice_type: str, subjects: Sequence[str], now: datetime) -> None:
    await session.fetch(
        "INSERT INTO notice_condition SELECT $1, unnest($2::text[]), $3 ON CONFLICT DO NOTHING RETURNING 1",
        notice_type,
        subjects,
        now,
    )


async def end_conditions(session: Session, notice_type: str, subjects: Sequence[str]) -> None:
    await session.fetch(
        "DELETE FROM notice_condition WHERE notice_type = $1 AND subject = ANY($2::text[]) RETURNING 1",
        notice_type,
        subjects,
    )


# Plans of a day by the index of their ends, the first `most` of each dealer in full.
_ENDING = f"""
WITH ending AS MATERIALIZED (
    SELECT tenant_id, profile_id, order_id, line, iccid, plan_use_end_at,
        row_number() OVER (PARTITION BY tenant_id ORDER BY plan_use_end_at, profile_id) AS place,
        count(*) OVER (PARTITION BY tenant_id) AS total
    FROM profile WHERE plan_use_end_at >= $1 AND plan_use_end_at < $2 AND {TOLD_OF}
)
SELECT e.tenant_id, e.profile_id, e.iccid, i.package_code, e.plan_use_end_at AS ends_at, e.total
FROM ending e CROSS JOIN LATERAL (SELECT package_code FROM order_item i
    WHERE i.tenant_id = e.tenant_id AND i.order_id = e.order_id AND i.line = e.line OFFSET 0) i
    CROSS JOIN LATERAL (SELECT FROM tenant t WHERE t.tenant_id = e.tenant_id AND t.status = 'ACTIVE' OFFSET 0) t
WHERE place <= $3 ORDER BY e.tenant_id, place
"""


# The same where tables are distributed by tenant.
_ENDING_BY_TENANT = (
    _ENDING[: _ENDING.index("SELECT e.tenant_id")].replace("AS MATERIALIZED", "AS")
    + """SELECT e.tenant_id, e.profile_id, e.iccid, i.package_code, e.plan_use_end_at AS ends_at, e.total
FROM ending e JOIN order_item i ON i.tenant_id = e.tenant_id AND i.order_id = e.order_id AND i.line = e.line
    JOIN tenant t ON t.tenant_id = e.tenant_id AND t.status = 'ACTIVE'
WHERE place <= $3 ORDER BY e.tenant_id, place
"""
)


async def ending_plans(session: Session, since: datetime, until: datetime) -> list[EndingPlan]:
    """Plans in use that end then, of active dealers, without those that are short or followed by another."""
    rows = await session.fetch(_ENDING_BY_TENANT if is_distributed(session) else _ENDING, since, until, MOST_LISTED)
    return [EndingPlan(*row) for row in rows]


_FIRST = "(SELECT * FROM refund WHERE status = 'REFUNDING' ORDER BY refund_id LIMIT 5000)"
# Each by its partial index; refund ids and top-up ids grow with time.
_OLD: Mapping[str, str] = {
    "TOPUPS": "SELECT created_at FROM topup WHERE status = 'PENDING'",
    "REFUNDS": f"SELECT created_at FROM {_FIRST} r WHERE r.status = 'REFUNDING' AND EXISTS ("
    "SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id"
    " AND l.way = 'REVIEW' AND l.status = 'PENDING')",
}
QUEUES = tuple(_OLD)


async def waiting(session: Session, queue: str, before: datetime) -> Waiting | None:
    """What waits in a queue since before this time; None where nothing does."""
    old = _OLD[queue].replace(_FIRST, "refund") if is_distributed(session) else _OLD[queue]
    [row] = await session.fetch(
        f"SELECT count(*) AS total, min(created_at) AS oldest_at FROM ({old}) waiting WHERE created_at < $1",
        before,
    )
    return Waiting(**row) if row["total"] else None
