"""How does a reseller API of the RT-* family recharge an eSIM?

The eSIM is read first, and how far it reaches is kept as the purchase's step. A recharge whose answer was lost shows by
what has grown since. Only one that does not show after a while is asked for again, under the same transactionId.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from dealer_server.suppliers.contract import (
    Applied,
    Outcome,
    Pending,
    Purchase,
    RechargedEsim,
    Rejected,
    RejectedCode,
    Unknown,
)
from dealer_server.suppliers.rt import parsing
from dealer_server.suppliers.rt.calls import Calls, NoAnswer, NotSent, named
from dealer_server.suppliers.rt.parsing import RtAnswer, RtProfile
from dealer_server.suppliers.rt.refusals import ALL_REFUSED, AMOUNT, AS_IF_THERE, NOT_IN_THIS_STATUS, PRICE, REFUSALS

# An amount is refused where the price is another: no price is sent besides.
_REFUSALS: dict[str, RejectedCode] = {
    **REFUSALS,
    AMOUNT: "CONFIG",
    **dict.fromkeys((NOT_IN_THIS_STATUS, "310272", "310403"), "NOT_ALLOWED"),
}
_LOST = (NotSent, NoAnswer, ValueError)
PRICE_SECONDS = 5.0


class Extent(msgspec.Struct, frozen=True):
    """How far an eSIM reaches: its volume in bytes, its days, and the end of its plan once it is in use."""

    volume: int = 0
    duration: int = 0
    ends_at: datetime | None = None

    def exceeds(self, before: "Extent") -> bool:
        later = self.ends_at is not None and before.ends_at is not None and self.ends_at > before.ends_at
        return self.volume > before.volume or self.duration > before.duration or later


class Recharges:
    """`find` gives an eSIM as it is listed, None where it is not, and raises NotSent, NoAnswer, ValueError.
    `settle_seconds`: how long a recharge that does not show may still turn up."""

    def __init__(
        self, calls: Calls, find: Callable[[RechargedEsim], Awaitable[RtProfile | None]], settle_seconds: float
    ) -> None:
        self._calls = calls
        self._find = find
        self._settle_seconds = settle_seconds

    async def allocate(self, purchase: Purchase, esim: RechargedEsim) -> Outcome:
        if not purchase.step:
            return await self._begin(esim)
        try:
            said = await self._calls.call("esim/topup", _body(purchase, esim))
        except NotSent as error:
            return Rejected("TEMPORARY", True, str(error))
        except NoAnswer as error:
            return Unknown(str(error))
        if not said.code:
            return _applied(purchase, said)
        return await self._refused(purchase, esim, said) or Unknown(said.words)

    async def probe(self, purchase: Purchase, esim: RechargedEsim, now: datetime) -> Outcome:
        """Nothing that has no step was asked for yet."""
        if not purchase.step:
            return await self._begin(esim)
        try:
            if applied := await self._shown(purchase, esim):
                return applied
            since = purchase.unknown_since or purchase.unit.paid_at
            if (now - since).total_seconds() < self._settle_seconds:
                return Unknown("it does not show yet; it is looked for again before it is asked for again")
            return await self._ask_again(purchase, esim)
        except _LOST as error:
            return Unknown(f"looking for it: {error}")

    async def _begin(self, esim: RechargedEsim) -> Outcome:
        try:
            profile = await self._find(esim)
        except _LOST as error:
            return Rejected("TEMPORARY", True, f"reading the eSIM: {error}")
        if profile is None or profile.is_void:
            return Rejected("NOT_ALLOWED", False, f"the eSIM is {profile.esim_status if profile else 'not listed'}")
        return Pending(0, msgspec.json.encode(_extent(profile)).decode())

    async def _ask_again(self, purchase: Purchase, esim: RechargedEsim) -> Outcome:
        """A refusal proves nothing by itself: the first request may have used up the money. Raises NotSent, NoAnswer,
        ValueError."""
        said = await self._calls.call("esim/topup", _body(purchase, esim))
        if not said.code:
            return _applied(purchase, said)
        if applied := await self._shown(purchase, esim):
            return applied
        refused = None if said.code in AS_IF_THERE else await self._refused(purchase, esim, said)
        return refused or Unknown(said.words)

    async def _shown(self, purchase: Purchase, esim: RechargedEsim) -> Applied | None:
        """Whether the eSIM shows that it was recharged. Raises NotSent, NoAnswer, ValueError."""
        profile = await self._find(esim)
        if profile is None:
            raise NoAnswer("the eSIM is not listed")
        extent = _extent(profile)
        return Applied(ends_at=extent.ends_at) if extent.exceeds(_before(purchase)) else None

    async def _refused(self, purchase: Purchase, esim: RechargedEsim, said: RtAnswer) -> Rejected | None:
        """None: that code proves nothing."""
        code = _REFUSALS.get(said.code)
        if code is None:
            return None
        asks = await self._price(purchase, esim) if said.code in (PRICE, AMOUNT) else None
        return Rejected(code, False, said.words, said.code in ALL_REFUSED, asks)

    async def _price(self, purchase: Purchase, esim: RechargedEsim) -> int | None:
        """The price in the supplier's list now; None where there is none, or in another currency."""
        with suppress(*_LOST, TimeoutError):
            async with asyncio.timeout(PRICE_SECONDS):
                said = await self._calls.call("package/list", {"type": "TOPUP", "iccid": esim.iccid})
            return None if said.code else parsing.price(said.obj, purchase.sku, purchase.cost_currency)
        return None


def _body(purchase: Purchase, esim: RechargedEsim) -> dict[str, Any]:
    """With a cost agreed, the supplier refuses it if its price is another (200005, 200006)."""
    days = purchase.unit.period_num
    body: dict[str, Any] = {
        "transactionId": purchase.unit.unit_key,
        "packageCode": purchase.sku,
        **named(esim.unit_ref, esim.iccid),
    }
    if days > 1:
        body["periodNum"] = days
    if purchase.cost is not None:
        body["amount"] = purchase.cost * days
    return body


def _applied(purchase: Purchase, said: RtAnswer) -> Applied:
    """The end of an eSIM that was not in use is not the end of its plan."""
    in_use = _before(purchase).ends_at is not None
    return Applied(ends_at=parsing.recharged_until(said.obj) if in_use else None)


def _extent(profile: RtProfile) -> Extent:
    return Extent(profile.total_volume or 0, profile.total_duration or 0, profile.plan_ends_at)


def _before(purchase: Purchase) -> Extent:
    return msgspec.json.decode(purchase.step, type=Extent)
