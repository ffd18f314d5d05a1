"""What waits for an operator: top-ups, refunds, purchases; and the refunds of one dealer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.by_tenant import OF_ALL, of_all, of_given_tenant, rows_of
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.rules.lifecycle.use import use
from dealer_server.rules.refunds import policy
from dealer_server.rules.refunds.policy import Objection
from dealer_server.store.console import pages
from dealer_server.store.console.orders import maker
from dealer_server.store.distribution.due import fetch_all

COUNTED = 1_000
MANY, LOOKED_AT = 10_000, 20_000
LOOKED_BACK = 20
"""Of so many of a dealer's latest top-ups is known what it usually pays."""
Queue = Literal["topups", "refunds", "refunding", "purchases"]
"""refunding: refunds that nobody is to decide, and that are not settled yet."""


class TopupRow(NamedTuple):
    tenant_id: int
    dealer: str
    topup_id: int
    transaction_id: str
    amount: int
    currency: str
    status: str
    pay_method: str | None
    pay_reference: str | None
    remark: str | None
    reject_reason: str | None
    reviewer: str | None
    created_at: datetime
    reviewed_at: datetime | None
    balance: int


class RefundRow(NamedTuple):
    """`review`: how many of its profiles wait for an operator, and what of its amount; `refusals`: who refused some of
    them (SUPPLIER, or REVIEW for an operator), and why; `packages`: (packageCode, profiles). Of its profiles as they
    are now: `used`, how many have used data or begun their plan; `installed`, how many others are on a device; the
    bytes of all of them."""

    tenant_id: int
    dealer: str
    refund_id: int
    order_id: int
    currency: str
    status: str
    amount: int
    credited: int
    remark: str | None
    author: str
    created_at: datetime
    settled_at: datetime | None
    profiles: int
    review: int
    review_amount: int
    refusals: Sequence[tuple[str, str]]
    used: int
    installed: int
    usage_bytes: int
    total_bytes: int
    packages: Sequence[tuple[str, int]]

    @property
    def reasons(self) -> Sequence[str]:
        return list(dict.fromkeys(reason for _, reason in self.refusals))

    @property
    def within_policy(self) -> bool:
        return not self.used and not self.installed


class RefundOrder(NamedTuple):
    """The order of a refund."""

    tenant_id: int
    order_id: int


class RefundEsim(NamedTuple):
    """An eSIM of a refund, as it is now. `status`: of its part of the refund. `supplier`: who made it; `cost`: what
    that took for it, None where no cost is known."""

    refund_id: int
    profile_id: int
    iccid: str | None
    package_code: str
    supplier: str
    amount: int
    status: str
    lifecycle_status: str
    plan_use_status: str
    smdp_status: str | None
    failed: bool
    data_total_bytes: int | None
    data_usage_bytes: int
    recharges: int | None
    cost: int | None
    cost_currency: str | None

    @property
    def state(self) -> str:
        """How far it is; what failed never was an eSIM."""
        return "FAILED" if self.failed else use(self)

    @property
    def objection(self) -> Objection | None:
        return policy.objection(self)


_USED = "p.data_usage_bytes > 0 OR p.plan_use_status <> 'NOT_STARTED'"

_WAITS = "l.way = 'REVIEW' AND l.status = 'PENDING'"
_REVIEWED = (
    f"EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id AND {_WAITS})"
)
_ROWS = rows_of("refund", "r", "tenant_id", "refund_id", others=["order_id"])
_UNSETTLED_FIRST = "(SELECT * FROM refund WHERE status = 'REFUNDING' ORDER BY refund_id LIMIT 5000) r"
# Each by its partial index.
_WAITING: Mapping[Queue, str] = {
    "topups": f"topup WHERE {OF_ALL} status = 'PENDING'",
    "refunds": f"{_UNSETTLED_FIRST} WHERE {_REVIEWED}",
    "refunding": f"{_UNSETTLED_FIRST} WHERE NOT {_REVIEWED}",
    "purchases": f"purchase WHERE {OF_ALL} state = 'PARKED'",
}
# Where tables are distributed by tenant, the oldest of all nodes cannot be compared with the lines of each.
_WAITING_BY_NODE = {
    **_WAITING,
    "refunds": f"refund r WHERE {of_all('r')} status = 'REFUNDING' AND {_REVIEWED}",
    "refunding": f"refund r WHERE {of_all('r')} status = 'REFUNDING' AND NOT {_REVIEWED}",
}


