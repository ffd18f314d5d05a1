"""How is a request posted to a receiver that is not trusted? (specification 6.7)

The address is checked when a socket is created for it. So a name that resolves to another address the second time
(DNS rebinding) cannot bypass the check, nor can a numeric host, which is never resolved. At most 16 KiB of the answer
are read, within 10 s; it is not decompressed, redirects are not followed, cookies are not kept.
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

from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from esim_dealer.wire.vocabulary import AttemptError

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 10.0
DNS_SECONDS = 2.0
DNS_KEPT_SECONDS = 10
MOST_LOOKUPS = 256
IDLE_SECONDS = 4.0  # less than common receivers keep a connection open, so that few requests meet a closing one
MOST_READ_BYTES = 16 * 1024
HEAD_BYTES = 2 * 1024
MOST_HEADER_BYTES = 8 * 1024
USER_AGENT = "esim-dealer-webhook/1"
GONE = 410


class Answer(msgspec.Struct, frozen=True):
    """The result of one POST."""

    error: AttemptError | None  # None for success
    status: int | None = None
    head: str = ""  # the first 2 KiB of the body
    remote_address: str | None = None
    retry_after_seconds: float | None = None


class AddressRefused(OSError):
    """Webhooks may not go to this address."""

    def __init__(self) -> None:
        super().__init__("address not allowed")  # aiohttp raises it unchanged if all addresses fail with the same text


class Outbound:
    """The HTTP client for receivers, one per process: `async with Outbound(policy) as outbound`.

    Connections are kept per host, without a limit: the cap of attempts in flight per tenant is one.
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
        except Exception as failure:
            error = error_of(failure)
            if response is None:
                return Answer(error)
            return Answer(error, status=response.status, remote_address=response.remote_address)
        status = response.status
        return Answer(
            error=error_of_status(status),
            status=status,
            head=head,
            remote_address=response.remote_address,
            retry_after_seconds=(
                None if 200 <= status < 300 else retry_after_seconds(response.headers.get("Retry-After"), now)
            ),
        )


class _Response(aiohttp.ClientResponse):
    """Keeps the remote address: after a short answer the connection is in the pool again and cannot be asked."""

    remote_address: str | None = None

    async def start(self, connection: Any) -> aiohttp.ClientResponse:
        peer = connection.transport.get_extra_info("peername")
        self.remote_address = peer[0] if peer else None
        return await super().start(connection)


async def _head(response: aiohttp.ClientResponse) -> str:
    """The first 2 KiB of the answer as text. At most 16 KiB are read; then the connection is closed."""
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


def error_of_status(status: int) -> AttemptError | None:
    if 200 <= status < 300:
        return None
    if status == GONE:
        return "GONE"
    return "REDIRECT" if 300 <= status < 400 else "STATUS"


def error_of(failure: BaseException) -> AttemptError:
    """The AttemptError of an exception of aiohttp."""
    if isinstance(failure, aiohttp.ClientConnectorError):
        if isinstance(failure.os_error, AddressRefused):
            return "ADDRESS_REFUSED"
        if failure.os_error.errno in _NO_SOCKET:
            return "INTERNAL"
        if isinstance(failure.os_error, ConnectionResetError):  # in the middle of the TLS handshake
            return "RESET"
    for kind, error in _ERRORS:
        if isinstance(failure, kind):
            return error
    return "INTERNAL"


# This machine has no free socket; the receiver has not failed.
_NO_SOCKET = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
_ERRORS: tuple[tuple[type[BaseException], AttemptError], ...] = (
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
    """The URL exactly as the dealer wrote it; None if the rules refuse it, which may have changed since it was set."""
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
    """getaddrinfo in threads: 2 s at most for each caller, and one lookup at a time per name.

    A lookup cannot be cancelled. One that hangs keeps its thread and delays neither other names nor the exit.
    """

    def __init__(self, getaddrinfo: Callable[..., list[Any]] = socket.getaddrinfo, seconds: float = DNS_SECONDS):
        self._getaddrinfo = getaddrinfo
        self._seconds = seconds
        self._running: dict[tuple[str, int], asyncio.Future[list[Any]]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError, which aiohttp turns into ClientConnectorDNSError."""
        lookup = self._running.get((host, port))
        if lookup is None:
            lookup = self._begin(host, port, family)
        try:
            async with asyncio.timeout(self._seconds):
                entries = await asyncio.shield(lookup)
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
        if len(self._running) >= MOST_LOOKUPS:
            raise OSError("too many lookups are under way")
        loop = asyncio.get_running_loop()
        lookup: asyncio.Future[list[Any]] = loop.create_future()
        self._running[host, port] = lookup

        def ended(entries: list[Any], error: Exception | None) -> None:
            del self._running[host, port]
            if error is None:
                lookup.set_result(entries)
            else:
                lookup.set_exception(error)
                lookup.exception()  # marks it as retrieved: the caller may have timed out

        def resolve() -> None:
            entries: list[Any] = []
            error: Exception | None = None
            try:
                entries = self._getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop may have closed meanwhile
                loop.call_soon_threadsafe(ended, entries, error)

        threading.Thread(target=resolve, name="webhook-dns", daemon=True).start()
        return lookup
