"""An operator has eSIMs of an order made again that failed for good, or sends what waits by another route.

What may have been bought is never bought again: a unit whose purchase is unknown or under way stays where it is.
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
from dealer_server.operations.tenants.tenant import OperatorError
from dealer_server.rules.delivery import delivery
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile, changed_items, changed_profiles
from dealer_server.store.orders import fulfillment as lines
from dealer_server.store.suppliers import purchase as rows
from dealer_server.store.suppliers.purchase import Hop, Key, Made, New
from dealer_server.store.webhooks import webhook
from dealer_server.suppliers.registry import IN_THE_HOUSE

_AGAIN = re.compile(r"-r[0-9]+$")


class Retried(msgspec.Struct, frozen=True, rename="camel"):
    """`retried`: eSIMs that are made again, or elsewhere; `waiting`: those that waited already, and are tried now;
    `left`: why others were left alone."""

    order_no: str
    retried: int
    waiting: int
    left: tuple[str, ...]


class _Line(NamedTuple):
    """What becomes of one line: who makes it, which profiles are made again or elsewhere (`moved`), and which wait."""

    item: Item
    hop: Hop
    moved: Sequence[Profile]
    waiting: Sequence[Profile]
    left: Sequence[str]


async def retry(
    database: Database,
    data_keys: DataKeys,
    order_no: str,
    line: int | None,
    supplier: str | None,
    author: str,
    clock: Clock,
) -> Retried:
    """`line` counts from 1; None: every line. `supplier`: who makes it, None: who it was sold from. Raises
    OperatorError."""
    order_id = identity.order_id(order_no)

    async def work(connection: Connection) -> Retried:
        key = None if order_id is None else await store.order.key_of(connection, order_id)
        if key is None:
            raise OperatorError(f"no order {order_no}")
        await store.order.lock(connection, [key])
        order = (await store.order.load(connection, [key], data_keys))[key]
        if line is not None and not 1 <= line <= len(order.items):
            raise OperatorError(f"--line {line}: {order_no} has lines 1 to {len(order.items)}")
        items = order.items if line is None else order.items[line - 1 : line]
        made = await rows.of_order(connection, key)
        routes = await rows.routes(connection, [item.package_code for item in items])
        planned = [_line(item, supplier, routes.get(item.package_code, ()), made) for item in items]
        _something_to_do(order_no, items, planned)
        now = clock()
        for one in planned:
            await _send(connection, order, one, made, now)
        moved = [profile.profile_id for one in planned for profile in one.moved]
        await _record(connection, order, frozenset(moved), data_keys, now)
        if moved:
            detail = {"orderNo": order_no, "line": line, "supplier": supplier, "profiles": len(moved)}
            await store.audit_log.record_act(connection, author, "order.retry", order.tenant_id, detail)
        left = tuple([reason for one in planned for reason in one.left])
        return Retried(order_no, len(moved), sum(len(one.waiting) for one in planned), left)

    return await database.run(work)


def _line(item: Item, supplier: str | None, route: Sequence[Hop], made: Mapping[int, Sequence[Made]]) -> _Line:
    """Raises OperatorError where the supplier is not one of the package's."""
    hop = _hop(item, supplier, route)
    moved, waiting, left = list[Profile](), list[Profile](), list[str]()
    for profile in item.profiles:
        if profile.iccid is not None or profile.cancelled or profile.refunded:
            continue
        last = made[profile.profile_id][-1] if profile.profile_id in made else None
        at = last.supplier if last is not None and not profile.failed else item.supplier
        elsewhere = supplier is not None and at != hop.supplier
        if profile.held:
            left.append(f"profile {profile.profile_id}: a refund of it is in progress")
        elif last is not None and last.state in ("UNKNOWN", "PARKED"):
            left.append(
                f"{last.unit_key} is {last.state} at {last.supplier}: what may have been bought is never bought again"
                " (once it is PARKED, `supplier resolve` says what became of it)"
            )
        elif last is not None and last.state in ("SENT", "PENDING") and elsewhere:
            left.append(f"{last.unit_key} is under way at {last.supplier}")
        elif profile.failed or elsewhere or (last is not None and last.state in ("REJECTED", "DROPPED")):
            moved.append(profile)
        else:
            waiting.append(profile)
    if moved and (item.supplier in IN_THE_HOUSE or hop.supplier in IN_THE_HOUSE) and hop.supplier != item.supplier:
        _require_whole(item, hop, [*left, *waiting])
    return _Line(item, hop, moved, waiting, left)


