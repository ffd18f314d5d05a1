"""Every code that a call about money can be refused with, for both of two dealers: a table (specification 4 and 7)."""

import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from support.api_client import ApiClient, Service, running_service
from support.money.refunds import bought, profiles, refund
from support.operations import ROUTES

Json = Mapping[str, Any]
REFUND, CANCEL, REVOKE = "/esim/refund", "/esim/profile/cancel", "/esim/profile/revoke"
TOPUP, TOPUP_QUERY, STATEMENT = "/account/topup", "/account/topup/query", "/account/statement"
TOPUP_CANCEL = "/account/topup/cancel"
NOBODYS_ICCID = "89000000000000000009"
LONG = "x" * 256


@dataclass(frozen=True)
class Estate:
    """What a dealer has: an order, another, one that is held by a refund, one given back, and what it used before."""

    client: ApiClient
    order: dict[str, Any]
    other: dict[str, Any]
    held: dict[str, Any]
    returned: dict[str, Any]
    refund_key: str
    topup: Json

    @property
    def item(self) -> str:
        return self.order["items"][0]["itemNo"]

    def line(self, **profile: Any) -> list[Json]:
        return [{"itemNo": self.item, "profiles": [profile]}]


async def estate(client: ApiClient) -> Estate:
    order, other = await bought(client, quantity=2), await bought(client)
    held, returned = await bought(client, "TEST-ASYNC"), await bought(client)
    key = f"r-{secrets.token_hex(8)}"
    assert (await refund(client, held)).data["status"] == "REFUNDING"
    assert (await refund(client, returned, refundTransactionId=key)).data["status"] == "REFUNDED"
    topup = (await client.post(TOPUP, {"transactionId": f"u-{secrets.token_hex(8)}", "amount": "5"})).data
    return Estate(client, order, other, held, returned, key, topup)


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Its suppliers need an hour for what they do not do at once."""
    async with running_service(database_url, supplier_speed=0.001) as service:
        yield service


@pytest.fixture(scope="module")
async def estates(service: Service) -> AsyncIterator[list[Estate]]:
    async with (
        service.client(await service.tenant(balance="1000", qps=0)) as one,
        service.client(await service.tenant(balance="1000", qps=0)) as two,
    ):
        yield [await estate(one), await estate(two)]


Case = tuple[str, str, Callable[[Estate], Json]]


def named(path: str, code: str, *calls: Json) -> list[Case]:
    """Cases that need nothing of the dealer's."""
    return [(path, code, lambda _, call=call: call) for call in calls]


def of_order(code: str, *calls: Json) -> list[Case]:
    """Refunds of the dealer's order, with something wrong beside."""
    return [(REFUND, code, lambda one, call=call: {"orderNo": one.order["orderNo"], **call}) for call in calls]


def of_item(code: str, *items: Json) -> list[Case]:
    return [
        (
            REFUND,
            code,
            lambda one, item=item: {"orderNo": one.order["orderNo"], "items": [{"itemNo": one.item, **item}]},
        )
        for item in items
    ]


def of(order: Json, **more: Any) -> Json:
    return {"orderNo": order["orderNo"], **more}


def lines(order: Json) -> list[Json]:
    return [{"itemNo": item["itemNo"]} for item in order["items"]]


