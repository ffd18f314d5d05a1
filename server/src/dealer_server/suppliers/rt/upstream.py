"""A reseller API of the RT-* family, such as eSIM Access.

One upstream order per unit, with our unit_key as its transactionId. Allocation is asynchronous. It is not documented
what a transactionId that comes twice does. So an order whose answer was lost is looked for in the list of our orders;
only one that is still not listed a while after the payment is placed again, under the same transactionId.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from dealer_server.suppliers.contract import (
    BadEvent,
    Bought,
    Caps,
    Done,
    Event,
    Health,
    NotVoided,
    Outcome,
    Pending,
    ProfileReport,
    Purchase,
    RechargedEsim,
    Rejected,
    RejectedCode,
    Sms,
    SmsFailed,
    SmsOutcome,
    SmsSent,
    SmsWaits,
    SuspensionDone,
    SuspensionOutcome,
    SuspensionRefused,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)
from dealer_server.suppliers.rt import parsing
from dealer_server.suppliers.rt.calls import BUSY, Calls, NoAnswer, NotSent, RtSettings, named
from dealer_server.suppliers.rt.parsing import RtAnswer, RtProfile, RtUsage
from dealer_server.suppliers.rt.recharges import PRICE_SECONDS, Recharges
from dealer_server.suppliers.rt.refusals import ALL_REFUSED, AS_IF_THERE, NOT_IN_THIS_STATUS, NOT_YET, PRICE, REFUSALS

T = TypeVar("T")
METHOD_SECONDS = 40.0  # ends before CALL_SECONDS
STATES_SECONDS, USAGES_SECONDS = 30.0, 10.0
POLL_SECONDS = (2, 4, 8, 15, 30)
POLL_LATER_SECONDS = 60
CLOCKS_DIFFER = timedelta(minutes=5)
PAGE_SIZE = 100
USAGES_PER_CALL = 10
SMS_AGAIN_SECONDS = 15.0


class RtUpstream:
    kind = "rt_upstream"
    CAPS = Caps(polled=True, own_plan_end=True, event_status=200, recharges=True, suspend=True, sms=True)

    def __init__(self, code: str, settings: RtSettings):
        self.code = code
        self.caps = msgspec.structs.replace(self.CAPS, parallel=settings.parallel)
        self.senders = settings.sender_ips
        self._settings = settings
        self._calls = Calls(settings)
        self._asking = asyncio.Semaphore(max(1, settings.parallel // 2))  # a refresh keeps no purchase waiting
        self._recharges = Recharges(self._calls, self._profile, settings.settle_seconds)

    async def allocate(self, purchase: Purchase, now: datetime) -> Outcome:
        if purchase.unit.recharges is not None:
            return await self._recharges.allocate(purchase, purchase.unit.recharges)
        if purchase.supplier_ref is not None:
            return await self._status_of(purchase, purchase.supplier_ref, now)
        return await self._order(purchase, now, again=False)

    async def probe(self, purchase: Purchase, now: datetime) -> Outcome:
        if purchase.supplier_ref is not None:
            return await self._status_of(purchase, purchase.supplier_ref, now)
        try:
            async with asyncio.timeout(METHOD_SECONDS):
                if purchase.unit.recharges is not None:
                    return await self._recharges.probe(purchase, purchase.unit.recharges, now)
                return await self._find(purchase, now) or await self._order_again(purchase, now)
        except (NotSent, NoAnswer, ValueError) as error:
            return Unknown(f"looking for it: {error}")
        except TimeoutError:
            return Unknown("looking for it took too long")

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """Cancels an eSIM that the supplier takes back. One that was installed or used is revoked, but not for a
        refund."""
        try:
            async with asyncio.timeout(METHOD_SECONDS):
                return await self._void(unit)
        except (NotSent, NoAnswer, ValueError) as error:
            return Unknown(str(error))
        except TimeoutError:
            return Unknown("no answer in time")

    async def set_suspended(self, esim: Bought, suspended: bool, now: datetime) -> SuspensionOutcome:
        try:
            async with asyncio.timeout(METHOD_SECONDS):
                return await self._set_suspended(esim, suspended)
        except (NotSent, NoAnswer, ValueError) as error:
            return Unknown(str(error))
        except TimeoutError:
            return Unknown("no answer in time")

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> list[ProfileReport]:
        """One call for each eSIM's state and one for the usage of ten; an eSIM without an answer in time is missing."""
        states = await _in_time([self._state(esim) for esim in bought], STATES_SECONDS)
        seen = [(esim, profile) for esim, profile in zip(bought, states, strict=True) if profile is not None]
        numbers = [profile.esim_tran_no for _, profile in seen if profile.esim_tran_no]
        chunks = [numbers[at : at + USAGES_PER_CALL] for at in range(0, len(numbers), USAGES_PER_CALL)]
        usages = await _in_time([self._usages(chunk) for chunk in chunks], USAGES_SECONDS)
        used = {usage.esim_tran_no: usage for answer in usages for usage in answer or ()}
        return [
            ProfileReport(
                parsing.report(profile, used.get(profile.esim_tran_no or ""), now, recharged=bool(esim.plans)),
                esim.iccid,
                unit_key=esim.unit_key or None,
            )
            for esim, profile in seen
        ]

    async def send_sms(self, sms: Sms, now: datetime) -> SmsOutcome:
        """A repeat is not documented to be known as one, so it is sent once."""
        try:
            async with asyncio.timeout(METHOD_SECONDS):
                said = await self._calls.call(
                    "esim/sendSms", {**named(sms.unit_ref, sms.iccid), "message": sms.message}
                )
        except NotSent:
            return SmsWaits(SMS_AGAIN_SECONDS)
        except (NoAnswer, TimeoutError):
            return Unknown("esim/sendSms: no answer that says what came of it")
        if said.code == BUSY:
            return SmsWaits(SMS_AGAIN_SECONDS)
        return SmsFailed(f"esim/sendSms: refused with {said.code}") if said.code else SmsSent()

    def parse_event(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        """The messages are not signed: none is more than a reason to ask."""
        try:
            notice = parsing.notice(body)
        except ValueError:
            raise BadEvent("not a message of the RT family") from None
        key = hashlib.sha256(notice.notify_id.encode() if notice.notify_id else body).digest()
        if notice.notify_type == "CHECK_HEALTH":
            return Event(key, notice.notify_type)
        about = notice.content
        names = [name for name in (about.order_no, about.transaction_id, about.esim_tran_no) if name]
        names = names or [name for name in (_bare(about.iccid),) if name]  # they use ICCIDs again
        return Event(key, notice.notify_type, about=tuple(names))

    async def health(self) -> Health:
        try:
            said = await self._calls.call("balance/query", {})
            if said.code:
                return Health(False, said.words)
            balance = parsing.balance(said.obj)
        except (NotSent, NoAnswer, ValueError) as error:
            return Health(False, str(error))
        return Health(True, "", balance.balance, balance.currency_code or "USD")

    async def packages(self) -> list[Mapping[str, Any]]:
        """The supplier's whole list, as it is written there, for rules.catalogue.margin. Raises NotSent, NoAnswer."""
        return await self._listed({"type": "BASE"})

    async def recharges(self, package_codes: Sequence[str]) -> dict[str, list[Mapping[str, Any]]]:
        """What eSIMs of each of these packages may be recharged with, as `packages`. Raises NotSent, NoAnswer."""
        lists = await asyncio.gather(
            *[self._listed({"type": "TOPUP", "packageCode": package_code}) for package_code in package_codes]
        )
        return dict(zip(package_codes, lists, strict=True))

    async def _listed(self, asked: Mapping[str, str]) -> list[Mapping[str, Any]]:
        said = await self._calls.call("package/list", asked)
        listed: Any = said.obj.get("packageList") if isinstance(said.obj, dict) else None
        if said.code or not isinstance(listed, list):
            raise NoAnswer(said.words if said.code else "no packageList")
        return [package for package in listed if isinstance(package, dict)]

    async def close(self) -> None:
        await self._calls.close()

    # Buying

    async def _order(self, purchase: Purchase, now: datetime, *, again: bool) -> Outcome:
        try:
            said = await self._calls.call("esim/order", _order_body(purchase))
            if not said.code:
                return Pending(POLL_SECONDS[0], "QUERY", parsing.order_no(said.obj))
        except NotSent as error:
            return Rejected("TEMPORARY", True, str(error))
        except (NoAnswer, ValueError) as error:
            return Unknown(str(error))
        refusal = REFUSALS.get(said.code)
        if refusal and not again:
            return await self._refused(refusal, purchase, said)
        return await self._refused_again(purchase, said, now)

    async def _refused_again(self, purchase: Purchase, said: RtAnswer, now: datetime) -> Outcome:
        """A refusal that proves nothing by itself: the first order may have used up money or stock."""
        try:
            if found := await self._find(purchase, now):
                return found
        except (NotSent, NoAnswer, ValueError) as error:
            return Unknown(f"{said.words}; looking for it: {error}")
        refusal = None if said.code in AS_IF_THERE else REFUSALS.get(said.code)
        return await self._refused(refusal, purchase, said) if refusal else Unknown(said.words)

    async def _refused(self, code: RejectedCode, purchase: Purchase, said: RtAnswer) -> Rejected:
        asks = await self._price(purchase) if said.code == PRICE else None
        return Rejected(code, True, said.words, said.code in ALL_REFUSED, asks)

    async def _price(self, purchase: Purchase) -> int | None:
        """The price in the supplier's list now; None where there is none, or in another currency."""
        with suppress(NotSent, NoAnswer, ValueError, TimeoutError):
            async with asyncio.timeout(PRICE_SECONDS):
                said = await self._calls.call("package/list", {"type": "BASE", "packageCode": purchase.sku})
            return None if said.code else parsing.price(said.obj, purchase.sku, purchase.cost_currency)
        return None

    async def _order_again(self, purchase: Purchase, now: datetime) -> Outcome:
        since = purchase.unknown_since or purchase.unit.paid_at
        if (now - since).total_seconds() < self._settings.settle_seconds:
            return Unknown("not listed yet; it is looked for again before it is ordered again")
        return await self._order(purchase, now, again=True)

    async def _status_of(self, purchase: Purchase, order_no: str, now: datetime) -> Outcome:
        """The state of an order that the supplier has acknowledged. A missing answer does not put it in doubt."""
        try:
            said = await self._query({"orderNo": order_no})
            if said.code not in ("", NOT_YET, BUSY):
                return Unknown(said.words)
            listed = (
                [] if said.code else [profile for profile in parsing.profiles(said.obj) if profile.order_no == order_no]
            )
            return _read(listed, purchase, now) or _pending(purchase, order_no, now)
        except (NotSent, NoAnswer):
            return Pending(POLL_LATER_SECONDS)
        except ValueError as error:
            return Unknown(str(error))

    async def _find(self, purchase: Purchase, now: datetime) -> Outcome | None:
        """Our unit among all orders since its payment; None where it is not listed. Raises NotSent, NoAnswer,
        ValueError."""
        window = {
            "startTime": parsing.time_text(purchase.unit.paid_at - CLOCKS_DIFFER),
            "endTime": parsing.time_text(now + CLOCKS_DIFFER),
        }
        listed = dict[tuple[str | None, ...], RtProfile]()
        for number in itertools.count(1):
            said = await self._query(window, number)
            if said.code not in ("", NOT_YET):
                raise NoAnswer(said.words)
            page = {} if said.code else {profile.names: profile for profile in parsing.profiles(said.obj)}
            if page.keys() <= listed.keys():  # pages may be shorter than was asked for; the last brings nothing new
                break
            listed |= page
        return _read(
            [profile for profile in listed.values() if profile.transaction_id == purchase.unit.unit_key], purchase, now
        )

    # Voiding

    async def _void(self, unit: VoidUnit) -> VoidOutcome:
        profile = await self._profile(unit)
        if profile is None:
            return Unknown("they do not list it")
        if profile.is_void:
            return VoidDone()
        if unit.for_refund and not profile.is_refundable:
            return NotVoided(f"{profile.esim_status} and {profile.smdp_status}: they do not take it back")
        operation = "esim/cancel" if profile.is_refundable else "esim/revoke"
        said = await self._calls.call(operation, named(profile.esim_tran_no, profile.iccid))
        if not said.code:
            return VoidDone()
        if said.code == NOT_IN_THIS_STATUS:
            after = await self._profile(unit)
            return VoidDone() if after and after.is_void else NotVoided(said.words)
        return Unknown(said.words)

    # Suspending

    async def _set_suspended(self, esim: Bought, suspended: bool) -> SuspensionOutcome:
        """A refusal may mean that it was done already, by a call whose answer was lost."""
        operation = "esim/suspend" if suspended else "esim/unsuspend"
        said = await self._calls.call(operation, named(esim.unit_ref, esim.iccid))
        if not said.code:
            return SuspensionDone()
        if said.code != NOT_IN_THIS_STATUS:
            return Unknown(said.words)
        profile = await self._profile(esim)
        if profile and not profile.is_void and profile.is_suspended == suspended:
            return SuspensionDone()
        return SuspensionRefused(said.words)

    # Asking

    async def _profile(self, esim: Bought | VoidUnit | RechargedEsim) -> RtProfile | None:
        """Raises NotSent, NoAnswer, ValueError."""
        said = await self._query(_by(esim))
        if said.code:
            raise NoAnswer(said.words)
        return parsing.sole(
            _alike([each for each in parsing.profiles(said.obj) if _bare(each.iccid) == esim.iccid], esim)
        )

    async def _state(self, esim: Bought) -> RtProfile | None:
        async with self._asking:
            with suppress(NotSent, NoAnswer, ValueError):
                return await self._profile(esim)
        return None

    async def _usages(self, numbers: Sequence[str]) -> list[RtUsage]:
        async with self._asking:
            with suppress(NotSent, NoAnswer, ValueError):
                said = await self._calls.call("esim/usage/query", {"esimTranNoList": numbers})
                return [] if said.code else parsing.usages(said.obj)
        return []

    async def _query(self, by: Mapping[str, str], page: int = 1) -> RtAnswer:
        return await self._calls.call("esim/query", {**by, "pager": {"pageNum": page, "pageSize": PAGE_SIZE}})


async def _in_time(calls: Iterable[Coroutine[Any, Any, T]], seconds: float) -> list[T | None]:
    """The result of each, None where there was none in time."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return [None if task.cancelled() else task.result() for task in tasks]


def _order_body(purchase: Purchase) -> dict[str, Any]:
    """An order of one eSIM. With a cost agreed, the supplier refuses it if its price is another (200005, 200006)."""
    days = purchase.unit.period_num
    line: dict[str, Any] = {"packageCode": purchase.sku, "count": 1}
    body: dict[str, Any] = {"transactionId": purchase.unit.unit_key, "packageInfoList": [line]}
    if days > 1:
        line["periodNum"] = days
    if purchase.cost is not None:
        line["price"] = purchase.cost
        body["amount"] = purchase.cost * days
    return body


def _read(found: Sequence[RtProfile], purchase: Purchase, now: datetime) -> Outcome | None:
    """The outcome of our unit by the eSIMs that are listed for it; None where there are none. Raises ValueError."""
    profile = parsing.sole(found)
    if profile is None:
        return None
    if profile.transaction_id not in (None, "", purchase.unit.unit_key):
        raise ValueError(f"their order {profile.order_no} is of another transactionId")
    if profile.is_void:
        words = f"their order {profile.order_no}: {profile.esim_status}"
        return Rejected("NOT_ALLOWED", True, words, supplier_ref=profile.order_no)
    if not profile.iccid or not profile.ac:
        return _pending(purchase, profile.order_no, now)
    return Done(
        profile.iccid,
        profile.ac,
        profile.esim_status or None,
        profile.smdp_status or None,
        profile.order_no,
        profile.esim_tran_no,
    )


def _pending(purchase: Purchase, order_no: str, now: datetime) -> Pending:
    age = _age_seconds(purchase, now)
    return Pending(next((wait for wait in POLL_SECONDS if age < wait), POLL_LATER_SECONDS), "QUERY", order_no)


def _age_seconds(purchase: Purchase, now: datetime) -> float:
    return (now - purchase.unit.paid_at).total_seconds()


def _by(esim: Bought | VoidUnit | RechargedEsim) -> dict[str, str]:
    """How an eSIM is queried: each order has one eSIM."""
    return {"orderNo": esim.supplier_ref} if esim.supplier_ref else {"iccid": esim.iccid}


def _alike(found: Sequence[RtProfile], esim: Bought | VoidUnit | RechargedEsim) -> Sequence[RtProfile]:
    """Of eSIMs with the same ICCID those with our references; all, where none has them, as if bought by hand."""
    ours = [each for each in found if esim.unit_ref is not None and each.esim_tran_no == esim.unit_ref]
    return ours or [each for each in found if each.transaction_id == esim.unit_key] or found


def _bare(iccid: str | None) -> str | None:
    """The ICCID without padding."""
    return iccid and iccid.rstrip("Ff")
