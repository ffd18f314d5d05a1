"""Giving money back: refunds are decided and written in batches, as orders are (specification 4.3, decisions 4).

Find, lock wallets and orders, load, decide one after the other, write all, commit. What needs no supplier and no review
is credited in that transaction; the rest is held, and settled by the worker (fulfillment/refund_settler.py).
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from dealer_server import audit_context, failpoints, store
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer
from dealer_server.db.database import Database
from dealer_server.db.locking_batcher import LockingBatcher
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules import refusal
from dealer_server.rules.money import refund, wallet
from dealer_server.rules.money.refund import Way
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.refunds import refund as rows
from dealer_server.store.refunds.refund import Credit, NewRefund, Refund, RefundLine
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import RefundItemStatus

REFUNDS_PER_BATCH = 200
REPEATED_WITHIN = timedelta(hours=24)

_LEFT_OUT = (UNSET, None)  # null counts as left out, also of what is not accepted

OrderKey = tuple[int, int]
WayOf = Callable[[Item, Profile], Way]


class RefundRequest(msgspec.Struct, frozen=True):
    """A refund a dealer asks for. `act`: of a person, for the audit log."""

    tenant_id: int
    call: calls.RefundOrder
    act: Actor | None = None


class DecidedRefund(msgspec.Struct, frozen=True):
    """A refund, new or repeated, and its order as it then stands."""

    row: Refund
    order: Order
    duplicate: bool


class RefundBatcher:
    """Where refunds wait for the batch that decides them. One per process."""

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        links: Links,
        way: WayOf,
        clock: Clock,
        refunded: Callable[[], None] = lambda: None,
    ):
        self._data_keys = data_keys
        self._links = links
        self._way = way
        self._clock = clock
        self._refunded = refunded
        self._batcher: LockingBatcher[RefundRequest, DecidedRefund] = LockingBatcher(
            database, self._decide, bound=REFUNDS_PER_BATCH
        )

    async def refund(self, tenant_id: int, call: calls.RefundOrder, act: Actor | None = None) -> calls.Refund:
        """/esim/refund. A person's `act` stands in the audit log. Raises 000105, 310272, 310274, 310403, 310402,
        200004, 200003."""
        _refuse_foreign(call)
        if call.order_no is None and call.transaction_id is None:
            raise refusal.ParameterMissing("orderNo is required; accepted: orderNo or transactionId, or both")
        return answer(await self._batcher.submit(RefundRequest(tenant_id, call, act)))

    async def open(self) -> None:
        """Opens what the first call will need. Raises DatabaseLost."""
        await self._batcher.open()

    async def close(self) -> None:
        """Returns once everything submitted is answered, with its connections closed."""
        await self._batcher.close()

    async def _decide(
        self, session: Session, batch: Sequence[RefundRequest], wait: bool
    ) -> Sequence[Answer[DecidedRefund]]:
        """Decides under locks; without `wait`, what another transaction holds is left to wait for it."""
        now = self._clock()
        located = await self._locate(session, batch)
        keys = sorted({key for key in located if key is not None})
        if not keys:
            return [refusal.OrderNotFound() for _ in batch]
        async with session.transaction():
            wallets = await store.wallet.lock(session, sorted({tenant_id for tenant_id, _ in keys}), wait=wait)
            locked = await store.order.lock(session, [key for key in keys if key[0] in wallets], wait=wait)
            orders = await store.order.load(session, keys, self._data_keys)
            held = orders.keys() - locked
            mine = [(one, key) for one, key in zip(batch, located, strict=True) if key not in held]
            used = [
                (one.tenant_id, one.call.refund_transaction_id) for one, _ in mine if one.call.refund_transaction_id
            ]
            known = await rows.of_orders(session, keys) + await rows.by_transaction(session, used)
            voiding = (await store.void.cancellations(session, keys)).waiting
            books = RefundBatch({key: orders[key] for key in locked}, wallets, known, voiding, self._way, now)
            first = await store.order.next_block(session, "refund", _first_id(now), len(batch))
            decisions = [books.decide(wanted, key, first + number) for number, (wanted, key) in enumerate(mine)]
            failpoints.hit("refund.decided")
            if books.new:
                await books.write(session, self._data_keys, self._links)
                await _record(session, zip([one for one, _ in mine], decisions, strict=True))
            failpoints.hit("refund.written")
        failpoints.hit("refund.committed")
        if books.new:
            self._refunded()
        following = iter(decisions)
        return [
            self._batcher.wait_for_lock(one) if key in held else next(following)
            for one, key in zip(batch, located, strict=True)
        ]

    async def _locate(self, session: Session, batch: Sequence[RefundRequest]) -> list[OrderKey | None]:
        """(tenant_id, orderId) of each call's order; None where it cannot be one of this dealer's."""
        unresolved = [
            (one.tenant_id, one.call.transaction_id)
            for one in batch
            if one.call.order_no is None and one.call.transaction_id is not None
        ]
        ids = await store.order.ids(session, unresolved) if unresolved else {}
        keys: list[OrderKey | None] = []
        for one in batch:
            order_no = one.call.order_no
            order_id = (
                identity.order_id(order_no) if order_no else ids.get((one.tenant_id, one.call.transaction_id or ""))
            )
            keys.append(None if order_id is None else (one.tenant_id, order_id))
        return keys


class RefundBatch:
    """What a batch works on: orders and wallets as what was decided so far leaves them."""

    def __init__(
        self,
        orders: dict[OrderKey, Order],
        wallets: dict[int, Wallet],
        known: Sequence[Refund],
        voiding: frozenset[int],
        way: WayOf,
        now: datetime,
    ):
        self._before = orders
        self._orders = dict(orders)
        self._wallets = dict(wallets)
        self._known = list({(row.tenant_id, row.refund_id): row for row in known}.values())
        self._voiding = voiding
        self._way = way
        self._now = now
        self.new: list[NewRefund] = []
        self._credits: list[Credit] = []
        self._told: list[tuple[int, Order]] = []

    def decide(self, wanted: RefundRequest, key: OrderKey | None, refund_id: int) -> DecidedRefund | refusal.Refusal:
        order = self._orders.get(key) if key else None
        if order is None or wanted.call.transaction_id not in (None, order.transaction_id):
            return refusal.OrderNotFound()
        try:
            scope = refund.resolve(order, wanted.call.items)
            before = self._repeated(wanted, order, scope)
            if before is not None:
                return DecidedRefund(before, order, True)
            return self._accept(wanted, order, scope, refund_id)
        except refusal.Refusal as why:
            return why

    def _repeated(self, wanted: RefundRequest, order: Order, scope: refund.Scope) -> Refund | None:
        """The refund that this call repeats. Raises 310402."""
        tenant_id, key = wanted.tenant_id, wanted.call.refund_transaction_id
        for row in self._known:
            if row.tenant_id != tenant_id:
                continue
            same = row.order_id == order.order_id and row.scope == scope.meaning
            if key is not None and row.refund_transaction_id == key:
                if not same:
                    raise refusal.RefundTransactionIdReused
                return row
            if key is None and same and row.status != "REJECTED" and row.created_at > self._now - REPEATED_WITHIN:
                return row
        return None

    def _accept(self, wanted: RefundRequest, order: Order, scope: refund.Scope, refund_id: int) -> DecidedRefund:
        """Raises 200004, 200003."""
        plan = refund.plan(order, scope, self._way, self._voiding)
        new = NewRefund(
            *(wanted.tenant_id, refund_id, order.order_id, wanted.call.refund_transaction_id, scope.meaning),
            *("REFUNDED" if plan.at_once else "REFUNDING", plan.amount, wanted.call.remark, "dealer", self._now),
            None,
            plan.parts,
        )
        ids = [part.profile_id for part in plan.parts]
        if plan.at_once:
            after = refund.credit(order, plan.parts, self._now)
            paid = wallet.credited(self._wallets[wanted.tenant_id], plan.amount)
            self._wallets[wanted.tenant_id] = paid
            self._credits.append(Credit(wanted.tenant_id, refund_id, plan.amount, paid.version, paid.balance))
            self._told.append((refund_id, after))
        else:
            after = refund.hold(order, ids, self._now)
        self._orders[wanted.tenant_id, order.order_id] = after
        self.new.append(new)
        row = Refund(
            *(new.tenant_id, new.refund_id, new.order_id, new.refund_transaction_id, new.scope, new.status),
            *(new.amount, new.amount if plan.at_once else 0, self._now, self._now if plan.at_once else None),
            tuple(
                RefundLine(
                    part.profile_id, part.line, part.amount, part.way, "COMPLETED" if plan.at_once else "PENDING"
                )
                for part in plan.parts
            ),
        )
        self._known.append(row)
        return DecidedRefund(row, after, False)

    async def write(self, session: Session, data_keys: DataKeys, links: Links) -> None:
        changes = [(self._before[key], after) for key, after in self._orders.items() if after is not self._before[key]]
        await rows.add(session, self.new)
        await store.void.add_refund_voids(session, self.new, self._orders, self._now)
        await rows.settle(session, changes, self._credits, self._told, data_keys, links, self._now)


async def _record(session: Session, done: Iterable[tuple[RefundRequest, DecidedRefund | Exception]]) -> None:
    """The acts of people that were carried out."""
    for wanted, decided in done:
        if wanted.act is None or isinstance(decided, Exception) or decided.duplicate:
            continue
        given = answer(decided)
        detail = {
            "orderNo": given.order_no,
            "refundNo": given.refund_no,
            "amount": given.refund_amount,
            "reason": wanted.act.reason,
        }
        audit_context.source.set(wanted.act.source)  # of this batch alone: it is no request of anybody
        await store.audit_log.record_act(session, wanted.act.author, "order.refund", wanted.tenant_id, detail)


def answer(decided: DecidedRefund) -> calls.Refund:
    row, order = decided.row, decided.order
    numbers = sorted({line.line for line in row.lines})
    return calls.Refund(
        refund_no=identity.refund_no(row.refund_id),
        order_no=order.order_no,
        transaction_id=order.transaction_id,
        status=row.status,
        refund_amount=refund.text(row.credited if row.status == "REFUNDED" else row.amount, order),
        total_refund_amount=refund.text(order.refund_amount, order),
        currency=order.currency,
        items=tuple(_item(row, order, number) for number in numbers),
        duplicate=decided.duplicate,
    )


def _item(row: Refund, order: Order, number: int) -> calls.RefundedItem:
    """One line of the answer. Of a settled refund, rejected profiles are named only where all of the line were."""
    lines = [line for line in row.lines if line.line == number]
    status: RefundItemStatus = "PENDING"
    if row.status != "REFUNDING":
        credited = [line for line in lines if line.status == "COMPLETED"]
        status, lines = ("COMPLETED", credited) if credited else ("REJECTED", lines)
    iccids = {profile.profile_id: profile.iccid for profile in order.items[number].profiles}
    ids = [line.profile_id for line in lines]
    return calls.RefundedItem(
        item_no=identity.item_no(order.order_id, number),
        refund_status=status,
        profile_ids=tuple(ids),
        iccids=tuple(iccid for one in ids if (iccid := iccids[one]) is not None),
    )


def _refuse_foreign(call: calls.RefundOrder) -> None:
    """Raises 000111 for what belongs to other interfaces (specification 4.3 rule 4)."""
    if call.profiles not in _LEFT_OUT:
        raise refusal.ParameterNotAccepted("profiles is not accepted here; name profiles in items[].profiles")
    places: list[tuple[str, calls.RefundOrder | calls.RefundItem | calls.RefundProfile]] = [("", call)]
    for index, item in enumerate(call.items or ()):
        places.append((f"items[{index}].", item))
        places += [(f"items[{index}].profiles[{at}].", one) for at, one in enumerate(item.profiles or ())]
    for where, place in places:
        if place.esim_tran_no not in _LEFT_OUT:
            raise refusal.ParameterNotAccepted(
                f"{where}esimTranNo is not accepted; name profiles by profileId or iccid"
            )


def _first_id(now: datetime) -> int:
    return identity.first_id_at(int(now.timestamp()))
