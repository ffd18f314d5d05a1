"""A dealer's AppKeys, their secrets and limits, and its IP allowlist; edited as far as the operator permits."""

from dealer_server.console.dealer import samples
from dealer_server.console.shared import keys, uses
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.request_context import (
    Answer,
    Forbidden,
    Html,
    NotFound,
    Redirect,
    RequestContext,
)
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.tenants import credentials as operations
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.rules.access.scopes import MEANINGS
from dealer_server.store.console import api_log, dealer
from dealer_server.store.console.dealer import AccessTerms
from dealer_server.store.tenants import credential
from dealer_server.store.tenants.credential import Credential

MENU = MenuEntry("AppKeys", "key", 130)
KEYS, KEY = "/console/credentials", "/console/credentials/{app_key}"
CALLERS = 5
"""Addresses of the latest calls that the first allowlist is offered to begin with."""
TEMPLATE, SECRET_TEMPLATE = "dealer/credentials.html", "dealer/secret.html"


@page(KEYS, DEALER_DEVELOPERS, TEMPLATE, MENU)
async def credentials(context: RequestContext) -> Html:
    return await _credentials(context)


async def _credentials(context: RequestContext, fault: str = "", shut_out: list[tuple[str, str]] | None = None) -> Html:
    async with context.parts.database.connection() as connection:
        rows = await credential.of_tenant(connection, context.tenant_id)
        used = await credential.uses_of_tenant(connection, context.tenant_id)
        access = await dealer.access_terms(connection, context.tenant_id)
    callers = [] if access.ip_allow else list(dict.fromkeys(use.address for use in used))[:CALLERS]
    filled = callers if "allow" in context.query else access.ip_allow
    return Html(
        400 if fault or shut_out else 200,
        callers=callers,
        credentials=rows,
        uses=uses.newest(used),
        access=access,
        allowed=keys.addresses(context.form) if fault or shut_out else filled,
        fault=fault,
        shut_out=shut_out or [],
        scopes=MEANINGS,
        address=context.address,
        most=operations.MOST_KEYS,
        base_url=context.parts.settings.base_url,
        samples=samples.first_calls(context.parts.settings.base_url, next((one.app_key for one in rows), "ak_…")),
        now=context.now,
    )


@action(KEYS, DEALER_DEVELOPERS, TEMPLATE)
async def create(context: RequestContext) -> Answer:
    """Leads to the new secret. Raises ReauthenticationRequired, Forbidden."""
    await _manages_keys(context)
    context.require_recent_authentication()
    parts = context.parts
    made = await operations.create_key(
        parts.database,
        parts.master_keys,
        parts.settings.environment,
        context.tenant_id,
        keys.limits_of(context.form),
        context.author,
    )
    return Redirect(f"{KEYS}/{made.app_key}/secret?fresh=new")


@action(f"{KEYS}/allowlist", DEALER_DEVELOPERS, TEMPLATE)
async def set_allowlist(context: RequestContext) -> Answer:
    """The whole dealer's. Whoever would be shut out is named first. Raises Forbidden."""
    if not (await _access(context)).edits_ip_allow:
        raise Forbidden
    try:
        if shut_out := await keys.unsure(context, context.tenant_id):
            return await _credentials(context, shut_out=shut_out)
        terms = Terms(ip_allow=keys.addresses(context.form))
        await set_tenant(context.parts.database, context.tenant_id, terms, context.author, lambda: context.now)
    except OperatorError as why:
        return await _credentials(context, str(why))
    return Redirect(KEYS, "The IP allowlist is saved")


@page(f"{KEY}/secret", DEALER_DEVELOPERS, SECRET_TEMPLATE)
async def secret(context: RequestContext) -> Html:
    """The secret in force, where its button was pressed or it is `fresh`; the audit log records who saw it. Raises
    ReauthenticationRequired, NotFound."""
    key, fresh = await _load(context), context.query.get("fresh", "")
    text = await _reveal(context, key) if fresh or "show" in context.query else ""
    return await _secret(context, key, text, fresh)


async def _secret(
    context: RequestContext,
    key: Credential,
    text: str = "",
    fresh: str = "",
    shut_out: list[tuple[str, str]] | None = None,
) -> Html:
    return Html(
        400 if shut_out else 200,
        credential=key,
        secret=text,
        fresh=fresh,
        manages=(await _access(context)).manages_keys,
        scopes=MEANINGS,
        shut_out=shut_out or [],
        form=context.form,
        now=context.now,
    )


async def _reveal(context: RequestContext, key: Credential) -> str:
    parts = context.parts
    text = await operations.view_secret(parts.database, parts.master_keys, key.app_key, context.author)
    async with parts.database.connection() as connection:
        await api_log.record_steps(connection, [(context.tenant_id, "CREDENTIALS")], context.now)
    return text


@action(f"{KEY}/reset", DEALER_DEVELOPERS)
async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; the old one stays valid for 24 hours. Raises ReauthenticationRequired, NotFound."""
    key, parts = await _load(context), context.parts
    await operations.reset_secret(parts.database, parts.master_keys, key.app_key, context.author, lambda: context.now)
    return Redirect(f"{KEYS}/{key.app_key}/secret?fresh=reset")


@action(f"{KEY}/limits", DEALER_DEVELOPERS, SECRET_TEMPLATE)
async def limit(context: RequestContext) -> Answer:
    key = await _load(context)
    await _manages_keys(context)
    if shut_out := await keys.unsure(context, context.tenant_id, key.app_key):
        return await _secret(context, key, shut_out=shut_out)
    await operations.set_limits(context.parts.database, key.app_key, keys.limits_of(context.form), context.author)
    return Redirect(KEYS, "The limits of the AppKey are saved")


@action(f"{KEY}/webhooks", DEALER_DEVELOPERS)
async def sign_webhooks(context: RequestContext) -> Redirect:
    key = await _load(context)
    await _manages_keys(context)
    await operations.sign_webhooks(context.parts.database, key.app_key, context.author)
    return Redirect(KEYS, f"{key.app_key} signs your webhooks from now on")


@action(f"{KEY}/revoke", DEALER_DEVELOPERS)
async def revoke(context: RequestContext) -> Redirect:
    """Every call of it is refused from now on; only an operator can take that back."""
    key = await _load(context)
    await _manages_keys(context)
    await operations.disable_credential(context.parts.database, key.app_key, context.author, lambda: context.now)
    return Redirect(KEYS, f"{key.app_key} is revoked")


async def _access(context: RequestContext) -> AccessTerms:
    async with context.parts.database.connection() as connection:
        return await dealer.access_terms(connection, context.tenant_id)


async def _manages_keys(context: RequestContext) -> None:
    """Raises Forbidden."""
    if not (await _access(context)).manages_keys:
        raise Forbidden


async def _load(context: RequestContext) -> Credential:
    """The dealer's own credential. Raises NotFound, ReauthenticationRequired."""
    app_key = context.path["app_key"]
    known = await operations.list_keys(context.parts.database, context.tenant_id)
    found = next((one for one in known if one.app_key == app_key), None)
    if found is None:
        raise NotFound
    context.require_recent_authentication()
    return found
