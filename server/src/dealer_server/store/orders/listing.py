"""Pages of orders and profiles, newest first. A page continues after the last row of the one before, so that deep pages
cost what the first one does. Totals without a filter come from the wallet's counters."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, get_args

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity
from esim_dealer.wire.vocabulary import OrderStatus


class Window(NamedTuple):
    """Rows of a page: `limit` of them, after the id `after` or `offset` rows in."""

    limit: int
    offset: int
    after: int | None


class OrderFilter(NamedTuple):
    start: datetime | None
    end: datetime | None
    order_status: str | None
    updated_since: datetime | None

    @property
    def empty(self) -> bool:
        return self == OrderFilter(None, None, None, None)


class ProfileFilter(NamedTuple):
    order_id: int | None
    line: int | None
    profile_id: int | None
    iccid: str | None
    package_code: str | None
    lifecycle_status: Sequence[str] | None
    plan_use_status: str | None
    cancelled: bool | None
    start: datetime | None
    end: datetime | None
    updated_since: datetime | None

    @property
    def empty(self) -> bool:
        return all(value is None for value in self)


# startTime and endTime become ranges of ids, since an id holds its time. The status is a literal, so that every plan
# can use the index of orders that are not COMPLETED.
_ORDERS = (
    " FROM orders WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3"
    " AND ($4::timestamptz IS NULL OR updated_at >= $4)"
)
_OF_STATUS: dict[str | None, str] = {
    None: "",
    **{status: f" AND order_status = '{status}'" for status in get_args(OrderStatus)},
}


def orders_of(status: str | None) -> str:
    return _ORDERS + _OF_STATUS[status]


async def order_ids(connection: Connection, tenant_id: int, order_filter: OrderFilter, window: Window) -> list[int]:
    rows = await connection.fetch(
        f"SELECT order_id{orders_of(order_filter.order_status)} AND ($5::bigint IS NULL OR order_id < $5)"
        " ORDER BY order_id DESC LIMIT $6 OFFSET $7",
        *_order_arguments(tenant_id, order_filter),
        window.after,
        window.limit,
        window.offset,
    )
    return [row["order_id"] for row in rows]


async def order_count(connection: Connection, tenant_id: int, order_filter: OrderFilter) -> int:
    """COMPLETED orders are counted as all orders without the others, which are few."""
    if order_filter == OrderFilter(None, None, "COMPLETED", None):
        return await connection.fetchval(_COMPLETED, tenant_id) or 0
    sql = f"SELECT count(*){orders_of(order_filter.order_status)}"
    return await connection.fetchval(sql, *_order_arguments(tenant_id, order_filter)) or 0


_COMPLETED = (
    "SELECT order_count - (SELECT count(*) FROM orders WHERE tenant_id = $1 AND order_status <> 'COMPLETED')"
    " FROM wallet WHERE tenant_id = $1"
)


def _order_arguments(tenant_id: int, order_filter: OrderFilter) -> tuple[object, ...]:
    return tenant_id, *identity.ids_between(order_filter.start, order_filter.end), order_filter.updated_since


# Profiles without codes are listed only if the call asks for lifecycleStatus PENDING, or for their profileId.
_PROFILES = (
    " FROM profile p WHERE tenant_id = $1 AND order_id >= $2 AND order_id < $3"
    " AND ($4::bigint IS NULL OR p.order_id = $4) AND ($5::int IS NULL OR p.line = $5)"
    " AND ($6::bigint IS NULL OR profile_id = $6) AND ($7::text IS NULL OR iccid = $7)"
    " AND ($8::text IS NULL OR EXISTS (SELECT FROM order_item i WHERE i.tenant_id = $1 AND i.order_id = p.order_id"
    "  AND i.line = p.line AND i.package_code = $8))"
    " AND ($9::text[] IS NULL OR lifecycle_status = ANY($9)) AND ($10::text IS NULL OR plan_use_status = $10)"
    " AND ($11::boolean IS NULL OR cancelled = $11) AND ($12::timestamptz IS NULL OR updated_at >= $12)"
    " AND profile_id >= $13 AND profile_id < $14"
    " AND (iccid IS NOT NULL OR recharges IS NULL AND (profile_id = $6"
    "  OR (lifecycle_status = 'PENDING' AND lifecycle_status = ANY($9))))"
)


async def profile_ids(
    connection: Connection, tenant_id: int, profile_filter: ProfileFilter, span: tuple[int, int], window: Window
) -> list[tuple[int, int]]:
    """(orderId, profileId) of a page. `span` bounds the profileIds where they are known, such as those of one order."""
    rows = await connection.fetch(
        f"SELECT order_id, profile_id{_PROFILES} AND ($15::bigint IS NULL OR profile_id < $15)"
        " ORDER BY profile_id DESC LIMIT $16 OFFSET $17",
        *_profile_arguments(tenant_id, profile_filter, span),
        window.after,
        window.limit,
        window.offset,
    )
    return [(row["order_id"], row["profile_id"]) for row in rows]


async def profile_count(
    connection: Connection, tenant_id: int, profile_filter: ProfileFilter, span: tuple[int, int]
) -> int:
    return (
        await connection.fetchval(f"SELECT count(*){_PROFILES}", *_profile_arguments(tenant_id, profile_filter, span))
        or 0
    )


async def profile_span(connection: Connection, tenant_id: int, order_id: int) -> tuple[int, int] | None:
    """The profileIds of an order: from, to (exclusive); None where there is no such order."""
    row = await connection.fetchrow(
        "SELECT min(first_profile_id) AS first, max(first_profile_id + quantity) AS until FROM order_item"
        " WHERE tenant_id = $1 AND order_id = $2",
        tenant_id,
        order_id,
    )
    return (row["first"], row["until"]) if row and row["first"] is not None else None


async def order_total(connection: Connection, tenant_id: int) -> int:
    """The number of orders that the tenant has placed."""
    return await connection.fetchval("SELECT order_count FROM wallet WHERE tenant_id = $1", tenant_id) or 0


async def allocated_total(connection: Connection, tenant_id: int) -> int:
    """The number of the tenant's profiles that have their codes: all it has bought without the few that have none."""
    total: int | None = await connection.fetchval(
        "SELECT profile_count - (SELECT count(*) FROM profile"
        "  WHERE tenant_id = $1 AND iccid IS NULL AND cancelled AND recharges IS NULL)"
        " - (SELECT count(*) FROM orders o JOIN order_item i USING (tenant_id, order_id) JOIN profile p"
        "   ON p.tenant_id = i.tenant_id"
        "   AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity"
        "  WHERE o.tenant_id = $1 AND o.order_status = ANY('{PAID,FULFILLING,REFUNDING}')"
        "   AND p.iccid IS NULL AND NOT p.cancelled AND p.recharges IS NULL)"
        " FROM wallet WHERE tenant_id = $1",
        tenant_id,
    )
    return total or 0


def _profile_arguments(tenant_id: int, profile_filter: ProfileFilter, span: tuple[int, int]) -> tuple[object, ...]:
    return (
        tenant_id,
        *identity.ids_between(profile_filter.start, profile_filter.end),
        profile_filter.order_id,
        profile_filter.line,
        profile_filter.profile_id,
        profile_filter.iccid,
        profile_filter.package_code,
        profile_filter.lifecycle_status,
        profile_filter.plan_use_status,
        profile_filter.cancelled,
        profile_filter.updated_since,
        *span,
    )
