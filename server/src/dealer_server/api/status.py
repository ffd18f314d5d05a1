"""Is this process healthy? `/health`, `/livez`, `/readyz` and `/metrics`, for the operator's monitoring; not for
dealers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from dealer_server import metrics
from dealer_server.api.call_metrics import CallMetrics
from dealer_server.db.errors import DatabaseLost

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Gauges(NamedTuple):
    """As the tables have it. `purchases_open`: (supplier, state, count); `suppliers_paused`: by supplier, whether a
    worker paused it."""

    webhooks: Mapping[str, float]
    platform: Mapping[str, float]
    purchases_open: Sequence[tuple[str, str, int]]
    suppliers_paused: Mapping[str, bool]


class ProcessState(NamedTuple):
    """Of this process. `not_ready`: why no calls should be sent to it."""

    not_ready: Sequence[str]
    clock_ahead_seconds: float
    pools: Mapping[str, metrics.PoolSize]


ReadGauges = Callable[[], Awaitable[Gauges]]


def readiness(reasons: Sequence[str]) -> Response:
    """/readyz: whether calls may come to this process; if not, why."""
    if reasons:
        return JSONResponse({"status": "DOWN", "reasons": list(reasons)}, 503)
    return JSONResponse({"status": "UP"})


def worker_pages(gauges: ReadGauges, state: Callable[[], ProcessState]) -> Starlette:
    """While the database is lost, /health answers 503, and /metrics lacks what stands in tables."""

    async def health(_: Request) -> Response:
        try:
            found = await gauges()
        except DatabaseLost:
            return JSONResponse({"status": "DOWN", "database": "DOWN"}, 503)
        counts = [{"supplier": code, "state": state, "count": count} for code, state, count in found.purchases_open]
        return JSONResponse(
            {"status": "UP", "database": "UP", "webhooks": dict(found.webhooks), "purchasesOpen": counts}
        )

    async def text() -> bytes:
        own = generate_latest(metrics.REGISTRY)
        try:
            found = await gauges()
        except DatabaseLost:
            return own
        webhooks = {f"webhook_{name}": value for name, value in found.webhooks.items()}
        return own + metrics.of_tables({**webhooks, **found.platform}, found.purchases_open, found.suppliers_paused)

    return _pages(text, state, Route("/health", health))


def serve_pages(calls: CallMetrics, state: Callable[[], ProcessState]) -> Starlette:
    async def text() -> bytes:
        return calls.text(metrics.BATCHES)

    return _pages(text, state)


def _pages(text: Callable[[], Awaitable[bytes]], state: Callable[[], ProcessState], *more: Route) -> Starlette:
    async def prometheus(_: Request) -> Response:
        return Response(metrics.of_process(*state()) + await text(), media_type=PROMETHEUS)

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "UP"})

    async def ready(_: Request) -> Response:
        return readiness(state().not_ready)

    return Starlette(routes=[Route("/livez", live), Route("/readyz", ready), Route("/metrics", prometheus), *more])
