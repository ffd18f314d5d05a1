"""What the console shows of eSIMs, of all dealers or of one: the list, and what is known of one beyond its order."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.by_tenant import of_given_tenant
from dealer_server.db.connection import Connection
from dealer_server.rules.lifecycle.daily_usage import Counts
from dealer_server.rules.lifecycle.use import NEARLY_PERCENT, USES, Use
from dealer_server.rules.search.query import FEWEST_DIGITS
from dealer_server.store.console import pages
from dealer_server.store.console.orders import VoidRequest, maker
from dealer_server.store.console.pages import MAX_SCANNED, ListPage, ScanRange
from dealer_server.store.profiles import daily_usage
from dealer_server.store.profiles.ending import TOLD_OF

NEWEST = 2**53
State = Literal[Use, "SUSPENDED", "REVIEW", "REFUNDING", "REFUNDED", "CANCELLED", "FAILED"]
STATES: tuple[State, ...] = (*USES, "SUSPENDED", "REVIEW", "REFUNDING", "REFUNDED", "CANCELLED", "FAILED")
Listed = Literal[State, "NOT_MAILED"]
"""NOT_MAILED: of those that are NOT_INSTALLED, whose install page was not mailed from here."""


class ProfileFilter(NamedTuple):
    """Which profiles: all that is given must match. `states`: in one of these, where there are any. `iccid`: its last
    digits or all of them. Their ids are from `first` on and before `end`. `ending`: of one dealer, plans in use that
    are told of (store/profiles/ending.py) and end from a time on and before another."""

    tenant_id: int | None = None
    states: tuple[Listed, ...] = ()
    iccid: str | None = None
    first: int = 0
    end: int = NEWEST
    ending: tuple[datetime, datetime] | None = None

    @property
    def in_all_time(self) -> bool:
        return self.first == 0 and self.end == NEWEST


class ProfileRow(NamedTuple):
    """A profile in a list. `held`: a pending refund names it. `unmailed`: it is NOT_MAILED."""

    tenant_id: int
    profile_id: int
    order_id: int
    dealer: str
    package_code: str
    supplier: str
    iccid: str | None
    lifecycle_status: str
    plan_use_status: str
    plan_use_end_at: datetime | None
    smdp_status: str | None
    failed: bool
    refunded: bool
    held: bool
    suspended: bool
    data_total_bytes: int | None
    data_usage_bytes: int
    unmailed: bool

    @property
    def shows_suspended(self) -> bool:
        return self.suspended and self.plan_use_status != "ENDED" and self.lifecycle_status != "CANCELLED"


class ProfileOwner(NamedTuple):
    """The dealer and the order of a profile."""

    tenant_id: int
    dealer: str
    order_id: int


class Lifecycle(NamedTuple):
    """What is known of a delivered profile beyond what its dealer sees. `unused_until`: when it expires unless it is
    used; `valid_until`: when its supplier says that its plan ends; `reported_at`: when its supplier last reported, and
    `daily_usage` of which days."""

    supplier: str
    created_at: datetime
    unused_until: datetime | None
    valid_until: datetime | None
    ended_at: datetime | None
    eid: str | None
    reported_at: datetime | None
    asked_at: datetime | None
    daily_usage: Counts


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
        return await _fetch(connection, scan, filters.states, begin, end, limit)

    return await pages.scan(connection, scan, size, matching, lambda row: row.profile_id, max_scanned)


async def list_by_end(
    connection: Connection, filters: ProfileFilter, seen: int | None, size: int, *, latest_first: bool = False
) -> ListPage[ProfileRow]:
    """A dealer's plans in use that match, by their end, after the one seen last. MAX_SCANNED are looked at at most."""
    after = await connection.fetchval(
        "SELECT plan_use_end_at FROM profile WHERE tenant_id = $1 AND profile_id = $2", filters.tenant_id, seen
    )
    direction = "DESC" if latest_first else "ASC"
    order = f"plan_use_end_at {direction}, profile_id {direction}"
    within = f"plan_use_end_at >= $7 AND plan_use_end_at < $8 AND {TOLD_OF}" if filters.ending else "true"
    beyond = "<" if latest_first else ">"
    found = _BY_END.format(order=order, beyond=beyond, state=_any(filters.states), within=within)
    rows = await connection.fetch(
        of_given_tenant(_OF_ROWS.format(found=found, order=order), 1),
        filters.tenant_id,
        filters.first,
        filters.end,
        size + 1,
        after,
        seen,
        *(filters.ending or ()),
    )
    shown = [ProfileRow(**row) for row in rows[:size]]
    return ListPage(shown, shown[-1].profile_id if len(rows) > size else None)


