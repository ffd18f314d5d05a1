"""Where a dealer begins: how far its first run is, what it has, and its newest orders."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.permissions import EVERYONE
from dealer_server.console.shared.request_context import Page, Redirect, RequestContext, Route
from dealer_server.store.console import api_log, dealer
from dealer_server.store.console.api_log import Step as Managed
from dealer_server.store.console.dealer import Span, Wallet
from dealer_server.store.webhooks import endpoints
from dealer_server.store.webhooks.endpoints import Endpoint

HOME = "/console"
ORDERS = 5
FAILED = 99


class Step(NamedTuple):
    """A step of the first run. `href`: where it is done; `since`: when it was, where that is known."""

    title: str
    text: str
    href: str
    label: str
    done: bool
    since: datetime | None = None


async def home(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        wallet = await dealer.wallet(connection, context.tenant_id)
        managed = await api_log.steps(connection, context.tenant_id)
        newest, _ = await dealer.orders(connection, context.tenant_id, Span(0, 2**53), None, ORDERS)
        endpoint = await endpoints.find(connection, context.tenant_id)
        steps = _steps(managed, wallet, endpoint)
        failed = await dealer.failed_deliveries(connection, context.tenant_id, FAILED)
        written, dropped = await api_log.counts(connection, context.tenant_id)
    return permissions.page(
        context,
        "home",
        wallet=wallet,
        steps=steps,
        todo=[step for step in steps if not step.done],
        live_seen="LIVE" in managed,
        orders=newest,
        endpoint=endpoint,
        failed=failed,
        refused=written + dropped,
        base_url=context.parts.settings.base_url,
    )


def _steps(managed: Mapping[Managed, datetime], wallet: Wallet, endpoint: Endpoint | None) -> list[Step]:
    """Credentials are taken by looking at the secret, or got from the operator: then a signed call says so."""
    verified = managed.get("WEBHOOK") or (endpoint.last_success_at if endpoint else None)
    called = "HEALTH" in managed or "BALANCE" in managed or wallet.order_count > 0
    return [
        Step("Take your credentials", "An AppKey says who calls, its AppSecret signs.", "/console/credentials",
             "Credentials", "CREDENTIALS" in managed or called, managed.get("CREDENTIALS")),
        Step("Make a signed call to /health", "It proves that your signature is right. Refused? The API log shows the"
             " string that was to be signed.", "/console/api-log", "API log", "HEALTH" in managed,
             managed.get("HEALTH")),
        Step("Read your balance", "POST /account/balance says what you can spend.", "/console/wallet", "Wallet",
             "BALANCE" in managed, managed.get("BALANCE")),
        Step("Place a test order", "POST /esim/order with a package of /package/list.", "/console/orders", "Orders",
             wallet.order_count > 0),
        Step("Verify your webhook", "Set a callback URL and send a sample event to it.", "/console/webhooks",
             "Webhooks", bool(endpoint and endpoint.url and verified), verified),
    ]  # fmt: skip


async def live(context: RequestContext) -> Redirect:
    """That all steps are done was read: the first page says it no more, to nobody of this dealer."""
    async with context.parts.database.connection() as connection:
        await api_log.record_steps(connection, [(context.tenant_id, "LIVE")], context.now)
    return Redirect(HOME)


ROUTES: tuple[Route, ...] = (
    Route("GET", HOME, EVERYONE, home, "Home"),
    Route("POST", "/console/live", EVERYONE, live),
)
