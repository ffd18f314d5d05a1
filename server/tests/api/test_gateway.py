"""The gateway: every refusal of the check order, by code, status, message and headers (specification 5.4, 7, 8)."""

import asyncio
import hashlib
import itertools
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server import clock, store
from dealer_server.api.replies import STATUS
from dealer_server.db.sealing import credential_context
from dealer_server.operations.tenants import credentials
from dealer_server.operations.tenants.create import Created
from dealer_server.operations.tenants.credentials import KeyLimits
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.store.tenants import credential
from esim_dealer.wire.signing import signature
from support import raw_http
from support.api_client import PREFIX, ApiClient, Reply, Service, running_service
from support.databases import database_named
from support.operations import PATHS, ROUTES

BODY_LIMIT = 262_144
ENDLESS = 1_000_000
LINE = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """A process that nobody fails too often for."""
    limits = {"failed_authentications_per_second": ENDLESS, "failed_authentications_burst": ENDLESS}
    async with running_service(database_url, worker=False, **limits) as service:
        yield service


@pytest.fixture(scope="module")
async def proxied(service: Service, database_url: str) -> AsyncIterator[Service]:
    """Another process on the same database, behind a trusted proxy: an address may fail once, and a tenant may call a
    hundredth as often as agreed, so that what is used up stays so for a while."""
    limits = {"failed_authentications_per_second": 1, "failed_authentications_burst": 1, "instances": 100}
    async with running_service(database_url, worker=False, trusted_proxies="127.0.0.1", **limits) as proxied:
        yield proxied


@pytest.fixture(scope="module")
async def dealer(service: Service) -> AsyncIterator[ApiClient]:
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield client


def at(client: ApiClient, service: Service) -> ApiClient:
    """The same dealer at another process."""
    return replace(client, url=service.url)


def fresh_address() -> str:
    """A client that has not called before."""
    number = next(_numbers)
    return f"198.18.{number >> 8}.{number & 255}"


def good_headers(client: ApiClient, body: bytes = b"{}", **spoiled: str | None) -> list[tuple[str, str | bytes]]:
    return list(client.headers(body, **spoiled).items())


async def sent(
    client: ApiClient,
    headers: raw_http.Headers | None = None,
    *,
    path: str = "/open-api/v1/health",
    body: bytes = b"{}",
    method: str = "POST",
) -> raw_http.Answer:
    """A call as it is written; well signed where no headers are given."""
    headers = good_headers(client, body) if headers is None else headers
    return await raw_http.call(client.url, raw_http.request(path, headers, body, method))


async def until(wanted: str, ask: Callable[[], Awaitable[Reply]]) -> Reply:
    """Asks again until the answer has this code."""
    async with asyncio.timeout(raw_http.PATIENCE):
        while True:
            reply = await ask()
            if reply.code == wanted:
                return reply
            await asyncio.sleep(0.01)


def refused(answer: raw_http.Answer | Reply, code: str, *named: str) -> None:
    """The refusal has this code, its HTTP status, and a message that names these."""
    assert (answer.code, answer.status) == (code, STATUS[code]), answer
    for words in named:
        assert words in answer.message, answer.message


# What every answer carries


async def test_every_answer_has_its_own_trace_id_and_echoes_the_request_id(dealer: ApiClient):
    request_id = str(uuid.uuid4()).upper()
    good = await dealer.post("/health", **{"RT-RequestID": request_id})
    again = await dealer.post("/health", **{"RT-RequestID": request_id})
    assert (good.code, again.code) == ("000000", "101004")
    assert good.headers["RT-RequestID"] == again.headers["RT-RequestID"] == request_id
    assert good.headers["X-Trace-Id"] != again.headers["X-Trace-Id"]
    for answer in (good, again):
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_a_request_id_is_echoed_by_refusals_that_come_before_it_is_looked_at(dealer: ApiClient):
    for path in ("/open-api/v1/nowhere", "/nowhere", "/open-api/v1/health?a=1"):
        headers = good_headers(dealer)
        assert (await sent(dealer, headers, path=path)).headers["rt-requestid"] == dict(headers)["RT-RequestID"]


@pytest.mark.parametrize("malformed", ["nonsense", "{}", "<script>", "é"])
async def test_a_request_id_that_is_none_is_not_echoed(dealer: ApiClient, malformed: str):
    for path in ("/open-api/v1/health", "/nowhere"):
        headers = [*good_headers(dealer, **{"RT-RequestID": None}), ("RT-RequestID", malformed)]
        assert "rt-requestid" not in (await sent(dealer, headers, path=path)).headers


# 000112: the path, exactly as it was sent

NO_PATHS = [
    "/open-api/v1/nowhere",
    "/open-api/v1/health/",
    "/open-api/v1/health.json",
    "/open-api/v1/",
    "/open-api/v1",
    "/open-api/",
    "/open-api/v2/health",
    "//open-api/v1/health",
    "/open-api//v1/health",
    "/open-api/v1//health",
    "/open-api/v1%2fhealth",
    "/open-api/v1/heal%74h",
    "/open-api/v1/./health",
    "/open-api/v1/x/../health",
    "/open-api/v1/../v1/health",
    "/open-api/v1/health;",
    "/open-api/v1/health;a=1",
    "/open-api/v1/HEALTH",
    "/Open-Api/v1/health",
    "/OPEN-API/V1/HEALTH",
    "/open-api/v1/health%00",
    "/open-api/v1/health%20",
    "/open-api/v1/health%3Fa=1",
    "/open-api/v1/health\\",
    "/open-api/v1\\health",
    "/v1/health",
    "/health",
    "/",
    "/healthz/",
    "/openapi.json/",
    "/..%2fopen-api/v1/health",
    "/%zz",
]


@pytest.mark.parametrize("path", NO_PATHS)
async def test_a_path_is_taken_as_it_is_written_and_nobody_is_sent_elsewhere(dealer: ApiClient, path: str):
    answer = await sent(dealer, path=path)
    refused(answer, "000112", "No such path", "/open-api/v1/")
    assert "location" not in answer.headers


@pytest.mark.parametrize("path", ["/open-api/v1/health?", "http://door.test/open-api/v1/health"])
async def test_an_empty_query_string_and_an_absolute_target_are_fine(dealer: ApiClient, path: str):
    assert (await sent(dealer, path=path)).code == "000000"


@pytest.mark.parametrize("query", ["a=1", "a", "=", "?", "%20", "RT-AccessCode=ak_test_x"])
async def test_a_query_string_is_refused_since_it_is_not_signed(dealer: ApiClient, query: str):
    refused(await sent(dealer, path=f"/open-api/v1/health?{query}"), "000108", "query string")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_a_method_other_than_post_is_told_which_is_accepted(dealer: ApiClient, method: str):
    answer = await sent(dealer, method=method)
    refused(answer, "000103", "POST")
    assert answer.headers["allow"] == "POST"


async def test_the_answer_to_a_head_has_no_body_so_that_the_next_one_is_found(dealer: ApiClient):
    reader, writer = await raw_http.connect(dealer.url)
    try:
        for path in ("/open-api/v1/health", "/nowhere", "/healthz"):
            writer.write(raw_http.request(path, good_headers(dealer, b""), b"", "HEAD"))
            assert (await raw_http.read(reader, to_head=True)).status == {"/healthz": 200, "/nowhere": 404}.get(
                path, 405
            )
        writer.write(raw_http.request("/open-api/v1/health", good_headers(dealer), b"{}"))
        assert (await raw_http.read(reader)).code == "000000"
    finally:
        writer.transport.abort()


# 000110: the size


def padded(length: int) -> bytes:
    return b"{" + b" " * (length - 2) + b"}"


async def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(dealer: ApiClient):
    assert (await sent(dealer, body=padded(BODY_LIMIT))).code == "000000"
    refused(await sent(dealer, body=padded(BODY_LIMIT + 1)), "000110", "262144")


async def test_an_announced_length_over_the_limit_is_refused_before_the_body_comes(dealer: ApiClient):
    headers = [*good_headers(dealer), ("Content-Length", str(BODY_LIMIT + 1))]
    refused(await raw_http.call(dealer.url, raw_http.request("/open-api/v1/health", headers, length=False)), "000110")


@pytest.mark.parametrize("size", [1000, 65_536, BODY_LIMIT + 1])
async def test_chunks_are_counted_as_they_come(dealer: ApiClient, size: int):
    def request(body: bytes) -> bytes:
        headers = [*good_headers(dealer, body), ("Transfer-Encoding", "chunked")]
        return raw_http.request("/open-api/v1/health", headers, raw_http.chunked(body, size), length=False)

    assert (await raw_http.call(dealer.url, request(padded(BODY_LIMIT)))).code == "000000"
    refused(await raw_http.call(dealer.url, request(padded(BODY_LIMIT + 1))), "000110", "262144")


