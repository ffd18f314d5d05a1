"""What do calls, answers, events and refusals look like? Made by the rules themselves, so that they are true."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET

from dealer_server.api import authenticate, parameters, replies
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue import catalogue
from dealer_server.operations.catalogue.list_packages import parse_filter
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.rules.access.rate_limit import Allowance
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery import change_hints, delivery, endpoint
from dealer_server.rules.delivery.delivery import Codes
from dealer_server.rules.lifecycle import iccid, lifecycle
from dealer_server.rules.lifecycle.lifecycle import Lifecycle, Report
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import identity, order, priced_lines, pricing, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.order import ExistingOrder, OrderRequest
from dealer_server.rules.orders.priced_lines import Offer
from dealer_server.rules.orders.snapshot import Links
from esim_dealer.wire import calls, envelope, signing
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType, ResultCode

PLACED_AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
TENANT_ID = 10001
TRANSACTION_ID = "shop-20261120-0001"
REQUEST_ID = "4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2"
APP_KEY = "ak_test_0001"
APP_SECRET = "sk_test_0001"  # noqa: S105  (of the published test vector)
TRACE_ID = "a1b2c3d4e5f6-2a"
TIMESTAMP_MS = 1_767_225_600_000
CALLBACK_URL = "https://dealer.example/esim-events"
DELIVERY_ID = "4101"

_FIRST_ID = identity.first_id_at(int(PLACED_AT.timestamp()))
_ORDER_ID, _PROFILE_ID = _FIRST_ID + 41, _FIRST_ID + 87
_PRICES = pricing.PriceList("USD")
_PACKAGES = {package.package_code: package for package in generate.catalogue("test")}
_PACKAGE = _PACKAGES["TEST-OK"]
_CODES = Codes(
    iccid="899990000000000041" + iccid.luhn_digit("899990000000000041"),  # country code 999 is nobody's
    activation_code="LPA:1$smdp.example.com$TN2026-11200815-30AB41",
    qr_token="q7Jx2mVt9ZbK4nRw",  # noqa: S106  (an example)
    data_total_bytes=_PACKAGE.data_bytes,
)


def signature(body: bytes = b"{}") -> str:
    """The signature of the worked example."""
    return signing.signature(
        APP_SECRET.encode(), str(TIMESTAMP_MS).encode(), REQUEST_ID.encode(), APP_KEY.encode(), body
    )


# Orders


def _placed() -> Order:
    line = Item(0, "TEST-OK", "simulated", 1, 1, _PACKAGE.price, _PROFILE_ID, "PAID", (Profile(_PROFILE_ID),))
    return Order(
        TENANT_ID, _ORDER_ID, TRANSACTION_ID, "USD", _PACKAGE.price, 0, "PAID", "PENDING", "PAID", 1, PLACED_AT, (line,)
    )


def _delivered() -> Order:
    return delivery.allocate(_placed(), {_PROFILE_ID: _CODES}, frozenset({0}), PLACED_AT + timedelta(seconds=1))


def _refunded() -> Order:
    """The delivered order after its only profile was refunded and thereby voided."""
    before = _delivered()
    profile = msgspec.structs.replace(
        before.profiles[0], lifecycle_status="CANCELLED", cancelled=True, refunded=True, esim_status="CANCEL"
    )
    items = (msgspec.structs.replace(before.items[0], profiles=(profile,)),)
    settled = delivery.settle(before, items, PLACED_AT + timedelta(minutes=5))
    return msgspec.structs.replace(settled, refund_amount=before.amount, pay_status="REFUNDED")


def event(event_type: EventType, links: Links) -> bytes:
    """The body of a webhook of this type."""
    return envelope.encoder.encode(_event(event_type, links))


def _event(event_type: EventType, links: Links) -> Snapshot:
    if event_type == "ORDER_PAID":
        return snapshot.order_paid(_placed())
    if event_type == "DELIVERY_UPDATED":
        sent = snapshot.delivery_updated(_delivered(), links)
        return msgspec.structs.replace(sent, change_hints=change_hints.change_hints(None, sent))
    hints: tuple[ChangeHint, ...] = ("REFUND_COMPLETED", "REFUND_AMOUNT_UPDATED")
    sent = snapshot.delivery_updated(_refunded(), links)
    return msgspec.structs.replace(
        sent, event_type="REFUND_COMPLETED", change_hints=hints, refund_amount=Decimal("1.80")
    )


# Calls and answers by path


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _purchase() -> calls.PlaceOrder:
    line = calls.OrderLine(package_code="TEST-OK", quantity=1, price=_raw('"1.80"'))
    return calls.PlaceOrder(transaction_id=TRANSACTION_ID, amount=_raw('"1.80"'), items=(line,))


def request(path: str) -> msgspec.Struct:
    """A call that this operation takes."""
    return _REQUESTS[path]()


def answer(path: str, links: Links) -> Mapping[str, bytes]:
    """What this operation answers, encoded, by the name of the case."""
    return {name: envelope.encoder.encode(made) for name, made in _ANSWERS[path](links).items()}


def lacking(path: str) -> Iterable[str]:
    """What is missing here of an operation."""
    if path not in _REQUESTS:
        yield "example call in examples._REQUESTS"
    if path not in _ANSWERS:
        yield "example answer in examples._ANSWERS"


_REQUESTS: dict[str, Callable[[], msgspec.Struct]] = {
    "/health": calls.Empty,
    "/account/balance": calls.Empty,
    "/package/list": lambda: calls.PackageList(location_code="US", pager=calls.Pager(page_size=1)),
    "/region/list": lambda: calls.RegionList(type="REGION", keyword="benelux"),
    "/esim/order": _purchase,
    "/esim/query": lambda: calls.QueryOrder(transaction_id=TRANSACTION_ID),
    "/esim/order/list": lambda: calls.OrderList(order_status="COMPLETED", pager=calls.Pager(page_size=20)),
    "/esim/profile/list": lambda: calls.ProfileList(order_no=identity.order_no(_ORDER_ID)),
    "/webhook/set": lambda: calls.SetWebhook(callback_url=CALLBACK_URL),
    "/webhook/query": calls.Empty,
    "/webhook/test": calls.Empty,
    "/esim/refund": lambda: calls.RefundOrder(
        order_no=identity.order_no(_ORDER_ID),
        items=(
            calls.RefundItem(
                item_no=identity.item_no(_ORDER_ID, 0), profiles=(calls.RefundProfile(profile_id=_PROFILE_ID),)
            ),
        ),
    ),
    "/esim/profile/cancel": lambda: calls.VoidProfile(profile_id=_PROFILE_ID),
    "/esim/profile/revoke": lambda: calls.VoidProfile(iccid=_CODES.iccid),
    "/esim/profile/usage": lambda: calls.ProfileUsage(profile_id=_PROFILE_ID, refresh=True),
    "/test/profile/advance": lambda: calls.AdvanceProfile(iccid=_CODES.iccid, step="USE", data_usage_bytes=524_288_000),
    "/account/statement": lambda: calls.Statement(entry_type="REFUND", pager=calls.Pager(page_size=20)),
    "/account/topup": lambda: calls.RequestTopup(
        transaction_id="topup-20261120-1", amount=_raw('"500.00"'), pay_method="BANK_TRANSFER", pay_reference="INV-4711"
    ),
    "/account/topup/query": lambda: calls.QueryTopup(transaction_id="topup-20261120-1"),
    "/account/topup/cancel": lambda: calls.CancelTopup(transaction_id="topup-20261120-1"),
    "/webhook/delivery/list": lambda: calls.DeliveryList(status="RETRY", pager=calls.Pager(page_size=20)),
    "/webhook/delivery/resend": lambda: calls.ResendDelivery(delivery_id=DELIVERY_ID),
}


def _shelf() -> catalogue.Catalogue:
    return catalogue.Catalogue(7, [(package, PLACED_AT) for package in _PACKAGES.values()])


def _balance() -> calls.Balance:
    return calls.Balance(
        account_type="BALANCE",
        currency="USD",
        balance="998.20",
        credit_limit="0.00",
        available_balance="998.20",
        low_balance_threshold="50.00",
        low_balance=False,
        update_time=PLACED_AT,
    )


def _packages(links: Links) -> Mapping[str, object]:
    call = calls.PackageList(package_code="TEST-OK")
    return {
        "page": msgspec.Raw(_shelf().page(_PRICES, parse_filter(call))),
        "notModified": msgspec.Raw(_shelf().not_modified(_PRICES, parse_filter(call))),
    }


def _regions(links: Links) -> Mapping[str, object]:
    return {"regions": msgspec.Raw(_shelf().regions(_PRICES, calls.RegionList(type="REGION", keyword="benelux")))}


def _orders(links: Links) -> Mapping[str, object]:
    page = calls.Page(page_num=1, page_size=20, total=1)
    return {"page": calls.Orders(orders=(snapshot.of(_delivered(), links),), pager=page)}


def _profiles(links: Links) -> Mapping[str, object]:
    of = _delivered()
    record = calls.ProfileRecord(
        order_no=of.order_no,
        transaction_id=of.transaction_id,
        item_no=identity.item_no(of.order_id, 0),
        package_code="TEST-OK",
        profile=snapshot.profile(of.profiles[0], of.items[0], TENANT_ID, links),
    )
    return {"page": calls.Profiles(records=(record,), pager=calls.Page(page_num=1, page_size=50, total=1))}


def _webhook_set(links: Links) -> Mapping[str, object]:
    return {
        "set": calls.Webhook(callback_url=CALLBACK_URL, enabled=True, update_time=PLACED_AT),
        "removed": calls.Webhook(callback_url="", enabled=False, update_time=PLACED_AT),
    }


def _webhook_state(links: Links) -> Mapping[str, object]:
    active = calls.WebhookState(
        callback_url=CALLBACK_URL, enabled=True, state="ACTIVE", consecutive_failures=0, last_success_time=PLACED_AT
    )
    not_set = calls.WebhookState(callback_url="", enabled=False, state="NOT_SET", consecutive_failures=0)
    return {"active": active, "notSet": not_set}


def _webhook_test(links: Links) -> Mapping[str, object]:
    return {
        "delivered": calls.WebhookTest(delivered=True, http_status=200, duration_ms=48),
        "failed": calls.WebhookTest(delivered=False, duration_ms=3001, error="TIMEOUT"),
    }


def _delivery() -> calls.Delivery:
    failed = calls.Attempt(
        number=1, time=PLACED_AT, http_status=500, duration_ms=52, error="STATUS", answer_head="Internal Server Error"
    )
    return calls.Delivery(
        delivery_id=DELIVERY_ID,
        order_no=identity.order_no(_ORDER_ID),
        event_type="ORDER_PAID",
        trigger="AUTO",
        status="RETRY",
        order_version=1,
        change_hints=("ORDER_PAID",),
        attempt_count=1,
        next_attempt_time=PLACED_AT + timedelta(seconds=5),
        create_time=PLACED_AT,
        attempts=(failed,),
    )


def _deliveries(links: Links) -> Mapping[str, object]:
    return {"page": calls.Deliveries(deliveries=(_delivery(),), pager=calls.Page(page_num=1, page_size=20, total=1))}


def _refund(links: Links) -> Mapping[str, object]:
    def case(status: Any, total: str) -> calls.Refund:
        item = calls.RefundedItem(
            item_no=identity.item_no(_ORDER_ID, 0),
            refund_status="COMPLETED" if status == "REFUNDED" else "PENDING",
            profile_ids=(_PROFILE_ID,),
            iccids=(_CODES.iccid,),
        )
        return calls.Refund(
            refund_no=identity.refund_no(_FIRST_ID + 12),
            order_no=identity.order_no(_ORDER_ID),
            transaction_id=TRANSACTION_ID,
            status=status,
            refund_amount="1.80",
            total_refund_amount=total,
            currency="USD",
            items=(item,),
            duplicate=False,
        )

    return {"refunded": case("REFUNDED", "1.80"), "refunding": case("REFUNDING", "0.00")}


def _voided(links: Links) -> Mapping[str, object]:
    def case(cancelled: bool) -> calls.Voided:
        return calls.Voided(
            order_no=identity.order_no(_ORDER_ID),
            item_no=identity.item_no(_ORDER_ID, 0),
            profile_id=_PROFILE_ID,
            iccid=_CODES.iccid,
            async_status="COMPLETED" if cancelled else "PENDING",
            cancelled=cancelled,
            lifecycle_status="CANCELLED" if cancelled else "DELIVERED",
        )

    return {"completed": case(True), "pending": case(False)}


def _used() -> Order:
    """The delivered order once its profile was installed and half of its volume used."""
    order = _delivered()
    profile, known = order.profiles[0], Lifecycle(plan_seconds=_PACKAGE.duration * 86_400)
    for report in (
        Report(PLACED_AT + timedelta(hours=1), smdp_status="ENABLED"),
        Report(PLACED_AT + timedelta(hours=2), esim_status="IN_USE", data_usage_bytes=524_288_000),
    ):
        profile, known = lifecycle.apply(profile, known, report)
    items = (msgspec.structs.replace(order.items[0], profiles=(profile,)),)
    return delivery.settle(order, items, PLACED_AT + timedelta(hours=2))


def _usage(links: Links) -> Mapping[str, object]:
    profile, total = _used().profiles[0], _PACKAGE.data_bytes or 0
    used = calls.Usage(
        profile_id=_PROFILE_ID,
        iccid=_CODES.iccid,
        lifecycle_status=profile.lifecycle_status,
        plan_use_status=profile.plan_use_status,
        plan_use_start_time=profile.plan_use_start_at or UNSET,
        plan_use_end_time=profile.plan_use_end_at or UNSET,
        data_total_bytes=total,
        data_usage_bytes=profile.data_usage_bytes,
        remain_data_bytes=total - profile.data_usage_bytes,
        usage_percent=round(profile.data_usage_bytes / total * 100, 2),
        real_time=True,
        last_update_time=PLACED_AT + timedelta(hours=2),
    )
    return {"used": used}


def _advanced(links: Links) -> Mapping[str, object]:
    order = _used()
    return {"used": snapshot.profile(order.profiles[0], order.items[0], TENANT_ID, links)}


def _statement(links: Links) -> Mapping[str, object]:
    debit = calls.Entry(
        entry_no="2",
        entry_type="ORDER_PAY",
        amount="-1.80",
        balance_after="998.20",
        currency="USD",
        order_no=identity.order_no(_ORDER_ID),
        create_time=PLACED_AT,
    )
    opening = calls.Entry(
        entry_no="1",
        entry_type="ADJUST",
        amount="1000.00",
        balance_after="1000.00",
        currency="USD",
        create_time=PLACED_AT - timedelta(days=30),
    )
    return {"page": calls.Entries(entries=(debit, opening), pager=calls.Page(page_num=1, page_size=50, total=2))}


def _topup(links: Links) -> Mapping[str, object]:
    pending = calls.Topup(
        topup_no=identity.topup_no(_FIRST_ID + 3),
        transaction_id="topup-20261120-1",
        amount="500.00",
        currency="USD",
        status="PENDING",
        create_time=PLACED_AT,
        duplicate=False,
    )
    approved = msgspec.structs.replace(pending, status="APPROVED", review_time=PLACED_AT + timedelta(hours=1))
    return {"pending": pending, "approved": approved}


def _cancelled_topup(links: Links) -> Mapping[str, object]:
    pending = _topup(links)["pending"]
    assert isinstance(pending, calls.Topup)
    return {
        "cancelled": msgspec.structs.replace(pending, status="CANCELLED", review_time=PLACED_AT + timedelta(minutes=5))
    }


_ANSWERS: dict[str, Callable[[Links], Mapping[str, object]]] = {
    "/health": lambda links: {"up": calls.Health(status="UP", tenant_id=str(TENANT_ID), client_name="Example Travel")},
    "/account/balance": lambda links: {"balance": _balance()},
    "/package/list": _packages,
    "/region/list": _regions,
    "/esim/order": lambda links: {
        "placed": snapshot.of(_placed(), links, duplicate=False),
        "repeated": snapshot.of(_delivered(), links, duplicate=True),
    },
    "/esim/query": lambda links: {
        "paid": snapshot.of(_placed(), links),
        "delivered": snapshot.of(_delivered(), links),
    },
    "/esim/order/list": _orders,
    "/esim/profile/list": _profiles,
    "/webhook/set": _webhook_set,
    "/webhook/query": _webhook_state,
    "/webhook/test": _webhook_test,
    "/esim/refund": _refund,
    "/esim/profile/cancel": _voided,
    "/esim/profile/revoke": _voided,
    "/esim/profile/usage": _usage,
    "/test/profile/advance": _advanced,
    "/account/statement": _statement,
    "/account/topup": _topup,
    "/account/topup/query": _topup,
    "/account/topup/cancel": _cancelled_topup,
    "/webhook/delivery/list": _deliveries,
    "/webhook/delivery/resend": lambda links: {"again": _delivery()},
}


# Refusals by code


def refused(code: str) -> refusal.Refusal:
    """A refusal of this code."""
    return _REFUSALS[code]()


def lacking_refusal(code: str) -> Iterable[str]:
    """What is missing here of a result code."""
    if code not in _REFUSALS:
        yield f"example of {code} in examples._REFUSALS"


def _header_missing() -> refusal.Refusal:
    return authenticate._missing(APP_KEY.encode(), None, None)


def _header_malformed() -> refusal.Refusal | None:
    return access.refuse_form(APP_KEY.encode(), REQUEST_ID.encode(), b"1767225600", signature().encode())


def _signature_mismatch() -> refusal.Refusal:
    body = b"{}"
    return refusal.SignatureMismatch(data={"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()})


def _too_many_calls() -> refusal.Refusal:
    return authenticate.TooManyCalls(Allowance(False, 10, 0, 2.0, 0.1))


def _undecodable(takes: type, body: str) -> refusal.Refusal:
    try:
        parameters.decode(msgspec.json.Decoder(takes).decode, body.encode())
    except refusal.Refusal as why:
        return why
    raise AssertionError(f"{body} is a good {takes.__name__}")


def _order_refused(
    amount: str = "1.80",
    price: str = "1.80",
    currency: str | None = None,
    quantity: int = 1,
    package: Package | None = _PACKAGE,
    on_sale: bool = True,
    stock: int = 0,
    balance: int = 9_982_000,
    frozen: bool = False,
    before: bytes | None = None,
) -> refusal.Refusal:
    """What the order of the example gets when one thing is spoilt."""
    code = package.package_code if package else "TEST-0K"
    line = calls.OrderLine(package_code=code, quantity=quantity, price=_raw(price))
    call = calls.PlaceOrder(transaction_id=TRANSACTION_ID, amount=_raw(amount), items=(line,), currency=currency)
    offer = Offer(package, package.price if on_sale else None) if package else None
    wanted = order.order_request(TENANT_ID, call, priced_lines.price_lines(call, "USD", lambda _: offer))
    wallet = Wallet(TENANT_ID, "USD", balance, 0, 1, frozen)
    return wanted.refused or _refused_payment(wanted, wallet, stock, before)


def _refused_payment(wanted: OrderRequest, wallet: Wallet, stock: int, before: bytes | None) -> refusal.Refusal:
    existing = {(TENANT_ID, TRANSACTION_ID): ExistingOrder(_ORDER_ID, before)} if before else {}
    (decision,) = order.decide(
        [wanted],
        {TENANT_ID: wallet},
        existing,
        dict.fromkeys(wanted.from_stock, stock),
        lambda _: (_ORDER_ID, _PROFILE_ID),
        PLACED_AT,
    )
    assert isinstance(decision, refusal.Refusal)
    return decision


_REFUSALS: dict[str, Callable[[], Any]] = {
    "000101": _header_missing,
    "000102": _header_malformed,
    "000103": refusal.MethodNotAllowed,
    "000104": refusal.NotJson,
    "000105": lambda: _undecodable(calls.PlaceOrder, '{"amount":"1.80"}'),
    "000106": lambda: _undecodable(calls.PlaceOrder, '{"transactionId":null}'),
    "000107": lambda: _undecodable(calls.SetWebhook, f'{{"callbackUrl":"https://dealer.example/{"a" * 512}"}}'),
    "000108": lambda: _undecodable(calls.OrderList, '{"pager":{"pageSize":501}}'),
    "000109": refusal.ContentTypeRefused,
    "000110": refusal.BodyTooLarge,
    "000112": refusal.PathUnknown,
    "101001": lambda: access.refuse_timestamp(TIMESTAMP_MS, TIMESTAMP_MS + 600_000),
    "101002": lambda: access.refuse_address("198.51.100.7", access.networks(["203.0.113.0/24"])),
    "101003": _signature_mismatch,
    "101004": refusal.RequestIdUsed,
    "101005": refusal.AppKeyUnknown,
    "101006": refusal.TenantDisabled,
    "101013": _too_many_calls,
    "900001": refusal.Busy,
    "200002": refusal.StatusForbids,
    "200003": refusal.NothingRefundable,
    "200004": refusal.RefundInProgress,
    "200021": lambda: refusal.TooManyTopups("20 top-ups wait for review already; wait until they are reviewed"),
    "310274": lambda: refusal.ItemNotInOrder("items[0].itemNo names no item of order D261120081530000041"),
    "310403": lambda: refusal.ProfileNotInItem("items[0].profiles[0] names no profile of its item"),
    "310404": refusal.ProfileNotFound,
    "310405": refusal.TopupNotFound,
    "000111": lambda: refusal.ParameterNotAccepted("profileId and iccid exclude each other; send exactly one of them"),
    "200005": lambda: _order_refused(amount="1.50", price="1.50"),
    "200006": lambda: _order_refused(amount="1.80", quantity=2),
    "200007": lambda: _order_refused(balance=12_000),
    "200008": lambda: _order_refused(
        amount="3.60", quantity=2, package=msgspec.structs.replace(_PACKAGE, max_quantity=1)
    ),
    "200010": refusal.NotAllocated,
    "200022": lambda: refusal.NotSupported("profiles from stock have no usage reports"),
    "200011": lambda: _order_refused(amount="2.50", price="2.50", package=_PACKAGES["DEMO-STOCK"]),
    "200014": lambda: _order_refused(on_sale=False),
    "200015": lambda: _order_refused(currency="EUR"),
    "200020": lambda: _order_refused(frozen=True),
    "310241": lambda: _order_refused(package=None),
    "310272": refusal.OrderNotFound,
    "310402": lambda: _order_refused(before=b"another order"),
    "310501": lambda: refusal.CallbackUrlRefused(
        f"callbackUrl: {endpoint.fault('https://10.0.0.1/', endpoint.Policy())}"
    ),
}


def unknown_outcome() -> refusal.Refusal:
    """900001 where a call that writes may have been carried out."""
    return refusal.OutcomeUnknown()


def unexpected() -> Mapping[str, Any]:
    """000001 as it is answered."""
    return msgspec.json.decode(replies.unexpected(TRACE_ID.encode(), None)[2])


def refusal_body(why: refusal.Refusal) -> Mapping[str, Any]:
    """A refusal as the envelope it is answered in."""
    code: ResultCode = why.code
    return {"code": code, "message": why.message, "data": dict(why.data)}
