"""Which page does an error become? Within the layout for those who are signed in; else one that needs no database."""

import secrets
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ExceptionHandler

from dealer_server.console.auth.forms import CsrfFailed
from dealer_server.console.middleware import TooLarge
from dealer_server.console.responses import Responder
from dealer_server.console.shared import rendering
from dealer_server.console.shared.request_context import (
    Forbidden,
    NotFound,
    ReauthenticationRequired,
    RequestContext,
)
from dealer_server.db.distributed import is_node_away
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.operations.users.password import Busy

log = structlog.get_logger(__name__)


class ErrorPages:
    def __init__(self, responder: Responder, environment: str):
        self._responder = responder
        self._environment = environment

    @property
    def handlers(self) -> Mapping[Any, ExceptionHandler]:
        return {
            NotFound: self._not_found,
            404: self._not_found,
            405: self._not_found,
            Forbidden: self._forbidden,
            CsrfFailed: self._csrf_failed,
            TooLarge: self._too_large,
            HTTPException: self._too_large,
            StatementTimeout: self._too_slow,
            DatabaseLost: self._unavailable,
            Busy: self._unavailable,
            ReauthenticationRequired: self._reauthenticate,
            ClientDisconnect: self._disconnected,
            Exception: self._unexpected,
        }

    async def _not_found(self, request: Request, _: Exception) -> Response:
        return await self._within_layout(request, 404)

    async def _forbidden(self, request: Request, _: Exception) -> Response:
        return await self._within_layout(request, 403)

    async def _csrf_failed(self, request: Request, _: Exception) -> Response:
        return self._plain(request, 403, why="forged")

    async def _too_large(self, request: Request, _: Exception) -> Response:
        return self._plain(request, 413)

    async def _too_slow(self, request: Request, _: Exception) -> Response:
        log.warning("console_too_slow", path=request.url.path)
        return self._plain(request, 503, why="slow")

    async def _unavailable(self, request: Request, why: Exception) -> Response:
        if isinstance(why, DatabaseLost) and is_node_away(why):
            return await self._within_layout(request, 503, why="node")
        return self._plain(request, 503)

    async def _disconnected(self, request: Request, _: Exception) -> Response:
        """Nobody reads it."""
        return Response(status_code=400)

    async def _unexpected(self, request: Request, why: Exception) -> Response:
        trace_id = secrets.token_hex(16)
        log.error("console_unexpected", trace_id=trace_id, method=request.method, path=request.url.path, exc_info=why)
        return self._plain(request, 500, trace_id)

    async def _reauthenticate(self, request: Request, why: Exception) -> Response:
        """A page that asks for the password and then sends the form again. Files have to be chosen again."""
        context: RequestContext = request.state.context
        if context.partial:
            return Response(status_code=401, headers={"HX-Redirect": context.url})
        method = request.method.replace("HEAD", "GET")
        fields = {
            "kept": context.form,
            "sure_for": request.state.form.texts.get("sure_for", method),
            "sure_back": self._responder.page_of_form(request),
            "error": str(why),
        }
        return await self._responder.html("reauthenticate.html", fields, context)

    async def _within_layout(self, request: Request, status: int, why: str = "") -> Response:
        context: RequestContext | None = getattr(request.state, "context", None)
        if context is None or context.partial:
            return self._plain(request, status, why=why)
        fields = {"status": status, "trace": "", "why": why, **_ways_on(request, status)}
        return await self._responder.html("error.html", fields, context, status)

    def _plain(self, request: Request, status: int, trace_id: str = "", why: str = "") -> Response:
        """Needs neither session nor database."""
        if "hx-request" in request.headers:
            return Response(status_code=status, headers={"HX-Reswap": "none"})
        fields = {"status": status, "trace": trace_id, "why": why, "context": None, "environment": self._environment}
        return HTMLResponse(rendering.render("error.html", {**fields, **_ways_on(request, status)}), status)


def _ways_on(request: Request, status: int) -> dict[str, Any]:
    """`again`: the address that was asked for, where it may answer next time; "" of a form, which is not sent twice."""
    context: RequestContext | None = getattr(request.state, "context", None)
    asks = status >= 500 and request.method in ("GET", "HEAD") and request.url.path.startswith("/console")
    query = f"?{request.url.query}" if request.url.query else ""
    return {
        "again": request.url.path + query if asks else "",
        "operator": context is not None and context.user.tenant_id is None,
    }
