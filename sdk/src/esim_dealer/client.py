"""How does a dealer's program call the service? Dealer blocks, AsyncDealer awaits; both drive the same exchange.

One flat method per operation; each raises DealerError. Results are the wire's own structs: a field that the service
left out is UNSET, which is false.
"""

import asyncio
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, TypeVar, Unpack
from weakref import WeakKeyDictionary

import httpx2
import msgspec

from esim_dealer import operations
from esim_dealer.answered import Answered
from esim_dealer.errors import ClientClosed, NotConfigured
from esim_dealer.exchange import (
    Clock,
    Credentials,
    Exchange,
    Flow,
    NoReply,
    Pause,
    Reply,
    RetryPolicy,
    SignedRequest,
    refund_settled,
)
from esim_dealer.operations import (
    Call,
    DeliveryFilter,
    DeliveryQuery,
    EntryFilter,
    EntryQuery,
    Listing,
    OrderFilter,
    OrderQuery,
    PackageFilter,
    PackageQuery,
    ProfileFilter,
    ProfileQuery,
)
from esim_dealer.order import Amount, Line
from esim_dealer.wire.calls import (
    Balance,
    Deliveries,
    Delivery,
    Entries,
    Entry,
    Health,
    OrderCheck,
    Orders,
    Package,
    Packages,
    Plans,
    ProfileId,
    ProfileRecord,
    Profiles,
    Refund,
    Regions,
    Request,
    Sms,
    Suspended,
    Topup,
    Usage,
    Voided,
    Webhook,
    WebhookState,
    WebhookTest,
)
from esim_dealer.wire.operations import Operation
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import AdvanceStep, LocationType, PayMethod

URL = "ESIM_DEALER_URL"
APP_KEY = "ESIM_DEALER_APP_KEY"
APP_SECRET = "ESIM_DEALER_APP_SECRET"  # noqa: S105  (the variable's name)

PAGE_SIZE = 200
SYSTEM_CLOCK = Clock()
DEFAULT_RETRY = RetryPolicy()

T = TypeVar("T", bound=msgspec.Struct)
R = TypeVar("R")


