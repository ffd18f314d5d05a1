"""The wallet as its dealer sees it: statement and top-ups; and as operators move it."""

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.topups.review import approve_topup, reject_topup
from support.api_client import ApiClient, Service
from support.processes import environment, run

STATEMENT, TOPUP, QUERY = "/account/statement", "/account/topup", "/account/topup/query"
CANCEL = "/account/topup/cancel"


@pytest.fixture(autouse=True)
async def exact(service: Service) -> AsyncIterator[None]:
    yield
    assert await service.audit() == []


async def asked(dealer: ApiClient, amount: str = "50", **call: Any) -> dict[str, Any]:
    reply = await dealer.post(TOPUP, {"transactionId": f"t-{secrets.token_hex(6)}", "amount": amount} | call)
    assert reply.code == "000000", reply
    return reply.data


async def balance(dealer: ApiClient) -> Decimal:
    return Decimal((await dealer.post("/account/balance")).data["balance"])


async def test_the_entries_sum_to_the_balance(service: Service, dealer: ApiClient):
    order = (await dealer.order()).data
    await dealer.delivered(order["orderNo"])
    await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})
    added = await asked(dealer)
    await approve_topup(service.database, added["topupNo"], "ops", clock.now)
    await service.change(dealer.tenant_id, balance="7.50")
    entries = (await dealer.post(STATEMENT)).data["entries"]
    assert [one["entryType"] for one in entries] == ["ADJUST", "TOPUP", "REFUND", "ORDER_PAY", "ADJUST"]
    assert [one["amount"] for one in entries] == ["-1042.50", "50.00", "1.80", "-1.80", "1000.00"]
    assert sum(Decimal(one["amount"]) for one in entries) == await balance(dealer) == Decimal("7.50")
    assert entries[2]["orderNo"] == entries[3]["orderNo"] == order["orderNo"]
    assert entries[1]["topupNo"] == added["topupNo"] and "orderNo" not in entries[1]
    for newer, older in itertools.pairwise(entries):
        assert Decimal(newer["balanceAfter"]) == Decimal(older["balanceAfter"]) + Decimal(newer["amount"])


async def test_pages_and_filters_of_the_statement(dealer: ApiClient):
    for _ in range(5):
        await dealer.order()
    seen: list[str] = []
    page: dict[str, Any] | None = {"pageSize": 2}
    while page:
        data = (await dealer.post(STATEMENT, {"pager": page})).data
        assert data["pager"]["total"] == 6
        seen += [one["entryNo"] for one in data["entries"]]
        following = data["pager"].get("next")
        page = {"pageSize": 2, "after": following} if following else None
    assert seen == ["6", "5", "4", "3", "2", "1"]
    paid = (await dealer.post(STATEMENT, {"entryType": "ORDER_PAY"})).data
    assert len(paid["entries"]) == paid["pager"]["total"] == 5
    assert (await dealer.post(STATEMENT, {"endTime": "2020-01-01T00:00:00Z"})).data["entries"] == []
    assert (await dealer.post(STATEMENT, {"entryType": "FEE"})).code == "000108"


async def test_statements_are_ones_own(dealer: ApiClient, stranger: ApiClient):
    await dealer.order()
    assert len((await stranger.post(STATEMENT)).data["entries"]) == 1


async def test_a_request_credits_nothing_until_it_is_approved_once(service: Service, dealer: ApiClient):
    one = await asked(dealer, "50.25", payMethod="BANK_TRANSFER", payReference="INV-1", remark="November")
    assert (one["status"], one["amount"], one["currency"], one["duplicate"]) == ("PENDING", "50.25", "USD", False)
    assert await balance(dealer) == 1000
    pressed = await asyncio.gather(
        *(approve_topup(service.database, one["topupNo"], "ops", clock.now) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, OperatorError) for each in pressed) == 7
    assert await balance(dealer) == Decimal("1050.25")
    found = (await dealer.post(QUERY, {"topupNo": one["topupNo"]})).data
    assert found["status"] == "APPROVED" and found["reviewTime"] >= found["createTime"]
    with pytest.raises(OperatorError, match="APPROVED already"):
        await reject_topup(service.database, one["topupNo"], "too late", "ops", clock.now)


