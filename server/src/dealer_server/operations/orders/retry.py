"""How does an operator retry an order? Failed profiles are fulfilled again, waiting ones by another supplier.

What may have been bought is never bought again: a profile whose purchase is unknown or under way is left alone
(docs/decisions/0021-retrying-failed-lines.md).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.delivery import delivery
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.orders import fulfillment
from dealer_server.store.orders.save import DELIVERY, save
from dealer_server.store.suppliers import purchase as purchase_store
from dealer_server.store.suppliers.purchase import Hop, Key, New, PurchaseState
from dealer_server.store.webhooks import changes as told
from dealer_server.suppliers.registry import BUILTIN

_RETRY_SUFFIX = re.compile(r"-r[0-9]+$")
Purchases = Mapping[int, Sequence[PurchaseState]]
"""An order's purchases by profileId, the oldest first."""


class RetryResult(msgspec.Struct, frozen=True, rename="camel"):
    """`retried`: how many profiles are fulfilled again or by another supplier; `waiting`: how many waited already and
    are tried now; `left`: why others were left alone."""

    order_no: str
    retried: int
    waiting: int
    left: tuple[str, ...]


class _LinePlan(NamedTuple):
    """How one line is retried: by which supplier, which profiles are fulfilled again or elsewhere (`moved`), and which
    go on waiting."""

    item: Item
    hop: Hop
    moved: Sequence[Profile]
    waiting: Sequence[Profile]
    left: Sequence[str]


async def retry_order(
    database: Database,
    data_keys: DataKeys,
    order_no: str,
    line: int | None,
    supplier: str | None,
    author: str,
    clock: Clock,
) -> RetryResult:
    """`line` counts from 1; None: every line. `supplier` None: the one each line was sold from. Raises
    OperatorError."""
    order_id = identity.order_id(order_no)

    async def work(connection: Connection) -> RetryResult:
        key = None if order_id is None else await store.order.key_of(connection, order_id)
        if key is None:
            raise OperatorError(f"no order {order_no}")
        await store.order.lock(connection, [key])
        order = (await store.order.load(connection, [key], data_keys))[key]
        if line is not None and not 1 <= line <= len(order.items):
            raise OperatorError(f"--line {line}: {order_no} has lines 1 to {len(order.items)}")
        items = order.items if line is None else order.items[line - 1 : line]
        purchases = await purchase_store.of_order(connection, key)
        routes = await purchase_store.routes(connection, [item.package_code for item in items])
        plans = [_plan(item, supplier, routes.get(item.package_code, ()), purchases) for item in items]
        _require_work(order_no, items, plans)
        now = clock()
        for plan in plans:
            await _carry_out(connection, order, plan, purchases, now)
        moved = [profile.profile_id for plan in plans for profile in plan.moved]
        await _record_order(connection, order, frozenset(moved), data_keys, now)
        if moved:
            detail = {"orderNo": order_no, "line": line, "supplier": supplier, "profiles": len(moved)}
            await record_act(connection, author, "order.retry", order.tenant_id, detail)
        return RetryResult(
            order_no=order_no,
            retried=len(moved),
            waiting=sum(len(plan.waiting) for plan in plans),
            left=tuple([reason for plan in plans for reason in plan.left]),
        )

    return await database.run(work)


def _plan(item: Item, supplier: str | None, route: Sequence[Hop], purchases: Purchases) -> _LinePlan:
    """Raises OperatorError where the supplier does not make the package."""
    hop = _hop(item, supplier, route)
    moved, waiting, left = list[Profile](), list[Profile](), list[str]()
    for profile in item.profiles:
        if profile.made or profile.cancelled or profile.refunded:
            continue
        last = purchases[profile.profile_id][-1] if profile.profile_id in purchases else None
        current = last.supplier if last is not None and not profile.failed else item.supplier
        elsewhere = supplier is not None and current != hop.supplier
        if profile.held:
            left.append(f"profile {profile.profile_id}: a refund of it is in progress")
        elif last is not None and last.state in ("UNKNOWN", "PARKED"):
            left.append(
                f"{last.unit_key} is {last.state} at {last.supplier}: what may have been bought is never bought again"
                " (once it is PARKED, settle it with `supplier resolve`)"
            )
        elif last is not None and last.state in ("SENT", "PENDING") and elsewhere:
            left.append(f"{last.unit_key} is under way at {last.supplier}")
        elif profile.failed or elsewhere or (last is not None and last.state in ("REJECTED", "DROPPED")):
            moved.append(profile)
        else:
            waiting.append(profile)
    if moved and (item.supplier in BUILTIN or hop.supplier in BUILTIN) and hop.supplier != item.supplier:
        _require_whole(item, hop, [*left, *waiting])
    return _LinePlan(item=item, hop=hop, moved=moved, waiting=waiting, left=left)


def _hop(item: Item, supplier: str | None, route: Sequence[Hop]) -> Hop:
    """The supplier's place on the package's route. Raises OperatorError where it has none."""
    code = item.supplier if supplier is None else supplier
    if code != item.supplier and item.profiles[0].recharges is not None:
        raise OperatorError(f"{item.package_code} recharges an eSIM of {item.supplier}: no other supplier can")
    on_route = next((hop for hop in route if hop.supplier == code), None)
    if on_route is not None:
        return on_route
    if code == item.supplier and (code in BUILTIN or not route):
        return Hop(supplier=code, sku=item.package_code, cost=None, cost_currency=None)
    if supplier is None:
        return route[0]
    suppliers = ", ".join(hop.supplier for hop in route) or item.supplier
    raise OperatorError(f"{supplier} does not make {item.package_code}: its route is {suppliers}")