async def test_chunks_over_the_limit_are_refused_before_the_last_one_comes(dealer: ApiClient):
    headers = [*good_headers(dealer), ("Transfer-Encoding", "chunked")]
    endless = raw_http.chunked(padded(BODY_LIMIT + 1)).removesuffix(b"0\r\n\r\n")
    request = raw_http.request("/open-api/v1/health", headers, endless, length=False)
    refused(await raw_http.call(dealer.url, request), "000110")


@pytest.mark.parametrize("connection", ["close", "keep-alive"])
async def test_who_sends_on_after_the_refusal_of_its_size_still_reads_it(dealer: ApiClient, connection: str):
    body = padded(30 * BODY_LIMIT)
    request = raw_http.request("/open-api/v1/health", [*good_headers(dealer, body), ("Connection", connection)], body)
    async with asyncio.timeout(raw_http.PATIENCE):
        reader, writer = await raw_http.connect(dealer.url)
        try:
            for start in range(0, len(request), 65_536):
                writer.write(request[start : start + 65_536])
                await writer.drain()
            refused(await raw_http.read(reader), "000110")
        finally:
            writer.transport.abort()


# 000109: JSON in UTF-8, sent as it is

JSON = "application/json"


@pytest.mark.parametrize(
    "content_type",
    [
        JSON,
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json; charset=UTF-8",
        'application/json; charset="utf-8"',
        "application/json ; charset=utf-8",
        "application/json;",
    ],
)
async def test_json_in_utf_8_is_accepted_however_it_is_spelled(dealer: ApiClient, content_type: str):
    assert (await dealer.post("/health", **{"Content-Type": content_type})).code == "000000"


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "text/json",
        "application/json5",
        "application/problem+json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/json; charset=iso-8859-1",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json, text/plain",
        "json",
        "*/*",
    ],
)
async def test_another_content_type_is_refused(dealer: ApiClient, content_type: str | None):
    refused(await dealer.post("/health", **{"Content-Type": content_type}), "000109", "Content-Type", JSON)


@pytest.mark.parametrize("path", ["/health", "/esim/profile/list"])
async def test_an_empty_body_needs_no_content_type_and_counts_as_an_empty_object(dealer: ApiClient, path: str):
    headers = good_headers(dealer, b"", **{"Content-Type": None})
    assert (await sent(dealer, headers, path=PREFIX + path, body=b"")).code == "000000"
    headers = [*good_headers(dealer, b"", **{"Content-Type": None}), ("Transfer-Encoding", "chunked")]
    raw = raw_http.request(PREFIX + path, headers, raw_http.chunked(b""), length=False)
    assert (await raw_http.call(dealer.url, raw)).code == "000000"


async def test_an_empty_body_is_checked_like_an_empty_object_by_all_that_follows(dealer: ApiClient):
    headers = good_headers(dealer, b"", **{"Content-Type": None})
    refused(await sent(dealer, headers, path=f"{PREFIX}/esim/order", body=b""), "000105", "transactionId")
    headers = good_headers(dealer, b"", **{"Content-Type": "text/plain"})
    refused(await sent(dealer, headers, body=b""), "000109", "Content-Type")


@pytest.mark.parametrize("second", ["text/plain", JSON])
async def test_two_content_types_are_none(dealer: ApiClient, second: str):
    refused(await sent(dealer, [*good_headers(dealer), ("Content-Type", second)]), "000109")
    refused(await sent(dealer, [("Content-Type", second), *good_headers(dealer)]), "000109")


@pytest.mark.parametrize(
    ("encodings", "accepted"),
    [
        (["identity"], True),
        (["Identity"], True),
        (["gzip"], False),
        (["deflate"], False),
        (["br"], False),
        (["aes128gcm"], False),
        (["identity, gzip"], False),
        ([""], False),
        (["identity", "gzip"], False),
        (["gzip", "identity"], False),
    ],
)
async def test_no_content_encoding_but_identity(dealer: ApiClient, encodings: list[str], accepted: bool):
    answer = await sent(dealer, [*good_headers(dealer), *(("Content-Encoding", one) for one in encodings)])
    if accepted:
        assert answer.code == "000000"
    else:
        refused(answer, "000109", "Content-Encoding")


# 101013: an address that fails too often


async def test_an_address_that_fails_too_often_has_to_wait_and_others_do_not(proxied: Service, dealer: ApiClient):
    client, address, other = at(dealer, proxied), fresh_address(), fresh_address()

    async def ask(of: ApiClient, source: str) -> Reply:
        return await of.post("/health", **{"X-Forwarded-For": source})

    failing = replace(client, app_secret="sk_test_wrong")
    assert (await ask(failing, address)).code == "101003"
    blocked = await until("101013", lambda: ask(failing, address))
    refused(blocked, "101013", "failed authentications", "address")
    assert int(blocked.headers["Retry-After"]) == 1 and "X-RateLimit-Limit" not in blocked.headers
    refused(await ask(client, address), "101013")  # a good call too: the address counts
    assert (await ask(client, other)).code == "000000"
    await until("000000", lambda: ask(client, address))


@pytest.mark.parametrize(
    ("spoiled", "code", "counted"),
    [
        ({"RT-AccessCode": "ak_test_unknown"}, "101005", True),
        ({"X-Signature": "0" * 64}, "101003", True),
        ({"X-Signature": None}, "000101", False),
        ({"X-Signature": "short"}, "000102", False),
        ({"RT-Timestamp": "1767225600000"}, "101001", False),
        ({"Content-Type": None}, "000109", False),
    ],
)
async def test_only_a_wrong_key_or_signature_counts_as_a_failure(
    proxied: Service, dealer: ApiClient, spoiled: dict[str, Any], code: str, counted: bool
):
    client, address = at(dealer, proxied), {"X-Forwarded-For": fresh_address()}
    assert (await client.post("/health", **spoiled, **address)).code == code
    assert (await client.post("/health", **address)).code == ("101013" if counted else "000000")


# 000101, 000102: the security headers

SECURITY = ["RT-AccessCode", "RT-RequestID", "RT-Timestamp", "X-Signature"]


@pytest.mark.parametrize("name", SECURITY)
async def test_a_missing_header_is_named(dealer: ApiClient, name: str):
    refused(await dealer.post("/health", **{name: None}), "000101", name, "missing")


@pytest.mark.parametrize("last", range(1, len(SECURITY)))
async def test_of_several_missing_headers_the_first_is_named(dealer: ApiClient, last: int):
    refused(await dealer.post("/health", **dict.fromkeys(SECURITY[:last])), "000101", SECURITY[0])


A_UUID = "4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2"
FORMS = [
    # header, value, words the message has beyond the header's name
    ("RT-AccessCode", "", "AppKey"),
    ("RT-AccessCode", "a" * 65, "AppKey"),
    ("RT-AccessCode", "ak-test", "AppKey"),
    ("RT-AccessCode", "ak test", "AppKey"),
    ("RT-AccessCode", "ak_test_é", "AppKey"),
    ("RT-AccessCode", "ak_test'--", "AppKey"),
    ("RT-RequestID", "", "UUID"),
    ("RT-RequestID", "nonsense", "UUID"),
    ("RT-RequestID", f"{{{A_UUID}}}", "UUID"),
    ("RT-RequestID", f"urn:uuid:{A_UUID}", "UUID"),
    ("RT-RequestID", A_UUID[:-1], "UUID"),
    ("RT-RequestID", A_UUID + "0", "UUID"),
    ("RT-RequestID", A_UUID.replace("-", "")[:-1], "UUID"),
    ("RT-RequestID", A_UUID.replace("-", "", 1), "UUID"),
    ("RT-RequestID", "-".join(A_UUID), "UUID"),
    ("RT-RequestID", A_UUID.replace("4", "g", 1), "UUID"),
    ("RT-RequestID", A_UUID.replace("-", "_"), "UUID"),
    ("RT-RequestID", A_UUID.replace("-", " "), "UUID"),
    ("RT-RequestID", A_UUID.replace("4", "４", 1), "UUID"),
    ("RT-Timestamp", "", "13 digits"),
    ("RT-Timestamp", "1767225600", "counts seconds"),
    ("RT-Timestamp", "1767225600", "milliseconds"),
    ("RT-Timestamp", "176722560000", "13 digits"),
    ("RT-Timestamp", "17672256000000", "13 digits"),
    ("RT-Timestamp", "1_767_225_600_000", "13 digits"),
    ("RT-Timestamp", "+767225600000", "13 digits"),
    ("RT-Timestamp", "-767225600000", "13 digits"),
    ("RT-Timestamp", "1767225600.00", "13 digits"),
    ("RT-Timestamp", "1767225600e03", "13 digits"),
    ("RT-Timestamp", "0x19b7a1b7c00", "13 digits"),
    ("RT-Timestamp", "１７６７２２５６０００００", "13 digits"),
    ("RT-Timestamp", "١٧٦٧٢٢٥٦٠٠٠٠٠", "13 digits"),
    ("RT-Timestamp", "2026-01-01T00:00:00Z", "13 digits"),
    ("X-Signature", "", "64 hex"),
    ("X-Signature", "0" * 63, "64 hex"),
    ("X-Signature", "0" * 65, "64 hex"),
    ("X-Signature", "g" * 64, "64 hex"),
    ("X-Signature", "0" * 32, "64 hex"),  # MD5
    ("X-Signature", "0" * 40, "64 hex"),  # SHA-1
    ("X-Signature", "0" * 128, "64 hex"),  # SHA-512
    ("X-Signature", "sha256=" + "0" * 64, "64 hex"),
    ("X-Signature", "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c4=", "64 hex"),  # Base64
    ("X-Signature", "é" * 32, "64 hex"),
    ("X-Signature", "０" * 64, "64 hex"),
]


