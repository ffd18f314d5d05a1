"""What operators see of eSIMs, of all dealers or of one: the list, and what is known of one beyond its order."""

from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.console import pages
from dealer_server.store.console.orders import VoidAsked
from dealer_server.store.console.pages import LOOKED, Page, Reach

NEWEST = 2**53


class Wanted(NamedTuple):
    """Which profiles: all that is given must match. `state` is a lifecycleStatus, FAILED or REFUNDED."""

    tenant_id: int | None = None
    state: str | None = None
    iccid: str | None = None


class Listed(NamedTuple):
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


class Owner(NamedTuple):
    """Whose a profile is."""

    tenant_id: int
    dealer: str
    order_id: int


class Life(NamedTuple):
    """What is known of a delivered profile beyond what its dealer sees. `unused_until`: when it expires unless it is
    used; `valid_until`: when its supplier says that its plan ends; `reported_at`: when its supplier was last heard."""

    supplier: str
    created_at: datetime
    unused_until: datetime | None
    valid_until: datetime | None
    ended_at: datetime | None
    eid: str | None
    reported_at: datetime | None
    asked_at: datetime | None


async def page(
    connection: Connection, wanted: Wanted, before: int | None, size: int, most: int = LOOKED
) -> Page[Listed]:
    """The newest profiles that match, of those before an id; it looks at so many at most."""
    until = NEWEST if before is None else min(before, NEWEST)
    if wanted.iccid is not None:
        found = await _named(connection, wanted, until, size + 1)
        return Page(found[:size], found[size - 1].profile_id if len(found) > size else None)

    async def matching(begin: int, end: int, limit: int) -> list[Listed]:
        return await _listed(connection, _SPAN, wanted.tenant_id, wanted.state, begin, end, limit)

    reach = Reach("profile", "profile_id", wanted.tenant_id)
    return await pages.back(connection, reach, until, size, matching, lambda one: one.profile_id, most)


async def _named(connection: Connection, wanted: Wanted, until: int, limit: int) -> list[Listed]:
    """By ICCID: each dealer has an index of its own."""
    return await _listed(connection, _ICCID, wanted.tenant_id, wanted.state, wanted.iccid, until, limit)


# $1 tenant_id, $2 state, and where to look: by $3 and $4.
_SPAN = "profile_id >= $3 AND profile_id < $4"
_ICCID = "iccid = $3 AND profile_id < $4"
_LISTED = """
WITH found AS MATERIALIZED (
    SELECT p.*, t.name FROM tenant t CROSS JOIN LATERAL (
        SELECT tenant_id, profile_id, order_id, line, iccid, lifecycle_status, plan_use_status, failed, refunded, held,
            data_total_bytes, data_usage_bytes
        FROM profile p WHERE p.tenant_id = t.tenant_id AND {where} AND ($2::text IS NULL OR lifecycle_status = $2
            OR $2 = 'FAILED' AND failed OR $2 = 'REFUNDED' AND refunded)
        ORDER BY profile_id DESC LIMIT $5
    ) p
    WHERE $1::bigint IS NULL OR t.tenant_id = $1
    ORDER BY profile_id DESC LIMIT $5
)
SELECT f.tenant_id, f.profile_id, f.order_id, f.name, i.package_code, i.supplier, f.iccid, f.lifecycle_status,
    f.plan_use_status, f.failed, f.refunded, f.held, f.data_total_bytes, f.data_usage_bytes
FROM found f JOIN order_item i USING (tenant_id, order_id, line) ORDER BY f.profile_id DESC
"""


async def _listed(connection: Connection, where: str, *arguments: object) -> list[Listed]:
    return [Listed(*row) for row in await connection.fetch(_LISTED.format(where=where), *arguments)]


async def whose(connection: Connection, profile_id: int) -> Owner | None:
    """profileIds are unique over all tenants."""
    row = await connection.fetchrow(
        "SELECT t.tenant_id, t.name, p.order_id FROM tenant t JOIN LATERAL (SELECT order_id FROM profile p"
        " WHERE p.tenant_id = t.tenant_id AND p.profile_id = $1) p ON true LIMIT 1",
        profile_id,
    )
    return Owner(*row) if row else None


async def life(connection: Connection, tenant_id: int, profile_id: int) -> Life | None:
    """None before its delivery, and of codes from stock: nobody reports on them."""
    row = await connection.fetchrow(
        "SELECT supplier, created_at, unused_until, valid_until, ended_at, eid, reported_at, asked_at FROM profile_life"
        " WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return Life(*row) if row else None


async def void(connection: Connection, tenant_id: int, profile_id: int) -> VoidAsked | None:
    """What its supplier was asked, for a refund or a cancellation."""
    row = await connection.fetchrow(
        "SELECT profile_id, supplier, created_at, outcome FROM void_request WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return VoidAsked(*row) if row else None
