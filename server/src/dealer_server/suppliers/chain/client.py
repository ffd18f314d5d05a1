"""Another instance of this service as a supplier: it is bought from through the SDK, as any dealer does.

An order there has our unit_key as its transactionId, so placing it again is harmless and finds one whose answer was
lost. Its webhooks are signed; still they are only a reason to ask, so that its answers are read in one way.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta

from dealer_server.rules.lifecycle.report import Report
from dealer_server.suppliers.contract import (
    CALL_SECONDS,
    Applied,
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
    Unasked,
    Unknown,
    VoidDone,
    VoidOutcome,
    VoidUnit,
)
from dealer_server.suppliers.rate_limiter import RateLimiter
from esim_dealer import AsyncDealer, DealerError, Line, errors, webhook
from esim_dealer.exchange import RetryPolicy
from esim_dealer.wire.snapshot import OrderItem, Plan, Profile, Snapshot

T = TypeVar("T")
ONCE = RetryPolicy(retries=0)  # the purchase is asked for again, not the call
READ_SECONDS = 30.0
REFRESH_SECONDS = CALL_SECONDS - READ_SECONDS
POLL_SECONDS = (2, 4, 8, 15, 30, 60)
SMS_AGAIN_SECONDS = 15.0
MARK = "via:"
MARKS_AT_MOST = 12


class ChainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`base_url`, `app_key`, `app_secret`: how a dealer of that instance reaches it.

    `per_second`: its QPS limit for us. `mark` (set by the service): names this instance in the remarks of orders, so
    that an order that comes back to it is refused.
    """

    base_url: Annotated[str, Meta(pattern=r"^https?://[^\s]+$")]
    app_key: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]{1,64}$")]
    app_secret: Annotated[str, Meta(min_length=8, max_length=128)]
    per_second: Annotated[float, Meta(gt=0)] = 10.0
    parallel: Annotated[int, Meta(ge=1, le=64)] = 8
    mark: Annotated[str, Meta(pattern=r"^[0-9a-f]{8}$")] = "00000000"

    def __repr__(self) -> str:
        return f"ChainSettings(base_url={self.base_url!r})"  # the secret stays out of logs


