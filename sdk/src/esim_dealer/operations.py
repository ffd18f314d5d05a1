"""How is the call of an operation put together? One function per operation of esim_dealer.wire.operations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from esim_dealer.answered import Answered
from esim_dealer.errors import NotFound
from esim_dealer.order import Amount, Line, check_order, money, on_the_wire, place_order
from esim_dealer.wire import calls
from esim_dealer.wire import operations as wire
from esim_dealer.wire.operations import Operation
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

ICCID_DIGITS = 18  # at least

T = TypeVar("T", bound=msgspec.Struct)
Listing = TypeVar(
    "Listing", calls.Packages, calls.Orders, calls.Profiles, calls.Deliveries, calls.Entries
)  # an answer that is one page of a list


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """An operation and what is sent to it."""

    operation: Operation[Any, T]
    request: calls.Request


# Filters and pages of the lists


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
    profile_id: calls.ProfileId
    iccid: str
    for_package_code: str


class OrderFilter(TypedDict, total=False):
    start_time: datetime
    end_time: datetime
    order_status: OrderStatus
    updated_since: datetime


class ProfileFilter(TypedDict, total=False):
    order_no: str
    transaction_id: str
    item_no: str
    profile_id: calls.ProfileId
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


def health() -> Call[calls.Health]:
    return Call(wire.HEALTH, calls.Empty())


def balance() -> Call[calls.Balance]:
    return Call(wire.BALANCE, calls.Empty())


def regions(type: LocationType | None, keyword: str | None) -> Call[calls.Regions]:
    return Call(wire.REGION_LIST, calls.RegionList(type=type, keyword=keyword))


def packages(query: Mapping[str, Any]) -> Call[calls.Packages]:
    return _list(wire.PACKAGE_LIST, query)


def order(
    transaction_id: str, items: Sequence[Line], amount: Amount | None, currency: str | None, remark: str | None
) -> Call[Snapshot]:
    return Call(wire.ORDER, place_order(transaction_id, items, amount, currency, remark))


def recharge(
    transaction_id: str,
    package_code: str,
    price: Amount,
    profile_id: calls.ProfileId | None,
    iccid: str | None,
    period_num: int | None,
    amount: Amount | None,
    currency: str | None,
    remark: str | None,
) -> Call[Snapshot]:
    """`amount` None is price x period_num. Raises ValueError unless exactly one of profile_id and iccid is given."""
    _one_of(profile_id, iccid)
    total = money(price) * (period_num or 1) if amount is None else money(amount)
    request = calls.RechargeProfile(
        transaction_id=transaction_id,
        package_code=package_code,
        price=on_the_wire(money(price)),
        amount=on_the_wire(total),
        profile_id=profile_id,
        iccid=iccid,
        period_num=period_num,
        currency=currency,
        remark=remark,
    )
    return Call(wire.RECHARGE, request)


def plans(profile_id: calls.ProfileId | None, iccid: str | None) -> Call[calls.Plans]:
    """Raises ValueError unless exactly one of the two is given."""
    _one_of(profile_id, iccid)
    return Call(wire.PLANS, calls.ProfilePlans(profile_id=profile_id, iccid=iccid))


def order_check(
    items: Sequence[Line], transaction_id: str | None, amount: Amount | None, currency: str | None
) -> Call[calls.OrderCheck]:
    return Call(wire.ORDER_CHECK, check_order(items, transaction_id, amount, currency))


def query(order_no: str | None, transaction_id: str | None) -> Call[Snapshot]:
    """Raises ValueError where neither is given."""
    if not (order_no or transaction_id):
        raise ValueError("an order is found by its order_no, its transaction_id, or both")
    return Call(wire.QUERY, calls.QueryOrder(order_no=order_no, transaction_id=transaction_id))


def orders(query: Mapping[str, Any]) -> Call[calls.Orders]:
    return _list(wire.ORDER_LIST, query)


def profiles(query: Mapping[str, Any]) -> Call[calls.Profiles]:
    return _list(wire.PROFILE_LIST, query)


def refund(
    order_no: str | None,
    transaction_id: str | None,
    items: Mapping[str, Sequence[calls.ProfileId] | None] | None,
    refund_transaction_id: str | None,
    remark: str | None,
) -> Call[calls.Refund]:
    """`items` as Dealer.refund takes them. Raises ValueError where no order is named, or `items` is empty."""
    if not (order_no or transaction_id):
        raise ValueError("an order is found by its order_no, its transaction_id, or both")
    if items is not None and not items:
        raise ValueError("items is empty: None refunds the whole order")
    request = calls.RefundOrder(
        order_no=order_no,
        transaction_id=transaction_id,
        remark=remark,
        items=None if items is None else tuple(_refund_item(*item) for item in items.items()),
        refund_transaction_id=refund_transaction_id,
    )
    return Call(wire.REFUND, request)


def _refund_item(item_no: str, named: Sequence[calls.ProfileId] | None) -> calls.RefundItem:
    return calls.RefundItem(item_no=item_no, profiles=None if named is None else tuple(map(_refund_profile, named)))


def profile_name(named: calls.ProfileId) -> dict[str, Any]:
    """A profile by its iccid, which is longer than any profileId, or by its profileId."""
    by_iccid = isinstance(named, str) and len(named) >= ICCID_DIGITS
    return {"iccid": named} if by_iccid else {"profile_id": named}


def _refund_profile(named: calls.ProfileId) -> calls.RefundProfile:
    return calls.RefundProfile(**profile_name(named))


def cancel(profile_id: calls.ProfileId | None, iccid: str | None) -> Call[calls.Voided]:
    """Raises ValueError unless exactly one of the two is given."""
    _one_of(profile_id, iccid)
    return Call(wire.CANCEL, calls.VoidProfile(profile_id=profile_id, iccid=iccid))


def suspend(profile_id: calls.ProfileId | None, iccid: str | None) -> Call[calls.Suspended]:
    """Raises ValueError unless exactly one of the two is given."""
    _one_of(profile_id, iccid)
    return Call(wire.SUSPEND, calls.SuspendProfile(profile_id=profile_id, iccid=iccid))


def unsuspend(profile_id: calls.ProfileId | None, iccid: str | None) -> Call[calls.Suspended]:
    """Raises ValueError unless exactly one of the two is given."""
    _one_of(profile_id, iccid)
    return Call(wire.UNSUSPEND, calls.SuspendProfile(profile_id=profile_id, iccid=iccid))


def usage(profile_id: calls.ProfileId | None, iccid: str | None, refresh: bool) -> Call[calls.Usage]:
    """Raises ValueError unless exactly one of the first two is given."""
    _one_of(profile_id, iccid)
    return Call(wire.USAGE, calls.ProfileUsage(profile_id=profile_id, iccid=iccid, refresh=refresh or None))


def sms(transaction_id: str, message: str, profile_id: calls.ProfileId | None, iccid: str | None) -> Call[calls.Sms]:
    """Raises ValueError unless exactly one of profile_id and iccid is given."""
    _one_of(profile_id, iccid)
    request = calls.SendSms(transaction_id=transaction_id, profile_id=profile_id, iccid=iccid, message=message)
    return Call(wire.SMS, request)


def advance(
    step: AdvanceStep, profile_id: calls.ProfileId | None, iccid: str | None, data_usage_bytes: int | None
) -> Call[Profile]:
    """Raises ValueError unless exactly one of profile_id and iccid is given."""
    _one_of(profile_id, iccid)
    request = calls.AdvanceProfile(profile_id=profile_id, iccid=iccid, step=step, data_usage_bytes=data_usage_bytes)
    return Call(wire.ADVANCE, request)


def _one_of(profile_id: calls.ProfileId | None, iccid: str | None) -> None:
    if (profile_id is None) == (iccid is None):
        raise ValueError("a profile is named by its profile_id or its iccid, by one of them")


def statement(query: Mapping[str, Any]) -> Call[calls.Entries]:
    return _list(wire.STATEMENT, query)


def topup(
    transaction_id: str,
    amount: Amount,
    currency: str | None,
    pay_method: PayMethod | None,
    pay_reference: str | None,
    remark: str | None,
) -> Call[calls.Topup]:
    request = calls.RequestTopup(
        transaction_id=transaction_id,
        amount=on_the_wire(money(amount)),
        currency=currency,
        pay_method=pay_method,
        pay_reference=pay_reference,
        remark=remark,
    )
    return Call(wire.TOPUP, request)


def query_topup(topup_no: str | None, transaction_id: str | None) -> Call[calls.Topup]:
    """Raises ValueError where neither is given."""
    if not (topup_no or transaction_id):
        raise ValueError("a top-up is found by its topup_no, its transaction_id, or both")
    return Call(wire.TOPUP_QUERY, calls.QueryTopup(topup_no=topup_no, transaction_id=transaction_id))


def cancel_topup(topup_no: str | None, transaction_id: str | None) -> Call[calls.Topup]:
    """Raises ValueError where neither is given."""
    if not (topup_no or transaction_id):
        raise ValueError("a top-up is found by its topup_no, its transaction_id, or both")
    return Call(wire.TOPUP_CANCEL, calls.CancelTopup(topup_no=topup_no, transaction_id=transaction_id))


def set_webhook(callback_url: str | None, standard_headers: bool | None) -> Call[calls.Webhook]:
    request = calls.SetWebhook(callback_url=callback_url, standard_headers=standard_headers)
    return Call(wire.WEBHOOK_SET, request)


def webhook() -> Call[calls.WebhookState]:
    return Call(wire.WEBHOOK_QUERY, calls.Empty())


def test_webhook() -> Call[calls.WebhookTest]:
    return Call(wire.WEBHOOK_TEST, calls.Empty())


def deliveries(query: Mapping[str, Any]) -> Call[calls.Deliveries]:
    return _list(wire.DELIVERY_LIST, query)


def resend(delivery_id: str) -> Call[calls.Delivery]:
    return Call(wire.DELIVERY_RESEND, calls.ResendDelivery(delivery_id=delivery_id))


def _list(operation: Operation[Any, T], query: Mapping[str, Any]) -> Call[T]:
    """Raises ValueError for a time without a time zone, TypeError for a filter that the operation does not have."""
    for name, value in query.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{name} needs a time zone, or the service would have to guess one")
    paging = {name: query[name] for name in Paging.__annotations__ if name in query}
    filters = {name: value for name, value in query.items() if name not in paging}
    return Call(operation, operation.request(**filters, **({"pager": calls.Pager(**paging)} if paging else {})))


def following(call: Call[T], page: calls.Page) -> Call[T] | None:
    """The same call for the page after this one; None after the last."""
    if not page.next:
        return None
    pager = calls.Pager(page_size=page.page_size, after=page.next)
    return replace(call, request=msgspec.structs.replace(call.request, pager=pager))


def only(package_code: str, found: calls.Packages, answered: Answered | None) -> calls.Package:
    """The one package of that code. Raises NotFound, with the ids of the call that found none."""
    for package in found.packages:
        if package.package_code == package_code:
            return package
    raise NotFound(
        f"no package {package_code} on sale for this dealer",
        code="310241",
        request_id=answered and answered.request_id,
        trace_id=answered and answered.trace_id,
    )