async def _by_iccid(connection: Connection, filters: ProfileFilter, scan: ScanRange, limit: int) -> list[ProfileRow]:
    """By the end of the ICCID, of which there is an index (docs/decisions/0041-search.md)."""
    digits = (filters.iccid or "")[::-1]
    if not (digits.isascii() and digits.isdigit() and len(digits) >= FEWEST_DIGITS):
        return []
    after = digits[:-1] + chr(ord(digits[-1]) + 1)
    rows = await connection.fetch(
        _statement(_ENDING, scan, filters.states), scan.tenant_id, scan.first, scan.end, limit, digits, after
    )
    return [ProfileRow(**row) for row in rows]


# As rules/lifecycle/use.py and console/shared/words.py say it.
_USED_UP = "coalesce(data_total_bytes, 0) > 0 AND data_usage_bytes >= data_total_bytes"
_NEARLY = f"coalesce(data_total_bytes, 0) > 0 AND data_usage_bytes * 100 >= data_total_bytes * {NEARLY_PERCENT}"
_UNTOUCHED = (
    "data_usage_bytes = 0 AND lifecycle_status = 'DELIVERED' AND coalesce(smdp_status, 'RELEASED') = 'RELEASED'"
)
_SUSPENDED = "suspended AND plan_use_status <> 'ENDED'"
_VALID = "NOT (refunded OR held OR failed OR cancelled)"
_IN_USE: Mapping[Use, str] = {
    "PENDING": "lifecycle_status = 'PENDING'",
    "NOT_INSTALLED": f"lifecycle_status <> 'PENDING' AND plan_use_status = 'NOT_STARTED' AND {_UNTOUCHED}",
    "INSTALLED": f"lifecycle_status <> 'PENDING' AND plan_use_status = 'NOT_STARTED' AND NOT ({_UNTOUCHED})",
    "IN_USE": f"plan_use_status = 'STARTED' AND NOT ({_NEARLY})",
    "NEARLY_USED": f"plan_use_status = 'STARTED' AND {_NEARLY} AND NOT ({_USED_UP})",
    "USED_UP": f"plan_use_status <> 'NOT_STARTED' AND {_USED_UP}",
    "ENDED": f"plan_use_status = 'ENDED' AND NOT ({_USED_UP})",
}
_OF_STATE: Mapping[Listed, str] = {
    **{word: f"{_VALID} AND NOT ({_SUSPENDED}) AND {condition}" for word, condition in _IN_USE.items()},
    "SUSPENDED": f"{_VALID} AND {_SUSPENDED}",
    "REVIEW": "in_review",
    "REFUNDING": "held AND NOT in_review",
    "REFUNDED": "refunded AND NOT failed",
    "CANCELLED": "cancelled AND NOT (refunded OR held OR failed)",
    "FAILED": "failed",
    "NOT_MAILED": "unmailed",
}
# $1 tenant_id; ids from $2 on and before $3; $4 how many; $5, $6 between which reversed ICCIDs.
_SPAN = "profile_id >= $2 AND profile_id < $3"
_COLUMNS = f"""tenant_id, profile_id, order_id, line, iccid, lifecycle_status, plan_use_status, plan_use_end_at,
    smdp_status, failed, refunded, held, suspended, cancelled, data_total_bytes, data_usage_bytes,
    held AND EXISTS (SELECT FROM refund_line l WHERE l.tenant_id = p.tenant_id AND l.profile_id = p.profile_id
        AND l.way = 'REVIEW' AND l.status = 'PENDING' OFFSET 0) AS in_review,
    {_OF_STATE["NOT_INSTALLED"]} AND NOT EXISTS (SELECT FROM buyer_mail m WHERE m.tenant_id = p.tenant_id
        AND m.profile_id = p.profile_id OFFSET 0) AS unmailed"""
