"""Which operations are there, and how is a call of one put together? (specification 4, decisions 4)"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from esim_dealer.errors import NotFound
from esim_dealer.order import Amount, Line, place_order
from esim_dealer.wire.calls import (
    Balance,
    Deliveries,
    Delivery,
    DeliveryList,
    Empty,
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
    QueryOrder,
    RegionList,
    Regions,
    Request,
    ResendDelivery,
    SetWebhook,
    Webhook,
    WebhookState,
    WebhookTest,
)
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import (
    DataType,
    DeliveryState,
    EventType,
    LifecycleStatus,
    LocationType,
    OrderStatus,
    PackageType,
    PlanUseStatus,
)

T = TypeVar("T", bound=msgspec.Struct)
Listing = TypeVar("Listing", Packages, Orders, Profiles, Deliveries)  # an answer that is one page of a list


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
