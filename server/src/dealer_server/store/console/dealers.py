"""What the console shows of dealers: the list, and one with its credentials, prices and endpoint."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.by_tenant import rows_of
from dealer_server.db.connection import Connection
from dealer_server.store.console import queues
from dealer_server.store.tenants.tenant import RtFace
from esim_dealer.wire.vocabulary import EndpointState

Status = Literal["ACTIVE", "DISABLED", "LOW"]
"""What the list may be filtered by: a status, or a balance that is low."""


class DealerRow(NamedTuple):
    """A dealer in a list; amounts in ten-thousandths. `low`: its balance is below what it is told of, or lasts
    only for some days. `turnover`: of the days that were asked for. `last_order_id`: 0 before its first order.
    `price_list`: the name of its list."""

    tenant_id: int
    name: str
    status: str
    frozen: bool
    currency: str
    balance: int
    credit_limit: int
    low: bool
    order_count: int
    profile_count: int
    endpoint: EndpointState
    consecutive_failures: int
    last_success_at: datetime | None
    turnover: int
    last_order_id: int
    price_list: str | None


class Waiting(NamedTuple):
    """Of a dealer what an operator is to decide: top-ups and their sum, and refunds of the oldest 5 000."""

    topups: int
    refunds: int
    topup_amount: int


class WaitingOf(NamedTuple):
    """What an operator is to decide of one dealer: how many, their sum, and since when the oldest waits."""

    queue: Literal["TOPUPS", "REFUNDS"]
    waiting: int
    amount: int
    since: datetime


class Dealer(NamedTuple):
    """`markup_basis_points`: hundredths of a percent on the default dealer price. `edits_ip_allow`, `manages_keys`:
    what the dealer may change by itself."""

    tenant_id: int
    name: str
    status: str
    qps: int
    ip_allow: list[str]
    markup_basis_points: int
    created_at: datetime
    currency: str
    balance: int
    credit_limit: int
    low_balance_threshold: int
    frozen: bool
    order_count: int
    profile_count: int
    edits_ip_allow: bool
    manages_keys: bool
    rt_face: RtFace

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


class Price(NamedTuple):
    """A dealer's own price of a package; None: not on sale for it."""

    package_code: str
    price: int | None
    updated_at: datetime


_MATCHING = (
    "($1::text IS NULL OR position(lower($1) IN lower(t.name)) > 0 OR t.tenant_id::text = $1"
    " OR EXISTS (SELECT FROM credential c WHERE c.tenant_id = t.tenant_id AND starts_with(c.app_key, $1)))"
)


def _matching(price_list: str) -> str:
    """`price_list`: the parameter that holds whose dealers are asked for; 0: those without a list, None: all."""
    return f"{_MATCHING} AND ({price_list}::bigint IS NULL OR coalesce(t.price_list_id, 0) = {price_list})"


ORDERS = {
    "name": "lower(t.name)",
    "turnover": "coalesce(s.turnover, 0)",
    "balance": "w.balance",
    "orders": "w.order_count",
}
"""What the list can be ordered by: a row for each dealer is read."""
_LOW = (
    "(w.balance + w.credit_limit < w.low_balance_threshold OR coalesce(l.told, 0) > 0"
    " OR t.tenant_id = ANY({short}::bigint[]))"
)
_STATUS: Mapping[Status, str] = {
    "ACTIVE": "t.status = 'ACTIVE' AND NOT w.frozen",
    "DISABLED": "(t.status <> 'ACTIVE' OR w.frozen)",
    "LOW": _LOW,
}
_ALL = "tenant t JOIN wallet w USING (tenant_id) LEFT JOIN wallet_look l ON l.tenant_id = w.tenant_id"
_DEALERS = """
WITH f AS MATERIALIZED (
    SELECT t.tenant_id, t.name, t.status, w.frozen, w.currency, w.balance, w.credit_limit, {low} AS low, w.order_count,
        w.profile_count, coalesce(e.state, 'NOT_SET') AS endpoint,
        coalesce(e.consecutive_failures, 0) AS consecutive_failures, e.last_success_at,
        coalesce(s.turnover, 0)::bigint AS turnover, t.price_list_id, {order} AS place
    FROM {all} LEFT JOIN webhook_endpoint e ON e.tenant_id = w.tenant_id
        LEFT JOIN unnest($4::bigint[], $5::bigint[]) AS s(dealer, turnover) ON s.dealer = t.tenant_id
    WHERE {matching} AND {status} ORDER BY place {direction}, t.tenant_id OFFSET $2 LIMIT $3
)
SELECT f.*, coalesce(o.order_id, 0) AS last_order_id,
    (SELECT p.name FROM price_list p WHERE p.price_list_id = f.price_list_id) AS price_list
FROM f {rows} LEFT JOIN LATERAL (
    SELECT order_id FROM orders o WHERE o.tenant_id = f.tenant_id ORDER BY order_id DESC LIMIT 1
) o ON true ORDER BY f.place {direction}, f.tenant_id
"""


