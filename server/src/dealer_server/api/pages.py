"""What is served without signing: QR codes, the OpenAPI document, and whether this process is alive."""

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dealer_server.api import replies
from dealer_server.rules import refusal

CodeOf = Callable[[int, int, str], Awaitable[str | None]]
Draw = Callable[[str], bytes]


def pages(document: Callable[[], bytes], code_of: CodeOf, svg: Draw, png: Draw) -> Starlette:
    """`code_of` gives a profile's activation code when the token fits; `svg` and `png` draw it."""

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type="application/json")

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "UP"})

    async def qr(request: Request) -> Response:
        """An image that installs the eSIM: PNG, or SVG where the address ends so. The token in it is the key."""
        token, _, kind = request.path_params["token"].partition(".")
        if kind not in ("", "png", "svg"):
            return _not_found()
        code = await code_of(request.path_params["tenant_id"], request.path_params["profile_id"], token)
        if code is None:
            return _not_found()
        headers = {
            "Cache-Control": "private, no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
        }
        if kind == "svg":
            return Response(svg(code), media_type="image/svg+xml", headers=headers)
        return Response(png(code), media_type="image/png", headers=headers)

    async def unknown(_: Request, __: Exception) -> Response:
        return _not_found()

    return Starlette(
        routes=[
            Route("/openapi.json", openapi, methods=["GET"]),
            Route("/healthz", alive, methods=["GET"]),
            Route("/qr/{tenant_id:int}/{profile_id:int}/{token}", qr, methods=["GET"]),
        ],
        exception_handlers={404: unknown, 405: unknown},
    )


def _not_found() -> Response:
    status, headers, body = replies.refused(refusal.PathUnknown(), replies.trace_id(), None, None)
    return Response(body, status, headers={name.decode(): value.decode() for name, value in headers})
