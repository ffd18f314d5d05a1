"""What the console shows of orders, of all dealers or of one: the list, and what happened to one order."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dealer_server.db.by_tenant import rows_of
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Order
from dealer_server.store.console import pages
from dealer_server.store.console.pages import MAX_SCANNED, ListPage, ScanRange
from dealer_server.store.webhooks.bodies import unseal


class OrderFilter(NamedTuple):
    """Which orders: all that is given must match. `status` is an orderStatus or a deliveryStatus: of
    orders that failed only FAILED lists any, whether they are refunded or not. REVIEW: those that are REFUNDING with a
    refund that waits for an operator; REFUNDING: the others."""

    tenant_id: int | None = None
    status: str | None = None
    package_code: str | None = None
    start: datetime | None = None
    end: datetime | None = None


class OrderRow(NamedTuple):
    """An order in a list. `lines`: (packageCode, quantity). `recharge`: it recharges an eSIM."""

    tenant_id: int
    order_id: int
    dealer: str
    transaction_id: str
    currency: str
    amount: int
    refund_amount: int
    pay_status: str
    delivery_status: str
    order_status: str
    remark: str | None
    lines: Sequence[tuple[str, int]]
    recharge: bool


class Reference(NamedTuple):
    """What a dealer calls an order by, and its remark."""

    transaction_id: str
    remark: str | None

    @property
    def own(self) -> str:
        return identity.own_reference(self.transaction_id)


class Owner(NamedTuple):
    """The dealer of an order."""

    tenant_id: int
    dealer: str
    order_id: int


async def list_orders(
    connection: Connection,
    filters: OrderFilter,
    seen: int | None,
    size: int,
    max_scanned: int = MAX_SCANNED,
    *,
    oldest_first: bool = False,
) -> ListPage[OrderRow]:
    """The newest orders that match, or the oldest ones, after the one seen last."""
    scan = ScanRange("orders", "order_id", filters.tenant_id, *identity.ids_between(filters.start, filters.end),
                     oldest_first)  # fmt: skip

    async def matching(begin: int, end: int, limit: int) -> list[OrderRow]:
        return await _matching(connection, filters, scan.direction, begin, end, limit)

    return await pages.scan(connection, scan.after(seen), size, matching, lambda row: row.order_id, max_scanned)


def is_in(status: str, order_status: str, delivery_status: str) -> bool:
    """Whether the list of this status has an order of these."""
    return status == delivery_status or (status == order_status and delivery_status != "FAILED")


async def count_orders(connection: Connection, filters: OrderFilter, most: int) -> dict[tuple[str, str], int]:
    """How many orders of a dealer or of all, placed in that time, whatever else is asked for, by orderStatus (REVIEW is
    apart from others that are REFUNDING) and deliveryStatus; no more than `most` are counted."""
    rows = await connection.fetch(
        "SELECT order_status, delivery_status, count(*)::int AS counted FROM ("
        " SELECT o.* FROM tenant t CROSS JOIN LATERAL ("
        f"  SELECT {_STATE} AS order_status, delivery_status FROM orders o"
        "  WHERE o.tenant_id = t.tenant_id AND order_id >= $2 AND order_id < $3 LIMIT $4"
        " ) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT $4) c GROUP BY 1, 2",
        filters.tenant_id,
        *identity.ids_between(filters.start, filters.end),
        most,
    )
    return {(row["order_status"], row["delivery_status"]): row["counted"] for row in rows}


_STATE = """CASE WHEN order_status = 'REFUNDING' AND EXISTS (
    SELECT FROM refund r JOIN refund_line l USING (tenant_id, refund_id)
    WHERE r.tenant_id = o.tenant_id AND r.order_id = o.order_id AND l.way = 'REVIEW' AND l.status = 'PENDING'
    OFFSET 0) THEN 'REVIEW' ELSE order_status END"""
# A condition of its own, so that the items are joined and not looked up one by one.
_OF_PACKAGE = """AND order_id IN (SELECT order_id FROM order_item i WHERE i.tenant_id = t.tenant_id
                AND i.order_id >= $2 AND i.order_id < $3 AND i.package_code = $6)"""
_ROWS = rows_of("orders", "f", "tenant_id", "order_id")
_ORDERS = """
WITH found AS MATERIALIZED (
    SELECT o.*, t.name FROM tenant t CROSS JOIN LATERAL (
        SELECT * FROM orders o WHERE o.tenant_id = t.tenant_id AND order_id >= $2 AND order_id < $3
            AND ($4::text IS NULL OR {state} = $4 AND delivery_status <> 'FAILED' OR delivery_status = $4)
            {packages}
        ORDER BY order_id {direction} LIMIT $5
    ) o
    WHERE $1::bigint IS NULL OR t.tenant_id = $1
    ORDER BY order_id {direction} LIMIT $5
)
SELECT f.tenant_id, f.order_id, f.name AS dealer, f.transaction_id, f.currency, f.amount, f.refund_amount, f.pay_status,
    f.delivery_status, f.order_status, f.remark, i.packages, i.quantities, i.recharge
