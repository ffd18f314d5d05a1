"""Which operations are there, and how is a call of one put together? (specification 4, decisions 4)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from esim_dealer.errors import NotFound
from esim_dealer.order import Amount, Line, money, on_the_wire, place_order
from esim_dealer.wire.calls import (
    AdvanceProfile,
    Balance,
    CancelTopup,
    Deliveries,
    Delivery,
    DeliveryList,
    Empty,
    Entries,
    Health,
    OrderList,
    Orders,
    Package,
    PackageList,
    Packages,
    Page,
    Pager,
    ProfileList,
    Profiles,
    ProfileUsage,
    QueryOrder,
    QueryTopup,
    Refund,
    RefundItem,
    RefundOrder,
    RefundProfile,
    RegionList,
    Regions,
    Request,
    RequestTopup,
    ResendDelivery,
    SetWebhook,
    Statement,
    Topup,
    Usage,
    Voided,
    VoidProfile,
    Webhook,
    WebhookState,
    WebhookTest,
)
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import (
    AdvanceStep,
    DataType,
    DeliveryState,
    EntryType,
    EventType,
    LifecycleStatus,
    LocationType,
    OrderStatus,
    PackageType,
    PayMethod,
    PlanUseStatus,
)

T = TypeVar("T", bound=msgspec.Struct)
Listing = TypeVar("Listing", Packages, Orders, Profiles, Deliveries, Entries)  # an answer that is one page of a list


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    """A path and the shape of its answer."""

    path: str
    answer: type[T]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    operation: Operation[T]
    request: Request


HEALTH = Operation("/health", Health)
BALANCE = Operation("/account/balance", Balance)
REGION_LIST = Operation("/region/list", Regions)
PACKAGE_LIST = Operation("/package/list", Packages)
ORDER = Operation("/esim/order", Snapshot)
QUERY = Operation("/esim/query", Snapshot)
ORDER_LIST = Operation("/esim/order/list", Orders)
PROFILE_LIST = Operation("/esim/profile/list", Profiles)
REFUND = Operation("/esim/refund", Refund)
CANCEL = Operation("/esim/profile/cancel", Voided)
USAGE = Operation("/esim/profile/usage", Usage)
ADVANCE = Operation("/test/profile/advance", Profile)
STATEMENT = Operation("/account/statement", Entries)
TOPUP = Operation("/account/topup", Topup)
TOPUP_QUERY = Operation("/account/topup/query", Topup)
TOPUP_CANCEL = Operation("/account/topup/cancel", Topup)
WEBHOOK_SET = Operation("/webhook/set", Webhook)
WEBHOOK_QUERY = Operation("/webhook/query", WebhookState)
WEBHOOK_TEST = Operation("/webhook/test", WebhookTest)
DELIVERY_LIST = Operation("/webhook/delivery/list", Deliveries)
DELIVERY_RESEND = Operation("/webhook/delivery/resend", Delivery)


# What the lists are asked for


class Paging(TypedDict, total=False):
    page_num: int
    page_size: int
    after: str


class PackageFilter(TypedDict, total=False):
    type: PackageType
    location_code: str
    package_code: str
    keyword: str
    data_type: DataType
    updated_since: datetime
    catalog_version: str


class OrderFilter(TypedDict, total=False):
    start_time: datetime
    end_time: datetime
    order_status: OrderStatus
    updated_since: datetime


class ProfileFilter(TypedDict, total=False):
    order_no: str
    transaction_id: str
    item_no: str
    profile_id: int | str
    iccid: str
    package_code: str
    lifecycle_status: LifecycleStatus | Sequence[LifecycleStatus]
    plan_use_status: PlanUseStatus
    cancelled: bool
    start_time: datetime
    end_time: datetime
    updated_since: datetime


class EntryFilter(TypedDict, total=False):
    entry_type: EntryType
    start_time: datetime
    end_time: datetime


class DeliveryFilter(TypedDict, total=False):
    order_no: str
    event_type: EventType
    status: DeliveryState
    start_time: datetime
    end_time: datetime


class PackageQuery(PackageFilter, Paging, total=False):
    """Filters of /package/list, AND-ed, and which page is wanted."""


class OrderQuery(OrderFilter, Paging, total=False):
    """Filters of /esim/order/list, AND-ed, and which page is wanted."""


class ProfileQuery(ProfileFilter, Paging, total=False):
    """Filters of /esim/profile/list, AND-ed, and which page is wanted."""


class EntryQuery(EntryFilter, Paging, total=False):
    """Filters of /account/statement, AND-ed, and which page is wanted."""


class DeliveryQuery(DeliveryFilter, Paging, total=False):
    """Filters of /webhook/delivery/list, AND-ed, and which page is wanted."""


# Calls


def health() -> Call[Health]:
    return Call(HEALTH, Empty())


def balance() -> Call[Balance]:
    return Call(BALANCE, Empty())


def regions(type: LocationType | None, keyword: str | None) -> Call[Regions]:
    return Call(REGION_LIST, RegionList(type=type, keyword=keyword))


def packages(query: Mapping[str, Any]) -> Call[Packages]:
    return _list(PACKAGE_LIST, PackageList, query)


def order(
    transaction_id: str, items: Sequence[Line], amount: Amount | None, currency: str | None, remark: str | None
) -> Call[Snapshot]:
    return Call(ORDER, place_order(transaction_id, items, amount, currency, remark))


def query(order_no: str | None, transaction_id: str | None) -> Call[Snapshot]:
    """Raises ValueError where neither is given."""
    if not (order_no or transaction_id):
        raise ValueError("an order is found by its order_no, its transaction_id, or both")
    return Call(QUERY, QueryOrder(order_no=order_no, transaction_id=transaction_id))


def orders(query: Mapping[str, Any]) -> Call[Orders]:
    return _list(ORDER_LIST, OrderList, query)


def profiles(query: Mapping[str, Any]) -> Call[Profiles]:
    return _list(PROFILE_LIST, ProfileList, query)


def refund(
    order_no: str | None,
    transaction_id: str | None,
    items: Mapping[str, Sequence[int | str] | None] | None,
    refund_transaction_id: str | None,
    remark: str | None,
) -> Call[Refund]:
    """`items` as Dealer.refund takes them. Raises ValueError where no order is named, or `items` is empty."""
    if not (order_no or transaction_id):
        raise ValueError("an order is found by its order_no, its transaction_id, or both")
    if items is not None and not items:
        raise ValueError("items is empty: None refunds the whole order")
    request = RefundOrder(
        order_no=order_no,
        transaction_id=transaction_id,
        remark=remark,
        items=None if items is None else tuple(_refund_item(*item) for item in items.items()),
        refund_transaction_id=refund_transaction_id,
    )
    return Call(REFUND, request)


def _refund_item(item_no: str, named: Sequence[int | str] | None) -> RefundItem:
    return RefundItem(item_no=item_no, profiles=None if named is None else tuple(map(_refund_profile, named)))


def _refund_profile(named: int | str) -> RefundProfile:
    """An int is a profileId, a text an iccid."""
    return RefundProfile(profile_id=named) if isinstance(named, int) else RefundProfile(iccid=named)


def cancel(profile_id: int | str | None, iccid: str | None) -> Call[Voided]:
    """Raises ValueError unless exactly one of the two is given."""
    _one_of(profile_id, iccid)
    return Call(CANCEL, VoidProfile(profile_id=profile_id, iccid=iccid))


def usage(profile_id: int | str | None, iccid: str | None, refresh: bool) -> Call[Usage]:
    """Raises ValueError unless exactly one of the first two is given."""
    _one_of(profile_id, iccid)
    return Call(USAGE, ProfileUsage(profile_id=profile_id, iccid=iccid, refresh=refresh or None))


def advance(
    step: AdvanceStep, profile_id: int | str | None, iccid: str | None, data_usage_bytes: int | None
) -> Call[Profile]:
    """Raises ValueError unless exactly one of profile_id and iccid is given."""
    _one_of(profile_id, iccid)
    request = AdvanceProfile(profile_id=profile_id, iccid=iccid, step=step, data_usage_bytes=data_usage_bytes)
    return Call(ADVANCE, request)


def _one_of(profile_id: int | str | None, iccid: str | None) -> None:
    if (profile_id is None) == (iccid is None):
        raise ValueError("a profile is named by its profile_id or its iccid, by one of them")


def statement(query: Mapping[str, Any]) -> Call[Entries]:
    return _list(STATEMENT, Statement, query)


def topup(
    transaction_id: str,
    amount: Amount,
    currency: str | None,
    pay_method: PayMethod | None,
    pay_reference: str | None,
    remark: str | None,
) -> Call[Topup]:
    request = RequestTopup(
        transaction_id=transaction_id,
        amount=on_the_wire(money(amount)),
        currency=currency,
        pay_method=pay_method,
        pay_reference=pay_reference,
        remark=remark,
    )
    return Call(TOPUP, request)


def query_topup(topup_no: str | None, transaction_id: str | None) -> Call[Topup]:
    """Raises ValueError where neither is given."""
    if not (topup_no or transaction_id):
        raise ValueError("a top-up is found by its topup_no, its transaction_id, or both")
    return Call(TOPUP_QUERY, QueryTopup(topup_no=topup_no, transaction_id=transaction_id))


def cancel_topup(topup_no: str | None, transaction_id: str | None) -> Call[Topup]:
    """Raises ValueError where neither is given."""
    if not (topup_no or transaction_id):
        raise ValueError("a top-up is found by its topup_no, its transaction_id, or both")
    return Call(TOPUP_CANCEL, CancelTopup(topup_no=topup_no, transaction_id=transaction_id))


def set_webhook(callback_url: str | None) -> Call[Webhook]:
    return Call(WEBHOOK_SET, SetWebhook(callback_url=callback_url))


def webhook() -> Call[WebhookState]:
    return Call(WEBHOOK_QUERY, Empty())


def test_webhook() -> Call[WebhookTest]:
    return Call(WEBHOOK_TEST, Empty())


def deliveries(query: Mapping[str, Any]) -> Call[Deliveries]:
    return _list(DELIVERY_LIST, DeliveryList, query)


def resend(delivery_id: str) -> Call[Delivery]:
    return Call(DELIVERY_RESEND, ResendDelivery(delivery_id=delivery_id))


def _list(operation: Operation[T], request: type[Request], query: Mapping[str, Any]) -> Call[T]:
    """Raises ValueError for a time without a time zone, TypeError for a filter that the operation does not have."""
    for name, value in query.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name} needs a time zone, or the service would have to guess one")
    paging = {name: query[name] for name in Paging.__annotations__ if name in query}
    filters = {name: value for name, value in query.items() if name not in paging}
    return Call(operation, request(**filters, **({"pager": Pager(**paging)} if paging else {})))


def following(call: Call[T], page: Page) -> Call[T] | None:
    """The same call for the page after this one; None after the last."""
    if not page.next:
        return None
    pager = Pager(page_size=page.page_size, after=page.next)
    return replace(call, request=msgspec.structs.replace(call.request, pager=pager))


def only(package_code: str, found: Packages) -> Package:
    """The one package of that code. Raises NotFound."""
    for package in found.packages:
        if package.package_code == package_code:
            return package
    raise NotFound(f"no package {package_code} on sale for this dealer", code="310241")
