"""Door 1 as an ASGI application: the check order of decisions 1, then the operation, then the reply.

A raw table on the path: a router and middlewares cost more than the operations (traps 7). What is no operation is left
to the pages behind.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any

import structlog

from dealer_server.api import authenticate, parameters, replies
from dealer_server.api.authenticate import Authenticator
from dealer_server.api.listener import KNOWN, REPLY
from dealer_server.api.routes import Operation
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.rules.access.rate_limit import Allowance
from esim_dealer.wire import envelope
from esim_dealer.wire.calls import MAX_BODY_BYTES

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
log = structlog.get_logger()


class ClientGone(Exception):
    """The client hung up while sending its body."""


class Gateway:
    def __init__(
        self,
        authenticator: Authenticator,
        operations: Mapping[bytes, Operation],
        pages: Any,
        refused: Callable[[refusal.Refusal, Scope, authenticate.Head, bytes | None, bytes], None],
        answered: Callable[[bool, float, int], None],
    ):
        """`refused` is told of each call that was: why, its scope, headers, body (None: unread) and trace id;
        `answered` of each other one: whether it writes, the seconds since its last byte came, the status."""
        self._authenticator = authenticator
        self._refused = refused
        self._answered = answered
        self._operations = operations
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["raw_path"]
        operation = self._operations.get(path)
        if operation is None and not path.startswith(b"/open-api/"):
            scope.pop(REPLY, None)
            await self._pages(scope, receive, send)
            return
        reply = scope.pop(
            REPLY, None
        )  # it knows the scope: left there, each call would wait for the collector of cycles
        known = scope.pop(KNOWN, None)
        trace = replies.trace_id()
        head = authenticate.read_head(scope["headers"])
        request_id = head.values[authenticate.REQUEST_ID]
        if request_id is not None and not access.REQUEST_ID(request_id):
            request_id = None
        allowance: Allowance | None = None
        writing = False
        body = None
        began = perf_counter()
        try:
            body = await _checked_body(operation, scope, head, receive)
            began = perf_counter()
            assert operation is not None
            caller, allowance = await self._authenticator.authenticate(head, _peer(scope), body, operation.writes)
            if known is not None:
                known()
            call = parameters.decode(operation.decode, body)
            writing = operation.writes
            answer = await operation.run(caller, call)
            parts = envelope.success(answer)
            status, lines = 200, replies.success_head(sum(map(len, parts)), trace, request_id or b"", allowance)
        except refusal.Refusal as why:
            if isinstance(why, authenticate.TooManyCalls):
                allowance = why.allowance
            status, lines, *parts = replies.refused(why, trace, request_id, allowance)
            self._refused(why, scope, head, body, trace)
        except DatabaseLost as lost:
            why = refusal.OutcomeUnknown() if lost.sent and writing else refusal.Busy()
            status, lines, *parts = replies.refused(why, trace, request_id, allowance)
        except StatementTimeout:  # it only looked, so nothing was done
            status, lines, *parts = replies.refused(refusal.Busy(), trace, request_id, allowance)
        except ClientGone:
            return
        except Exception:
            log.exception("unexpected", trace_id=trace.decode(), path=path.decode("latin-1"))
            status, lines, *parts = replies.unexpected(trace, request_id, allowance)
        if status == 200 or status >= 500:
            self._answered(writing, perf_counter() - began, status)
        if reply is None or not reply(status, lines, parts):
            await send({"type": "http.response.start", "status": status, "headers": replies.headers(lines)})
            await send({"type": "http.response.body", "body": b"".join(parts)})


async def _checked_body(operation: Operation | None, scope: Scope, head: authenticate.Head, receive: Receive) -> bytes:
    """The body, after the checks that need no credentials: path, query string, method, size, content type."""
    if operation is None:
        raise refusal.PathUnknown
    if scope["query_string"]:
        raise refusal.ParameterInvalid("the query string is not signed, so none is accepted; use the JSON body")
    if scope["method"] != "POST":
        raise refusal.MethodNotAllowed
    if why := authenticate.refuse_size(head):
        raise why
    body = await _read(receive)
    if why := authenticate.refuse_content_type(head, body):
        raise why
    return body


async def _read(receive: Receive) -> bytes:
    """The body, never more than the limit."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    body = message.get("body", b"")
    if not message.get("more_body"):
        if len(body) > MAX_BODY_BYTES:
            raise refusal.BodyTooLarge
        return body
    parts, length = [body], len(body)
    while message.get("more_body"):
        if length > MAX_BODY_BYTES:
            raise refusal.BodyTooLarge
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        parts.append(part)
        length += len(part)
    if length > MAX_BODY_BYTES:
        raise refusal.BodyTooLarge
    return b"".join(parts)


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
