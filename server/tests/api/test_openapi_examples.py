"""Are the examples of the documentation what the rules answer? Made here by the rules, and compared."""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dealer_server.api import authenticate, parameters
from dealer_server.api.openapi import examples
from dealer_server.dev import catalogue as dev_catalogue
from dealer_server.operations.catalogue import catalogue
from dealer_server.operations.catalogue.list_packages import parse_filter
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.rules.access.rate_limit import Allowance
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery import delivery
from dealer_server.rules.delivery.delivery import Codes
from dealer_server.rules.lifecycle import lifecycle
from dealer_server.rules.lifecycle.lifecycle import Lifecycle
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import check, order, priced_lines, pricing, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.order import ExistingOrder
from dealer_server.rules.orders.priced_lines import Offer
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.result_codes import RESULT_CODES
from dealer_server.rules.webhooks import change_hints, endpoint
from esim_dealer.wire import calls, envelope
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ResultCode

PLACED_AT = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
TENANT_ID, ORDER_ID, PROFILE_ID = 10001, 217325730000041, 217325730000087
TRANSACTION_ID = "shop-20261120-0001"
LINKS = Links(examples.BASE_URL)
PRICES = pricing.PriceList("USD")
PACKAGES = {package.package_code: package for package in dev_catalogue.catalogue("test")}
PACKAGE = PACKAGES["TEST-OK"]
CODES = Codes(
    iccid="8999900000000000410",
    activation_code="LPA:1$smdp.example.com$TN2026-11200815-30AB41",
    qr_token="q7Jx2mVt9ZbK4nRw",
    data_total_bytes=PACKAGE.data_bytes,
)


def placed() -> Order:
    line = Item(0, "TEST-OK", "simulated", 1, 1, PACKAGE.price, PROFILE_ID, "PAID", (Profile(PROFILE_ID),))
    return Order(
        tenant_id=TENANT_ID,
        order_id=ORDER_ID,
        transaction_id=TRANSACTION_ID,
        currency="USD",
        amount=PACKAGE.price,
        refund_amount=0,
        pay_status="PAID",
        delivery_status="PENDING",
        order_status="PAID",
        version=1,
        updated_at=PLACED_AT,
        items=(line,),
    )


def delivered() -> Order:
    return delivery.allocate(placed(), {PROFILE_ID: CODES}, frozenset({0}), PLACED_AT + timedelta(seconds=1))


def settled(before: Order, profile: Profile, at: datetime) -> Order:
    return delivery.settle(before, (msgspec.structs.replace(before.items[0], profiles=(profile,)),), at)


def used() -> Order:
    """Its profile installed, and half of its volume used."""
    before = delivered()
    profile, known = before.profiles[0], Lifecycle(plan_seconds=PACKAGE.duration * 86_400)
    for report in (
        Report(PLACED_AT + timedelta(hours=1), smdp_status="ENABLED"),
        Report(PLACED_AT + timedelta(hours=2), esim_status="IN_USE", data_usage_bytes=524_288_000),
    ):
        profile, known = lifecycle.apply(profile, known, report)
    return settled(before, profile, PLACED_AT + timedelta(hours=2))


def refunded() -> Order:
    before = delivered()
    profile = msgspec.structs.replace(
        before.profiles[0], lifecycle_status="CANCELLED", cancelled=True, refunded=True, esim_status="CANCEL"
    )
    after = settled(before, profile, PLACED_AT + timedelta(minutes=5))
    return msgspec.structs.replace(after, refund_amount=before.amount, pay_status="REFUNDED")


def test_the_example_of_each_event_is_what_the_rules_make() -> None:
    update = snapshot.delivery_updated(delivered(), LINKS)
    made = {
        "ORDER_PAID": snapshot.order_paid(placed()),
        "DELIVERY_UPDATED": msgspec.structs.replace(update, change_hints=change_hints.change_hints(None, update)),
        "REFUND_COMPLETED": snapshot.refund_completed(refunded(), LINKS),
    }
    assert {event_type: event.example for event_type, event in EVENTS.items()} == made
    for event in EVENTS.values():
        assert event.hints in ((), event.example.change_hints)


