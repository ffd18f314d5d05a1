"""Delivered profiles after their delivery: what suppliers reported of each, and when it is due again.

A row is locked after its order. `claim` waits for no lock.
"""

import random
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from dealer_server.db.arrays import batch, columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session
from dealer_server.rules.lifecycle.lifecycle import Lifecycle, LifecycleTerms
from dealer_server.rules.orders.model import AppliedPlan, Item, Order, Profile, generation
from dealer_server.store.distribution.due import fetch_due
from dealer_server.store.profiles import daily_usage, plans
from dealer_server.store.profiles.iccid import OF_SUPPLIER, OF_SUPPLIER_BY_NUMBER, RANK

Key = tuple[int, int]
"""tenant_id, profile_id"""

_BEGIN = """
WITH delivered AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::int[],
        $8::bool[]) AS delivered(tenant_id, profile_id, order_id, line, iccid, package_code, period_num, begun)
), terms AS MATERIALIZED (
    SELECT package_code, (document ->> 'unused_valid_days')::float8 * 86400 AS unused_seconds,
        (document ->> 'duration')::float8 * 86400 AS plan_seconds
    FROM package WHERE package_code = ANY($10::text[])
), new AS (
    SELECT delivered.*, $11::timestamptz + unused_seconds / $9::float8 * interval '1 second' AS unused_until,
        greatest(plan_seconds * period_num / $9, 1)::bigint AS plan_seconds
    FROM delivered JOIN terms USING (package_code)
)
INSERT INTO profile_life
    (tenant_id, profile_id, order_id, line, supplier, iccid, unused_until, plan_seconds, created_at, due_at)
SELECT tenant_id, profile_id, order_id, line, $12, iccid, unused_until, plan_seconds, $11,
    CASE WHEN package_code = ANY($13::text[]) THEN $11
        WHEN $14::float8 IS NULL THEN unused_until
        WHEN begun THEN $11
        ELSE $11 + (0.9 + 0.2 * random()) * $14 * interval '1 second' END
FROM new
"""


_NEW = {None, "GOT_RESOURCE", "RELEASED"}
"""Words of an eSIM that nobody has touched."""


class Delivered(NamedTuple):
    """A profile that has just got its codes."""

    order: Order
    item: Item
    profile: Profile


async def begin(
    session: Session, delivered: Sequence[Delivered], supplier: str, terms: LifecycleTerms, now: datetime
) -> None:
    """Follows profiles that this supplier has just made. Where it says of one that it is installed or in use already,
    it is asked at once since when, and of its usage."""
    rows = [
        (order.tenant_id, profile.profile_id, order.order_id, item.line, profile.iccid, item.package_code,
         item.period_num, not {profile.smdp_status, profile.esim_status} <= _NEW)
        for order, item, profile in delivered
    ]  # fmt: skip
    packages = sorted({item.package_code for _, item, _ in delivered})
    if session.distributed:
        await _begin_by_tenant(session, rows, supplier, terms, now)
        return
    await session.fetch(
        _BEGIN,
        *columns(rows, 8),
        terms.plan_speed,
        packages,
        now,
        supplier,
        list(terms.scripted_packages),
        terms.first_refresh_seconds,
    )


_TERMS = """
SELECT package_code, (document ->> 'unused_valid_days')::float8 * 86400 AS unused_seconds,
    (document ->> 'duration')::float8 * 86400 AS plan_seconds
FROM package WHERE package_code = ANY($1::text[])
"""
# The same on the node of a dealer, which reads no package: a table of every node would bring all of them into it. The
# first refresh of each is drawn before.
_BEGIN_BY_TENANT = """
INSERT INTO profile_life
    (tenant_id, profile_id, order_id, line, supplier, iccid, unused_until, plan_seconds, created_at, due_at)
SELECT w.tenant_id, d.profile_id, d.order_id, d.line, $10::text, d.iccid,
    $11::timestamptz + d.unused_seconds * interval '1 second', d.plan_seconds, $11::timestamptz,
    CASE WHEN d.package_code = ANY($12::text[]) THEN $11::timestamptz
        ELSE $11::timestamptz + coalesce(d.first_seconds, d.unused_seconds) * interval '1 second' END
FROM wallet w CROSS JOIN unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::float8[],
    $8::bigint[], $9::float8[])
    AS d(profile_id, order_id, line, iccid, package_code, unused_seconds, plan_seconds, first_seconds)
WHERE w.tenant_id = $1
"""


