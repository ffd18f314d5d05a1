"""`GET /qr/{tenantId}/{profileId}/{token}`: an image that installs an eSIM. The token in its address is the key."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dealer_server.rules import refusal
from dealer_server.rules.esim.qr import MAX_SIZE, MIN_SIZE

CodeOf = Callable[[int, int, str], Awaitable[str | None]]
Draw = Callable[[str, int | None], bytes]
Refuse = Callable[[Request, refusal.Refusal], Response]
_NOT_SHOWN = "There is no QR code at this address: it is wrong, or its eSIM is void."
_HEADERS = {
    "Cache-Control": "private, no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
}


def qr_route(code_of: CodeOf, svg: Draw, png: Draw, refuse: Refuse) -> Route:
    """`code_of` gives a profile's activation code when the token fits; `svg` and `png` draw it, in a size in pixels or,
    for None, as large as they like. PNG, or SVG where the address ends so."""

    async def qr(request: Request) -> Response:
        tenant_id, profile_id = (_number(request.path_params[name]) for name in ("tenant_id", "profile_id"))
        token, _, kind = request.path_params["token"].partition(".")
        if tenant_id is None or profile_id is None or kind not in ("", "png", "svg"):
            return refuse(request, refusal.PathUnknown(_NOT_SHOWN))
        try:
            size = _size(request)
        except refusal.ParameterInvalid as why:
            return refuse(request, why)
        code = await code_of(tenant_id, profile_id, token)
        if code is None:
            return refuse(request, refusal.PathUnknown(_NOT_SHOWN))
        if kind == "svg":
            return Response(svg(code, size), media_type="image/svg+xml", headers=_HEADERS)
        return Response(png(code, size), media_type="image/png", headers=_HEADERS)

    return Route("/qr/{tenant_id}/{profile_id}/{token}", qr, methods=["GET"])


def _size(request: Request) -> int | None:
    """The pixels that it is asked for in. Raises ParameterInvalid."""
    text = request.query_params.get("size")
    if text is None:
        return None
    size = _number(text)
    if size is None or not MIN_SIZE <= size <= MAX_SIZE:
        raise refusal.ParameterInvalid(f"size is invalid; accepted: pixels, an integer from {MIN_SIZE} to {MAX_SIZE}")
    return size


def _number(text: str) -> int | None:
    """An id, or a size; None for text that cannot be one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else None