def _require_whole(item: Item, hop: Hop, staying: Sequence[object]) -> None:
    """A line is either bought or made by a builtin supplier: a part that stays behind could be made twice. Raises
    OperatorError."""
    if staying or any(profile.made for profile in item.profiles):
        raise OperatorError(
            f"line {item.line + 1} cannot go from {item.supplier} to {hop.supplier}: a part of it is delivered, under"
            " way or waiting"
        )


def _require_work(order_no: str, items: Sequence[Item], plans: Sequence[_LinePlan]) -> None:
    """Raises OperatorError where there is nothing to retry."""
    if any(plan.moved or plan.waiting for plan in plans):
        return
    if reasons := [reason for plan in plans for reason in plan.left]:
        raise OperatorError(f"nothing of {order_no} can be retried: {'; '.join(reasons)}")
    profiles = [profile for item in items for profile in item.profiles]
    if any(profile.failed and (profile.refunded or profile.cancelled) for profile in profiles):
        raise OperatorError(
            f"nothing of {order_no} is left to retry: what failed was given back"
            " (with DEALER_REFUND_FAILED=false it is not refunded automatically)"
        )
    raise OperatorError(f"nothing of {order_no} failed or waits")


async def _carry_out(
    connection: Connection, order: Order, plan: _LinePlan, purchases: Purchases, now: datetime
) -> None:
    """Plans purchases for the moved profiles, or puts the line into the queue of a builtin supplier."""
    key, item = (order.tenant_id, order.order_id, plan.item.line), plan.item
    is_bought = plan.hop.supplier not in BUILTIN
    await purchase_store.drop_planned(connection, _last_keys(plan.moved, purchases), now)
    await purchase_store.make_due(connection, _last_keys(plan.waiting, purchases), now)
    if plan.moved:
        await _move_stock(connection, order, plan, now)
    if is_bought:
        earlier = [purchases[profile.profile_id] for profile in plan.moved if profile.profile_id in purchases]
        await purchase_store.add(connection, [_next_purchase(key, before, plan.hop) for before in earlier], now)
    unplanned = any(profile.profile_id not in purchases for profile in [*plan.moved, *plan.waiting])
    if unplanned or ((plan.moved or plan.waiting) and not is_bought) or (plan.moved and item.supplier in BUILTIN):
        await fulfillment.requeue(connection, key, plan.hop.supplier if plan.moved else item.supplier, now)


def _last_keys(profiles: Sequence[Profile], purchases: Purchases) -> list[Key]:
    return [purchases[profile.profile_id][-1].key for profile in profiles if profile.profile_id in purchases]


def _next_purchase(key: tuple[int, int, int], before: Sequence[PurchaseState], hop: Hop) -> New:
    """The next purchase of a profile. Where the supplier accepted an order for it that came to nothing, it gets a new
    unit key: with the old one, the supplier would answer with that order."""
    tenant_id, order_id, line = key
    last, unit_key = before[-1], _RETRY_SUFFIX.sub("", before[-1].unit_key)
    if any(purchase.supplier == hop.supplier and purchase.supplier_ref is not None for purchase in before):
        unit_key = f"{unit_key}-r{last.position + 1}"
    return New(
        tenant_id=tenant_id,
        profile_id=last.profile_id,
        position=last.position + 1,
        order_id=order_id,
        line=line,
        unit_key=unit_key,
        supplier=hop.supplier,
        sku=hop.sku,
        cost=hop.cost,
        cost_currency=hop.cost_currency,
        recharges=last.recharges,
    )


async def _move_stock(connection: Connection, order: Order, plan: _LinePlan, now: datetime) -> None:
    """Gives stock codes back where the line leaves the stock, and takes codes where it enters it. Raises
    OperatorError."""
    keys = [(order.tenant_id, profile.profile_id) for profile in plan.moved]
    if plan.hop.supplier != STOCK:
        if plan.item.supplier == STOCK:
            await store.stock.release(connection, keys)
        return
    package_code = plan.item.package_code
    has_code = await store.stock.taken_codes(connection, keys)
    without = [key for key in keys if key[1] not in has_code]
    free = await store.stock.lock_free(connection, package_code, len(without))
    if len(free) < len(without):
        raise OperatorError(f"stock has {len(free)} of {package_code}; {len(without)} are needed")
    await store.stock.mark_taken(
        connection, [(iccid, *key) for (iccid, _), key in zip(free, without, strict=True)], now
    )


async def _record_order(
    connection: Connection, order: Order, moved: frozenset[int], data_keys: DataKeys, now: datetime
) -> None:
    """Writes the order with its failed profiles waiting again, and the event for its dealer."""
    after = delivery.retry(order, moved, now)
    if after is order:
        return
    await save(connection, [(order, after)], DELIVERY, data_keys)
    await told.tell(connection, [(order, after)], data_keys, now)
