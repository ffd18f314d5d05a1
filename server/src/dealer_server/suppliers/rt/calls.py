"""How is a reseller API of the RT-* family called? Signed, and no more often than it allows."""

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Annotated, Any

import aiohttp
import msgspec
from msgspec import Meta

from dealer_server.rules.access import access
from dealer_server.suppliers.connecting import why_unreached
from dealer_server.suppliers.rate_limiter import RateLimiter
from dealer_server.suppliers.rt import parsing
from dealer_server.suppliers.rt.parsing import RtAnswer
from esim_dealer.wire import signing

PATH = "/api/v1/open/"
IDLE_SECONDS = 4.0  # shorter than common servers keep a connection, so that we rarely write into a closing one
MOST_BYTES = 32 * 1024 * 1024  # a whole catalogue with its networks has some
BUSY = "429"
_SAYS_NOTHING = ("000001", "900001")  # "busy" does not say whether an order had been taken by then


class RtSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """`access_code`, `secret_key`: what calls are signed with. `per_second`, `parallel`: calls, per process.

    `settle_seconds`: how long after an answer was missed an order that is not listed may still turn up. `sender_ips`:
    the addresses or networks its webhooks may come from; empty: any.
    """

    base_url: Annotated[str, Meta(pattern=r"^https?://[^\s?#@]+$")]
    access_code: Annotated[str, Meta(pattern=r"^[!-~]{1,128}$")]
    secret_key: Annotated[str, Meta(min_length=1, max_length=256)]
    per_second: Annotated[float, Meta(gt=0)] = 8.0
    parallel: Annotated[int, Meta(ge=1, le=64)] = 8
    connect_seconds: Annotated[float, Meta(gt=0, le=10)] = 3.0
    read_seconds: Annotated[float, Meta(gt=0, le=35)] = 30.0
    settle_seconds: Annotated[float, Meta(ge=0, le=3_600)] = 60.0
    sender_ips: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            access.networks(self.sender_ips)
        except ValueError as error:
            raise ValueError(f"senderIps must be addresses or networks: {error}") from None

    def __repr__(self) -> str:
        return f"RtSettings(base_url={self.base_url!r})"


class NotSent(Exception):
    """The supplier was not reached: surely the call had no effect. The text holds no secret."""


class NoAnswer(Exception):
    """Nobody knows whether the call had an effect. The text holds no secret."""


class Calls:
    """`call` may run side by side: as many at a time and a second as the settings say."""

    def __init__(self, settings: RtSettings):
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.parallel)
        self._rate_limiter = RateLimiter(settings.per_second)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(self, operation: str, content: Mapping[str, Any]) -> RtAnswer:
        """One POST. Too many calls, whatever the body, are a failure with the code BUSY. Raises NotSent, NoAnswer."""
        body = msgspec.json.encode(content)
        url = self._settings.base_url.rstrip("/") + PATH + operation
        try:
            async with self._slots:
                await self._rate_limiter.wait()
                async with self._opened().post(
                    url, data=body, headers=self._headers(body), allow_redirects=False
                ) as answer:
                    return _said(answer.status, await _text(answer))
        except NoAnswer as error:
            raise NoAnswer(f"{operation}: {error}") from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(f"{operation}: {why_unreached(error)}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswer(f"{operation}: {type(error).__name__}") from None

    def _headers(self, body: bytes) -> dict[str, str]:
        timestamp, request_id, code = str(time.time_ns() // 1_000_000), uuid.uuid4().hex, self._settings.access_code
        secret = self._settings.secret_key.encode()
        return {
            "Content-Type": "application/json",
            signing.ACCESS_CODE: code,
            signing.REQUEST_ID: request_id,
            signing.TIMESTAMP: timestamp,
            signing.SIGNATURE_ALIAS: signing.signature(
                secret, timestamp.encode(), request_id.encode(), code.encode(), body
            ),
        }

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            settings = self._settings
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=settings.connect_seconds + settings.read_seconds,
                    sock_connect=settings.connect_seconds,
                    sock_read=settings.read_seconds,
                ),
                trust_env=False,
            )
        return self._session


def named(unit_ref: str | None, iccid: str | None) -> dict[str, str | None]:
    """How a call names an eSIM: as the supplier does; by its ICCID where that is not known."""
    return {"esimTranNo": unit_ref} if unit_ref else {"iccid": iccid}


async def _text(answer: aiohttp.ClientResponse) -> bytes:
    parts, size = list[bytes](), 0
    async for part in answer.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            raise NoAnswer("an answer without end")
    return b"".join(parts)


def _said(status: int, text: bytes) -> RtAnswer:
    """Raises NoAnswer where the effect of the call stays unknown."""
    if status == 429:
        return RtAnswer(BUSY, "too many calls")
    try:
        said = parsing.read(text)
    except ValueError as error:
        raise NoAnswer(f"HTTP {status}, {error}") from None
    if status >= 500 or said.code in _SAYS_NOTHING or (status >= 300 and not said.code):
        raise NoAnswer(f"HTTP {status}, {said.words}")
    return said
