"""Why does a signature not fit? The usual mistakes, tried one by one.

The explanation is for the dealer whose secret it is, and never contains the secret.
"""

import base64
import binascii
import hashlib
import hmac
import itertools
import json
from collections.abc import Iterator
from typing import NamedTuple

SEPARATORS = {"\n": "a line end", " ": "a blank", "|": "|", "&": "&", ",": ",", ".": ".", ":": ":", "": "nothing"}


class Call(NamedTuple):
    """What was received, byte by byte."""

    timestamp: bytes
    request_id: bytes
    access_code: bytes
    body: bytes
    signature: bytes


def explain(call: Call, secret: bytes, previous: bytes | None) -> str:
    """Which mistake made this signature, in words; "" for none of the usual ones.

    `previous` is the secret before the last reset.
    """
    given = _digest(call.signature)
    if given is None:
        return ""
    for words, key, message in _keys(call, secret, previous):
        if hmac.digest(key, message, "sha256") == given:
            return words
    for words, message in _messages(call):
        if hmac.digest(secret, message, "sha256") == given:
            return words
    for words, message in _plain(call, secret):
        if hashlib.sha256(message).digest() == given:
            return words
    return ""


def _digest(signature: bytes) -> bytes | None:
    """The 32 bytes of a signature in hex, or in Base64, which is not accepted; None for anything else."""
    try:
        digest = binascii.unhexlify(signature) if len(signature) == 64 else base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None
    return digest if len(digest) == 32 else None


def _exact(call: Call) -> bytes:
    return call.timestamp + call.request_id + call.access_code + call.body


def _keys(call: Call, secret: bytes, previous: bytes | None) -> Iterator[tuple[str, bytes, bytes]]:
    exact = _exact(call)
    if len(call.signature) != 64:
        yield "It is right, but written in Base64: hex digits are accepted.", secret, exact
    yield "It fits the AppSecret in force now: the AppSecret was reset since the call.", secret, exact
    if previous is not None:
        yield "It was made with the AppSecret before the last reset, which has ended.", previous, exact
    for end, words in ((b"\n", "a line end"), (b"\r\n", "a line end"), (b" ", "a blank")):
        yield f"The AppSecret was used with {words} behind it.", secret + end, exact
    yield "The AppSecret was used without its beginning (sk_..._); all of it is the key.", secret[8:], exact
    yield "The AppKey was used as the key; the AppSecret is.", call.access_code, exact


def _messages(call: Call) -> Iterator[tuple[str, bytes]]:
    head, body = (call.timestamp, call.request_id, call.access_code), call.body
    for words, signed in _bodies(body):
        yield words, b"".join(head) + signed
    yield "RT-Timestamp was signed in seconds, and sent in milliseconds.", call.timestamp[:-3] + _exact(call)[13:]
    for words, spelling in _request_ids(call.request_id):
        yield words, call.timestamp + spelling + call.access_code + body
    names = ("RT-Timestamp", "RT-RequestID", "RT-AccessCode", "body")
    for order in itertools.permutations(range(4)):
        parts = [(*head, body)[at] for at in order]
        for mark, words in SEPARATORS.items():
            fields = " + ".join(names[at] for at in order)
            yield f"It was made of {fields}, with {words} between.", mark.encode().join(parts)


def _bodies(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield "The body was left out of the string to sign.", b""
    yield "The body was signed as {}, and something else was sent.", b"{}"
    for end in (b"\n", b"\r\n"):
        yield "The body was signed with a line end behind it, and sent without.", body + end
    yield "The body was sent with blanks or line ends around it, and signed without.", body.strip()
    yield "The SHA-256 of the body was signed, in place of the body.", hashlib.sha256(body).hexdigest().encode()
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return
    words = (
        "The body was serialized twice: the signed bytes differ from the sent ones in whitespace, key order or escapes."
    )
    for ordered, ascii_only in itertools.product((False, True), repeat=2):
        for marks in ((",", ":"), (", ", ": ")):
            text = json.dumps(content, separators=marks, sort_keys=ordered, ensure_ascii=ascii_only)
            yield words, text.encode(errors="replace")


def _request_ids(request_id: bytes) -> Iterator[tuple[str, bytes]]:
    words = "RT-RequestID was signed in another spelling than it was sent."
    for spelling in (request_id.lower(), request_id.upper(), request_id.replace(b"-", b"")):
        if spelling != request_id:
            yield words, spelling


def _plain(call: Call, secret: bytes) -> Iterator[tuple[str, bytes]]:
    words = "It is a plain SHA-256; an HMAC-SHA256 with the AppSecret as its key is expected."
    for message in (_exact(call), _exact(call) + secret, secret + _exact(call)):
        yield words, message
