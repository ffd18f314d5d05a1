"""Two dealers, one service: what belongs to the other looks exactly like what does not exist (specification 7).

A matrix over every operation the routes have, today's and tomorrow's, and every field that can name something.
"""

import itertools
import secrets
import typing
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from support.api_client import ApiClient, Reply, Service, running_service
from support.operations import PATHS, ROUTES

Json = Mapping[str, Any]
LINE = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}


# Every field that names an order, a line, a profile or a delivery, whichever operation it belongs to.
NAMING = ("orderNo", "transactionId", "itemNo", "profileId", "iccid")
# What an operation asks for beside the ids, so that it gets as far as looking for them.
BESIDE: Mapping[str, Json] = {
    "/account/topup": {"amount": "1"},
    "/esim/order": {"amount": "1.80", "items": [LINE]},
    "/esim/order/check": {"items": [LINE]},
    "/test/profile/advance": {"step": "DOWNLOAD"},
    "/esim/profile/sms": {"transactionId": "t-sms", "message": "hello"},
    # At another price than that of today: no eSIM is recharged.
    "/esim/topup": {"transactionId": "t-recharge", "packageCode": "TEST-TOPUP-OK", "price": "9.99", "amount": "9.99"},
    "/webhook/set": {"callbackUrl": "https://example.com/hooks"},
}
# What makes something new under a transactionId of the caller's, which may be another dealer's, too: see below.
MAKING = ("/account/topup", "/esim/order", "/esim/topup", "/esim/profile/sms")


@dataclass(frozen=True)
class Estate:
    """A dealer and one order of it, delivered, with the ids that name it and its parts."""

    client: ApiClient
    order: Json
    ids: Mapping[str, tuple[Any, ...]]


async def estate(client: ApiClient) -> Estate:
    placed = await client.order(amount="3.60", items=[LINE | {"quantity": 2}])
    order = await client.delivered(placed.data["orderNo"])
    [item] = order["items"]
    profile = item["profiles"][0]
    ids = {
        "orderNo": (order["orderNo"],),
        "transactionId": (order["transactionId"],),
        "itemNo": (item["itemNo"], f"{order['orderNo']}-I-{item['itemNo']}"),
        "profileId": (profile["profileId"], int(profile["profileId"])),
        "iccid": (profile["iccid"],),
    }
    return Estate(client, order, ids)


# Ids of the same forms that name nothing anybody has.
NOBODYS: Mapping[str, tuple[Any, ...]] = {
    "orderNo": ("D200101000000000001",),
    "transactionId": (f"t-{secrets.token_hex(8)}",),
    "itemNo": ("100", "D200101000000000001-I-100"),
    "profileId": ("1", 1),
    "iccid": ("89000000000000000009",),
}


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url) as service:
        yield service


@pytest.fixture(scope="module")
async def owner(service: Service) -> AsyncIterator[Estate]:
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield await estate(client)


@pytest.fixture(scope="module")
async def stranger(service: Service) -> AsyncIterator[Estate]:
    """Asks for what is the owner's; has an order of its own."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield await estate(client)


CHANGING = ("updateTime", "duplicate", "durationMs", "consecutiveFailures")
# Of a delivery and an SMS, which go on meanwhile, by the name of its id.
GOES_ON = {"deliveryId": ("status", "attemptCount", "nextAttemptTime", "attempts"), "smsNo": ("status", "failReason")}


def said(reply: Reply) -> tuple[int, str, str, Json]:
    """All of an answer but what depends on when it was given, and whether the call came before."""
    return reply.status, reply.code, reply.message, lasting(reply.data)


def lasting(data: Any) -> Any:
    if isinstance(data, list):
        return [lasting(each) for each in data]
    if isinstance(data, dict):
        without = {*CHANGING, *itertools.chain(*(names for of, names in GOES_ON.items() if of in data))}
        return {name: lasting(value) for name, value in data.items() if name not in without}
    return data


async def indistinguishable(client: ApiClient, path: str, theirs: Json, nobodys: Json) -> None:
    """Both calls are answered alike."""
    assert said(await client.post(path, theirs)) == said(await client.post(path, nobodys)), (path, theirs)


def takes(path: str) -> frozenset[str]:
    """The names of an operation's fields, those inside its lists as well."""
    [route] = [route for route in ROUTES if route.path == path]
    return frozenset(names_of(route.operation.request))


