"""How do we POST to a stranger without being led astray, held up or flooded? (decisions 6, trust.md)

The address is judged where a socket is made for it, so that neither a name that resolves to something else the second
time nor a numeric host, which never meets a resolver, gets round the rule. Nothing of the answer is trusted: it is read
for 10 s and 16 KiB at most, not decompressed, not followed, not remembered.
"""

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from dealer_server.rules.delivery import endpoint
from dealer_server.rules.delivery.endpoint import Policy
from esim_dealer.wire.vocabulary import AttemptError

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 10.0
DNS_SECONDS = 2.0
DNS_KEPT_SECONDS = 10
MOST_LOOK_UPS = 256
IDLE_SECONDS = 4.0  # shorter than common receivers keep a connection, so that we rarely write into a closing one
MOST_READ_BYTES = 16 * 1024
HEAD_BYTES = 2 * 1024
MOST_HEADER_BYTES = 8 * 1024
USER_AGENT = "esim-dealer-webhook/1"
GONE = 410


class Answer(msgspec.Struct, frozen=True):
    """What came of one POST. `error` is None for a success, else one short word (webhook_attempt.error)."""

    error: AttemptError | None
    status: int | None = None
    head: str = ""
    remote_address: str | None = None
    retry_after_seconds: float | None = None


class AddressRefused(OSError):
    """The address to be dialled is not one that webhooks may go to."""

    def __init__(self) -> None:
        super().__init__("address not allowed")  # always the same words: aiohttp then raises it as it is


class Outbound:
    """The HTTP client for receivers, one per process: `async with Outbound(policy) as outbound`.

    Connections are kept per host, without a limit of their own: the cap of attempts in flight per tenant is one.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        resolver: AbstractResolver | None = None,
        trust: ssl.SSLContext | None = None,
        total_seconds: float = TOTAL_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ):
        self._policy = policy
        self._resolver = resolver
        self._trust = trust
        self._total_seconds = total_seconds
        self._connect_seconds = connect_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Outbound":
        self._resolver = self._resolver or Resolver()
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=IDLE_SECONDS,
            resolver=self._resolver,
            ttl_dns_cache=DNS_KEPT_SECONDS,
            ssl=self._trust or _verifying(),
            socket_factory=partial(checked_socket, self._policy),
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(
                total=self._total_seconds,
                sock_connect=self._connect_seconds,
                ceil_threshold=2 * TOTAL_SECONDS,  # deadlines are not rounded up to whole seconds
            ),
            response_class=_Response,
            auto_decompress=False,
            trust_env=False,
            read_bufsize=MOST_READ_BYTES,
            max_line_size=MOST_HEADER_BYTES,
            max_field_size=MOST_HEADER_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        if self._resolver is not None:
            await self._resolver.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], now: datetime) -> Answer:
        """Sends `body` once. Never raises for what a receiver does; `now` reads a Retry-After that is a date."""
        assert self._session is not None, "used outside `async with`"
        target = target_of(url, self._policy)
        if target is None:
            return Answer("ADDRESS_REFUSED")
        response: _Response | None = None
        try:
            async with self._session.post(target, data=body, headers=headers, allow_redirects=False) as opened:
                assert isinstance(opened, _Response)
                response = opened
                head = await _head(response)
        except Exception as error:
            word = error_word(error)
            return Answer(word) if response is None else Answer(word, response.status, "", response.remote_address)
        status = response.status
        return Answer(
            status_word(status),
            status,
            head,
            response.remote_address,
            None if 200 <= status < 300 else retry_after_seconds(response.headers.get("Retry-After"), now),
        )


class _Response(aiohttp.ClientResponse):
    """Remembers who answered: a short answer's connection is back in its pool before anyone could ask."""

    remote_address: str | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        peer = connection.transport.get_extra_info("peername")
        self.remote_address = peer[0] if peer else None
        return await super().start(connection)


async def _head(response: aiohttp.ClientResponse) -> str:
    """The beginning of the answer as text; what follows the first 16 KiB is never read."""
    content = response.content
    head = read = b""
    size = 0
    while size < MOST_READ_BYTES:
        read = await content.readany()
        if not read:
            break
        size += len(read)
        if len(head) < HEAD_BYTES:
            head += read[: HEAD_BYTES - len(head)]
    else:
        response.close()
    return head.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")


