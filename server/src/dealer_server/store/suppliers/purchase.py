"""Purchases at remote suppliers: one unit at one supplier, written down before each call.

The claim is the write-ahead: it commits SENT. After a crash, SENT with a lease that has run out means that nobody knows
(docs/decisions/0010-purchases.md).
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.store.distribution.due import fetch_all, fetch_due
from dealer_server.store.profiles.iccid import OF_SUPPLIER, OF_SUPPLIER_BY_NUMBER, OVER

State = Literal["PLANNED", "SENT", "PENDING", "UNKNOWN", "PARKED", "DONE", "REJECTED", "DROPPED", "WRITTEN_OFF"]
ASK_AGAIN_WITHIN_SECONDS = 5.0
Key = tuple[int, int, int]
"""tenant_id, profile_id, position"""


class Hop(NamedTuple):
    """One supplier on a package's route: what it calls the package, and what it asks for it (ten-thousandths)."""

    supplier: str
    sku: str
    cost: int | None
    cost_currency: str | None


class New(NamedTuple):
    """A purchase to be made; `position` counts the attempts for this profile from 0."""

    tenant_id: int
    profile_id: int
    position: int
    order_id: int
    line: int
    unit_key: str
    supplier: str
    sku: str
    cost: int | None
    cost_currency: str | None
    recharges: int | None


class Claimed(NamedTuple):
    """A purchase taken for its next call. `was`: the state it was found in. `wanted`: its profile still waits for
    codes. `held`: a pending refund names it. `verdict`: what an operator found out, sealed. `recharges`: the eSIM that
    it recharges; the fields of recharged_ are those of that eSIM, and of its purchase. `price`: what its dealer pays
    for the unit, in `currency`. `margin_floor_basis_points`: the package's own."""

    tenant_id: int
    profile_id: int
    position: int
    order_id: int
    line: int
    unit_key: str
    supplier: str
    sku: str
    cost: int | None
    cost_currency: str | None
    was: State
    step: str
    planned_iccid: str | None
    planned_matching_id: str | None
    supplier_ref: str | None
    unit_ref: str | None
    verdict: bytes | None
    calls: int
    failures: int
    unknown_since: datetime | None
    created_at: datetime
    package_code: str
    quantity: int
    period_num: int
    first_profile_id: int
    wanted: bool
    held: bool
    remark: str | None
    recharges: int | None = None
    recharged_order_id: int | None = None
    recharged_iccid: str | None = None
    recharged_unit_key: str | None = None
    recharged_sku: str | None = None
    recharged_supplier_ref: str | None = None
    recharged_unit_ref: str | None = None
    price: int = 0
    currency: str = ""
    margin_floor_basis_points: int | None = None

    @property
    def key(self) -> Key:
        return self.tenant_id, self.profile_id, self.position


class Answered(NamedTuple):
    """What a call leaves of a purchase. None leaves step, references and cost as they are."""

    key: Key
    state: State
    due_at: datetime | None
    step: str | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None
    iccid: str | None = None
    failures: int = 0
    unknown_since: datetime | None = None
    reason: str | None = None
    outcome: str = ""
    verdict: bytes | None = None
    cost: int | None = None


async def routes(session: Connection | Session, package_codes: Sequence[str]) -> dict[str, list[Hop]]:
    """Who makes these packages, in order of preference; a package without a route is missing."""
    rows = await session.fetch(
        "SELECT package_code, supplier, sku, cost, cost_currency FROM route WHERE package_code = ANY($1::text[])"
        " ORDER BY package_code, position",
        list(package_codes),
    )
    found: dict[str, list[Hop]] = {}
    for row in rows:
        hop = Hop(row["supplier"], row["sku"], row["cost"], row["cost_currency"])
        found.setdefault(row["package_code"], []).append(hop)
    return found


async def margin_floors(connection: Connection, package_codes: Sequence[str]) -> dict[str, int]:
    """The packages' own floors in basis points; those that follow the platform's setting are missing."""
    rows = await connection.fetch(
        "SELECT package_code, margin_floor_basis_points FROM route_terms WHERE package_code = ANY($1::text[])",
        list(package_codes),
    )
    return {row["package_code"]: row["margin_floor_basis_points"] for row in rows}


