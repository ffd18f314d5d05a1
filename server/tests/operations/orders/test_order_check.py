"""/esim/order/check: it says what /esim/order then does, and does nothing itself (specification 4.2.1)."""

import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import pytest

from dealer_server import store
from dealer_server.operations.catalogue.load_stock import load_stock
from esim_dealer import AsyncDealer, Line
from support.api_client import ApiClient, Reply, Service
from support.operations import ROUTES
from support.store_fixture import stock_csv

Json = dict[str, Any]
CHECK, ORDER = "/esim/order/check", "/esim/order"
[REFUSALS] = [route.refusals for route in ROUTES if route.path == ORDER]
USED = "used-before"


def line(code: str = "TEST-OK", **changed: Any) -> Json:
    return {"packageCode": code, "quantity": 1, "price": "1.80", **changed}


def fresh() -> str:
    return f"t-{secrets.token_hex(8)}"


# Every refusal of specification 4.2, each provoked by one thing: in the call, or in the wallet.
SPOILT: Mapping[str, Callable[[Json], object]] = {
    "310402": lambda call: call.update(transactionId=USED),
    "310241": lambda call: call["items"].append(line("NO-SUCH")),
    "200014": lambda call: call["items"].append(line("TEST-DELAY")),
    "200008": lambda call: call["items"].append(line("TEST-PARTIAL", periodNum=2)),
    "200015": lambda call: call.update(currency="EUR"),
    "200005": lambda call: call["items"][0].update(price="1.79"),
    "200006": lambda call: call.update(more="0.01"),
    "200020": lambda _: None,
    "200011": lambda call: call["items"].append(line("TEST-STOCKOUT")),
    "200007": lambda _: None,
}
CASES = [
    *itertools.combinations(SPOILT, 1),
    *itertools.combinations(SPOILT, 2),
    *itertools.combinations(SPOILT, 3),
    tuple(SPOILT),
]


def spoilt(codes: tuple[str, ...]) -> Json:
    """A call in which all this is wrong; its amount is the sum of its lines, unless that is what is wrong."""
    call: Json = {"transactionId": fresh(), "items": [line()]}
    for code in codes:
        SPOILT[code](call)
    total = sum(Decimal(one["price"]) * one["quantity"] * one.get("periodNum", 1) for one in call["items"])
    return call | {"amount": str(total + Decimal(call.pop("more", 0)))}


def shortened(call: Json, codes: tuple[str, ...]) -> Json:
    """The same without the prices that are right, and without the amount where it is."""
    items = [without("price", one) if one["price"] == "1.80" else one for one in call["items"]]
    return (call if "200006" in codes else without("amount", call)) | {"items": items}


def without(left_out: str, call: Json) -> Json:
    return {name: value for name, value in call.items() if name != left_out}


@pytest.fixture(scope="module")
async def dealers(service: Service) -> AsyncIterator[dict[tuple[bool, bool], ApiClient]]:
    """By whether the wallet is frozen, and whether it is empty. Each has an order; one package is off for them."""
    async with AsyncExitStack() as stack:
        found = {}
        for frozen, empty in itertools.product((False, True), repeat=2):
            created = await service.tenant(balance="1.80" if empty else "1000", qps=0, prices={"TEST-DELAY": "off"})
            client = found[frozen, empty] = await stack.enter_async_context(service.client(created))
            assert (await client.order(transactionId=USED, remark="before")).code == "000000"
            await service.change(client.tenant_id, frozen=frozen)
        yield found


async def state(client: ApiClient) -> tuple[Json, int]:
    """The wallet, and how many orders there are."""
    total = (await client.post("/esim/order/list")).data["pager"]["total"]
    return (await client.post("/account/balance")).data, total


def foretold(told: Reply) -> tuple[str, str, Json]:
    assert (told.status, told.code) == (200, "000000"), told.message
    refusal = told.data["wouldRefuse"]
    return refusal["code"], refusal["message"], refusal["data"]


