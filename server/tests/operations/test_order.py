"""/esim/order: orders are placed, repeated and refused (specification 4.2)."""

import asyncio
import secrets

import pytest

from support.api_client import ApiClient, Service
from support.patience import PATIENCE


def call(**changed):
    line = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
    good = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": "1.80", "items": [line]}
    return {name: value for name, value in (good | changed).items() if value is not ...}


async def balance(client: ApiClient) -> str:
    return (await client.post("/account/balance")).data["balance"]


async def test_an_order_is_paid_from_the_balance_and_delivered(dealer: ApiClient):
    placed = await dealer.order()
    assert (placed.status, placed.code, placed.message) == (200, "000000", "success")
    data = placed.data
    assert (data["payStatus"], data["deliveryStatus"], data["orderStatus"]) == ("PAID", "PENDING", "PAID")
    assert data["amount"] == "1.80" and data["refundAmount"] == 0 and data["duplicate"] is False
    assert data["orderNo"].startswith("D") and len(data["orderNo"]) == 19
    [item] = data["items"]
    assert (item["itemStatus"], item["quantity"], item["packageCode"]) == ("PAID", 1, "TEST-OK")
    [profile] = item["profiles"]
    assert profile["lifecycleStatus"] == "PENDING" and "iccid" not in profile
    assert await balance(dealer) == "998.20"
    done = await dealer.delivered(data["orderNo"])
    assert (done["deliveryStatus"], done["orderStatus"]) == ("DELIVERED", "COMPLETED")
    [profile] = done["items"][0]["profiles"]
    assert profile["activationCode"].startswith("LPA:1$") and profile["lifecycleStatus"] == "DELIVERED"
    assert profile["profileId"] == item["profiles"][0]["profileId"]


async def test_a_repeated_order_returns_the_original_and_debits_once(dealer: ApiClient):
    body = call()
    first = await dealer.post("/esim/order", body)
    again = await dealer.post("/esim/order", body)
    assert again.data["duplicate"] is True and again.data["orderNo"] == first.data["orderNo"]
    assert await balance(dealer) == "998.20"


@pytest.mark.parametrize(
    "spelled",
    [
        {"amount": 1.80},
        {"amount": "1.8"},
        {"items": [{"packageCode": "TEST-OK", "quantity": 1, "price": 1.8, "periodNum": 1}]},
        {"currency": "USD", "remark": "another remark"},
    ],
)
async def test_a_repeat_is_recognized_whatever_its_spelling(dealer: ApiClient, spelled: dict):
    body = call()
    first = await dealer.post("/esim/order", body)
    again = await dealer.post("/esim/order", body | spelled)
    assert again.data["duplicate"] is True and again.data["orderNo"] == first.data["orderNo"]