@pytest.mark.parametrize(("name", "value", "words"), FORMS)
async def test_a_malformed_header_is_refused_with_what_is_accepted(
    dealer: ApiClient, name: str, value: str, words: str
):
    headers = [pair for pair in good_headers(dealer) if pair[0] != name]
    refused(await sent(dealer, [*headers, (name, value)]), "000102", name, words)


@pytest.mark.parametrize("name", [*SECURITY, "RT-Signature"])
@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
async def test_a_security_header_sent_twice_is_refused_even_when_both_agree(
    dealer: ApiClient, name: str, spell: Callable[[str], str]
):
    headers = good_headers(dealer)
    if name == "RT-Signature":
        headers.append((name, dict(headers)["X-Signature"]))
    refused(await sent(dealer, [*headers, (spell(name), dict(headers)[name])]), "000102", name, "twice")


@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title])
async def test_header_names_are_read_in_any_case(dealer: ApiClient, spell: Callable[[str], str]):
    assert (await sent(dealer, [(spell(name), value) for name, value in good_headers(dealer)])).code == "000000"


@pytest.mark.parametrize(
    "request_id",
    [
        "d1208057-9bf5-49f5-afe9-c86fbebbb000",
        "45848D57-D863-4A1B-A31A-12F47F1249DA",
        "9a1228fc120944b8942a4747eb7111a0",
        "11863D2372784231B1C6DBBAF7279397",
        "5d3b5a18-e5bc-11f1-96a9-02fc00000001",
        str(uuid.uuid5(uuid.NAMESPACE_DNS, "a test")),
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
async def test_a_uuid_of_any_version_is_accepted_with_or_without_dashes(dealer: ApiClient, request_id: str):
    assert (await dealer.post("/health", **{"RT-RequestID": request_id})).code == "000000"


async def test_a_signature_is_accepted_in_either_hex_case(dealer: ApiClient):
    headers = dealer.headers(b"{}")
    assert (
        await dealer.send(f"{PREFIX}/health", b"{}", headers | {"X-Signature": headers["X-Signature"].upper()})
    ).code == "000000"


async def test_rt_signature_counts_only_where_x_signature_is_absent(dealer: ApiClient):
    async def answer(x_signature: str | None, rt_signature: str) -> raw_http.Answer:
        headers = dict(good_headers(dealer))
        true = str(headers.pop("X-Signature"))
        named = {"X-Signature": x_signature, "RT-Signature": rt_signature}
        return await sent(
            dealer,
            [
                *headers.items(),
                *((name, value.replace("true", true)) for name, value in named.items() if value is not None),
            ],
        )

    assert (await answer(None, "true")).code == "000000"
    assert (await answer("true", "0" * 64)).code == "000000"
    assert (await answer("true", "nonsense")).code == "000000"
    refused(await answer("0" * 64, "true"), "101003")
    refused(await answer("", "true"), "000102", "X-Signature")
    refused(await answer(None, "nonsense"), "000102")
    refused(await answer(None, "0" * 64), "101003")


async def test_an_empty_body_signs_as_the_empty_string_and_counts_as_an_empty_object(dealer: ApiClient):
    assert (await sent(dealer, body=b"")).code == "000000"
    headers = [*good_headers(dealer, b""), ("Transfer-Encoding", "chunked")]
    assert (
        await raw_http.call(dealer.url, raw_http.request("/open-api/v1/health", headers, b"0\r\n\r\n", length=False))
    ).code == "000000"
    no_length = raw_http.request("/open-api/v1/health", good_headers(dealer, b""), length=False)
    assert (await raw_http.call(dealer.url, no_length)).code == "000000"


# 101005, 101006: who calls


@pytest.mark.parametrize("spell", [lambda key: key[:-1], lambda key: key + "0", str.swapcase, lambda _: "_"])
async def test_an_app_key_that_nobody_has_is_unknown(dealer: ApiClient, spell: Callable[[str], str]):
    refused(await dealer.post("/health", **{"RT-AccessCode": spell(dealer.app_key)}), "101005", "RT-AccessCode")


async def test_an_app_key_that_was_unknown_opens_calls_as_soon_as_it_exists(service: Service, dealer: ApiClient):
    second = replace(dealer, app_key=f"ak_test_{uuid.uuid4().hex[:24]}", app_secret="sk_test_second")
    assert (await second.post("/health")).code == "101005"
    context = credential_context(dealer.tenant_id, second.app_key, 1)
    sealed = service.settings.master_keys.seal(second.app_secret.encode(), context)
    async with service.database.connection() as connection:
        await credential.add(connection, dealer.tenant_id, second.app_key, sealed)
        await store.tenant.touch(connection, dealer.tenant_id)
    assert (await until("000000", lambda: second.post("/health"))).data["tenantId"] == str(dealer.tenant_id)
    assert (await dealer.post("/health")).code == "000000"


@pytest.mark.parametrize("what", ["tenant", "credential"])
async def test_who_is_disabled_is_refused_by_every_process_and_by_none_once_enabled_again(
    service: Service, proxied: Service, what: str
):
    async with service.client(await service.tenant(qps=0)) as client:
        clients = [client, at(client, proxied)]
        assert [(await one.post("/health")).code for one in clients] == ["000000"] * 2  # both know it now
        if what == "tenant":
            await service.change(client.tenant_id, status="DISABLED")
        else:
            await credentials.disable_credential(service.database, client.app_key, "test", clock.now)
        for one in clients:
            refused(await until("101006", lambda one=one: one.post("/health")), "101006", "operator")
        if what == "tenant":
            await service.change(client.tenant_id, status="ACTIVE")
            for one in clients:
                await until("000000", lambda one=one: one.post("/health"))


async def test_a_process_that_cannot_look_for_changes_forgets_whom_it_knew_and_looks_again(service: Service):
    async with (
        service.client(await service.tenant(name="before", qps=0)) as client,
        service.database.connection() as connection,
    ):
        assert (await client.post("/health")).data["clientName"] == "before"
        await connection.execute("ALTER TABLE change RENAME TO change_away")
        try:
            await connection.execute("UPDATE tenant SET name = 'after' WHERE tenant_id = $1", client.tenant_id)
            async with asyncio.timeout(raw_http.PATIENCE):
                while (await client.post("/health")).data["clientName"] == "before":
                    await asyncio.sleep(0.01)
        finally:
            await connection.execute("ALTER TABLE change_away RENAME TO change")
        await service.change(client.tenant_id, status="DISABLED")
        await until("101006", lambda: client.post("/health"))


# 101002: where the call comes from


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        ([], "000000"),
        (["127.0.0.1"], "000000"),
        (["10.0.0.0/8", "127.0.0.0/8"], "000000"),
        (["::ffff:127.0.0.1"], "000000"),
        (["::ffff:127.0.0.0/104"], "000000"),
        (["0.0.0.0/0"], "000000"),
        (["10.0.0.0/8"], "101002"),
        (["127.0.0.2"], "101002"),
        (["::1"], "101002"),
        (["::/0"], "101002"),
    ],
)
async def test_only_addresses_of_the_allowlist_may_call(service: Service, allowed: list[str], code: str):
    async with service.client(await service.tenant(qps=0, ip_allow=allowed)) as client:
        answer = await client.post("/health")
        assert answer.code == code
        if code == "101002":
            refused(answer, "101002", "127.0.0.1")


async def test_the_allowlist_follows_its_changes(service: Service):
    async with service.client(await service.tenant(qps=0)) as client:
        assert (await client.post("/health")).code == "000000"
        await service.change(client.tenant_id, ip_allow=["203.0.113.7"])
        await until("101002", lambda: client.post("/health"))