@pytest.mark.parametrize("codes", CASES, ids="+".join)
async def test_a_check_tells_the_refusal_that_the_order_then_gets(
    dealers: dict[tuple[bool, bool], ApiClient], codes: tuple[str, ...]
):
    client = dealers["200020" in codes, "200007" in codes]
    call = spoilt(codes)
    if codes == ("310402",):
        call["items"][0]["quantity"], call["amount"] = 2, "3.60"
    before = await state(client)
    told = [await client.post(CHECK, call), await client.post(CHECK, shortened(call, codes))]
    refused = await client.post(ORDER, call)
    if refused.code == "000000":  # the very order placed before, whatever has become of the wallet since
        assert set(codes) <= {"310402", "200020", "200007"} and refused.data["duplicate"] is True
        assert [(one.data["duplicate"], "wouldRefuse" in one.data) for one in told] == [(True, False)] * 2
    else:
        assert refused.code == next(code for code in REFUSALS if code in codes)
        assert [foretold(one) for one in told] == [(refused.code, refused.message, refused.data)] * 2
        assert all("balanceAfter" not in one.data and one.data["duplicate"] is False for one in told)
    assert await state(client) == before
    first = told[0].data["items"][0]
    assert (first["price"], first["availability"]) == ("1.80", "AVAILABLE")


MALFORMED = [
    {"transactionId": ""},
    {"transactionId": "with space"},
    {"amount": ""},
    {"amount": "1.805"},
    {"amount": []},
    {"items": []},
    {"items": [line()] * 101},
    {"items": [line(price="")]},
    {"items": [line(price="NaN")]},
    {"items": [line(), line(packageCode="")]},
    {"items": [line(quantity=0)]},
    {"items": [line(quantity="1")]},
    {"items": [line(), line(price="1.805")], "amount": "x"},
    {"currency": "EURO"},
    {"remark": "r" * 256},
    {"remark": "nul\0"},
]


@pytest.mark.parametrize("changed", MALFORMED)
async def test_a_malformed_check_is_refused_as_the_order_is(dealer: ApiClient, changed: Json):
    call = {"transactionId": fresh(), "amount": "1.80", "items": [line()]} | changed
    told, refused = await dealer.post(CHECK, call), await dealer.post(ORDER, call)
    assert (told.status, told.code, told.message) == (refused.status, refused.code, refused.message)
    assert told.code[:4] == "0001"


async def ordered_as_checked(client: ApiClient, told: Json) -> Reply:
    """The order of a check's own answer."""
    return await client.post(
        ORDER, {name: told[name] for name in ("currency", "amount", "items")} | {"transactionId": fresh()}
    )


async def daily(client: ApiClient) -> Json:
    found = await client.post("/package/list", {"dataType": "DAILY_REDUCED", "pager": {"pageSize": 1}})
    return found.data["packages"][0]


@pytest.mark.parametrize("given", ["nothing", "prices", "all"])
async def test_what_passes_the_check_is_ordered_at_its_amount_and_leaves_its_balance(dealer: ApiClient, given: str):
    package = await daily(dealer)
    items = [
        line(quantity=3),
        line("TEST-PARTIAL", periodNum=1),
        line(package["packageCode"], price=package["price"], periodNum=package["minPeriodNum"], quantity=2),
    ]
    amount = Decimal("7.20") + 2 * package["minPeriodNum"] * Decimal(package["price"])
    call: Json = {"items": items, "amount": str(amount)}
    if given != "all":
        call = without("amount", call)
    if given == "nothing":
        call["items"] = [without("price", one) for one in items]
    before = await state(dealer)
    told = (await dealer.post(CHECK, call)).data
    assert await state(dealer) == before
    assert (told["amount"], told["duplicate"], "wouldRefuse" in told) == (str(amount), False, False)
    assert {name: told[name] for name in ("balance", "creditLimit", "availableBalance")}.items() <= before[0].items()
    placed = await ordered_as_checked(dealer, told)
    assert (placed.code, placed.data["amount"]) == ("000000", told["amount"])
    assert (await state(dealer))[0]["balance"] == told["balanceAfter"]


