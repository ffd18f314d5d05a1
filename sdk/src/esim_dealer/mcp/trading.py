"""Which tools move money? Orders, recharges and refunds: each is previewed, then confirmed by the preview's id.

A preview changes nothing. What it shows is what is confirmed: the price stands in the request, and the service refuses
another one. A preview has one transactionId, so that confirming twice does the thing once.
"""

import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from esim_dealer.client import AsyncDealer
from esim_dealer.errors import DealerError
from esim_dealer.mcp.limits import DailyLimits
from esim_dealer.mcp.reading import esim_name, fields, order_fields
from esim_dealer.mcp.refundable import Target, refundable
from esim_dealer.order import Line, money

PREVIEW_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Preview:
    """What a confirmation would do. `carry_out` is given the transactionId."""

    action: str
    amount: Decimal
    expires_at: float
    carry_out: Callable[[str], Awaitable[dict[str, Any]]]


class TradingTools:
    """Each public method is a tool; its docstring is what the agent reads of it."""

    def __init__(self, dealer: AsyncDealer, limits: DailyLimits, now: Callable[[], float] = time.time) -> None:
        self._dealer = dealer
        self._limits = limits
        self._now = now
        self._previews: dict[str, Preview] = {}

    async def preview_order(
        self, package_code: str, quantity: int = 1, period_num: int | None = None
    ) -> dict[str, Any]:
        """Step 1 of buying eSIMs: what an order would cost, and the balance after it. Buys nothing. Show it to the
        person and ask; then `confirm` with the previewId. `period_num`: days of a DAILY_* package."""
        package = await self._dealer.package(package_code)
        line = Line.of(package, quantity, period_num)
        check = await self._dealer.check_order([line])
        if check.would_refuse:
            raise ValueError(f"the order would be refused: {check.would_refuse.code} {check.would_refuse.message}")

        async def buy(transaction_id: str) -> dict[str, Any]:
            return order_fields(await self._dealer.order(transaction_id, [line]), include_codes=False)

        shown = {
            "packageCode": package.package_code,
            "packageName": package.package_name,
            "quantity": quantity,
            "periodNum": line.period_num,
            "price": package.price,
            "currency": check.currency,
            "balance": check.balance,
            "balanceAfter": check.balance_after or None,
        }
        return self._keep("order", line.amount, shown, buy)

    async def preview_recharge(self, esim: str, package_code: str, period_num: int | None = None) -> dict[str, Any]:
        """Step 1 of adding a plan to an eSIM, named by ICCID or profileId: its price, and the balance after it. Buys
        nothing. Show it to the person and ask; then `confirm` with the previewId."""
        package, wallet = await self._dealer.package(package_code), await self._dealer.balance()
        price = money(package.price)
        amount = price * (period_num or 1)
        if amount > Decimal(wallet.available_balance):
            raise ValueError(f"{amount} {package.currency} is needed, {wallet.available_balance} is available")

        async def recharge(transaction_id: str) -> dict[str, Any]:
            named = esim_name(esim)
            placed = await self._dealer.recharge(transaction_id, package_code, price, **named, period_num=period_num)
            return order_fields(placed, include_codes=False)

        shown = {
            "esim": esim,
            "packageCode": package.package_code,
            "packageName": package.package_name,
            "periodNum": period_num,
            "price": package.price,
            "currency": package.currency,
            "balance": wallet.balance,
            "balanceAfter": str(Decimal(wallet.balance) - amount),
        }
        return self._keep("recharge", amount, shown, recharge)

    async def preview_refund(
        self, order_no: str, item_no: str | None = None, esims: list[str] | None = None
    ) -> dict[str, Any]:
        """Step 1 of a refund to the wallet: the order, what of it is meant, and at most how much would come back. The
        eSIMs stop working. Refunds nothing yet. Show it to the person and ask; then `confirm` with the previewId.
        Without `item_no` the whole order; `esims` are ICCIDs or profileIds of that line. `notRefundable` are eSIMs that
        the refund leaves as they are: used, installed, recharged, or cancelled before."""
        if esims and not item_no:
            raise ValueError("esims need the item_no of the line they belong to")
        order, wallet = await self._dealer.query(order_no), await self._dealer.balance()
        found = refundable(order, item_no, esims)
        items = {item_no: esims or None} if item_no else None

        async def refund(transaction_id: str) -> dict[str, Any]:
            return fields(await self._dealer.refund(order_no, items=items, refund_transaction_id=transaction_id))

        shown = {
            "orderNo": order_no,
            "transactionId": order.transaction_id,
            "itemNo": item_no,
            "esims": esims,
            "atMost": str(found.at_most),
            "notRefundable": [_not_refundable(target) for target in found.refused] or None,
            "currency": order.currency,
            "balance": wallet.balance,
        }
        return self._keep("refund", found.at_most, shown, refund)

    async def confirm(self, preview_id: str) -> dict[str, Any]:
        """Step 2: carry out what was previewed, once the person has agreed. Confirming the same preview again does
        not do it twice; it answers the order or refund as it is now."""
        preview = self._previews.get(preview_id)
        if preview is None or preview.expires_at < self._now():
            raise ValueError(f"there is no preview {preview_id}, or it is older than 10 minutes: preview again")
        transaction_id = f"mcp-{preview_id}"
        self._limits.reserve(transaction_id, preview.amount, self._today())
        try:
            done = await preview.carry_out(transaction_id)
        except DealerError as error:
            if not (error.unsettled or error.transient):
                self._limits.release(transaction_id)
            raise
        return {"action": preview.action, "result": done, "today": self._used()}

    @property
    def tools(self) -> list[Any]:
        return [self.preview_order, self.preview_recharge, self.preview_refund, self.confirm]

    def _keep(
        self,
        action: str,
        amount: Decimal,
        shown: dict[str, Any],
        carry_out: Callable[[str], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Raises LimitReached."""
        self._limits.require_room(amount, self._today())
        now = self._now()
        self._previews = {key: kept for key, kept in self._previews.items() if kept.expires_at > now}
        preview_id = str(uuid.uuid4())
        self._previews[preview_id] = Preview(action, amount, now + PREVIEW_SECONDS, carry_out)
        expires = datetime.fromtimestamp(now + PREVIEW_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kept = {"previewId": preview_id, "action": action, "amount": str(amount), "expires": expires}
        return {**kept, **{name: value for name, value in shown.items() if value is not None}, "today": self._used()}

    def _used(self) -> dict[str, Any]:
        moved = self._limits.moved(self._today())
        return {
            "amount": str(moved.amount),
            "amountLimit": str(self._limits.amount),
            "count": moved.count,
            "countLimit": self._limits.count,
        }

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()


def _not_refundable(target: Target) -> dict[str, Any]:
    known = {"profileId": target.profile_id, "iccid": target.iccid, "reason": target.reason}
    return {name: value for name, value in known.items() if value}