class PurchaseState(NamedTuple):
    """A purchase as it stands."""

    tenant_id: int
    profile_id: int
    position: int
    unit_key: str
    supplier: str
    state: State
    supplier_ref: str | None
    recharges: int | None

    @property
    def key(self) -> Key:
        return self.tenant_id, self.profile_id, self.position


async def of_order(connection: Connection, order: tuple[int, int]) -> dict[int, list[PurchaseState]]:
    """An order's purchases by profileId, in their order, locked until the transaction ends. Lock the order first."""
    found = await connection.fetch(
        "SELECT b.tenant_id, b.profile_id, b.position, b.unit_key, b.supplier, b.state, b.supplier_ref,"
        " b.recharges"
        " FROM profile p JOIN purchase b USING (tenant_id, profile_id) WHERE p.tenant_id = $1 AND p.profile_id = ANY("
        "  SELECT generate_series(first_profile_id, first_profile_id + quantity - 1) FROM order_item"
        "  WHERE tenant_id = $1 AND order_id = $2)"
        " ORDER BY b.profile_id, b.position FOR NO KEY UPDATE OF b",
        *order,
    )
    made: dict[int, list[PurchaseState]] = {}
    for row in found:
        made.setdefault(row["profile_id"], []).append(PurchaseState(**row))
    return made


async def drop_planned(connection: Connection, keys: Sequence[Key], now: datetime) -> None:
    """Of these, what is only planned is given up: it is bought by another route."""
    await connection.execute(
        "UPDATE purchase p SET state = 'DROPPED', due_at = NULL, finished_at = $4, reason = 'sent by another route'"
        " FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS key(tenant_id, profile_id, position)"
        " WHERE p.tenant_id = key.tenant_id AND p.profile_id = key.profile_id AND p.position = key.position"
        " AND p.state = 'PLANNED'",
        *columns(keys, 3),
        now,
    )


async def make_due(connection: Connection, keys: Sequence[Key], now: datetime) -> None:
    """Of these, what waits for its supplier is tried now."""
    await connection.execute(
        "UPDATE purchase p SET due_at = $4"
        " FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS key(tenant_id, profile_id, position)"
        " WHERE p.tenant_id = key.tenant_id AND p.profile_id = key.profile_id AND p.position = key.position"
        " AND p.state = 'PLANNED'",
        *columns(keys, 3),
        now,
    )


async def add(session: Connection | Session, new: Sequence[New], now: datetime) -> None:
    """Plans purchases; one that is planned already stays as it is."""
    await session.fetch(
        "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, cost,"
        " cost_currency, recharges, due_at, created_at)"
        " SELECT *, $12, $12 FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::bigint[], $5::smallint[],"
        " $6::text[], $7::text[], $8::text[], $9::bigint[], $10::text[], $11::bigint[])"
        " ON CONFLICT (tenant_id, profile_id, position) DO NOTHING",
        *columns(new, 11),
        now,
    )


# SENT is written together with the log of the call; both are committed before anything is sent.
_DUE = f"""
SELECT tenant_id FROM purchase WHERE {OF_ALL} supplier = $1 AND due_at <= $2 AND ($4 OR state <> 'PLANNED')
ORDER BY due_at LIMIT $3
"""
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, profile_id, position, state FROM purchase
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 AND ($6 OR state <> 'PLANNED')
    ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE purchase p SET state = 'SENT', due_at = $3, claim = $4, calls = calls + 1, told = false,
        unknown_since = CASE WHEN due.state = 'SENT' THEN coalesce(p.unknown_since, $2) ELSE p.unknown_since END
    FROM due WHERE p.tenant_id = due.tenant_id AND p.profile_id = due.profile_id AND p.position = due.position
    RETURNING p.*, due.state AS was
), logged AS (
    INSERT INTO supplier_call (tenant_id, profile_id, position, number, supplier, kind, step, sent_at)
    SELECT tenant_id, profile_id, position, calls, supplier,
        CASE WHEN was IN ('SENT', 'UNKNOWN') THEN 'PROBE' ELSE 'ALLOCATE' END, step, $2 FROM taken
)
SELECT t.tenant_id, t.profile_id, t.position, t.order_id, t.line, t.unit_key, t.supplier, t.sku, t.cost,
    t.cost_currency, t.was, t.step, t.planned_iccid, t.planned_matching_id, t.supplier_ref, t.unit_ref, t.verdict,
    t.calls, t.failures,
    t.unknown_since, t.created_at, i.package_code, i.quantity, i.period_num, i.first_profile_id,
    p.lifecycle_status = 'PENDING' AND NOT p.failed AND NOT p.refunded AND NOT coalesce(e.cancelled, false) AS wanted,
    p.held, o.remark, o.currency, i.price, f.margin_floor_basis_points,
    t.recharges, e.order_id AS recharged_order_id, e.iccid AS recharged_iccid, b.unit_key AS recharged_unit_key,
    b.sku AS recharged_sku, b.supplier_ref AS recharged_supplier_ref, b.unit_ref AS recharged_unit_ref
