"""Attacks on the public API, over raw sockets against the whole service: none of them buys anything.

Every attack carries or is followed by an order that would be executed if it were read: well signed, paid for, with a
request id of its own. The bare listener is tested in test_listener.py, the checks one by one in test_gateway.py.
"""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from support import raw_http
from support.api_client import ApiClient, Service, running_service

ORDER = "/open-api/v1/esim/order"
ENDLESS = 1_000_000
BRISK = {"header_seconds": 0.2, "body_seconds": 0.2, "idle_seconds": 0.2}
Chunks = list[bytes]


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    limits = {"failed_authentications_per_second": ENDLESS, "failed_authentications_burst": ENDLESS}
    async with running_service(database_url, worker=False, **limits) as service:
        yield service


@pytest.fixture(scope="module")
async def victim(service: Service) -> AsyncIterator[ApiClient]:
    """Who would pay, were an attack to succeed."""
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        yield client


@pytest.fixture
async def unharmed(service: Service, victim: ApiClient) -> AsyncIterator[ApiClient]:
    """The victim; after the test it has bought nothing and paid nothing."""
    yield victim
    async with service.database.connection() as connection:
        bought = await connection.fetchval("SELECT count(*) FROM orders WHERE tenant_id = $1", victim.tenant_id)
    assert bought == 0
    assert (await victim.post("/account/balance")).data["balance"] == "1000.00"


def order(**changed: object) -> bytes:
    line = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
    return json.dumps({"transactionId": uuid.uuid4().hex, "amount": "1.80", "items": [line]} | changed).encode()


def signed(client: ApiClient, body: bytes, **spoiled: str | None) -> list[tuple[str, str | bytes]]:
    return list(client.headers(body, **spoiled).items())


def buy(client: ApiClient, *extra: tuple[str, str]) -> bytes:
    """An order that the service executes if it reads it."""
    body = order()
    return raw_http.request(ORDER, [*signed(client, body), *extra], body)


def last(client: ApiClient) -> bytes:
    return buy(client, ("Connection", "close"))


def chunked(client: ApiClient, body: bytes, framing: bytes) -> bytes:
    """A call that signs `body` and sends `framing` for it."""
    headers = [*signed(client, body), ("Transfer-Encoding", "chunked")]
    return raw_http.request(ORDER, headers, framing, length=False)


def lengths(client: ApiClient, body: bytes, *headers: tuple[str, str]) -> bytes:
    """A call whose headers say themselves, and wrongly, where its body ends."""
    return raw_http.request(ORDER, [*signed(client, body), *headers], body, length=False)


async def test_the_orders_that_attacks_smuggle_would_be_executed(service: Service):
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        body = order()
        whole = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        received = await raw_http.exchange(client.url, buy(client) + chunked(client, body, whole) + last(client))
        assert raw_http.codes(received) == ["000000"] * 3
        assert (await client.post("/account/balance")).data["balance"] == "994.60"


# Smuggling: two readers of the same bytes must not see different requests

