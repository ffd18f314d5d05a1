"""A dealer's first page: what is wrong, its balance, its last 30 days, and its newest orders; first of all the steps of
its first run."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dealer_server.console.dealer import findings, resale
from dealer_server.console.dealer.orders import unmailed
from dealer_server.console.find import orders as find_orders
from dealer_server.console.shared import reports
from dealer_server.console.shared.incidents import receiver_health
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import DEALERS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.bars import Bar, bars
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.period import period
from dealer_server.rules.reports import recent as rules
from dealer_server.rules.reports.period import day_of, start_of
from dealer_server.rules.reports.recent import Recent, days_left
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.console import api_log, dealer, orders
from dealer_server.store.console import user as console_user
from dealer_server.store.console.api_log import Step as DoneStep
from dealer_server.store.console.dealer import Wallet
from dealer_server.store.console.orders import OrderFilter
from dealer_server.store.notices import buyer_mails, recipients
from dealer_server.store.reports import report
from dealer_server.store.reports.report import Filter, Row
from dealer_server.store.tenants import brand, credential
from dealer_server.store.tenants.credential import Use
from dealer_server.store.webhooks import endpoints
from dealer_server.store.webhooks import recent as recent_attempts
from dealer_server.store.webhooks.endpoints import Endpoint

HOME = "/console"
ORDERS = 5
PACKAGES = 5
FAILED = 99
LASTS_DAYS = 60
"""A balance that lasts longer is not told of."""
LIVE_ORDERS = 20
"""A dealer with so many is live, whatever steps it has left out."""
NOTED_FOR = timedelta(days=1)


class Step(NamedTuple):
    """A step of the first run. `href`: the page for it; `since`: when it was done, where that is known; `commands`:
    what does it in a terminal."""

    title: str
    text: str
    href: str
    label: str
    done: bool
    since: datetime | None = None
    commands: Sequence[str] = ()


class Bought(NamedTuple):
    """`name`: None of a package that is no more in the catalogue."""

    code: str
    name: str | None
    currency: str
    sums: Sums


class Setup(NamedTuple):
    """What is set: a brand; an address that notices go to."""

    brand: bool
    told: bool


class Advice(NamedTuple):
    """What is good to set, and where."""

    title: str
    text: str
    href: str
    label: str


@page(HOME, DEALERS, "dealer/home.html", MenuEntry("Home", "home", 10))
async def home(context: RequestContext) -> Html:
    last_day = period("24h", None, None, context.now)
    async with context.parts.database.connection() as connection:
        wallet = await dealer.wallet(connection, context.tenant_id)
        done = await api_log.steps(connection, context.tenant_id)
        latest = await _latest(connection, context)
        endpoint = await endpoints.find(connection, context.tenant_id)
        failed = await dealer.failed_deliveries(connection, context.tenant_id, FAILED)
        tried = await recent_attempts.hours(connection, context.tenant_id, last_day.start)
        unheard = await recent_attempts.unfinished(connection, context.tenant_id, 0)
        uses = await credential.uses_of_tenant(connection, context.tenant_id)
        recent = await _recent(connection, context, wallet.currency)
        left = days_left(wallet.available, recent)
        incidents = await findings.incidents(connection, context, wallet, left)
        setup = await _setup(connection, context.tenant_id)
        advised = await _advised(connection, context)
        bought = await _bought(connection, context)
        packages = await _top(connection, bought)
    webhook_day = bars((Bar(one.hour, one.delivered, one.failed) for one in tried), last_day)
    steps = _steps(context, done, wallet, endpoint, uses, setup, answered=webhook_day.good > 0)
    todo = [step for step in steps if not step.done]
    live = not todo or wallet.order_count >= LIVE_ORDERS
    just_live = not todo and _is_fresh(steps, context.now)
    return Html(
        wallet=wallet,
        recent=recent,
        today=recent.sums[-1],
        yesterday=recent.sums[-2],
        profit=_profit(context, bought, wallet.currency),
        per_day=rules.per_day(recent),
        days_left=left if left is not None and left <= LASTS_DAYS else None,
        packages=packages,
        starts=[start_of(day) for day in recent.days],
        spent_by_day=reports.amounts(recent.sums, "revenue", wallet.currency),
        before=reports.chart_before(recent.before, wallet.currency),
        incidents=incidents,
        health=receiver_health(endpoint, webhook_day.good, webhook_day.total),
        webhook_day=webhook_day,
        steps=steps,
        todo=todo,
        first_run=not live and "LIVE" not in done,
        left_out=live and bool(todo or advised) and not just_live and "LIVE" not in done,
        advised=advised,
        just_live=just_live and "LIVE" not in done,
        endpoint=endpoint,
        failed_count=failed,
        ended_well=not failed and not unheard,
        base_url=context.parts.settings.base_url,
        **latest,
    )


async def _latest(connection: Connection, context: RequestContext) -> dict[str, Any]:
    """The newest orders, and what stands beside them."""
    newest = await orders.list_orders(connection, OrderFilter(context.tenant_id), None, ORDERS)
    ids = [one.order_id for one in newest.rows]
    return {
        "orders": newest.rows,
        "mailed": await buyer_mails.newest_of_orders(connection, context.tenant_id, ids),
        "unmailed": await unmailed(context, connection, newest.rows),
        "in_review": await find_orders.in_review(connection, newest.rows),
    }


async def _recent(connection: Connection, context: RequestContext, currency: str) -> Recent:
    today = day_of(context.now)
    days = await report.by_day(connection, Filter(rules.compared(today), context.tenant_id))
    return rules.recent(days, currency, today)


async def _setup(connection: Connection, tenant_id: int) -> Setup:
    users = await recipients.users(connection, [tenant_id])
    return Setup(
        brand=await brand.find(connection, tenant_id) != Brand(),
        told=any(user.address for user in users) or bool(await recipients.url(connection, tenant_id)),
    )


async def _advised(connection: Connection, context: RequestContext) -> list[Advice]:
    """What would make the account safer."""
    found: list[Advice] = []
    user = await console_user.one(connection, context.user.user_id)
    if user is not None and not user.totp_on:
        text = "Your sign-in then asks for a code of your phone too."
        found.append(Advice("Set up two-factor sign-in", text, "/console/account/totp", "Set up"))
    access = await dealer.access_terms(connection, context.tenant_id)
    keys = await credential.of_tenant(connection, context.tenant_id)
    if not access.ip_allow and any(key.status == "ACTIVE" and not key.ip_allow for key in keys):
        text = "An IP allowlist refuses calls from elsewhere, even with your AppSecret."
        found.append(Advice("Set an IP allowlist", text, "/console/credentials", "Set up"))
    return found


async def _bought(connection: Connection, context: RequestContext) -> list[Row]:
    """Packages of the last 30 days, those first that it spent most on; as many as the report shows, and one more."""
    wanted = Filter(rules.shown(day_of(context.now)), context.tenant_id)
    return await report.grouped(connection, wanted, ["package"], reports.SHOWN + 1)


def _profit(context: RequestContext, bought: Sequence[Row], currency: str) -> int | None:
    """As the report of these days says it: None where it is not known, or of more packages than that shows."""
    return resale.profit(context.parts.catalogue(), bought, currency) if len(bought) <= reports.SHOWN else None


async def _top(connection: Connection, bought: Sequence[Row]) -> list[Bought]:
    rows = [row for row in bought[:PACKAGES] if row.sums.sold]
    codes = [row.keys["package"] for row in rows]
    _, names = await report.names(connection, [], codes)
    return [Bought(code, names.get(code), row.currency, row.sums) for code, row in zip(codes, rows, strict=True)]


def _is_fresh(steps: Sequence[Step], now: datetime) -> bool:
    """Whether the last step was done in the last day."""
    return any(step.since is not None and now - step.since < NOTED_FOR for step in steps)


def _steps(
    context: RequestContext,
    done: Mapping[DoneStep, datetime],
    wallet: Wallet,
    endpoint: Endpoint | None,
    uses: Sequence[Use],
    setup: Setup,
    *,
    answered: bool,
) -> list[Step]:
    """Credentials count as taken once the secret was seen, or once a signed call was made: any call that was accepted
    is one. `uses`: of its AppKeys. `answered`: its endpoint accepted webhooks of late."""
    settings = context.parts.settings
    verified = done.get("WEBHOOK") or (endpoint.last_success_at if endpoint else None)
    signed = min((use.used_at for use in uses), default=done.get("HEALTH") or done.get("BALANCE"))
    called = signed is not None or wallet.order_count > 0
    package = "TEST-OK" if settings.environment == "test" else "PACKAGE"
    ordering = (
        "Buy one here, or by API: POST /esim/order with a package of /package/list.",
        "/console/catalogue",
        "Catalogue",
    )
    return [
        Step("Get your AppKey", "The AppKey identifies you, the AppSecret signs your calls.",
             "/console/credentials", "AppKeys", "CREDENTIALS" in done or called, done.get("CREDENTIALS")),
        Step("Make a signed call, such as /health", "It proves that your signature is right. Refused? The API log shows"
             " the expected string.", "/console/api-log", "API log", signed is not None,
             done.get("HEALTH") or signed, (f"esim-dealer login --url {settings.base_url}", "esim-dealer health")),
        Step("Top up your wallet", "Orders are paid from its balance.", "/console/wallet/topups", "Top up",
             wallet.available > 0 or wallet.order_count > 0),
        Step("Place a test order", *ordering, wallet.order_count > 0, None, (f"esim-dealer order {package} --wait",)),
        Step("Verify your webhook", "Set a callback URL and send a sample event to it.", "/console/webhooks",
             "Webhooks", bool(endpoint and endpoint.url and (verified or answered)), verified),
        Step("Set your brand", "Your name, logo and support contact, on the page on which travellers install.",
             "/console/brand", "Install page", setup.brand),
        Step("Choose where notices go", "A low balance, plans that end, an endpoint that fails: by mail or webhook.",
             "/console/notices/settings", "Notices", setup.told),
    ]  # fmt: skip


@action("/console/live", DEALERS)
async def live(context: RequestContext) -> Redirect:
    """Hides the steps, or the note that all are done, for every user of this dealer."""
    async with context.parts.database.connection() as connection:
        await api_log.record_steps(connection, [(context.tenant_id, "LIVE")], context.now)
    return Redirect(HOME)
