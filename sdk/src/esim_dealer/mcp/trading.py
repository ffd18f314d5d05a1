"""Which tools move money? Orders, recharges and refunds: each is previewed, then confirmed by the preview's id.

A preview changes nothing. What it shows is what is confirmed: the price stands in the request, and the service refuses
another one. A preview has one transactionId, so that confirming twice does the thing once.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

from pydantic import Field

from esim_dealer.client import AsyncDealer
from esim_dealer.errors import DealerError
from esim_dealer.exchange import settles
from esim_dealer.mcp.limits import DailyLimits, LimitsUnavailable
from esim_dealer.mcp.reading import esim_name, fields, order_fields
from esim_dealer.mcp.refundable import Target, refundable
from esim_dealer.order import Line, money
from esim_dealer.wire.calls import Package
from esim_dealer.wire.vocabulary import SUCCESS

PREVIEW_SECONDS = 600
_NAME_SHOWN = 40  # an id of ours has 36 characters
Count = Annotated[int, Field(strict=True, ge=1, le=10_000)]
"""1 or more; the service refuses what is more than it takes."""


@dataclass(slots=True)
class Preview:
    """What a confirmation would do. `carry_out` is given the transactionId; one confirmation at a time calls it.
    `unknown`: whether it was done is not known, so it can be confirmed for as long as that is so."""

    action: str
    amount: Decimal
    expires_at: float
    carry_out: Callable[[str], Awaitable[dict[str, Any]]]
    unknown: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def open(self, now: float) -> bool:
        return self.unknown or self.expires_at > now


class TradingTools:
    """Each public method is a tool; its docstring is what the agent reads of it."""

    def __init__(self, dealer: AsyncDealer, limits: DailyLimits, now: Callable[[], float] = time.time) -> None:
        self._dealer = dealer
        self._limits = limits
        self._now = now
        self._previews: dict[str, Preview] = {}
        self._confirming: set[asyncio.Task[dict[str, Any]]] = set()

    async def preview_order(
        self, package_code: str, quantity: Count = 1, period_num: Count | None = None
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
        return await self._keep("order", line.amount, shown, buy)

    async def preview_recharge(self, esim: str, package_code: str, period_num: Count | None = None) -> dict[str, Any]:
        """Step 1 of adding a plan to an eSIM, named by ICCID or profileId: its price, and the balance after it. Buys
        nothing. Show it to the person and ask; then `confirm` with the previewId. `period_num`: days of a DAILY_*
        package."""
        package, wallet = await self._recharging(esim, package_code), await self._dealer.balance()
        _require_days(package, period_num)
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
        return await self._keep("recharge", amount, shown, recharge)

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

        async def refund(transaction_id: str) -> dict[str, Any]:
            return fields(await self._dealer.refund(order_no, items=found.items, refund_transaction_id=transaction_id))

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
        return await self._keep("refund", found.at_most, shown, refund)

    async def confirm(self, preview_id: str) -> dict[str, Any]:
        """Step 2: carry out what was previewed, once the person has agreed. `preview_id`: the previewId of its answer.
        Confirming the same preview again does not do it twice; it answers the order or refund as it is now."""
        carrying_out = asyncio.create_task(self._carry_out(preview_id))  # it ends also when the agent has gone
        self._confirming.add(carrying_out)
        carrying_out.add_done_callback(self._confirming.discard)
        return await asyncio.shield(carrying_out)

    @property
    def tools(self) -> list[Any]:
        return [self.preview_order, self.preview_recharge, self.preview_refund, self.confirm]

    async def _carry_out(self, preview_id: str) -> dict[str, Any]:
        preview = self._open_preview(preview_id)
        async with preview.turn:
            self._open_preview(preview_id)  # it may have expired while another confirmation was under way
            transaction_id = f"mcp-{preview_id}"
            first = await asyncio.to_thread(self._limits.reserve, transaction_id, preview.amount, self._today())
            try:
                done = await preview.carry_out(transaction_id)
            except DealerError as error:
                preview.unknown = error.unsettled or (preview.unknown and not settles(error))
                if error.code == SUCCESS:
                    raise ValueError(f"it was done, but the answer is not understood: {error}") from error
                if error.unsettled:
                    told = error.__cause__ or error
                    raise ValueError(f"it is not known whether this was done; confirm it again: {told}") from error
                if first or settles(error):  # else it may have been done before
                    with suppress(LimitsUnavailable):  # then it stays counted
                        await asyncio.to_thread(self._limits.release, transaction_id)
                raise
            preview.unknown = False
            answer = {"action": preview.action, "result": done}
            with suppress(LimitsUnavailable):  # what was done is told all the same
                answer["today"] = await self._used()
            return answer

    def _open_preview(self, preview_id: str) -> Preview:
        """Raises ValueError."""
        preview = self._previews.get(preview_id)
        if preview is None or not preview.open(self._now()):
            shown = preview_id if len(preview_id) <= _NAME_SHOWN else f"{preview_id[:_NAME_SHOWN]}…"
            raise ValueError(
                f"there is no preview {shown}, or it is older than 10 minutes; if you confirmed it before, look with"
                " list_orders or list_esims before you preview again"
            )
        return preview

    async def _recharging(self, esim: str, package_code: str) -> Package:
        """The package, where it recharges this eSIM. Raises NotFound, ValueError."""
        found = await self._dealer.packages(package_code=package_code, **esim_name(esim))
        fitting = [package for package in found.packages if package.package_code == package_code]
        if not fitting:
            raise ValueError(
                f"{package_code} does not recharge eSIM {esim}: list_packages with for_esim shows what does"
            )
        return fitting[0]

    async def _keep(
        self,
        action: str,
        amount: Decimal,
        shown: dict[str, Any],
        carry_out: Callable[[str], Awaitable[dict[str, Any]]],
    ) -> dict[str, Any]:
        """Raises LimitReached."""
        await asyncio.to_thread(self._limits.require_room, amount, self._today())
        now = self._now()
        self._previews = {key: kept for key, kept in self._previews.items() if kept.open(now)}
        preview_id = str(uuid.uuid4())
        self._previews[preview_id] = Preview(action, amount, now + PREVIEW_SECONDS, carry_out)
        expires = datetime.fromtimestamp(now + PREVIEW_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        kept = {"previewId": preview_id, "action": action, "amount": str(amount), "expires": expires}
        return {
            **kept,
            **{name: value for name, value in shown.items() if value is not None},
            "today": await self._used(),
        }

    async def _used(self) -> dict[str, Any]:
        moved = await asyncio.to_thread(self._limits.moved, self._today())
        return {
            "amount": str(moved.amount),
            "amountLimit": str(self._limits.amount),
            "count": moved.count,
            "countLimit": self._limits.count,
        }

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()


def _require_days(package: Package, period_num: int | None) -> None:
    """Raises ValueError where no eSIM takes so many days of it."""
    if period_num is None and package.min_period_num <= 1:
        return
    if period_num is not None and not package.data_type.startswith("DAILY"):
        raise ValueError(f"period_num {period_num}: {package.package_code} is not sold by the day; leave it out")
    if not package.min_period_num <= (period_num or 0) <= package.max_period_num:
        accepted = f"{package.min_period_num} to {package.max_period_num}"
        raise ValueError(f"period_num {period_num}: {accepted} are accepted for {package.package_code}")


def _not_refundable(target: Target) -> dict[str, Any]:
    known = {"profileId": target.profile_id, "iccid": target.iccid, "reason": target.reason}
    return {name: value for name, value in known.items() if value}
