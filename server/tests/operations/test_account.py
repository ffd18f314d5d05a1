"""The wallet: statement and top-ups of its dealer, reviews and adjustments of operators."""

import asyncio
import itertools
import json
import secrets
from decimal import Decimal
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.topups.review import approve_topup, reject_topup
from support.api_client import ApiClient, Service
from support.processes import environment, run

pytestmark = pytest.mark.usefixtures("exact")

STATEMENT, TOPUP, QUERY = "/account/statement", "/account/topup", "/account/topup/query"
CANCEL = "/account/topup/cancel"


async def request_topup(dealer: ApiClient, amount: str = "50", **call: Any) -> dict[str, Any]:
    reply = await dealer.post(TOPUP, {"transactionId": f"t-{secrets.token_hex(6)}", "amount": amount} | call)
    assert reply.code == "000000", reply
    return reply.data


async def balance(dealer: ApiClient) -> Decimal:
    return Decimal((await dealer.post("/account/balance")).data["balance"])


async def test_ledger_entries_sum_to_the_balance(service: Service, dealer: ApiClient):
    order = (await dealer.order()).data
    await dealer.delivered(order["orderNo"])
    await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})
    added = await request_topup(dealer)
    await approve_topup(service.database, added["topupNo"], "ops", clock.now)
    await service.change(dealer.tenant_id, balance="7.50")
    entries = (await dealer.post(STATEMENT)).data["entries"]
    assert [entry["entryType"] for entry in entries] == ["ADJUST", "TOPUP", "REFUND", "ORDER_PAY", "ADJUST"]
    assert [entry["amount"] for entry in entries] == ["-1042.50", "50.00", "1.80", "-1.80", "1000.00"]
    assert sum(Decimal(entry["amount"]) for entry in entries) == await balance(dealer) == Decimal("7.50")
    assert entries[2]["orderNo"] == entries[3]["orderNo"] == order["orderNo"]
    assert entries[1]["topupNo"] == added["topupNo"] and "orderNo" not in entries[1]
    for newer, older in itertools.pairwise(entries):
        assert Decimal(newer["balanceAfter"]) == Decimal(older["balanceAfter"]) + Decimal(newer["amount"])


async def test_the_statement_is_paged_and_filtered(dealer: ApiClient):
    for _ in range(5):
        await dealer.order()
    seen: list[str] = []
    page: dict[str, Any] | None = {"pageSize": 2}
    while page:
        data = (await dealer.post(STATEMENT, {"pager": page})).data
        assert data["pager"]["total"] == 6
        seen += [entry["entryNo"] for entry in data["entries"]]
        following = data["pager"].get("next")
        page = {"pageSize": 2, "after": following} if following else None
    assert seen == ["6", "5", "4", "3", "2", "1"]
    paid = (await dealer.post(STATEMENT, {"entryType": "ORDER_PAY"})).data
    assert len(paid["entries"]) == paid["pager"]["total"] == 5
    assert (await dealer.post(STATEMENT, {"endTime": "2020-01-01T00:00:00Z"})).data["entries"] == []
    assert (await dealer.post(STATEMENT, {"entryType": "FEE"})).code == "000108"


async def test_a_dealer_sees_its_own_statement_only(dealer: ApiClient, stranger: ApiClient):
    await dealer.order()
    assert len((await stranger.post(STATEMENT)).data["entries"]) == 1


async def test_a_top_up_is_credited_once_when_approved(service: Service, dealer: ApiClient):
    topup = await request_topup(dealer, "50.25", payMethod="BANK_TRANSFER", payReference="INV-1", remark="November")
    assert (topup["status"], topup["amount"], topup["currency"], topup["duplicate"]) == (
        "PENDING",
        "50.25",
        "USD",
        False,
    )
    assert await balance(dealer) == 1000
    pressed = await asyncio.gather(
        *(approve_topup(service.database, topup["topupNo"], "ops", clock.now) for _ in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, OperatorError) for each in pressed) == 7
    assert await balance(dealer) == Decimal("1050.25")
    found = (await dealer.post(QUERY, {"topupNo": topup["topupNo"]})).data
    assert found["status"] == "APPROVED" and found["reviewTime"] >= found["createTime"]
    with pytest.raises(OperatorError, match="APPROVED already"):
        await reject_topup(service.database, topup["topupNo"], "too late", "ops", clock.now)


async def test_a_rejected_top_up_shows_the_reason(service: Service, dealer: ApiClient):
    topup = await request_topup(dealer)
    await reject_topup(service.database, topup["topupNo"], "no such transfer", "ops", clock.now)
    found = (await dealer.post(QUERY, {"transactionId": topup["transactionId"]})).data
    assert (found["status"], found["rejectReason"]) == ("REJECTED", "no such transfer")
    assert await balance(dealer) == 1000