async def test_without_a_trusted_proxy_nobody_is_believed_about_the_address(service: Service):
    async with service.client(await service.tenant(qps=0, ip_allow=["203.0.113.7"])) as client:
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "True-Client-IP"):
            refused(await client.post("/health", **{name: "203.0.113.7"}), "101002", "127.0.0.1")


FORWARDED = [
    # X-Forwarded-For headers as the service gets them from a trusted proxy, whose call it is
    ([], "127.0.0.1"),
    (["203.0.113.7"], "203.0.113.7"),
    (["198.51.100.1, 203.0.113.7"], "203.0.113.7"),
    (["203.0.113.7, 198.51.100.1"], "198.51.100.1"),
    (["203.0.113.7, 127.0.0.1"], "203.0.113.7"),
    (["198.51.100.1, 203.0.113.7, 127.0.0.1, 127.0.0.1"], "203.0.113.7"),
    (["198.51.100.1", "203.0.113.7"], "203.0.113.7"),
    (["203.0.113.7", "127.0.0.1"], "203.0.113.7"),
    (["127.0.0.1"], "127.0.0.1"),
    (["127.0.0.1, 127.0.0.1"], "127.0.0.1"),
    (["::ffff:203.0.113.7"], "203.0.113.7"),
    (["::FFFF:cb00:7107, ::ffff:127.0.0.1"], "203.0.113.7"),
    (["2001:db8::7"], "2001:db8::7"),
    (["2001:DB8:0:0::7"], "2001:db8::7"),
    (["203.0.113.7, nonsense"], "127.0.0.1"),
    (["nonsense, 203.0.113.7"], "203.0.113.7"),
    (["203.0.113.7:8080"], "127.0.0.1"),
    (["203.0.113.7, "], "127.0.0.1"),
    ([""], "127.0.0.1"),
    (["203.0.113.007"], "127.0.0.1"),
    (["3405803783"], "127.0.0.1"),
    (["0xcb.0.113.7"], "127.0.0.1"),
    (["  203.0.113.7\t,\t127.0.0.1  "], "203.0.113.7"),
    (["203.0.113.7", "é"], "127.0.0.1"),
]


@pytest.mark.parametrize(("forwarded_for", "address"), FORWARDED)
def test_behind_a_trusted_proxy_the_right_most_hop_that_is_not_trusted_calls(forwarded_for: list[str], address: str):
    trusted = access.networks(["127.0.0.1"])
    assert access.client_address("127.0.0.1", forwarded_for, trusted) == address
    assert access.client_address("::ffff:127.0.0.1", forwarded_for, trusted) == address


@pytest.mark.parametrize(("forwarded_for", "_"), FORWARDED)
def test_from_elsewhere_the_header_says_nothing(forwarded_for: list[str], _: str):
    trusted = access.networks(["127.0.0.1"])
    assert access.client_address("192.0.2.1", forwarded_for, trusted) == "192.0.2.1"
    assert access.client_address("::ffff:192.0.2.1", forwarded_for, trusted) == "192.0.2.1"
    assert access.client_address("192.0.2.1", forwarded_for, ()) == "192.0.2.1"


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "address"),
    [
        ("10.1.2.3", "203.0.113.7, 10.9.9.9", "203.0.113.7"),
        ("10.1.2.3", "10.9.9.9, 10.8.8.8", "10.9.9.9"),
        ("10.1.2.3", "203.0.113.7, fd00::1", "203.0.113.7"),
        ("fd00::2", "203.0.113.7", "203.0.113.7"),
        ("fd01::2", "203.0.113.7", "fd01::2"),
        ("11.1.2.3", "203.0.113.7", "11.1.2.3"),
        ("", "203.0.113.7", ""),
    ],
)
def test_trusted_proxies_may_be_networks(peer: str, forwarded_for: str, address: str):
    assert access.client_address(peer, [forwarded_for], access.networks(["10.0.0.0/8", "fd00::/16"])) == address


@pytest.mark.parametrize(("forwarded_for", "address"), FORWARDED)
async def test_the_allowlist_is_held_against_that_hop(
    proxied: Service, only_from_203_0_113_7: ApiClient, forwarded_for: list[str], address: str
):
    client = only_from_203_0_113_7
    headers = [*good_headers(client), *(("X-Forwarded-For", one) for one in forwarded_for)]
    answer = await sent(client, headers)
    if address in ("203.0.113.7", "2001:db8::7"):
        assert answer.code == "000000"
    else:
        refused(answer, "101002", address)


@pytest.fixture(scope="module")
async def only_from_203_0_113_7(proxied: Service) -> AsyncIterator[ApiClient]:
    created = await proxied.tenant(qps=0, ip_allow=["203.0.113.7", "2001:db8::/64"])
    async with proxied.client(created) as client:
        yield client


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1/8", "10.0.0.0/33", "300.0.0.1", "10.0.0", "localhost", "", "10.0.0.0/8 or so", "::1/129", "0x7f.1"],
)
def test_what_is_no_network_is_refused_when_it_is_saved(text: str):
    with pytest.raises(ValueError, match="neither an IP address nor a network"):
        access.networks([text])


@pytest.mark.parametrize(
    ("address", "allowed", "may"),
    [
        ("203.0.113.7", ["203.0.113.0/24"], True),
        ("203.0.114.7", ["203.0.113.0/24"], False),
        ("::ffff:203.0.113.7", ["203.0.113.0/24"], True),
        ("203.0.113.7", ["::ffff:203.0.113.0/120"], True),
        ("203.0.114.7", ["::ffff:203.0.113.0/120"], False),
        ("2001:db8::1", ["2001:db8::/32"], True),
        ("2001:db9::1", ["2001:db8::/32"], False),
        ("fe80::1%eth0", ["fe80::/10"], True),
        ("", ["0.0.0.0/0"], False),
        ("nonsense", ["0.0.0.0/0", "::/0"], False),
        ("nonsense", [], True),
    ],
)
def test_an_allowlist_admits_its_networks_and_everybody_when_empty(address: str, allowed: list[str], may: bool):
    assert (access.refuse_address(address, access.networks(allowed)) is None) is may


# 101001: the timestamp

NOON_MS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("off_ms", "refused_as"),
    [
        (0, None),
        (300_000, None),
        (-300_000, None),
        (300_001, "ahead of"),
        (-300_001, "behind"),
        (-NOON_MS, "behind"),
        (9_999_999_999_999 - NOON_MS, "ahead of"),
    ],
)
def test_a_timestamp_may_be_five_minutes_off_and_no_millisecond_more(off_ms: int, refused_as: str | None):
    why = access.refuse_timestamp(NOON_MS + off_ms, NOON_MS)
    if refused_as is None:
        assert why is None
    else:
        assert isinstance(why, refusal.TimestampOutsideWindow) and why.data == {"serverTime": NOON_MS}
        assert refused_as in why.message and "300 s" in why.message


@pytest.mark.parametrize(
    ("off_seconds", "code"), [(-290, "000000"), (290, "000000"), (-310, "101001"), (310, "101001")]
)
async def test_a_timestamp_outside_its_window_is_answered_with_the_servers_time(
    dealer: ApiClient, off_seconds: int, code: str
):
    before = int(time.time() * 1000)
    answer = await dealer.post("/health", **{"RT-Timestamp": str(before + off_seconds * 1000)})
    assert answer.code == code
    if code == "101001":
        refused(answer, "101001", "300 s", "clock")
        assert answer.data.keys() == {"serverTime"} and before <= answer.data["serverTime"] <= time.time() * 1000


# 101003: the signature


def other_signatures(client: ApiClient, body: bytes) -> dict[str, str]:
    """What a dealer may have signed by mistake, or an attacker in hope."""
    headers = client.headers(body)
    stamp, request_id, key = (headers[name].encode() for name in ("RT-Timestamp", "RT-RequestID", "RT-AccessCode"))
    secret = client.app_secret.encode()
    return {
        "another secret": signature(b"sk_test_other", stamp, request_id, key, body),
        "no secret": signature(b"", stamp, request_id, key, body),
        "the AppKey as secret": signature(key, stamp, request_id, key, body),
        "another body": signature(secret, stamp, request_id, key, body + b" "),
        "no body": signature(secret, stamp, request_id, key, b""),
        "another order": signature(secret, request_id, stamp, key, body),
        "with separators": signature(secret, stamp + b"\n", request_id + b"\n", key + b"\n", body),
        "no HMAC": hashlib.sha256(secret + stamp + request_id + key + body).hexdigest(),
        "zeros": "0" * 64,
    } | {"headers": headers}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "mistake",
    [
        "another secret",
        "no secret",
        "the AppKey as secret",
        "another body",
        "no body",
        "another order",
        "with separators",
        "no HMAC",
        "zeros",
    ],
)
async def test_a_wrong_signature_is_answered_with_the_body_as_received_and_never_with_the_secret(
    dealer: ApiClient, mistake: str
):
    body = '{"keyword": "Türkiye"}'.encode()
    signatures = other_signatures(dealer, body)
    headers: Any = signatures["headers"] | {"X-Signature": signatures[mistake]}  # type: ignore[operator]
    answer = await dealer.send(f"{PREFIX}/package/list", body, headers)
    refused(answer, "101003", "HMAC-SHA256")
    assert answer.data == {"bodyLength": len(body), "bodySha256": hashlib.sha256(body).hexdigest()}
    assert dealer.app_secret not in str(answer)


