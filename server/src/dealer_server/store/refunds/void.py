"""Voids: the profiles that a supplier is asked to void, for a refund or because the dealer cancelled them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Literal, NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import Order
from dealer_server.store.distribution.due import fetch_due
from dealer_server.store.refunds.refund import Key, NewRefund, decide_lines


class Void(NamedTuple):
    """A profile that a supplier is asked to void. `refund_id` None: the dealer cancelled it. The fields from `unit_key`
    on are those of its purchase, where it was bought from a remote supplier."""

    tenant_id: int
    profile_id: int
    order_id: int
    line: int
    refund_id: int | None
    supplier: str
    package_code: str
    iccid: str
    created_at: datetime
    claims: int = 0
    unit_key: str = ""
    sku: str = ""
    matching_id: str | None = None
    supplier_ref: str | None = None
    unit_ref: str | None = None


class Voided(NamedTuple):
    """The outcome of a claimed void, or when the supplier is asked again."""

    claim: int
    tenant_id: int
    profile_id: int
    outcome: Literal["VOIDED", "REFUSED"] | None
    due_at: datetime | None
    reason: str | None


class Cancellations(NamedTuple):
    """The profileIds that suppliers were asked to cancel without a refund: no answer yet, and refused."""

    waiting: frozenset[int]
    refused: frozenset[int]


async def cancellations(session: Session | Connection, keys: Sequence[Key]) -> Cancellations:
    """The cancellations of these (tenant_id, order_id) that are not carried out."""
    rows = await session.fetch(
        f"SELECT v.* FROM {batch('key', tenant_id='bigint', order_id='bigint')} CROSS JOIN LATERAL"
        " (SELECT profile_id, outcome FROM void_request v"
        "  WHERE v.tenant_id = key.tenant_id AND v.order_id = key.order_id"
        "  AND v.refund_id IS NULL AND (v.outcome IS NULL OR v.outcome = 'REFUSED') OFFSET 0) v",
        *columns(keys, 2),
    )
    return Cancellations(
        waiting=frozenset([row["profile_id"] for row in rows if row["outcome"] is None]),
        refused=frozenset([row["profile_id"] for row in rows if row["outcome"] is not None]),
    )


async def add_voids(session: Connection | Session, voids: Sequence[Void]) -> None:
    """Writes voids that are due at once. The supplier asked is the one of the profile's purchase, where it has one."""
    await session.fetch(
        "INSERT INTO void_request (tenant_id, profile_id, order_id, line, refund_id, supplier, package_code, iccid,"
        " created_at, due_at)"
        " SELECT tenant_id, profile_id, order_id, line, refund_id, coalesce((SELECT p.supplier FROM purchase p"
        "  WHERE p.tenant_id = new.tenant_id AND p.profile_id = new.profile_id AND p.iccid = new.iccid), new.supplier),"
        " package_code, iccid, created_at, created_at FROM unnest($1::bigint[], $2::bigint[], $3::bigint[],"
        " $4::smallint[], $5::bigint[], $6::text[], $7::text[], $8::text[], $9::timestamptz[])"
        " AS new(tenant_id, profile_id, order_id, line, refund_id, supplier, package_code, iccid, created_at)"
        " ON CONFLICT (tenant_id, profile_id) DO UPDATE SET refund_id = excluded.refund_id, outcome = NULL,"
        " created_at = excluded.created_at, due_at = excluded.due_at, claims = 0",
        *columns(voids, 9),
    )


async def add_refund_voids(
    session: Connection | Session, refunds: Sequence[NewRefund], orders: Mapping[Key, Order], now: datetime
) -> None:
    """Writes the voids that these refunds need. `orders`: the refunds' own, and those of the eSIMs they recharge."""
    voids = []
    for refund in refunds:
        for part in refund.parts:
            if part.way == "SUPPLIER" and refund.status == "REFUNDING":
                order = orders[refund.tenant_id, refund.order_id]
                item, iccid = order.items[part.line], part.iccid or _recharged_iccid(order, orders)
                assert iccid is not None, "a profile without codes is voided without asking its supplier"
                voids.append(
                    Void(
                        tenant_id=refund.tenant_id,
                        profile_id=part.profile_id,
                        order_id=refund.order_id,
                        line=part.line,
                        refund_id=refund.refund_id,
                        supplier=item.supplier,
                        package_code=item.package_code,
                        iccid=iccid,
                        created_at=now,
                    )
                )
    if voids:
        await add_voids(session, voids)


def _recharged_iccid(order: Order, orders: Mapping[Key, Order]) -> str | None:
    """That of the eSIM whose order this one recharges, which stands among `orders`, too."""
    profiles = [profile for other in orders.values() for profile in other.profiles]
    return next((profile.iccid for profile in profiles if profile.profile_id == order.recharges), None)


_DUE = f"SELECT tenant_id FROM void_request WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $3"
_CLAIM_VOIDS = f"""
WITH due AS (
    SELECT ctid, tenant_id, profile_id FROM void_request
    WHERE {OF_ALL} supplier = $1 AND due_at <= $2 ORDER BY due_at LIMIT $5
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE void_request v SET due_at = $3, claim = $4, claims = claims + 1
FROM due LEFT JOIN LATERAL (
    SELECT unit_key, sku, planned_matching_id, supplier_ref, unit_ref FROM purchase p
    WHERE p.tenant_id = due.tenant_id AND p.profile_id = due.profile_id AND p.state = 'DONE' LIMIT 1
) bought ON true
WHERE v.ctid = due.ctid AND v.tenant_id = due.tenant_id
RETURNING v.tenant_id, v.profile_id, v.order_id, v.line, v.refund_id, v.supplier, v.package_code, v.iccid,
    v.created_at, v.claims, coalesce(bought.unit_key, '') AS unit_key, coalesce(bought.sku, '') AS sku,
    bought.planned_matching_id AS matching_id, bought.supplier_ref, bought.unit_ref
"""


async def claim_voids(
    session: Session, supplier: str, claim: int, now: datetime, until: datetime, limit: int
) -> list[Void]:
    """Takes a supplier's due voids until the lease ends."""
    args = supplier, now, until, claim, limit
    return as_values(Void, await fetch_due(session, _CLAIM_VOIDS, args, _DUE, (supplier, now, limit), limit))


async def record_voids(session: Session, voided: Sequence[Voided], now: datetime) -> set[Key]:
    """Records the answers whose claims still hold, and decides the lines of their refunds. Gives the (tenant_id,
    profile_id) of those recorded."""
    rows = await session.fetch(
        "UPDATE void_request v SET outcome = new.outcome, due_at = new.due_at, claim = NULL"
        " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[])"
        " AS new(claim, tenant_id, profile_id, outcome, due_at)"
        " WHERE v.tenant_id = new.tenant_id AND v.profile_id = new.profile_id AND v.claim = new.claim"
        " RETURNING v.tenant_id, v.profile_id, v.refund_id, v.outcome",
        *columns([void[:5] for void in voided], 5),
    )
    reasons = {(void.tenant_id, void.profile_id): void.reason for void in voided}
    decided = [
        (row["tenant_id"], row["refund_id"], row["profile_id"], row["outcome"] == "VOIDED", reasons[_of_profile(row)])
        for row in rows
        if row["refund_id"] and row["outcome"]
    ]
    await decide_lines(session, decided, now)
    return {_of_profile(row) for row in rows}


_of_profile = itemgetter("tenant_id", "profile_id")
