"""Did the service really send this webhook, and what does it say? (specification 5 rule 5 and 6.5, decisions 6)

    event = verify(request.headers, raw_body, app_secret)

Verified on the raw bytes, before anything is parsed. Then answer 200 at once and process afterwards; an event whose
`dedupe_key` was seen before is a repetition.
"""

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from esim_dealer.decoding import decode
from esim_dealer.errors import MalformedWebhook, SignatureMismatch, StaleTimestamp
from esim_dealer.wire import signing
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint, EventType


@runtime_checkable
class HeaderMapping(Protocol):
    """Headers as the frameworks hand them out: Starlette, Django, Flask, http.server, httpx2, or a plain dict."""

    def items(self) -> Iterable[tuple[str, str]]: ...


Headers = HeaderMapping | Iterable[tuple[str | bytes, str | bytes]]

_TIMESTAMP = re.compile(r"[0-9]{13}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_VISIBLE = re.compile(r"[!-~]{1,128}")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Event:
    """A verified webhook. `snapshot` is the whole order, to replace the local one; `hints` say what changed.

    Never let an event with a smaller `order_version` overwrite the snapshot of a greater one. `attempt` counts the
    deliveries of this event from 1; a service without the additive headers leaves these and `delivery_id` None.
    """

    event_type: EventType
    snapshot: Snapshot
    hints: tuple[ChangeHint, ...]
    delivery_id: str | None
    attempt: int | None
    order_version: int | None
    is_test: bool
    request_id: str

    @property
    def dedupe_key(self) -> tuple[str, EventType, str | None]:
        """orderNo, eventType and RT-Delivery-ID: the same for each repetition, and for nothing else."""
        return self.snapshot.order_no, self.event_type, self.delivery_id


def verify(
    headers: Headers,
    raw_body: bytes,
    secret: str,
    *,
    previous_secret: str | None = None,
    app_key: str | None = None,
    tolerance_seconds: float = 300,
    now: float | None = None,
) -> Event:
    """The event in a webhook request, once its signature is found true.

    `raw_body` are the bytes as received. During a secret reset either side may be first: X-Signature-Previous is
    looked at besides X-Signature, and `previous_secret` besides `secret`. `app_key`, if given, must be RT-AccessCode.
    `now` is in seconds since the epoch. Raises MalformedWebhook, StaleTimestamp or SignatureMismatch.
    """
    if not isinstance(raw_body, bytes | bytearray | memoryview):
        raise TypeError("raw_body must be the bytes as received: parsing and writing them again breaks the signature")
    body = bytes(raw_body)
    received = _Received.of(headers)
    timestamp = received.form(signing.TIMESTAMP, _TIMESTAMP, "13 digits")
    request_id = received.form(signing.REQUEST_ID, _VISIBLE, "visible ASCII")
    access_code = received.form(signing.ACCESS_CODE, _VISIBLE, "visible ASCII")
    signatures = received.signatures()
    if app_key is not None and access_code != app_key:
        raise SignatureMismatch(f"signed for AppKey {access_code}, not {app_key}", request_id=request_id)
    _check_fresh(int(timestamp) / 1000, time.time() if now is None else now, tolerance_seconds, request_id)
    expected = [
        signing.signature(key.encode(), timestamp.encode(), request_id.encode(), access_code.encode(), body)
        for key in (secret, previous_secret)
        if key is not None
    ]
    if not any(signing.matches(ours, theirs) for ours in expected for theirs in signatures):
        raise SignatureMismatch(
            f"the signature does not fit the body of {len(body)} bytes: another AppSecret, or not the raw bytes",
            request_id=request_id,
        )
    return _event(received, request_id, body)


@dataclass(frozen=True, slots=True)
class _Received:
    """The headers by lower-case name, each with all its values."""

    values: dict[str, list[str]]

    @classmethod
    def of(cls, headers: Headers) -> "_Received":
        values: dict[str, list[str]] = {}
        pairs = headers.items() if isinstance(headers, HeaderMapping) else headers
        for name, value in pairs:
            values.setdefault(_text(name).lower(), []).append(_text(value))
        return cls(values)

    def get(self, name: str) -> str | None:
        """Its value, or None. Raises MalformedWebhook where it stands twice."""
        values = self.values.get(name.lower(), [])
        if len(values) > 1:
            raise MalformedWebhook(f"{name} stands there {len(values)} times")
        return values[0] if values else None

    def form(self, name: str, form: re.Pattern[str], words: str) -> str:
        """Its value. Raises MalformedWebhook where it is missing or not of that form."""
        value = self.get(name)
        if value is None:
            raise MalformedWebhook(f"{name} is missing")
        if not form.fullmatch(value):
            raise MalformedWebhook(f"{name} is not {words}")
        return value

    def signatures(self) -> list[str]:
        """What the sender offers as signature: the canonical one (or its alias) first."""
        name = signing.SIGNATURE
        if self.get(name) is None and self.get(signing.SIGNATURE_ALIAS) is not None:
            name = signing.SIGNATURE_ALIAS
        names = [name] + [signing.PREVIOUS_SIGNATURE] * (self.get(signing.PREVIOUS_SIGNATURE) is not None)
        return [self.form(name, _SIGNATURE, "64 hexadecimal digits") for name in names]

    def number(self, name: str) -> int | None:
        """An additive number. What is no number is as good as absent: it must not cost an event."""
        value = self.get(name)
        return int(value) if value is not None and _NUMBER.fullmatch(value) else None


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _check_fresh(signed_at: float, now: float, tolerance_seconds: float, request_id: str) -> None:
    age = now - signed_at
    if abs(age) > tolerance_seconds:
        when = f"{age:.0f} s ago" if age > 0 else f"{-age:.0f} s in the future"
        raise StaleTimestamp(f"signed {when}, {tolerance_seconds:g} s are allowed", request_id=request_id)


def _event(received: _Received, request_id: str, body: bytes) -> Event:
    try:
        snapshot = decode(body, Snapshot)
    except msgspec.DecodeError as error:
        raise MalformedWebhook(f"truly signed, but not an order snapshot: {error}", request_id=request_id) from error
    if not snapshot.event_type:
        raise MalformedWebhook("truly signed, but without eventType", request_id=request_id)
    return Event(
        event_type=snapshot.event_type,
        snapshot=snapshot,
        hints=snapshot.change_hints or (),
        delivery_id=received.get(signing.DELIVERY_ID),
        attempt=received.number(signing.DELIVERY_ATTEMPT),
        order_version=received.number(signing.ORDER_VERSION),
        is_test=received.get(signing.TEST) == "true",
        request_id=request_id,
    )
