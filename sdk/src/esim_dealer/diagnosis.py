"""Why does a webhook not verify? Looks at each part of one by itself, and never tells the secret."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec

from esim_dealer.errors import MalformedWebhook
from esim_dealer.headers import Headers, Received
from esim_dealer.webhook import TOLERANCE_SECONDS, read_event, staleness
from esim_dealer.wire import signing

_SHOWN_DIGITS = 8


class Finding(msgspec.Struct, frozen=True):
    """One part, whether it is right, and what there is to say about it."""

    part: str
    right: bool
    words: str


def diagnose(
    headers: Headers, body: bytes, secret: str, *, app_key: str | None, now: float, any_age: bool = False
) -> list[Finding]:
    """What `verify` looks at, part by part, to the end. The webhook is verified where all findings are right.

    `now` is in seconds since the epoch; `any_age` lets an old webhook pass. Signatures are shown by their first digits.
    """
    received = Received.of(headers)
    signed = {
        signing.ACCESS_CODE: _part(signing.ACCESS_CODE, received.access_code),
        signing.REQUEST_ID: _part(signing.REQUEST_ID, received.request_id),
        signing.TIMESTAMP: _part(signing.TIMESTAMP, received.timestamp),
    }
    findings = [
        _app_key(signed[signing.ACCESS_CODE], app_key),
        signed[signing.REQUEST_ID],
        _age(signed[signing.TIMESTAMP], now, any_age),
        Finding("body", True, _measure(body)),
    ]
    if all(finding.right for finding in signed.values()):
        before_body = (signed[signing.TIMESTAMP].words + signed[signing.REQUEST_ID].words).encode()
        before_body += signed[signing.ACCESS_CODE].words.encode()
        findings.append(Finding("string-to-sign", True, _measure(before_body + body)))
        findings.extend(_signatures(received, before_body, body, secret.encode()))
    else:
        findings.append(Finding("string-to-sign", False, "cannot be built without the headers above"))
    findings.append(_content(received, body))
    return findings


def _part(name: str, read: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, read())
    except MalformedWebhook as error:
        return Finding(name, False, error.message)


def _app_key(found: Finding, app_key: str | None) -> Finding:
    if not found.right or app_key in (None, found.words):
        return found
    return Finding(found.part, False, f"signed for AppKey {found.words}, not {app_key}")


def _age(found: Finding, now: float, any_age: bool) -> Finding:
    late = staleness(found.words, now, TOLERANCE_SECONDS) if found.right else None
    return found if late is None else Finding(found.part, any_age, f"{found.words}, {late}")


def _measure(text: bytes) -> str:
    return f"{len(text)} bytes, SHA-256 {sha256(text).hexdigest()}"


def _signatures(received: Received, before_body: bytes, body: bytes, secret: bytes) -> Iterator[Finding]:
    """The signature that fits; or else each that is there, and what may have happened to the body."""
    try:
        offered = received.signatures()
    except MalformedWebhook as error:
        yield Finding(signing.SIGNATURE, False, error.message)
        return
    expected = signing.signature(secret, before_body, b"", b"", body)
    for name, given in offered.items():
        if signing.matches(expected, given):
            yield Finding(name, True, f"fits ({expected[:_SHOWN_DIGITS]}…)")
            return
    for name, given in offered.items():
        words = f"expected {expected[:_SHOWN_DIGITS]}…, given {given[:_SHOWN_DIGITS].lower()}…"
        yield Finding(name, False, words)
    for happened, changed in _other_bodies(body):
        fits = signing.signature(secret, before_body, b"", b"", changed)
        if any(signing.matches(fits, given) for given in offered.values()):
            yield Finding("body", False, f"the signature fits {happened}: these are not the bytes as received")
            return
    yield Finding("body", False, "another AppSecret, or a body or a header that is not as it was received")


def _other_bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    """What the body may have been before something rewrote it on the way here."""
    yield "it without the line break at its end", body.rstrip(b"\r\n")
    yield "it with LF instead of CRLF", body.replace(b"\r\n", b"\n")
    try:
        value = json.loads(body)
    except ValueError:
        return
    for ascii_only in (False, True):
        yield (
            "the same JSON written compactly",
            json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":")).encode(),
        )
        yield "the same JSON written with spaces", json.dumps(value, ensure_ascii=ascii_only).encode()


def _content(received: Received, body: bytes) -> Finding:
    try:
        event = read_event(received, "", body)
    except MalformedWebhook as error:
        return Finding("event", False, error.message.removeprefix("truly signed, but "))
    sample = ", a sample" if event.is_test else ""
    return Finding("event", True, f"{event.event_type} of {event.snapshot.order_no}, {','.join(event.hints)}{sample}")
