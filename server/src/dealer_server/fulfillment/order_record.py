"""Writes what suppliers answered onto orders, in the transaction that also leaves the events that tell the dealers."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dealer_server import store
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import recharges
from dealer_server.fulfillment.recharges import Recharged
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import AddedPlan, Result
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Part, Scope
from dealer_server.store.orders.save import DELIVERY, save
from dealer_server.store.profiles import iccid, lifecycle
from dealer_server.store.profiles.lifecycle import Delivered
from dealer_server.store.refunds.refund import NewRefund
from dealer_server.store.webhooks import changes as told
from dealer_server.suppliers.contract import Caps

OrderKey = tuple[int, int]


async def put(
    session: Session,
    before: Mapping[OrderKey, Order],
    results: Mapping[int, Result],
    begun: Mapping[OrderKey, frozenset[int]],
    data_keys: DataKeys,
    *,
    refund_failed: bool,
    now: datetime,
    supplier: str,
    caps: Caps,
) -> dict[OrderKey, Order]:
    """Writes what profiles get (by profileId), all from one supplier; the orders as they are then. Lock them first.

    begun: the lines that fulfillment has begun. refund_failed: what failed for good is refunded (specification 4.3).
    The orders of eSIMs that are recharged are among `before`: they get what was applied.
    """
    nothing: frozenset[int] = frozenset()
    after = {key: delivery.allocate(order, results, begun.get(key, nothing), now) for key, order in before.items()}
    failed = {key: ids for key in before if (ids := _newly_failed(before[key], after[key]))}
    if failed and refund_failed:
        after |= await _give_back(session, failed, after, now)
    changes = [(before[key], after[key]) for key in before if after[key] is not before[key]]
    if changes:
        await _write(session, changes, data_keys, supplier, caps)
        recharged = await recharges.apply(session, _recharged(changes, results), after, caps, now)
        after |= recharged
        changed = {(order.tenant_id, order.order_id) for _, order in changes} | recharged.keys()
        await told.tell(session, [(before[key], after[key]) for key in sorted(changed)], data_keys, now)
    return after


def _recharged(changes: Sequence[tuple[Order, Order]], results: Mapping[int, Result]) -> list[Recharged]:
    """The recharges that were made by these changes."""
    return [
        Recharged(after, result)
        for before, after in changes
        for old, profile in zip(before.profiles, after.profiles, strict=True)
        if profile.recharges is not None and profile.made and not old.made
        if isinstance(result := results[profile.profile_id], AddedPlan)
    ]


async def _give_back(
    session: Session, failed: Mapping[OrderKey, frozenset[int]], orders: Mapping[OrderKey, Order], now: datetime
) -> dict[OrderKey, Order]:
    """Begins refunds of what failed for good; the worker credits them at once."""
    held, new = {}, []
    first = await store.order.next_block(session, "refund", identity.first_id_at(int(now.timestamp())), len(failed))
    for refund_id, (key, ids) in enumerate(failed.items(), first):
        order = orders[key]
        parts = tuple(
            Part(item.line, profile.profile_id, None, item.price * item.period_num, "AT_ONCE")
            for item in order.items
            for profile in item.profiles
            if profile.profile_id in ids
        )
        new.append(
            NewRefund(
                tenant_id=order.tenant_id,
                refund_id=refund_id,
                order_id=order.order_id,
                refund_transaction_id=None,
                scope=Scope({part.line: ids for part in parts}).digest,
                status="REFUNDING",
                amount=sum(part.amount for part in parts),
                remark="Could not be delivered",
                author="system",
                created_at=now,
                due_at=now,
                parts=parts,
            )
        )
        held[key] = refund.hold(order, ids, now)
    await store.refund.add(session, new)
    return held


async def _write(
    session: Session, changes: Sequence[tuple[Order, Order]], data_keys: DataKeys, supplier: str, caps: Caps
) -> None:
    now = changes[0][1].updated_at
    delivered = [
        Delivered(after, item, profile)
        for before, after in changes
        for old_item, item in zip(before.items, after.items, strict=True)
        for old, profile in zip(old_item.profiles, item.profiles, strict=True)
        if profile.iccid is not None and old.iccid is None
    ]
    if delivered and caps.reuses_iccids:
        await iccid.supersede(
            session, [(new.order.tenant_id, new.profile.profile_id, new.profile.iccid or "") for new in delivered]
        )
    await save(session, changes, DELIVERY, data_keys)
    if delivered and caps.lifecycle is not None:
        await lifecycle.begin(session, delivered, supplier, caps.lifecycle, now)


def _newly_failed(before: Order, after: Order) -> frozenset[int]:
    return frozenset(
        new.profile_id
        for old, new in zip(before.profiles, after.profiles, strict=True)
        if new.failed and not old.failed
    )
