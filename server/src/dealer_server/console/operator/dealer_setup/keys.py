"""The AppKeys of a dealer, as operators see and limit them."""

from dealer_server.console.operator import dealers
from dealer_server.console.operator.dealers import DEALER
from dealer_server.console.shared import keys, params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.tenants import credentials
from dealer_server.operations.tenants.credentials import OVERLAP
from dealer_server.rules.access.scopes import MEANINGS
from dealer_server.store.console.dealers import Dealer
from dealer_server.store.tenants.credential import Credential

KEYS, KEY = f"{DEALER}/credentials", f"{DEALER}/credentials/{{app_key}}"
TEMPLATE = "operator/secret.html"
FRESH = ("new", "reset", "replaced")


async def _load(context: RequestContext) -> tuple[Dealer, Credential]:
    """The dealer and its AppKey. Raises NotFound, ReauthenticationRequired."""
    dealer, app_key = await dealers.load(context), context.path["app_key"]
    known = await credentials.list_keys(context.parts.database, dealer.tenant_id)
    found = next((one for one in known if one.app_key == app_key), None)
    if found is None:
        raise NotFound
    context.require_recent_authentication()
    return dealer, found


@action(KEYS, OPERATOR_ADMINS)
async def create(context: RequestContext) -> Redirect:
    """Leads to the new secret. Raises ReauthenticationRequired."""
    dealer, parts = await dealers.load(context), context.parts
    context.require_recent_authentication()
    made = await credentials.create_key(
        parts.database,
        parts.master_keys,
        parts.settings.environment,
        dealer.tenant_id,
        keys.limits_of(context.form),
        context.author,
    )
    return Redirect(f"{dealers.home(dealer)}/credentials/{made.app_key}?fresh=new")


@page(KEY, OPERATOR_ADMINS, TEMPLATE)
async def secret(context: RequestContext) -> Html:
    """The audit log records who saw it. `fresh`: what was just done, for the words of the page."""
    dealer, key = await _load(context)
    return await _shown(context, dealer, key, params.one_of(context.query, "fresh", FRESH) or "")


async def _shown(
    context: RequestContext,
    dealer: Dealer,
    key: Credential,
    fresh: str = "",
    shut_out: list[tuple[str, str]] | None = None,
) -> Html:
    parts = context.parts
    text = await credentials.view_secret(parts.database, parts.master_keys, key.app_key, context.author)
    return Html(
        400 if shut_out else 200,
        dealer=dealer,
        key=key,
        app_key=key.app_key,
        secret=text,
        fresh=fresh,
        scopes=MEANINGS,
        shut_out=shut_out or [],
        form=context.form,
    )


@action(f"{KEY}/limits", OPERATOR_ADMINS, TEMPLATE)
async def limit(context: RequestContext) -> Answer:
    dealer, key = await _load(context)
    if shut_out := await keys.unsure(context, dealer.tenant_id, key.app_key):
        return await _shown(context, dealer, key, shut_out=shut_out)
    await credentials.set_limits(context.parts.database, key.app_key, keys.limits_of(context.form), context.author)
    return Redirect(f"{dealers.home(dealer)}/credentials/{key.app_key}", "The limits of the AppKey are saved")


@action(f"{KEY}/webhooks", OPERATOR_ADMINS)
async def sign_webhooks(context: RequestContext) -> Redirect:
    dealer, key = await _load(context)
    await credentials.sign_webhooks(context.parts.database, key.app_key, context.author)
    return Redirect(dealers.home(dealer), f"{key.app_key} signs the webhooks from now on")


@action(f"{KEY}/reset", OPERATOR_ADMINS)
async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; `now`: the old one ends at once."""
    dealer, key = await _load(context)
    parts, at_once = context.parts, "now" in context.form
    await credentials.reset_secret(
        parts.database,
        parts.master_keys,
        key.app_key,
        context.author,
        lambda: context.now,
        OVERLAP * (not at_once),
    )
    fresh = "replaced" if at_once else "reset"
    return Redirect(f"{dealers.home(dealer)}/credentials/{key.app_key}?fresh={fresh}")


@action(f"{KEY}/disable", OPERATOR_ADMINS)
async def disable(context: RequestContext) -> Redirect:
    dealer, key = await _load(context)
    await credentials.disable_credential(context.parts.database, key.app_key, context.author, lambda: context.now)
    return Redirect(dealers.home(dealer), f"{key.app_key} is disabled")


@action(f"{KEY}/enable", OPERATOR_ADMINS)
async def enable(context: RequestContext) -> Redirect:
    dealer, key = await _load(context)
    await credentials.enable_credential(context.parts.database, key.app_key, context.author, lambda: context.now)
    return Redirect(dealers.home(dealer), f"{key.app_key} is enabled")
