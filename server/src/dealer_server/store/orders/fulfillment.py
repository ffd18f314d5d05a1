"""Order lines that wait for eSIMs: claimed in batches, and what suppliers answered written back (architecture, work
rows)."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import Item, Order, Profile

LineKey = tuple[int, int, int]
"""tenant_id, order_id, line"""


class Claimed(NamedTuple):
    """An order line taken for fulfillment. `pending` are its profiles that still wait for codes; `claims` counts how
    often it was claimed since its supplier last answered."""

    tenant_id: int
    order_id: int
    line: int
    package_code: str
    quantity: int
    period_num: int
    first_profile_id: int
    claims: int
    paid_at: datetime
    pending: Sequence[int]

    @property
    def key(self) -> LineKey:
        return self.tenant_id, self.order_id, self.line


class Scheduled(NamedTuple):
    """When fulfillment looks at a line again: never, where `due_at` is None. `answered`: its claims count anew."""

    key: LineKey
    due_at: datetime | None
    answered: bool


# The profiles are those of the snapshot the claim is made on; what changes until the answers are recorded is seen then.
_CLAIM = """
WITH due AS (
    SELECT tenant_id, order_id, line, quantity, due_at FROM order_item
    WHERE supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED
), counted AS (
    SELECT *, sum(quantity) OVER (ORDER BY due_at, tenant_id, order_id, line) - quantity AS before FROM due
)
UPDATE order_item i SET due_at = $3, claim = $4, claims = claims + 1
FROM counted WHERE before < $6
    AND i.tenant_id = counted.tenant_id AND i.order_id = counted.order_id AND i.line = counted.line
RETURNING i.tenant_id, i.order_id, i.line, i.package_code, i.quantity, i.period_num, i.first_profile_id, i.claims,
    (SELECT created_at FROM ledger_entry e
        WHERE e.tenant_id = i.tenant_id AND e.entry_type = 'ORDER_PAY' AND e.reference = i.order_id),
    ARRAY(SELECT profile_id FROM profile p WHERE p.tenant_id = i.tenant_id
        AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity
        AND p.lifecycle_status = 'PENDING' AND NOT p.failed AND NOT p.held ORDER BY profile_id)
"""


async def claim(
    session: Session, supplier: str, claim_id: int, now: datetime, until: datetime, lines: int, profiles: int
) -> list[Claimed]:
    """Takes a supplier's due lines until the lease ends: at most `lines`, and no more once `profiles` are reached.

    No two workers get the same line; a line whose worker died comes due again.
    """
    rows = await session.fetch(_CLAIM, supplier, now, until, claim_id, lines, profiles)
    return [Claimed(*row) for row in rows]


async def held(session: Session, claim_id: int, keys: Sequence[LineKey]) -> set[LineKey]:
    """Which lines are still this claim's, locked until the transaction ends. Lock their orders first."""
    rows = await session.fetch(
        "SELECT tenant_id, order_id, line FROM unnest($2::bigint[], $3::bigint[], $4::smallint[])"
        " AS key(tenant_id, order_id, line) JOIN order_item i USING (tenant_id, order_id, line)"
        " WHERE i.claim = $1 ORDER BY tenant_id, order_id, line FOR NO KEY UPDATE OF i",
        claim_id,
        *columns(keys, 3),
    )
    return {(row[0], row[1], row[2]) for row in rows}


async def reschedule(session: Session, claim_id: int, lines: Sequence[Scheduled]) -> None:
    """Gives back held lines: says when they are due again. Leaves alone those another worker has claimed since."""
    await session.fetch(
        "UPDATE order_item i SET due_at = new.due_at, claims = CASE WHEN new.answered THEN 0 ELSE i.claims END"
        " FROM unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::timestamptz[], $6::bool[])"
        " AS new(tenant_id, order_id, line, due_at, answered)"
        " WHERE i.tenant_id = new.tenant_id AND i.order_id = new.order_id AND i.line = new.line AND i.claim = $1",
        claim_id,
        *columns([(*line.key, line.due_at, line.answered) for line in lines], 5),
    )


