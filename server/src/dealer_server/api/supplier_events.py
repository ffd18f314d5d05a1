"""The door for what suppliers tell us: POST /events/{code}/{token}, on a listener of its own.

The token in the path is a secret between us and that supplier; a kind that signs or sends from known addresses is
checked for that too. A message is kept and its consequences are written before it is answered; the same message twice
changes nothing. Answers say no more than a status: 2xx (as its kind wants it) taken, 400 not understood, 404 not here,
503 come again.
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


class Known(NamedTuple):
    """A supplier whose messages are taken."""

    remote: Remote
    token: str


class Book(Protocol):
    async def __call__(self, code: str, event: Event, body: bytes) -> None: ...


def door(known: Callable[[str], Known | None], take: Book, clock: Clock) -> Starlette:
    """`take` writes what a message means; it raises DatabaseLost."""

    async def receive(request: Request) -> Response:
        code, token = request.path_params["code"], request.path_params["token"]
        one = known(code)
        if one is None or not hmac.compare_digest(one.token.encode(), token.encode()):
            return Response(status_code=404)
        if not _may_send(one.remote, request.client.host if request.client else ""):
            log.warning("supplier_message_refused", supplier=code, reason="not one of its addresses")
            return Response(status_code=404)
        body = await _body(request)
        if body is None:
            return Response(status_code=413)
        try:
            event = one.remote.parse_event(dict(request.headers), body, clock())
            await take(code, event, body)
        except BadEvent as error:
            log.warning("supplier_message_not_understood", supplier=code, reason=str(error))
            return Response(status_code=400)
        except DatabaseLost:
            return Response(status_code=503, headers={"Retry-After": "5"})
        return Response(status_code=one.remote.caps.event_status)

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