_OF_EACH = f"""
    SELECT p.*, t.name FROM tenant t CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT {_COLUMNS} FROM profile p WHERE p.tenant_id = t.tenant_id AND {_SPAN} AND recharges IS NULL
        ) p WHERE {{state}}
        ORDER BY profile_id {{direction}} LIMIT $4
    ) p
    WHERE $1::bigint IS NULL OR t.tenant_id = $1
    ORDER BY profile_id {{direction}} LIMIT $4
"""
_ENDING = f"""
    SELECT p.*, t.name FROM (
        SELECT {_COLUMNS}, recharges FROM profile p WHERE iccid IS NOT NULL AND reverse(iccid) ~>=~ $5
            AND reverse(iccid) ~<~ $6 AND ($1::bigint IS NULL OR tenant_id = $1) LIMIT {MAX_SCANNED}
    ) p JOIN tenant t USING (tenant_id) WHERE {_SPAN} AND recharges IS NULL AND ({{state}})
    ORDER BY profile_id {{direction}} LIMIT $4
"""
# $5, $6: end and profileId of the one seen last; $7, $8: between which ends.
_BY_END = f"""
    SELECT p.*, t.name FROM (
        SELECT {_COLUMNS} FROM profile p
        WHERE tenant_id = $1 AND plan_use_status = 'STARTED' AND plan_use_end_at IS NOT NULL AND recharges IS NULL
            AND {{within}} AND ($5::timestamptz IS NULL OR (plan_use_end_at, profile_id) {{beyond}} ($5, $6::bigint))
        ORDER BY {{order}} LIMIT {MAX_SCANNED}
    ) p JOIN tenant t USING (tenant_id) WHERE {_SPAN} AND ({{state}})
    ORDER BY {{order}} LIMIT $4
"""
_OF_ROWS = f"""
WITH found AS MATERIALIZED ({{found}})
SELECT f.tenant_id, f.profile_id, f.order_id, f.name AS dealer, i.package_code, {maker("i", "f")} AS supplier,
    f.iccid, f.lifecycle_status, f.plan_use_status, f.plan_use_end_at, f.smdp_status, f.failed, f.refunded, f.held,
    f.suspended, f.data_total_bytes, f.data_usage_bytes, f.unmailed
FROM found f JOIN order_item i ON i.tenant_id = f.tenant_id AND i.order_id = f.order_id AND i.line = f.line
ORDER BY {{order}}
"""
_COUNT_UNMAILED = of_given_tenant(
    f"SELECT count(*)::int FROM (SELECT {_COLUMNS} FROM profile p WHERE tenant_id = $1 AND recharges IS NULL"
    " ORDER BY profile_id DESC LIMIT $2) p WHERE unmailed",
    1,
)
_UNMAILED_ORDERS = of_given_tenant(
    f"""
    SELECT DISTINCT order_id FROM (
        SELECT {_COLUMNS} FROM order_item i JOIN profile p USING (tenant_id, order_id, line)
        WHERE i.tenant_id = $1 AND p.tenant_id = $1 AND i.order_id = ANY($2::bigint[]) AND p.recharges IS NULL
            AND profile_id >= i.first_profile_id AND profile_id < i.first_profile_id + i.quantity
    ) p WHERE unmailed
    """,
    1,
)


async def _fetch(
    connection: Connection, scan: ScanRange, states: Sequence[Listed], begin: int, end: int, limit: int
) -> list[ProfileRow]:
    rows = await connection.fetch(_statement(_OF_EACH, scan, states), scan.tenant_id, begin, end, limit)
    return [ProfileRow(**row) for row in rows]


def _any(states: Sequence[Listed]) -> str:
    return " OR ".join(f"({_OF_STATE[state]})" for state in states) or "true"


def _statement(found: str, scan: ScanRange, states: Sequence[Listed]) -> str:
    found = found.format(direction=scan.direction, state=_any(states))
    return _OF_ROWS.format(found=found, order=f"profile_id {scan.direction}")