def waiting(connection: Connection, queue: Queue) -> str:
    """A table, and which of its rows wait for an operator."""
    return (_WAITING_BY_NODE if is_distributed(connection) else _WAITING)[queue]


async def count(connection: Connection, queue: Queue) -> int:
    """How many wait for an operator; COUNTED where there are that many or more. None of a node that is away."""
    rows = await fetch_all(
        connection, f"SELECT count(*) AS waiting FROM (SELECT 1 FROM {waiting(connection, queue)} LIMIT {COUNTED}) w"
    )
    return min(sum([row["waiting"] for row in rows]), COUNTED)


async def by_status(
    connection: Connection,
    table: Literal["refund", "topup", "webhook_delivery"],
    tenant_id: int | None = None,
    *,
    most: int = MANY,
) -> dict[str, int]:
    """How many there are, of all dealers or of one, by status and in ALL, where those that were SKIPPED are none;
    `most` stands for that many or more. Of more than LOOKED_AT rows only what is known without counting them all."""
    column = "state" if table == "webhook_delivery" else "status"
    whose = f"{OF_ALL} true" if tenant_id is None else "tenant_id = $1"
    some = f"SELECT {column} AS status FROM {table} WHERE {whose} LIMIT {LOOKED_AT}"
    sql, found = f"SELECT status, count(*)::int AS counted FROM ({some}) r GROUP BY 1", Counter[str]()
    for row in await (fetch_all(connection, sql) if tenant_id is None else connection.fetch(sql, tenant_id)):
        found[row["status"]] += row["counted"]
    whole = found.total() < LOOKED_AT
    found["ALL"] = found.total() - found["SKIPPED"]
    return {status: min(count, most) for status, count in found.items() if whole or count >= most}


async def sums(
    connection: Connection, table: Literal["refund", "topup"], status: str, tenant_id: int | None, span: tuple[int, int]
) -> list[tuple[str, int, int]]:
    """Of those in one status, of all dealers or of one, of these ids: currency, how many, their sum. Nothing where
    more than LOOKED_AT would have to be looked at."""
    whose = f"{OF_ALL} true" if tenant_id is None else "tenant_id = $4"
    key = f"{table}_id"
    some = (
        f"SELECT tenant_id, amount, status FROM {table} WHERE {whose} AND {key} >= $2 AND {key} < $3 LIMIT {LOOKED_AT}"
    )
    sql = (
        "SELECT currency, count(*) FILTER (WHERE status = $1)::int AS counted,"
        " coalesce(sum(amount) FILTER (WHERE status = $1), 0)::bigint AS amount, count(*) AS looked_at"
        f" FROM ({some}) r JOIN wallet USING (tenant_id) GROUP BY currency"
    )
    arguments = [status, *span, *([] if tenant_id is None else [tenant_id])]
    rows = await (connection.fetch if tenant_id is not None else partial(fetch_all, connection))(sql, *arguments)
    if sum(row["looked_at"] for row in rows) >= LOOKED_AT:
        return []
    counted, amounts = Counter[str](), Counter[str]()
    for row in rows:
        counted[row["currency"]] += row["counted"]
        amounts[row["currency"]] += row["amount"]
    return [(currency, count, amounts[currency]) for currency, count in counted.most_common() if count]


async def refund_amounts(connection: Connection, tenant_id: int, span: tuple[int, int]) -> dict[str, int]:
    """Of a dealer's refunds of these ids: their sum by status, and in ALL; REVIEW is apart from others that are
    REFUNDING. AUTO is the part of REFUNDED that nobody asked for. Nothing where more than LOOKED_AT would have to be
    looked at."""
    some = (
        "SELECT tenant_id, refund_id, status, author, amount FROM refund WHERE tenant_id = $1 AND refund_id >= $2"
        f" AND refund_id < $3 LIMIT {LOOKED_AT}"
    )
    state = f"CASE WHEN status = 'REFUNDING' AND {_REVIEWED} THEN 'REVIEW' ELSE status END"
    sums = (
        "count(*)::int AS looked_at, sum(amount)::bigint AS amount,"
        " coalesce(sum(amount) FILTER (WHERE author = 'system'), 0)::bigint AS automatic"
    )
    sql = of_given_tenant(f"SELECT {state} AS status, {sums} FROM ({some}) r GROUP BY 1", 1)
    rows = await connection.fetch(sql, tenant_id, *span)
    if sum(row["looked_at"] for row in rows) >= LOOKED_AT:
        return {}
    found = {row["status"]: row["amount"] for row in rows}
    automatic = sum(row["automatic"] for row in rows if row["status"] == "REFUNDED")
    return found | {"ALL": sum(found.values()), "AUTO": automatic}


