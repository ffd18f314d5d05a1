"""What is served without signing: QR codes, install pages, the OpenAPI document, and whether this process is alive."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dealer_server.api import replies
from dealer_server.api.install_page.routes import Show, install_page_route
from dealer_server.api.qr_links import CodeOf, Draw, qr_route
from dealer_server.api.status import readiness
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules import refusal
from dealer_server.rules.access import access
from esim_dealer.wire import signing

log = structlog.get_logger()


def pages(
    document: Callable[[], bytes],
    code_of: CodeOf,
    svg: Draw,
    png: Draw,
    not_ready: Callable[[], Sequence[str]],
    install_page: Show,
) -> Starlette:
    """`code_of` gives a profile's activation code when the token fits; `svg` and `png` draw it, in a size in pixels
    or, for None, as large as they like. `install_page`: what an install page shows."""

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "UP"})

    async def ready(_: Request) -> Response:
        return readiness(not_ready())

    async def unknown(request: Request, _: Exception) -> Response:
        return _refused(request, refusal.PathUnknown())

    async def lost(request: Request, _: Exception) -> Response:
        return _refused(request, refusal.Busy())

    served = Starlette(
        routes=[
            Route("/openapi.json", openapi, methods=["GET"]),
            Route("/healthz", alive, methods=["GET"]),
            Route("/livez", alive, methods=["GET"]),
            Route("/readyz", ready, methods=["GET"]),
            qr_route(code_of, svg, png, _refused),
            install_page_route(install_page),
        ],
        exception_handlers={404: unknown, 405: unknown, DatabaseLost: lost, Exception: _unexpected},
    )
    served.router.redirect_slashes = False
    return served


def with_docs(pages: Starlette, docs: Starlette, is_docs: Callable[[bytes], bool]) -> Callable[..., Awaitable[None]]:
    """The documentation at the paths that are its own, the pages elsewhere."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await (docs if is_docs(scope["raw_path"]) else pages)(scope, receive, send)

    return served


def with_console(
    pages: Callable[..., Awaitable[None]], console: Callable[..., Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    """The console below /console, the pages elsewhere. A browser at / is redirected to the console."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        path = scope["raw_path"]  # as received: a proxy that restricts /console compares the same bytes
        inside = path == b"/console" or path.startswith(b"/console/")
        await (console if inside or _browser_at_root(scope) else pages)(scope, receive, send)

    return served


def _browser_at_root(scope: Any) -> bool:
    """Whether a browser asks for /; for other programs it is an unknown path."""
    if scope["raw_path"] != b"/" or scope["method"] not in ("GET", "HEAD"):
        return False
    return any(b"text/html" in value.lower() for name, value in scope["headers"] if name == b"accept")


def _refused(request: Request, why: refusal.Refusal) -> Response:
    return _response(*replies.refused(why, replies.trace_id(), _request_id(request), None))


async def _unexpected(request: Request, _: Exception) -> Response:
    trace = replies.trace_id()
    log.error("unexpected", trace_id=trace.decode())  # not the path: a QR link is a secret
    return _response(*replies.unexpected(trace, _request_id(request), None))


def _request_id(request: Request) -> bytes | None:
    given = request.headers.get(signing.REQUEST_ID, "").encode("latin-1")
    return given if access.is_request_id(given) else None


def _response(status: int, head: bytes, body: bytes) -> Response:
    return Response(body, status, headers={name.decode(): value.decode() for name, value in replies.headers(head)})
