"""Where made-up dealers receive their webhooks: a server on a port of its own, while `dealer-server dev` runs. It
accepts them all, but of some dealers not each first attempt. A data folder keeps the port, so that no start changes
the URLs of dealers and suppliers.
"""

import re
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from aiohttp import web

from dealer_server import sockets
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.dev.history import Dealer
from dealer_server.store.past.webhooks import PastAttempt, PastReceiver
from dealer_server.store.webhooks import endpoints

HOST = "127.0.0.1"
PATH = "/webhooks/{seed}"
_OURS = re.compile(rf"http://{re.escape(HOST)}:\d+/webhooks/\d+")
REFUSAL, REFUSED = 503, "STATUS"
REASON, ACCEPTANCE = '{"error": "the shop restarts"}', '{"received": true}'
RETRIED_AFTER = timedelta(seconds=5)
LATEST = timedelta(minutes=1)
"""What happened later than so long ago was accepted at once."""


def attempts(dealer: Dealer, delivery_id: int, at: datetime, now: datetime) -> Sequence[PastAttempt]:
    """Those of an event at `at` of a made-up past; the last one was accepted."""
    if now - at < LATEST:
        return [PastAttempt(at, at, 200, answer_head=ACCEPTANCE)]
    took, later = (timedelta(milliseconds=15 + number % 160) for number in (delivery_id * 37, delivery_id * 53 + 71))
    begun = at + timedelta(milliseconds=4 + delivery_id % 9)
    if not _refuses(dealer, delivery_id, 1):
        return [PastAttempt(begun, begun + took, 200, answer_head=ACCEPTANCE)]
    again = begun + took + RETRIED_AFTER
    fields = f"Content-Type: application/json; charset=utf-8\nContent-Length: {len(REASON)}"
    head = f"{fields}\nDate: {format_datetime(begun, usegmt=True)}"
    return [
        PastAttempt(begun, begun + took, REFUSAL, REFUSED, REASON, head),
        PastAttempt(again, again + later, 200, answer_head=ACCEPTANCE),
    ]


def _refuses(dealer: Dealer, delivery_id: int, number: int) -> bool:
    """Attempts are numbered from 1."""
    return number == 1 and dealer.refuses_each > 0 and delivery_id % dealer.refuses_each == 0


@asynccontextmanager
async def running(
    dealers: Sequence[Dealer], routes: Sequence[web.RouteDef] = (), port_file: Path | None = None
) -> AsyncIterator[str]:
    """Gives its address. `routes`: what it answers besides. `port_file`: holds the port between starts."""
    by_seed = {str(dealer.seed): dealer for dealer in dealers}

    async def receive(request: web.Request) -> web.Response:
        await request.read()
        dealer = by_seed.get(request.match_info["seed"])
        delivery_id, number = request.headers.get("RT-Delivery-ID", ""), request.headers.get("RT-Delivery-Attempt", "")
        if dealer is None or not delivery_id.isdecimal() or not number.isdecimal():
            return web.Response(status=404)
        refused = _refuses(dealer, int(delivery_id), int(number))
        text, status = (REASON, REFUSAL) if refused else (ACCEPTANCE, 200)
        return web.Response(text=text, status=status, content_type="application/json")

    app = web.Application()
    app.router.add_post(PATH, receive)
    app.add_routes(routes)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        bound = _bound(port_file)
        await web.SockSite(runner, bound).start()
        yield f"http://{sockets.address_text(bound)}"
    finally:
        await runner.cleanup()


def _bound(port_file: Path | None) -> socket.socket:
    """The port of the last start, or another one where that is taken."""
    kept = port_file.read_text() if port_file and port_file.exists() else ""
    bound = None
    if kept.isdecimal():
        with suppress(OSError):
            bound = sockets.bind(HOST, int(kept))
    bound = bound or sockets.bind(HOST, 0)
    if port_file:
        port_file.write_text(f"{bound.getsockname()[1]}")
    return bound


def of(dealer: Dealer, address: str, now: datetime) -> PastReceiver | None:
    """The dealer's receiver, with its past; None of a dealer who has none."""
    if not dealer.receives_days:
        return None
    since = now - timedelta(days=dealer.receives_days)
    return PastReceiver(url(address, dealer), since, lambda delivery_id, at: attempts(dealer, delivery_id, at, now))


def url(address: str, dealer: Dealer) -> str:
    return address + PATH.format(seed=dealer.seed)


async def move(database: Database, dealers: Sequence[tuple[Dealer, int]], address: str, clock: Clock) -> None:
    """Dealers, given with their tenant_ids, who received at another port of this server receive at `address`."""
    async with database.connection() as connection:
        for dealer, tenant_id in dealers:
            endpoint = await endpoints.find(connection, tenant_id)
            if endpoint is not None and _OURS.fullmatch(endpoint.url) and endpoint.url != url(address, dealer):
                await endpoints.set_url(connection, tenant_id, url(address, dealer), clock())