def status_word(status: int) -> AttemptError | None:
    if 200 <= status < 300:
        return None
    if status == GONE:
        return "GONE"
    return "REDIRECT" if 300 <= status < 400 else "STATUS"


def error_word(error: BaseException) -> AttemptError:
    """Which kind of failure an exception of aiohttp stands for."""
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, AddressRefused):
            return "ADDRESS_REFUSED"
        if error.os_error.errno in _OURS:
            return "INTERNAL"
        if isinstance(error.os_error, ConnectionResetError):  # in the middle of the TLS handshake
            return "RESET"
    for kind, word in _WORDS:
        if isinstance(error, kind):
            return word
    return "INTERNAL"


# This machine has no socket to give; the receiver has not failed.
_OURS = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
_WORDS: tuple[tuple[type[BaseException], AttemptError], ...] = (
    (TimeoutError, "TIMEOUT"),
    (aiohttp.ClientConnectorDNSError, "DNS"),
    (aiohttp.ClientSSLError, "TLS"),
    (ssl.SSLError, "TLS"),
    (aiohttp.ClientConnectorError, "CONNECT"),
    (aiohttp.ServerDisconnectedError, "RESET"),
    (aiohttp.ClientOSError, "RESET"),
    (aiohttp.ClientPayloadError, "RESET"),
    (aiohttp.ClientResponseError, "PROTOCOL"),
    (aiohttp.InvalidURL, "ADDRESS_REFUSED"),
    (aiohttp.ClientError, "PROTOCOL"),
    (OSError, "RESET"),
)


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """A Retry-After header, in seconds or as a date; None where it is absent or neither."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds(), 0.0)


@lru_cache(maxsize=10_000)
def target_of(url: str, policy: Policy) -> URL | None:
    """The URL exactly as the dealer wrote it; None where the rules, which may have changed since, refuse it."""
    return None if endpoint.fault(url, policy) else URL(url, encoded=True)


def checked_socket(policy: Policy, address: tuple[Any, ...]) -> socket.socket:
    """A socket for this entry of getaddrinfo. Raises AddressRefused."""
    family, kind, protocol, _, destination = address
    if not endpoint.address_allowed(destination[0], policy):
        raise AddressRefused
    return socket.socket(family, kind, protocol)


def _verifying() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


class Resolver(AbstractResolver):
    """getaddrinfo in threads, 2 s at most for whoever waits, and one look-up at a time per name.

    A look-up cannot be broken off: one that hangs holds its thread, for its own name alone, and not the process's exit.
    """

    def __init__(self, look_up: Callable[..., list[Any]] = socket.getaddrinfo, seconds: float = DNS_SECONDS):
        self._look_up = look_up
        self._seconds = seconds
        self._running: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError, which aiohttp takes for a name that does not resolve."""
        found = self._running.get((host, port))
        if found is None:
            found = self._begin(host, port, family)
        try:
            async with asyncio.timeout(self._seconds):
                entries = await asyncio.shield(found)
        except TimeoutError:
            raise OSError(f"looking up {host} took longer than {self._seconds:g} s") from None
        except UnicodeError:
            raise OSError(f"{host} cannot be looked up") from None
        return [
            ResolveResult(
                hostname=host, host=entry[4][0], port=port, family=entry[0], proto=entry[2], flags=socket.AI_NUMERICHOST
            )
            for entry in entries
        ]

    async def close(self) -> None:
        """Nothing is kept open."""

    def _begin(self, host: str, port: int, family: int) -> asyncio.Future[list[Any]]:
        if len(self._running) >= MOST_LOOK_UPS:
            raise OSError("too many look-ups hang")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Any]] = loop.create_future()
        self._running[host, port] = found

        def ended(entries: list[Any], error: Exception | None) -> None:
            del self._running[host, port]
            if error is None:
                found.set_result(entries)
            else:
                found.set_exception(error)
                found.exception()  # whoever waited may have gone

        def look_up() -> None:
            entries: list[Any] = []
            error: Exception | None = None
            try:
                entries = self._look_up(host, port, family, socket.SOCK_STREAM)
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop may have closed meanwhile
                loop.call_soon_threadsafe(ended, entries, error)

        threading.Thread(target=look_up, name="webhook-dns", daemon=True).start()
        return found