FROM found f {rows} CROSS JOIN LATERAL (
    SELECT array_agg(package_code ORDER BY line) AS packages, array_agg(quantity::int ORDER BY line) AS quantities,
        bool_or(recharges IS NOT NULL) AS recharge
    FROM order_item i WHERE i.tenant_id = f.tenant_id AND i.order_id = f.order_id
) i ORDER BY f.order_id {direction}
"""


async def _matching(
    connection: Connection, filters: OrderFilter, direction: str, begin: int, end: int, limit: int
) -> list[OrderRow]:
    state = _STATE if filters.status in ("REVIEW", "REFUNDING") else "order_status"
    packages = _OF_PACKAGE if filters.package_code else ""
    sql = _ORDERS.format(rows=_ROWS, direction=direction, packages=packages, state=state)
    more = [filters.package_code] if filters.package_code else []
    rows = await connection.fetch(sql, filters.tenant_id, begin, end, filters.status, limit, *more)
    return [_order_row(dict(row)) for row in rows]


def _order_row(columns: dict[str, Any]) -> OrderRow:
    """Two arrays, as a node does not send arrays of pairs to the coordinator."""
    return OrderRow(lines=list(zip(columns.pop("packages"), columns.pop("quantities"), strict=True)), **columns)


async def owner(connection: Connection, order_id: int) -> Owner | None:
    """orderIds are unique over all tenants."""
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name AS dealer, o.order_id FROM tenant t JOIN LATERAL (SELECT order_id FROM orders o"
        " WHERE o.tenant_id = t.tenant_id AND o.order_id = $1) o ON true LIMIT 1",
        order_id,
    )
    return Owner(**row) if row else None


# What happened to one order


class Movement(NamedTuple):
    """An entry of the ledger. `reference` is the orderId of a debit, the refund's id of a credit."""

    entry_type: str
    reference: int
    amount: int
    balance_after: int
    created_at: datetime


class Purchase(NamedTuple):
    """A purchase at a supplier. `due_at`: when the next call for it may be made, while it is open."""

    profile_id: int
    position: int
    unit_key: str
    supplier: str
    sku: str
    state: str
    supplier_ref: str | None
    reason: str | None
    created_at: datetime
    finished_at: datetime | None
    due_at: datetime | None


class SupplierCall(NamedTuple):
    """A call to a supplier; `answered_at` None where no answer was recorded."""

    profile_id: int
    position: int
    number: int
    supplier: str
    kind: str
    step: str
    sent_at: datetime
    answered_at: datetime | None
    outcome: str | None
    message: str | None


class ProfileTimes(NamedTuple):
    """When the steps of a profile's lifecycle happened."""

    profile_id: int
    iccid: str
    supplier: str
    delivered_at: datetime
    smdp_at: datetime | None
    smdp_status: str | None
    esim_at: datetime | None
    esim_status: str | None
    started_at: datetime | None
    ended_at: datetime | None


class VoidRequest(NamedTuple):
    profile_id: int
    supplier: str
    created_at: datetime
    outcome: str | None


class Suspension(NamedTuple):
    """suspended: whether it was to be suspended, or to work again."""

    profile_id: int
    supplier: str
    suspended: bool
    created_at: datetime
    outcome: str | None


class RefundRefusal(NamedTuple):
    """Why eSIMs of a refund were not refunded. `way`: who refused, SUPPLIER or REVIEW (an operator)."""

    refund_id: int
    way: str
    reason: str


