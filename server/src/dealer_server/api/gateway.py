"""How is a call of the API handled? The checks of specification 5.4 in their order, then the operation, then the reply.

An ASGI application. Paths are looked up in a table: a router and middleware cost more than most operations. Paths
outside /open-api/ go to the pages.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from time import perf_counter
from typing import Any

import structlog

from dealer_server.api import authenticate, parameters, replies
from dealer_server.api.authenticate import Authenticator
from dealer_server.api.listener import REPLY
from dealer_server.api.routes import BoundRoute
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
encode = envelope.encoder.encode


class ClientGone(Exception):
    """The client hung up while sending its body."""


class Gateway:
    """`refused` receives each refused call: why, its scope, headers, body (None: not read) and trace id. `answered`
    receives of each other call whether it writes, the seconds from its last byte to its answer, and the status."""

    def __init__(
        self,
        authenticator: Authenticator,
        routes: Mapping[bytes, BoundRoute],
        pages: Any,
        refused: Callable[[refusal.Refusal, Scope, authenticate.Head, bytes | None, bytes], None],
        answered: Callable[[bool, float, int], None],
    ):
        self._authenticator = authenticator
        self._routes = routes
        self._pages = pages
        self._refused = refused
        self._answered = answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["raw_path"]
        route = self._routes.get(path)
        # The reply holds the scope: left in it, the scope would be freed by the cycle collector only.
        reply = scope.pop(REPLY, None)
        if route is None and not path.startswith(b"/open-api/"):
            await self._pages(scope, receive, send)
            return
        mark_authenticated = scope.pop(access.AUTHENTICATED, None)
        trace = replies.trace_id()
        head = authenticate.read_head(scope["headers"])
        request_id = head.values[authenticate.REQUEST_ID]
        if request_id is not None and not access.is_request_id(request_id):
            request_id = None
        allowance: Allowance | None = None
        writing = False
        body = None
        began = perf_counter()
        try:
            body = await _checked_body(route, scope, head, receive)
            began = perf_counter()
            assert route is not None
            caller, allowance = await self._authenticator.authenticate(head, _peer(scope), body, route.writes)
            if mark_authenticated is not None:
                mark_authenticated()
            call = parameters.decode(route.decode, body)
            writing = route.writes
            answer = await route.run(caller, call)
            parts = envelope.success(answer if type(answer) is bytes else encode(answer))
            status, lines = 200, replies.success_head(sum(map(len, parts)), trace, request_id or b"", allowance)
        except ClientGone:
            return
        except Exception as error:
            if isinstance(error, authenticate.TooManyCalls):
                allowance = error.allowance
            why = _refusal_of(error, writing)
            status, lines, *parts = replies.failed(why, trace, request_id, allowance)
            if why is None:
                log.exception("unexpected", trace_id=trace.decode(), path=path.decode("latin-1"))
            elif why is error:
                self._refused(why, scope, head, body, trace)
        if status == 200 or status >= 500:
            self._answered(writing, perf_counter() - began, status)
        if reply is None or not reply(status, lines, parts):
            await send({"type": "http.response.start", "status": status, "headers": replies.headers(lines)})
            await send({"type": "http.response.body", "body": b"".join(parts)})


def _refusal_of(error: Exception, writing: bool) -> refusal.Refusal | None:
    """What an error of a call is answered with; None for 000001. `writing`: the operation has begun, and it writes."""
    if isinstance(error, refusal.Refusal):
        return error
    if isinstance(error, DatabaseLost):
        return refusal.OutcomeUnknown() if error.sent and writing else refusal.Busy()
    if isinstance(error, StatementTimeout):  # only reads have a limit, so nothing was done
        return refusal.Busy()
    return None


async def _checked_body(route: BoundRoute | None, scope: Scope, head: authenticate.Head, receive: Receive) -> bytes:
    """The body, after the checks that need no credentials: path, query string, method, size, content type."""
    if route is None:
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