async def test_a_dealer_can_withdraw_a_pending_top_up(service: Service, dealer: ApiClient):
    first, second = await request_topup(dealer), await request_topup(dealer)
    withdrawn = (await dealer.post(CANCEL, {"topupNo": first["topupNo"]})).data
    assert withdrawn == first | {"status": "CANCELLED", "reviewTime": withdrawn["reviewTime"]}
    both = {"topupNo": first["topupNo"], "transactionId": first["transactionId"]}
    for again in ({"topupNo": first["topupNo"]}, {"transactionId": first["transactionId"]}, both):
        assert (await dealer.post(CANCEL, again)).data == withdrawn | {"duplicate": True}
    assert (await dealer.post(QUERY, both)).data == withdrawn
    assert (await dealer.post(QUERY, {"topupNo": second["topupNo"]})).data["status"] == "PENDING"
    with pytest.raises(OperatorError, match="CANCELLED already, by dealer"):
        await approve_topup(service.database, first["topupNo"], "ops", clock.now)
    assert await balance(dealer) == 1000


async def test_a_reviewed_request_cannot_be_withdrawn(service: Service, dealer: ApiClient):
    first, second = await request_topup(dealer), await request_topup(dealer)
    await approve_topup(service.database, first["topupNo"], "ops", clock.now)
    await reject_topup(service.database, second["topupNo"], "no such transfer", "ops", clock.now)
    for ended, status in ((first, "APPROVED"), (second, "REJECTED")):
        reply = await dealer.post(CANCEL, {"topupNo": ended["topupNo"]})
        assert (reply.code, reply.data) == ("200002", {"status": status}) and status in reply.message
    assert await balance(dealer) == 1050


async def test_a_request_is_either_approved_or_withdrawn(service: Service, dealer: ApiClient):
    for _ in range(12):
        before, topup = await balance(dealer), await request_topup(dealer)
        approved, withdrawn = await asyncio.gather(
            approve_topup(service.database, topup["topupNo"], "ops", clock.now),
            dealer.post(CANCEL, {"topupNo": topup["topupNo"]}),
            return_exceptions=True,
        )
        assert not isinstance(withdrawn, BaseException)
        status = (await dealer.post(QUERY, {"topupNo": topup["topupNo"]})).data["status"]
        if isinstance(approved, OperatorError):
            assert (withdrawn.code, status, await balance(dealer)) == ("000000", "CANCELLED", before)
        else:
            assert (withdrawn.code, status, await balance(dealer)) == ("200002", "APPROVED", before + 50)


async def test_withdrawn_requests_do_not_count_as_pending(dealer: ApiClient):
    made = [await request_topup(dealer) for _ in range(20)]
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "200021"
    assert (await dealer.post(CANCEL, {"topupNo": made[0]["topupNo"]})).code == "000000"
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "000000"


async def test_a_repeat_gives_the_original(dealer: ApiClient):
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
async def test_a_malformed_request_names_the_parameter(dealer: ApiClient, call: dict[str, Any], code: str, named: str):
    reply = await dealer.post(TOPUP, {"transactionId": "t-1", "amount": "10"} | call)
    assert reply.code == code and named in reply.message, reply


async def test_too_many_pending_top_ups_are_refused(dealer: ApiClient):
    for _ in range(20):
        await request_topup(dealer)
    assert (await dealer.post(TOPUP, {"transactionId": "t-21", "amount": "10"})).code == "200021"


@pytest.mark.parametrize("path", [QUERY, CANCEL])
@pytest.mark.parametrize("call", [{"topupNo": "T261120081530000001"}, {"topupNo": "x"}, {"transactionId": "none"}])
async def test_an_unknown_request_is_not_found(dealer: ApiClient, path: str, call: dict[str, str]):
    assert (await dealer.post(path, call)).code == "310405"


@pytest.mark.parametrize("path", [QUERY, CANCEL])
async def test_a_dealer_sees_its_own_top_ups_only(dealer: ApiClient, stranger: ApiClient, path: str):
    topup = await request_topup(dealer)
    assert (await stranger.post(path, {"topupNo": topup["topupNo"]})).code == "310405"
    assert (await dealer.post(path, {})).code == "000105"
    two = await request_topup(dealer)
    disagreeing = {"topupNo": topup["topupNo"], "transactionId": two["transactionId"]}
    assert (await dealer.post(path, disagreeing)).code == "310405"
    assert (await dealer.post(QUERY, {"topupNo": topup["topupNo"]})).data["status"] == "PENDING"


async def test_the_commands_of_operators(service: Service, dealer: ApiClient, database_url: str):
    env, mine = environment(database_url), ("--tenant", str(dealer.tenant_id))
    first, second = await request_topup(dealer), await request_topup(dealer)
    listed = await run("topup", "list", *mine, "--json", env=env)
    assert [json.loads(line)["topupNo"] for line in listed.out.splitlines()] == [second["topupNo"], first["topupNo"]]
    done = await run("topup", "approve", first["topupNo"], "--json", env=env)
    assert json.loads(done.out)["status"] == "APPROVED", done
    again = await run("topup", "approve", first["topupNo"], env=env)
    assert again.status == 1 and "APPROVED already" in again.err
    refused = await run("topup", "reject", second["topupNo"], "--reason", "unknown sender", env=env)
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
