"""An SMS to a profile, through the public client: /esim/profile/sms."""

import asyncio
import base64
import json
import os
from datetime import timedelta
from typing import Any

import pytest

from dealer_server.operations.catalogue.load_stock import load_stock
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.store.tenants import data_key
from support.api_client import PREFIX, ApiClient, Service, running_service
from support.console.refused_calls import kept
from support.money.refunds import bought, profiles
from support.store_fixture import stock_csv
from support.supplier_setup import fresh
from support.suppliers.sms import SMS, TEXT, a_minute_passes, installed, new, rows, tables_with

pytestmark = pytest.mark.usefixtures("exact")

NOBODYS = "8900000000000000009"


async def advance(dealer: ApiClient, profile: dict[str, Any], step: str) -> None:
    assert (await dealer.post("/test/profile/advance", {"iccid": profile["iccid"], "step": step})).code == "000000"


async def code(dealer: ApiClient, profile: dict[str, Any], **changed: Any) -> str:
    return (await dealer.post(SMS, new(profile, **changed))).code


# Sending


async def test_an_sms_is_sent_once_however_often_it_is_asked_for(service: Service, dealer: ApiClient):
    call = new(await installed(dealer))
    first, again = await dealer.post(SMS, call), await dealer.post(SMS, call)
    assert first.code == "000000", first
    assert first.data == {"smsNo": first.data["smsNo"], "status": "SENT", "duplicate": False}
    assert first.data["smsNo"].startswith("M") and len(first.data["smsNo"]) == 19
    assert again.data == first.data | {"duplicate": True}
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]


async def test_a_repeat_may_name_the_profile_by_its_other_name(dealer: ApiClient):
    profile = await installed(dealer)
    call = new(profile)
    first = (await dealer.post(SMS, call)).data
    named = {name: value for name, value in call.items() if name != "iccid"} | {"profileId": int(profile["profileId"])}
    assert (await dealer.post(SMS, named)).data == first | {"duplicate": True}


async def test_a_transaction_id_with_other_content_is_refused(service: Service, dealer: ApiClient):
    profile, other = await installed(dealer), await installed(dealer)
    call = new(profile)
    await dealer.post(SMS, call)
    for changed in ({"message": "another text"}, {"iccid": other["iccid"]}, {"iccid": NOBODYS}):
        assert (await dealer.post(SMS, call | changed)).code == "310402", changed
    placed = await dealer.order(transactionId=call["transactionId"])
    assert placed.code == "000000", "orders have transactionIds of their own"
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]


async def test_twelve_calls_at_once_with_one_transaction_id_send_one_sms(service: Service, dealer: ApiClient):
    call = new(await installed(dealer))
    answers = await asyncio.gather(*(dealer.post(SMS, call) for _ in range(12)))
    assert {one.code for one in answers} == {"000000"}
    assert len({one.data["smsNo"] for one in answers}) == 1
    assert sorted(one.data["duplicate"] for one in answers) == [False] + [True] * 11
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]


async def test_one_transaction_id_at_once_for_two_profiles_sends_one_sms(service: Service, dealer: ApiClient):
    mine = [await installed(dealer), await installed(dealer)]
    call = new(mine[0])
    answers = await asyncio.gather(*(dealer.post(SMS, call | {"iccid": mine[at % 2]["iccid"]}) for at in range(12)))
    codes = [one.code for one in answers]
    assert codes.count("000000") == codes.count("310402") == 6
    assert await rows(service, "SELECT count(*) FROM sms WHERE tenant_id = $1", dealer.tenant_id) == [(1,)]


async def test_a_profile_gets_one_sms_a_minute(service: Service, dealer: ApiClient):
    profile, other = await installed(dealer), await installed(dealer)
    answers = await asyncio.gather(*(dealer.post(SMS, new(profile)) for _ in range(5)))
    assert sorted(one.code for one in answers) == ["000000"] + ["101013"] * 4
    refused = next(one for one in answers if one.code == "101013")
    assert refused.status == 429 and 1 <= int(refused.headers["Retry-After"]) <= 60
    assert await code(dealer, other) == "000000"
    await a_minute_passes(service)
    assert await code(dealer, profile) == "000000"


async def test_a_repeat_is_answered_within_the_minute_and_after_the_profile_is_over(dealer: ApiClient):
    profile = await installed(dealer)
    call = new(profile)
    first = (await dealer.post(SMS, call)).data
    await advance(dealer, profile, "EXPIRE")
    assert (await dealer.post(SMS, call)).data == first | {"duplicate": True}


@pytest.mark.parametrize("message", ["x", "ü" * 500, "two\nlines", "'; DROP TABLE sms; --", "{0} %s \\u0041 😀"])
async def test_a_text_of_one_to_five_hundred_characters_is_sent(dealer: ApiClient, message: str):
    assert await code(dealer, await installed(dealer), message=message) == "000000"


# Refusals


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"message": None}, "000106"),
        ({"message": ""}, "000106"),
        ({"message": "x" * 501}, "000107"),
        ({"message": 7}, "000108"),
        ({"message": "a\0b"}, "000108"),
        ({"transactionId": None}, "000106"),
        ({"transactionId": "no spaces"}, "000108"),
        ({"profileId": 1}, "000111"),
        ({"iccid": None}, "000105"),
    ],
)
async def test_calls_that_are_not_as_they_should_be(dealer: ApiClient, changed: dict[str, Any], refused: str):
    assert await code(dealer, {"iccid": NOBODYS}, **changed) == refused