async def refusals(connection: Connection, tenant_id: int, order_id: int) -> dict[int, list[RefundRefusal]]:
    """By refund, each reason once."""
    rows = await connection.fetch(
        "SELECT DISTINCT l.refund_id, l.way, l.reason FROM refund r JOIN refund_line l USING (tenant_id, refund_id)"
        " WHERE r.tenant_id = $1 AND r.order_id = $2 AND l.status = 'REJECTED' AND l.reason IS NOT NULL"
        " ORDER BY l.refund_id, l.reason",
        tenant_id,
        order_id,
    )
    found: dict[int, list[RefundRefusal]] = {}
    for row in rows:
        found.setdefault(row["refund_id"], []).append(RefundRefusal(**row))
    return found


async def failed_at(connection: Connection, order: Order, profiles: range) -> dict[int, datetime]:
    """When each of these eSIMs failed for good: no time is kept of it, but its refund follows at once. Where there is
    none, when the order last changed."""
    failed = [one.profile_id for one in order.profiles if one.failed and one.profile_id in profiles]
    if not failed:
        return {}
    rows = await connection.fetch(
        "SELECT l.profile_id, min(r.created_at) AS at FROM refund r JOIN refund_line l USING (tenant_id, refund_id)"
        " WHERE r.tenant_id = $1 AND r.order_id = $2 AND l.profile_id = ANY ($3::bigint[]) GROUP BY l.profile_id",
        order.tenant_id,
        order.order_id,
        failed,
    )
    return dict.fromkeys(failed, order.updated_at) | {row["profile_id"]: row["at"] for row in rows}


async def movements(connection: Connection, tenant_id: int, order_id: int) -> list[Movement]:
    rows = await connection.fetch(
        "SELECT entry_type, reference, amount, balance_after, created_at FROM ledger_entry"
        " WHERE tenant_id = $1 AND (entry_type = 'ORDER_PAY' AND reference = $2 OR entry_type = 'REFUND'"
        "  AND reference IN (SELECT refund_id FROM refund r WHERE r.tenant_id = $1 AND r.order_id = $2))"
        " ORDER BY version",
        tenant_id,
        order_id,
    )
    return [Movement(**row) for row in rows]


async def purchases(connection: Connection, tenant_id: int, profiles: range, limit: int) -> list[Purchase]:
    """What was bought for these profiles, by profile and attempt."""
    rows = await connection.fetch(
        "SELECT profile_id, position, unit_key, supplier, sku, state, supplier_ref, reason,"
        " created_at, finished_at, due_at FROM purchase WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3"
        " ORDER BY profile_id, position LIMIT $4",
        tenant_id,
        profiles.start,
        profiles.stop,
        limit,
    )
    return [Purchase(**row) for row in rows]


async def calls(connection: Connection, tenant_id: int, profiles: range, limit: int) -> list[SupplierCall]:
    rows = await connection.fetch(
        "SELECT profile_id, position, number, supplier, kind, step, sent_at, answered_at, outcome, message"
        " FROM supplier_call WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3"
        " ORDER BY profile_id, position, number LIMIT $4",
        tenant_id,
        profiles.start,
        profiles.stop,
        limit,
    )
    return [SupplierCall(**row) for row in rows]


async def lives(connection: Connection, order: Order, profiles: range, limit: int) -> list[ProfileTimes]:
    """Of these eSIMs of the order."""
    reported = await _reported(connection, order.tenant_id, profiles, limit)
    known = {one.profile_id for one in reported}
    others = [one.iccid for one in order.profiles if one.profile_id in profiles and one.profile_id not in known]
    return [*reported, *await _from_stock(connection, [iccid for iccid in others if iccid][: limit - len(known)])]


def maker(line: str, esim: str) -> str:
    """SQL: the supplier of an eSIM: who made it, while nobody has who was asked last, and that of its line where it is
    not bought over the network. `line`: a row with tenant_id and supplier; `esim`: one with profile_id and iccid.
    As History.makers of console/operator/timeline.py."""
    return (
        f"coalesce((SELECT b.supplier FROM purchase b WHERE b.tenant_id = {line}.tenant_id"
        f" AND b.profile_id = {esim}.profile_id AND (b.state = 'DONE' OR {esim}.iccid IS NULL)"
        f" ORDER BY b.state = 'DONE' DESC, b.position DESC LIMIT 1), {line}.supplier)"
    )


async def _reported(connection: Connection, tenant_id: int, profiles: range, limit: int) -> list[ProfileTimes]:
    rows = await connection.fetch(
        f"SELECT profile_id, l.iccid, {maker('l', 'l')} AS supplier, l.created_at AS delivered_at, l.smdp_at,"
        " p.smdp_status, l.esim_at, p.esim_status, p.plan_use_start_at AS started_at, l.ended_at"
        " FROM profile_life l JOIN profile p USING (tenant_id, profile_id)"
        " WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3 ORDER BY profile_id LIMIT $4",
        tenant_id,
        profiles.start,
        profiles.stop,
        limit,
    )
    return [ProfileTimes(**row) for row in rows]