async def test_a_repeat_may_have_its_lines_in_another_order(dealer: ApiClient):
    lines = [
        {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"},
        {"packageCode": "TEST-DELAY", "quantity": 2, "price": "1.80"},
    ]
    body = call(amount="5.40", items=lines)
    first = await dealer.post("/esim/order", body)
    again = await dealer.post("/esim/order", body | {"items": lines[::-1]})
    assert first.code == again.code == "000000" and again.data["orderNo"] == first.data["orderNo"]


async def test_a_used_transaction_id_with_other_content_is_refused(dealer: ApiClient):
    body = call()
    await dealer.post("/esim/order", body)
    two = [{"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"}]
    for changed in ({"amount": "3.60", "items": two}, {"amount": "1.90"}, {"items": two}):
        refused = await dealer.post("/esim/order", body | changed)
        assert (refused.status, refused.code) == (409, "310402")
    assert await balance(dealer) == "998.20"


async def test_a_refused_order_leaves_its_transaction_id_free(dealer: ApiClient):
    body = call(amount="9.99")
    assert (await dealer.post("/esim/order", body)).code == "200006"
    assert (await dealer.post("/esim/order", body | {"amount": "1.80"})).code == "000000"


async def test_a_repeated_order_after_a_price_change_returns_the_original(service: Service, dealer: ApiClient):
    body = call()
    first = await dealer.post("/esim/order", body)
    await service.change(dealer.tenant_id, prices={"TEST-OK": "2.00"})
    async with asyncio.timeout(PATIENCE):
        while (await dealer.order()).code != "200005":
            await asyncio.sleep(0.01)
    again = await dealer.post("/esim/order", body)
    assert again.data["orderNo"] == first.data["orderNo"]
    at_the_new_price = await dealer.order(amount="2.00", items=[{"packageCode": "TEST-OK", "quantity": 1, "price": 2}])
    assert at_the_new_price.code == "000000"


LINE = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
REFUSED = [
    # what is sent, HTTP status, code, the parameter the message names
    ({"transactionId": ...}, 400, "000105", "transactionId"),
    ({"transactionId": None}, 400, "000106", "transactionId"),
    ({"transactionId": ""}, 400, "000106", "transactionId"),
    ({"transactionId": "a" * 65}, 400, "000107", "transactionId"),
    ({"transactionId": "with space"}, 400, "000108", "transactionId"),
    ({"transactionId": "line\n"}, 400, "000108", "transactionId"),
    ({"transactionId": 7}, 400, "000108", "transactionId"),
    ({"amount": ...}, 400, "000105", "amount"),
    ({"amount": None}, 400, "000106", "amount"),
    ({"amount": ""}, 400, "000106", "amount"),
    ({"amount": []}, 400, "000108", "amount"),
    ({"amount": "1.805"}, 400, "000108", "amount"),
    ({"amount": "-1.80"}, 400, "000108", "amount"),
    ({"amount": "1e0"}, 400, "000108", "amount"),
    ({"amount": "１.80"}, 400, "000108", "amount"),
    ({"items": ...}, 400, "000105", "items"),
    ({"items": []}, 400, "000106", "items"),
    ({"items": {}}, 400, "000108", "items"),
    ({"items": [LINE] * 101}, 400, "000107", "items"),
    ({"items": [{"packageCode": "TEST-OK", "quantity": 1}]}, 400, "000105", "items[0].price"),
    ({"items": [LINE | {"price": None}]}, 400, "000106", "items[0].price"),
    ({"items": [LINE | {"price": "NaN"}]}, 400, "000108", "items[0].price"),
    ({"items": [LINE, LINE | {"packageCode": ""}]}, 400, "000106", "items[1].packageCode"),
    ({"items": [LINE | {"quantity": 0}]}, 400, "000108", "items[0].quantity"),
    ({"items": [LINE | {"quantity": 101}]}, 400, "000108", "items[0].quantity"),
    ({"items": [LINE | {"quantity": 1.5}]}, 400, "000108", "items[0].quantity"),
    ({"items": [LINE | {"quantity": "1"}]}, 400, "000108", "items[0].quantity"),
    ({"remark": "r" * 256}, 400, "000107", "remark"),
    ({"remark": "nul\0"}, 400, "000108", "remark"),
    ({"items": [LINE | {"packageCode": "NO-SUCH"}]}, 404, "310241", "items[0].packageCode"),
    ({"items": [LINE, LINE]}, 422, "200008", "items[1]"),
    ({"items": [LINE | {"periodNum": 2}]}, 422, "200008", "items[0].periodNum"),
    ({"currency": "EUR"}, 422, "200015", "currency"),
    ({"currency": "XXQ"}, 422, "200015", "currency"),
    ({"items": [LINE | {"price": "1.79"}]}, 422, "200005", "items[0].price"),
    ({"amount": "1.79"}, 422, "200006", "amount"),
    ({"amount": "1800.00", "items": [LINE | {"quantity": 100, "price": "18.00"}]}, 422, "200005", "items[0].price"),
    ({"items": [LINE | {"packageCode": "TEST-STOCKOUT"}]}, 409, "200011", "TEST-STOCKOUT"),
]


@pytest.mark.parametrize(("changed", "status", "code", "named"), REFUSED)
async def test_invalid_input_names_the_parameter_and_writes_nothing(
    dealer: ApiClient, changed: dict, status: int, code: str, named: str
):
    refused = await dealer.post("/esim/order", call(**changed))
    assert (refused.status, refused.code) == (status, code), refused.message
    assert named in refused.message
    assert (await dealer.post("/esim/order/list")).data["pager"]["total"] == 0
    assert await balance(dealer) == "1000.00"


async def test_a_wrong_price_is_refused_with_the_right_one(dealer: ApiClient):
    refused = await dealer.order(items=[LINE | {"price": "1.70"}])
    assert refused.data["lines"] == [{"index": 0, "packageCode": "TEST-OK", "expectedPrice": "1.80", "currency": "USD"}]
    assert (await dealer.order(amount="9.00")).data == {"expectedAmount": "1.80"}


async def test_an_order_beyond_the_balance_is_refused_with_the_available_balance(service: Service):
    async with service.client(await service.tenant(balance="1.79", qps=0)) as poor:
        refused = await poor.order()
        assert (refused.status, refused.code) == (402, "200007")
        assert refused.data == {"requiredAmount": "1.80", "availableBalance": "1.79", "currency": "USD"}
        await service.change(poor.tenant_id, credit_limit="0.01")
        assert (await poor.order()).code == "000000"
        assert await balance(poor) == "-0.01"


async def test_a_frozen_wallet_buys_nothing_until_it_is_unfrozen(service: Service, dealer: ApiClient):
    assert (await dealer.order()).code == "000000"  # the wallet is known to the process now
    await service.change(dealer.tenant_id, frozen=True)
    refused = await dealer.order()
    assert (refused.status, refused.code) == (403, "200020")
    await service.change(dealer.tenant_id, frozen=False)
    assert (await dealer.order()).code == "000000"


async def test_a_package_off_sale_for_one_dealer_is_on_sale_for_another(service: Service, dealer: ApiClient):
    async with service.client(await service.tenant(balance="5", qps=0, prices={"TEST-OK": "off"})) as other:
        refused = await other.order()
        assert (refused.status, refused.code) == (409, "200014")
    assert (await dealer.order()).code == "000000"


async def test_a_daily_package_needs_its_number_of_days(dealer: ApiClient):
    found = (await dealer.post("/package/list", {"dataType": "DAILY_REDUCED", "pager": {"pageSize": 1}})).data
    [package] = found["packages"]
    line = {"packageCode": package["packageCode"], "quantity": 1, "price": package["price"]}
    absent = await dealer.post("/esim/order", call(amount=package["price"], items=[line]))
    assert (absent.code, "items[0].periodNum" in absent.message) == ("000105", True)
    beyond = line | {"periodNum": package["maxPeriodNum"] + 1}
    assert (await dealer.post("/esim/order", call(amount=package["price"], items=[beyond]))).code == "200008"
    days = package["minPeriodNum"] + 1
    amount = f"{float(package['price']) * days:.2f}"
    bought = await dealer.post("/esim/order", call(amount=amount, items=[line | {"periodNum": days}]))
    assert bought.code == "000000" and bought.data["items"][0]["periodNum"] == days


async def test_of_sixty_four_orders_at_once_only_those_that_the_balance_covers_are_placed(service: Service):
    async with service.client(await service.tenant(balance="57.60", qps=0)) as dealer:
        codes = [reply.code for reply in await asyncio.gather(*[dealer.order() for _ in range(64)])]
        assert sorted(codes) == ["000000"] * 32 + ["200007"] * 32
        assert await balance(dealer) == "0.00"
        assert (await dealer.post("/esim/order/list")).data["pager"]["total"] == 32


async def test_a_transaction_id_sent_a_hundred_times_at_once_makes_one_order(dealer: ApiClient):
    body = call()
    other = body | {"amount": "1.70", "items": [LINE | {"price": "1.70"}]}
    replies = await asyncio.gather(*[dealer.post("/esim/order", body if n % 2 else other) for n in range(100)])
    placed = [reply for reply in replies if reply.code == "000000"]
    assert len(placed) == 50 and len({reply.data["orderNo"] for reply in placed}) == 1
    assert sum(not reply.data["duplicate"] for reply in placed) == 1
    assert {reply.code for reply in replies} - {"000000"} <= {"200005", "310402"}
    assert await balance(dealer) == "998.20"


async def test_refusals_do_not_affect_other_orders_of_the_batch(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    async with service.client(await service.tenant(balance="0", qps=0)) as poor:
        clients = [dealer, poor, stranger] * 20
        replies = await asyncio.gather(*[client.order() for client in clients])
    assert [reply.code for reply in replies] == ["000000", "200007", "000000"] * 20


async def test_two_dealers_may_use_the_same_transaction_id(dealer: ApiClient, stranger: ApiClient):
    body = call()
    mine, theirs = await dealer.post("/esim/order", body), await stranger.post("/esim/order", body)
    assert mine.code == theirs.code == "000000"
    assert mine.data["orderNo"] != theirs.data["orderNo"] and theirs.data["duplicate"] is False


async def test_an_order_has_at_most_five_hundred_profiles(dealer: ApiClient):
    codes = ("TEST-OK", "TEST-DELAY", "TEST-PARTIAL", "TEST-ASYNC", "TEST-REVIEW")
    lines = [LINE | {"packageCode": code, "quantity": 100} for code in codes]
    bought = await dealer.post("/esim/order", call(amount="900.00", items=lines))
    assert bought.code == "000000" and sum(len(item["profiles"]) for item in bought.data["items"]) == 500
    one_more = [*lines, LINE | {"packageCode": "TEST-REJECT"}]
    assert (await dealer.post("/esim/order", call(amount="901.80", items=one_more))).code == "200008"
    done = await dealer.delivered(bought.data["orderNo"])
    assert len({profile["iccid"] for item in done["items"] for profile in item["profiles"]}) == 500


async def test_the_ledger_is_exact_afterwards(service: Service, dealer: ApiClient):
    await dealer.order()
    assert await service.audit() == []
