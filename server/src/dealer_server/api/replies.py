"""How does a result or a refusal become an HTTP answer? (specification 7)"""

import itertools
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.access.rate_limit import Allowance
from dealer_server.rules.result_codes import STATUS
from esim_dealer.wire import envelope
from esim_dealer.wire.vocabulary import ResultCode

Headers = list[tuple[bytes, bytes]]

_encode = msgspec.json.Encoder().encode
_process = secrets.token_hex(6).encode()  # distinguishes processes; within one a counter is enough
_calls = itertools.count(1)


def trace_id() -> bytes:
    """Unique without a system call per request."""
    return b"%s-%x" % (_process, next(_calls))


def head_lines(length: int, trace: bytes, request_id: bytes | None, allowance: Allowance | None) -> bytes:
    """The header lines of a success, with which those of every answer begin."""
    head = _common(length, trace)
    if request_id is not None:
        head += b"rt-requestid: %b\r\n" % request_id
    return head if allowance is None else head + _rate(allowance)


def refused(
    why: refusal.Refusal, trace: bytes, request_id: bytes | None, allowance: Allowance | None
) -> tuple[int, bytes, bytes]:
    """Status, header lines and body of a refusal."""
    body = error_body(why.code, why.message, why.data)
    return STATUS[why.code], refusal_head(why, len(body), trace, request_id, allowance), body


def refusal_head(
    why: refusal.Refusal, length: int, trace: bytes, request_id: bytes | None, allowance: Allowance | None
) -> bytes:
    """The header lines of a refusal whose body has this length."""
    head = head_lines(length, trace, request_id, allowance)
    if why.retry_after is not None:
        head += b"retry-after: %d\r\n" % why.retry_after
    elif STATUS[why.code] == 503:
        head += b"retry-after: 1\r\n"
    if isinstance(why, refusal.MethodNotAllowed):
        head += b"allow: POST\r\n"
    return head


def failed(
    why: refusal.Refusal | None, trace: bytes, request_id: bytes | None, allowance: Allowance | None
) -> tuple[int, bytes, bytes]:
    """The same of a refusal, or of 000001 where there is none."""
    return unexpected(trace, request_id, allowance) if why is None else refused(why, trace, request_id, allowance)


def unexpected(trace: bytes, request_id: bytes | None, allowance: Allowance | None = None) -> tuple[int, bytes, bytes]:
    """000001: an error of the service. The text is fixed; the trace id finds the error in the logs."""
    body = error_body("000001", "unexpected server error; nothing was done in part", {"traceId": trace.decode()})
    return STATUS["000001"], head_lines(len(body), trace, request_id, allowance), body


def headers(head: bytes) -> Headers:
    """Header lines one by one, as ASGI takes them."""
    return [(name, value) for name, _, value in (line.partition(b": ") for line in head.splitlines())]


def _common(length: int, trace: bytes) -> bytes:
    return b"content-type: application/json\r\ncache-control: no-store\r\ncontent-length: %d\r\nx-trace-id: %b\r\n" % (
        length,
        trace,
    )


def _rate(allowance: Allowance) -> bytes:
    return b"x-ratelimit-limit: %d\r\nx-ratelimit-remaining: %d\r\nx-ratelimit-reset: %d\r\n" % (
        allowance.limit,
        allowance.remaining,
        -(-allowance.reset_seconds // 1),
    )


def error_body(code: ResultCode, message: str, data: Mapping[str, Any]) -> bytes:
    return _encode(envelope.Envelope(code, message, dict(data)))