def _hop(item: Item, supplier: str | None, route: Sequence[Hop]) -> Hop:
    wanted = item.supplier if supplier is None else supplier
    found = next((hop for hop in route if hop.supplier == wanted), None)
    if found is not None:
        return found
    if wanted == item.supplier and (wanted in IN_THE_HOUSE or not route):
        return Hop(wanted, item.package_code, None, None)
    if supplier is None:
        return route[0]
    on_it = ", ".join(hop.supplier for hop in route) or item.supplier
    raise OperatorError(f"{supplier} does not make {item.package_code}: its route is {on_it}")


def _require_whole(item: Item, hop: Hop, stays: Sequence[object]) -> None:
    """A line is either bought or made in the house: what stays behind could be made twice. Raises OperatorError."""
    if stays or any(profile.iccid is not None for profile in item.profiles):
        raise OperatorError(
            f"line {item.line + 1} cannot go from {item.supplier} to {hop.supplier}: a part of it is delivered, under"
            " way or waiting"
        )


def _something_to_do(order_no: str, items: Sequence[Item], planned: Sequence[_Line]) -> None:
    """Raises OperatorError."""
    if any(one.moved or one.waiting for one in planned):
        return
    if reasons := [reason for one in planned for reason in one.left]:
        raise OperatorError(f"nothing of {order_no} can be retried: {'; '.join(reasons)}")
    profiles = [profile for item in items for profile in item.profiles]
    if any(profile.failed and (profile.refunded or profile.cancelled) for profile in profiles):
        raise OperatorError(
            f"nothing of {order_no} is left to retry: what failed was given back"
            " (DEALER_REFUND_FAILED=false leaves it to you)"
        )
    raise OperatorError(f"nothing of {order_no} failed or waits")


async def _send(
    connection: Connection, order: Order, one: _Line, made: Mapping[int, Sequence[Made]], now: datetime
) -> None:
    """Has the line's profiles made: by the queue of a supplier in the house, or by purchases."""
    key, bought = (order.tenant_id, order.order_id, one.item.line), one.hop.supplier not in IN_THE_HOUSE
    await rows.drop_planned(connection, _last(one.moved, made), now)
    await rows.make_due(connection, _last(one.waiting, made), now)
    if one.moved:
        await _move_stock(connection, order, one, now)
    if bought:
        again = [made[profile.profile_id] for profile in one.moved if profile.profile_id in made]
        await rows.add(connection, [_next(key, before, one.hop) for before in again], now)
    unplanned = any(profile.profile_id not in made for profile in [*one.moved, *one.waiting])
    if unplanned or ((one.moved or one.waiting) and not bought) or (one.moved and one.item.supplier in IN_THE_HOUSE):
        await lines.requeue(connection, key, one.hop.supplier if one.moved else one.item.supplier, now)


def _last(profiles: Sequence[Profile], made: Mapping[int, Sequence[Made]]) -> list[Key]:
    return [made[profile.profile_id][-1].key for profile in profiles if profile.profile_id in made]


def _next(key: tuple[int, int, int], before: Sequence[Made], hop: Hop) -> New:
    """The next purchase for a unit. Where this supplier took an order for it that came to nothing, its key is used up:
    asked with it once more, the supplier would answer with that order."""
    tenant_id, order_id, line = key
    last, unit_key = before[-1], _AGAIN.sub("", before[-1].unit_key)
    if any(one.supplier == hop.supplier and one.supplier_ref is not None for one in before):
        unit_key = f"{unit_key}-r{last.position + 1}"
    return New(tenant_id, last.profile_id, last.position + 1, order_id, line, unit_key, *hop)


async def _move_stock(connection: Connection, order: Order, one: _Line, now: datetime) -> None:
    """What leaves the stock gives its codes back, and what enters it takes codes. Raises OperatorError."""
    keys = [(order.tenant_id, profile.profile_id) for profile in one.moved]
    if one.hop.supplier != STOCK:
        if one.item.supplier == STOCK:
            await store.stock.release(connection, keys)
        return
    has = await store.stock.taken_codes(connection, keys)
    without = [key for key in keys if key[1] not in has]
    free = await store.stock.lock_free(connection, one.item.package_code, len(without))
    if len(free) < len(without):
        raise OperatorError(f"stock has {len(free)} of {one.item.package_code}; {len(without)} are needed")
    await store.stock.mark_taken(
        connection, [(iccid, *key) for (iccid, _), key in zip(free, without, strict=True)], now
    )


async def _record(
    connection: Connection, order: Order, moved: frozenset[int], data_keys: DataKeys, now: datetime
) -> None:
    """Failed profiles wait again; their dealer is told."""
    after = delivery.retry(order, moved, now)
    if after is order:
        return
    changes = [(order, after)]
    if items := list(changed_items(changes)):
        await lines.record_items(connection, items)
    await lines.record_profiles(connection, list(changed_profiles(changes)), data_keys, now)
    await lines.record_orders(connection, changes)
    await webhook.order_changed(connection, [(after.tenant_id, after.order_id, after.version)], now)