async def requeue(connection: Connection, key: LineKey, supplier: str, now: datetime) -> None:
    """A supplier's queue looks at a line now, whoever has claimed it."""
    await connection.execute(
        "UPDATE order_item SET supplier = $4, due_at = $5, claim = NULL, claims = 0"
        " WHERE tenant_id = $1 AND order_id = $2 AND line = $3",
        *key,
        supplier,
        now,
    )


async def record_orders(session: Connection | Session, changes: Sequence[tuple[Order, Order]]) -> None:
    """Writes the statuses of orders: (as they are stored, as they are now)."""
    written = await session.fetch(
        "UPDATE orders o SET delivery_status = new.delivery_status, order_status = new.order_status,"
        " version = new.version, updated_at = new.updated_at"
        " FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::int[], $6::timestamptz[], $7::int[])"
        " AS new(tenant_id, order_id, delivery_status, order_status, version, updated_at, known)"
        " WHERE o.tenant_id = new.tenant_id AND o.order_id = new.order_id AND o.version = new.known RETURNING 1",
        *columns([(o.tenant_id, o.order_id, o.delivery_status, o.order_status, o.version, o.updated_at, was.version)
                   for was, o in changes], 7),
    )  # fmt: skip
    assert len(written) == len(changes), "an order moved on while it was locked"


async def record_items(session: Connection | Session, items: Sequence[tuple[Order, Item]]) -> None:
    """Writes the statuses of items."""
    written = await session.fetch(
        "UPDATE order_item i SET item_status = new.item_status"
        " FROM unnest($1::bigint[], $2::bigint[], $3::smallint[], $4::text[])"
        " AS new(tenant_id, order_id, line, item_status)"
        " WHERE i.tenant_id = new.tenant_id AND i.order_id = new.order_id AND i.line = new.line RETURNING 1",
        *columns([(order.tenant_id, order.order_id, item.line, item.item_status) for order, item in items], 4),
    )
    assert len(written) == len(items), "an item is gone"


async def record_profiles(
    session: Connection | Session, profiles: Sequence[tuple[int, Profile]], keys: DataKeys, now: datetime
) -> None:
    """Writes the codes, or the failure, of (tenant_id, profile) that were PENDING until now."""
    written = await session.fetch(
        "UPDATE profile p SET lifecycle_status = new.lifecycle_status, failed = new.failed, iccid = new.iccid,"
        " activation_code = new.activation_code, qr_token = new.qr_token, esim_status = new.esim_status,"
        " smdp_status = new.smdp_status, data_total_bytes = new.data_total_bytes, held = new.held, updated_at = $1"
        " FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bool[], $6::text[], $7::bytea[], $8::text[],"
        " $9::text[], $10::text[], $11::bigint[], $12::bool[])"
        " AS new(tenant_id, profile_id, lifecycle_status, failed, iccid, activation_code, qr_token, esim_status,"
        " smdp_status, data_total_bytes, held)"
        " WHERE p.tenant_id = new.tenant_id AND p.profile_id = new.profile_id AND p.lifecycle_status = 'PENDING'"
        " RETURNING 1",
        now,
        *columns([_profile_row(tenant_id, profile, keys) for tenant_id, profile in profiles], 11),
    )
    assert len(written) == len(profiles), "a profile is no longer PENDING"


async def unserved(session: Session, suppliers: Sequence[str], since: datetime) -> dict[str, int]:
    """How many lines have been due since then at suppliers other than these."""
    rows = await session.fetch(
        "SELECT supplier, count(*) FROM order_item WHERE due_at <= $2 AND supplier <> ALL($1::text[])"
        " GROUP BY supplier",
        suppliers,
        since,
    )
    return {row[0]: row[1] for row in rows}


def _profile_row(tenant_id: int, profile: Profile, keys: DataKeys) -> tuple[object, ...]:
    code = profile.activation_code
    return (
        tenant_id,
        profile.profile_id,
        profile.lifecycle_status,
        profile.failed,
        profile.iccid,
        None if code is None else keys.seal(code.encode(), profile_context(tenant_id, profile.profile_id)),
        profile.qr_token,
        profile.esim_status,
        profile.smdp_status,
        profile.data_total_bytes,
        profile.held,
    )