async def test_profiles_of_others_do_not_exist(service: Service, dealer: ApiClient, stranger: ApiClient):
    profile = await installed(dealer)
    call = new(profile)
    mine = (await dealer.post(SMS, call)).data
    refused, unknown = await stranger.post(SMS, call), await stranger.post(SMS, new({"iccid": NOBODYS}))
    assert (refused.code, refused.message) == (unknown.code, unknown.message) == ("310404", unknown.message)
    theirs = await stranger.post(SMS, call | {"iccid": (await installed(stranger))["iccid"]})
    assert theirs.code == "000000", "its transactionIds are its own"
    assert theirs.data["smsNo"] != mine["smsNo"] and not theirs.data["duplicate"]


async def test_only_an_installed_profile_that_is_not_over_gets_one(dealer: ApiClient):
    profile = profiles(await bought(dealer))[0]
    assert await code(dealer, profile) == "200002"
    await advance(dealer, profile, "DOWNLOAD")
    assert await code(dealer, profile) == "200002"
    await advance(dealer, profile, "INSTALL")
    assert await code(dealer, profile) == "000000"
    for step in ("EXPIRE", "DELETE"):
        other = await installed(dealer)
        await advance(dealer, other, step)
        assert await code(dealer, other) == "200002", step
    void = await installed(dealer)
    await dealer.post("/esim/profile/cancel", {"iccid": void["iccid"]})
    assert await code(dealer, void) == "200002"


async def test_a_profile_without_codes_gets_none_yet(postgres: str, template: str):
    async with (
        fresh(postgres, template) as url,
        running_service(url, worker=False) as service,
        service.client(await service.tenant(balance="10", qps=0)) as dealer,
    ):
        profile = profiles((await dealer.order()).data)[0]
        call = {"transactionId": "sms-1", "profileId": profile["profileId"], "message": TEXT}
        assert (await dealer.post(SMS, call)).code == "200010"


async def test_nobody_sends_sms_to_profiles_from_stock(service: Service, dealer: ApiClient):
    async with service.database.connection() as connection:
        keys = await data_key.load(connection, service.settings.master_keys)
    await load_stock(service.database, keys, "DEMO-STOCK", stock_csv(1), "test")
    placed = await dealer.order(items=[{"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}], amount="2.50")
    profile = profiles(await dealer.delivered(placed.data["orderNo"]))[0]
    assert await code(dealer, profile) == "200022"


# The text


async def test_the_text_stands_in_no_log_and_is_sealed(
    service: Service, dealer: ApiClient, capfd: pytest.CaptureFixture[str]
):
    profile = await installed(dealer)
    call = new(profile)
    assert (await dealer.post(SMS, call)).code == "000000"
    await dealer.post(SMS, new(profile))
    await dealer.post(SMS, call | {"message": f"{TEXT}!"})
    await dealer.post(SMS, new(profile, iccid=NOBODYS))
    await dealer.post(SMS, new(profile, message=f"{TEXT}{'x' * 500}"))
    await dealer.post(SMS, json.dumps(new(profile)).encode()[:-1])
    body = json.dumps(new(profile)).encode()
    await dealer.send(f"{PREFIX}{SMS}", body, dealer.headers(body, **{"X-Signature": "0" * 64}))
    calls = await kept(service, dealer, 6)
    assert len(calls) == 6 and {one.path for one in calls} == {f"{PREFIX}{SMS}"}
    logged = capfd.readouterr()
    assert TEXT not in logged.out + logged.err
    assert await tables_with(service, TEXT) == []
    assert "sms" in await tables_with(service, call["transactionId"]), "the search finds what is there"


async def test_the_text_goes_after_thirty_days_and_a_repeat_is_still_one(service: Service, dealer: ApiClient):
    call = new(await installed(dealer))
    first = (await dealer.post(SMS, call)).data
    young = new(await installed(dealer))
    now = service.database.clock.now()
    tenant_id = dealer.tenant_id
    await rows(service, "UPDATE tenant SET created_at = $2 WHERE tenant_id = $1", tenant_id, now - timedelta(days=40))
    sent = "UPDATE sms SET created_at = $2, finished_at = $2 WHERE tenant_id = $1"
    await rows(service, sent, tenant_id, now - timedelta(days=31))
    await dealer.post(SMS, young)
    sweeper = Sweeper(service.database, service.database.clock.now, {"sms": timedelta(days=30)})
    try:
        assert await sweeper.sweep() == {"sms": 1}
    finally:
        await sweeper.close()
    texts = "SELECT transaction_id, message IS NULL FROM sms WHERE tenant_id = $1 ORDER BY sms_id"
    assert await rows(service, texts, dealer.tenant_id) == [
        (call["transactionId"], True),
        (young["transactionId"], False),
    ]
    assert (await dealer.post(SMS, call)).data == first | {"duplicate": True}
    assert (await dealer.post(SMS, call | {"message": "another"})).code == "310402"


async def test_the_text_of_another_row_does_not_open(service: Service, dealer: ApiClient):
    first, second = (
        new(await installed(dealer)),
        new(await installed(dealer), message=base64.b64encode(os.urandom(9)).decode()),
    )
    for call in (first, second):
        await dealer.post(SMS, call)
    swap = "UPDATE sms SET message = $2 WHERE transaction_id = $1 RETURNING message"
    [(message,)] = await rows(service, "SELECT message FROM sms WHERE transaction_id = $1", first["transactionId"])
    [(own,)] = await rows(service, "SELECT message FROM sms WHERE transaction_id = $1", second["transactionId"])
    await rows(service, swap, second["transactionId"], message)
    assert await service.audit() == ["A19"]
    await rows(service, swap, second["transactionId"], own)
