"""How does a call become a signed request, a reply a result or an error, and when is it tried again? No I/O.

A flow is a generator: it yields what to do (send this, pause so long), is sent what came of it, and returns the result
or raises a DealerError. `client` drives flows, once with blocking and once with asynchronous I/O.
"""

import itertools
import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from esim_dealer import errors
from esim_dealer.decoding import decode, decoder
from esim_dealer.errors import DealerError
from esim_dealer.operations import Call
from esim_dealer.wire import signing
from esim_dealer.wire.calls import PREFIX, PlaceOrder, RechargeProfile, RefundOrder
from esim_dealer.wire.envelope import OpenEnvelope
from esim_dealer.wire.operations import Operation
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import SUCCESS

log = logging.getLogger("esim_dealer")

T = TypeVar("T", bound=msgspec.Struct)


# What a flow yields, and what it is sent


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """To be POSTed exactly so: the signature covers the bytes."""

    url: str
    headers: dict[str, str]
    body: bytes
    timeout_seconds: float

    @property
    def request_id(self) -> str:
        return self.headers[signing.REQUEST_ID]


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What the service, or something before it, answered. `headers` are looked up without regard to case."""

    http_status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class NoReply:
    """Nothing came back, because of `cause`. `sent` is false where the request certainly never left."""

    cause: Exception
    sent: bool


Flow = Generator[SignedRequest | Pause, Reply | NoReply | None, T]


# Signing and reading


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who calls (specification 2.1). The secret appears in no repr."""

    app_key: str
    app_secret: str = field(repr=False)


def sign(
    url: str, body: bytes, credentials: Credentials, *, now_ms: int, request_id: str, timeout_seconds: float
) -> SignedRequest:
    """The request to POST, signed for this one attempt (specification 5)."""
    headers = signing.signed_headers(
        credentials.app_key, credentials.app_secret.encode(), body, timestamp_ms=now_ms, request_id=request_id
    )
    return SignedRequest(url, headers, body, timeout_seconds)


def read(operation: Operation[Any, T], request_id: str, reply: Reply | NoReply) -> T | DealerError:
    """The result, or the error (not raised) that this reply means."""
    if isinstance(reply, NoReply):
        return _connection_failed(request_id, reply)
    known = {
        "request_id": request_id,
        "trace_id": reply.headers.get(signing.TRACE_ID),
        "http_status": reply.http_status,
        "retry_after": _seconds(reply.headers.get("Retry-After")),
    }
    try:
        envelope = decoder(OpenEnvelope).decode(reply.body)
        data = msgspec.json.decode(envelope.data, type=dict[str, Any])
    except msgspec.DecodeError:
        return errors.UnreadableAnswer(_no_envelope(reply), **known)
    if envelope.code != SUCCESS:
        return errors.class_of(envelope.code, data)(envelope.message, code=envelope.code, data=data, **known)
    try:
        return decode(envelope.data, operation.answer)
    except msgspec.DecodeError as unfit:
        message = f"the call succeeded, but its answer is not understood: {unfit}"
        return errors.UnreadableAnswer(message, code=SUCCESS, data=data, **known)


def _connection_failed(request_id: str, reply: NoReply) -> errors.ConnectionFailed:
    reason = str(reply.cause) or type(reply.cause).__name__
    error = errors.ConnectionFailed(f"no answer from the service: {reason}", request_id=request_id)
    error.sent = reply.sent
    error.__cause__ = reply.cause
    return error


def _no_envelope(reply: Reply) -> str:
    kind = reply.headers.get("Content-Type", "no content type")
    return f"HTTP {reply.http_status} ({kind}) without the service's envelope: is the base address right?"


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is left to our own backoff."""
    return float(retry_after) if retry_after and retry_after.isascii() and retry_after.isdigit() else None


def server_time(data: Mapping[str, Any]) -> float | None:
    """`data.serverTime` of a 101001 as seconds since the epoch: integer milliseconds, or RFC 3339."""
    given: Any = data.get("serverTime")
    if re.fullmatch("[0-9]{13}", str(given)):
        return int(given) / 1000
    try:
        return msgspec.convert(given, datetime).timestamp()
    except msgspec.ValidationError:
        return None


# Trying again


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a call is tried again. No new attempt starts `deadline_seconds` after the call began."""

    retries: int = 3
    deadline_seconds: float = 60.0
    first_delay_seconds: float = 0.25
    longest_delay_seconds: float = 8.0


