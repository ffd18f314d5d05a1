"""A dealer's credentials: the AppKeys, their secrets, and replacing a secret."""

from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.operations.tenants.credentials import reset_secret, view_secret
from dealer_server.store.console import api_log, dealer, dealers
from dealer_server.store.console.dealers import Credential

MENU = MenuEntry("Credentials", "key", 130)


@page("/console/credentials", DEALER_DEVELOPERS, "dealer/credentials.html", MENU)
async def credentials(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        rows = await dealers.credentials(connection, context.tenant_id)
        access = await dealer.access_terms(connection, context.tenant_id)
    return Html(
        credentials=rows,
        qps=access.qps,
        allowed=access.ip_allow,
        base_url=context.parts.settings.base_url,
        now=context.now,
    )


@page("/console/credentials/{app_key}/secret", DEALER_DEVELOPERS, "dealer/secret.html")
async def secret(context: RequestContext) -> Html:
    """The secret in force, where its button was pressed or it is `fresh`; the audit log records who saw it. Raises
    ReauthenticationRequired, NotFound."""
    credential, fresh = await _load(context), "fresh" in context.query
    text = await _reveal(context, credential) if fresh or "show" in context.query else ""
    return Html(credential=credential, secret=text, fresh=fresh, now=context.now)


async def _reveal(context: RequestContext, credential: Credential) -> str:
    parts = context.parts
    text = await view_secret(parts.database, parts.master_keys, credential.app_key, context.author)
    async with parts.database.connection() as connection:
        await api_log.record_steps(connection, [(context.tenant_id, "CREDENTIALS")], context.now)
    return text


@action("/console/credentials/{app_key}/reset", DEALER_DEVELOPERS)
async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; the old one stays valid for 24 hours. Raises ReauthenticationRequired, NotFound."""
    credential, parts = await _load(context), context.parts
    await reset_secret(parts.database, parts.master_keys, credential.app_key, context.author, lambda: context.now)
    return Redirect(f"/console/credentials/{credential.app_key}/secret?fresh=reset")


async def _load(context: RequestContext) -> Credential:
    """The dealer's own credential. Raises NotFound, ReauthenticationRequired."""
    app_key = context.path["app_key"]
    async with context.parts.database.connection() as connection:
        rows = await dealers.credentials(connection, context.tenant_id)
    credential = next((row for row in rows if row.app_key == app_key), None)
    if credential is None:
        raise NotFound
    context.require_recent_authentication()
    return credential