class Dealer:
    """The service as one dealer sees it, with blocking calls. Threads may share it; close it, or use `with`.

    `url`, `app_key` and `app_secret` default to the environment's ESIM_DEALER_URL, ESIM_DEALER_APP_KEY and
    ESIM_DEALER_APP_SECRET; NotConfigured is raised where one is missing. `timeout` bounds each wait for the network,
    in seconds; `retry` says how often and how long a call is tried again.
    """

    def __init__(
        self,
        url: str | None = None,
        app_key: str | None = None,
        app_secret: str | None = None,
        *,
        timeout: float = 15.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        transport: httpx2.BaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._exchange = _exchange(url, app_key, app_secret, retry, timeout, clock)
        self._http = httpx2.Client(transport=transport, headers=_user_agent(), verify=_tls())
        self._sleep = sleep
        self._of_thread = threading.local()

    def __repr__(self) -> str:
        return f"Dealer({self._exchange.url!r}, {self._exchange.credentials.app_key!r})"

    def __enter__(self) -> "Dealer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. A call after it raises ClientClosed."""
        self._http.close()

    @property
    def last_response(self) -> Answered | None:
        """How the last attempt of this thread was answered; None where nothing came back."""
        return getattr(self._of_thread, "answered", None)

    def health(self) -> Health:
        """Whether signing and connectivity work, and which tenant this is (specification 4.1)."""
        return self._perform(operations.health())

    def balance(self) -> Balance:
        """The BALANCE wallet."""
        return self._perform(operations.balance())

    def regions(self, type: LocationType | None = None, keyword: str | None = None) -> Regions:
        """Countries and regions that packages are sold for."""
        return self._perform(operations.regions(type, keyword))

    def packages(self, **query: Unpack[PackageQuery]) -> Packages:
        """One page of the packages on sale, with this dealer's prices.

        Filters: type, location_code, package_code, keyword, data_type, updated_since, catalog_version; and one of
        profile_id, iccid and for_package_code for what recharges these eSIMs. Page: page_num, page_size, or the
        previous answer's `pager.next` as after.
        """
        return self._perform(operations.packages(query))

    def iter_packages(self, page_size: int = PAGE_SIZE, **filters: Unpack[PackageFilter]) -> Iterator[Package]:
        """All packages that `packages` would give, page after page."""
        call = operations.packages({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.packages)

    def package(self, package_code: str) -> Package:
        """The package of that code. Raises NotFound."""
        found = self.packages(package_code=package_code)
        return operations.only(package_code, found, self.last_response)

    def order(
        self,
        transaction_id: str,
        items: Sequence[Line],
        amount: Amount | None = None,
        currency: str | None = None,
        remark: str | None = None,
    ) -> Snapshot:
        """Buy, paid from the wallet (specification 4.2). `amount` None is the sum of the lines.

        However often it is repeated with the same `transaction_id`, one order is made; a repetition, also one that
        this client did by itself after a lost answer, has `duplicate` true. Raises OutcomeUnknown where that
        repetition is up to you, and InsufficientBalance, PriceChanged, OutOfStock and others where nothing was bought.
        """
        return self._perform(operations.order(transaction_id, items, amount, currency, remark))

    def recharge(
        self,
        transaction_id: str,
        package_code: str,
        price: Amount,
        *,
        profile_id: ProfileId | None = None,
        iccid: str | None = None,
        period_num: int | None = None,
        amount: Amount | None = None,
        currency: str | None = None,
        remark: str | None = None,
    ) -> Snapshot:
        """Add a plan to an eSIM, a TOPUP package paid from the wallet (specification 4.14). `amount` None is price x
        period_num.

        As safe to repeat as `order`. The order is DELIVERED once the supplier has applied it: `wait_for_delivery`.
        Raises NotFound, Conflict where the eSIM cannot be recharged, NotSupported where its supplier cannot.
        """
        call = operations.recharge(
            transaction_id, package_code, price, profile_id, iccid, period_num, amount, currency, remark
        )
        return self._perform(call)

    def plans(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Plans:
        """The plans of an eSIM: the one it was sold with, and its recharges. Raises NotFound."""
        return self._perform(operations.plans(profile_id, iccid))

    def check_order(
        self,
        items: Sequence[Line],
        transaction_id: str | None = None,
        amount: Amount | None = None,
        currency: str | None = None,
    ) -> OrderCheck:
        """What would become of an order now: prices, availability, the balance after it. Nothing is bought.

        Lines may leave their price out: the check tells it, and `Line.checked` makes a line of an order from each of
        its items. `would_refuse` is what `order` would be refused with; then nothing is raised here.
        """
        return self._perform(operations.order_check(items, transaction_id, amount, currency))

    def query(self, order_no: str | None = None, transaction_id: str | None = None) -> Snapshot:
        """The order as it is now. Raises NotFound."""
        return self._perform(operations.query(order_no, transaction_id))

    def wait_for_delivery(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = 300.0,
        poll: float = 0.5,
    ) -> Snapshot:
        """The order once deliveryStatus is DELIVERED; asks at once, then at intervals from `poll` growing to 5 s.

        Raises DeliveryFailed when it will not come, DeliveryTimedOut after `timeout` seconds; both have `snapshot`.
        """
        return self._drive(self._exchange.wait(operations.query(order_no, transaction_id), timeout, poll))

    def orders(self, **query: Unpack[OrderQuery]) -> Orders:
        """One page of the orders, newest first.

        Filters: start_time, end_time, order_status, updated_since. Page: page_num, page_size, after.
        """
        return self._perform(operations.orders(query))

    def iter_orders(self, page_size: int = PAGE_SIZE, **filters: Unpack[OrderFilter]) -> Iterator[Snapshot]:
        """All orders that `orders` would give, page after page."""
        call = operations.orders({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.orders)

    def profiles(self, **query: Unpack[ProfileQuery]) -> Profiles:
        """One page of the allocated eSIMs, newest first; others by lifecycle_status "PENDING" or their profile_id.

        Filters: order_no, transaction_id, item_no, profile_id, iccid, package_code, lifecycle_status (one or several),
        plan_use_status, cancelled, start_time, end_time, updated_since. Page: page_num, page_size, after.
        """
        return self._perform(operations.profiles(query))

    def iter_profiles(self, page_size: int = PAGE_SIZE, **filters: Unpack[ProfileFilter]) -> Iterator[ProfileRecord]:
        """All eSIMs that `profiles` would give, page after page."""
        call = operations.profiles({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.records)

    def refund(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        items: Mapping[str, Sequence[ProfileId] | None] | None = None,
        *,
        refund_transaction_id: str | None = None,
        remark: str | None = None,
    ) -> Refund:
        """Give money back into the wallet (specification 4.3): `items` None refunds the whole order.

        `items` maps each itemNo to the profiles to be refunded, by profileId or iccid; None for the whole line.
        `refund_transaction_id` (a new one for each refund) makes a repetition safe for ever. Status REFUNDED is
        credited; REFUNDING is in progress: see `wait_for_refund`. Raises NotFound, Conflict where nothing can be
        refunded or a refund of the same is in progress.
        """
        return self._perform(operations.refund(order_no, transaction_id, items, refund_transaction_id, remark))

    def wait_for_refund(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = 300.0,
        poll: float = 0.5,
    ) -> Snapshot:
        """The order once no refund of it is in progress; `refund_amount` says what was given back in all.

        Raises DeliveryTimedOut after `timeout` seconds, with `snapshot`: a refund may wait for a person.
        """
        query = operations.query(order_no, transaction_id)
        return self._drive(self._exchange.wait(query, timeout, poll, refund_settled, "settled"))

    def cancel(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Voided:
        """Void a profile without giving money back (specification 4.4); for money back use `refund` instead.

        Repeating it is success. `async_status` PENDING: its supplier has to be asked. Raises NotFound, Conflict.
        """
        return self._perform(operations.cancel(profile_id, iccid))

    def suspend(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Suspended:
        """Suspend a profile until `unsuspend` (specification 4.13).

        Repeating it is success. `async_status` PENDING: its supplier has to be asked; repeat it to learn what came of
        that. Raises NotFound, Conflict, NotSupported where its supplier suspends none.
        """
        return self._perform(operations.suspend(profile_id, iccid))

    def unsuspend(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Suspended:
        """Let a suspended profile work again; as `suspend` in all else."""
        return self._perform(operations.unsuspend(profile_id, iccid))

    def usage(self, profile_id: ProfileId | None = None, iccid: str | None = None, *, refresh: bool = False) -> Usage:
        """What is used of a profile's plan, as last heard.

        `refresh` has its supplier asked first, at most once a minute; `real_time` says whether the answer has come.
        Raises NotFound, Conflict where the profile has no codes yet, NotSupported where nobody reports on it.
        """
        return self._perform(operations.usage(profile_id, iccid, refresh))

    def sms(
        self, transaction_id: str, message: str, *, profile_id: ProfileId | None = None, iccid: str | None = None
    ) -> Sms:
        """Send a text of 1 to 500 characters to the device in which the profile is installed; one a minute.

        `transaction_id` is your idempotency key: with the same one and the same text nothing is sent again, and
        `duplicate` is true; that is also how you learn what became of one whose `status` was PENDING. FAILED with
        `fail_reason` UNKNOWN: it may have been sent. Raises NotFound, Conflict, NotSupported, RateLimited,
        TransactionIdReused.
        """
        return self._perform(operations.sms(transaction_id, message, profile_id, iccid))

    def advance(
        self,
        step: AdvanceStep,
        profile_id: ProfileId | None = None,
        iccid: str | None = None,
        *,
        data_usage_bytes: int | None = None,
    ) -> Profile:
        """Move a profile through its life, in the test environment: DOWNLOAD, INSTALL, ENABLE, START, USE, EXPIRE or
        DELETE. `data_usage_bytes` is for USE, the total used by then; without it everything.

        Elsewhere NotFound is raised.
        """
        return self._perform(operations.advance(step, profile_id, iccid, data_usage_bytes))

    def statement(self, **query: Unpack[EntryQuery]) -> Entries:
        """One page of the wallet's entries, newest first; all of them sum to the balance.

        Filters: entry_type, start_time, end_time. Page: page_num, page_size, after.
        """
        return self._perform(operations.statement(query))

    def iter_statement(self, page_size: int = PAGE_SIZE, **filters: Unpack[EntryFilter]) -> Iterator[Entry]:
        """All entries that `statement` would give, page after page."""
        call = operations.statement({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.entries)

    def topup(
        self,
        transaction_id: str,
        amount: Amount,
        currency: str | None = None,
        *,
        pay_method: PayMethod | None = None,
        pay_reference: str | None = None,
        remark: str | None = None,
    ) -> Topup:
        """Ask for money in the wallet; an operator approves it. A repetition has `duplicate` true."""
        return self._perform(operations.topup(transaction_id, amount, currency, pay_method, pay_reference, remark))

    def query_topup(self, topup_no: str | None = None, transaction_id: str | None = None) -> Topup:
        """A top-up as it stands. Raises NotFound."""
        return self._perform(operations.query_topup(topup_no, transaction_id))

    def cancel_topup(self, topup_no: str | None = None, transaction_id: str | None = None) -> Topup:
        """Withdraw a top-up that waits for review; a repetition has `duplicate` true.

        Raises NotFound, and Conflict where it was approved or rejected already.
        """
        return self._perform(operations.cancel_topup(topup_no, transaction_id))

    def set_webhook(self, callback_url: str | None, *, standard_headers: bool | None = None) -> Webhook:
        """Send events to this URL from now on; None: send none (specification 4.5). `standard_headers`: whether they
        carry those of standard-webhooks too; None leaves that as it is."""
        return self._perform(operations.set_webhook(callback_url, standard_headers))

    def webhook(self) -> WebhookState:
        """The callback URL, and whether its deliveries arrive."""
        return self._perform(operations.webhook())

    def test_webhook(self) -> WebhookTest:
        """Have a sample ORDER_PAID sent, truly signed and marked RT-Test; what the receiver said to it.

        Raises Conflict where no callback URL is set.
        """
        return self._perform(operations.test_webhook())

    def deliveries(self, **query: Unpack[DeliveryQuery]) -> Deliveries:
        """One page of the events on their way or arrived, newest first, each with its attempts.

        Filters: order_no, event_type, status, start_time, end_time. Page: page_num, page_size, after.
        """
        return self._perform(operations.deliveries(query))

    def iter_deliveries(self, page_size: int = PAGE_SIZE, **filters: Unpack[DeliveryFilter]) -> Iterator[Delivery]:
        """All events that `deliveries` would give, page after page."""
        call = operations.deliveries({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.deliveries)

    def resend(self, delivery_id: str) -> Delivery:
        """Have that event sent once more: same body, hints and RT-Delivery-ID, one attempt. Raises NotFound."""
        return self._perform(operations.resend(delivery_id))

    def _each(self, call: Call[Listing], rows: Callable[[Listing], Sequence[R]]) -> Iterator[R]:
        following: Call[Listing] | None = call
        while following is not None:
            page = self._perform(following)
            yield from rows(page)
            following = operations.following(following, page.pager)

    def call(self, operation: Operation[Any, T], request: Request) -> T:
        """Any operation of `esim_dealer.wire.operations`, with its request; what it answers."""
        return self._perform(Call(operation, request))

    def _perform(self, call: Call[T]) -> T:
        return self._drive(self._exchange.perform(call))

    def _drive(self, flow: Flow[T]) -> T:
        outcome: Reply | NoReply | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = self._take(step)

    def _take(self, step: SignedRequest | Pause) -> Reply | NoReply | None:
        if isinstance(step, Pause):
            self._sleep(step.seconds)
            return None
        if self._http.is_closed:
            raise ClientClosed("the client was closed before this call")
        self._of_thread.answered = None
        try:
            response = self._http.post(step.url, content=step.body, headers=step.headers, timeout=step.timeout_seconds)
        except httpx2.RequestError as error:
            return _no_reply(error)
        self._of_thread.answered = _answered(step, response)
        return _reply(response)


class AsyncDealer:
    """The same as Dealer, to be awaited (asyncio). Close it with `aclose`, or use `async with`."""

    def __init__(
        self,
        url: str | None = None,
        app_key: str | None = None,
        app_secret: str | None = None,
        *,
        timeout: float = 15.0,
        retry: RetryPolicy = DEFAULT_RETRY,
        transport: httpx2.AsyncBaseTransport | None = None,
        clock: Clock = SYSTEM_CLOCK,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._exchange = _exchange(url, app_key, app_secret, retry, timeout, clock)
        self._http = httpx2.AsyncClient(transport=transport, headers=_user_agent(), verify=_tls())
        self._sleep = sleep
        self._of_task: WeakKeyDictionary[asyncio.Task[Any], Answered] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"AsyncDealer({self._exchange.url!r}, {self._exchange.credentials.app_key!r})"

    async def __aenter__(self) -> "AsyncDealer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Give the connections back. A call after it raises ClientClosed."""
        await self._http.aclose()

    @property
    def last_response(self) -> Answered | None:
        """How the last attempt of this task was answered; None where nothing came back."""
        return self._of_task.get(_task())

    async def health(self) -> Health:
        """See Dealer.health."""
        return await self._perform(operations.health())

    async def balance(self) -> Balance:
        """See Dealer.balance."""
        return await self._perform(operations.balance())

    async def regions(self, type: LocationType | None = None, keyword: str | None = None) -> Regions:
        """See Dealer.regions."""
        return await self._perform(operations.regions(type, keyword))

    async def packages(self, **query: Unpack[PackageQuery]) -> Packages:
        """See Dealer.packages."""
        return await self._perform(operations.packages(query))

    def iter_packages(self, page_size: int = PAGE_SIZE, **filters: Unpack[PackageFilter]) -> AsyncIterator[Package]:
        """See Dealer.iter_packages; use `async for`."""
        call = operations.packages({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.packages)

    async def package(self, package_code: str) -> Package:
        """See Dealer.package."""
        found = await self.packages(package_code=package_code)
        return operations.only(package_code, found, self.last_response)

    async def order(
        self,
        transaction_id: str,
        items: Sequence[Line],
        amount: Amount | None = None,
        currency: str | None = None,
        remark: str | None = None,
    ) -> Snapshot:
        """See Dealer.order. A cancelled task leaves the outcome unknown: repeat it with the same `transaction_id`."""
        return await self._perform(operations.order(transaction_id, items, amount, currency, remark))

    async def recharge(
        self,
        transaction_id: str,
        package_code: str,
        price: Amount,
        *,
        profile_id: ProfileId | None = None,
        iccid: str | None = None,
        period_num: int | None = None,
        amount: Amount | None = None,
        currency: str | None = None,
        remark: str | None = None,
    ) -> Snapshot:
        """See Dealer.recharge."""
        call = operations.recharge(
            transaction_id, package_code, price, profile_id, iccid, period_num, amount, currency, remark
        )
        return await self._perform(call)

    async def plans(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Plans:
        """See Dealer.plans."""
        return await self._perform(operations.plans(profile_id, iccid))

    async def check_order(
        self,
        items: Sequence[Line],
        transaction_id: str | None = None,
        amount: Amount | None = None,
        currency: str | None = None,
    ) -> OrderCheck:
        """See Dealer.check_order."""
        return await self._perform(operations.order_check(items, transaction_id, amount, currency))

    async def query(self, order_no: str | None = None, transaction_id: str | None = None) -> Snapshot:
        """See Dealer.query."""
        return await self._perform(operations.query(order_no, transaction_id))

    async def wait_for_delivery(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = 300.0,
        poll: float = 0.5,
    ) -> Snapshot:
        """See Dealer.wait_for_delivery."""
        return await self._drive(self._exchange.wait(operations.query(order_no, transaction_id), timeout, poll))

    async def orders(self, **query: Unpack[OrderQuery]) -> Orders:
        """See Dealer.orders."""
        return await self._perform(operations.orders(query))

    def iter_orders(self, page_size: int = PAGE_SIZE, **filters: Unpack[OrderFilter]) -> AsyncIterator[Snapshot]:
        """See Dealer.iter_orders; use `async for`."""
        call = operations.orders({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.orders)

    async def profiles(self, **query: Unpack[ProfileQuery]) -> Profiles:
        """See Dealer.profiles."""
        return await self._perform(operations.profiles(query))

    def iter_profiles(
        self, page_size: int = PAGE_SIZE, **filters: Unpack[ProfileFilter]
    ) -> AsyncIterator[ProfileRecord]:
        """See Dealer.iter_profiles; use `async for`."""
        call = operations.profiles({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.records)

    async def refund(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        items: Mapping[str, Sequence[ProfileId] | None] | None = None,
        *,
        refund_transaction_id: str | None = None,
        remark: str | None = None,
    ) -> Refund:
        """See Dealer.refund."""
        return await self._perform(operations.refund(order_no, transaction_id, items, refund_transaction_id, remark))

    async def wait_for_refund(
        self,
        order_no: str | None = None,
        transaction_id: str | None = None,
        *,
        timeout: float = 300.0,
        poll: float = 0.5,
    ) -> Snapshot:
        """See Dealer.wait_for_refund."""
        query = operations.query(order_no, transaction_id)
        return await self._drive(self._exchange.wait(query, timeout, poll, refund_settled, "settled"))

    async def cancel(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Voided:
        """See Dealer.cancel."""
        return await self._perform(operations.cancel(profile_id, iccid))

    async def suspend(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Suspended:
        """See Dealer.suspend."""
        return await self._perform(operations.suspend(profile_id, iccid))

    async def unsuspend(self, profile_id: ProfileId | None = None, iccid: str | None = None) -> Suspended:
        """See Dealer.unsuspend."""
        return await self._perform(operations.unsuspend(profile_id, iccid))

    async def usage(
        self, profile_id: ProfileId | None = None, iccid: str | None = None, *, refresh: bool = False
    ) -> Usage:
        """See Dealer.usage."""
        return await self._perform(operations.usage(profile_id, iccid, refresh))

    async def sms(
        self, transaction_id: str, message: str, *, profile_id: ProfileId | None = None, iccid: str | None = None
    ) -> Sms:
        """See Dealer.sms."""
        return await self._perform(operations.sms(transaction_id, message, profile_id, iccid))

    async def advance(
        self,
        step: AdvanceStep,
        profile_id: ProfileId | None = None,
        iccid: str | None = None,
        *,
        data_usage_bytes: int | None = None,
    ) -> Profile:
        """See Dealer.advance."""
        return await self._perform(operations.advance(step, profile_id, iccid, data_usage_bytes))

    async def statement(self, **query: Unpack[EntryQuery]) -> Entries:
        """See Dealer.statement."""
        return await self._perform(operations.statement(query))

    def iter_statement(self, page_size: int = PAGE_SIZE, **filters: Unpack[EntryFilter]) -> AsyncIterator[Entry]:
        """See Dealer.iter_statement; use `async for`."""
        call = operations.statement({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.entries)

    async def topup(
        self,
        transaction_id: str,
        amount: Amount,
        currency: str | None = None,
        *,
        pay_method: PayMethod | None = None,
        pay_reference: str | None = None,
        remark: str | None = None,
    ) -> Topup:
        """See Dealer.topup."""
        return await self._perform(
            operations.topup(transaction_id, amount, currency, pay_method, pay_reference, remark)
        )

    async def query_topup(self, topup_no: str | None = None, transaction_id: str | None = None) -> Topup:
        """See Dealer.query_topup."""
        return await self._perform(operations.query_topup(topup_no, transaction_id))

    async def cancel_topup(self, topup_no: str | None = None, transaction_id: str | None = None) -> Topup:
        """See Dealer.cancel_topup."""
        return await self._perform(operations.cancel_topup(topup_no, transaction_id))

    async def set_webhook(self, callback_url: str | None, *, standard_headers: bool | None = None) -> Webhook:
        """See Dealer.set_webhook."""
        return await self._perform(operations.set_webhook(callback_url, standard_headers))

    async def webhook(self) -> WebhookState:
        """See Dealer.webhook."""
        return await self._perform(operations.webhook())

    async def test_webhook(self) -> WebhookTest:
        """See Dealer.test_webhook."""
        return await self._perform(operations.test_webhook())

    async def deliveries(self, **query: Unpack[DeliveryQuery]) -> Deliveries:
        """See Dealer.deliveries."""
        return await self._perform(operations.deliveries(query))

    def iter_deliveries(self, page_size: int = PAGE_SIZE, **filters: Unpack[DeliveryFilter]) -> AsyncIterator[Delivery]:
        """See Dealer.iter_deliveries; use `async for`."""
        call = operations.deliveries({**filters, "page_size": page_size})
        return self._each(call, lambda page: page.deliveries)

    async def resend(self, delivery_id: str) -> Delivery:
        """See Dealer.resend."""
        return await self._perform(operations.resend(delivery_id))

    async def _each(self, call: Call[Listing], rows: Callable[[Listing], Sequence[R]]) -> AsyncIterator[R]:
        following: Call[Listing] | None = call
        while following is not None:
            page = await self._perform(following)
            for row in rows(page):
                yield row
            following = operations.following(following, page.pager)

    async def call(self, operation: Operation[Any, T], request: Request) -> T:
        """As `Dealer.call`."""
        return await self._perform(Call(operation, request))

    async def _perform(self, call: Call[T]) -> T:
        return await self._drive(self._exchange.perform(call))

    async def _drive(self, flow: Flow[T]) -> T:
        outcome: Reply | NoReply | None = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                return end.value
            outcome = await self._take(step)

    async def _take(self, step: SignedRequest | Pause) -> Reply | NoReply | None:
        if isinstance(step, Pause):
            await self._sleep(step.seconds)
            return None
        if self._http.is_closed:
            raise ClientClosed("the client was closed before this call")
        self._of_task.pop(_task(), None)
        try:
            response = await self._http.post(
                step.url, content=step.body, headers=step.headers, timeout=step.timeout_seconds
            )
        except httpx2.RequestError as error:
            return _no_reply(error)
        self._of_task[_task()] = _answered(step, response)
        return _reply(response)


def _exchange(
    url: str | None, app_key: str | None, app_secret: str | None, retry: RetryPolicy, timeout: float, clock: Clock
) -> Exchange:
    credentials = Credentials(_given(app_key, APP_KEY, "app_key"), _given(app_secret, APP_SECRET, "app_secret"))
    return Exchange(_given(url, URL, "url"), credentials, retry, timeout, clock)


def _given(value: str | None, variable: str, argument: str) -> str:
    value = value or os.environ.get(variable)
    if not value:
        raise NotConfigured(f"{variable} is not set, nor was {argument} given")
    return value


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients of a process: to read whom the machine trusts takes longer than most calls."""
    return httpx2.create_ssl_context()


def _user_agent() -> dict[str, str]:
    return {"User-Agent": f"esim-dealer/{version('esim-dealer')}"}


# The request certainly never left: no connection was made, or none was free.
_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


def _no_reply(error: httpx2.RequestError) -> NoReply:
    return NoReply(error, sent=not isinstance(error, _NEVER_SENT))


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    return task


def _answered(request: SignedRequest, response: httpx2.Response) -> Answered:
    return Answered(request.request_id, response.status_code, response.headers)


def _reply(response: httpx2.Response) -> Reply:
    return Reply(response.status_code, response.headers, response.content)
