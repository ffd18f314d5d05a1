"""How is a call of the API handled? The checks of specification 5.4 in their order, then the operation, then the reply.

An ASGI application. Paths are looked up in a table: a router and middleware cost more than most operations. How calls
and answers are written is the dialect's: our own (api/own_dialect.py) or that of the RT face (api/rt/dialect.py). Paths
of no dialect are those of the pages.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import structlog

from dealer_server import traces
from dealer_server.api import authenticate, parameters, replies
from dealer_server.api.listener import REPLY
from dealer_server.api.routes import BoundRoute
from dealer_server.api.served_calls import CallSample
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.cache import Caller
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from dealer_server.rules.access.rate_limit import Allowance
from dealer_server.rules.access.scopes import refuse_scope
from esim_dealer.wire.calls import MAX_BODY_BYTES

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
log = structlog.get_logger()


class Dialect(Protocol):
    """How calls are let in and answered below `prefix`."""

    prefix: bytes

    def refuse_content_type(self, head: authenticate.Head, body: bytes) -> refusal.Refusal | None: ...

    async def authenticate(
        self, head: authenticate.Head, peer: str, body: bytes, writes: bool
    ) -> tuple[Caller, Allowance | None]:
        """Raises Refusal, DatabaseLost."""
        ...

    def succeeded(
        self, answer: Any, trace: bytes, request_id: bytes | None, allowance: Allowance | None
    ) -> tuple[bytes, Sequence[bytes]]:
        """The header lines, and the body in parts."""
        ...

    def failed(
        self, why: refusal.Refusal | None, trace: bytes, request_id: bytes | None, allowance: Allowance | None
    ) -> tuple[int, bytes, bytes]:
        """Status, header lines and body; without a refusal those of 000001."""
        ...


class ClientGone(Exception):
    """The client hung up while sending its body."""


class Face(NamedTuple):
    """The operations that are called in a dialect, by path."""

    dialect: Dialect
    routes: Mapping[bytes, BoundRoute]


class Gateway:
    """`refused` receives each refused call: why, its scope, headers, body (None: not read) and trace id. `answered`
    receives of each other call whether it writes, the seconds from its last byte to its answer, and the status.
    `sample` is asked of each call that succeeds whether it keeps it."""

    def __init__(
        self,
        faces: Sequence[Face],
        pages: Any,
        refused: Callable[[refusal.Refusal, Scope, authenticate.Head, bytes | None, bytes], None],
        answered: Callable[[bool, float, int], None],
        counted: Callable[[str, str, float], None],
        sample: CallSample,
    ):
        self._dialects = [face.dialect for face in faces]
        self._routes = {path: (face.dialect, route) for face in faces for path, route in face.routes.items()}
        self._pages = pages
        self._refused = refused
        self._answered = answered
        self._counted = counted
        self._sample = sample

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["raw_path"]
        dialect, route = self._routes.get(path) or (self._dialect_of(path), None)
        # The reply holds the scope: left in it, the scope would be freed by the cycle collector only.
        reply = scope.pop(REPLY, None)
        if dialect is None:
            await self._pages(scope, receive, send)
            return
        mark_authenticated = scope.pop(access.AUTHENTICATED, None)
        trace = replies.trace_id()
        head = authenticate.read_head(scope["headers"])
        request_id = _request_id(head)
        writing, body, code, served, allowance, answer = False, None, "000000", None, None, None
        began = perf_counter()
        try:
            body = await _checked_body(route, scope, head, receive, dialect)
            began = perf_counter()
            assert route is not None
            caller, allowance = await dialect.authenticate(head, _peer(scope), body, route.writes)
            if mark_authenticated is not None:
                mark_authenticated()
            if route.scope not in caller.scopes and (lacks := refuse_scope(route.path, route.scope, caller.scopes)):
                raise lacks
            call = parameters.decode(route.decode, body)
            writing = route.writes
            answer = await route.run(caller, call)
            lines, parts = dialect.succeeded(answer, trace, request_id, allowance)
            status, served = 200, (caller.tenant_id, body, sum(map(len, parts)))
        except ClientGone:
            return
        except Exception as error:
            if isinstance(error, authenticate.TooManyCalls):
                allowance = error.allowance
            why = _refusal_of(error, writing)
            code = "000001" if why is None else why.code
            status, lines, *parts = dialect.failed(why, trace, request_id, allowance)
            if why is None:
                log.exception("unexpected", trace_id=trace.decode(), path=path.decode("latin-1"))
            elif why is error:
                self._refused(why, scope, head, body, trace)
        seconds = perf_counter() - began
        self._count(route, writing, code, seconds, status)
        traces.call("" if route is None else route.path, code, answer if writing else None, trace, began)
        if reply is None or not reply(status, lines, parts):
            await send({"type": "http.response.start", "status": status, "headers": replies.headers(lines)})
            await send({"type": "http.response.body", "body": b"".join(parts)})
        if served is not None and self._sample.wants(served[0]):
            self._sample.keep(scope, head, trace, began, *served)

    def _dialect_of(self, path: bytes) -> Dialect | None:
        """In which an unknown path is refused; None where it is that of a page."""
        return next((one for one in self._dialects if path.startswith(one.prefix)), None)

    def _count(self, route: BoundRoute | None, writing: bool, code: str, seconds: float, status: int) -> None:
        self._counted("" if route is None else route.path, code, seconds)
        if status == 200 or status >= 500:
            self._answered(writing, seconds, status)


def _request_id(head: authenticate.Head) -> bytes | None:
    """The caller's own, if it has the form of one."""
    given = head.values[authenticate.REQUEST_ID]
    return given if given is not None and access.is_request_id(given) else None


def _refusal_of(error: Exception, writing: bool) -> refusal.Refusal | None:
    """What an error of a call is answered with; None for 000001. `writing`: the operation has begun, and it writes."""
    if isinstance(error, refusal.Refusal):
        return error
    if isinstance(error, DatabaseLost):
        return refusal.OutcomeUnknown() if error.sent and writing else refusal.Busy()
    if isinstance(error, StatementTimeout):  # only reads have a limit, so nothing was done
        return refusal.Busy()
    return None


async def _checked_body(
    route: BoundRoute | None, scope: Scope, head: authenticate.Head, receive: Receive, dialect: Dialect
) -> bytes:
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
    if why := dialect.refuse_content_type(head, body):
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