async def count(
    connection: Connection, filters: ProfileFilter, states: Sequence[Listed], most: int
) -> dict[Listed | None, int]:
    """How many eSIMs of a dealer or of all, of these ids, whatever their state (None), and in each of these; none of
    the latter where there are `most` or more."""
    each = ", ".join(f"count(*) FILTER (WHERE {_OF_STATE[state]})::int AS n{at}" for at, state in enumerate(states))
    row = await connection.fetchrow(
        f"SELECT count(*)::int AS found, {each} FROM (SELECT p.* FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT {_COLUMNS} FROM profile p WHERE p.tenant_id = t.tenant_id AND {_SPAN} AND recharges IS NULL LIMIT $4"
        ") p WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT $4) p",
        filters.tenant_id,
        filters.first,
        filters.end,
        most,
    )
    assert row is not None
    known = row["found"] < most
    return {None: row["found"], **({state: row[f"n{at}"] for at, state in enumerate(states)} if known else {})}


async def count_ending(connection: Connection, tenant_id: int, ending: tuple[datetime, datetime], most: int) -> int:
    """How many plans in use of the dealer are told of and end in this time, up to `most`."""
    found: int | None = await connection.fetchval(
        "SELECT count(*)::int FROM (SELECT FROM profile WHERE tenant_id = $1 AND plan_use_end_at >= $2"
        f" AND plan_use_end_at < $3 AND recharges IS NULL AND {TOLD_OF} LIMIT $4) p",
        tenant_id,
        *ending,
        most,
    )
    return found or 0


async def ending_by_package(
    connection: Connection, tenant_id: int, ending: tuple[datetime, datetime], most: int
) -> dict[tuple[str, str], int]:
    """By packageCode and the kind of their supplier, how many plans in use are told of and end in this time, of so
    many."""
    rows = await connection.fetch(
        "SELECT package_code, coalesce(s.kind, made.supplier) AS kind, count(*)::int AS plans"
        " FROM (SELECT tenant_id, order_id, line, profile_id FROM profile"
        " WHERE tenant_id = $1 AND plan_use_end_at >= $2 AND plan_use_end_at < $3 AND recharges IS NULL"
        f" AND {TOLD_OF} LIMIT $4) p"
        " CROSS JOIN LATERAL (SELECT i.package_code, coalesce((SELECT l.supplier FROM profile_life l"
        "  WHERE l.tenant_id = $1 AND l.profile_id = p.profile_id), i.supplier) AS supplier"
        "  FROM order_item i WHERE i.tenant_id = $1 AND i.order_id = p.order_id AND i.line = p.line OFFSET 0"
        " ) made LEFT JOIN supplier s ON s.code = made.supplier GROUP BY 1, 2",
        tenant_id,
        *ending,
        most,
    )
    return {(row["package_code"], row["kind"]): row["plans"] for row in rows}


async def count_unmailed(connection: Connection, tenant_id: int, most: int) -> int:
    """How many of so many of the dealer's newest eSIMs are NOT_MAILED."""
    found: int | None = await connection.fetchval(_COUNT_UNMAILED, tenant_id, most)
    return found or 0


async def unmailed_orders(connection: Connection, tenant_id: int, order_ids: Sequence[int]) -> set[int]:
    """Which of these orders have an eSIM that is NOT_MAILED. Ids of its eSIMs follow that of the order."""
    rows = await connection.fetch(_UNMAILED_ORDERS, tenant_id, order_ids)
    return {row["order_id"] for row in rows}


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
        f"SELECT {maker('l', 'l')} AS supplier, created_at, unused_until, valid_until, ended_at, eid, reported_at,"
        " asked_at, daily_usage"
        " FROM profile_life l WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return Lifecycle(**{**row, "daily_usage": daily_usage.read(row["daily_usage"])}) if row else None


async def void(connection: Connection, tenant_id: int, profile_id: int) -> VoidRequest | None:
    """The request to its supplier, for a refund or a cancellation."""
    row = await connection.fetchrow(
        "SELECT profile_id, supplier, created_at, outcome FROM void_request WHERE tenant_id = $1 AND profile_id = $2",
        tenant_id,
        profile_id,
    )
    return VoidRequest(**row) if row else None
