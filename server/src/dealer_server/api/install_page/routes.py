"""`GET /i/{token}`: the page of an eSIM in the reader's language, with the headers that keep its address a secret."""

import gzip
from collections.abc import Awaitable, Callable, Mapping

import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from dealer_server.api import replies
from dealer_server.api.install_page import rendering
from dealer_server.api.install_page.rendering import Rendered
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.profiles.show_install_page import InstallPage
from dealer_server.rules.install.device import device
from dealer_server.rules.install.languages import Language, choose

PATH = "/i/{token}"
Show = Callable[[str], Awaitable[InstallPage | None]]
log = structlog.get_logger()
_HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Accept-Language, Accept-Encoding, User-Agent",
}


def install_page_route(show: Show) -> Route:
    """`show` reads what follows /i/ and gives what its page shows, None where it names no eSIM."""

    async def install_page(request: Request) -> Response:
        language = choose(request.headers.get("accept-language", ""), request.query_params.get("lang", ""))
        try:
            found = await show(request.path_params["token"])
        except (DatabaseLost, StatementTimeout):
            return _answer(request, rendering.notice("busy", language), language, 503, {"Retry-After": "60"})
        except Exception:
            log.exception("unexpected", trace_id=replies.trace_id().decode())  # not the path: it is a secret
            return _answer(request, rendering.notice("busy", language), language, 500)
        if found is None:
            return _answer(request, rendering.notice("unknown", language), language, 404)
        used = device(request.headers.get("user-agent", ""))
        return _answer(request, rendering.page(found, language, used), language, 200)

    return Route(PATH, install_page, methods=["GET"])


def _answer(
    request: Request, rendered: Rendered, language: Language, status: int, more: Mapping[str, str] | None = None
) -> Response:
    headers = _HEADERS | {"Content-Security-Policy": rendered.policy, "Content-Language": language} | dict(more or {})
    body = rendered.html.encode()
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, 6, mtime=0)
    return HTMLResponse(body, status, headers)