def retry_delay(policy: RetryPolicy, attempt: int, error: DealerError, fraction: float) -> float | None:
    """How long to wait before attempt number `attempt` + 1, or None: give up. `fraction` is random, in 0..1.

    Every call is safe to repeat: it carries a fresh RT-RequestID, and an order its own transactionId, of which the
    service makes at most one order (specification 4.2).
    """
    if not error.transient or attempt > policy.retries:
        return None
    backoff = min(policy.longest_delay_seconds, policy.first_delay_seconds * 2 ** (attempt - 1)) * (1 + fraction) / 2
    return max(backoff, (error.retry_after or 0) + policy.first_delay_seconds * fraction)


def settles(error: DealerError) -> bool:
    """Whether an error tells the outcome of earlier attempts too.

    Business refusals do: the service looks a transactionId up before it refuses (specification 4.2). A refusal by
    authentication says nothing about an earlier attempt without an answer.
    """
    return error.code is not None and (error.code == SUCCESS or error.code[0] in "23")


# Waiting for delivery


def delivered(snapshot: Snapshot) -> bool:
    """Whether every eSIM of the order is there.

    Raises DeliveryFailed once none will come any more: FAILED, or an order that has ended (all of it refunded, or
    cancelled before delivery) without having been DELIVERED (specification 3.2).
    """
    if snapshot.delivery_status == "DELIVERED":
        return True
    if snapshot.delivery_status == "FAILED" or snapshot.order_status in ("COMPLETED", "REFUNDED"):
        failed = errors.DeliveryFailed(f"not delivered: {_state(snapshot)}")
        failed.snapshot = snapshot
        raise failed
    return False


def refund_settled(snapshot: Snapshot) -> bool:
    """Whether no refund of the order is in progress any more: credited or rejected (specification 3.2)."""
    return snapshot.order_status != "REFUNDING"


def _state(snapshot: Snapshot) -> str:
    return f"{snapshot.order_no} has deliveryStatus {snapshot.delivery_status}, orderStatus {snapshot.order_status}"


LONGEST_POLL_SECONDS = 5.0


# The exchange itself