FROM taken t JOIN order_item i ON i.tenant_id = t.tenant_id AND i.order_id = t.order_id AND i.line = t.line
JOIN profile p ON p.tenant_id = t.tenant_id AND p.profile_id = t.profile_id
JOIN orders o ON o.tenant_id = t.tenant_id AND o.order_id = t.order_id
LEFT JOIN route_terms f ON f.package_code = i.package_code
LEFT JOIN profile e ON e.tenant_id = t.tenant_id AND e.profile_id = t.recharges
LEFT JOIN purchase b ON b.tenant_id = e.tenant_id AND b.profile_id = e.profile_id AND b.iccid = e.iccid
"""


async def claim(
    session: Session, supplier: str, claim_id: int, now: datetime, until: datetime, limit: int, *, new_too: bool
) -> list[Claimed]:
    """Takes a supplier's due purchases until the lease ends. `new_too`: also those nothing was asked for yet."""
    args = supplier, now, until, claim_id, limit, new_too
    rows = await fetch_due(session, _CLAIM, args, _DUE, (supplier, now, limit, new_too), limit)
    return [Claimed(**row) for row in rows]


async def reprice(session: Session, package_code: str, hop: Hop, cost: int) -> int | None:
    """Gives a package's route the supplier's new price; the cost it had, None where it has this one or is no route."""
    rows = await session.fetch(
        "UPDATE route r SET cost = $4 FROM (SELECT * FROM route WHERE package_code = $1 AND supplier = $2 AND sku = $3"
        "  AND cost IS DISTINCT FROM $4 AND cost_currency = $5 FOR UPDATE) old"
        " WHERE r.package_code = old.package_code AND r.position = old.position RETURNING old.cost",
        package_code,
        hop.supplier,
        hop.sku,
        cost,
        hop.cost_currency,
    )
    return rows[0]["cost"] if rows else None


async def plan_ids(session: Session, supplier: str, wanted: Sequence[tuple[Key, str, str]]) -> dict[Key, str]:
    """Gives each (key, sku, matching_id) an ICCID of the loaded range, as far as they last; within the claim's
    transaction, so that the ids stand before the first call. None is ever given twice."""
    given: dict[Key, str] = {}
    for sku in sorted({sku for _, sku, _ in wanted}):
        mine = [(key, matching_id) for key, of, matching_id in wanted if of == sku]
        rows = await session.fetch(
            "SELECT iccid FROM iccid_range WHERE supplier = $1 AND sku = $2 AND taken_by IS NULL"
            " ORDER BY iccid LIMIT $3 FOR UPDATE SKIP LOCKED",
            supplier,
            sku,
            len(mine),
        )
        for row, (key, matching_id) in zip(rows, mine, strict=False):
            given[key] = row["iccid"]
            await session.fetch(
                "WITH taken AS (UPDATE iccid_range SET taken_by = $5 WHERE supplier = $1 AND iccid = $2)"
                " UPDATE purchase SET planned_iccid = $2, planned_matching_id = $6"
                " WHERE tenant_id = $3 AND profile_id = $4 AND position = $7",
                supplier,
                row["iccid"],
                *key[:2],
                "/".join(map(str, key)),
                matching_id,
                key[2],
            )
    return given