def example(path: str, case: str) -> Any:
    return examples.load()[path].answers[case]


def on_the_wire(answer: object) -> Any:
    return msgspec.json.decode(envelope.encoder.encode(answer))


def catalogue_of_the_test_environment() -> catalogue.Catalogue:
    return catalogue.Catalogue(7, [(package, PLACED_AT) for package in PACKAGES.values()])


@pytest.mark.parametrize(
    ("path", "case", "made"),
    [
        ("/esim/order", "placed", lambda: snapshot.of(placed(), LINKS, duplicate=False)),
        ("/esim/order", "repeated", lambda: snapshot.of(delivered(), LINKS, duplicate=True)),
        ("/esim/query", "paid", lambda: snapshot.of(placed(), LINKS)),
        ("/esim/query", "delivered", lambda: snapshot.of(delivered(), LINKS)),
        (
            "/test/profile/advance",
            "used",
            lambda: snapshot.profile(used().profiles[0], used().items[0], TENANT_ID, LINKS),
        ),
    ],
)
def test_the_example_of_an_order_is_what_the_rules_make(path: str, case: str, made: Callable[[], Snapshot]) -> None:
    assert example(path, case) == on_the_wire(made())


def test_the_orders_and_profiles_of_lists_are_the_same_ones() -> None:
    shown = snapshot.of(delivered(), LINKS)
    assert example("/esim/order/list", "page")["orders"] == [on_the_wire(shown)]
    [record] = example("/esim/profile/list", "page")["records"]
    assert record["profile"] == on_the_wire(shown)["items"][0]["profiles"][0]


def test_the_examples_of_the_catalogue_are_what_it_answers() -> None:
    current, call = catalogue_of_the_test_environment(), calls.PackageList(package_code="TEST-OK")
    filters = parse_filter(call)
    assert example("/package/list", "page") == on_the_wire(msgspec.Raw(current.page(PRICES, filters)))
    assert example("/package/list", "notModified") == on_the_wire(msgspec.Raw(current.not_modified(PRICES, filters)))
    regions = current.regions(PRICES, calls.RegionList(type="REGION", keyword="benelux"))
    assert example("/region/list", "regions") == on_the_wire(msgspec.Raw(regions))


def checked(package: Package, balance: int = 10_000_000) -> calls.OrderCheck:
    """The check of one; nothing is in stock."""
    line = calls.CheckLine(package_code=package.package_code, quantity=1)
    call = calls.CheckOrder(transaction_id=TRANSACTION_ID, items=(line,))
    offers, wallet = [Offer(package, package.price)], Wallet(TENANT_ID, "USD", balance, 0, 1, False)
    request = order.order_request(TENANT_ID, call, priced_lines.price_check(call, "USD", offers))
    return check.answer(call, offers, order.check(request, None, wallet, {}), None, wallet, {})


@pytest.mark.parametrize(
    ("case", "made"),
    [
        ("allowed", lambda: checked(PACKAGE)),
        ("refused", lambda: checked(PACKAGE, balance=12_000)),
        ("outOfStock", lambda: checked(PACKAGES["DEMO-STOCK"])),
    ],
)
def test_the_example_of_a_check_is_what_the_rules_make(case: str, made: Callable[[], calls.OrderCheck]) -> None:
    assert example("/esim/order/check", case) == on_the_wire(made())


# Refusals


def undecodable(request: type, body: str) -> refusal.Refusal:
    with pytest.raises(refusal.Refusal) as why:
        parameters.decode(msgspec.json.Decoder(request).decode, body.encode())
    return why.value