async def test_a_signature_does_not_fit_another_dealer_path_or_time(service: Service, dealer: ApiClient):
    headers = dealer.headers(b"{}")
    async with service.client(await service.tenant(qps=0)) as other:
        refused(await other.send(f"{PREFIX}/health", b"{}", headers | {"RT-AccessCode": other.app_key}), "101003")
    later = str(int(headers["RT-Timestamp"]) + 1)
    refused(await dealer.send(f"{PREFIX}/health", b"{}", headers | {"RT-Timestamp": later}), "101003")
    new_id = str(uuid.uuid4())
    refused(await dealer.send(f"{PREFIX}/health", b"{}", headers | {"RT-RequestID": new_id}), "101003")
    assert (await dealer.send(f"{PREFIX}/health", b"{}", headers)).code == "000000"


async def test_both_secrets_open_calls_during_the_overlap_and_the_old_one_not_after(service: Service, proxied: Service):
    async with service.client(await service.tenant(qps=0)) as old:
        new = replace(
            old,
            app_secret=await credentials.reset_secret(
                service.database, service.settings.master_keys, old.app_key, "test", clock.now
            ),
        )
        for process in (service, proxied):
            address = {"X-Forwarded-For": fresh_address()}
            await until(
                "000000",
                lambda new=new, process=process: at(new, process).post(
                    "/health", **{"X-Forwarded-For": fresh_address()}
                ),
            )
            assert (await at(old, process).post("/health", **address)).code == "000000"
        async with service.database.connection() as connection:
            ended = "UPDATE credential SET previous_until = now() WHERE app_key = $1"
            assert await connection.execute(ended, old.app_key) == "UPDATE 1"
            await store.tenant.touch(connection, old.tenant_id)
        for process in (service, proxied):
            await until(
                "101003",
                lambda old=old, process=process: at(old, process).post(
                    "/health", **{"X-Forwarded-For": fresh_address()}
                ),
            )
            assert (await at(new, process).post("/health", **{"X-Forwarded-For": fresh_address()})).code == "000000"


async def test_after_two_resets_the_first_secret_opens_nothing(service: Service):
    async with service.client(await service.tenant(qps=0)) as first:

        async def reset() -> ApiClient:
            secret = await credentials.reset_secret(
                service.database, service.settings.master_keys, first.app_key, "test", clock.now
            )
            assert secret.startswith("sk_test_") and len(secret) == 48
            return replace(first, app_secret=secret)

        second, third = await reset(), await reset()
        await until("000000", lambda: third.post("/health"))
        assert (await second.post("/health")).code == "000000"
        refused(await first.post("/health"), "101003")


# 101004: the request id


@pytest.mark.parametrize(
    "spell",
    [
        str,
        str.upper,
        lambda one: one.replace("-", ""),
        lambda one: one.replace("-", "").upper(),
        lambda one: "".join(c.upper() if i % 2 else c for i, c in enumerate(one)),
    ],
)
async def test_a_request_id_is_used_once_however_it_is_spelled(dealer: ApiClient, spell: Callable[[str], str]):
    request_id = str(uuid.uuid4())
    assert (await dealer.post("/health", **{"RT-RequestID": request_id})).code == "000000"
    reused = await dealer.post("/account/balance", **{"RT-RequestID": spell(request_id)})
    refused(reused, "101004", "RT-RequestID", "new UUID")


async def test_a_request_id_is_used_up_only_by_a_call_whose_signature_was_verified(dealer: ApiClient):
    request_id = {"RT-RequestID": str(uuid.uuid4())}
    for spoiled in ({"X-Signature": "0" * 64}, {"RT-Timestamp": "1767225600000"}, {"RT-AccessCode": "ak_test_unknown"}):
        assert (await dealer.post("/health", **request_id, **spoiled)).code in ("101003", "101001", "101005")
    assert (await dealer.post("/health", **request_id)).code == "000000"
    assert (await dealer.post("/health", **request_id)).code == "101004"


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/health", b"nonsense", "000104"),
        ("/esim/query", b"{}", "000105"),
        ("/esim/query", b'{"orderNo": "D"}', "310272"),
    ],
)
async def test_a_request_id_stays_used_when_the_operation_fails(dealer: ApiClient, path: str, body: bytes, code: str):
    request_id = {"RT-RequestID": str(uuid.uuid4())}
    assert (await dealer.post(path, body, **request_id)).code == code
    assert (await dealer.post("/health", **request_id)).code == "101004"


async def test_two_dealers_may_use_the_same_request_id(service: Service, dealer: ApiClient):
    request_id = {"RT-RequestID": str(uuid.uuid4())}
    async with service.client(await service.tenant(qps=0)) as other:
        assert (await dealer.post("/health", **request_id)).code == "000000"
        assert (await other.post("/health", **request_id)).code == "000000"


async def test_of_many_calls_with_one_request_id_at_once_one_gets_in(dealer: ApiClient):
    request_id = {"RT-RequestID": str(uuid.uuid4())}
    replies = await asyncio.gather(*[dealer.post("/health", **request_id) for _ in range(40)])
    assert sorted(reply.code for reply in replies) == ["000000"] + ["101004"] * 39


# 101013: calls a second


async def test_calls_carry_what_is_left_of_their_rate_until_nothing_is(proxied: Service):
    async with proxied.client(await proxied.tenant(qps=150)) as client:  # 1.5 a second for this process, 3 at once
        left = []
        async with asyncio.timeout(raw_http.PATIENCE):
            while (reply := await client.post("/health")).code == "000000":
                assert reply.headers["X-RateLimit-Limit"] == "150" and "Retry-After" not in reply.headers
                assert 0 <= int(reply.headers["X-RateLimit-Reset"]) <= 2
                left.append(int(reply.headers["X-RateLimit-Remaining"]))
        assert left[0] == 2 and left[-1] == 0 and left == sorted(left, reverse=True)
        refused(reply, "101013", "150 calls a second")
        assert reply.headers["X-RateLimit-Limit"] == "150" and reply.headers["X-RateLimit-Remaining"] == "0"
        assert int(reply.headers["Retry-After"]) == 1 and int(reply.headers["X-RateLimit-Reset"]) in (1, 2)
        await until("000000", lambda: client.post("/health"))


async def test_a_refused_operation_takes_its_call_and_tells_what_is_left(proxied: Service):
    async with proxied.client(await proxied.tenant(qps=150)) as client:
        replies = [await client.post("/esim/query", body) for body in (b"x", b"{}", b'{"orderNo": "D"}')]
        assert [reply.code for reply in replies] == ["000104", "000105", "310272"]
        assert [reply.headers["X-RateLimit-Remaining"] for reply in replies] == ["2", "1", "0"]


async def test_a_call_over_its_rate_uses_up_its_request_id(proxied: Service):
    async with proxied.client(await proxied.tenant(qps=1)) as client:
        request_id = {"RT-RequestID": str(uuid.uuid4())}
        assert (await client.post("/health")).code == "000000"
        assert (await client.post("/health", **request_id)).code == "101013"
        assert (await client.post("/health", **request_id)).code == "101004"


async def test_a_dealer_without_limit_is_told_none(dealer: ApiClient):
    assert "X-RateLimit-Limit" not in (await dealer.post("/health")).headers


async def test_one_dealers_calls_are_not_counted_for_another(proxied: Service):
    async with proxied.client(await proxied.tenant(qps=1)) as one, proxied.client(await proxied.tenant(qps=1)) as other:
        assert [(await client.post("/health")).code for client in (one, one, other, other)] == ["000000", "101013"] * 2


# 000104: JSON