async def topups(
    connection: Connection,
    status: str | None,
    seen: int | None,
    limit: int,
    tenant_id: int | None = None,
    span: tuple[int, int] = pages.ALL_IDS,
    *,
    oldest_first: bool,
) -> list[TopupRow]:
    """By status, after the one seen last; of all dealers or of one, of these ids."""
    order = pages.by_id(oldest_first=oldest_first)
    found = (_PENDING if status == "PENDING" else _of_all("topup", "topup_id")).format(**order)
    rows = await connection.fetch(
        f"WITH found AS MATERIALIZED ({found})"
        " SELECT p.tenant_id, t.name AS dealer, p.topup_id, p.transaction_id, p.amount, p.currency, p.status,"
        " p.pay_method, p.pay_reference, p.remark, p.reject_reason, p.reviewer, p.created_at, p.reviewed_at, w.balance"
        " FROM found p JOIN tenant t USING (tenant_id) JOIN wallet w USING (tenant_id)"
        f" ORDER BY p.topup_id {order['direction']}",
        status,
        seen,
        limit,
        tenant_id,
        *span,
    )
    return [TopupRow(**row) for row in rows]


class UsualTopup(NamedTuple):
    """Of a dealer's latest top-ups that were approved: the median, and when the last one was."""

    amount: int
    reviewed_at: datetime


async def usual_topups(connection: Connection, tenant_ids: Sequence[int]) -> dict[int, UsualTopup]:
    """Of those of these dealers that topped up before, of their latest LOOKED_BACK requests."""
    rows = await connection.fetch(
        "SELECT key.tenant_id, percentile_disc(0.5) WITHIN GROUP (ORDER BY o.amount)::bigint AS amount,"
        " max(o.reviewed_at) AS reviewed_at FROM unnest($1::bigint[]) AS key(tenant_id) CROSS JOIN LATERAL ("
        f"  SELECT * FROM topup o WHERE o.tenant_id = key.tenant_id ORDER BY topup_id DESC LIMIT {LOOKED_BACK}) o"
        " WHERE o.status = 'APPROVED' GROUP BY key.tenant_id",
        list(dict.fromkeys(tenant_ids)),
    )
    return {row["tenant_id"]: UsualTopup(row["amount"], row["reviewed_at"]) for row in rows}


_REFUNDS = (
    "SELECT r.tenant_id, t.name AS dealer, r.refund_id, r.order_id, w.currency, r.status, r.amount, r.credited,"
    " r.remark, r.author, r.created_at, r.settled_at, l.*, i.packages, i.of_package"
    " FROM found r JOIN tenant t ON t.tenant_id = r.tenant_id JOIN wallet w ON w.tenant_id = r.tenant_id"
    f" {_ROWS} CROSS JOIN LATERAL ("
    f"  SELECT count(*)::int AS profiles, count(*) FILTER (WHERE {_WAITS})::int AS review,"
    f"   coalesce(sum(l.amount) FILTER (WHERE {_WAITS}), 0)::bigint AS review_amount,"
    "   coalesce(array_agg(DISTINCT ARRAY[way, reason]) FILTER (WHERE reason IS NOT NULL), '{}')"
    "   AS refusals,"
    f"  count(*) FILTER (WHERE {_USED})::int AS used,"
    f"  count(*) FILTER (WHERE NOT ({_USED}) AND (p.lifecycle_status IN ('ACTIVATING', 'ACTIVATED')"
    "    OR p.smdp_status <> 'RELEASED'))::int AS installed,"
    "   coalesce(sum(p.data_usage_bytes), 0)::bigint AS usage_bytes,"
    "   coalesce(sum(p.data_total_bytes), 0)::bigint AS total_bytes"
    "  FROM refund_line l JOIN profile p USING (tenant_id, profile_id)"
    "  WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id) l CROSS JOIN LATERAL ("
    "  SELECT array_agg(package_code ORDER BY line) AS packages,"
    "   array_agg(profiles ORDER BY line) AS of_package FROM ("
    "   SELECT line, count(*)::int AS profiles FROM refund_line l"
    "   WHERE l.tenant_id = r.tenant_id AND l.refund_id = r.refund_id GROUP BY line) l"
    "  JOIN order_item i USING (line) WHERE i.tenant_id = r.tenant_id AND i.order_id = r.order_id) i"
)
"""Of the refunds found."""


