"""How is the site served? With ETag, compressed, HEAD and a page for what is not there."""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dealer_server.console.middleware import SecurityHeaders
from dealer_server.settings import Settings

if TYPE_CHECKING:
    from dealer_server.docs_site.site import File

BASE = b"/docs"
PATHS = (BASE, BASE + b".md", b"/llms.txt", b"/llms-full.txt")
FOREVER = "public, max-age=31536000, immutable"
REVALIDATED = "no-cache"


class DocsApp(Starlette):
    """`document`: the OpenAPI document of what is served here."""

    def __init__(self, document: Callable[[], dict[str, Any]], settings: Settings):
        @functools.cache
        def files() -> Mapping[str, "File"]:
            # What renders Markdown is loaded for the first reader: a service without readers does without.
            from dealer_server.docs_site import site

            return site.files(document())

        async def served(request: Request) -> Response:
            path = request.url.path
            if path.endswith("/"):
                return RedirectResponse(path.rstrip("/"), 308)
            return await asyncio.to_thread(lambda: _answer(request, files(), path))

        super().__init__(
            routes=[Route("/{path:path}", served, methods=["GET"])],
            middleware=[Middleware(SecurityHeaders, settings)],
        )


def is_docs(path: bytes) -> bool:
    """Whether the site answers this path, as it was received."""
    return path in PATHS or path.startswith(BASE + b"/")


def _answer(request: Request, files: Mapping[str, "File"], path: str) -> Response:
    status, file = (200, files[path]) if path in files else (404, files["/docs/404.html"])
    headers = {
        "Cache-Control": FOREVER if file.hashed else REVALIDATED,
        "ETag": file.tag(),
        "Vary": "Accept-Encoding",
    }
    if status == 200 and _has(request, file.tag()):
        return Response(status_code=304, headers=headers)
    body = file.body()
    if "gzip" in request.headers.get("accept-encoding", "") and (zipped := file.zipped()):
        body, headers["Content-Encoding"] = zipped, "gzip"
    return Response(body, status, headers, file.media_type)


def _has(request: Request, tag: str) -> bool:
    given = request.headers.get("if-none-match", "")
    return given == "*" or tag in (one.strip() for one in given.split(","))