NOT_JSON = {
    "nothing but blanks": b"  ",
    "text": b"nonsense",
    "byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "UTF-16 without mark": "{}".encode("utf-16-le"),
    "UTF-32": "{}".encode("utf-32"),
    "UTF-7": b"+AHsAfQ-",
    "Latin-1": '{"keyword": "é"}'.encode("latin-1"),
    "bad UTF-8 where it is ignored": b'{"ignored": "\xff"}',
    "bad UTF-8 in an ignored name": b'{"ignor\xffed": 1}',
    "overlong NUL": b'{"ignored": "\xc0\x80"}',
    "surrogate in UTF-8": b'{"ignored": "\xed\xa0\x80"}',
    "lone surrogate": b'{"keyword": "\\ud800"}',
    "lone low surrogate": b'{"keyword": "\\udc00"}',
    "surrogates in the wrong order": b'{"keyword": "\\udc00\\ud800"}',
    "lone surrogate where it is ignored": b'{"ignored": "\\ud800"}',
    "lone surrogate in a name": b'{"\\ud800": 1}',
    "NaN": b'{"ignored": NaN}',
    "Infinity": b'{"ignored": -Infinity}',
    "raw NUL": b'{"keyword": "a\0b"}',
    "raw line break": b'{"ignored": "a\nb"}',
    "raw tab": b'{"ignored": "a\tb"}',
    "bad escape": b'{"ignored": "\\x41"}',
    "comment": b"{} // really",
    "trailing comma": b'{"ignored": 1,}',
    "single quotes": b"{'ignored': 1}",
    "name without quotes": b"{ignored: 1}",
    "leading zero": b'{"ignored": 01}',
    "plus sign": b'{"ignored": +1}',
    "hex": b'{"ignored": 0x1}',
    "bare point": b'{"ignored": 1.}',
    "cut short": b'{"ignored": [1, 2',
    "something after it": b"{} x",
    "two objects": b"{}{}",
    "an array": b"[]",
    "an array with a NUL": b'["\\u0000"]',
    "a string": b'"{}"',
    "a number": b"1",
    "null": b"null",
    "true": b"true",
    "deep arrays": b'{"ignored": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 40_000 + b"1" + b"}" * 40_000,
    "deep and cut short": b"[" * 200_000,
    "deep with a NUL": b'{"ignored": ' + b"[" * 20_000 + b'"\\u0000"' + b"]" * 20_000 + b"}",
    "a wrong parameter before it ends": b'{"type": 7, "keyword": ',
    "a wrong parameter and something after": b'{"type": 7} x',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
async def test_what_is_not_a_json_object_in_utf_8_is_refused(dealer: ApiClient, body: bytes):
    refused(await dealer.post("/package/list", body), "000104", "JSON object")
    assert (await dealer.post("/esim/order", body)).code == "000104"


BROKEN = [
    (b'{"keyword": "x",}', "trailing comma in object (byte 16)"),
    (b"{'keyword': 1}", "object keys must be strings (byte 1)"),
    (b'{"type": 7,}', "trailing comma in object (byte 11)"),  # after a parameter that is wrong
    (b'{"ignored": "\xff"}', "no UTF-8 (byte 13)"),
    (b'{"keyword": ', "it is cut short"),
]


@pytest.mark.parametrize(("body", "where"), BROKEN)
async def test_the_refusal_of_what_is_not_json_says_where_it_breaks(dealer: ApiClient, body: bytes, where: str):
    refused(await dealer.post("/package/list", body), "000104", where)


IS_JSON = {
    "blanks around": b" \r\n\t{} \r\n\t",
    "unknown fields": b'{"ignored": {"deep": [1, 2.5e300, null, true, "x"]}}',
    "all of Unicode": '{"ignored": "é😀\U0010ffff", "名前": 1}'.encode(),
    "a pair of surrogates": b'{"ignored": "\\ud83d\\ude00"}',
    "a hundred thousand digits where they are ignored": b'{"ignored": ' + b"9" * 100_000 + b"}",
    "a huge exponent where it is ignored": b'{"ignored": 1e999999999}',
    "a name twice": b'{"ignored": 1, "ignored": 2}',
    "deep enough": b'{"ignored": ' + b"[" * 200 + b"]" * 200 + b"}",
    "escaped backslashes that are no NUL": b'{"ignored": "\\\\u0000"}',
}


@pytest.mark.parametrize("body", IS_JSON.values(), ids=IS_JSON.keys())
async def test_what_is_a_json_object_in_utf_8_is_taken(dealer: ApiClient, body: bytes):
    assert (await dealer.post("/health", body)).code == "000000"


# 000105 to 000108: parameters

DIGITS = b"9" * 100_000
TYPES = [
    # path, body, code, words in the message
    ("/esim/query", b"{}", "000105", ["orderNo", "transactionId"]),
    ("/esim/query", b'{"orderNo": null, "transactionId": null}', "000105", ["orderNo"]),
    ("/esim/order", b"{}", "000105", ["transactionId is required"]),
    ("/webhook/set", b"{}", "000105", ["callbackUrl is required"]),
    ("/esim/query", b'{"orderNo": ""}', "000106", ["orderNo", "at least one character"]),
    ("/esim/query", b'{"transactionId": ""}', "000106", ["transactionId"]),
    ("/esim/query", b'{"orderNo": "%s"}' % (b"D" * 65), "000107", ["orderNo", "64 characters"]),
    ("/package/list", b'{"keyword": "%s"}' % (b"k" * 101), "000107", ["keyword", "100 characters"]),
    ("/webhook/set", b'{"callbackUrl": "https://example.com/%s"}' % (b"a" * 500), "000107", ["callbackUrl", "512"]),
    ("/webhook/set", b'{"callbackUrl": 7}', "000108", ["callbackUrl", "an integer", "a string"]),
    ("/esim/query", b'{"orderNo": 7}', "000108", ["orderNo", "an integer", "a string"]),
    ("/esim/query", b'{"orderNo": []}', "000108", ["orderNo", "an array", "a string"]),
    ("/esim/query", b'{"orderNo": {}}', "000108", ["orderNo", "an object", "a string"]),
    ("/esim/query", b'{"orderNo": true}', "000108", ["orderNo", "true or false", "a string"]),
    ("/esim/query", b'{"transactionId": "a b"}', "000108", ["transactionId", "letters, digits and . _ : @ -"]),
    ("/esim/query", '{"transactionId": "é"}'.encode(), "000108", ["transactionId"]),
    ("/esim/query", b'{"transactionId": "a\\n"}', "000108", ["transactionId"]),
    ("/esim/order/list", b'{"orderStatus": "NEW"}', "000108", ["orderStatus", "'NEW'", "PAID, FULFILLING, COMPLETED"]),
    ("/esim/order/list", b'{"startTime": "yesterday"}', "000108", ["startTime", "2026-11-20T08:15:30Z"]),
    ("/esim/order/list", b'{"startTime": ""}', "000108", ["startTime", "2026-11-20T08:15:30Z"]),
    ("/esim/order/list", b'{"startTime": 1767225600}', "000108", ["startTime", "2026-11-20T08:15:30Z"]),
    ("/esim/order/list", b'{"endTime": "2026-01-01T00:00:00"}', "000108", ["endTime has no offset from UTC"]),
    ("/esim/order/list", b'{"orderStatus": ""}', "000106", ["orderStatus is empty", "PAID, FULFILLING, COMPLETED"]),
    ("/region/list", b'{"type": "a\'b"}', "000108", ["type is 'a'b'; accepted: COUNTRY, REGION, GLOBAL"]),
    ("/esim/order/list", b'{"pager": {"pageSize": 0}}', "000108", ["pager.pageSize", "an integer from 1 to 500"]),
    ("/esim/order/list", b'{"pager": {"pageSize": 501}}', "000108", ["pager.pageSize", "an integer from 1 to 500"]),
    ("/esim/order/list", b'{"pager": {"pageNum": %s}}' % DIGITS, "000108", ["pager.pageNum"]),
    ("/esim/order/list", b'{"pager": {"pageSize": 1.5}}', "000108", ["pager.pageSize", "an integer"]),
    ("/esim/order/list", b'{"pager": {"pageSize": 1e400}}', "000108", ["pager.pageSize"]),
    ("/esim/order/list", b'{"pager": []}', "000108", ["pager", "an array", "an object"]),
    ("/esim/profile/list", b'{"profileId": %s}' % DIGITS, "000108", ["profileId"]),
    ("/esim/profile/list", b'{"iccid": "123"}', "000108", ["iccid", "18 to 20 digits"]),
    ("/esim/profile/list", b'{"cancelled": "true"}', "000108", ["cancelled", "true or false"]),
    ("/esim/profile/list", b'{"lifecycleStatus": ["DELIVERED", "NEW"]}', "000108", ["lifecycleStatus[1]", "'NEW'"]),
    ("/esim/profile/list", b'{"planUseStatus": "NEW"}', "000108", ["planUseStatus", "STARTED, ENDED"]),
    ("/region/list", b'{"type": "PLANET"}', "000108", ["type", "'PLANET'", "COUNTRY, REGION, GLOBAL"]),
    ("/package/list", b'{"type": "PLANET"}', "000108", ["type", "'PLANET'", "BASE, TOPUP"]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "code", "words"), TYPES)
async def test_a_wrong_parameter_is_named_with_what_was_wrong_and_what_is_accepted(
    dealer: ApiClient, path: str, body: bytes, code: str, words: list[str]
):
    refused(await dealer.post(path, body), code, *words)


async def test_a_long_word_is_cut_in_the_refusal(dealer: ApiClient):
    message = (await dealer.post("/region/list", {"type": "x" * 100_000})).message
    assert message == f"type is '{'x' * 40}…'; accepted: COUNTRY, REGION, GLOBAL"


FAR_TIMES = [
    "0001-01-01T00:00:00+23:59",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "9999-12-31T23:59:59-23:59",
]


@pytest.mark.parametrize("path", ["/esim/order/list", "/esim/profile/list"])
@pytest.mark.parametrize("name", ["startTime", "endTime", "updatedSince"])
@pytest.mark.parametrize("at", FAR_TIMES)
async def test_a_time_that_is_in_no_year_of_utc_is_refused(dealer: ApiClient, path: str, name: str, at: str):
    refused(await dealer.post(path, {name: at}), "000108", name)
    refused(await dealer.post(path, {name: at, "orderNo": "nonsense"}), "000108", name)


@pytest.mark.parametrize("path", ["/esim/order/list", "/esim/profile/list", "/package/list"])
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00.999999+14:00"])
async def test_a_time_of_any_year_of_utc_is_taken(dealer: ApiClient, path: str, at: str):
    names = ("updatedSince",) if path == "/package/list" else ("startTime", "endTime", "updatedSince")
    for name in names:
        assert (await dealer.post(path, {name: at})).code == "000000"


NULS = [
    (b'{"remark": "a\\u0000b"}', "remark"),
    ('{"note": "é", "remark": "a\\u0000b"}'.encode(), "remark"),
    (b'{"ignored": {"deep": [1, "\\u0000"]}}', "ignored.deep[1]"),
    (b'{"a\\u0000": 1}', "NUL"),
    (b'{"ignored": "\\\\\\u0000"}', "ignored"),
    (b'{"digits": %s, "ignored": "\\u0000"}' % DIGITS, "ignored"),
]


@pytest.mark.parametrize(("body", "named"), NULS)
@pytest.mark.parametrize("path", ["/health", "/package/list", "/esim/order/list"])
async def test_text_with_a_nul_is_refused_wherever_it_stands(dealer: ApiClient, path: str, body: bytes, named: str):
    refused(await dealer.post(path, body), "000108", named, "NUL")


@pytest.mark.parametrize("beside", ["", "é"])
async def test_an_order_with_a_nul_in_its_remark_is_refused(dealer: ApiClient, beside: str):
    refused(await dealer.order(remark=f"{beside}\0"), "000108", "remark", "NUL")
    order = {"transactionId": "t", "amount": "1.80", "items": [LINE], "remark": f"{beside}\0"}
    in_utf_8 = json.dumps(order, ensure_ascii=False).encode()
    refused(await dealer.post("/esim/order", in_utf_8), "000108", "remark", "NUL")


# The order of the checks


@dataclass
class Call:
    """A good order of TEST-OK. Each check of specification 5.4 has a way to spoil it that leaves the others alone."""

    method: str = "POST"
    path: str = f"{PREFIX}/esim/order"
    query: str = ""
    padding: bytes = b""
    content_type: str = JSON
    address: str = field(default_factory=fresh_address)
    failed_before: bool = False
    left_out: str = ""
    doubled: tuple[tuple[str, str], ...] = ()
    unknown: bool = False
    disabled: bool = False
    late_ms: int = 0
    wrong_secret: bool = False
    used: bool = False
    exhausted: bool = False
    unscoped: bool = False
    garbage: bytes = b""
    changed: dict[str, Any] = field(default_factory=dict)


CHECKS: list[tuple[str, str, dict[str, Any]]] = [
    # what is checked, the code, what spoils it
    ("path", "000112", {"path": f"{PREFIX}/nowhere"}),
    ("query string", "000108", {"query": "?a=1"}),
    ("method", "000103", {"method": "PUT"}),
    ("size", "000110", {"padding": b" " * BODY_LIMIT}),
    ("content type", "000109", {"content_type": "text/plain"}),
    ("failed authentications", "101013", {"failed_before": True}),
    ("headers present", "000101", {"left_out": "X-Signature"}),
    ("header form", "000102", {"doubled": (("RT-Timestamp", "1767225600000"),)}),
    ("AppKey", "101005", {"unknown": True}),
    ("tenant active", "101006", {"disabled": True}),
    ("allowlist", "101002", {"address": "203.0.113.0"}),
    ("timestamp", "101001", {"late_ms": 400_000}),
    ("signature", "101003", {"wrong_secret": True}),
    ("request id", "101004", {"used": True}),
    ("QPS", "101013", {"exhausted": True}),
    ("scope", "101007", {"unscoped": True}),
    ("JSON", "000104", {"garbage": b"}"}),
    ("parameters", "000108", {"remark": 7}),
    ("business", "200006", {"amount": "9.99"}),
]
NAMES = [name for name, _, _ in CHECKS]
WORDS = {"failed authentications": "failed authentications", "QPS": "calls a second"}


@dataclass
class Counter:
    """Where spoiled calls are made: dealers by (disabled, exhausted, unscoped), each with a request id it has used."""

    url: str
    dealers: dict[tuple[bool, bool, bool], tuple[Created, str]]

    async def answer(self, *spoiled: str) -> raw_http.Answer:
        call = Call()
        outside = itertools.count(1)
        for name, _, how in CHECKS:
            if name not in spoiled:
                continue
            if name in ("parameters", "business"):
                call.changed |= how
            elif name == "allowlist":
                call.address = f"203.0.{next(_numbers) % 200}.{next(outside)}"
            else:
                call = replace(call, **how)
        if call.failed_before:
            failing = Call(address=call.address, unknown=True)
            assert (await raw_http.call(self.url, self.request(failing))).code == "101005"
        return await raw_http.call(self.url, self.request(call))

    def request(self, call: Call) -> bytes:
        dealer, used_id = self.dealers[call.disabled, call.exhausted, call.unscoped]
        order = {"transactionId": uuid.uuid4().hex, "amount": "1.80", "items": [LINE]} | call.changed
        body = json.dumps(order).encode() + call.padding + call.garbage
        headers = {
            "Content-Type": call.content_type,
            "X-Forwarded-For": call.address,
            "RT-AccessCode": "ak_test_unknown" if call.unknown else dealer.app_key,
            "RT-RequestID": used_id if call.used else str(uuid.uuid4()),
            "RT-Timestamp": str(int(time.time() * 1000) - call.late_ms),
        }
        signed = [headers[name].encode() for name in ("RT-Timestamp", "RT-RequestID", "RT-AccessCode")]
        secret = "sk_test_wrong" if call.wrong_secret else dealer.app_secret
        headers["X-Signature"] = signature(secret.encode(), *signed, body)
        kept = [pair for pair in headers.items() if pair[0] != call.left_out]
        return raw_http.request(call.path + call.query, [*kept, *call.doubled], body, call.method)


@pytest.fixture(scope="module")
async def counter(proxied: Service) -> Counter:
    dealers = {}
    for disabled, exhausted, unscoped in itertools.product((False, True), repeat=3):
        created = await proxied.tenant(balance="1000", qps=int(exhausted), ip_allow=["198.18.0.0/15"])
        used_id = str(uuid.uuid4())
        if unscoped:
            limits = KeyLimits(scopes=["read", "money"])
            await credentials.set_limits(proxied.database, created.app_key, limits, "test")
        async with proxied.client(created) as client:
            known = {"RT-RequestID": used_id, "X-Forwarded-For": "198.18.0.0"}
            assert (await client.post("/health", **known)).code == "000000"  # the one call of the next 100 seconds
            if disabled:
                await proxied.change(client.tenant_id, status="DISABLED")
                await until("101006", lambda client=client: client.post("/health", **{"X-Forwarded-For": "198.18.0.0"}))
        dealers[disabled, exhausted, unscoped] = created, used_id
    return Counter(proxied.url, dealers)


async def test_the_call_that_the_next_tests_spoil_is_a_good_one(counter: Counter):
    assert (await counter.answer()).code == "000000"


@pytest.mark.parametrize(("name", "code", "_"), CHECKS, ids=NAMES)
async def test_each_check_refuses_what_it_is_for(counter: Counter, name: str, code: str, _: dict[str, Any]):
    refused(await counter.answer(name), code, WORDS.get(name, ""))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(NAMES, 2)), ids=" before ".join)