async def _begin_by_tenant(
    session: Session,
    rows: Sequence[tuple[int, int, int, int, str | None, str, int, bool]],
    supplier: str,
    terms: LifecycleTerms,
    now: datetime,
) -> None:
    codes = {package_code for *_, package_code, _, _ in rows}
    found = await session.fetch(_TERMS, sorted(codes))
    of_package = {row["package_code"]: (row["unused_seconds"], row["plan_seconds"]) for row in found}
    mine: dict[int, list[tuple[object, ...]]] = {}
    for tenant_id, profile_id, order_id, line, iccid, package_code, period_num, begun in rows:
        unused, plan = of_package[package_code]
        first = terms.first_refresh_seconds
        mine.setdefault(tenant_id, []).append(
            (profile_id, order_id, line, iccid, package_code, unused / terms.plan_speed,
             round(max(plan * period_num / terms.plan_speed, 1)),
             None if first is None else 0.0 if begun else (0.9 + 0.2 * random.random()) * first)
        )  # fmt: skip
    for tenant_id in sorted(mine):
        of_tenant = columns(mine[tenant_id], 8)
        scripted = list(terms.scripted_packages)
        await session.fetch(_BEGIN_BY_TENANT, tenant_id, *of_tenant, supplier, now, scripted)


class FollowedProfile(NamedTuple):
    """A delivered profile as it is stored here. unit_key, sku, supplier_ref and unit_ref are those of its purchase, if
    it has one. `claims` counts how often it was claimed since its supplier last answered. `recharging`: its supplier is
    asked for a recharge of it, or may have made one."""

    tenant_id: int
    profile_id: int
    order_id: int
    line: int
    supplier: str
    iccid: str
    package_code: str
    data_total_bytes: int | None
    cancelled: bool
    plans: tuple[AppliedPlan, ...]
    created_at: datetime
    due_at: datetime | None
    claim: int | None
    claims: int
    unit_key: str
    sku: str
    supplier_ref: str | None
    unit_ref: str | None
    recharging: bool
    life: Lifecycle

    @property
    def key(self) -> Key:
        return self.tenant_id, self.profile_id

    @property
    def order(self) -> tuple[int, int]:
        return self.tenant_id, self.order_id

    @property
    def generation(self) -> int:
        return generation(self.plans)


_COLUMNS = """l.tenant_id, l.profile_id, l.order_id, l.line, l.supplier, l.iccid, i.package_code, p.data_total_bytes,
    p.cancelled, p.plans, l.created_at, l.due_at, l.claim, l.claims, coalesce(b.unit_key, '') AS unit_key,
    coalesce(b.sku, i.package_code) AS sku, b.supplier_ref, b.unit_ref,
    EXISTS (SELECT FROM profile r JOIN purchase a ON a.tenant_id = r.tenant_id AND a.profile_id = r.profile_id
        WHERE r.tenant_id = l.tenant_id AND r.recharges = l.profile_id AND r.plan_mode IS NULL
        AND a.state IN ('SENT', 'PENDING', 'UNKNOWN', 'PARKED') OFFSET 0) AS recharging,
    l.unused_until, l.plan_seconds, l.smdp_at, l.esim_at, l.ended_at, l.valid_until, l.eid, l.suspended_word_at,
    l.resumed_word_at, l.live_status, l.live_at, l.daily_usage"""
# OFFSET 0: each row is looked up by its key, whatever the statistics say.
_JOINED = """CROSS JOIN LATERAL (SELECT package_code FROM order_item i
        WHERE i.tenant_id = l.tenant_id AND i.order_id = l.order_id AND i.line = l.line OFFSET 0) i
    CROSS JOIN LATERAL (SELECT data_total_bytes, cancelled, plans FROM profile p
        WHERE p.tenant_id = l.tenant_id AND p.profile_id = l.profile_id OFFSET 0) p
    LEFT JOIN LATERAL (SELECT unit_key, sku, supplier_ref, unit_ref FROM purchase b
        WHERE b.tenant_id = l.tenant_id AND b.profile_id = l.profile_id AND b.iccid = l.iccid OFFSET 0) b ON true"""

