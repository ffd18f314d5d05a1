"""Who is let in at the RT face, and how it refuses: modes, signatures, addresses, statuses."""

import json
from collections.abc import AsyncIterator

import pytest

from dealer_server.api.rt import errors
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import credentials
from dealer_server.operations.tenants.credentials import KeyLimits
from dealer_server.rules.result_codes import RESULT_CODES
from support.api_client import ApiClient, Service
from support.patience import found
from support.rt_client import PREFIX, RtClient

FAMILY = {
    "0", "000001", *(f"00010{n}" for n in range(1, 8)), "101001", "101002", "101003", "200002", "200005", "200006",
    "200007", "200008", "200010", "200011", "310241", "310243", "310272", "310403", "900001",
}  # fmt: skip
OWN = {"000112", "101013"}
"""Of what is no answer to a call that was understood: an unknown path, too many calls."""


@pytest.fixture(scope="module")
async def own(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(balance="1000", qps=0, rt_face="signed")) as client:
        yield client


@pytest.fixture
def signed(own: ApiClient) -> RtClient:
    return RtClient(own.url, own.app_key, own.app_secret, own.http)


@pytest.fixture
def unsigned(own: ApiClient) -> RtClient:
    return RtClient(own.url, own.app_key, None, own.http)


def test_every_number_of_ours_is_one_of_the_family_s():
    assert {errors.number(code) for code in RESULT_CODES} - {"000000"} <= FAMILY | OWN


async def test_the_face_is_off_until_it_is_switched_on(service: Service):
    async with service.client(await service.tenant(balance="10")) as fresh:
        client = RtClient(fresh.url, fresh.app_key, fresh.app_secret, fresh.http)
        reply = await client.post("balance/query")
        assert (reply.status, reply.success, reply.code) == (404, False, "000112")
        await service.change(fresh.tenant_id, rt_face="signed")

        async def let_in() -> bool | None:
            return (await client.post("balance/query")).success or None

        assert await found(let_in)
        await service.change(fresh.tenant_id, rt_face="off")

        async def shut_out() -> bool | None:
            return (await client.post("balance/query")).status == 404 or None

        assert await found(shut_out)


async def test_unknown_paths_and_methods(signed: RtClient):
    assert (await signed.post("esim/nothing")).status == 404
    answer = await signed.http.get(f"{signed.url}{PREFIX}balance/query", headers=signed.headers(b""))
    assert answer.status_code == 405 and answer.json()["errorCode"] == "000103"


BAD_HEADERS = [
    ({"RT-AccessCode": None}, "000101"),
    ({"RT-AccessCode": "ak_test_nobodyknowsthisone00"}, "101003"),
    ({"RT-AccessCode": "no app key!"}, "101003"),
    ({"RT-RequestID": None}, "000101"),
    ({"RT-Timestamp": None}, "000101"),
    ({"RT-Signature": None}, "000101"),
    ({"RT-Signature": "0" * 64}, "101003"),
    ({"RT-Signature": "0" * 63}, "000102"),
    ({"RT-Timestamp": "1700000000000"}, "101001"),
]


@pytest.mark.parametrize(("spoiled", "number"), BAD_HEADERS, ids=str)
async def test_a_call_that_is_not_well_signed_is_understood_and_refused(
    signed: RtClient, spoiled: dict[str, str | None], number: str
):
    reply = await signed.post("balance/query", **spoiled)
    assert (reply.status, reply.success, reply.code) == (200, False, number), reply


async def test_a_request_id_is_used_once(signed: RtClient):
    headers = signed.headers(b"")
    answers = [
        (await signed.http.post(f"{signed.url}{PREFIX}balance/query", headers=headers)).json()["errorCode"]
        for _ in range(2)
    ]
    assert answers == ["0", "101003"]


BAD_BODIES = [(b"[]", "000104"), (b"{", "000104"), (b'{"iccid":"\xff"}', "000104"), (b'{"iccid":7}', "000105")]


@pytest.mark.parametrize(("body", "number"), BAD_BODIES, ids=str)
async def test_a_body_that_cannot_be_read(signed: RtClient, body: bytes, number: str):
    reply = await signed.post("esim/query", body)
    assert (reply.status, reply.code) == (200, number), reply


async def test_a_body_that_is_too_large(signed: RtClient):
    assert (await signed.post("esim/query", b" " * 262_145)).status == 413


async def test_an_app_key_may_do_there_what_it_may_do_here(service: Service, own: ApiClient):
    looks = await credentials.create_key(
        service.database,
        service.settings.master_keys,
        "test",
        own.tenant_id,
        KeyLimits(name="looks", scopes=["read"]),
        "test",
    )
    client = RtClient(own.url, *looks, own.http)
    assert (await client.good("esim/query", {}))["esimList"] == []
    for operation, call in (("esim/cancel", {"iccid": "8900000000000000000"}), ("webhook/save", {"webhook": "x"})):
        assert (await client.refused(operation, call))[0] == "101003"


async def test_too_many_calls_are_429(service: Service):
    async with service.client(await service.tenant(balance="10", qps=1, rt_face="signed")) as slow:
        client = RtClient(slow.url, slow.app_key, slow.app_secret, slow.http)
        replies = [await client.post("balance/query") for _ in range(6)]
        refused = [reply for reply in replies if not reply.success]
        assert refused and all((reply.status, reply.code) == (429, "101013") for reply in refused)
        assert all(reply.headers["Retry-After"] for reply in refused)


async def test_by_access_code_alone_only_from_an_allowlist(service: Service):
    async with service.client(await service.tenant(balance="10", qps=0)) as dealer:
        client = RtClient(dealer.url, dealer.app_key, None, dealer.http)
        with pytest.raises(OperatorError, match="allowlist"):
            await service.change(dealer.tenant_id, rt_face="access-code")
        await service.change(dealer.tenant_id, rt_face="access-code", ip_allow=["127.0.0.1"])
        with pytest.raises(OperatorError, match="allowlist"):
            await service.change(dealer.tenant_id, ip_allow=[])
        with pytest.raises(OperatorError, match="accepted: off, signed, access-code"):
            await service.change(dealer.tenant_id, rt_face="on")

        async def let_in() -> bool | None:
            return (await client.post("balance/query")).success or None

        assert await found(let_in)
        ignored = await client.post("balance/query", **{"RT-Signature": "nonsense", "RT-Timestamp": "1"})
        assert ignored.success
        await service.change(dealer.tenant_id, ip_allow=["198.51.100.7"])

        async def kept_out() -> str | None:
            reply = await client.post("balance/query")
            return None if reply.success else reply.code

        assert await found(kept_out) == "101002"


async def test_signing_is_required_where_the_mode_says_so(unsigned: RtClient):
    reply = await unsigned.post("balance/query")
    assert (reply.status, reply.code) == (200, "000101") and "RT-RequestID" in reply.message


async def test_the_log_of_refused_calls_has_them_without_the_text_of_an_sms(service: Service, signed: RtClient):
    words = "a-secret-word-of-an-sms"
    assert (await signed.refused("esim/sendSms", {"iccid": "8900000000000000000", "message": words}))[0] == "310403"

    async def logged() -> str | None:
        async with service.database.connection() as connection:
            row = await connection.fetchrow(
                "SELECT r::text AS whole, body_head FROM refused_call r WHERE path = $1", f"{PREFIX}esim/sendSms"
            )
        return None if row is None else json.dumps([row["whole"], str(row["body_head"])])

    assert words not in await found(logged)
