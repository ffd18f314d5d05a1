"""Answers of every shape, in pieces of every size: what counts as the answer, when is its connection used again?"""

import asyncio
import itertools
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dealer_server.webhooks.outbound import Answer, Outbound
from support.webhook_fixture import (
    LOOPBACK,
    OK,
    PATIENCE,
    Answering,
    Receiver,
    Request,
    answer,
    hang,
    hang_until_left,
    listening,
)

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED = LINE + b"Transfer-Encoding: chunked\r\n\r\n"
CONTINUE, HINTS = b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nRetry-After: 9\r\n\r\n"
FOUND = "127.0.0.1"

ANSWERS = {
    "length": (OK, Answer(None, 200, "ok", FOUND)),
    "empty": (answer(201), Answer(None, 201, "", FOUND)),
    "chunks": (CHUNKED + b"2\r\nok\r\n1;x=y\r\n!\r\n0\r\n\r\n", Answer(None, 200, "ok!", FOUND)),
    "trailers": (
        b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nX: y\r\nRetry-After: 9\r\n\r\n",
        Answer("STATUS", 503, "no", FOUND),
    ),
    "100 and 103 before it": (CONTINUE + HINTS + CONTINUE + OK, Answer(None, 200, "ok", FOUND)),
    "a hint's Retry-After is not the answer's": (HINTS + answer(503), Answer("STATUS", 503, "", FOUND)),
    "Retry-After": (answer(503, "retry-AFTER:  20 ", "Retry-After: 30"), Answer("STATUS", 503, "", FOUND, 20.0)),
    "no body by its status": (b"HTTP/1.1 204 X\r\n\r\n", Answer(None, 204, "", FOUND)),
    "304 with a length": (b"HTTP/1.1 304 X\r\nContent-Length: 5\r\n\r\n", Answer("REDIRECT", 304, "", FOUND)),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Answer(None, 200, "ok", FOUND)),
    "lines end with LF": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", Answer(None, 200, "ok", FOUND)),
    "another protocol": (
        b"HTTP/1.1 101 X\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        Answer("STATUS", 101, "", FOUND),
    ),
    "two lengths": (LINE + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok", Answer("PROTOCOL")),
    "length and chunks": (
        LINE + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Answer("PROTOCOL"),
    ),
    "NUL in a field": (LINE + b"X: \x00\r\nContent-Length: 2\r\n\r\nok", Answer("PROTOCOL")),
    "chunk without a size": (CHUNKED + b"x\r\nok\r\n0\r\n\r\n", Answer("PROTOCOL", 200, "", FOUND)),
}


async def post(client: Outbound, url: str, body: bytes = b"{}") -> Answer:
    """Without the fields of its header, which have a test of their own."""
    async with asyncio.timeout(PATIENCE):
        got = await client.post(url, body, {"X-Number": "1"}, NOW)
    return msgspec.structs.replace(got, fields="")


async def posts(receiver: Receiver, count: int = 2, **options: Any) -> list[Answer]:
    """The answers to posts one after the other."""
    no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading them takes longer than the posts
    async with Outbound(LOOPBACK, trust=no_authorities, **options) as client:
        return [await post(client, receiver.url) for _ in range(count)]


def in_pieces(whole: bytes, cuts: Sequence[int], end: bool = False) -> Answering:
    """Sends an answer in pieces that begin at the cuts; then closes the connection, if that ends the answer."""

    async def send(request: Request, writer: asyncio.StreamWriter) -> None:
        for begin, stop in itertools.pairwise([0, *sorted(cuts), len(whole)]):
            writer.write(whole[begin:stop])
            await writer.drain()
            await asyncio.sleep(0)  # the other end reads meanwhile
        if end:
            writer.close()

    return send


# What is taken for the answer


@pytest.mark.parametrize("bytewise", [False, True])
async def test_of_a_refusal_the_header_is_told_without_cookies(receiver: Receiver, bytewise: bool):
    refusal = HINTS + answer(503, "X-Trace:  b1d9 ", "set-Cookie: session=secret", f"X-Long: {'x' * 2_000}")
    for whole, first in ((refusal, "X-Trace: b1d9\nset-Cookie: …\nX-Long: x"), (OK, "")):
        receiver.answers = [in_pieces(whole, range(1, len(whole)) if bytewise else ())]
        async with Outbound(LOOPBACK) as client, asyncio.timeout(PATIENCE):
            fields = (await client.post(receiver.url, b"{}", {}, NOW)).fields
        assert first in fields and "secret" not in fields and "Link" not in fields and len(fields) <= 1_024
        assert bool(fields) == bool(first)


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("bytewise", [False, True])
async def test_answer_is_the_same_in_whatever_pieces_it_arrives(receiver: Receiver, name: str, bytewise: bool):
    whole, expected = ANSWERS[name]
    receiver.answers = [in_pieces(whole, range(1, len(whole)) if bytewise else ())]
    assert await posts(receiver) == [expected] * 2


