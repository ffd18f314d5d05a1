"""Writes what suppliers answered onto orders, in the transaction that also leaves the events that tell the dealers."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from dealer_server import store
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.lifecycle.lifecycle import SIMULATED
from dealer_server.rules.money import refund
from dealer_server.rules.money.refund import Part, Scope
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order, changed_items, changed_profiles
from dealer_server.store.orders import fulfillment as rows
from dealer_server.store.profiles import iccid, lifecycle
from dealer_server.store.refunds.refund import NewRefund
from dealer_server.store.webhooks import webhook

OrderKey = tuple[int, int]


async def put(
    session: Session,
    before: Mapping[OrderKey, Order],
    answers: Mapping[int, Codes | Failed],
    begun: Mapping[OrderKey, frozenset[int]],
    data_keys: DataKeys,
    *,
    refund_failed: bool,
    now: datetime,
    speed: float = 1.0,
) -> dict[OrderKey, Order]:
    """The orders as the answers (by profileId) leave them, written. Lock them first. `begun`: the lines fulfillment has
    begun. `refund_failed`: what failed for good is given back (decisions 4). Simulated plans run `speed` times faster.
    """
    nothing: frozenset[int] = frozenset()
    after = {key: delivery.allocate(order, answers, begun.get(key, nothing), now) for key, order in before.items()}
    failed = {key: ids for key in before if (ids := _newly_failed(before[key], after[key]))}
    if failed and refund_failed:
        after |= await _give_back(session, failed, after, now)
    changes = [(before[key], after[key]) for key in before if after[key] is not before[key]]
    if changes:
        await _write(session, changes, data_keys, speed)
    return after


async def _give_back(
    session: Session, failed: Mapping[OrderKey, frozenset[int]], orders: Mapping[OrderKey, Order], now: datetime
) -> dict[OrderKey, Order]:
    """Begins a refund of what failed for good; the worker credits it at once."""
    held, new = {}, []
    first = await store.order.next_block(session, "refund", identity.first_id_at(int(now.timestamp())), len(failed))
    for refund_id, (key, ids) in enumerate(failed.items(), first):
        parts = tuple(
            Part(item.line, one.profile_id, None, item.price * item.period_num, "AT_ONCE")
            for item in orders[key].items
            for one in item.profiles
            if one.profile_id in ids
        )
        scope = Scope({part.line: ids for part in parts}).meaning
        amount = sum(part.amount for part in parts)
        new.append(
            NewRefund(
                tenant_id=key[0],
                refund_id=refund_id,
                order_id=key[1],
                refund_transaction_id=None,
                scope=scope,
                status="REFUNDING",
                amount=amount,
                remark="fulfillment failed for good",
                author="system",
                created_at=now,
                due_at=now,
                parts=parts,
            )
        )
        held[key] = refund.hold(orders[key], ids, now)
    await store.refund.add(session, new)
    return held


async def _write(session: Session, changes: Sequence[tuple[Order, Order]], data_keys: DataKeys, speed: float) -> None:
    now = changes[0][1].updated_at
    orders = [after for _, after in changes]
    if items := list(changed_items(changes)):
        await rows.record_items(session, items)
    if profiles := list(changed_profiles(changes)):
        if bought := list(_bought(changes)):
            await iccid.supersede(session, bought)
        await rows.record_profiles(session, profiles, data_keys, now)
        await lifecycle.born(session, changes, now, speed)
    await rows.record_orders(session, changes)
    await webhook.order_changed(session, [(order.tenant_id, order.order_id, order.version) for order in orders], now)


def _bought(changes: Sequence[tuple[Order, Order]]) -> Iterator[tuple[int, int, str]]:
    """(tenant_id, profile_id, iccid) of what got codes now. The simulated network never repeats an ICCID: left out."""
    for before, after in changes:
        for was, item in zip(before.items, after.items, strict=True):
            for old, new in zip(was.profiles, item.profiles, strict=True):
                if new.iccid is not None and old.iccid is None and item.supplier != SIMULATED:
                    yield after.tenant_id, new.profile_id, new.iccid


def _newly_failed(before: Order, after: Order) -> frozenset[int]:
    return frozenset(
        new.profile_id
        for old, new in zip(before.profiles, after.profiles, strict=True)
        if new.failed and not old.failed
    )