async def refunds(
    connection: Connection,
    status: str | None,
    seen: int | None,
    limit: int,
    tenant_id: int | None = None,
    span: tuple[int, int] = pages.ALL_IDS,
    only: Sequence[int] | None = None,
    *,
    oldest_first: bool,
    order_id: int | None = None,
    settled: bool = False,
) -> list[RefundRow]:
    """By status, after the one seen last; of all dealers or of one, of these ids, of all orders or of one. REVIEW:
    those that wait for an operator, all or `only` these; REFUNDING: the others that are not settled. `settled`: without
    both."""
    order = pages.by_id(oldest_first=oldest_first)
    unsettled = status in ("REVIEW", "REFUNDING")
    some = " AND status <> 'REFUNDING' {order}" if settled else " {order}"
    found = (_UNSETTLED_REFUNDS if unsettled else _of_all("refund", "refund_id", some)).format(
        **order,
        order=_OF_ORDER if order_id is not None else _OF_ANY,
        reviewed=_REVIEWED if status == "REVIEW" else f"NOT {_REVIEWED}",
    )
    rows = await connection.fetch(
        f"WITH found AS MATERIALIZED ({found}) {_REFUNDS} ORDER BY r.refund_id {order['direction']}",
        status,
        seen,
        limit,
        tenant_id,
        *span,
        order_id,
        *([only] if unsettled else []),
    )
    return [_refund_row(dict(row)) for row in rows]


_ESIMS = f"""
SELECT l.refund_id, l.profile_id, p.iccid, i.package_code, {maker("i", "p")} AS supplier, l.amount,
    l.status, p.lifecycle_status, p.plan_use_status, p.smdp_status, p.failed, p.data_total_bytes, p.data_usage_bytes,
    p.recharges, b.cost, b.cost_currency
FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, refund_id) CROSS JOIN LATERAL (
    SELECT * FROM refund_line l WHERE l.tenant_id = key.tenant_id AND l.refund_id = key.refund_id LIMIT $3
) l CROSS JOIN LATERAL (
    SELECT * FROM profile p WHERE p.tenant_id = key.tenant_id AND p.profile_id = l.profile_id LIMIT 1
) p CROSS JOIN LATERAL (
    SELECT * FROM order_item i WHERE i.tenant_id = key.tenant_id AND i.order_id = p.order_id AND i.line = p.line LIMIT 1
) i LEFT JOIN LATERAL (
    SELECT * FROM purchase b WHERE b.tenant_id = key.tenant_id AND b.profile_id = l.profile_id AND b.state = 'DONE'
    LIMIT 1
) b ON true
ORDER BY p.data_usage_bytes DESC, l.profile_id LIMIT $3
"""


async def esims_of(
    connection: Connection, refunds: Sequence[tuple[int, int]], limit: int
) -> dict[int, list[RefundEsim]]:
    """The eSIMs of these refunds, by tenant and refund, by refund; those that used most stand first."""
    found: dict[int, list[RefundEsim]] = {}
    for row in await connection.fetch(_ESIMS, *columns(refunds, 2), limit) if refunds else ():
        found.setdefault(row["refund_id"], []).append(RefundEsim(**row))
    return found


async def order_of(connection: Connection, refund_id: int) -> RefundOrder | None:
    """refund_ids are unique over all tenants."""
    row = await connection.fetchrow(
        "SELECT t.tenant_id, r.order_id FROM tenant t CROSS JOIN LATERAL (SELECT order_id FROM refund r"
        " WHERE r.tenant_id = t.tenant_id AND r.refund_id = $1 LIMIT 1) r LIMIT 1",
        refund_id,
    )
    return RefundOrder(**row) if row else None


def _refund_row(columns: dict[str, Any]) -> RefundRow:
    """Two arrays, as a node does not send arrays of pairs to the coordinator."""
    packages = list(zip(columns.pop("packages"), columns.pop("of_package"), strict=True))
    refusals = [(way, reason) for way, reason in columns.pop("refusals")]
    return RefundRow(packages=packages, refusals=refusals, **columns)


async def pending_topups(connection: Connection) -> list[tuple[str, int, int]]:
    """What waits for an operator: currency, how many, their sum."""
    rows = await connection.fetch(
        "SELECT currency, count(*)::int AS topups, sum(amount)::bigint AS amount"
        f" FROM (SELECT currency, amount FROM {waiting(connection, 'topups')}) t GROUP BY currency ORDER BY 2 DESC, 1"
    )
    return [(row["currency"], row["topups"], row["amount"]) for row in rows]