@given(name=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 120), max_size=8), times=st.integers(1, 3))
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_answer_is_the_same_wherever_it_is_split(receiver: Receiver, name: str, cuts: list[int], times: int):
    whole, expected = ANSWERS[name]
    receiver.answers = [in_pieces(whole, [min(cut, len(whole)) for cut in cuts])]
    assert await posts(receiver, times) == [expected] * times


@pytest.mark.parametrize("cuts", [[], range(1, 60)])
@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (LINE + b"\r\nuntil I close", Answer(None, 200, "until I close", FOUND)),
        (LINE + b"Transfer-Encoding: gzip\r\n\r\nso too", Answer(None, 200, "so too", FOUND)),
        (b"HTTP/1.0 500 OK\r\nConnection: keep-alive\r\n\r\nno", Answer("STATUS", 500, "no", FOUND)),
        (LINE + b"Content-Length: 9\r\n\r\nshort", Answer("RESET", 200, "", FOUND)),
        (CHUNKED + b"5\r\nshort\r\n", Answer("RESET", 200, "", FOUND)),
        (CHUNKED, Answer("RESET", 200, "", FOUND)),
        (CONTINUE, Answer("RESET")),
        (LINE + b"Content-Le", Answer("RESET")),
        (b"", Answer("RESET")),
    ],
)
async def test_end_of_the_connection_ends_only_an_answer_without_a_length(
    receiver: Receiver, cuts: Sequence[int], whole: bytes, expected: Answer
):
    receiver.answers = [in_pieces(whole, [cut for cut in cuts if cut < len(whole)], end=True)]
    assert await posts(receiver) == [expected] * 2
    assert receiver.connections == 2


@pytest.mark.parametrize("reply", [answer(413, body=b"too large"), b"HTTP/1.1 413 X\r\n\r\ntoo large"])
async def test_answer_counts_before_the_request_is_read(reply: bytes):
    """A receiver that refuses a large body by its head. The connection is not used again."""
    connections = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        if b"Content-Length" not in reply:
            writer.write_eof()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1_024)  # the rest is not read
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with Outbound(LOOPBACK) as client:
        for _ in range(2):
            assert await post(client, url, bytes(32 * 2**20)) == Answer("STATUS", 413, "too large", FOUND)
    assert connections == 2
    server.close()


async def test_request_is_sent_though_the_answer_came_first():
    """As `nc -l` with the answer as its input does."""
    arrived = asyncio.Queue[bytes]()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        arrived.put_nowait(await reader.readuntil(b"\r\n\r\n{}"))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with Outbound(LOOPBACK) as client, asyncio.timeout(PATIENCE):
        assert await post(client, url) == Answer(None, 200, "ok", FOUND)
        assert (await arrived.get()).startswith(b"POST / HTTP/1.1\r\n")
    server.close()


# What is too much


@pytest.mark.parametrize(
    ("begin", "again", "expected"),
    [
        (LINE, b"X-More: yes\r\n", Answer("PROTOCOL")),
        (LINE + b"X-Endless: ", b"a" * 1_000, Answer("PROTOCOL")),
        (b"HTTP/1.1 200 ", b"OK " * 400, Answer("PROTOCOL")),
        (b"", CONTINUE, Answer("PROTOCOL")),
        (b"", b"\r\n" * 400, Answer("PROTOCOL")),
        (CHUNKED + b"2;", b"a" * 1_000, Answer(None, 200, "", FOUND)),
        (CHUNKED + b"2\r\nok\r\n0\r\nX-Endless: ", b"a" * 1_000, Answer(None, 200, "ok", FOUND)),
        (CHUNKED, b"1\r\nx\r\n" * 100, Answer(None, 200, "x" * 2_048, FOUND)),
        (LINE + b"\r\n", b"x" * 1_000, Answer(None, 200, "x" * 2_048, FOUND)),
    ],
)
async def test_answer_without_an_end_is_cut_off(receiver: Receiver, begin: bytes, again: bytes, expected: Answer):
    """Where the status is known, it is the answer."""

    async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            writer.write(again)
            await writer.drain()
            await asyncio.sleep(0)

    receiver.answers = [flood]
    assert await posts(receiver, total_seconds=PATIENCE) == [expected] * 2
    assert receiver.connections == 2


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ([f"X-{number}: {number}" for number in range(100)], None),
        ([f"X-{number}: {number}" for number in range(200)], "PROTOCOL"),
        (["X: " + "a" * 8_000], None),
        (["X: " + "a" * 9_000], "PROTOCOL"),
        (["X: " + "a" * 8_000] * 5, None),
        (["X: " + "a" * 8_000] * 7, "PROTOCOL"),
    ],
)
async def test_head_is_bounded(receiver: Receiver, fields: list[str], error: str | None):
    receiver.answers = [answer(200, *fields)]
    assert [one.error for one in await posts(receiver)] == [error] * 2