async def test_credit_counts_and_one_cent_more_would_be_refused(service: Service):
    async with service.client(await service.tenant(balance="0", credit_limit="3.60", qps=0)) as client:
        told = (await client.post(CHECK, {"items": [line(quantity=2)]})).data
        assert (told["availableBalance"], told["balanceAfter"]) == ("3.60", "-3.60")
        await service.change(client.tenant_id, credit_limit="3.59")
        short = (await client.post(CHECK, {"items": [line(quantity=2)]})).data
        assert short["wouldRefuse"]["code"] == "200007"
        assert short["wouldRefuse"]["data"]["requiredAmount"] == short["amount"] == "3.60"
        await service.change(client.tenant_id, credit_limit="3.60")
        assert (await ordered_as_checked(client, told)).code == "000000"
        assert (await state(client))[0]["balance"] == told["balanceAfter"]


async def test_a_transaction_id_that_an_order_has_is_told(dealer: ApiClient):
    placed = await dealer.order()
    name = {"transactionId": placed.data["transactionId"]}
    same = (await dealer.post(CHECK, {**name, "items": [line(price=None)], "amount": None})).data
    assert (same["duplicate"], same["orderNo"]) == (True, placed.data["orderNo"])
    assert same["balanceAfter"] == same["balance"] == "998.20" and "wouldRefuse" not in same
    other = (await dealer.post(CHECK, {**name, "items": [line(quantity=2)]})).data
    assert (other["duplicate"], other["orderNo"]) == (False, placed.data["orderNo"])
    assert other["wouldRefuse"]["code"] == "310402"
    unnamed = (await dealer.post(CHECK, {"items": [line()]})).data
    assert unnamed["duplicate"] is False and "orderNo" not in unnamed


async def test_the_sdk_orders_what_it_has_checked(dealer: ApiClient):
    async with AsyncDealer(dealer.url, dealer.app_key, dealer.app_secret) as sdk:
        told = await sdk.check_order([Line("TEST-OK", 2), Line("TEST-PARTIAL", 1)])
        assert (told.amount, told.balance_after, bool(told.would_refuse)) == ("5.40", "994.60", False)
        placed = await sdk.order(fresh(), [Line.checked(item) for item in told.items], told.amount or None)
        assert (placed.amount, (await sdk.balance()).balance) == (told.amount, told.balance_after)
        again = await sdk.check_order([Line("TEST-OK", 2)], placed.transaction_id)
        assert again.would_refuse and again.would_refuse.code == "310402" and again.order_no == placed.order_no


async def test_stock_is_counted_and_nothing_of_it_is_taken(service: Service, dealer: ApiClient):
    async with service.database.connection() as connection:
        data_keys = await store.data_key.load(connection, service.settings.master_keys)
    await load_stock(service.database, data_keys, "DEMO-STOCK", stock_csv(3), "test")
    two = {"items": [{"packageCode": "DEMO-STOCK", "quantity": 2}]}
    told = [(await dealer.post(CHECK, two)).data for _ in range(3)]
    assert [one["items"][0]["stock"] for one in told] == [3, 3, 3]
    assert (await ordered_as_checked(dealer, told[0])).code == "000000"
    short = await dealer.post(CHECK, two)
    assert short.data["items"][0] == told[0]["items"][0] | {"stock": 1, "availability": "OUT_OF_STOCK"}
    refused = await ordered_as_checked(dealer, told[0])
    assert foretold(short) == (refused.code, refused.message, refused.data)


async def test_a_check_waits_for_no_lock_that_an_order_holds(service: Service, dealer: ApiClient):
    async with service.database.transaction() as connection:
        await store.wallet.lock(connection, [dealer.tenant_id])
        await connection.fetch("SELECT FROM stock_profile FOR UPDATE")
        told = await dealer.post(CHECK, {"items": [line(), {"packageCode": "DEMO-STOCK", "quantity": 1}]})
    assert told.code == "000000" and told.data["balance"] == "1000.00"


async def test_the_audit_finds_nothing_afterwards(service: Service):
    assert await service.audit() == []
