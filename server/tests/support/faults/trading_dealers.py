"""Dealers who buy, refund and cancel without pause and keep all answers, for tests of faults."""

import random
import secrets
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dealer_server.db.connection import Connection
from support.api_client import Reply
from support.buying_dealers import LOST, PRICES, BuyingDealers, Purchase

REFUND, CANCEL = "/esim/refund", "/esim/profile/cancel"
REFUSED = {"200003", "200004"}  # given back already, or cannot be


@dataclass(eq=False)
class Act:
    """A refund or a cancellation. `told` is the answer that acknowledged it; without one and without `refused` nobody
    knows what came of it."""

    purchase: Purchase
    path: str
    call: Mapping[str, Any]
    told: Mapping[str, Any] | None = None
    refused: bool = False

    @property
    def key(self) -> tuple[int, str]:
        return self.purchase.client.tenant_id, self.call.get("refundTransactionId", "")


@dataclass
class TradingDealers(BuyingDealers):
    """A third of what they do is to give back, or to cancel, something that was delivered."""

    acts: list[Act] = field(default_factory=list)
    open_acts: deque[Act] = field(default_factory=deque)

    def new(self) -> Purchase:
        lines = dict(self.line() for _ in range(random.choice((1, 1, 2))))
        priced = [(code, quantity, Decimal(PRICES.get(code, "1.80"))) for code, quantity in lines.items()]
        items = [{"packageCode": code, "quantity": quantity, "price": str(price)} for code, quantity, price in priced]
        amount = str(sum(quantity * price for _, quantity, price in priced))
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": amount, "items": items}
        purchase = Purchase(random.choice(self.clients), call)
        self.purchases.append(purchase)
        return purchase

    async def next(self, url: str) -> Reply | None:
        return await (self._act(url) if random.random() < 1 / 3 else super().next(url))

    async def settle(self, url: str) -> None:
        await super().settle(url)
        while self.open_acts:
            waiting = list(self.open_acts)
            self.open_acts.clear()
            for act in waiting:
                await self._send(act, url)

    async def credited(self, connection: Connection) -> Mapping[int, int]:
        """By tenant; what the refunds that were asked for say, not the ledger."""
        rows = await connection.fetch("SELECT tenant_id, refund_transaction_id, credited FROM refund")
        asked = {act.key for act in self.acts}
        assert {(row[0], row[1]) for row in rows} <= asked, "a refund that nobody asked for"
        total: Counter[int] = Counter()
        for tenant_id, _, credited in rows:
            total[tenant_id] += credited
        return total

    async def _act(self, url: str) -> Reply | None:
        if self.open_acts:
            return await self._send(self.open_acts.popleft(), url)
        known = [one for one in self.purchases if one.order_no is not None]
        if not known:
            return None
        purchase = random.choice(known)
        purchase.client.url = url
        try:
            reply = await purchase.client.post("/esim/query", {"orderNo": purchase.order_no})
        except LOST:
            return None
        if reply.data.get("deliveryStatus") != "DELIVERED":
            return reply
        act = _any_act(purchase, reply.data)
        self.acts.append(act)
        return await self._send(act, url)

    async def _send(self, act: Act, url: str) -> Reply | None:
        act.purchase.client.url = url
        reply = None
        try:
            reply = await act.purchase.client.post(act.path, act.call)
        except LOST:
            pass
        finally:
            if reply is None or reply.status >= 500:
                self.open_acts.append(act)
        if reply is not None and reply.code == "000000":
            act.told = reply.data
        elif reply is not None and reply.status < 500:
            assert reply.code in REFUSED, (act, reply)
            act.refused = True
        return reply


def _any_act(purchase: Purchase, order: Mapping[str, Any]) -> Act:
    """The order, one line of it, or one profile is given back; or a profile is cancelled."""
    item = random.choice(order["items"])
    profile = random.choice(item["profiles"])
    kind = random.choice(("whole", "line", "profile", "profile", "cancel"))
    if kind == "cancel":
        return Act(purchase, CANCEL, {"profileId": int(profile["profileId"])})
    call: dict[str, Any] = {"orderNo": order["orderNo"], "refundTransactionId": f"r-{secrets.token_hex(8)}"}
    if kind == "line":
        call["items"] = [{"itemNo": item["itemNo"]}]
    if kind == "profile":
        call["items"] = [{"itemNo": item["itemNo"], "profiles": [{"iccid": profile["iccid"]}]}]
    return Act(purchase, REFUND, call)