async def held(session: Session, claim_id: int, keys: Sequence[Key]) -> set[Key]:
    """Which are still this claim's, locked until the transaction ends. Lock their orders first."""
    rows = await session.fetch(
        f"SELECT p.* FROM {batch('key', 2, tenant_id='bigint', profile_id='bigint', position='smallint')}"
        " CROSS JOIN LATERAL (SELECT tenant_id, profile_id, position FROM purchase p WHERE p.tenant_id = key.tenant_id"
        " AND p.profile_id = key.profile_id AND p.position = key.position AND p.claim = $1 AND p.state = 'SENT'"
        " FOR NO KEY UPDATE) p",
        claim_id,
        *columns(sorted(keys), 3),
    )
    return {(row["tenant_id"], row["profile_id"], row["position"]) for row in rows}


async def record(session: Session, answered: Sequence[Answered], now: datetime) -> None:
    """Writes what calls left of purchases that are held, and closes the log of their calls. Its supplier is asked again
    at once where it sent a message during the call, which may answer with what was so before."""
    await session.fetch(
        "WITH new AS (SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::text[], $6::timestamptz[],"
        " $7::text[], $8::text[], $9::text[], $10::text[], $11::int[], $12::timestamptz[], $13::text[], $14::text[],"
        " $15::bytea[], $16::bigint[])"
        " AS new(tenant_id, profile_id, position, state, due_at, step, supplier_ref, unit_ref, iccid, failures,"
        " unknown_since, reason, outcome, verdict, cost)"
        "), logged AS (UPDATE supplier_call c SET answered_at = $1, outcome = new.outcome, message = new.reason"
        " FROM new JOIN purchase p USING (tenant_id, profile_id, position)"
        " WHERE c.tenant_id = p.tenant_id AND c.profile_id = p.profile_id AND c.position = p.position"
        " AND c.number = p.calls)"
        " UPDATE purchase p SET state = new.state,"
        " due_at = CASE WHEN p.told AND new.state IN ('PENDING', 'UNKNOWN') THEN $1 ELSE new.due_at END,"
        " step = coalesce(new.step, p.step),"
        " supplier_ref = coalesce(new.supplier_ref, p.supplier_ref), unit_ref = coalesce(new.unit_ref, p.unit_ref),"
        " iccid = new.iccid, failures = new.failures, unknown_since = new.unknown_since, reason = new.reason,"
        " claim = NULL, verdict = new.verdict, cost = coalesce(new.cost, p.cost),"
        " finished_at = CASE WHEN new.state IN ('DONE', 'REJECTED', 'DROPPED', 'WRITTEN_OFF') THEN $1 END"
        " FROM new WHERE p.tenant_id = new.tenant_id AND p.profile_id = new.profile_id AND p.position = new.position",
        now,
        *columns(
            [
                (
                    *answer.key,
                    answer.state,
                    answer.due_at,
                    answer.step,
                    answer.supplier_ref,
                    answer.unit_ref,
                    answer.iccid,
                    answer.failures,
                    answer.unknown_since,
                    answer.reason,
                    answer.outcome,
                    answer.verdict,
                    answer.cost,
                )
                for answer in answered
            ],
            15,
        ),
    )
    if session.distributed:
        await _claim_units(session, [answer.key for answer in answered])


# Where tables are distributed by tenant no node sees the purchases of all: the coordinator says whose a unit is.
_CLAIMED = """
SELECT p.supplier, CASE WHEN p.unit_ref IS NOT NULL THEN 'UNIT' ELSE 'ICCID' END AS kind,
    coalesce(p.unit_ref, p.iccid) AS value, p.tenant_id, p.profile_id, p.position
FROM unnest($1::bigint[], $2::bigint[], $3::smallint[]) AS key(tenant_id, profile_id, position)
JOIN purchase p ON p.tenant_id = key.tenant_id AND p.profile_id = key.profile_id AND p.position = key.position
WHERE p.unit_ref IS NOT NULL OR p.iccid IS NOT NULL AND p.supplier_ref IS NULL
"""
_UNCLAIM = """
DELETE FROM purchase_claim c USING unnest($1::bigint[], $2::bigint[], $3::smallint[])
    AS key(tenant_id, profile_id, position)
WHERE c.tenant_id = key.tenant_id AND c.profile_id = key.profile_id AND c.position = key.position RETURNING 1
"""
_CLAIM_UNIT = (
    "INSERT INTO purchase_claim (supplier, kind, value, tenant_id, profile_id, position)"
    " VALUES ($1, $2, $3, $4, $5, $6)"
)


