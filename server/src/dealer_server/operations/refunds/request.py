"""How does a dealer get a refund? /esim/refund (specification 4.3, docs/decisions/0008-refunds.md)

Refunds are decided in batches, as orders are: find, lock wallets and orders, load, decide one after the other, write,
commit. What needs no supplier and no review is credited in that transaction; the rest is held, and settled by the
worker (fulfillment/refund_settler.py).
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from msgspec import UNSET

from dealer_server import audit_context, failpoints, store
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer
from dealer_server.db.database import Database
from dealer_server.db.locking_batcher import LockingBatcher
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.operations.refunds.decide import OrderKey, RefundBatch, RefundDecision, RefundRequest, WayOf
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.refunds import refund
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.recharges import recharge as recharges
from dealer_server.store.refunds import refund as refund_store
from dealer_server.store.refunds.refund import Refund
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import RefundItemStatus

REFUNDS_PER_BATCH = 200

_ABSENT = (UNSET, None)  # null counts as left out, also of parameters that are not accepted


class RefundBatcher:
    """Decides and writes the refunds that arrive together as one batch. One per process."""

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
        self._batcher: LockingBatcher[RefundRequest, RefundDecision] = LockingBatcher(
            database, self._decide, bound=REFUNDS_PER_BATCH, name="refunds"
        )

    async def refund(self, tenant_id: int, call: calls.RefundOrder, act: Actor | None = None) -> calls.Refund:
        """`act`: the person who asks at the console, recorded in the audit log. Raises 000105, 000106, 000111, 310272,
        310274, 310403, 310402, 200004, 200003."""
        _refuse_foreign(call)
        if call.order_no is None and call.transaction_id is None:
            raise refusal.ParameterMissing("orderNo is required; accepted: orderNo or transactionId, or both")
        return _answer(await self._batcher.submit(RefundRequest(tenant_id, call, act)))

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self._batcher.close()

    async def _decide(
        self, session: Session, batch: Sequence[RefundRequest], wait: bool
    ) -> Sequence[Answer[RefundDecision]]:
        """Decides under locks. Without `wait`, refunds of rows that another transaction holds are left to the lock
        waiters."""
        now = self._clock()
        located = await _locate(session, batch)
        keys = sorted({key for key in located if key is not None})
        if not keys:
            return [refusal.OrderNotFound() for _ in batch]
        esims = await recharges.of_esims(session, keys)
        both = sorted({*keys, *esims.values()})
        async with session.transaction():
            wallets = await store.wallet.lock(session, sorted({tenant_id for tenant_id, _ in keys}), wait=wait)
            locked = await store.order.lock(session, [key for key in both if key[0] in wallets], wait=wait)
            orders = await store.order.load(session, both, self._data_keys)
            held = {key for key in orders if not {key, esims.get(key, key)} <= locked}
            free = [(request, key) for request, key in zip(batch, located, strict=True) if key not in held]
            existing = await _existing(session, keys, [request for request, _ in free])
            voiding = (await store.void.cancellations(session, keys)).waiting
            await recharges.lock_planned(session, sorted(locked))
            blocked = await recharges.not_refundable(session, sorted(locked))
            blocked |= dict.fromkeys(voiding, "CANCELLED")
            of_locked = {key: orders[key] for key in locked}
            refunds = RefundBatch(of_locked, esims, wallets, existing, blocked, self._way, now)
            first_id = await store.order.next_block(session, "refund", _first_id(now), len(batch))
            decisions = [refunds.decide(request, key, first_id + n) for n, (request, key) in enumerate(free)]
            failpoints.hit("refund.decided")
            if refunds.has_new:
                await refunds.write(session, self._data_keys, self._links)
                await _record_acts(session, zip([request for request, _ in free], decisions, strict=True))
            failpoints.hit("refund.written")
        failpoints.hit("refund.committed")
        if refunds.has_new:
            self._refunded()
        remaining = iter(decisions)
        return [
            self._batcher.wait_for_lock(request) if key in held else next(remaining)
            for request, key in zip(batch, located, strict=True)
        ]


async def _locate(session: Session, batch: Sequence[RefundRequest]) -> list[OrderKey | None]:
    """(tenant_id, orderId) of each call's order; None where this dealer cannot have such an order."""
    unresolved = [
        (request.tenant_id, request.call.transaction_id)
        for request in batch
        if request.call.order_no is None and request.call.transaction_id is not None
    ]
    ids = await store.order.ids(session, unresolved) if unresolved else {}
    keys: list[OrderKey | None] = []
    for request in batch:
        order_no = request.call.order_no
        if order_no:
            order_id = identity.order_id(order_no)
        else:
            order_id = ids.get((request.tenant_id, request.call.transaction_id or ""))
        keys.append(None if order_id is None else (request.tenant_id, order_id))
    return keys