@dataclass(frozen=True, slots=True)
class Clock:
    """Time, chance and ids as a flow asks for them."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    fraction: Callable[[], float] = random.random
    request_id: Callable[[], str] = lambda: str(uuid.uuid4())


class Exchange:
    """All calls of one dealer to one service. Remembers how far the service's clock is from ours."""

    def __init__(
        self, url: str, credentials: Credentials, retry: RetryPolicy, timeout_seconds: float, clock: Clock
    ) -> None:
        """Raises NotConfigured for an address that is no http(s) URL."""
        self.url = _base_address(url)
        self.credentials = credentials
        self.retry = retry
        self.timeout_seconds = timeout_seconds
        self.clock = clock
        self.clock_offset_seconds = 0.0

    def perform(self, call: Call[T], within_seconds: float | None = None) -> Flow[T]:
        """Send the call, again where that may help, and return its result. Raises the DealerError that remains."""
        limit = self.retry.deadline_seconds if within_seconds is None else within_seconds
        deadline = self.clock.monotonic() + limit
        body = msgspec.json.encode(call.request)
        unsettled = corrected = False
        attempt = 1
        while True:
            result = yield from self._attempt(call, body, deadline)
            if not isinstance(result, DealerError):
                return result
            unsettled = (unsettled or result.unsettled) and not settles(result)
            if isinstance(result, errors.ClockSkew) and not corrected and self._correct_clock(result):
                corrected = True
                continue
            delay = retry_delay(self.retry, attempt, result, self.clock.fraction())
            if delay is None or self.clock.monotonic() + delay > deadline:
                raise _final(call, result, unsettled)
            log.info("%s: attempt %d failed, next in %.2f s: %s", call.operation.path, attempt, delay, result)
            yield Pause(delay)
            attempt += 1

    def wait(
        self,
        query: Call[Snapshot],
        timeout_seconds: float,
        poll_seconds: float,
        until: Callable[[Snapshot], bool] = delivered,
        awaited: str = "delivered",
    ) -> Flow[Snapshot]:
        """Query the order at growing intervals until it is delivered, or what else `until` says, in a word `awaited`.

        Raises DeliveryFailed, DeliveryTimedOut, or what a query raises; but a service that is away for a moment does
        not end the wait.
        """
        deadline = self.clock.monotonic() + timeout_seconds
        latest: Snapshot | None = None
        for poll in itertools.count():
            pause = min(poll_seconds * 2 ** min(poll, 16), max(poll_seconds, LONGEST_POLL_SECONDS))
            failure: DealerError | None = None
            try:
                latest = yield from self.perform(query, within_seconds=deadline - self.clock.monotonic())
                if until(latest):
                    return latest
            except DealerError as error:
                if not error.transient:
                    raise
                failure, pause = error, max(pause, error.retry_after or 0)
            remaining = deadline - self.clock.monotonic()
            if remaining <= 0:
                raise _timed_out(latest, timeout_seconds, awaited) from failure
            yield Pause(min(pause, remaining))
        raise AssertionError("unreachable")

    def _attempt(
        self, call: Call[T], body: bytes, deadline: float
    ) -> Generator[SignedRequest, Reply | NoReply | None, T | DealerError]:
        now_ms = int((self.clock.now() + self.clock_offset_seconds) * 1000)
        remaining = deadline - self.clock.monotonic()
        request = sign(
            self.url + call.operation.path,
            body,
            self.credentials,
            now_ms=now_ms,
            request_id=self.clock.request_id(),
            timeout_seconds=min(self.timeout_seconds, max(remaining, 1.0)),
        )
        reply = yield request
        assert reply is not None, "a request is answered with a Reply or a NoReply"
        return read(call.operation, request.request_id, reply)

    def _correct_clock(self, skew: errors.ClockSkew) -> bool:
        """Adopt the service's time; whether it was told."""
        theirs = server_time(skew.data)
        if theirs is None:
            return False
        self.clock_offset_seconds = theirs - self.clock.now()
        log.warning("this machine's clock differs from the service's by %.0f s; corrected", self.clock_offset_seconds)
        return True


def _base_address(url: str) -> str:
    address = url.strip().rstrip("/").removesuffix(PREFIX)
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise errors.NotConfigured("the base address must be an http(s) URL, such as https://api.example.com")
    return address + PREFIX


def _final(call: Call[Any], last: DealerError, unsettled: bool) -> DealerError:
    """The error to raise: the last one, unless money may have moved without our knowing."""
    match call.request if unsettled else None:
        case PlaceOrder(transaction_id=transaction_id) | RechargeProfile(transaction_id=transaction_id):
            what = f"Order {transaction_id} may or may not have been placed: repeat it with the same transactionId"
        case RefundOrder(refund_transaction_id=str(transaction_id)):
            what = f"Refund {transaction_id} may or may not have been made: repeat it with the same refundTransactionId"
        case _:
            return last
    unknown = errors.OutcomeUnknown(
        f"{last.message.rstrip('.')}. {what} or query it",
        code=last.code,
        request_id=last.request_id,
        trace_id=last.trace_id,
        http_status=last.http_status,
        data=last.data,
        retry_after=last.retry_after,
    )
    unknown.transaction_id = transaction_id
    unknown.__cause__ = last
    return unknown


def _timed_out(latest: Snapshot | None, timeout_seconds: float, awaited: str) -> errors.DeliveryTimedOut:
    state = _state(latest) if latest else "the order could not be queried"
    error = errors.DeliveryTimedOut(f"not {awaited} within {timeout_seconds:g} s: {state}")
    error.snapshot = latest
    return error