async def _claim_units(session: Session, keys: Sequence[Key]) -> None:
    """Raises UniqueViolationError for a unit that is another purchase's, as the indexes of plain PostgreSQL do."""
    of_keys = columns(keys, 3)
    await session.fetch(_UNCLAIM, *of_keys)
    for row in await session.fetch(_CLAIMED, *of_keys):
        await session.fetch(_CLAIM_UNIT, *row)


async def make_due_by_name(session: Connection | Session, supplier: str, names: Sequence[str], now: datetime) -> int:
    """Purchases and delivered eSIMs with these supplier_refs, unit_keys, unit_refs or ICCIDs are due now: their
    supplier sent a message about them. One that is being asked about is due once the answer is recorded. An ICCID names
    the live eSIM, else the newest. How many there are."""
    if is_distributed(session):
        return await _make_due_by_tenant(session, supplier, names, now)
    rows = await session.fetch(
        "WITH found AS (SELECT tenant_id, profile_id, position FROM purchase WHERE supplier = $1"
        "  AND (supplier_ref = ANY($2::text[]) OR unit_key = ANY($2::text[]) OR unit_ref = ANY($2::text[]))"
        "  UNION SELECT b.tenant_id, b.profile_id, b.position FROM unnest($2::text[]) AS key(iccid)"
        f"  JOIN LATERAL ({OF_SUPPLIER}) l ON true"
        "  JOIN purchase b ON b.tenant_id = l.tenant_id AND b.profile_id = l.profile_id AND b.iccid = l.iccid"
        "), due_purchases AS (UPDATE purchase p SET told = p.state = 'SENT',"
        "  due_at = CASE WHEN p.state = 'SENT' THEN p.due_at ELSE $3 END FROM found f WHERE p.tenant_id = f.tenant_id"
        "  AND p.profile_id = f.profile_id AND p.position = f.position AND p.state IN ('SENT', 'PENDING', 'UNKNOWN')"
        "), due_profiles AS (UPDATE profile_life l SET due_at = $3 FROM found f WHERE l.tenant_id = f.tenant_id"
        "  AND l.profile_id = f.profile_id AND l.supplier = $1 AND l.due_at IS NOT NULL)"
        " SELECT count(*) AS named FROM found",
        supplier,
        list(names),
        now,
    )
    return rows[0]["named"]


_FOUND = f"""
WITH key AS (SELECT * FROM unnest($2::text[]) WITH ORDINALITY AS key(iccid, number))
SELECT tenant_id, profile_id, position FROM purchase WHERE supplier = $1
    AND (supplier_ref = ANY($2::text[]) OR unit_key = ANY($2::text[]) OR unit_ref = ANY($2::text[]))
UNION SELECT b.tenant_id, b.profile_id, b.position FROM ({OF_SUPPLIER_BY_NUMBER}) l
    JOIN purchase b ON b.tenant_id = l.tenant_id AND b.profile_id = l.profile_id AND b.iccid = l.iccid
"""
_KEYS = "unnest($2::bigint[], $3::bigint[], $4::smallint[]) AS f(tenant_id, profile_id, position)"


async def _make_due_by_tenant(session: Connection | Session, supplier: str, names: Sequence[str], now: datetime) -> int:
    found = await session.fetch(_FOUND, supplier, list(names))
    keys = columns([(row["tenant_id"], row["profile_id"], row["position"]) for row in found], 3)
    await session.fetch(
        "UPDATE purchase p SET told = p.state = 'SENT', due_at = CASE WHEN p.state = 'SENT' THEN p.due_at ELSE $1 END"
        f" FROM {_KEYS} WHERE p.tenant_id = f.tenant_id AND p.profile_id = f.profile_id AND p.position = f.position"
        " AND p.state IN ('SENT', 'PENDING', 'UNKNOWN') RETURNING 1",
        now,
        *keys,
    )
    await session.fetch(
        f"UPDATE profile_life l SET due_at = $1 FROM {_KEYS} WHERE l.tenant_id = f.tenant_id"
        " AND l.profile_id = f.profile_id AND l.supplier = $5 AND l.due_at IS NOT NULL RETURNING 1",
        now,
        *keys,
        supplier,
    )
    return len(found)