def order_refused(
    amount: str = "1.80",
    price: str = "1.80",
    currency: str | None = None,
    quantity: int = 1,
    package: Package | None = PACKAGE,
    on_sale: bool = True,
    balance: int = 9_982_000,
    frozen: bool = False,
    before: bytes | None = None,
) -> object:
    """The decision about the example's order when one thing is spoilt; nothing is in stock."""
    code = package.package_code if package else "TEST-0K"
    raw = {name: msgspec.Raw(text.encode()) for name, text in (("amount", amount), ("price", price))}
    line = calls.OrderLine(package_code=code, quantity=quantity, price=raw["price"])
    call = calls.PlaceOrder(transaction_id=TRANSACTION_ID, amount=raw["amount"], items=(line,), currency=currency)
    offer = Offer(package, package.price if on_sale else None) if package else None
    request = order.order_request(TENANT_ID, call, priced_lines.price_lines(call, "USD", lambda _: offer))
    if request.refused:
        return request.refused
    (decision,) = order.decide(
        [request],
        {TENANT_ID: Wallet(TENANT_ID, "USD", balance, 0, 1, frozen)},
        {(TENANT_ID, TRANSACTION_ID): ExistingOrder(ORDER_ID, before)} if before else {},
        dict.fromkeys(request.from_stock, 0),
        lambda _: (ORDER_ID, PROFILE_ID),
        PLACED_AT,
    )
    return decision


def signature_mismatch() -> refusal.Refusal:
    return refusal.SignatureMismatch(data={"bodyLength": 2, "bodySha256": hashlib.sha256(b"{}").hexdigest()})


MADE_BY_THE_RULES: dict[ResultCode, Callable[[], Any]] = {
    "000101": lambda: authenticate._missing(b"ak_test_0001", None, None),
    "000102": lambda: access.refuse_form(
        b"ak_test_0001", examples.REQUEST_ID.encode(), b"1767225600", examples.SIGNATURE.encode()
    ),
    "000105": lambda: undecodable(calls.PlaceOrder, '{"amount":"1.80"}'),
    "000106": lambda: undecodable(calls.PlaceOrder, '{"transactionId":null}'),
    "000107": lambda: undecodable(calls.SetWebhook, f'{{"callbackUrl":"https://dealer.example/{"a" * 512}"}}'),
    "000108": lambda: undecodable(calls.OrderList, '{"pager":{"pageSize":501}}'),
    "101001": lambda: access.refuse_timestamp(examples.TIMESTAMP_MS, examples.TIMESTAMP_MS + 600_000),
    "101002": lambda: access.refuse_address("198.51.100.7", access.networks(["203.0.113.0/24"])),
    "101003": signature_mismatch,
    "101013": lambda: authenticate.TooManyCalls(Allowance(False, 10, 0, 2.0, 0.1)),
    "200005": lambda: order_refused(amount="1.50", price="1.50"),
    "200006": lambda: order_refused(amount="1.80", quantity=2),
    "200007": lambda: order_refused(balance=12_000),
    "200008": lambda: order_refused("3.60", quantity=2, package=msgspec.structs.replace(PACKAGE, max_quantity=1)),
    "200011": lambda: order_refused(amount="2.50", price="2.50", package=PACKAGES["DEMO-STOCK"]),
    "200014": lambda: order_refused(on_sale=False),
    "200015": lambda: order_refused(currency="EUR"),
    "200020": lambda: order_refused(frozen=True),
    "310241": lambda: order_refused(package=None),
    "310402": lambda: order_refused(before=b"another order"),
    "310501": lambda: refusal.CallbackUrlRefused(
        f"callbackUrl: {endpoint.fault('https://10.0.0.1/', endpoint.Policy())}"
    ),
}


@pytest.mark.parametrize("code", MADE_BY_THE_RULES)
def test_the_example_of_a_refusal_is_what_the_rules_make(code: ResultCode) -> None:
    made, shown = MADE_BY_THE_RULES[code](), RESULT_CODES[code].example
    assert isinstance(made, refusal.Refusal) and shown is not None
    assert (made.code, made.message, dict(made.data)) == (shown.code, shown.message, dict(shown.data))


def test_every_example_is_of_its_code_and_has_the_data_that_is_described() -> None:
    for code, described in RESULT_CODES.items():
        if described.example is not None:
            assert described.example.code == code
            assert described.example.data.keys() <= described.data.keys()
