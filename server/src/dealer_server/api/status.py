"""Is this worker well? `/health` and `/metrics`, for the operator's monitoring; never open to dealers."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dealer_server import metrics
from dealer_server.store.database import DatabaseLost

Gauges = Callable[[], Awaitable[Mapping[str, float]]]
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def pages(gauges: Gauges) -> Starlette:
    """`gauges` reads the database; while it is lost, /health answers 503."""

    async def health(_: Request) -> Response:
        try:
            read = await gauges()
        except DatabaseLost:
            return JSONResponse({"status": "DOWN", "database": "DOWN"}, 503)
        return JSONResponse({"status": "UP", "database": "UP", "webhooks": dict(read)})

    async def prometheus(_: Request) -> Response:
        try:
            read = await gauges()
        except DatabaseLost:
            return Response("the database is lost", 503)
        return Response(metrics.text(read), media_type=PROMETHEUS)

    return Starlette(routes=[Route("/health", health), Route("/metrics", prometheus)])
