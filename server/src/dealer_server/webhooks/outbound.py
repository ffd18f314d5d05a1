"""How is a request posted to a receiver that is not trusted? (specification 6.7)

To public addresses only. At most 16 KiB of the answer are read, within 10 s; it is not decompressed, redirects are not
followed, cookies are not kept.
"""

import asyncio
import errno
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.webhooks.http_client.connection import Connection, Disconnected, Malformed
from dealer_server.webhooks.http_client.connector import AddressRefused, Connector, NameNotFound
from dealer_server.webhooks.http_client.pool import Pool
from dealer_server.webhooks.http_client.resolver import AddressResolver, Resolver
from dealer_server.webhooks.http_client.target import target_of
from esim_dealer.wire.vocabulary import AttemptError

CONNECT_SECONDS = 3.0
TOTAL_SECONDS = 10.0
GONE = 410
FIELDS_CHARACTERS = 1024


class Answer(msgspec.Struct, frozen=True):
    """The result of one POST."""

    error: AttemptError | None  # None for success
    status: int | None = None
    head: str = ""  # the first 2 KiB of the body
    remote_address: str | None = None
    retry_after_seconds: float | None = None
    fields: str = ""  # of the header, one a line, where it is no success


class Outbound:
    """The HTTP client for receivers, one per process: `async with Outbound(policy) as outbound`."""

    def __init__(
        self,
        policy: Policy,
        *,
        resolver: AddressResolver | None = None,
        trust: ssl.SSLContext | None = None,
        total_seconds: float = TOTAL_SECONDS,
        connect_seconds: float = CONNECT_SECONDS,
    ):
        self._policy = policy
        self._resolver = resolver
        self._trust = trust
        self._total_seconds = total_seconds
        self._connect_seconds = connect_seconds
        self._pool: Pool | None = None

    async def __aenter__(self) -> "Outbound":
        resolver = self._resolver or Resolver()
        self._pool = Pool(Connector(self._policy, resolver, self._trust, self._connect_seconds))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pool is not None:
            await self._pool.close()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], now: datetime) -> Answer:
        """Sends `body` once. Never raises for what a receiver does; `now` reads a Retry-After that is a date."""
        assert self._pool is not None, "used outside `async with`"
        target = target_of(url, self._policy)
        if target is None:
            return Answer("ADDRESS_REFUSED")
        connection: Connection | None = None
        try:
            request = target.request(headers, body)
            async with asyncio.timeout(self._total_seconds):
                connection = await self._pool.take(target)
                await connection.exchange(request)
            return answer_of(connection, now)
        except Exception as failure:
            error = error_of(failure)
            if connection is None or connection.status is None:
                return Answer(error)
            return Answer(error, status=connection.status, remote_address=connection.remote_address)
        finally:
            if connection is not None:
                self._pool.give_back(target, connection)


def answer_of(connection: Connection, now: datetime) -> Answer:
    """The answer that has arrived on a connection."""
    status = connection.status
    assert status is not None
    error, retry_after = error_of_status(status), connection.retry_after
    return Answer(
        error=error,
        status=status,
        head=connection.head.decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        remote_address=connection.remote_address,
        retry_after_seconds=retry_after_seconds(retry_after.decode("latin-1").strip(), now)
        if error and retry_after
        else None,
        fields=_fields(connection.fields) if error else "",
    )


def _fields(fields: Sequence[tuple[bytes, bytes]]) -> str:
    """Names and values for people, FIELDS_CHARACTERS at most; those of cookies are secrets."""
    lines = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields]
    text = "\n".join(f"{name}: {'…' if name.lower() == 'set-cookie' else value.strip()}" for name, value in lines)
    return text[:FIELDS_CHARACTERS]


def error_of_status(status: int) -> AttemptError | None:
    if 200 <= status < 300:
        return None
    if status == GONE:
        return "GONE"
    return "REDIRECT" if 300 <= status < 400 else "STATUS"


def error_of(failure: Exception) -> AttemptError:
    """The AttemptError of what opening a connection or an exchange on it raised."""
    if isinstance(failure, OSError) and failure.errno in _NO_SOCKET:
        return "INTERNAL"
    if isinstance(failure, TimeoutError) and failure.errno is not None:
        return "CONNECT"  # the operating system gave up, before we did
    for kind, error in _ERRORS:
        if isinstance(failure, kind):
            return error
    return "INTERNAL"


# This machine has no free socket; the receiver has not failed.
_NO_SOCKET = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL))
_ERRORS: tuple[tuple[type[Exception], AttemptError], ...] = (
    (NameNotFound, "DNS"),
    (AddressRefused, "ADDRESS_REFUSED"),
    (TimeoutError, "TIMEOUT"),
    (ssl.SSLError, "TLS"),
    (ConnectionResetError, "RESET"),  # in the middle of the TLS handshake
    (OSError, "CONNECT"),
    (Disconnected, "RESET"),
    (Malformed, "PROTOCOL"),
)


def retry_after_seconds(value: str | None, now: datetime) -> float | None:
    """A Retry-After header, in seconds or as a date; None where it is absent or neither."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(((at if at.tzinfo else at.replace(tzinfo=UTC)) - now).total_seconds(), 0.0)