async def list_dealers(
    connection: Connection,
    text: str | None,
    start: int,
    limit: int,
    order: str = "name",
    *,
    descending: bool = False,
    status: Status | None = None,
    turnover: Mapping[int, int] | None = None,
    short: Sequence[int] = (),
    price_list_id: int | None = None,
) -> list[DealerRow]:
    """From row `start` on, in one of ORDERS; `text` is a part of the name, or of an AppKey its beginning. `turnover`:
    of dealers by tenant. `short`: dealers whose balance lasts only for some days. `price_list_id`: those of a price
    list; 0: without one."""
    sql = _DEALERS.format(
        low=_LOW.format(short="$6"),
        all=_ALL,
        order=ORDERS[order],
        matching=_matching("$7"),
        status=_STATUS[status].format(short="$6") if status else "true",
        rows=rows_of("wallet", "f", "tenant_id"),
        direction="DESC" if descending else "ASC",
    )
    known = turnover or {}
    rows = await connection.fetch(
        sql, text, start, limit, list(known), list(known.values()), list(short), price_list_id
    )
    return [DealerRow(**{name: row[name] for name in DealerRow._fields}) for row in rows]


async def count_dealers(connection: Connection, text: str | None, price_list_id: int | None = None) -> int:
    sql = f"SELECT count(*) FROM tenant t WHERE {_matching('$2')}"
    return await connection.fetchval(sql, text, price_list_id) or 0


async def counts(
    connection: Connection, text: str | None, short: Sequence[int] = (), *, price_list_id: int | None = None
) -> dict[Status, int]:
    """How many match, by what the list may be filtered by. `short`, `price_list_id`: as above."""
    sums = ", ".join(
        f"count(*) FILTER (WHERE {condition.format(short='$2')}) AS {name.lower()}"
        for name, condition in _STATUS.items()
    )
    sql = f"SELECT {sums} FROM {_ALL} WHERE {_matching('$3')}"
    row = await connection.fetchrow(sql, text, list(short), price_list_id)
    return {name: row[name.lower()] for name in _STATUS} if row else {}


async def waiting(connection: Connection, tenant_ids: Sequence[int]) -> dict[int, Waiting]:
    """Of those of these dealers for whom anything waits."""
    topups = await _waiting(connection, "topups", tenant_ids)
    refunds = await _waiting(connection, "refunds", tenant_ids)
    found = dict[int, Waiting]()
    for one in topups.keys() | refunds.keys():
        (count, amount), (decided, _) = topups.get(one, (0, 0)), refunds.get(one, (0, 0))
        found[one] = Waiting(count, decided, amount)
    return found


async def topped_up(connection: Connection, tenant_ids: Sequence[int]) -> Set[int]:
    """Those of these dealers of which top-ups wait."""
    return (await _waiting(connection, "topups", tenant_ids)).keys()


async def _waiting(
    connection: Connection, queue: Literal["topups", "refunds"], tenant_ids: Sequence[int]
) -> dict[int, tuple[int, int]]:
    """How many of each dealer, and their sum."""
    if not tenant_ids:
        return {}
    rows = await connection.fetch(
        "SELECT tenant_id, count(*)::int AS waiting, sum(amount)::bigint AS amount"
        f" FROM (SELECT tenant_id, amount FROM {queues.waiting(connection, queue)}) q"
        " WHERE tenant_id = ANY($1::bigint[]) GROUP BY tenant_id",
        tenant_ids,
    )
    return {row["tenant_id"]: (row["waiting"], row["amount"]) for row in rows}


async def waiting_of(connection: Connection, tenant_id: int) -> list[WaitingOf]:
    """Of each queue in which anything of this dealer waits."""
    found = list[WaitingOf]()
    names: Sequence[tuple[Literal["TOPUPS", "REFUNDS"], queues.Queue]] = (("TOPUPS", "topups"), ("REFUNDS", "refunds"))
    for name, queue in names:
        row = await connection.fetchrow(
            "SELECT count(*)::int AS waiting, coalesce(sum(amount), 0)::bigint AS amount, min(created_at) AS since"
            f" FROM (SELECT tenant_id, amount, created_at FROM {queues.waiting(connection, queue)}) q"
            " WHERE tenant_id = $1",
            tenant_id,
        )
        if row and row["waiting"]:
            found.append(WaitingOf(name, **row))
    return found


async def dealer(connection: Connection, tenant_id: int) -> Dealer | None:
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name, t.status, t.qps, t.ip_allow, t.markup_basis_points, t.created_at, w.currency,"
        " w.balance, w.credit_limit, w.low_balance_threshold, w.frozen, w.order_count, w.profile_count,"
        " t.edits_ip_allow, t.manages_keys, t.rt_face"
        " FROM tenant t JOIN wallet w USING (tenant_id) WHERE t.tenant_id = $1",
        tenant_id,
    )
    return Dealer(**row) if row else None


async def prices(connection: Connection, tenant_id: int, limit: int) -> list[Price]:
    """The dealer's own prices, by package; the others follow its markup."""
    rows = await connection.fetch(
        "SELECT package_code, price, updated_at FROM price WHERE tenant_id = $1 ORDER BY package_code LIMIT $2",
        tenant_id,
        limit,
    )
    return [Price(**row) for row in rows]
