"""Writes orders, with their items and profiles, as a decision leaves them. Fulfillment, refunds and reports all write
orders here."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch, columns
from dealer_server.db.connection import Connection
from dealer_server.db.sealing import DataKeys, profile_context
from dealer_server.db.session import Session
from dealer_server.rules.orders.model import Item, Order, Profile, changed_items, changed_profiles
from dealer_server.store.profiles import plans

Change = tuple[Order, Order]
"""An order as it is stored, and as it is to be stored."""


class Part(NamedTuple):
    """What of its profiles a decision may change: these columns, of profiles for which `guard` holds.

    requeues: profiles may have begun or ceased to wait for codes, so that their lines become due, or are due no more.
    """

    columns: tuple[str, ...]
    guard: str = "true"
    requeues: bool = False


DELIVERY = Part(
    ("lifecycle_status", "failed", "iccid", "activation_code", "qr_token", "esim_status", "smdp_status",
     "data_total_bytes", "plan_mode", "held"),
    guard="p.lifecycle_status = 'PENDING'",
)  # fmt: skip
"""Codes, a recharge, or the failure, of profiles that waited for them."""
VOID = Part(("lifecycle_status", "cancelled", "refunded", "held", "plans"), requeues=True)
"""Refunds and cancellations; plans that were refunded before they began."""
LIFECYCLE = Part(
    ("lifecycle_status", "activated", "cancelled", "esim_status", "smdp_status", "plan_use_status",
     "plan_use_start_at", "plan_use_end_at", "data_total_bytes", "data_usage_bytes", "suspended", "suspended_at",
     "plans"),
    guard="p.iccid IS NOT NULL",
)  # fmt: skip
"""What suppliers report of profiles with codes, and what time does to them."""

_TYPES = {
    "failed": "bool",
    "activated": "bool",
    "cancelled": "bool",
    "refunded": "bool",
    "held": "bool",
    "activation_code": "bytea",
    "plan_use_start_at": "timestamptz",
    "plan_use_end_at": "timestamptz",
    "data_total_bytes": "bigint",
    "data_usage_bytes": "bigint",
    "suspended": "bool",
    "suspended_at": "timestamptz",
    "plans": "jsonb",
}  # every other column is text


async def save(
    session: Connection | Session, changes: Sequence[Change], part: Part, data_keys: DataKeys | None = None
) -> None:
    """Writes locked orders and what changed of their items and profiles: one statement for each of the three tables.
    `data_keys` seal activation codes; only a DELIVERY writes some."""
    if not changes:
        return
    await _save_orders(session, changes)
    if part.requeues:
        await _save_and_requeue_items(session, changes)
    elif items := list(changed_items(changes)):
        await _save_items(session, items)
    if profiles := list(changed_profiles(changes)):
        await _save_profiles(session, profiles, part, data_keys, changes)
    if void := [key for change in changes for key in _newly_void(*change)]:
        await _look_at_recharges(session, void, max(after.updated_at for _, after in changes))


def _newly_void(before: Order, after: Order) -> Iterator[tuple[int, int]]:
    """(tenant_id, profile_id) of the eSIMs that became void."""
    for old, new in zip(before.profiles, after.profiles, strict=True):
        if new.cancelled and not old.cancelled and new.iccid is not None:
            yield after.tenant_id, new.profile_id


async def _look_at_recharges(session: Connection | Session, void: Sequence[tuple[int, int]], now: datetime) -> None:
    """Recharges of void eSIMs that wait are due now: they fail."""
    await session.fetch(
        "UPDATE order_item i SET due_at = least(i.due_at, $1)"
        f" FROM {batch('key', 2, tenant_id='bigint', profile_id='bigint')}"
        " CROSS JOIN LATERAL (SELECT r.order_id, r.line FROM profile r"
        "  WHERE r.tenant_id = key.tenant_id AND r.recharges = key.profile_id"
        "  AND r.lifecycle_status = 'PENDING' OFFSET 0) r"
        " WHERE i.tenant_id = key.tenant_id AND i.order_id = r.order_id AND i.line = r.line AND i.due_at IS NOT NULL",
        now,
        *columns(void, 2),
    )


def waits(item: Item) -> bool:
    """Whether any profile of this line waits for its codes."""
    return any(profile.waiting for profile in item.profiles)


_ORDERS = batch(
    "new", tenant_id="bigint", order_id="bigint", stored_version="int", version="int", refund_amount="bigint",
    pay_status="text", delivery_status="text", order_status="text", updated_at="timestamptz",
)  # fmt: skip
_ITEM = {"tenant_id": "bigint", "order_id": "bigint", "line": "smallint", "item_status": "text"}


async def _save_orders(session: Connection | Session, changes: Sequence[Change]) -> None:
    written = await session.fetch(
        "UPDATE orders o SET version = new.version, refund_amount = new.refund_amount, pay_status = new.pay_status,"
        " delivery_status = new.delivery_status, order_status = new.order_status, updated_at = new.updated_at"
        f" FROM {_ORDERS}"
        " WHERE o.tenant_id = new.tenant_id AND o.order_id = new.order_id AND o.version = new.stored_version"
        " RETURNING 1",
        *columns(
            [
                (after.tenant_id, after.order_id, before.version, after.version, after.refund_amount, after.pay_status,
                 after.delivery_status, after.order_status, after.updated_at)
                for before, after in changes
            ],
            9,
        ),
    )  # fmt: skip
    assert len(written) == len(changes), "an order moved on while it was locked"


async def _save_items(session: Connection | Session, items: Sequence[tuple[Order, Item]]) -> None:
    """Fulfillment looks no more at one of which no profile waits."""
    written = await session.fetch(
        "UPDATE order_item i SET item_status = new.item_status, due_at = CASE WHEN new.waits THEN i.due_at END,"
        " claim = CASE WHEN new.waits THEN i.claim END, claims = CASE WHEN new.waits THEN i.claims ELSE 0 END"
        f" FROM {batch('new', **_ITEM, waits='bool')}"
        " WHERE i.tenant_id = new.tenant_id AND i.order_id = new.order_id AND i.line = new.line RETURNING 1",
        *columns(
            [(order.tenant_id, order.order_id, item.line, item.item_status, waits(item)) for order, item in items], 5
        ),
    )
    assert len(written) == len(items), "an item is gone"


async def _save_and_requeue_items(session: Connection | Session, changes: Sequence[Change]) -> None:
    """Also items whose status stays: which of their profiles wait decides whether fulfillment looks at them."""
    items = list(_touched_items(changes))
    if not items:
        return
    written = await session.fetch(
        "UPDATE order_item i SET item_status = new.item_status,"
        " due_at = CASE WHEN new.waits THEN coalesce(i.due_at, $6) END"
        f" FROM {batch('new', **_ITEM, waits='bool')}"
        " WHERE i.tenant_id = new.tenant_id AND i.order_id = new.order_id AND i.line = new.line RETURNING 1",
        *columns(
            [(order.tenant_id, order.order_id, item.line, item.item_status, waits(item)) for order, item in items], 5
        ),
        max(after.updated_at for _, after in changes),
    )
    assert len(written) == len(items), "an item is gone"


async def _save_profiles(
    session: Connection | Session,
    profiles: Sequence[tuple[int, Profile]],
    part: Part,
    data_keys: DataKeys | None,
    changes: Sequence[Change],
) -> None:
    written = await session.fetch(
        _PROFILES[part],
        max(after.updated_at for _, after in changes),
        [tenant_id for tenant_id, _ in profiles],
        [profile.profile_id for _, profile in profiles],
        *[_values(name, profiles, data_keys) for name in part.columns],
    )
    assert len(written) == len(profiles), f"a profile is not as it was when it was read: {part.guard}"


def _profiles_statement(part: Part) -> str:
    assigned = ", ".join(f"{name} = new.{name}" for name in part.columns)
    types = {name: _TYPES.get(name, "text") for name in part.columns}
    return (
        f"UPDATE profile p SET {assigned}, updated_at = $1"
        f" FROM {batch('new', 2, tenant_id='bigint', profile_id='bigint', **types)}"
        " WHERE p.tenant_id = new.tenant_id AND p.profile_id = new.profile_id"
        f" AND CASE WHEN {part.guard} THEN true END RETURNING 1"  # a CASE: the planner cannot expect it to hold for few
    )


_PROFILES = {part: _profiles_statement(part) for part in (DELIVERY, VOID, LIFECYCLE)}


def _values(name: str, profiles: Sequence[tuple[int, Profile]], data_keys: DataKeys | None) -> Sequence[object]:
    if name == "activation_code":
        return _sealed_codes(profiles, data_keys)
    if name == "plans":
        return [plans.written(profile.plans) for _, profile in profiles]
    return [getattr(profile, name) for _, profile in profiles]


def _sealed_codes(profiles: Sequence[tuple[int, Profile]], data_keys: DataKeys | None) -> list[bytes | None]:
    assert data_keys is not None, "activation codes are stored sealed"
    return [
        None
        if profile.activation_code is None
        else data_keys.seal(profile.activation_code.encode(), profile_context(tenant_id, profile.profile_id))
        for tenant_id, profile in profiles
    ]


def _touched_items(changes: Sequence[Change]) -> Iterator[tuple[Order, Item]]:
    for before, after in changes:
        for old, new in zip(before.items, after.items, strict=True):
            if new != old:
                yield after, new