async def test_head_that_drips_ends_at_the_deadline(receiver: Receiver):
    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.connection is not None
        writer.write(LINE + b"X: ")
        left = asyncio.create_task(request.connection.read())
        while not left.done():
            writer.write(b".")
            await asyncio.wait([left], timeout=0.01)

    receiver.answers = [drip]
    assert await posts(receiver, total_seconds=0.2) == [Answer("TIMEOUT")] * 2


# When a connection is used again


@pytest.mark.parametrize(
    ("reply", "connections"),
    [
        (OK, 1),
        (answer(500, body=b"no"), 1),
        (b"HTTP/1.1 204 X\r\n\r\n", 1),
        (ANSWERS["chunks"][0], 1),
        (ANSWERS["trailers"][0], 1),
        (CONTINUE + HINTS + OK, 1),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 1),
        (answer(200, "Connection: close"), 3),
        (answer(200, "Connection: x, Close"), 3),
        (ANSWERS["HTTP/1.0"][0], 3),
        (ANSWERS["another protocol"][0], 3),
        (OK + b"!", 3),
        (OK + OK, 3),
        (OK + CONTINUE, 3),
        (answer(200, body=bytes(16 * 1024)), 1),
        (answer(200, body=bytes(2**20)), 3),
    ],
)
async def test_connection_is_used_again_after_a_whole_answer_and_nothing_else(
    receiver: Receiver, reply: bytes, connections: int
):
    receiver.answers = [reply]
    got = await posts(receiver, 3)
    assert got == [got[0]] * 3 and got[0].status is not None
    assert receiver.connections == connections


async def test_second_answer_to_one_request_is_not_the_answer_to_the_next(receiver: Receiver):
    receiver.answers = [answer(500, body=b"first") + answer(202, body=b"second"), answer(503, body=b"own")]
    first, second = await posts(receiver)
    assert (first.status, first.head, second.status, second.head) == (500, "first", 503, "own")
    assert receiver.connections == 2


async def test_dealers_who_share_a_host_do_not_share_connections(receiver: Receiver):
    """Whatever one of them makes the host send after his answer, it cannot reach the other's."""
    async with Outbound(LOOPBACK) as client:
        for _ in range(2):
            for path in ("/hook", "/hook2", "/hook?dealer=3"):
                await post(client, receiver.url.replace("/hook", path))
    assert receiver.connections == 3 and len(receiver.requests) == 6


@pytest.mark.parametrize("reply", [hang_until_left, in_pieces(LINE + b"Content-Length: 9\r\n\r\nshort", ())])
async def test_cancelled_post_closes_its_connection(receiver: Receiver, reply: Answering):
    left = asyncio.Event()

    async def notice(request: Request, writer: asyncio.StreamWriter) -> None:
        await reply(request, writer)
        await hang_until_left(request, writer)
        left.set()

    receiver.answers = [notice, OK]
    async with Outbound(LOOPBACK) as client, asyncio.timeout(PATIENCE):
        task = asyncio.create_task(post(client, receiver.url))
        await receiver.received(1)
        task.cancel()
        await left.wait()
        assert await asyncio.gather(task, return_exceptions=True) != [None] and task.cancelled()
        assert (await post(client, receiver.url)).error is None


async def test_all_connections_are_closed_in_the_end(receiver: Receiver):
    """Those that are idle and those in use; a post under way is reset."""
    left = asyncio.Event()

    async def stay(request: Request, writer: asyncio.StreamWriter) -> None:
        assert request.connection is not None
        writer.write(OK)
        await request.connection.read()
        left.set()

    async with listening(1) as [hanging]:
        receiver.answers, hanging.answers = [stay], [hang]
        async with Outbound(LOOPBACK) as client:
            assert (await post(client, receiver.url)).error is None
            under_way = asyncio.create_task(post(client, hanging.url))
            await hanging.received(1)
        async with asyncio.timeout(PATIENCE):
            assert await under_way == Answer("RESET")
            await left.wait()


# What is sent


@pytest.mark.parametrize("value", ["a\r\nX-Smuggled: 1", "a\nb", "a\rb", "\N{SNOWMAN}"])
async def test_header_cannot_begin_another_line(receiver: Receiver, value: str):
    async with Outbound(LOOPBACK) as client:
        assert await client.post(receiver.url, b"{}", {"X": value}, NOW) == Answer("INTERNAL")
    assert receiver.requests == []
