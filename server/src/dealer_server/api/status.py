"""Is this worker healthy? `/health`, `/readyz` and `/metrics`, for the operator's monitoring; not for dealers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dealer_server import metrics
from dealer_server.db.errors import DatabaseLost

PurchasesOpen = Sequence[tuple[str, str, int]]
Gauges = Callable[[], Awaitable[tuple[Mapping[str, float], PurchasesOpen]]]
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def readiness(reasons: Sequence[str]) -> Response:
    """/readyz: whether calls may come to this process; if not, why."""
    if reasons:
        return JSONResponse({"status": "DOWN", "reasons": list(reasons)}, 503)
    return JSONResponse({"status": "UP"})


def pages(gauges: Gauges, not_ready: Callable[[], Sequence[str]]) -> Starlette:
    """`gauges` reads the gauges of webhooks, and how many purchases of each supplier are in which state. While the
    database is lost, /health answers 503."""

    async def health(_: Request) -> Response:
        try:
            webhooks, purchases = await gauges()
        except DatabaseLost:
            return JSONResponse({"status": "DOWN", "database": "DOWN"}, 503)
        counts = [{"supplier": code, "state": state, "count": count} for code, state, count in purchases]
        return JSONResponse({"status": "UP", "database": "UP", "webhooks": dict(webhooks), "purchasesOpen": counts})

    async def prometheus(_: Request) -> Response:
        try:
            webhooks, purchases = await gauges()
        except DatabaseLost:
            return Response("the database is lost", 503)
        return Response(metrics.text(webhooks, purchases), media_type=PROMETHEUS)

    async def ready(_: Request) -> Response:
        return readiness(not_ready())

    return Starlette(routes=[Route("/health", health), Route("/readyz", ready), Route("/metrics", prometheus)])