def names_of(kind: Any) -> set[str]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        found = set(kind.__struct_encode_fields__)
        return found.union(*(names_of(inner) for inner in typing.get_type_hints(kind).values()))
    return set().union(*(names_of(inner) for inner in typing.get_args(kind)))


MATRIX = [
    (path, name) for path, name in itertools.product(PATHS, NAMING) if path not in MAKING or name != "transactionId"
]


def test_the_matrix_names_all_that_can_be_named():
    ids = {name for path in PATHS for name in takes(path) if name.endswith(("No", "Id")) or name == "iccid"}
    assert ids - set(NAMING) <= {"pageNo", "deliveryId", "topupNo", "refundTransactionId", "esimTranNo"}
    assert {"/esim/query", "/esim/order", "/esim/profile/list"} <= {path for path in PATHS if takes(path) & set(NAMING)}


@pytest.mark.parametrize(("path", "name"), MATRIX)
async def test_anothers_id_looks_like_nobodys(owner: Estate, stranger: Estate, path: str, name: str):
    beside = BESIDE.get(path, {})
    for theirs, nobodys in zip(owner.ids[name], NOBODYS[name], strict=True):
        await indistinguishable(stranger.client, path, {**beside, name: theirs}, {**beside, name: nobodys})


@pytest.mark.parametrize(("path", "name"), MATRIX)
async def test_anothers_id_beside_ones_own_looks_like_nobodys(owner: Estate, stranger: Estate, path: str, name: str):
    for own_name, own in ((other, stranger.ids[other][0]) for other in NAMING if other != name):
        beside = {**BESIDE.get(path, {}), own_name: own}
        for theirs, nobodys in zip(owner.ids[name], NOBODYS[name], strict=True):
            await indistinguishable(stranger.client, path, {**beside, name: theirs}, {**beside, name: nobodys})


@pytest.mark.parametrize("path", PATHS)
async def test_all_of_anothers_ids_together_look_like_nobodys(owner: Estate, stranger: Estate, path: str):
    beside = BESIDE.get(path, {})
    naming = [name for name in NAMING if (path, name) in MATRIX]
    theirs = {name: owner.ids[name][0] for name in naming}
    nobodys = {name: NOBODYS[name][0] for name in naming}
    await indistinguishable(stranger.client, path, {**beside, **theirs}, {**beside, **nobodys})
    lines = [{"itemNo": owner.ids["itemNo"][0], "profiles": [{"profileId": owner.ids["profileId"][0]}]}]
    of_nobody = [{"itemNo": NOBODYS["itemNo"][0], "profiles": [{"profileId": NOBODYS["profileId"][0]}]}]
    for key in ("orderNo", "transactionId"):
        own = {**beside, key: stranger.ids[key][0]}
        await indistinguishable(stranger.client, path, {**own, "items": lines}, {**own, "items": of_nobody})


@pytest.mark.parametrize(
    ("path", "name", "answered"),
    [
        ("/esim/query", "orderNo", (404, "310272")),
        ("/esim/query", "transactionId", (404, "310272")),
        ("/esim/profile/list", "orderNo", (200, "000000")),
        ("/esim/profile/list", "transactionId", (200, "000000")),
        ("/esim/profile/list", "itemNo", (200, "000000")),
        ("/esim/profile/list", "profileId", (200, "000000")),
        ("/esim/profile/list", "iccid", (200, "000000")),
    ],
)
async def test_what_looks_like_nobodys_is_found_by_its_owner(
    owner: Estate, stranger: Estate, path: str, name: str, answered: tuple[int, str]
):
    mine = await owner.client.post(path, {name: owner.ids[name][0]})
    assert mine.code == "000000"
    theirs = await stranger.client.post(path, {name: owner.ids[name][0]})
    assert (theirs.status, theirs.code) == answered
    if path == "/esim/profile/list":
        assert mine.data["records"] and theirs.data["records"] == [] and theirs.data["pager"]["total"] == 0


