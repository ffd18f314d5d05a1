"""Which refunds of a batch are accepted, and what do they change? One is decided after the other, in memory.

Later refunds of the batch see orders and wallets as earlier ones left them; `write` then writes all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from dealer_server import store
from dealer_server.audit_context import Actor
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules import refusal
from dealer_server.rules.money import wallet
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.recharges import recharge
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Plan, Reason, Way
from dealer_server.store.refunds import refund as refund_store
from dealer_server.store.refunds.refund import Credit, NewRefund, Refund, RefundLine
from esim_dealer.wire import calls

REPEATED_WITHIN = timedelta(hours=24)

OrderKey = tuple[int, int]
WayOf = Callable[[Item, Profile], Way]


class RefundRequest(msgspec.Struct, frozen=True):
    """A refund that a dealer asks for. `act`: the person who asks at the console, for the audit log."""

    tenant_id: int
    call: calls.RefundOrder
    act: Actor | None = None


class RefundDecision(msgspec.Struct, frozen=True):
    """A refund, new or repeated, and its order as it then is."""

    row: Refund
    order: Order
    duplicate: bool


class RefundBatch:
    """The orders, wallets and refunds of one batch while it is decided. `orders`, `wallets`: as they are locked;
    `esims`: by order that of the eSIM which it recharges, locked, too; `existing`: refunds of these orders, and of the
    refundTransactionIds used; `blocked`: profiles that something other than their order keeps from being refunded."""

    def __init__(
        self,
        orders: dict[OrderKey, Order],
        esims: Mapping[OrderKey, OrderKey],
        wallets: dict[int, Wallet],
        existing: Sequence[Refund],
        blocked: Mapping[int, Reason],
        way: WayOf,
        now: datetime,
    ):
        self._orders_before = orders
        self._orders = dict(orders)
        self._esims = esims
        self._wallets = dict(wallets)
        self._existing = list({(row.tenant_id, row.refund_id): row for row in existing}.values())
        self._blocked = blocked
        self._way = way
        self._now = now
        self._new: list[NewRefund] = []
        self._credits: list[Credit] = []
        self._credited: list[tuple[int, Order]] = []

    @property
    def has_new(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._new)

    def decide(self, request: RefundRequest, key: OrderKey | None, refund_id: int) -> RefundDecision | refusal.Refusal:
        order = self._orders.get(key) if key else None
        if order is None or request.call.transaction_id not in (None, order.transaction_id):
            return refusal.OrderNotFound()
        try:
            scope = refund.resolve(order, request.call.items)
            original = self._original(request, order, scope)
            if original is not None:
                return RefundDecision(original, order, duplicate=True)
            plan = refund.plan(order, scope, self._way, {**self._blocked, **self._blocked_recharge(order)})
        except refusal.Refusal as refused:
            return refused
        return self._accept(request, order, scope, plan, refund_id)

    def _blocked_recharge(self, order: Order) -> Mapping[int, Reason]:
        if order.recharges is None:
            return {}
        esim = self._orders[self._esims[order.tenant_id, order.order_id]]
        reason = recharge.not_refundable(order, esim)
        return {} if reason is None else {order.profiles[0].profile_id: reason}

    def _original(self, request: RefundRequest, order: Order, scope: refund.Scope) -> Refund | None:
        """The refund that this call repeats. Raises 310402."""
        tenant_id, transaction_id = request.tenant_id, request.call.refund_transaction_id
        for row in self._existing:
            if row.tenant_id != tenant_id:
                continue
            same = row.order_id == order.order_id and row.scope == scope.digest
            if transaction_id is None:
                if same and row.status != "REJECTED" and row.created_at > self._now - REPEATED_WITHIN:
                    return row
            elif row.refund_transaction_id == transaction_id:
                if not same:
                    raise refusal.RefundTransactionIdReused
                return row
        return None

    def _accept(
        self, request: RefundRequest, order: Order, scope: refund.Scope, plan: Plan, refund_id: int
    ) -> RefundDecision:
        tenant_id = request.tenant_id
        if plan.at_once:
            after = refund.credit(order, plan.parts, self._now)
            paid = wallet.credited(self._wallets[tenant_id], plan.amount)
            self._wallets[tenant_id] = paid
            self._credits.append(
                Credit(
                    tenant_id=tenant_id,
                    refund_id=refund_id,
                    amount=plan.amount,
                    version=paid.version,
                    balance_after=paid.balance,
                )
            )
            self._credited.append((refund_id, after))
        else:
            after = refund.hold(order, [part.profile_id for part in plan.parts], self._now)
        self._orders[tenant_id, order.order_id] = after
        if order.recharges is not None:
            key = self._esims[tenant_id, order.order_id]
            self._orders[key] = recharge.with_refund(self._orders[key], after, self._now)
        new = NewRefund(
            tenant_id=tenant_id,
            refund_id=refund_id,
            order_id=order.order_id,
            refund_transaction_id=request.call.refund_transaction_id,
            scope=scope.digest,
            status="REFUNDED" if plan.at_once else "REFUNDING",
            amount=plan.amount,
            remark=request.call.remark,
            author=request.act.author if request.act else "dealer",
            created_at=self._now,
            due_at=None,
            parts=plan.parts,
        )
        self._new.append(new)
        row = _row(new)
        self._existing.append(row)
        return RefundDecision(row, after, duplicate=False)

    async def write(self, session: Session, data_keys: DataKeys, links: Links) -> None:
        before = self._orders_before
        changes = [(before[key], after) for key, after in self._orders.items() if after is not before[key]]
        await refund_store.add(session, self._new)
        await store.void.add_refund_voids(session, self._new, self._orders, self._now)
        await refund_store.settle(session, changes, self._credits, self._credited, data_keys, links, self._now)


def _row(new: NewRefund) -> Refund:
    """A new refund as it will be read back."""
    credited = new.status == "REFUNDED"
    return Refund(
        tenant_id=new.tenant_id,
        refund_id=new.refund_id,
        order_id=new.order_id,
        refund_transaction_id=new.refund_transaction_id,
        scope=new.scope,
        status=new.status,
        amount=new.amount,
        credited=new.amount if credited else 0,
        remark=new.remark,
        author=new.author,
        created_at=new.created_at,
        settled_at=new.created_at if credited else None,
        lines=tuple(
            RefundLine(
                profile_id=part.profile_id,
                line=part.line,
                amount=part.amount,
                way=part.way,
                status="COMPLETED" if credited else "PENDING",
            )
            for part in new.parts
        ),
    )
