"""What the console shows of eSIMs, of all dealers or of one: the list, and what is known of one beyond its order."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.console import pages
from dealer_server.store.console.orders import VoidRequest
from dealer_server.store.console.pages import MAX_SCANNED, ListPage, ScanRange

NEWEST = 2**53


class ProfileFilter(NamedTuple):
    """Which profiles: all that is given must match. `state` is a lifecycleStatus, FAILED or REFUNDED; `plan` a
    planUseStatus. Their ids are from `first` on and before `end`."""

    tenant_id: int | None = None
    state: str | None = None
    iccid: str | None = None
    plan: str | None = None
    first: int = 0
    end: int = NEWEST


class ProfileRow(NamedTuple):
    """A profile in a list. `held`: a pending refund names it."""

    tenant_id: int
    profile_id: int
    order_id: int
    dealer: str
    package_code: str
    supplier: str
    iccid: str | None
    lifecycle_status: str
    plan_use_status: str
    failed: bool
    refunded: bool
    held: bool
    data_total_bytes: int | None
    data_usage_bytes: int


class ProfileOwner(NamedTuple):
    """The dealer and the order of a profile."""

    tenant_id: int
    dealer: str
    order_id: int


class Lifecycle(NamedTuple):
    """What is known of a delivered profile beyond what its dealer sees. `unused_until`: when it expires unless it is
    used; `valid_until`: when its supplier says that its plan ends; `reported_at`: when its supplier last reported."""

    supplier: str
    created_at: datetime
    unused_until: datetime | None
    valid_until: datetime | None
    ended_at: datetime | None
    eid: str | None
    reported_at: datetime | None
    asked_at: datetime | None


async def list_profiles(
    connection: Connection,
    filters: ProfileFilter,
    seen: int | None,
    size: int,
    max_scanned: int = MAX_SCANNED,
    *,
    oldest_first: bool = False,
) -> ListPage[ProfileRow]:
    """The newest profiles that match, or the oldest ones, after the one seen last."""
    scan = ScanRange("profile", "profile_id", filters.tenant_id, filters.first, filters.end, oldest_first).after(seen)
    if filters.iccid is not None:
        found = await _by_iccid(connection, filters, scan, size + 1)
        return ListPage(found[:size], found[size - 1].profile_id if len(found) > size else None)

    async def matching(begin: int, end: int, limit: int) -> list[ProfileRow]:
        return await _fetch(connection, _SPAN, scan, filters.state, begin, end, limit, filters.plan)

    return await pages.scan(connection, scan, size, matching, lambda row: row.profile_id, max_scanned)


async def _by_iccid(connection: Connection, filters: ProfileFilter, scan: ScanRange, limit: int) -> list[ProfileRow]:
    """By ICCID: each dealer has an index of its own."""
    span = scan.first, scan.end, limit
    return await _fetch(connection, _ICCID, scan, filters.state, *span, filters.plan, filters.iccid)


# $1 tenant_id, $2 state, $6 plan; which rows: by $3 and $4, and $7.
_SPAN = "profile_id >= $3 AND profile_id < $4"
_ICCID = f"{_SPAN} AND iccid = $7"
_PROFILES = """
WITH found AS MATERIALIZED (
    SELECT p.*, t.name FROM tenant t CROSS JOIN LATERAL (
        SELECT tenant_id, profile_id, order_id, line, iccid, lifecycle_status, plan_use_status, failed, refunded, held,
            data_total_bytes, data_usage_bytes
        FROM profile p WHERE p.tenant_id = t.tenant_id AND {where} AND recharges IS NULL
            AND ($2::text IS NULL OR lifecycle_status = $2 OR $2 = 'FAILED' AND failed OR $2 = 'REFUNDED' AND refunded)
            AND ($6::text IS NULL OR plan_use_status = $6)
        ORDER BY profile_id {direction} LIMIT $5
    ) p
    WHERE $1::bigint IS NULL OR t.tenant_id = $1
    ORDER BY profile_id {direction} LIMIT $5
)
SELECT f.tenant_id, f.profile_id, f.order_id, f.name AS dealer, i.package_code, i.supplier, f.iccid, f.lifecycle_status,
    f.plan_use_status, f.failed, f.refunded, f.held, f.data_total_bytes, f.data_usage_bytes
FROM found f JOIN order_item i USING (tenant_id, order_id, line) ORDER BY f.profile_id {direction}
"""


async def _fetch(connection: Connection, where: str, scan: ScanRange, *arguments: object) -> list[ProfileRow]:
    sql = _PROFILES.format(where=where, direction=scan.direction)
    return [ProfileRow(**row) for row in await connection.fetch(sql, scan.tenant_id, *arguments)]


async def owner(connection: Connection, profile_id: int) -> ProfileOwner | None:
    """profileIds are unique over all tenants."""
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name AS dealer, p.order_id FROM tenant t JOIN LATERAL (SELECT order_id FROM profile p"
        " WHERE p.tenant_id = t.tenant_id AND p.profile_id = $1 AND p.recharges IS NULL) p ON true LIMIT 1",
        profile_id,
    )
    return ProfileOwner(**row) if row else None


async def lifecycle(connection: Connection, tenant_id: int, profile_id: int) -> Lifecycle | None:
    """None before its delivery, and for codes from stock: no supplier reports on them."""
    row = await connection.fetchrow(
        "SELECT supplier, created_at, unused_until, valid_until, ended_at, eid, reported_at, asked_at FROM profile_life"
        " WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return Lifecycle(**row) if row else None


async def void(connection: Connection, tenant_id: int, profile_id: int) -> VoidRequest | None:
    """The request to its supplier, for a refund or a cancellation."""
    row = await connection.fetchrow(
        "SELECT profile_id, supplier, created_at, outcome FROM void_request WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return VoidRequest(**row) if row else None