async def test_of_two_refusals_the_earlier_check_gives_its_own(counter: Counter, first: str, second: str):
    code = next(code for name, code, _ in CHECKS if name == first)
    refused(await counter.answer(first, second), code, WORDS.get(first, ""))


async def test_a_call_wrong_in_every_way_is_mended_check_by_check(counter: Counter):
    for number, (name, code, _) in enumerate(CHECKS):
        refused(await counter.answer(*NAMES[number:]), code, WORDS.get(name, ""))


# 900001: the database is lost; 000001: a fault of ours


class Wire:
    """The line between a process and PostgreSQL, which can be cut and mended."""

    def __init__(self, socket_path: str):
        self._socket_path = socket_path
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._socket_path)
        self._open |= {writer, far_writer}

        async def pump(source: asyncio.StreamReader, drain: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65_536):
                    drain.write(data)
                    await drain.drain()
            except ConnectionError:
                pass
            finally:
                drain.transport.abort()

        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
        self._open -= {writer, far_writer}


@asynccontextmanager
async def behind_a_wire(database_url: str) -> AsyncIterator[tuple[Service, Wire]]:
    parts = urlsplit(database_url)
    where = {name: values[0] for name, values in parse_qs(parts.query).items()}
    wire = Wire(f"{where['host']}/.s.PGSQL.{where['port']}")
    await wire.mend()
    through = f"postgresql://{parts.username}@127.0.0.1:{wire.port}{parts.path}?sslmode=disable"
    try:
        async with running_service(through, worker=False) as service:
            yield service, wire
    finally:
        wire.cut()