SMUGGLING: dict[str, Callable[[ApiClient], bytes]] = {
    "length and chunks, the order behind the last chunk": lambda client: raw_http.request(
        ORDER,
        [*signed(client, b""), ("Content-Length", "5"), ("Transfer-Encoding", "chunked")],
        b"0\r\n\r\n",
        length=False,
    ),
    "chunks and length": lambda client: lengths(
        client, order(), ("Transfer-Encoding", "chunked"), ("Content-Length", "5")
    ),
    "length and chunks around a whole order": lambda client: raw_http.request(
        ORDER,
        [*signed(client, (body := order())), ("Content-Length", str(len(body))), ("Transfer-Encoding", "chunked")],
        raw_http.chunked(body),
        length=False,
    ),
    "two lengths": lambda client: lengths(
        client, (body := order()), ("Content-Length", str(len(body))), ("Content-Length", "0")
    ),
    "two equal lengths": lambda client: lengths(
        client, (body := order()), ("Content-Length", str(len(body))), ("Content-Length", str(len(body)))
    ),
    "a list of lengths": lambda client: lengths(
        client, (body := order()), ("Content-Length", f"{len(body)}, {len(body)}")
    ),
    "a signed length": lambda client: lengths(client, (body := order()), ("Content-Length", f"+{len(body)}")),
    "a length in hex": lambda client: lengths(client, (body := order()), ("Content-Length", hex(len(body)))),
    "a length with an underscore": lambda client: lengths(client, order(), ("Content-Length", "1_0")),
    "a length in Arabic digits": lambda client: lengths(client, order(), ("Content-Length", "١٠")),
    "a length that overflows": lambda client: lengths(client, order(), ("Content-Length", str(2**64 + 5))),
    "an unknown coding": lambda client: lengths(client, order(), ("Transfer-Encoding", "xchunked")),
    "a coding with a tab": lambda client: lengths(client, order(), ("Transfer-Encoding", "\tchunked\x0b")),
    "a coding twice": lambda client: lengths(
        client, order(), ("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")
    ),
    "identity and chunked": lambda client: lengths(client, order(), ("Transfer-Encoding", "identity, chunked")),
    "a blank before the colon": lambda client: lengths(client, order(), ("Transfer-Encoding ", "chunked")),
    "chunks with bad ends": lambda client: chunked(client, (body := order()), b"%x\n%b\n0\n\n" % (len(body), body)),
    "a chunk longer than it says": lambda client: chunked(
        client, (body := order()), b"%x\r\n%b\r\n0\r\n\r\n" % (len(body) - 1, body)
    ),
    "a chunk size with a sign": lambda client: chunked(
        client, (body := order()), b"+%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    ),
    "a chunk size with 0x": lambda client: chunked(
        client, (body := order()), b"0x%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    ),
    "a chunk size that overflows": lambda client: chunked(
        client, (body := order()), b"1%016x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    ),
    "headers behind the last chunk": lambda client: raw_http.request(
        ORDER,
        [*signed(client, (body := order()), **{"X-Signature": None}), ("Transfer-Encoding", "chunked")],
        b"%x\r\n%b\r\n0\r\nX-Signature: %b\r\n\r\n" % (len(body), body, b"0" * 64),
        length=False,
    ),
    "a folded header": lambda client: buy(client).replace(b"\r\nX-Signature: ", b"\r\nX-Signature:\r\n "),
    "bare line feeds": lambda client: buy(client).replace(b"\r\n", b"\n"),
    "one bare line feed": lambda client: buy(client).replace(b"\r\nRT-Timestamp", b"\nRT-Timestamp"),
    "a bare carriage return": lambda client: buy(client).replace(b"\r\nRT-Timestamp", b"\rRT-Timestamp"),
    "a NUL in a header": lambda client: buy(client, ("X-A", "a\0b")),
    "a header without a name": lambda client: buy(client, ("", "a")),
    "two hosts": lambda client: buy(client, ("Host", "other.test")),
    "no host": lambda client: buy(client).replace(b"Host: client.test\r\n", b""),
    "HTTP/2": lambda client: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/0.9": lambda client: buy(client).replace(b" HTTP/1.1", b"", 1),
    "another version": lambda client: buy(client).replace(b" HTTP/1.1", b" HTTP/1.2", 1),
    "TLS on a plain port": lambda client: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "a tunnel": lambda client: b"CONNECT client.test:443 HTTP/1.1\r\nHost: client.test\r\n\r\n",
    "a blank in the path": lambda client: buy(client).replace(ORDER.encode(), ORDER.encode() + b" x", 1),
    "a blank before the method": lambda client: b" " + buy(client),
}


@pytest.mark.parametrize("attack", SMUGGLING.values(), ids=SMUGGLING.keys())
async def test_a_request_that_can_be_read_in_two_ways_is_not_read_at_all(
    unharmed: ApiClient, attack: Callable[[ApiClient], bytes]
):
    received = await raw_http.exchange(unharmed.url, attack(unharmed) + last(unharmed))
    assert [(one.status, one.code) for one in received] == [(400, "000102")], received
    assert received[0].headers["connection"] == "close"


@pytest.mark.parametrize("attack", SMUGGLING.values(), ids=SMUGGLING.keys())
async def test_nor_behind_a_good_request_on_the_same_connection(
    unharmed: ApiClient, attack: Callable[[ApiClient], bytes]
):
    good = raw_http.request("/open-api/v1/health", signed(unharmed, b"{}"), b"{}")
    received = await raw_http.exchange(unharmed.url, good, attack(unharmed), last(unharmed))
    assert raw_http.codes(received) == ["000000", "000102"]


async def test_an_order_inside_the_body_of_a_refused_call_stays_a_body(unharmed: ApiClient):
    inner = buy(unharmed)
    for path, headers in {
        ORDER: signed(unharmed, b"something else"),
        "/open-api/v1/nowhere": signed(unharmed, inner),
        "/open-api/v1/esim/order?a=1": signed(unharmed, inner),
        "/nowhere": [],
    }.items():
        received = await raw_http.exchange(
            unharmed.url,
            raw_http.request(path, headers, inner),
            raw_http.request("/open-api/v1/health", [("Connection", "close")], b"{}"),
        )
        assert len(received) == 2 and "000000" not in raw_http.codes(received)


async def test_an_order_inside_a_body_that_is_too_large_stays_a_body(unharmed: ApiClient):
    body = b" " * 262_145 + buy(unharmed)
    closing = raw_http.request("/open-api/v1/nowhere", [("Connection", "close")])
    received = await raw_http.exchange(unharmed.url, raw_http.request(ORDER, signed(unharmed, body), body), closing)
    assert raw_http.codes(received) == ["000110", "000112"]
    in_chunks = raw_http.request(
        ORDER, [*signed(unharmed, body), ("Transfer-Encoding", "chunked")], raw_http.chunked(body, 1000), length=False
    )
    assert raw_http.codes(await raw_http.exchange(unharmed.url, in_chunks, closing)) == ["000110", "000112"]


async def test_a_body_for_a_method_that_has_none_does_not_become_a_request(unharmed: ApiClient):
    for method in ("GET", "HEAD", "OPTIONS", "DELETE", "TRACE"):
        inner = buy(unharmed)
        reader, writer = await raw_http.connect(unharmed.url)
        try:
            writer.write(raw_http.request(ORDER, signed(unharmed, inner), inner, method))
            writer.write(raw_http.request("/open-api/v1/nowhere", []))
            assert (await raw_http.read(reader, to_head=method == "HEAD")).status == 405
            assert (await raw_http.read(reader)).code == "000112"
        finally:
            writer.transport.abort()


async def test_after_connection_close_nothing_more_is_executed(unharmed: ApiClient):
    closing = raw_http.request("/open-api/v1/health", [*signed(unharmed, b"{}"), ("Connection", "close")], b"{}")
    received = await raw_http.exchange(unharmed.url, closing + buy(unharmed), buy(unharmed))
    assert raw_http.codes(received) == ["000000"]


@pytest.mark.parametrize("upgrade", ["h2c", "websocket", "TLS/1.0"])
async def test_a_wish_to_upgrade_opens_no_second_way_in(unharmed: ApiClient, upgrade: str):
    wish = [("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", upgrade), ("HTTP2-Settings", "AAMAAABkAAQAAP__")]
    inner = buy(unharmed)
    refused = raw_http.request("/open-api/v1/nowhere", [*signed(unharmed, inner), *wish], inner)
    closing = raw_http.request("/open-api/v1/nowhere", [("Connection", "close")])
    assert raw_http.codes(await raw_http.exchange(unharmed.url, refused + closing)) == ["000112", "000112"]


# Headers: twice, huge, many


@pytest.mark.parametrize("name", ["RT-AccessCode", "RT-RequestID", "RT-Timestamp", "X-Signature", "RT-Signature"])
@pytest.mark.parametrize("good_first", [True, False])
async def test_a_security_header_sent_twice_buys_nothing_whichever_is_the_good_one(
    unharmed: ApiClient, name: str, good_first: bool
):
    body = order()
    good = dict(signed(unharmed, body))
    values = [good.pop(name, good["X-Signature"]), str(uuid.uuid4())]
    twice = [(name, value) for value in (values if good_first else values[::-1])]
    answer = await raw_http.call(unharmed.url, raw_http.request(ORDER, [*good.items(), *twice], body))
    assert (answer.status, answer.code) == (400, "000102") and name in answer.message


@pytest.mark.parametrize("name", ["rt_accesscode", "RT-AccessCode_", "X-RT-AccessCode", "RTAccessCode"])
async def test_a_header_that_some_proxies_take_for_another_is_not_that_one(unharmed: ApiClient, name: str):
    body = order()
    headers = signed(unharmed, body, **{"RT-AccessCode": None})
    answer = await raw_http.call(unharmed.url, raw_http.request(ORDER, [*headers, (name, unharmed.app_key)], body))
    assert answer.code == "000101"


HUGE: dict[str, Iterable[tuple[str, str]]] = {
    "one of 33 KB": [("X-A", "a" * 33_000)],
    "one without end": [("X-A", "a" * 5_000_000)],
    "seventy of 500 bytes": [(f"X-{number}", "a" * 500) for number in range(70)],
    "a hundred and one": [(f"X-{number}", "a") for number in range(101)],
    "ten thousand": [(f"X-{number}", "a") for number in range(10_000)],
    "a huge name": [("X" * 33_000, "a")],
    "a huge signature": [("X-Signature", "0" * 33_000)],
    "a huge request id": [("RT-RequestID", "0" * 33_000)],
}


@pytest.mark.parametrize("extra", HUGE.values(), ids=HUGE.keys())
async def test_huge_headers_are_refused_before_they_are_all_here(unharmed: ApiClient, extra: list[tuple[str, str]]):
    received = await raw_http.exchange(unharmed.url, buy(unharmed, *extra) + last(unharmed))
    assert [(one.status, one.code) for one in received] == [(400, "000102")]


@pytest.mark.parametrize("path", [f"{ORDER}?{'a' * 9_000}", f"/{'a' * 9_000}", f"/{'../' * 3_000}{ORDER}"])
async def test_a_huge_path_is_refused(unharmed: ApiClient, path: str):
    body = order()
    attack = raw_http.request(path, signed(unharmed, body), body)
    assert raw_http.codes(await raw_http.exchange(unharmed.url, attack + last(unharmed))) == ["000102"]


@pytest.mark.parametrize("length", [7_000, 8_000])
async def test_a_long_path_is_only_unknown(unharmed: ApiClient, length: int):
    answer = await raw_http.call(unharmed.url, raw_http.request(f"/qr/1/{'9' * length}/x", [], method="GET"))
    assert (answer.status, answer.code) == (404, "000112")


# Paths

PATHS = [
    "//open-api/v1/esim/order",
    "/open-api//v1/esim/order",
    "/open-api/v1/esim//order",
    "/open-api/v1/esim%2forder",
    "/open-api/v1/esim%2Forder",
    "/open-api/v1%2fesim/order",
    "/%6fpen-api/v1/esim/order",
    "/open-api/v1/esim/orde%72",
    "/open-api/v1/./esim/order",
    "/open-api/v1/health/../esim/order",
    "/open-api/v1/health/%2e%2e/esim/order",
    "/open-api/v1/health/..;/esim/order",
    "/open-api/v1/esim/order;a=1",
    "/open-api/v1/esim;a=1/order",
    "/open-api/v1/esim/order/",
    "/open-api/v1/esim/order/.",
    "/open-api/v1/esim/order%00",
    "/open-api/v1/esim/order%20",
    "/open-api/v1/esim/order%23",
    "/open-api/v1/esim/order\\",
    "\\open-api\\v1\\esim\\order",
    "/open-api/v1/esim/ORDER",
    "/OPEN-API/v1/esim/order",
    "/qr/../open-api/v1/esim/order",
    "/healthz/../open-api/v1/esim/order",
    "http://door.test//open-api/v1/esim/order",
]


@pytest.mark.parametrize("path", PATHS)
async def test_another_spelling_of_a_path_buys_nothing(unharmed: ApiClient, path: str):
    body = order()
    answer = await raw_http.call(unharmed.url, raw_http.request(path, signed(unharmed, body), body))
    assert (answer.status, answer.code) in ((404, "000112"), (400, "000102"))
    assert "location" not in answer.headers


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("override", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
async def test_another_method_buys_nothing_whatever_header_calls_it_a_post(
    unharmed: ApiClient, method: str, override: str
):
    body = order()
    answer = await raw_http.call(
        unharmed.url, raw_http.request(ORDER, [*signed(unharmed, body), (override, "POST")], body, method)
    )
    assert (answer.status, answer.code) == (405, "000103")
    assert body not in answer.body  # TRACE would give it back


# Replay and tampering


async def test_a_captured_call_buys_once_however_often_and_however_it_is_sent_again(service: Service):
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        body = order()
        headers = dict(signed(client, body))
        request_id = str(headers["RT-RequestID"])
        captured = raw_http.request(ORDER, headers.items(), body)
        at_once = await asyncio.gather(*[raw_http.call(client.url, captured) for _ in range(20)])
        assert sorted(raw_http.codes(at_once)) == ["000000"] + ["101004"] * 19
        for spelled in (request_id.upper(), request_id.replace("-", ""), request_id.replace("-", "").upper()):
            again = await raw_http.call(
                client.url, raw_http.request(ORDER, (headers | {"RT-RequestID": spelled}).items(), body)
            )
            assert again.code == "101003"  # the id is signed as it is spelled
        assert (await client.post("/esim/order/list")).data["pager"]["total"] == 1


@pytest.mark.parametrize("at", range(0, 130, 10))
async def test_a_signed_order_with_one_byte_changed_buys_nothing(unharmed: ApiClient, at: int):
    body = order()
    changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    answer = await raw_http.call(unharmed.url, raw_http.request(ORDER, signed(unharmed, body), changed))
    assert (answer.status, answer.code) == (401, "101003")
    assert answer.data["bodyLength"] == len(body)


async def test_what_is_signed_has_no_seams_so_nothing_may_be_moved_across_them(unharmed: ApiClient):
    body = order()
    headers = {name: str(value) for name, value in signed(unharmed, body)}
    moved = [
        {"RT-AccessCode": headers["RT-AccessCode"] + "{"},
        {
            "RT-AccessCode": headers["RT-AccessCode"][1:],
            "RT-RequestID": headers["RT-RequestID"] + headers["RT-AccessCode"][0],
        },
        {
            "RT-Timestamp": headers["RT-Timestamp"] + headers["RT-RequestID"][0],
            "RT-RequestID": headers["RT-RequestID"][1:],
        },
        {
            "RT-Timestamp": headers["RT-Timestamp"][:-1],
            "RT-RequestID": headers["RT-Timestamp"][-1] + headers["RT-RequestID"],
        },
    ]
    for changed in moved:
        sent = body[1:] if changed == moved[0] else body
        answer = await raw_http.call(unharmed.url, raw_http.request(ORDER, (headers | changed).items(), sent))
        assert (answer.status, answer.code) == (400, "000102")


async def test_an_unknown_app_key_and_a_wrong_signature_tell_no_more_than_that(unharmed: ApiClient):
    body = order()
    unknown = await raw_http.call(
        unharmed.url, raw_http.request(ORDER, signed(unharmed, body, **{"RT-AccessCode": "ak_test_" + "0" * 24}), body)
    )
    wrong = await raw_http.call(
        unharmed.url, raw_http.request(ORDER, signed(unharmed, body, **{"X-Signature": "0" * 64}), body)
    )
    assert (unknown.status, unknown.code, unknown.data) == (401, "101005", {})
    assert (wrong.status, wrong.code) == (401, "101003") and wrong.data.keys() == {"bodyLength", "bodySha256"}
    for answer in (unknown, wrong):
        assert unharmed.app_secret.encode() not in answer.body
        assert not re.search(rb"tenant|python|sql|\.py|dealer_server", answer.body, re.IGNORECASE)
        assert "server" not in answer.headers


# Slow clients


@pytest.fixture(scope="module")
async def brisk(service: Service, database_url: str) -> AsyncIterator[Service]:
    """A process on the same database whose patience with slow clients is short."""
    async with running_service(database_url, worker=False, **BRISK) as brisk:
        yield brisk


@asynccontextmanager
async def connection(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(raw_http.PATIENCE):
        reader, writer = await raw_http.connect(url)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


async def to_the_end(reader: asyncio.StreamReader) -> bytes:
    """All the service sends until it closes. A reset counts as closing."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def withheld(url: str, request: bytes, kept_back: int) -> bytes:
    """Sends a request but for its last bytes, waits for the service to hang up, and then sends the rest."""
    async with connection(url) as (reader, writer):
        writer.write(request[:-kept_back])
        received = await to_the_end(reader)
        writer.write(request[-kept_back:])
        return received + await to_the_end(reader)


async def dripped(url: str, start: bytes, drop: bytes) -> bytes:
    """Sends the start of a request and then drops of it, until the service hangs up."""
    async with connection(url) as (reader, writer):
        writer.write(start)
        received = asyncio.create_task(to_the_end(reader))
        while not received.done():
            writer.write(drop)
            await asyncio.wait([received], timeout=0.02)
        return received.result()


async def test_slow_headers_and_bodies_are_hung_up_on_and_their_orders_are_not_executed(
    brisk: Service, unharmed: ApiClient
):
    body, url = order(), brisk.url
    head_only = buy(unharmed).partition(b"\r\n\r\n")[0]
    whole_chunks = raw_http.chunked(body)
    by_length = raw_http.request(ORDER, signed(unharmed, body), body)
    by_chunks = chunked(unharmed, body, whole_chunks)
    received = await asyncio.gather(
        withheld(url, b"POST", 3),
        withheld(url, head_only + b"\r\n\r\n", 2),
        withheld(url, by_length, 1),
        withheld(url, by_length, len(body)),
        withheld(url, by_chunks, 2),
        withheld(url, by_chunks, len(whole_chunks) - 1),
        dripped(url, head_only + b"\r\nX-A: ", b"a"),
        dripped(url, head_only, b"\r\nX-A: a"),
        dripped(url, by_length.replace(b"Content-Length: ", b"Content-Length: 10")[: -len(body)], b" "),
        dripped(url, chunked(unharmed, body, b""), b"1\r\n \r\n"),
        dripped(url, b"", b"\r\n"),
        dripped(url, raw_http.request("/healthz", [], method="GET")[:-2], b""),
    )
    assert received == [b""] * len(received)


async def test_a_slow_client_delays_no_other(brisk: Service, unharmed: ApiClient):
    async with connection(brisk.url) as (reader, writer):
        writer.write(buy(unharmed)[:-1])
        health = raw_http.request("/open-api/v1/health", signed(unharmed, b"{}"), b"{}")
        assert (await raw_http.call(brisk.url, health)).code == "000000"
        assert await to_the_end(reader) == b""


async def test_an_idle_connection_is_closed_and_answers_nothing_more(brisk: Service, unharmed: ApiClient):
    async with connection(brisk.url) as (reader, writer):
        writer.write(raw_http.request("/open-api/v1/health", signed(unharmed, b"{}"), b"{}"))
        assert (await raw_http.read(reader)).code == "000000"
        assert await to_the_end(reader) == b""
        writer.write(buy(unharmed))
        assert await to_the_end(reader) == b""


async def test_who_hangs_up_in_the_middle_of_an_order_has_bought_nothing(service: Service, unharmed: ApiClient):
    request = buy(unharmed)
    for kept_back in (1, 10, 100, len(request) - 20):
        async with connection(service.url) as (_, writer):
            writer.write(request[:-kept_back])
            await writer.drain()
    await unharmed.post("/health")


async def test_many_requests_at_once_on_one_connection_are_answered_in_order_up_to_a_limit(service: Service):
    async with service.client(await service.tenant(balance="1000", qps=0)) as client:
        received = await raw_http.exchange(client.url, b"".join(buy(client) for _ in range(300)))
        *executed, refused = received
        assert {one.code for one in executed} == {"000000"} and len(executed) <= 65
        assert (refused.status, refused.code) == (400, "000102")
        assert (await client.post("/esim/order/list")).data["pager"]["total"] == len(executed)