REFUNDS: list[Case] = [
    *named(REFUND, "000105", {}, {"orderNo": None}, {"remark": "why"}),
    *of_order("000105", {"items": [{}]}),
    *of_item("000105", {"profiles": [{}]}),
    *of_order("000106", {"items": []}, {"refundTransactionId": ""}, {"items": [{"itemNo": None}]}),
    *named(REFUND, "000106", {"orderNo": ""}),
    *of_order("000107", {"remark": LONG}, {"refundTransactionId": LONG}),
    *of_order("000108", {"items": 5}, {"refundTransactionId": "no spaces"}, {"remark": "\0"}, {"remark": 5}),
    *of_item("000108", {"profiles": [{"iccid": "12"}]}, {"profiles": [{"profileId": 1.5}]}),
    *named(REFUND, "000108", {"orderNo": 5}),
    *of_order("000111", {"esimTranNo": "1"}, {"profiles": [{"profileId": 1}]}),
    *of_item("000111", {"esimTranNo": "1"}, {"profiles": [{"esimTranNo": "1"}]}),
    *named(REFUND, "310272", {"orderNo": "D200101000000000001"}, {"transactionId": "nobodys"}),
    (REFUND, "310272", lambda one: {"orderNo": one.order["orderNo"], "transactionId": one.other["transactionId"]}),
    *of_order("310274", {"items": [{"itemNo": "12"}]}, {"items": [{"itemNo": "x"}]}),
    (REFUND, "310274", lambda one: {"orderNo": one.other["orderNo"], "items": [{"itemNo": one.item}]}),
    *of_item("310403", {"profiles": [{"profileId": 1}]}, {"profiles": [{"iccid": NOBODYS_ICCID}]}),
    (
        REFUND,
        "310403",
        lambda one: of(
            one.order,
            items=one.line(profileId=profiles(one.order)[0]["profileId"], iccid=profiles(one.order)[1]["iccid"]),
        ),
    ),
    (REFUND, "310403", lambda one: of(one.order, items=one.line(profileId=profiles(one.other)[0]["profileId"]))),
    (REFUND, "310402", lambda one: of(one.order, refundTransactionId=one.refund_key)),
    (REFUND, "310402", lambda one: of(one.returned, items=lines(one.returned), refundTransactionId=one.refund_key)),
    (REFUND, "200003", lambda one: of(one.returned, items=lines(one.returned))),
    (REFUND, "200004", lambda one: of(one.held, items=lines(one.held))),
]
VOIDS: list[Case] = [
    case
    for path in (CANCEL, REVOKE)
    for case in (
        *named(path, "000105", {}, {"profileId": None}),
        *named(path, "000106", {"iccid": ""}, {"profileId": ""}),
        *named(path, "000107", {"profileId": "1" * 21}),
        *named(path, "000108", {"iccid": "1"}, {"profileId": 1.5}, {"profileId": True}),
        *named(path, "000111", {"profileId": 1, "iccid": NOBODYS_ICCID}),
        *named(path, "310404", {"profileId": 1}, {"profileId": "x"}, {"iccid": NOBODYS_ICCID}),
        (path, "200004", lambda one: {"iccid": profiles(one.held)[0]["iccid"]}),
    )
]
TOPUPS: list[Case] = [
    *named(TOPUP, "000105", {"amount": "5"}, {"transactionId": "t-1"}),
    *named(TOPUP, "000106", {"transactionId": "t-1", "amount": None}, {"transactionId": "", "amount": "5"}),
    *named(TOPUP, "000107", {"transactionId": LONG, "amount": "5"}),
    *named(TOPUP, "000107", {"transactionId": "t-1", "amount": "5", "remark": LONG}),
    *named(TOPUP, "000108", *({"transactionId": "t-1", "amount": one} for one in ("0", "-1", "1e3", "1.001", True))),
    *named(TOPUP, "000108", {"transactionId": "a b", "amount": "5"}),
    *named(TOPUP, "000108", {"transactionId": "t-1", "amount": "5", "payMethod": "CASH"}),
    *named(TOPUP, "200015", {"transactionId": "t-1", "amount": "5", "currency": "EUR"}),
    (TOPUP, "310402", lambda one: {"transactionId": one.topup["transactionId"], "amount": "6"}),
    *named(TOPUP_QUERY, "000105", {}, {"topupNo": None}),
    *named(TOPUP_QUERY, "000106", {"topupNo": ""}, {"transactionId": ""}),
    *named(TOPUP_QUERY, "000107", {"topupNo": LONG}),
    *named(TOPUP_QUERY, "000108", {"topupNo": 5}, {"transactionId": "a b"}),
    *named(TOPUP_QUERY, "310405", {"topupNo": "T200101000000000001"}, {"topupNo": "x"}, {"transactionId": "none"}),
    (TOPUP_QUERY, "310405", lambda one: {"topupNo": one.topup["topupNo"], "transactionId": "none"}),
    *named(TOPUP_CANCEL, "000105", {}, {"topupNo": None}),
    *named(TOPUP_CANCEL, "000106", {"topupNo": ""}, {"transactionId": ""}),
    *named(TOPUP_CANCEL, "000107", {"topupNo": LONG}),
    *named(TOPUP_CANCEL, "000108", {"topupNo": 5}, {"transactionId": "a b"}),
    *named(TOPUP_CANCEL, "310405", {"topupNo": "T200101000000000001"}, {"topupNo": "x"}, {"transactionId": "none"}),
    (TOPUP_CANCEL, "310405", lambda one: {"topupNo": one.topup["topupNo"], "transactionId": "none"}),
    *named(STATEMENT, "000108", {"entryType": "FEE"}, {"startTime": "yesterday"}, {"endTime": 5}),
    *named(STATEMENT, "000108", {"pager": {"pageSize": 501}}, {"pager": {"pageNum": 0}}, {"pager": {"after": "x"}}),
]
CASES = [*REFUNDS, *VOIDS, *TOPUPS]
# Told of where they need more than one call.
ELSEWHERE = {
    (CANCEL, "200002"): "test_refused_cancel.py",
    (REVOKE, "200002"): "test_refused_cancel.py",
    (TOPUP, "200021"): "test_account.py",
    (TOPUP_CANCEL, "200002"): "test_account.py",
}


