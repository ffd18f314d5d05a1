"""The supplier kind rt_upstream against an upstream of the family on a real socket, with its quirks and every way to
lose an answer: what was bought is what is found, and no unit is bought twice."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import esimaccess_python as witness
import httpx
import httpx2
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server.rules.catalogue.package import GB
from dealer_server.suppliers import contract
from dealer_server.suppliers.contract import (
    BadEvent,
    Bought,
    Done,
    Event,
    NotVoided,
    Outcome,
    Pending,
    Purchase,
    Rejected,
    Remote,
    SuspensionDone,
    SuspensionRefused,
    Unit,
    Unknown,
    VoidDone,
    VoidUnit,
)
from dealer_server.suppliers.rt import parsing
from dealer_server.suppliers.rt.upstream import RtSettings, RtUpstream
from esim_dealer.wire.signing import signature
from support.rt_family import BALANCE, CODE, FAULTS, PRICE, SECRET, Esim, Upstream, package, running_upstream

KEY = "u-217325730170001-0-1"


def purchase(key: str = KEY, paid: datetime | None = None, **more: Any) -> Purchase:
    unit = Unit(key, 217_325_730_000_001, "JP-1GB", 1, 1, more.pop("days", 1), GB, paid or datetime.now(UTC))
    return msgspec.structs.replace(Purchase(unit, "JC016", cost=PRICE, cost_currency="USD"), **more)


def after(one: Purchase, pending: Outcome) -> Purchase:
    """The purchase as it is asked with next."""
    assert isinstance(pending, Pending)
    known = {"step": pending.step, "supplier_ref": pending.supplier_ref, "unit_ref": pending.unit_ref}
    return msgspec.structs.replace(one, **{name: value for name, value in known.items() if value is not None})


@asynccontextmanager
async def fixture(
    per_second: float = 10_000, allowed: int | None = None, **more: Any
) -> AsyncIterator[tuple[Upstream, Remote]]:
    async with running_upstream(per_second, allowed) as upstream:
        remote = RtUpstream("rt:test", msgspec.structs.replace(upstream.settings, **more))
        try:
            yield upstream, remote
        finally:
            await remote.close()


async def buy(remote: Remote, one: Purchase, first: str = "allocate") -> Outcome:
    """Asks as the contract says until there is an answer for good, or nobody knows."""
    ask, now = getattr(remote, first), datetime.now(UTC)
    for _ in range(100):
        outcome = await ask(one, now)
        if not isinstance(outcome, Pending):
            return outcome
        one, ask = after(one, outcome), remote.allocate
    raise AssertionError("pending for ever")


async def bought(remote: Remote, key: str = KEY) -> Done:
    outcome = await buy(remote, purchase(key))
    assert isinstance(outcome, Done), outcome
    return outcome


def void_of(done: Done, for_refund: bool = False, with_ref: bool = True) -> VoidUnit:
    ref = done.supplier_ref if with_ref else None
    return VoidUnit(1, "JP-1GB", done.iccid, for_refund, datetime.now(UTC), supplier_ref=ref)


# Signing


def test_the_familys_test_vector_is_signed_as_documented():
    """Suppliers 2.1."""
    expected = "7eb765e27df5373dea2dbc8c41a7d9557743e46c8054750f3d851b3fd01d0835"
    request_id = b"4ce9d9cdac9e4e17b3a2c66c358c1ce2"
    assert signature(b"1111", b"1628670421", request_id, b"11111", b'{"imsi":"326543826"}') == expected


async def test_calls_are_signed_with_the_secret_key():
    async with fixture() as (_, remote):
        assert (await remote.health()).up
    async with fixture(secret_key="another") as (upstream, remote):
        health = await remote.health()
        assert not health.up and "101003" in health.detail and "another" not in health.detail
        outcome = await remote.allocate(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.code == "CONFIG" and not upstream.book.orders


async def test_signatures_in_capitals_pass_and_wrong_ones_do_not():
    async with running_upstream() as upstream, httpx2.AsyncClient() as client:
        timestamp, body = str(int(datetime.now(UTC).timestamp() * 1000)), b"{}"
        right = signature(SECRET.encode(), timestamp.encode(), b"r1", CODE.encode(), body)
        for given_signature, succeeded in ((right.upper(), "true"), (right, "true"), (right[:-1] + "x", "false")):
            headers = {
                "RT-AccessCode": CODE,
                "RT-RequestID": "r1",
                "RT-Timestamp": timestamp,
                "RT-Signature": given_signature,
            }
            url = f"{upstream.settings.base_url}/api/v1/open/balance/query"
            answer = await client.post(url, content=body, headers=headers)
            assert answer.json()["success"] == succeeded


def test_settings_show_no_secret_and_refuse_what_is_no_address():
    one = RtSettings("https://api.upstream.example", "access-canary", "secret-canary")
    assert "canary" not in repr(one)
    text = {
        "baseUrl": "https://api.upstream.example",
        "accessCode": "a",
        "secretKey": "s",
        "senderIps": ["3.1.131.226"],
    }
    read = msgspec.json.decode(json.dumps(text).encode(), type=RtSettings)
    assert RtUpstream("rt:test", read).senders == ("3.1.131.226",)
    for wrong in ("nowhere", "3.1.131.226/24"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(json.dumps(text | {"senderIps": [wrong]}).encode(), type=RtSettings)


# Answers


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"success": True, "obj": {}}, ("", "")),
        ({"success": "true", "errorCode": None, "obj": {}}, ("", "")),
        ({"success": "TRUE", "errorCode": "0", "obj": {}}, ("", "")),
        ({"success": "false", "errorCode": "200011", "errorMsg": "none left"}, ("200011", "none left")),
        ({"success": False, "errorCode": 200011, "errorMessage": "none\nleft"}, ("200011", "none left")),
        ({"errorCode": "200011"}, ("200011", "")),
        ({"success": "true", "errorCode": "200011"}, None),
        ({"success": "false", "errorCode": None}, None),
        ({"success": "maybe"}, None),
        ({}, None),
        ([], None),
        ("ok", None),
    ],
)
def test_an_answer_is_a_success_or_a_failure_or_it_counts_for_nothing(body: Any, said: tuple[str, str] | None):
    text = json.dumps(body).encode()
    if said is None:
        with pytest.raises(ValueError):
            parsing.read(text)
    else:
        assert (parsing.read(text).code, parsing.read(text).message) == said


@pytest.mark.parametrize("text", ["2025-03-19T18:00:00+0000", "2025-03-19T18:00:00Z", "2025-03-19T19:00:00+01:00",
                                  "2025-03-19 18:00:00"])  # fmt: skip
def test_times_are_read_in_every_form_seen(text: str):
    assert parsing.time_of(text) == datetime(2025, 3, 19, 18, tzinfo=UTC)
    assert parsing.time_of("soon") is parsing.time_of(None) is None


# Buying


async def test_an_order_is_placed_once_and_its_esim_fetched():
    async with fixture() as (upstream, remote):
        one, now = purchase(), datetime.now(UTC)
        placed = await remote.allocate(one, now)
        (order,) = upstream.book.orders
        assert placed == Pending(2, "QUERY", order.order_no)
        assert upstream.calls_of("esim/order") == [
            {
                "transactionId": KEY,
                "packageInfoList": [{"packageCode": "JC016", "count": 1, "price": PRICE}],
                "amount": PRICE,
            }
        ]
        (esim,) = order.esims
        assert await remote.allocate(after(one, placed), now) == Done(
            esim.iccid, esim.ac, "GOT_RESOURCE", "RELEASED", order.order_no, esim.esimTranNo
        )


async def test_days_are_ordered_as_days_and_no_price_is_named_where_none_is_agreed():
    async with fixture() as (upstream, remote):
        assert isinstance(await buy(remote, purchase(days=3)), Done)
        assert isinstance(await buy(remote, purchase("u-2", cost=None)), Done)
        first, second = upstream.calls_of("esim/order")
        assert first["packageInfoList"][0]["periodNum"] == 3 and first["amount"] == 3 * PRICE
        assert "amount" not in second and second["packageInfoList"] == [{"packageCode": "JC016", "count": 1}]


@pytest.mark.parametrize("not_yet", ["200010", "EMPTY", "NO_CODES"])
async def test_slow_allocation_is_waited_for_in_growing_steps(not_yet: Any):
    async with fixture() as (upstream, remote):
        upstream.slow, upstream.not_yet = 7, not_yet
        one = purchase()
        placed = await remote.allocate(one, one.unit.paid_at)
        at, waits = one.unit.paid_at + timedelta(seconds=2), list[float]()
        while isinstance(outcome := await remote.allocate(after(one, placed), at), Pending):
            waits.append(outcome.poll_after_seconds)
            at += timedelta(seconds=outcome.poll_after_seconds)
        assert isinstance(outcome, Done) and waits == [4, 8, 15, 30, 60, 60, 60]
        assert len(upstream.book.orders) == 1


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("200007", "INSUFFICIENT_FUNDS"),
        ("200011", "OUT_OF_STOCK"),
        ("200005", "CONFIG"),
        ("310241", "CONFIG"),
        ("310243", "CONFIG"),
        ("101001", "CONFIG"),
        ("101002", "CONFIG"),
        ("101003", "CONFIG"),
        ("101005", "CONFIG"),
        ("000105", "BAD_REQUEST"),
        ("200006", "BAD_REQUEST"),
        ("200008", "BAD_REQUEST"),
        ("429", "TEMPORARY"),
    ],
)
async def test_what_is_refused_at_once_was_surely_not_bought(code: str, expected: str):
    async with fixture() as (upstream, remote):
        upstream.fault("esim/order", code)
        outcome = await remote.allocate(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and (outcome.code, outcome.retry_elsewhere) == (expected, True)
        assert not upstream.book.orders and code in outcome.message


@pytest.mark.parametrize("code", ["000001", "900001", "200002", "200009", "999999"])
async def test_other_errors_leave_it_unknown(code: str):
    async with fixture() as (upstream, remote):
        upstream.fault("esim/order", code)
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Unknown)


async def test_the_upstreams_own_words_are_understood():
    async with fixture() as (upstream, remote):
        upstream.book.balance = PRICE - 1
        outcome = await remote.allocate(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.code == "INSUFFICIENT_FUNDS"
        outcome = await remote.allocate(purchase(sku="NONE"), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.message == "310241 packageCode does not exist"
        outcome = await remote.allocate(purchase(cost=PRICE - 100), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.message.startswith("200005 Package price error")


async def test_a_closed_port_is_temporary():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    remote = RtUpstream("rt:test", RtSettings(f"http://127.0.0.1:{port}", CODE, SECRET))
    outcome = await remote.allocate(purchase(), datetime.now(UTC))
    assert isinstance(outcome, Rejected) and (outcome.code, outcome.retry_elsewhere) == ("TEMPORARY", True)
    assert isinstance(await remote.probe(purchase(), datetime.now(UTC)), Unknown)
    assert not (await remote.health()).up
    await remote.close()


async def test_no_answer_in_time_is_unknown():
    async with fixture(read_seconds=0.2) as (upstream, remote):
        upstream.fault("esim/order", "HANG")
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Unknown)
        assert len(upstream.book.orders) == 1


# Lost answers


@pytest.mark.parametrize("fault", [*FAULTS, "ERROR_AFTER", ""])
@pytest.mark.parametrize("duplicates", ["200008", "200009", "310402", "FIRST"])
@pytest.mark.parametrize("slow", [0, 2])
async def test_whatever_becomes_of_the_answer_one_esim_is_bought_and_found(fault: str, duplicates: str, slow: int):
    async with fixture() as (upstream, remote):
        upstream.duplicates, upstream.slow = duplicates, slow
        upstream.fault("esim/order", fault)
        one, now = purchase(), datetime.now(UTC)
        outcome = await remote.allocate(one, now)
        while isinstance(outcome, Unknown | Rejected):
            assert not isinstance(outcome, Rejected) or outcome.code == "TEMPORARY"
            outcome = await remote.probe(one, now)
        assert isinstance(outcome, Pending | Done)
        found = outcome if isinstance(outcome, Done) else await buy(remote, after(one, outcome))
        (order,) = upstream.book.orders
        assert isinstance(found, Done) and found.iccid == order.esims[0].iccid
        assert upstream.book.balance == BALANCE - PRICE


async def test_what_was_not_executed_is_ordered_again_under_the_same_transaction_id():
    async with fixture() as (upstream, remote):
        upstream.fault("esim/order", "LOST_BEFORE")
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Unknown)
        assert isinstance(await buy(remote, purchase(), "probe"), Done)
        assert [call["transactionId"] for call in upstream.calls_of("esim/order")] == [KEY, KEY]


async def test_nothing_is_ordered_again_before_the_list_has_had_time_to_show_it():
    async with fixture(settle_seconds=60) as (upstream, remote):
        upstream.duplicates, upstream.slow = "SECOND", 3  # one that would sell it twice
        upstream.fault("esim/order", "LOST_AFTER")
        one = purchase()
        assert isinstance(await remote.allocate(one, one.unit.paid_at), Unknown)
        for seconds in (5, 15, 35):
            assert isinstance(await remote.probe(one, one.unit.paid_at + timedelta(seconds=seconds)), Unknown)
        assert isinstance(await remote.probe(one, one.unit.paid_at + timedelta(seconds=75)), Done)
        assert len(upstream.book.orders) == 1


async def test_it_is_found_on_whichever_page_it_stands():
    async with fixture() as (upstream, remote):
        for number in range(25):
            upstream.book.sell(f"other-{number}", "JC016", 1, PRICE, 0)
        upstream.page_size = 7  # fewer than are asked for
        upstream.fault("esim/order", "LOST_AFTER")
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Unknown)
        outcome = await remote.probe(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Done) and outcome.iccid == upstream.book.of(KEY)[0].esims[0].iccid
        assert [call["pager"]["pageNum"] for call in upstream.calls_of("esim/query")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "fault", ["LOST_AFTER", "500_AFTER", "HTML_AFTER", "HALF_AFTER", "429", "BUSY_AFTER", "310272"]
)
async def test_a_search_that_fails_orders_nothing(fault: str):
    async with fixture() as (upstream, remote):
        upstream.fault("esim/query", fault)
        assert isinstance(await remote.probe(purchase(), datetime.now(UTC)), Unknown)
        assert not upstream.calls_of("esim/order")


async def test_an_order_refused_the_second_time_is_looked_for_before_the_refusal_counts():
    """The first order, executed late, may have been what used up the money."""
    async with fixture() as (upstream, remote):
        upstream.slow = 1
        upstream.book.sell(KEY, "JC016", 1, PRICE, 1)
        upstream.fault("esim/order", "200007")
        assert isinstance(await remote.probe(purchase(), datetime.now(UTC)), Done)
        assert len(upstream.book.orders) == 1


async def test_an_order_refused_the_second_time_and_not_listed_was_not_bought():
    async with fixture() as (upstream, remote):
        upstream.fault("esim/order", "LOST_BEFORE", "200011")
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Unknown)
        outcome = await remote.probe(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.code == "OUT_OF_STOCK"


async def test_a_refused_duplicate_that_is_not_listed_yet_stays_unknown():
    async with fixture() as (upstream, remote):
        upstream.book.sell(KEY, "JC016", 1, PRICE, 5)
        assert isinstance(await remote.probe(purchase(), datetime.now(UTC)), Unknown)
        assert len(upstream.book.orders) == 1


async def test_a_lost_connection_while_looking_after_a_refusal_is_no_refusal():
    async with fixture() as (upstream, remote):
        upstream.fault("esim/query", "", "LOST_BEFORE")
        upstream.fault("esim/order", "200011")
        assert isinstance(await remote.probe(purchase(), datetime.now(UTC)), Unknown)


async def test_an_upstream_that_is_gone_after_a_refusal_is_no_refusal():
    async with fixture() as (upstream, remote):
        upstream.fault("esim/order", "GONE")
        outcome = await remote.probe(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Unknown) and "200011" in outcome.reason


async def test_an_order_that_is_known_is_asked_about_and_never_placed_again():
    async with fixture() as (upstream, remote):
        one = purchase()
        placed = await remote.allocate(one, datetime.now(UTC))
        assert isinstance(placed, Pending)
        for fault in ("LOST_AFTER", "500_AFTER", "HALF_AFTER", "429", "BUSY_AFTER"):
            upstream.fault("esim/query", fault)
            assert isinstance(await remote.probe(after(one, placed), datetime.now(UTC)), Pending)
        assert isinstance(await remote.probe(after(one, placed), datetime.now(UTC)), Done)
        assert len(upstream.calls_of("esim/order")) == 1


async def test_more_than_one_esim_is_unknown_with_a_reason():
    async with fixture() as (upstream, remote):
        order = upstream.book.sell(KEY, "JC016", 2, PRICE, 0)
        for one in (purchase(supplier_ref=order.order_no, step="QUERY"), purchase()):
            outcome = await remote.probe(one, datetime.now(UTC))
            assert isinstance(outcome, Unknown) and "2 eSIMs" in outcome.reason


async def test_a_list_of_more_than_was_asked_for_is_sifted():
    async with fixture() as (upstream, remote):
        upstream.careless = True
        first, second = await bought(remote), await bought(remote, "u-2")
        assert first.iccid != second.iccid
        assert await remote.void(void_of(second), datetime.now(UTC)) == VoidDone()
        assert [esim.esimStatus for esim in upstream.book.esims()] == ["GOT_RESOURCE", "CANCEL"]


async def test_an_order_of_another_transaction_id_is_not_taken():
    async with fixture() as (upstream, remote):
        order = upstream.book.sell("someone-else", "JC016", 1, PRICE, 0)
        one = purchase(supplier_ref=order.order_no, step="QUERY")
        outcome = await remote.allocate(one, datetime.now(UTC))
        assert isinstance(outcome, Unknown) and "another transactionId" in outcome.reason


@pytest.mark.parametrize("word", ["CANCEL", "REVOKE", "REVOKED"])
async def test_what_they_have_voided_themselves_is_bought_elsewhere(word: str):
    async with fixture() as (upstream, remote):
        order = upstream.book.sell(KEY, "JC016", 1, PRICE, 0)
        order.esims[0].esimStatus = word
        outcome = await remote.allocate(purchase(supplier_ref=order.order_no), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and (outcome.code, outcome.retry_elsewhere) == ("NOT_ALLOWED", True)


ORDER_FAULTS = st.lists(st.sampled_from([*FAULTS, "ERROR_AFTER", "900001", "200009", ""]), max_size=6)
QUERY_FAULTS = st.lists(st.sampled_from([*FAULTS, "ERROR_AFTER", ""]), max_size=8)


@given(
    orders=ORDER_FAULTS,
    queries=QUERY_FAULTS,
    slow=st.integers(0, 4),
    duplicates=st.sampled_from(["200008", "200009", "310402", "FIRST"]),
    not_yet=st.sampled_from(["200010", "EMPTY", "NO_CODES"]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_after_any_faults_what_was_bought_is_what_was_found(
    orders: list[str], queries: list[str], slow: int, duplicates: str, not_yet: Any
):
    """Asked as the contract says: `probe` after Unknown and TEMPORARY, `allocate` after Pending."""
    async with fixture() as (upstream, remote):
        upstream.slow, upstream.duplicates, upstream.not_yet = slow, duplicates, not_yet
        upstream.fault("esim/order", *orders)
        upstream.fault("esim/query", *queries)
        one, ask = purchase(), remote.allocate
        for _ in range(60):
            outcome = await ask(one, datetime.now(UTC))
            if isinstance(outcome, Done):
                break
            if isinstance(outcome, Pending):
                one, ask = after(one, outcome), remote.allocate
            else:
                assert not isinstance(outcome, Rejected) or outcome.code == "TEMPORARY", outcome
                ask = remote.probe
        else:
            raise AssertionError("never found")
        (order,) = upstream.book.of(KEY)
        assert [order] == upstream.book.orders and outcome.iccid == order.esims[0].iccid


# Voiding


async def test_an_unused_esim_is_cancelled_and_the_money_comes_back():
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        assert await remote.void(void_of(done, for_refund=True), datetime.now(UTC)) == VoidDone()
        assert upstream.book.balance == BALANCE and upstream.book.esims()[0].esimStatus == "CANCEL"
        assert await remote.void(void_of(done, for_refund=True), datetime.now(UTC)) == VoidDone()
        assert upstream.calls_of("esim/cancel") == [{"esimTranNo": done.unit_ref}]


@pytest.mark.parametrize(
    ("esim", "smdp"), [("GOT_RESOURCE", "DOWNLOAD"), ("IN_USE", "ENABLED"), ("SUSPENDED", "RELEASED")]
)
async def test_a_used_esim_is_revoked_when_cancelled_but_never_for_a_refund(esim: str, smdp: str):
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        sold = upstream.book.esims()[0]
        sold.esimStatus, sold.smdpStatus = esim, smdp
        assert isinstance(await remote.void(void_of(done, for_refund=True), datetime.now(UTC)), NotVoided)
        assert sold.esimStatus == esim
        assert await remote.void(void_of(done), datetime.now(UTC)) == VoidDone()
        assert sold.esimStatus == "REVOKE" and upstream.book.balance == BALANCE - PRICE


async def test_not_allowed_in_this_status_is_final_unless_it_is_void_already():
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        upstream.fault("esim/cancel", "200002")
        assert isinstance(await remote.void(void_of(done), datetime.now(UTC)), NotVoided)
        upstream.fault("esim/cancel", "200002_AFTER")
        assert await remote.void(void_of(done), datetime.now(UTC)) == VoidDone()


async def test_a_cancellation_whose_answer_was_lost_is_found_out():
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        upstream.fault("esim/cancel", "LOST_AFTER")
        assert isinstance(await remote.void(void_of(done), datetime.now(UTC)), Unknown)
        assert await remote.void(void_of(done), datetime.now(UTC)) == VoidDone()


@pytest.mark.parametrize("fault", [*FAULTS, "ERROR_AFTER", "999999"])
async def test_a_void_without_an_answer_that_counts_is_unknown_and_asked_again(fault: str):
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        upstream.fault("esim/cancel", fault)
        assert isinstance(await remote.void(void_of(done, with_ref=False), datetime.now(UTC)), Unknown)
        assert await remote.void(void_of(done, with_ref=False), datetime.now(UTC)) == VoidDone()
        assert upstream.book.balance == BALANCE


async def test_an_esim_they_do_not_list_is_unknown():
    async with fixture() as (_, remote):
        lost = VoidUnit(1, "JP-1GB", "89000123456789012341", False, datetime.now(UTC))
        assert isinstance(await remote.void(lost, datetime.now(UTC)), Unknown)


# Suspending


def esim_of(done: Done, with_ref: bool = True) -> Bought:
    refs = (done.supplier_ref, done.unit_ref) if with_ref else (None, None)
    return Bought(1, KEY, "JC016", done.iccid, *refs)


@pytest.mark.parametrize("with_ref", [True, False])
async def test_an_esim_is_suspended_and_works_again_however_often_it_is_asked(with_ref: bool):
    async with fixture() as (upstream, remote):
        esim = esim_of(await bought(remote), with_ref)
        [sold] = upstream.book.esims()
        for suspended, word in [(True, "SUSPENDED")] * 2 + [(False, "GOT_RESOURCE")] * 2:
            assert await remote.set_suspended(esim, suspended, datetime.now(UTC)) == SuspensionDone()
            assert sold.esimStatus == word
        named = {"esimTranNo": sold.esimTranNo} if with_ref else {"iccid": sold.iccid}
        assert upstream.calls_of("esim/suspend") == upstream.calls_of("esim/unsuspend") == [named, named]


@pytest.mark.parametrize("word", ["USED_UP", "CANCEL", "REVOKE"])
@pytest.mark.parametrize("suspended", [True, False])
async def test_what_is_over_is_not_suspended(word: str, suspended: bool):
    """One that is used up is not suspended, either."""
    async with fixture() as (upstream, remote):
        esim = esim_of(await bought(remote))
        upstream.book.esims()[0].esimStatus = word
        outcome = await remote.set_suspended(esim, suspended, datetime.now(UTC))
        if word == "USED_UP" and not suspended:
            assert outcome == SuspensionDone()
        else:
            assert isinstance(outcome, SuspensionRefused) and "200002" in outcome.message


@pytest.mark.parametrize("fault", [*FAULTS, "101003"])
async def test_a_suspension_without_an_answer_that_counts_is_unknown_and_asked_again(fault: str):
    async with fixture() as (upstream, remote):
        esim = esim_of(await bought(remote))
        upstream.fault("esim/suspend", fault)
        assert isinstance(await remote.set_suspended(esim, True, datetime.now(UTC)), Unknown)
        assert await remote.set_suspended(esim, True, datetime.now(UTC)) == SuspensionDone()
        assert upstream.book.esims()[0].esimStatus == "SUSPENDED"


# State and usage


async def test_states_and_usage_are_told_in_their_words():
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        sold, now = upstream.book.esims()[0], datetime.now(UTC)
        (unused,) = await remote.refresh([_bought(done)], now)
        assert (unused.report.esim_status, unused.report.plan_ends_at) == ("GOT_RESOURCE", None)
        sold.esimStatus, sold.smdpStatus, sold.eid = "IN_USE", "ENABLED", "89049032123451234512345678901235"
        sold.orderUsage, sold.activateTime, sold.expiredTime = 4096, "2026-11-21T08:00:00Z", "2026-11-28T08:00:00+0000"
        (seen,) = await remote.refresh([_bought(done)], now)
        assert seen.iccid == done.iccid and seen.report == parsing.Report(
            now,
            "ENABLED",
            "IN_USE",
            sold.eid,
            4096,
            GB,
            datetime(2026, 11, 21, 8, tzinfo=UTC),
            datetime(2026, 11, 28, 8, tzinfo=UTC),
        )
        assert sold.esimTranNo not in msgspec.json.encode(seen).decode()


async def test_many_are_asked_about_at_once_and_usage_ten_by_ten():
    async with fixture() as (upstream, remote):
        many = [await bought(remote, f"u-{number}") for number in range(23)]
        upstream.calls.clear()
        upstream.fault("esim/query", "", "", "500_AFTER")  # one cannot be told of
        seen = await remote.refresh([_bought(done, n) for n, done in enumerate(many)], datetime.now(UTC))
        assert len(seen) == 22 and len(upstream.calls_of("esim/query")) == 23
        assert [len(call["esimTranNoList"]) for call in upstream.calls_of("esim/usage/query")] == [10, 10, 2]
        assert await remote.refresh([], datetime.now(UTC)) == []


async def test_states_are_told_also_where_the_usage_is_not():
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        upstream.fault("esim/usage/query", "HTML_AFTER")
        (seen,) = await remote.refresh([_bought(done)], datetime.now(UTC))
        assert seen.report.data_usage_bytes == 0


async def test_a_refresh_that_hangs_keeps_no_purchase_waiting():
    async with fixture(parallel=2) as (upstream, remote):
        many = [_bought(await bought(remote, f"u-{number}"), number) for number in range(3)]
        upstream.fault("esim/query", "HANG", "HANG")
        refreshing = asyncio.create_task(remote.refresh(many, datetime.now(UTC)))
        await upstream.hanging.wait()
        assert isinstance(await remote.allocate(purchase(), datetime.now(UTC)), Pending)
        assert not refreshing.done()
        upstream.let_go.set()
        assert len(await refreshing) == 3


def _bought(done: Done, number: int = 1) -> Bought:
    return Bought(number, KEY, "JC016", done.iccid, done.supplier_ref, done.unit_ref)


async def test_no_more_calls_a_second_are_made_than_are_allowed():
    async with fixture(per_second=8, allowed=8) as (upstream, remote):
        upstream.book.sell(KEY, "JC016", 1, PRICE, 0)
        await asyncio.gather(*[remote.health() for _ in range(20)])
        assert upstream.over == 0 and len(upstream.calls) == 20


async def test_one_call_too_many_is_told_apart_from_an_order_placed():
    async with fixture(allowed=1) as (upstream, remote):
        assert (await remote.health()).up
        outcome = await remote.allocate(purchase(), datetime.now(UTC))
        assert isinstance(outcome, Rejected) and outcome.code == "TEMPORARY"
        assert upstream.over == 1 and not upstream.book.orders


async def test_health_tells_the_balance():
    async with fixture() as (_, remote):
        assert await remote.health() == contract.Health(True, "", BALANCE, "USD")


async def test_packages_come_as_they_are_listed():
    async with fixture() as (upstream, remote):
        assert isinstance(remote, RtUpstream)
        upstream.book.packages["X"] = package("X", dataType=4)
        assert [one["packageCode"] for one in await remote.packages()] == ["JC016", "X"]


# Messages

ESIM = Esim("26112110000100", "B2611211000001", KEY, "89010000000000001009", "LPA:1$rsp.upstream.example$M", "JC016")


def heard(event: Any) -> Event:
    body = event if isinstance(event, bytes) else json.dumps(event).encode()
    return RtUpstream("rt:test", RtSettings("http://x", "a", "s")).parse_event({}, body, datetime.now(UTC))


async def test_a_message_is_only_a_reason_to_ask():
    async with running_upstream() as upstream:
        told = heard(upstream.event("ESIM_STATUS", ESIM, esimStatus="IN_USE", smdpStatus="ENABLED"))
        assert (told.kind, told.reports) == ("ESIM_STATUS", ())
        assert told.about == (ESIM.orderNo, KEY, ESIM.esimTranNo)
        assert heard(upstream.event("ORDER_STATUS", ESIM, transaction_id=False)).about == (ESIM.orderNo,)
        assert heard(upstream.event("DATA_USAGE", ESIM) | {"content": {"iccid": ESIM.iccid + "F"}}).about == (
            ESIM.iccid,
        )


async def test_a_message_that_comes_twice_has_the_same_key():
    async with running_upstream() as upstream:
        first = upstream.event("SMDP_EVENT", ESIM, smdpStatus="DOWNLOAD")
        assert heard(first).key == heard(first | {"eventGenerateTime": "2026-11-21T11:00:00Z"}).key
        assert heard(first).key != heard(first | {"notifyId": "other"}).key
        del first["notifyId"]
        assert heard(first).key == heard(first).key != heard(first | {"eventGenerateTime": "later"}).key


def test_a_health_check_asks_about_nothing():
    told = heard({"notifyType": "CHECK_HEALTH", "content": {"orderNo": "1234567890", "orderStatus": "Test"}})
    assert (told.kind, told.about) == ("CHECK_HEALTH", ())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"notifyType": 7}',
        b'{"notifyType": "a b"}',
        b'{"notifyType": "ORDER_STATUS", "content": {"orderNo": "B1; DROP TABLE"}}',
        b'{"notifyType": "ORDER_STATUS", "content": {"orderNo": 5}}',
        b'{"notifyType": "ORDER_STATUS", "content": {"iccid": "' + b"9" * 100 + b'"}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_message_is_refused(body: bytes):
    with pytest.raises(BadEvent):
        heard(body)


async def test_messages_are_pushed_over_a_socket():
    """For tests of the whole service: the upstream tells a URL."""
    got = asyncio.Queue[bytes]()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        got.put_nowait(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with running_upstream() as upstream, await asyncio.start_server(receive, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()[:2]
        event = upstream.event("ORDER_STATUS", ESIM, orderStatus="GOT_RESOURCE")
        assert await upstream.push(f"http://{host}:{port}/", event) == 200
        assert heard(await got.get()) == heard(event)


# An independent witness


async def test_the_familys_client_from_pypi_works_with_our_upstream():
    """The client that others use with this family. Its address is fixed, so its client is led to ours."""
    async with fixture() as (upstream, remote):
        done = await bought(remote)
        told = await asyncio.to_thread(_witnessed, upstream.settings.base_url)
        assert told["balance"]["obj"]["balance"] == BALANCE - PRICE
        assert told["list"]["obj"]["packageList"][0]["packageCode"] == "JC016"
        order_no = told["order"]["obj"]["orderNo"]
        assert upstream.book.of("witness-1")[0].order_no == order_no
        (esim,) = told["query"]["obj"]["esimList"]
        assert esim["orderNo"] == order_no and esim["iccid"] != done.iccid
        assert told["cancel"]["success"] == "true" and upstream.book.balance == BALANCE - PRICE


def _witnessed(base_url: str) -> dict[str, Any]:
    client = witness.authenticate(CODE)
    client.event_hooks = {"request": [lambda request: setattr(request, "url", httpx.URL(base_url + request.url.path))]}
    api = witness.Package(client)
    told = {"balance": api.balance(), "list": api.list()}
    told["order"] = api.order("witness-1", [{"packageCode": "JC016", "count": 1, "price": PRICE}], PRICE)
    told["query"] = api.query(witness.PageParam(20, 1), orderNo=told["order"]["obj"]["orderNo"])
    told["cancel"] = api.cancel(told["query"]["obj"]["esimList"][0]["iccid"])
    client.close()
    return told