async def in_review(connection: Connection) -> list[tuple[str, int, int]]:
    """What waits for an operator, of the oldest 5 000 refunds: currency, how many, their sum."""
    rows = await connection.fetch(
        f"SELECT currency, count(*)::int AS refunds, sum(amount)::bigint AS amount"
        f" FROM (SELECT tenant_id, amount FROM {waiting(connection, 'refunds')}) r JOIN wallet USING (tenant_id)"
        " GROUP BY currency ORDER BY 2 DESC, 1"
    )
    return [(row["currency"], row["refunds"], row["amount"]) for row in rows]


_REVIEWED_ORDERS = """
SELECT DISTINCT r.order_id FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, order_id)
JOIN refund r ON r.tenant_id = key.tenant_id AND r.order_id = key.order_id
JOIN refund_line l ON l.tenant_id = key.tenant_id AND l.refund_id = r.refund_id
WHERE r.status = 'REFUNDING' AND l.way = 'REVIEW' AND l.status = 'PENDING'
"""


async def reviewed_orders(connection: Connection, orders: Sequence[tuple[int, int]]) -> set[int]:
    """Of these orders, by tenant and orderId, those with a refund that waits for an operator."""
    if not orders:
        return set()
    rows = await connection.fetch(_REVIEWED_ORDERS, *columns(orders, 2))
    return {row["order_id"] for row in rows}


async def reviewed_profiles(connection: Connection, profiles: Sequence[tuple[int, int]]) -> frozenset[int]:
    """The same of profiles, by tenant and profileId."""
    if not profiles:
        return frozenset()
    rows = await connection.fetch(
        "SELECT l.profile_id FROM unnest($1::bigint[], $2::bigint[]) AS key(tenant_id, profile_id)"
        " JOIN refund_line l ON l.tenant_id = key.tenant_id AND l.profile_id = key.profile_id"
        " WHERE l.way = 'REVIEW' AND l.status = 'PENDING'",
        *columns(profiles, 2),
    )
    return frozenset(row["profile_id"] for row in rows)


async def unsettled(connection: Connection, tenant_id: int) -> dict[str, int]:
    """How many refunds of a dealer are not settled: in REVIEW, or else REFUNDING."""
    row = await connection.fetchrow(_UNSETTLED, tenant_id)
    return {"REFUNDING": row["unsettled"] - row["review"], "REVIEW": row["review"]} if row else {}


_UNSETTLED = of_given_tenant(
    f"SELECT count(*) AS unsettled, count(*) FILTER (WHERE {_REVIEWED}) AS review FROM refund r"
    " WHERE r.tenant_id = $1 AND r.status = 'REFUNDING'",
    1,
)
# $1 status, $2 the last one seen, $3 how many, $4 the dealer, ids from $5 on and before $6; of refunds $7 their
# order; of those that are not settled $8 only these.
_PENDING = """
SELECT * FROM topup WHERE status = 'PENDING' AND $1::text IS NOT NULL AND ($2::bigint IS NULL OR topup_id {beyond} $2)
    AND ($4::bigint IS NULL OR tenant_id = $4) AND topup_id >= $5 AND topup_id < $6
ORDER BY topup_id {direction} LIMIT $3
"""
_UNSETTLED_REFUNDS = """
SELECT * FROM refund r WHERE status = 'REFUNDING' AND $1::text IS NOT NULL
    AND ($2::bigint IS NULL OR refund_id {beyond} $2) AND ($4::bigint IS NULL OR tenant_id = $4)
    AND refund_id >= $5 AND refund_id < $6 {order} AND ($8::bigint[] IS NULL OR refund_id = ANY($8))
    AND {reviewed}
ORDER BY refund_id {direction} LIMIT $3
"""


_OF_ORDER, _OF_ANY = "AND order_id = $7", "AND $7::bigint IS NULL"  # apart, so that the order's index is used


def _of_all(table: str, key: str, more: str = "") -> str:
    """The newest or the oldest of all tenants or of one, tenant by tenant by primary key."""
    return (
        f"SELECT one.* FROM tenant t CROSS JOIN LATERAL (SELECT * FROM {table} o WHERE o.tenant_id = t.tenant_id"
        f" AND ($1::text IS NULL OR status = $1) AND ($2::bigint IS NULL OR {key} {{beyond}} $2)"
        f" AND {key} >= $5 AND {key} < $6{more}"
        f" ORDER BY {key} {{direction}} LIMIT $3) one"
        f" WHERE $4::bigint IS NULL OR t.tenant_id = $4 ORDER BY one.{key} {{direction}} LIMIT $3"
    )