async def test_a_rejected_request_says_why(service: Service, dealer: ApiClient):
    one = await asked(dealer)
    await reject_topup(service.database, one["topupNo"], "no such transfer", "ops", clock.now)
    found = (await dealer.post(QUERY, {"transactionId": one["transactionId"]})).data
    assert (found["status"], found["rejectReason"]) == ("REJECTED", "no such transfer")
    assert await balance(dealer) == 1000


async def test_a_request_is_withdrawn_by_its_dealer(service: Service, dealer: ApiClient):
    one, two = await asked(dealer), await asked(dealer)
    withdrawn = (await dealer.post(CANCEL, {"topupNo": one["topupNo"]})).data
    assert withdrawn == one | {"status": "CANCELLED", "reviewTime": withdrawn["reviewTime"]}
    both = {"topupNo": one["topupNo"], "transactionId": one["transactionId"]}
    for again in ({"topupNo": one["topupNo"]}, {"transactionId": one["transactionId"]}, both):
        assert (await dealer.post(CANCEL, again)).data == withdrawn | {"duplicate": True}
    assert (await dealer.post(QUERY, both)).data == withdrawn
    assert (await dealer.post(QUERY, {"topupNo": two["topupNo"]})).data["status"] == "PENDING"
    with pytest.raises(OperatorError, match="CANCELLED already, by dealer"):
        await approve_topup(service.database, one["topupNo"], "ops", clock.now)
    assert await balance(dealer) == 1000


async def test_what_was_reviewed_is_withdrawn_no_more(service: Service, dealer: ApiClient):
    one, two = await asked(dealer), await asked(dealer)
    await approve_topup(service.database, one["topupNo"], "ops", clock.now)
    await reject_topup(service.database, two["topupNo"], "no such transfer", "ops", clock.now)
    for ended, status in ((one, "APPROVED"), (two, "REJECTED")):
        reply = await dealer.post(CANCEL, {"topupNo": ended["topupNo"]})
        assert (reply.code, reply.data) == ("200002", {"status": status}) and status in reply.message
    assert await balance(dealer) == 1050


async def test_of_approval_and_withdrawal_exactly_one_happens(service: Service, dealer: ApiClient):
    for _ in range(12):
        before, one = await balance(dealer), await asked(dealer)
        approved, withdrawn = await asyncio.gather(
            approve_topup(service.database, one["topupNo"], "ops", clock.now),
            dealer.post(CANCEL, {"topupNo": one["topupNo"]}),
            return_exceptions=True,
        )
        assert not isinstance(withdrawn, BaseException)
        status = (await dealer.post(QUERY, {"topupNo": one["topupNo"]})).data["status"]
        if isinstance(approved, OperatorError):
            assert (withdrawn.code, status, await balance(dealer)) == ("000000", "CANCELLED", before)
        else:
            assert (withdrawn.code, status, await balance(dealer)) == ("200002", "APPROVED", before + 50)


async def test_withdrawn_requests_make_room_for_others(dealer: ApiClient):
    made = [await asked(dealer) for _ in range(20)]
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "200021"
    assert (await dealer.post(CANCEL, {"topupNo": made[0]["topupNo"]})).code == "000000"
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "000000"


async def test_a_repeat_is_the_original(dealer: ApiClient):
    call = {"transactionId": f"t-{secrets.token_hex(6)}", "amount": "10"}
    first, second = [(await dealer.post(TOPUP, call)).data for _ in range(2)]
    assert second == first | {"duplicate": True}
    spelt = (await dealer.post(TOPUP, call | {"amount": 10.0})).data
    assert spelt["duplicate"] is True
    assert (await dealer.post(TOPUP, call | {"amount": "11"})).code == "310402"
    order = await dealer.order(transactionId=call["transactionId"])
    assert order.code == "000000", "orders have transactionIds of their own"


