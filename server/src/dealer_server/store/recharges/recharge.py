"""Recharges of eSIMs: profiles without codes that name the eSIM they add a plan to."""

from collections.abc import Sequence

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session
from dealer_server.rules.orders.order import MOST_PLANS
from dealer_server.rules.recharges.recharge import Target
from dealer_server.rules.refunds.refund import Reason

Key = tuple[int, int]
"""tenant_id, profile_id"""

# An eSIM with its order, its line, its life and the plans it has, each found by key, whatever the statistics say.
_ESIM = """
(SELECT * FROM profile p WHERE p.tenant_id = {tenant_id} AND p.profile_id = {profile_id} AND p.recharges IS NULL
    OFFSET 0) p
CROSS JOIN LATERAL (SELECT version FROM orders o
    WHERE o.tenant_id = p.tenant_id AND o.order_id = p.order_id OFFSET 0) o
CROSS JOIN LATERAL (SELECT package_code, supplier FROM order_item i
    WHERE i.tenant_id = p.tenant_id AND i.order_id = p.order_id AND i.line = p.line OFFSET 0) i
LEFT JOIN LATERAL (SELECT supplier FROM profile_life l
    WHERE l.tenant_id = p.tenant_id AND l.profile_id = p.profile_id OFFSET 0) l ON true
CROSS JOIN LATERAL (SELECT coalesce(max(plan_no), 1) AS last_plan FROM profile r
    WHERE r.tenant_id = p.tenant_id AND r.recharges = p.profile_id) r"""
_SUPPLIER = "coalesce(l.supplier, i.supplier)"
_KIND = f"coalesce((SELECT kind FROM supplier s WHERE s.code = {_SUPPLIER}), {_SUPPLIER})"
_VOIDING = """p.profile_id = ANY (ARRAY(SELECT v.profile_id FROM void_request v
        WHERE v.tenant_id = p.tenant_id AND v.order_id = p.order_id AND v.refund_id IS NULL AND v.outcome IS NULL))"""
_EXPIRED = "(p.plan_use_status = 'ENDED' AND p.esim_status IS DISTINCT FROM 'USED_UP')"
# The columns are the fields of Target: by name, each row would take several times as long.
_TARGETS = f"""
SELECT p.tenant_id, p.order_id, p.profile_id, i.package_code, {_SUPPLIER} AS supplier, {_KIND} AS kind, p.iccid,
    p.cancelled, p.refunded, p.held, {_VOIDING} AS voiding, {_EXPIRED} AS expired, last_plan AS plans, o.version
FROM {batch("key", tenant_id="bigint", profile_id="bigint")}
CROSS JOIN LATERAL {_ESIM.format(tenant_id="key.tenant_id", profile_id="key.profile_id").lstrip()}
"""
# What the next plan of an eSIM is, if it is of a package and a supplier's kind that are `asked` for and in no state
# that rules.recharges.recharge.refuse_state refuses.
NEXT_PLAN = f"""
SELECT last_plan + 1 AS plan_no, p.order_id AS recharges_order_id, o.version AS seen_version, p.iccid
FROM {_ESIM.format(tenant_id="asked.tenant_id", profile_id="asked.recharges").lstrip()}
WHERE i.package_code = ANY (string_to_array(asked.bases, ',')) AND {_SUPPLIER} = asked.supplier AND {_KIND} = asked.kind
    AND p.iccid IS NOT NULL AND NOT p.cancelled AND NOT p.refunded AND NOT p.held AND NOT {_VOIDING}
    AND {_EXPIRED} IS NOT TRUE AND last_plan < {MOST_PLANS}
"""


async def targets(session: Session | Connection, keys: Sequence[Key]) -> dict[Key, Target]:
    """These eSIMs as they stand; lock their orders first, or compare the version before something is written."""
    rows = await session.fetch(_TARGETS, *columns(keys, 2))
    return {(row["tenant_id"], row["profile_id"]): Target(*row) for row in rows}


# A recharge that its supplier was asked for may be applied at any moment. Whether one that was applied has begun stands
# in its eSIM's plans.
_BLOCKED = f"""
SELECT p.profile_id, CASE WHEN p.recharges IS NULL THEN 'TOPPED_UP' ELSE 'APPLIED' END AS reason
FROM {batch("key", tenant_id="bigint", order_id="bigint")}
CROSS JOIN LATERAL (SELECT * FROM order_item i
    WHERE i.tenant_id = key.tenant_id AND i.order_id = key.order_id OFFSET 0) i
CROSS JOIN LATERAL (SELECT * FROM profile p WHERE p.tenant_id = key.tenant_id
    AND p.profile_id >= i.first_profile_id AND p.profile_id < i.first_profile_id + i.quantity OFFSET 0) p
WHERE CASE WHEN p.recharges IS NULL THEN EXISTS (SELECT FROM profile r
        WHERE r.tenant_id = p.tenant_id AND r.recharges = p.profile_id AND NOT r.refunded AND NOT r.cancelled
        OFFSET 0)
    ELSE p.plan_mode IS NULL AND EXISTS (SELECT FROM purchase b
        WHERE b.tenant_id = p.tenant_id AND b.profile_id = p.profile_id
        AND b.state NOT IN ('PLANNED', 'REJECTED', 'DROPPED') OFFSET 0) END
"""


async def of_esims(session: Session, orders: Sequence[Key]) -> dict[Key, Key]:
    """By the key of an order which recharges an eSIM that of the eSIM's order; both are (tenant_id, order_id)."""
    rows = await session.fetch(
        f"SELECT i.* FROM {batch('key', tenant_id='bigint', order_id='bigint')}"
        " CROSS JOIN LATERAL (SELECT tenant_id, order_id, recharges_order_id FROM order_item i"
        "  WHERE i.tenant_id = key.tenant_id AND i.order_id = key.order_id AND i.line = 0 OFFSET 0) i"
        " WHERE recharges_order_id IS NOT NULL",
        *columns(orders, 2),
    )
    return {(row["tenant_id"], row["order_id"]): (row["tenant_id"], row["recharges_order_id"]) for row in rows}


async def lock_planned(session: Session, orders: Sequence[tuple[int, int]]) -> None:
    """Locks the purchases of these orders' recharges that are only planned, so that none begins meanwhile."""
    await session.fetch(
        f"SELECT FROM {batch('key', tenant_id='bigint', order_id='bigint')}"
        " JOIN order_item i ON i.tenant_id = key.tenant_id AND i.order_id = key.order_id AND i.recharges IS NOT NULL"
        " JOIN purchase b ON b.tenant_id = i.tenant_id AND b.profile_id = i.first_profile_id AND b.state = 'PLANNED'"
        " FOR NO KEY UPDATE OF b",
        *columns(orders, 2),
    )


async def not_refundable(session: Session | Connection, orders: Sequence[tuple[int, int]]) -> dict[int, Reason]:
    """Which profiles of these orders recharges keep from being refunded, by profileId."""
    rows = await session.fetch(_BLOCKED, *columns(orders, 2))
    return {row["profile_id"]: row["reason"] for row in rows}


async def not_applied(connection: Connection, key: Key) -> list[tuple[int, int]]:
    """The (tenant_id, order_id) of the recharges of this eSIM that its supplier has not applied."""
    rows = await connection.fetch(
        "SELECT tenant_id, order_id FROM profile"
        " WHERE tenant_id = $1 AND recharges = $2 AND plan_mode IS NULL ORDER BY plan_no",
        *key,
    )
    return [(row["tenant_id"], row["order_id"]) for row in rows]