async def _from_stock(connection: Connection, iccids: Sequence[str]) -> list[ProfileTimes]:
    """Of these eSIMs those that are from stock, which have no lifecycle reports."""
    rows = await connection.fetch(
        "SELECT taken_by, iccid, taken_at FROM stock_profile WHERE iccid = ANY ($1::text[]) AND taken_at IS NOT NULL"
        " ORDER BY taken_by",
        iccids,
    )
    return [
        ProfileTimes(row["taken_by"], row["iccid"], STOCK, row["taken_at"], None, None, None, None, None, None)
        for row in rows
    ]


async def voids(connection: Connection, tenant_id: int, order_id: int, limit: int) -> list[VoidRequest]:
    rows = await connection.fetch(
        "SELECT profile_id, supplier, created_at, outcome FROM void_request WHERE tenant_id = $1 AND order_id = $2"
        " ORDER BY profile_id LIMIT $3",
        tenant_id,
        order_id,
        limit,
    )
    return [VoidRequest(**row) for row in rows]


async def suspensions(connection: Connection, tenant_id: int, profiles: range, limit: int) -> list[Suspension]:
    rows = await connection.fetch(
        "SELECT profile_id, supplier, suspended, created_at, outcome FROM suspension"
        " WHERE tenant_id = $1 AND profile_id >= $2 AND profile_id < $3"
        " ORDER BY profile_id, suspension_id DESC LIMIT $4",
        tenant_id,
        profiles.start,
        profiles.stop,
        limit,
    )
    return [Suspension(**row) for row in rows]


async def remark(connection: Connection, tenant_id: int, order_id: int) -> str | None:
    found = (await references(connection, tenant_id, [order_id])).get(order_id)
    return found.remark if found else None


async def references(connection: Connection, tenant_id: int, order_ids: Iterable[int | None]) -> dict[int, Reference]:
    """By orderId."""
    rows = await connection.fetch(
        "SELECT order_id, transaction_id, remark FROM orders WHERE tenant_id = $1 AND order_id = ANY($2::bigint[])",
        tenant_id,
        sorted({order_id for order_id in order_ids if order_id is not None}),
    )
    return {row["order_id"]: Reference(row["transaction_id"], row["remark"]) for row in rows}


async def packages(connection: Connection, tenant_id: int, order_id: int) -> list[str]:
    """The packages of an order, by line."""
    rows = await connection.fetch(
        "SELECT package_code FROM order_item WHERE tenant_id = $1 AND order_id = $2 ORDER BY line", tenant_id, order_id
    )
    return list(dict.fromkeys(row["package_code"] for row in rows))


async def packages_of(connection: Connection, orders: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[str]]:
    """The packages of each order of these, by line. `orders`: tenant ids and orderIds."""
    tenants, ids = zip(*sorted(set(orders)), strict=True) if orders else ((), ())
    rows = await connection.fetch(
        "SELECT i.tenant_id, i.order_id, i.package_code FROM unnest($1::bigint[], $2::bigint[]) AS"
        " asked(tenant_id, order_id) JOIN order_item i ON i.tenant_id = asked.tenant_id AND i.order_id = asked.order_id"
        " ORDER BY i.tenant_id, i.order_id, i.line",
        tenants,
        ids,
    )
    found: dict[tuple[int, int], list[str]] = {}
    for row in rows:
        codes = found.setdefault((row["tenant_id"], row["order_id"]), [])
        if row["package_code"] not in codes:
            codes.append(row["package_code"])
    return found


async def bodies(
    connection: Connection, tenant_id: int, delivery_ids: Sequence[int], keys: DataKeys
) -> dict[int, bytes]:
    """The bodies of these deliveries, unsealed; those that were never attempted have none yet."""
    rows = await connection.fetch(
        "SELECT delivery_id, body FROM webhook_delivery WHERE tenant_id = $1 AND delivery_id = ANY($2::bigint[])"
        " AND body IS NOT NULL",
        tenant_id,
        delivery_ids,
    )
    return {row["delivery_id"]: unseal(keys, row["body"], tenant_id, row["delivery_id"]) for row in rows}