class Chain:
    kind = "chain"
    CAPS = Caps(polled=True, own_plan_end=True, recharges=True, suspend=True, sms=True, sms_repeatable=True)

    def __init__(self, code: str, settings: ChainSettings, refresh_seconds: float = REFRESH_SECONDS):
        self.code = code
        self.caps = msgspec.structs.replace(self.CAPS, parallel=settings.parallel)
        self._settings = settings
        self._refresh_seconds = refresh_seconds
        self._rate_limiter = RateLimiter(settings.per_second)
        self._by_day: dict[str, bool] = {}  # by sku: whether their package is sold by the day, which never changes
        self._dealer = AsyncDealer(
            settings.base_url, settings.app_key, settings.app_secret, timeout=READ_SECONDS, retry=ONCE
        )

    async def allocate(self, purchase: Purchase, now: datetime) -> Outcome:
        return await self._order(purchase, now, again=False)

    async def probe(self, purchase: Purchase, now: datetime) -> Outcome:
        """The same call again: one transactionId is one order there, however often it is sent. A refusal that comes
        before the transactionId is looked up says nothing about the first order: then the order is queried."""
        return await self._order(purchase, now, again=True)

    async def _order(self, purchase: Purchase, now: datetime, *, again: bool) -> Outcome:
        if purchase.step == "QUERY":
            return await self._query(purchase, now)
        try:
            remark = self._remark(purchase.unit.remark)
        except LoopError as error:
            return Rejected("NOT_ALLOWED", True, str(error))
        try:
            placed = await self._place(purchase, await self._line(purchase), remark)
        except errors.TransactionIdReused:  # it is there already, bought at another price
            return await self._query(purchase, now)
        except DealerError as error:
            if again and isinstance(error, _BEFORE_LOOKUP):
                return await self._query(purchase, now)
            return _outcome(error, purchase, await self._asks(error, purchase))
        return await self._read(placed, purchase, now)

    async def _place(self, purchase: Purchase, line: Line, remark: str) -> Snapshot:
        key, esim = purchase.unit.unit_key, purchase.unit.recharges
        if esim is None:
            return await self._limited(self._dealer.order(key, [line], remark=remark))
        assert line.price is not None, "a purchase has its cost"
        return await self._limited(
            self._dealer.recharge(
                key, line.package_code, line.price, **_named(esim), period_num=line.period_num, remark=remark
            )
        )

    async def void(self, unit: VoidUnit, now: datetime) -> VoidOutcome:
        """A refund is passed on as a refund, so that the money comes back to us too; a cancellation as one."""
        try:
            if not unit.for_refund:
                voided = await self._limited(self._dealer.cancel(**_named(unit)))
                return VoidDone() if voided.async_status == "COMPLETED" else Pending(POLL_SECONDS[0])
            refund = await self._limited(
                self._dealer.refund(
                    transaction_id=unit.unit_key, refund_transaction_id=f"r-{unit.unit_key}", remark="refunded here"
                )
            )
        except (errors.Conflict, errors.NotFound) as error:
            return NotVoided(f"{error.code}: {error.message}")
        except DealerError as error:
            return Unknown(_words(error))
        if refund.status == "REFUNDED":
            return VoidDone()
        return Pending(POLL_SECONDS[0]) if refund.status == "REFUNDING" else NotVoided("its refund was rejected")

    async def set_suspended(self, esim: Bought, suspended: bool, now: datetime) -> SuspensionOutcome:
        try:
            call = self._dealer.suspend if suspended else self._dealer.unsuspend
            answer = await self._limited(call(**_named(esim)))
        except (errors.Conflict, errors.NotFound, errors.NotSupported, errors.InvalidRequest) as error:
            return SuspensionRefused(_words(error))
        except DealerError as error:
            return Unknown(_words(error))
        return SuspensionDone() if answer.async_status == "COMPLETED" else Pending(POLL_SECONDS[0])

    async def refresh(self, bought: Sequence[Bought], now: datetime) -> list[ProfileReport | Unasked]:
        """One by one, for as long as there is time; the others are Unasked."""
        answers: list[ProfileReport | Unasked] = []
        clock = asyncio.get_running_loop().time
        until = clock() + self._refresh_seconds
        for at, esim in enumerate(bought):
            if at and clock() > until:
                return answers + [Unasked(left.profile_id) for left in bought[at:]]
            answers += await self._reported(esim, now)
        return answers

    async def _reported(self, esim: Bought, now: datetime) -> list[ProfileReport]:
        """The reports on one eSIM, if there are any."""
        try:
            snapshot = await self._limited(self._dealer.query(transaction_id=esim.unit_key))
        except DealerError:
            return []
        profile = _profile(snapshot)
        if profile is None:
            return []
        reports = *_used_before(profile, now), _report(profile, snapshot, now), _suspension(profile, now)
        return [ProfileReport(report, iccid=esim.iccid, unit_key=esim.unit_key) for report in reports]

    async def send_sms(self, sms: Sms, now: datetime) -> SmsOutcome:
        """Passed on under our key, which is its transactionId there: a repeat sends nothing and says what became of
        it."""
        try:
            said = await self._limited(self._dealer.sms(sms.sms_key, sms.message, **_named(sms)))
        except DealerError as error:
            return _sms_outcome(error, sms)
        if said.status == "PENDING":
            return SmsWaits(POLL_SECONDS[0], maybe_sent=True)
        if said.status == "FAILED":
            return SmsFailed(f"{said.sms_no} there: FAILED", said.fail_reason == "UNKNOWN")
        return SmsSent()

    def parse_event(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Event:
        try:
            event = webhook.verify(
                headers, body, self._settings.app_secret, app_key=self._settings.app_key, now=now.timestamp()
            )
        except errors.WebhookError as error:
            raise BadEvent(error.message) from None
        key = repr((event.delivery_id or event.request_id, event.attempt)).encode()
        if event.is_test:
            return Event(key, "TEST")
        return Event(key, event.event_type, about=(event.snapshot.transaction_id,))

    async def health(self) -> Health:
        try:
            balance = await self._limited(self._dealer.balance())
        except DealerError as error:
            return Health(False, _words(error))
        left = int(Decimal(balance.available_balance) * 10_000)
        return Health(True, f"as {self._settings.app_key}", left, balance.currency)

    async def close(self) -> None:
        await self._dealer.aclose()

    async def _query(self, purchase: Purchase, now: datetime) -> Outcome:
        try:
            snapshot = await self._limited(self._dealer.query(transaction_id=purchase.unit.unit_key))
            return await self._read(snapshot, purchase, now)
        except DealerError as error:
            return Unknown(_words(error))

    async def _read(self, snapshot: Snapshot, purchase: Purchase, now: datetime) -> Outcome:
        """What an order there says of our unit."""
        if purchase.unit.recharges is not None and snapshot.delivery_status == "DELIVERED":
            return await self._applied(purchase.unit.recharges, snapshot)
        return _read(snapshot, purchase, now)

    async def _applied(self, esim: RechargedEsim, recharge: Snapshot) -> Outcome:
        """How it was added, and when the eSIM ends now, stands at the eSIM."""
        profile = _profile(await self._limited(self._dealer.query(transaction_id=esim.unit_key)))
        plan = next((plan for plan in _plans(profile) if plan.order_no == recharge.order_no), None)
        if profile is None or plan is None:
            return Pending(POLL_SECONDS[0], "QUERY", recharge.order_no)
        if plan.mode == "QUEUE":
            return Applied("QUEUE", supplier_ref=recharge.order_no)
        ends_at, begun = profile.plan_use_end_time or None, _begun_before(plan, profile)
        return Applied("ADD", ends_at=ends_at, supplier_ref=recharge.order_no, queued_begun=begun)

    async def _line(self, purchase: Purchase) -> Line:
        """At the price that was agreed; where none was, at today's price there."""
        price = None if purchase.cost is None else Decimal(purchase.cost) / 10_000
        if price is None or purchase.sku not in self._by_day:
            package = await self._limited(self._dealer.package(purchase.sku))
            self._by_day[purchase.sku] = package.data_type.startswith("DAILY")
            price = Decimal(package.price) if price is None else price
        return Line(purchase.sku, 1, price, purchase.unit.period_num if self._by_day[purchase.sku] else None)

    async def _asks(self, error: DealerError, purchase: Purchase) -> int | None:
        """The price there now, if it was refused for that and is in the currency of our cost."""
        if not isinstance(error, errors.PriceChanged):
            return None
        prices = [(line.price, line.currency) for line in error.lines]
        with suppress(DealerError):
            if purchase.unit.recharges is not None:
                package = await self._limited(self._dealer.package(purchase.sku))
                prices = [(Decimal(package.price), package.currency)]
        return next((int(price * 10_000) for price, currency in prices if currency == purchase.cost_currency), None)

    async def _limited(self, call: Coroutine[Any, Any, T]) -> T:
        with closing(call):  # also where its turn never comes
            await self._rate_limiter.wait()
            return await call

    def _remark(self, inbound: str | None) -> str:
        """The instances this order has come through, this one at the end. Raises LoopError."""
        marks = marks_in(inbound)
        if self._settings.mark in marks:
            raise LoopError("this order was bought from us in the first place: a loop of instances")
        if len(marks) >= MARKS_AT_MOST:
            raise LoopError("this order has come through too many instances")
        return MARK + ",".join([*marks, self._settings.mark])


class LoopError(Exception):
    pass


def marks_in(remark: str | None) -> list[str]:
    """The instances an order came through, by its remark."""
    return remark.removeprefix(MARK).split(",") if remark and remark.startswith(MARK) else []


def _named(esim: Bought | VoidUnit | RechargedEsim | Sms) -> dict[str, Any]:
    return {"iccid": esim.iccid} if esim.unit_ref is None else {"profile_id": esim.unit_ref}


def _read(snapshot: Snapshot, purchase: Purchase, now: datetime) -> Outcome:
    """The outcome of our unit: the order there has one line, and one eSIM or one that it recharges."""
    profile = _profile(snapshot)
    if profile is not None and profile.iccid and profile.activation_code:
        return Done(
            profile.iccid,
            profile.activation_code,
            profile.esim_status or None,
            profile.smdp_status or None,
            snapshot.order_no,
            profile.profile_id,
        )
    if snapshot.delivery_status == "FAILED" or snapshot.order_status == "REFUNDED" or (profile and profile.cancelled):
        return Rejected("NOT_ALLOWED", True, f"their order {snapshot.order_no} failed", supplier_ref=snapshot.order_no)
    age = (now - purchase.unit.paid_at).total_seconds()
    poll = next((seconds for seconds in POLL_SECONDS if age < 4 * seconds), 60 if age < 600 else 300)
    return Pending(poll, "QUERY", snapshot.order_no)


def _profile(snapshot: Snapshot) -> Profile | None:
    items: Sequence[OrderItem] = snapshot.items or ()
    profiles = [profile for item in items for profile in item.profiles or ()]
    return profiles[0] if len(profiles) == 1 else None


def _plans(profile: Profile | None) -> Sequence[Plan]:
    """() of one that was never recharged."""
    return () if profile is None else profile.plans or ()


def _queued_begun(profile: Profile) -> int | None:
    """How many of its queued plans have begun there; None where none was queued."""
    return len(_begun(profile)) if any(plan.mode == "QUEUE" for plan in _plans(profile)) else None


def _begun(profile: Profile) -> Sequence[tuple[datetime, Plan]]:
    """The queued plans that have begun there, and when, in their order."""
    queued = [(plan.start_time or None, plan) for plan in _plans(profile) if plan.mode == "QUEUE"]
    return [(start, plan) for start, plan in queued if start is not None]


def _begun_before(added: Plan, profile: Profile) -> int:
    """How many of its queued plans had begun there when this one was added. One that is over was in use before those
    which began later."""
    over = added.start_time or added.end_time or None if added.status == "ENDED" else None
    return sum([over is None or start <= over for start, _ in _begun(profile)])


def _used_before(profile: Profile, now: datetime) -> Iterator[Report]:
    """What was used before each queued plan that has begun: the counter when that began."""
    others = [(plan.end_time or None, plan.data_usage_bytes) for plan in _plans(profile) if plan.mode != "QUEUE"]
    used_of_queued, started = 0, next((plan.start_time or None for plan in _plans(profile)), None)
    for number, (start, plan) in enumerate(_begun(profile)):
        used = used_of_queued + sum([bytes_used for end, bytes_used in others if end is not None and end <= start])
        yield Report(now, data_usage_bytes=used, plan_started_at=started, queued_begun=number)
        used_of_queued, started = used_of_queued + plan.data_usage_bytes, start


def _report(profile: Profile, snapshot: Snapshot, now: datetime) -> Report:
    used, remain = profile.data_usage_bytes, profile.remain_data_bytes
    counter = sum([plan.data_usage_bytes for plan in _plans(profile)]) if _plans(profile) else used
    return Report(
        at=snapshot.update_time or now,
        smdp_status=profile.smdp_status or None,
        esim_status="CANCEL" if profile.cancelled else profile.esim_status or None,
        data_usage_bytes=None if counter is UNSET else counter,
        data_total_bytes=None if used is UNSET or remain is UNSET else used + remain,
        plan_started_at=profile.plan_use_start_time or None,
        plan_ends_at=profile.plan_use_end_time or None,
        queued_begun=_queued_begun(profile),
        suspended=profile.suspended is True,  # else IN_USE would say that it is not, and since when it is would be lost
    )


def _suspension(profile: Profile, now: datetime) -> Report:
    """That it is suspended, or not, as of now: updateTime is in whole seconds, so that two words of one second would
    count as one. For the same reason since when it is so is put as late in its second as it can be."""
    since = profile.suspended_at or None
    if since is not None:
        since = max(since, min(since + timedelta(microseconds=999_999), now))
    return Report(now, suspended=profile.suspended is True, suspended_at=since)


_CLASSES: tuple[tuple[type[DealerError], RejectedCode, bool], ...] = (
    (errors.OutOfStock, "OUT_OF_STOCK", True),
    (errors.InsufficientBalance, "INSUFFICIENT_FUNDS", True),
    (errors.PriceChanged, "CONFIG", True),
    (errors.NotOnSale, "CONFIG", True),
    (errors.NotFound, "CONFIG", True),
    (errors.PermissionDenied, "CONFIG", True),
    (errors.AuthenticationError, "CONFIG", True),
    (errors.InvalidRequest, "BAD_REQUEST", True),
    (errors.ServiceUnavailable, "TEMPORARY", True),
    (errors.RateLimited, "TEMPORARY", True),
    (errors.ConnectionFailed, "TEMPORARY", True),
)


_MAY_PASS = ("200004", "200010")  # a refund holds the eSIM; it has no codes yet
_ALL_REFUSED = (errors.AuthenticationError, errors.PermissionDenied)
# What may be refused before the transactionId is looked up, or while the package is read.
_BEFORE_LOOKUP = (*_ALL_REFUSED, errors.InvalidRequest, errors.NotFound)


def _outcome(error: DealerError, purchase: Purchase, asks: int | None) -> Rejected | Unknown:
    """The refusal of a new order is certain; `_BEFORE_LOOKUP` says nothing about one that was sent before. `asks`: as
    in Rejected."""
    if error.unsettled:
        return Unknown(_words(error))
    for kind, code, elsewhere in _CLASSES:
        if isinstance(error, kind):
            return Rejected(code, elsewhere, _words(error), isinstance(error, _ALL_REFUSED), asks)
    if purchase.unit.recharges is not None and isinstance(error, errors.NotSupported | errors.Conflict):
        return Rejected("TEMPORARY" if error.code in _MAY_PASS else "NOT_ALLOWED", False, _words(error))
    return Unknown(_words(error))


def _sms_outcome(error: DealerError, sms: Sms) -> SmsOutcome:
    """By the code alone: a message might repeat the text."""
    code = error.code or type(error).__name__
    if error.unsettled:
        return Unknown(f"answered with {code}")
    if isinstance(error, (errors.RateLimited, errors.ServiceUnavailable, errors.ConnectionFailed)):
        return SmsWaits(error.retry_after or SMS_AGAIN_SECONDS)
    return SmsFailed(f"refused with {code}", sms.asked_before and isinstance(error, _BEFORE_LOOKUP))


def _words(error: DealerError) -> str:
    return f"{error.code or type(error).__name__}: {error.message}"[:200]