async def _existing(session: Session, keys: Sequence[OrderKey], batch: Sequence[RefundRequest]) -> list[Refund]:
    """The refunds of these orders, and those that carry a refundTransactionId of the batch."""
    used = [
        (request.tenant_id, request.call.refund_transaction_id)
        for request in batch
        if request.call.refund_transaction_id
    ]
    return await refund_store.of_orders(session, keys) + await refund_store.by_transaction(session, used)


async def _record_acts(session: Session, decided: Iterable[tuple[RefundRequest, RefundDecision | Exception]]) -> None:
    """Records the new refunds that people asked for."""
    for request, decision in decided:
        if request.act is None or isinstance(decision, Exception) or decision.duplicate:
            continue
        answer = _answer(decision)
        detail = {
            "orderNo": answer.order_no,
            "refundNo": answer.refund_no,
            "amount": answer.refund_amount,
            "reason": request.act.reason,
        }
        # The batch runs in a task of its own, which has the source of no request.
        audit_context.source.set(request.act.source)
        await record_act(session, request.act.author, "order.refund", request.tenant_id, detail)


def _answer(decision: RefundDecision) -> calls.Refund:
    row, order = decision.row, decision.order
    line_numbers = sorted({line.line for line in row.lines})
    return calls.Refund(
        refund_no=identity.refund_no(row.refund_id),
        order_no=order.order_no,
        transaction_id=order.transaction_id,
        status=row.status,
        refund_amount=refund.text(row.credited if row.status == "REFUNDED" else row.amount, order),
        total_refund_amount=refund.text(order.refund_amount, order),
        currency=order.currency,
        items=tuple(_item(row, order, number) for number in line_numbers),
        duplicate=decision.duplicate,
    )


def _item(row: Refund, order: Order, number: int) -> calls.RefundedItem:
    """One line of the answer. A settled refund names rejected profiles only where the whole line was rejected."""
    lines = [line for line in row.lines if line.line == number]
    status: RefundItemStatus = "PENDING"
    if row.status != "REFUNDING":
        credited = [line for line in lines if line.status == "COMPLETED"]
        status, lines = ("COMPLETED", credited) if credited else ("REJECTED", lines)
    by_id = {profile.profile_id: order.named(profile) for profile in order.items[number].profiles}
    named = [by_id[line.profile_id] for line in lines]
    return calls.RefundedItem(
        item_no=identity.item_no(order.order_id, number),
        refund_status=status,
        profile_ids=tuple(profile_id for profile_id, _ in named),
        iccids=tuple(iccid for _, iccid in named if iccid is not None),
    )


def _refuse_foreign(call: calls.RefundOrder) -> None:
    """Raises 000111 for parameters of other interfaces (specification 4.3)."""
    if call.profiles not in _ABSENT:
        raise refusal.ParameterNotAccepted("profiles is not accepted here; name profiles in items[].profiles")
    objects: list[tuple[str, calls.RefundOrder | calls.RefundItem | calls.RefundProfile]] = [("", call)]
    for index, item in enumerate(call.items or ()):
        objects.append((f"items[{index}].", item))
        objects += [(f"items[{index}].profiles[{at}].", profile) for at, profile in enumerate(item.profiles or ())]
    for path, sent in objects:
        if sent.esim_tran_no not in _ABSENT:
            raise refusal.ParameterNotAccepted(f"{path}esimTranNo is not accepted; name profiles by profileId or iccid")


def _first_id(now: datetime) -> int:
    return identity.first_id_at(int(now.timestamp()))