_DUE = f"SELECT tenant_id FROM profile_life WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, profile_id FROM profile_life
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $5
    FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE profile_life l SET due_at = $3, claim = $4, claims = claims + 1 FROM due
    WHERE l.tenant_id = due.tenant_id AND l.profile_id = due.profile_id RETURNING l.*
)
SELECT {_COLUMNS} FROM taken l {_JOINED}
"""


async def claim(
    session: Session, supplier: str, claim_id: int, now: datetime, until: datetime, limit: int
) -> list[FollowedProfile]:
    """Claims a supplier's due profiles until the lease ends. No two workers get the same; what a dead one had comes due
    again."""
    args = supplier, now, until, claim_id, limit
    return [_followed(row) for row in await fetch_due(session, _CLAIM, args, _DUE, (supplier, now, limit), limit)]


async def named(
    connection: Connection | Session, supplier: str, names: Sequence[tuple[str | None, str | None, str | None]]
) -> list[list[tuple[int, int, int]]]:
    """For each (iccid, unit_key, supplier_ref) the (tenant_id, order_id, profile_id) of this supplier's eSIMs it names:
    by unit_key, else by supplier_ref, else by ICCID, which names the live one, else the newest. Empty where it is none
    of ours."""
    of_supplier = f"key JOIN LATERAL ({OF_SUPPLIER}) l ON true"
    if is_distributed(connection):
        of_supplier = (
            "(SELECT key.*, l.tenant_id, l.order_id, l.profile_id FROM key"
            f" JOIN ({OF_SUPPLIER_BY_NUMBER}) l USING (number)) l"
        )
    rows = await connection.fetch(
        "WITH key AS (SELECT * FROM unnest($2::text[], $3::text[], $4::text[])"
        "  WITH ORDINALITY AS key(iccid, unit_key, ref, number))"
        " SELECT number, l.tenant_id, l.order_id, l.profile_id FROM key"
        " JOIN purchase b ON b.supplier = $1 AND b.unit_key = key.unit_key"
        " JOIN profile_life l ON l.tenant_id = b.tenant_id AND l.profile_id = b.profile_id AND l.iccid = b.iccid"
        " UNION ALL SELECT number, l.tenant_id, l.order_id, l.profile_id FROM key"
        " JOIN purchase b ON b.supplier = $1 AND b.supplier_ref = key.ref"
        " JOIN profile_life l ON l.tenant_id = b.tenant_id AND l.profile_id = b.profile_id AND l.iccid = b.iccid"
        " WHERE key.unit_key IS NULL"
        f" UNION ALL SELECT number, l.tenant_id, l.order_id, l.profile_id FROM {of_supplier}"
        " WHERE unit_key IS NULL AND ref IS NULL",
        supplier,
        *columns(names, 3),
    )
    found: list[list[tuple[int, int, int]]] = [[] for _ in names]
    for row in rows:
        found[row["number"] - 1].append((row["tenant_id"], row["order_id"], row["profile_id"]))
    return found


async def lock(
    connection: Connection | Session, keys: Sequence[Key], claim_id: int | None = None
) -> dict[int, FollowedProfile]:
    """By profileId, locked until the transaction ends; with `claim_id` only those that are still this claim's. Lock
    their orders first."""
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM {batch('key', tenant_id='bigint', profile_id='bigint')} CROSS JOIN LATERAL"
        " (SELECT * FROM profile_life l WHERE l.tenant_id = key.tenant_id AND l.profile_id = key.profile_id"
        "  AND CASE WHEN $3::bigint IS NULL OR l.claim = $3 THEN true END FOR NO KEY UPDATE) l"
        f" {_JOINED}",
        *columns(sorted(set(keys)), 2),
        claim_id,
    )
    return {row["profile_id"]: _followed(row) for row in rows}


async def make_due(session: Connection | Session, keys: Sequence[Key], now: datetime) -> None:
    """Those of these profiles that are still followed are due now."""
    await session.fetch(
        f"UPDATE profile_life l SET due_at = $1 FROM {batch('key', 2, tenant_id='bigint', profile_id='bigint')}"
        " WHERE l.tenant_id = key.tenant_id AND l.profile_id = key.profile_id AND l.due_at IS NOT NULL",
        now,
        *columns(keys, 2),
    )


async def follow_again(session: Session, keys: Sequence[Key], now: datetime) -> None:
    """These profiles are due now, also those that were followed no more."""
    if keys:
        await session.fetch(
            f"UPDATE profile_life l SET due_at = $1 FROM {batch('key', 2, tenant_id='bigint', profile_id='bigint')}"
            " WHERE l.tenant_id = key.tenant_id AND l.profile_id = key.profile_id",
            now,
            *columns(keys, 2),
        )


class Written(NamedTuple):
    """What becomes of a locked row. `reported`: its supplier has reported on it; `asked` False: it cannot be asked, so
    that no call waits for it."""

    key: Key
    life: Lifecycle
    due_at: datetime | None
    claim: int | None
    claims: int
    reported: bool
    asked: bool


async def record(connection: Connection | Session, written: Sequence[Written], now: datetime) -> None:
    done = await connection.fetch(
        "UPDATE profile_life l SET smdp_at = new.smdp_at, esim_at = new.esim_at, ended_at = new.ended_at,"
        " valid_until = new.valid_until, eid = new.eid, suspended_word_at = new.suspended_word_at,"
        " resumed_word_at = new.resumed_word_at, plan_seconds = new.plan_seconds,"
        " live_status = new.live_status, live_at = new.live_at, daily_usage = new.daily_usage,"
        " due_at = new.due_at, claim = new.claim, claims = new.claims,"
        " reported_at = CASE WHEN new.reported THEN greatest($1, l.asked_at) ELSE l.reported_at END,"
        " asked_at = CASE WHEN new.asked THEN l.asked_at END"
        " FROM unnest($2::bigint[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[],"
        " $7::timestamptz[], $8::text[], $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::bigint[],"
        " $13::int[], $14::bool[], $15::bool[], $16::bigint[], $17::text[], $18::timestamptz[], $19::jsonb[])"
        " AS new(tenant_id, profile_id, smdp_at, esim_at, ended_at, valid_until, eid, suspended_word_at,"
        " resumed_word_at, due_at, claim, claims, reported, asked, plan_seconds, live_status, live_at, daily_usage)"
        " WHERE l.tenant_id = new.tenant_id AND l.profile_id = new.profile_id RETURNING 1",
        now,
        *columns(
            [
                (*one.key, one.life.smdp_at, one.life.esim_at, one.life.ended_at, one.life.valid_until, one.life.eid,
                 one.life.suspended_word_at, one.life.resumed_word_at, one.due_at, one.claim, one.claims, one.reported,
                 one.asked, one.life.plan_seconds, one.life.live_status, one.life.live_at,
                 daily_usage.written(one.life.daily_usage))
                for one in written
            ],
            18,
        ),
    )  # fmt: skip
    assert len(done) == len(written), "a followed profile is gone"


class Seen(NamedTuple):
    """A profile whose usage is asked for. told_at: when its supplier last reported on it. answered: its supplier has
    reported since it was last asked. waiting: it was asked, and may still answer."""

    tenant_id: int
    profile_id: int
    supplier: str
    told_at: datetime
    answered: bool
    waiting: bool
    profile: Profile


_PROFILE_FIELDS = (
    "profile_id", "lifecycle_status", "iccid", "plan_use_status", "plan_use_start_at", "plan_use_end_at",
    "data_total_bytes", "data_usage_bytes",
)  # fmt: skip


async def look(connection: Connection, tenant_id: int, profile_id: int | None, iccid: str | None) -> Seen | None:
    """A profile of this tenant, named by its id or its iccid."""
    row = await connection.fetchrow(
        "SELECT p.tenant_id, i.supplier, coalesce(l.reported_at, l.created_at, p.updated_at) AS told_at,"
        " coalesce(l.reported_at >= l.asked_at, false) AS answered,"
        " coalesce(l.asked_at > coalesce(l.reported_at, '-infinity'), false) AS waiting,"
        f" {', '.join(f'p.{name}' for name in _PROFILE_FIELDS)}"
        " FROM profile p JOIN order_item i USING (tenant_id, order_id, line)"
        " LEFT JOIN profile_life l USING (tenant_id, profile_id)"
        " WHERE p.tenant_id = $1 AND (p.profile_id = $2 OR p.iccid = $3) AND p.recharges IS NULL"
        f" ORDER BY {RANK} DESC LIMIT 1",
        tenant_id,
        profile_id,
        iccid,
    )
    if row is None:
        return None
    return Seen(
        tenant_id=row["tenant_id"],
        profile_id=row["profile_id"],
        supplier=row["supplier"],
        told_at=row["told_at"],
        answered=row["answered"],
        waiting=row["waiting"],
        profile=Profile(**{name: row[name] for name in _PROFILE_FIELDS}),
    )


async def ask(connection: Connection, key: Key, now: datetime, not_since: datetime) -> bool:
    """Makes a profile due, so that its supplier is asked, unless it was asked since `not_since`; whether it is now."""
    done = await connection.fetchval(
        "UPDATE profile_life SET asked_at = $3, due_at = $3 WHERE tenant_id = $1 AND profile_id = $2"
        " AND (asked_at IS NULL OR asked_at < $4) RETURNING true",
        *key,
        now,
        not_since,
    )
    return bool(done)


def _followed(row: asyncpg.Record) -> FollowedProfile:
    fields = dict(row)
    fields["daily_usage"] = daily_usage.read(fields["daily_usage"])
    life = Lifecycle(**{name: fields.pop(name) for name in Lifecycle.__struct_fields__})
    fields["plans"] = plans.read(fields["plans"])
    return FollowedProfile(**fields, life=life)