def test_every_code_of_an_operation_is_in_the_table():
    paths = {REFUND, CANCEL, REVOKE, TOPUP, TOPUP_QUERY, TOPUP_CANCEL, STATEMENT}
    promised = {(route.path, code) for route in ROUTES if route.path in paths for code in route.refusals}
    covered = {(path, code) for path, code, _ in CASES} | set(ELSEWHERE)
    assert promised <= covered
    assert {code for _, code in covered} - {code for _, code in promised} <= {"000105", "000106", "000107", "000108"}


@pytest.mark.parametrize("whose", [0, 1])
@pytest.mark.parametrize(
    ("path", "code", "call"), CASES, ids=[f"{at} {one[0]} {one[1]}" for at, one in enumerate(CASES)]
)
async def test_a_refused_call_names_the_reason_and_changes_nothing(
    estates: list[Estate], path: str, code: str, call: Callable[[Estate], Json], whose: int
):
    mine = estates[whose]
    before = (await mine.client.post("/account/balance")).data["balance"]
    reply = await mine.client.post(path, call(mine))
    assert reply.code == code and reply.message, reply
    assert (await mine.client.post("/account/balance")).data["balance"] == before


# What belongs to the other


def theirs(mine: Estate, other: Estate) -> list[tuple[str, str, Json]]:
    """Each field with an id of the other dealer's, and what nobody's would be answered."""
    profile = profiles(other.order)[0]
    whole = {"orderNo": mine.order["orderNo"]}
    return [
        (REFUND, "310272", {"orderNo": other.order["orderNo"]}),
        (REFUND, "310272", {"transactionId": other.order["transactionId"]}),
        (REFUND, "310272", whole | {"transactionId": other.order["transactionId"]}),
        (REFUND, "310274", whole | {"items": [{"itemNo": other.item}]}),
        (REFUND, "310274", whole | {"items": [{"itemNo": f"{other.order['orderNo']}-I-{other.item}"}]}),
        (REFUND, "310403", whole | {"items": mine.line(profileId=profile["profileId"])}),
        (REFUND, "310403", whole | {"items": mine.line(iccid=profile["iccid"])}),
        *(
            (path, "310404", {name: profile[name]})
            for path, name in itertools.product((CANCEL, REVOKE), ("profileId", "iccid"))
        ),
        (TOPUP_CANCEL, "310405", {"topupNo": other.topup["topupNo"]}),
        (TOPUP_QUERY, "310405", {"topupNo": other.topup["topupNo"]}),
        (TOPUP_QUERY, "310405", {"transactionId": other.topup["transactionId"]}),
        (TOPUP_QUERY, "310405", {"topupNo": mine.topup["topupNo"], "transactionId": other.topup["transactionId"]}),
    ]


@pytest.mark.parametrize("whose", [0, 1])
async def test_ids_of_another_dealer_look_unknown(estates: list[Estate], whose: int):
    mine, other = estates[whose], estates[1 - whose]
    nobodys = {
        "310272": await mine.client.post(REFUND, {"orderNo": "D200101000000000001"}),
        "310274": await mine.client.post(REFUND, {"orderNo": mine.order["orderNo"], "items": [{"itemNo": "12"}]}),
        "310403": await mine.client.post(REFUND, {"orderNo": mine.order["orderNo"], "items": mine.line(profileId=1)}),
        "310404": await mine.client.post(CANCEL, {"profileId": 1}),
        "310405": await mine.client.post(TOPUP_QUERY, {"topupNo": "T200101000000000001"}),
    }
    for path, code, call in theirs(mine, other):
        reply = await mine.client.post(path, call)
        assert (reply.status, reply.code, reply.message, reply.data) == (
            nobodys[code].status, code, nobodys[code].message, nobodys[code].data
        ), (path, call)  # fmt: skip


async def test_another_dealers_idempotency_keys_are_free(estates: list[Estate]):
    """refundTransactionId and a top-up's transactionId are each dealer's own."""
    one, two = estates
    order = await bought(two.client)
    mine = await refund(two.client, order, refundTransactionId=one.refund_key)
    assert (mine.code, mine.data["duplicate"]) == ("000000", False)
    topup = await two.client.post(TOPUP, {"transactionId": one.topup["transactionId"], "amount": "7"})
    assert (topup.code, topup.data["duplicate"]) == ("000000", False)


async def test_another_dealers_cursor_shows_only_own_entries(estates: list[Estate]):
    one, two = estates
    after = (await one.client.post(STATEMENT, {"pager": {"pageSize": 1}})).data["pager"]["next"]
    shown = (await two.client.post(STATEMENT, {"pager": {"after": after}})).data["entries"]
    own = (await two.client.post(STATEMENT)).data["entries"]
    assert all(entry in own for entry in shown)


async def test_the_audit_finds_nothing_after_all_cases(service: Service, estates: list[Estate]):
    assert len(estates) == 2 and await service.audit() == []