OF_THE_DATABASE: list[tuple[str, dict[str, Any]]] = [
    ("/account/balance", {}),
    ("/esim/query", {"transactionId": "any"}),
    ("/esim/order/list", {}),
    ("/esim/profile/list", {}),
    ("/webhook/query", {}),
    ("/webhook/set", {"callbackUrl": ""}),
]


async def test_while_the_database_is_lost_calls_are_told_to_retry_and_afterwards_they_work(database_url: str):
    async with behind_a_wire(database_url) as (service, wire):
        async with service.client(await service.tenant(balance="1000", qps=0)) as client:
            first = await client.order()
            assert first.code == "000000"

            def retry_later(reply: Reply, *data: dict[str, Any]) -> None:
                assert (reply.code, reply.status) == ("900001", 503), reply
                assert int(reply.headers["Retry-After"]) >= 1 and reply.data in data

            wire.cut()
            for path, body in OF_THE_DATABASE:
                retry_later(await client.post(path, body), {}, {"outcome": "UNKNOWN"})
            order = {"transactionId": "kept-through-it-all", "amount": "1.80", "items": [LINE]}
            retry_later(await client.post("/esim/order", order), {}, {"outcome": "UNKNOWN"})
            # Soon it forgets whom it knew; from then on nothing is even begun.
            retry_later(await until("900001", lambda: client.post("/health")), {})
            for path, body in [*OF_THE_DATABASE, ("/esim/order", order)]:
                retry_later(await client.post(path, body), {})
            assert (await raw_http.call(client.url, raw_http.request("/healthz", [], method="GET"))).status == 200
            picture = await raw_http.call(client.url, raw_http.request("/qr/1/1/token", [], method="GET"))
            assert (picture.status, picture.code) == (503, "900001") and picture.headers["retry-after"] == "1"

            await wire.mend()
            placed = await until("000000", lambda: client.post("/esim/order", order))
            assert placed.data["transactionId"] == "kept-through-it-all"
            for path, body in OF_THE_DATABASE:
                assert (await client.post(path, body)).code in ("000000", "310272")
            assert (await client.post("/account/balance")).data["balance"] == "996.40"
            assert (await client.post("/esim/order/list")).data["pager"]["total"] == 2
        assert await service.audit() == []


async def test_a_database_that_takes_no_connections_for_a_while_is_lost_too(postgres: str, template: str):
    admin = await asyncpg.connect(postgres)
    name = "test_in_maintenance"
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        async with (
            running_service(database_named(postgres, name), worker=False) as service,
            service.client(await service.tenant(balance="1000", qps=0)) as client,
        ):
            assert (await client.order()).code == "000000"
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            for path, body in OF_THE_DATABASE:
                refused(await client.post(path, body), "900001")
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            await until("000000", client.order)
    finally:
        await admin.close()


async def test_a_fault_of_ours_is_told_by_a_trace_id_and_nothing_else(service: Service, dealer: ApiClient):
    async with service.database.connection() as connection:
        await connection.execute("ALTER TABLE webhook_endpoint RENAME TO webhook_endpoint_away")
        try:
            answer = await dealer.post("/webhook/query")
        finally:
            await connection.execute("ALTER TABLE webhook_endpoint_away RENAME TO webhook_endpoint")
    assert (answer.code, answer.status) == ("000001", 500)
    assert answer.message == "unexpected server error; nothing was done in part"
    assert answer.data == {"traceId": answer.headers["X-Trace-Id"]}
    assert answer.headers["RT-RequestID"]


# Whatever comes, the answer is an envelope with a known code

FIELDS = sorted(
    {"esimTranNo", "profiles"}.union(*(route.operation.request.__struct_encode_fields__ for route in ROUTES))
)
TRICKY = [
    *(None, True, 0, -1, 1.5, 1e308, 2**53, 2**63, 10**20, -(10**400), [], {}, [{}], [None] * 101),
    *("", "0", "1.80", "-0", "1e9", "NaN", "\0", "\ud800", "é", "x" * 300, "TEST-OK", "DELIVERED", ["DELIVERED"]),
    *("D261120081530000001", "D000000000000000000", "D999999999999999999", "99999999999999999999", "0" * 16),
    *(
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "2026-11-20T08:15:30.123456789Z",
        "2026-12-31T23:59:60Z",
    ),
    *("http://127.0.0.1/", "https://example.com/", "http://[::1", "gopher://x"),
    *({"after": one} for one in ("1", "0", "9" * 16, "\0", "1:TEST-OK", "-1:x", f"{10**17}:", "9" * 200)),
    *({"pageNum": 10**6, "pageSize": 500}, {"pageNum": 0}, {"pageSize": -1}),
    *([LINE], [LINE | {"price": 10**30}], [LINE | {"price": [[]]}], [LINE | {"quantity": 10**10}], [LINE, LINE]),
]
VALUES = st.sampled_from(TRICKY) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
GOOD = {"transactionId": "fuzzed", "amount": "1.80", "items": [LINE], "callbackUrl": ""}
BODIES = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6).map(lambda one: json.dumps(one).encode()),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2).map(lambda one: json.dumps(GOOD | one).encode()),
    st.builds(
        lambda one, cut, mark: one[:cut] + mark + one[cut:],
        st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=3).map(lambda one: json.dumps(one).encode()),
        st.integers(0, 200),
        st.binary(max_size=3),
    ),
)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@pytest.mark.parametrize("path", PATHS)
@given(body=BODIES)
@settings(UNHURRIED, max_examples=80)
async def test_whatever_is_signed_and_sent_gets_an_envelope_and_never_a_500(dealer: ApiClient, path: str, body: bytes):
    reply = await dealer.post(path, body)
    assert reply.code != "000001" and reply.status == STATUS[reply.code]


TOKENS = st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789!#$%&'*+-.^_`|~"), min_size=1, max_size=12)
FRAMING = {"content-length", "transfer-encoding", "host", "connection", "upgrade", "expect"}
HEADER_NAMES = st.sampled_from(
    [
        *SECURITY,
        *SECURITY,
        "RT-Signature",
        "Content-Type",
        "Content-Encoding",
        "X-Forwarded-For",
        "Accept-Encoding",
        "Cookie",
    ]
) | TOKENS.filter(lambda name: name.lower() not in FRAMING)
HEADER_VALUES = st.one_of(
    st.sampled_from(
        [JSON, "application/json; charset=utf-8", "identity", "127.0.0.1", "0" * 64, A_UUID, "1767225600000"]
    ).map(str.encode),
    st.builds(lambda: str(int(time.time() * 1000)).encode()),
    st.binary(max_size=80).filter(lambda value: not {0, 10, 13} & set(value)),
)


@given(headers=st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=12), body=BODIES)
@settings(UNHURRIED, max_examples=300)
async def test_whatever_the_headers_hold_the_answer_is_an_envelope_and_never_a_500(
    dealer: ApiClient, headers: list[tuple[str, bytes]], body: bytes
):
    answer = await raw_http.call(dealer.url, raw_http.request("/open-api/v1/esim/order", headers, body))
    assert answer.code not in ("000000", "000001") and answer.status == STATUS[answer.code]
