"""Did the service really send this webhook, and what does it say? (specification 5.6 and 6.5)

    event = verify(request.headers, raw_body, app_secret)

Verified on the raw bytes, before anything is parsed. Then store it, answer 200 at once and work afterwards; an event
whose `dedupe_key` was seen before is a repetition. `esim_dealer.inbox` does that storing.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from esim_dealer.decoding import decode
from esim_dealer.errors import MalformedWebhook, SignatureMismatch, StaleTimestamp
from esim_dealer.headers import Headers, Received
from esim_dealer.wire import signing
from esim_dealer.wire.notices import NoticeBody
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType, NoticeType, Open

TOLERANCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Event:
    """A verified webhook. `snapshot` is the whole order, to replace the local one; `hints` say what changed.

    Never let an event with a smaller `order_version` overwrite the snapshot of a greater one; an Inbox marks such an
    event `stale`. `attempt` counts the deliveries of this event from 1; a service without the additive headers leaves
    these and `delivery_id` None. `raw_body` are the bytes that were signed.
    """

    event_type: Open[EventType]
    snapshot: Snapshot
    hints: tuple[Open[ChangeHint], ...]
    delivery_id: str | None
    attempt: int | None
    order_version: int | None
    is_test: bool
    request_id: str
    raw_body: bytes = field(default=b"", repr=False)
    stale: bool = False

    @property
    def dedupe_key(self) -> tuple[str, Open[EventType], str | None]:
        """orderNo, eventType and RT-Delivery-ID: the same for each repetition, and for nothing else."""
        return self.snapshot.order_no, self.event_type, self.delivery_id

    @classmethod
    def read(
        cls,
        raw_body: bytes,
        *,
        delivery_id: str | None,
        attempt: int | None,
        order_version: int | None,
        is_test: bool,
        request_id: str,
        stale: bool = False,
    ) -> "Event":
        """The event in a body whose signature was found true. Raises MalformedWebhook where there is none."""
        try:
            snapshot = decode(raw_body, Snapshot)
        except msgspec.DecodeError as error:
            message = f"truly signed, but not an order snapshot: {error}"
            raise MalformedWebhook(message, request_id=request_id) from error
        if not snapshot.event_type:
            raise MalformedWebhook("truly signed, but without eventType", request_id=request_id)
        return cls(
            event_type=snapshot.event_type,
            snapshot=snapshot,
            hints=snapshot.change_hints or (),
            delivery_id=delivery_id,
            attempt=attempt,
            order_version=order_version,
            is_test=is_test,
            request_id=request_id,
            raw_body=raw_body,
            stale=stale,
        )


@dataclass(frozen=True, slots=True)
class Notice:
    """A verified notice (specification 6.8). One whose `notice_id` was seen before is a repetition. A newer
    service may send types that NoticeType does not have: pass over them."""

    notice_type: Open[NoticeType]
    notice_id: str
    create_time: datetime
    data: Mapping[str, Any]
    attempt: int | None
    is_test: bool
    request_id: str
    raw_body: bytes = field(default=b"", repr=False)


def verify(
    headers: Headers,
    raw_body: bytes,
    secret: str,
    *,
    previous_secret: str | None = None,
    app_key: str | None = None,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> Event:
    """The event in a webhook request, once its signature is found true.

    `raw_body` are the bytes as received. During a secret reset either side may change first: X-Signature-Previous
    is accepted beside X-Signature, and `previous_secret` beside `secret`. `app_key`, if given, must be RT-AccessCode.
    `now` is in seconds since the epoch. Raises MalformedWebhook, StaleTimestamp or SignatureMismatch.
    """
    return read_event(*_verified(headers, raw_body, secret, previous_secret, app_key, tolerance_seconds, now))


def verify_notice(
    headers: Headers,
    raw_body: bytes,
    secret: str,
    *,
    previous_secret: str | None = None,
    app_key: str | None = None,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> Notice:
    """The notice in a request to the notice URL, once its signature is found true. As `verify`, which see."""
    received, request_id, body = _verified(headers, raw_body, secret, previous_secret, app_key, tolerance_seconds, now)
    try:
        read = decode(body, NoticeBody)
    except msgspec.DecodeError as error:
        raise MalformedWebhook(f"truly signed, but not a notice: {error}", request_id=request_id) from error
    return Notice(
        notice_type=read.notice_type,
        notice_id=read.notice_id,
        create_time=read.create_time,
        data=read.data,
        attempt=received.number(signing.DELIVERY_ATTEMPT),
        is_test=received.get(signing.TEST) == "true",
        request_id=request_id,
        raw_body=body,
    )


def _verified(
    headers: Headers,
    raw_body: bytes,
    secret: str,
    previous_secret: str | None,
    app_key: str | None,
    tolerance_seconds: float,
    now: float | None,
) -> tuple[Received, str, bytes]:
    """The headers, the request id and the bytes of a request whose signature is true."""
    if not isinstance(raw_body, bytes | bytearray | memoryview):
        raise TypeError("raw_body must be the bytes as received: parsing and writing them again breaks the signature")
    body = bytes(raw_body)
    received = Received.of(headers)
    timestamp, request_id, access_code = received.timestamp(), received.request_id(), received.access_code()
    signatures = received.signatures()
    if app_key is not None and access_code != app_key:
        raise SignatureMismatch(f"signed for AppKey {access_code}, not {app_key}", request_id=request_id)
    late = staleness(timestamp, time.time() if now is None else now, tolerance_seconds)
    if late:
        raise StaleTimestamp(late, request_id=request_id)
    expected = [
        signing.signature(key.encode(), timestamp.encode(), request_id.encode(), access_code.encode(), body)
        for key in (secret, previous_secret)
        if key is not None
    ]
    if not any(signing.matches(ours, theirs) for ours in expected for theirs in signatures.values()):
        raise SignatureMismatch(
            f"the signature does not fit the body of {len(body)} bytes: another AppSecret, or not the raw bytes",
            request_id=request_id,
        )
    return received, request_id, body


def staleness(timestamp: str, now: float, tolerance_seconds: float) -> str | None:
    """What is wrong with the age of an RT-Timestamp, if anything."""
    age = now - int(timestamp) / 1000
    if abs(age) <= tolerance_seconds:
        return None
    when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s in the future"
    return f"signed {when}, {tolerance_seconds:g} s are allowed"


def read_event(received: Received, request_id: str, body: bytes) -> Event:
    """The event that headers and body make up. Raises MalformedWebhook."""
    return Event.read(
        body,
        delivery_id=received.get(signing.DELIVERY_ID),
        attempt=received.number(signing.DELIVERY_ATTEMPT),
        order_version=received.number(signing.ORDER_VERSION),
        is_test=received.get(signing.TEST) == "true",
        request_id=request_id,
    )