@pytest.mark.parametrize(
    ("call", "code", "named"),
    [
        ({"amount": "0"}, "000108", "amount"),
        ({"amount": "-1"}, "000108", "amount"),
        ({"amount": "1.001"}, "000108", "amount"),
        ({"amount": None}, "000106", "amount"),
        ({"currency": "EUR"}, "200015", "EUR"),
        ({"payMethod": "CASH"}, "000108", "payMethod"),
        ({"payReference": "x" * 129}, "000107", "payReference"),
        ({"transactionId": "a b"}, "000108", "transactionId"),
        ({"transactionId": ""}, "000106", "transactionId"),
    ],
)
async def test_a_bad_request_is_named(dealer: ApiClient, call: dict[str, Any], code: str, named: str):
    reply = await dealer.post(TOPUP, {"transactionId": "t-1", "amount": "10"} | call)
    assert reply.code == code and named in reply.message, reply


async def test_too_many_pending_requests_are_refused(dealer: ApiClient):
    for _ in range(20):
        await asked(dealer)
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "200021"


@pytest.mark.parametrize("path", [QUERY, CANCEL])
@pytest.mark.parametrize("call", [{"topupNo": "T261120081530000001"}, {"topupNo": "x"}, {"transactionId": "none"}])
async def test_what_was_not_asked_for_is_not_found(dealer: ApiClient, path: str, call: dict[str, str]):
    assert (await dealer.post(path, call)).code == "310405"


@pytest.mark.parametrize("path", [QUERY, CANCEL])
async def test_top_ups_are_ones_own(dealer: ApiClient, stranger: ApiClient, path: str):
    one = await asked(dealer)
    assert (await stranger.post(path, {"topupNo": one["topupNo"]})).code == "310405"
    assert (await dealer.post(path, {})).code == "000105"
    two = await asked(dealer)
    disagreeing = {"topupNo": one["topupNo"], "transactionId": two["transactionId"]}
    assert (await dealer.post(path, disagreeing)).code == "310405"
    assert (await dealer.post(QUERY, {"topupNo": one["topupNo"]})).data["status"] == "PENDING"


async def test_the_operators_commands(service: Service, dealer: ApiClient, database_url: str):
    env, mine = environment(database_url), ("--tenant", str(dealer.tenant_id))
    one, two = await asked(dealer), await asked(dealer)
    listed = await run("topup", "list", *mine, "--json", env=env)
    assert [json.loads(line)["topupNo"] for line in listed.out.splitlines()] == [two["topupNo"], one["topupNo"]]
    done = await run("topup", "approve", one["topupNo"], "--json", env=env)
    assert json.loads(done.out)["status"] == "APPROVED", done
    again = await run("topup", "approve", one["topupNo"], env=env)
    assert again.status == 1 and "APPROVED already" in again.err
    refused = await run("topup", "reject", two["topupNo"], "--reason", "unknown sender", env=env)
    assert refused.status == 0, refused
    async with service.database.connection() as connection:
        acts = await connection.fetch(
            "SELECT action, detail FROM audit_log WHERE tenant_id = $1 AND action LIKE 'topup.%' ORDER BY audit_id",
            dealer.tenant_id,
        )
    assert [act["action"] for act in acts] == ["topup.approve", "topup.reject"]
    approved, rejected = (json.loads(act["detail"]) for act in acts)
    assert approved["before"] == {"status": "PENDING", "balance": "1000.00"}
    assert approved["after"] == {"status": "APPROVED", "balance": "1050.00"}
    assert rejected["after"] == {"status": "REJECTED"} and rejected["reason"] == "unknown sender"