@pytest.mark.parametrize("path", PATHS)
async def test_the_matrix_asks_for_all_that_an_operation_needs(stranger: Estate, path: str):
    """Else it sees 000105 only, and nothing is looked for."""
    if naming := [name for name in takes(path) if (path, name) in MATRIX]:
        calls = [{**BESIDE.get(path, {}), name: NOBODYS[name][0]} for name in naming]
        refused = [(await stranger.client.post(path, call)).code for call in calls]
        assert set(refused) != {"000105"}, f"{path} needs more: add it to BESIDE"


# Operations that answer a list in pages, but for what is everybody's.
LISTS = [
    route.path
    for route in ROUTES
    if "pager" in getattr(route.operation.answer, "__struct_encode_fields__", ()) and route.path != "/package/list"
]


async def pages(client: ApiClient, path: str, page_size: int) -> str:
    """All that a list shows, read by its cursor."""
    after, text = None, ""
    while True:
        call = {**BESIDE.get(path, {}), "pager": {"pageSize": page_size, "after": after}}
        data = (await client.post(path, call)).data
        text += str(data)
        if (after := data["pager"].get("next")) is None:
            return text


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("page_size", [1, 500])
async def test_no_list_shows_anything_of_another(owner: Estate, stranger: Estate, path: str, page_size: int):
    for one, other in ((owner, stranger), (stranger, owner)):
        text = await pages(one.client, path, page_size)
        assert any(str(values[0]) in text for values in one.ids.values()), f"{path} shows nothing of estate()"
        for name, values in other.ids.items():
            assert str(values[0]) not in text, name


@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_of_anothers_list_shows_only_ones_own(owner: Estate, stranger: Estate, path: str):
    """The owner's rows are older than the stranger's: its cursor leads nowhere, as that of nobody's row does."""
    for number in (owner.order["orderId"], int(owner.ids["profileId"][0])):
        answers = [
            said(await stranger.client.post(path, {"pager": {"after": str(cursor)}})) for cursor in (number, number - 1)
        ]
        assert answers[0] == answers[1]


async def test_the_same_transaction_id_names_each_dealers_own_order(owner: Estate, stranger: Estate):
    key = f"shared-{secrets.token_hex(8)}"
    call = {"transactionId": key, "amount": "1.80", "items": [LINE]}
    mine, theirs = await owner.client.post("/esim/order", call), await stranger.client.post("/esim/order", call)
    assert mine.data["duplicate"] is theirs.data["duplicate"] is False
    other_content = call | {"amount": "3.60", "items": [LINE | {"quantity": 2}]}
    assert (await stranger.client.post("/esim/order", other_content)).code == "310402"
    for one, placed in ((owner, mine), (stranger, theirs)):
        found = (await one.client.post("/esim/query", {"transactionId": key})).data
        assert found["orderNo"] == placed.data["orderNo"]
    both = {"transactionId": key, "orderNo": mine.data["orderNo"]}
    assert (await stranger.client.post("/esim/query", both)).code == "310272"


async def test_what_one_dealer_sets_or_spends_the_other_does_not_see(owner: Estate, stranger: Estate):
    await owner.client.post("/webhook/set", {"callbackUrl": "https://owner.example.com/hooks"})
    assert "owner.example.com" not in str((await stranger.client.post("/webhook/query")).data)
    before = (await stranger.client.post("/account/balance")).data
    await owner.client.order()
    assert (await stranger.client.post("/account/balance")).data == before
    ids = {str(one.client.tenant_id): (await one.client.post("/health")).data["tenantId"] for one in (owner, stranger)}
    assert all(own == told for own, told in ids.items())


async def test_anothers_secret_does_not_sign_for_an_app_key(owner: Estate, stranger: Estate):
    body = b"{}"
    forged = stranger.client.headers(body, **{"RT-AccessCode": owner.client.app_key})
    answer = await stranger.client.send("/open-api/v1/esim/order/list", body, forged)
    assert (answer.status, answer.code) == (401, "101003")


async def test_the_ledgers_of_both_are_exact_after_all_of_it(service: Service, owner: Estate, stranger: Estate):
    assert await service.audit() == []
