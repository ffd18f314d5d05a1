"""How are events of suppliers received? POST /events/{code}/{token}, on a listener of its own.

The token in the path is a secret shared with that supplier; a supplier type that signs, or sends from known addresses,
is checked for that too. An event is stored and applied before it is answered; the same event twice changes nothing.
Answers are a status alone: 2xx (which one depends on the supplier type) taken, 400 not understood, 404 unknown, 503 try
again.
"""

import hmac
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dealer_server.clock import Clock
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules.access import access
from dealer_server.suppliers.contract import BadEvent, Event, Remote

log = structlog.get_logger()

BODY_BYTES = 256 * 1024


class EventSource(NamedTuple):
    """A supplier whose events are accepted."""

    remote: Remote
    token: str


class Take(Protocol):
    async def __call__(self, code: str, event: Event, body: bytes) -> None: ...


def app(source_of: Callable[[str], EventSource | None], take: Take, clock: Clock) -> Starlette:
    """`take` stores and applies an event; it raises DatabaseLost."""

    async def receive(request: Request) -> Response:
        code, token = request.path_params["code"], request.path_params["token"]
        source = source_of(code)
        if source is None or not hmac.compare_digest(source.token.encode(), token.encode()):
            return Response(status_code=404)
        if not _may_send(source.remote, request.client.host if request.client else ""):
            log.warning("supplier_message_refused", supplier=code, reason="not one of its addresses")
            return Response(status_code=404)
        body = await _body(request)
        if body is None:
            return Response(status_code=413)
        try:
            event = source.remote.parse_event(dict(request.headers), body, clock())
            await take(code, event, body)
        except BadEvent as error:
            log.warning("supplier_message_not_understood", supplier=code, reason=str(error))
            return Response(status_code=400)
        except DatabaseLost:
            return Response(status_code=503, headers={"Retry-After": "5"})
        return Response(status_code=source.remote.caps.event_status)

    # SM-DP+s append the name of the function to the address they were given.
    paths = ("/events/{code}/{token}", "/events/{code}/{token}/{rest:path}")
    return Starlette(routes=[Route(path, receive, methods=["POST"]) for path in paths])


def _may_send(remote: Remote, address: str) -> bool:
    senders: Sequence[str] = getattr(remote, "senders", ())
    return access.refuse_address(address, access.networks(senders)) is None


async def _body(request: Request) -> bytes | None:
    """The body, or None where it is too long; it is not read further then."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            return None
    return bytes(body)