async def make_unknown_due(session: Session, supplier: str, now: datetime) -> None:
    """The supplier answers again: what is unknown there is due within seconds."""
    until = now + timedelta(seconds=ASK_AGAIN_WITHIN_SECONDS)
    if session.distributed:
        await _make_unknown_due_by_tenant(session, supplier, now, until)
        return
    await session.fetch(
        "UPDATE purchase p SET due_at = $2::timestamptz + random() * ($3::timestamptz - $2)"
        " FROM (SELECT tenant_id, profile_id, position FROM purchase WHERE supplier = $1 AND state = 'UNKNOWN'"
        "  AND verdict IS NULL AND due_at > $3 FOR NO KEY UPDATE SKIP LOCKED) u"
        " WHERE p.tenant_id = u.tenant_id AND p.profile_id = u.profile_id AND p.position = u.position",
        supplier,
        now,
        until,
    )


async def _make_unknown_due_by_tenant(session: Session, supplier: str, now: datetime, until: datetime) -> None:
    """A node draws nothing, so that the times are drawn here."""
    found = await fetch_all(
        session,
        f"SELECT tenant_id, profile_id, position FROM purchase WHERE {OF_ALL} supplier = $1 AND state = 'UNKNOWN'"
        " AND verdict IS NULL AND due_at > $2",
        supplier,
        until,
    )
    drawn = [
        (row["tenant_id"], row["profile_id"], row["position"], now + random.random() * (until - now)) for row in found
    ]
    if drawn:
        await session.fetch(
            "UPDATE purchase p SET due_at = u.due_at"
            " FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::timestamptz[])"
            " AS u(tenant_id, profile_id, position, due_at) WHERE p.tenant_id = u.tenant_id"
            " AND p.profile_id = u.profile_id AND p.position = u.position AND p.state = 'UNKNOWN' RETURNING 1",
            *columns(drawn, 4),
        )


def verdict_context(unit_key: str) -> bytes:
    return f"verdict|{unit_key}".encode()


async def resolve(connection: Connection, key: Key, verdict: bytes, now: datetime) -> bool:
    """Hands a parked purchase back to its worker with what an operator found out; False where it is not parked."""
    rows = await connection.fetch(
        "UPDATE purchase SET state = 'UNKNOWN', verdict = $4, due_at = $5, unknown_since = $5"
        " WHERE tenant_id = $1 AND profile_id = $2 AND position = $3 AND state = 'PARKED' RETURNING 1",
        *key,
        verdict,
        now,
    )
    return bool(rows)


async def known_by(connection: Connection, supplier: str, iccid: str, unit_ref: str | None) -> str | None:
    """The unit_key of a purchase that such an eSIM cannot be told from: it has the reference or, where none is given,
    the ICCID, while its profile is live or it has no reference either."""
    if unit_ref is not None:
        sql = "SELECT unit_key FROM purchase WHERE supplier = $1 AND unit_ref = $2"
        return await connection.fetchval(sql, supplier, unit_ref)
    return await connection.fetchval(
        "SELECT b.unit_key FROM profile_life l JOIN profile p USING (tenant_id, profile_id)"
        " JOIN purchase b ON b.tenant_id = l.tenant_id AND b.profile_id = l.profile_id AND b.iccid = l.iccid"
        f" WHERE l.supplier = $1 AND l.iccid = $2 AND NOT {OVER}"
        " UNION ALL SELECT unit_key FROM purchase WHERE supplier = $1 AND iccid = $2 AND unit_ref IS NULL"
        " AND supplier_ref IS NULL LIMIT 1",
        supplier,
        iccid,
    )


def seal_verdict(keys: DataKeys, unit_key: str, verdict: bytes) -> bytes:
    return keys.seal(verdict, verdict_context(unit_key))
