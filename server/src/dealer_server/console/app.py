"""The console as a Starlette application: routes from the declarations of its pages, middleware, error pages."""

from contextlib import suppress

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router

from dealer_server.clock import Clock
from dealer_server.console import routing
from dealer_server.console.auth.confirmation import Confirmations
from dealer_server.console.auth.invitation import Invitations
from dealer_server.console.auth.password_reset import PasswordResets
from dealer_server.console.auth.sign_in import SignIn
from dealer_server.console.compression import Compression
from dealer_server.console.endpoint import PageRoute
from dealer_server.console.errors import ErrorPages
from dealer_server.console.middleware import (
    BodyLimit,
    Csrf,
    Reauthentication,
    SameOrigin,
    SecurityHeaders,
    Sessions,
    Visitors,
)
from dealer_server.console.operator.overview import hours
from dealer_server.console.responses import Responder
from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import NotFound, Parts
from dealer_server.db.errors import DatabaseLost

FOREVER = "public, max-age=31536000, immutable"


class ConsoleApp(Starlette):
    """Raises ValueError where the declaration of a page is not complete."""

    def __init__(self, parts: Parts, clock: Clock):
        pages = routing.declared_pages()
        responder, sign_in = Responder(parts, pages), SignIn(parts, clock)
        errors = ErrorPages(responder, parts.settings.environment).handlers
        signed_in = Router(
            [*sign_in.session_routes(), *(PageRoute(page, responder) for page in pages)],
            redirect_slashes=False,
            middleware=[
                Middleware(Sessions, parts, clock, sign_in),
                Middleware(Csrf, parts, clock),
                Middleware(Reauthentication, parts, clock),
            ],
        )
        site = Router(
            [
                Route("/", _home),
                Route("/console{path:path}/", _without_slash),
                *sign_in.routes(),
                *Invitations(parts, clock).routes(),
                *Confirmations(parts, clock).routes(),
                *PasswordResets(parts, clock).routes(),
            ],
            redirect_slashes=False,
            default=signed_in,
            middleware=[Middleware(SameOrigin, parts.settings.base_url), Middleware(Visitors, parts.settings)],
        )
        super().__init__(
            routes=[Route(f"{rendering.STATIC}{{path:path}}", _static)],
            # Starlette adds an ExceptionMiddleware of its own inside these; the one here puts the security headers on
            # the page of an unexpected error too.
            middleware=[
                Middleware(SecurityHeaders, parts.settings),
                Middleware(Compression),
                Middleware(BodyLimit),
                Middleware(ExceptionMiddleware, errors),
            ],
            exception_handlers=errors,
        )
        self.router.redirect_slashes = False
        self.router.default = site
        self._parts = parts
        self._clock = clock

    async def warm(self) -> None:
        """Makes ready what the first visitor would wait for."""
        await rendering.warm()
        with suppress(DatabaseLost):
            await hours.warm(self._parts.database, self._clock())


async def _home(_: Request) -> Response:
    return RedirectResponse(routing.HOME, 303)


async def _without_slash(request: Request) -> Response:
    """A page's address that was typed with a slash at its end."""
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(request.url.path.rstrip("/") + query, 308)


async def _static(request: Request) -> Response:
    """Raises NotFound."""
    name: str = request.path_params["path"]
    path = rendering.paths().get(name, name)
    asset = rendering.assets().get(path)
    if asset is None:
        raise NotFound
    headers = {"Cache-Control": FOREVER if path != name else "no-cache", "Vary": "Accept-Encoding"}
    if asset.text and "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return Response(rendering.zipped(path), media_type=asset.media_type, headers=headers)
    return Response(asset.body, media_type=asset.media_type, headers=headers)
