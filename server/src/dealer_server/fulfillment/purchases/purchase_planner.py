"""Turns the order lines of a remote supplier into purchases, one for each unit. Nobody is asked yet: a purchase is
written down before its first call."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dealer_server import failpoints
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.engine import Context, Decision, OrderKey, RowKey
from dealer_server.fulfillment.line_engine import LineEngine, OrderLines
from dealer_server.fulfillment.purchases import purchase_decision
from dealer_server.fulfillment.recharges import recharges_void
from dealer_server.fulfillment.supplier_calls import recharge_key, unit_key
from dealer_server.rules.delivery.delivery import Failed
from dealer_server.rules.orders.model import Order
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.store.suppliers import purchase as purchases
from dealer_server.store.suppliers.purchase import Hop, New
from dealer_server.suppliers.contract import Remote

SOON_SECONDS = 1.0  # an earlier recharge of the same eSIM is not applied yet


@dataclass
class Plan(Decision):
    """lines: those that are still claimed, with their claim_id. purchases: what they become."""

    lines: list[tuple[int | None, Claimed]] = field(default_factory=list)
    purchases: list[New] = field(default_factory=list)


class PurchasePlanner(LineEngine[None, Plan]):
    """Works on its purchaser's connection, whenever the purchaser claims."""

    point = "planning"

    def __init__(self, remote: Remote, context: Context):
        super().__init__(remote, "planning", 1, context)

    async def begin(self, room: int) -> int:
        """Plans what is due; how many lines."""
        claims = await self._claim()
        if claims:
            failpoints.hit("purchase.lines_claimed")
        await self._pool.record([(claim, None) for claim in claims])
        return sum([len(claim.lines) for claim in claims])

    def unanswered(self, claim: OrderLines, fault: str) -> None:
        return None

    async def _decide(
        self,
        answered: Answered[OrderLines, None],
        held: Collection[RowKey],
        orders: Mapping[OrderKey, Order],
        now: datetime,
    ) -> Plan:
        lines = [(claim.claim_id, line) for claim, _ in answered for line in claim.lines if line.key in held]
        routes = await purchases.routes(self._session, sorted({line.package_code for _, line in lines}))
        void = [line for _, line in lines if line.recharged_order and recharges_void(orders, line)]
        return Plan(
            results={profile_id: Failed() for line in void for profile_id in line.pending},
            begun={
                claim.order: frozenset(line.line for line in claim.lines if line.key in held) for claim, _ in answered
            },
            lines=lines,
            purchases=[
                new
                for _, line in lines
                if line not in void and not line.blocked
                for new in self._purchases(line, routes.get(line.package_code, ()))
            ],
        )

    def _purchases(self, line: Claimed, route: Sequence[Hop]) -> list[New]:
        find_hop = purchase_decision.first_hop if line.recharges is None else purchase_decision.own_hop
        hop = find_hop(self.code, line.package_code, route)
        return [
            New(
                tenant_id=line.tenant_id,
                profile_id=profile_id,
                position=0,
                order_id=line.order_id,
                line=line.line,
                unit_key=unit_key(line.order_id, line.line, profile_id - line.first_profile_id + 1)
                if line.recharges is None
                else recharge_key(line.order_id, line.line),
                **hop._asdict(),
                recharges=line.recharges,
            )
            for profile_id in line.pending
        ]

    async def _write(
        self, decided: Plan, before: Mapping[OrderKey, Order], after: Mapping[OrderKey, Order], now: datetime
    ) -> None:
        if decided.purchases:
            await purchases.add(self._session, decided.purchases, now)
        scheduled: dict[int | None, list[Scheduled]] = {}
        for claim_id, line in decided.lines:
            due_at = now + timedelta(seconds=SOON_SECONDS) if line.blocked else None
            scheduled.setdefault(claim_id, []).append(Scheduled(line.key, due_at, answered=True))
        await self._reschedule(scheduled)
