"""A dealer's credentials: the AppKeys; a secret after the password was asked for again, and a new one in its place."""

from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.permissions import SECRETS
from dealer_server.console.shared.request_context import (
    NotFound,
    Page,
    ReauthenticationRequired,
    Redirect,
    RequestContext,
    Route,
)
from dealer_server.operations.tenants.credentials import reset_secret, view_secret
from dealer_server.store.console import api_log, dealer, dealers
from dealer_server.store.console.dealers import Credential


async def credentials(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        found = await dealers.credentials(connection, context.tenant_id)
        qps, allowed = await dealer.access_terms(connection, context.tenant_id)
    base_url = context.parts.settings.base_url
    return permissions.page(
        context, "credentials", credentials=found, qps=qps, allowed=allowed, base_url=base_url, now=context.now
    )


async def secret(context: RequestContext) -> Page:
    """The secret in force where its button was pressed, or it is `fresh`; who looked is in the audit log. Raises
    MustBeSure, NotHere."""
    found, fresh = await _sure_of(context), "fresh" in context.query
    text = await _seen(context, found) if fresh or "show" in context.query else ""
    return permissions.page(context, "secret", credential=found, secret=text, fresh=fresh, now=context.now)


async def _seen(context: RequestContext, found: Credential) -> str:
    parts = context.parts
    text = await view_secret(parts.database, parts.master_keys, found.app_key, context.author)
    async with parts.database.connection() as connection:
        await api_log.record_steps(connection, [(context.tenant_id, "CREDENTIALS")], context.now)
    return text


async def reset(context: RequestContext) -> Redirect:
    """Leads to the new secret; the old one opens calls for 24 hours more. Raises MustBeSure, NotHere."""
    found, parts = await _sure_of(context), context.parts
    await reset_secret(parts.database, parts.master_keys, found.app_key, context.author, lambda: context.now)
    return Redirect(f"/console/credentials/{found.app_key}/secret?fresh=reset")


async def _sure_of(context: RequestContext) -> Credential:
    """The dealer's own credential. Raises MustBeSure, NotHere."""
    found = await _own(context)
    if not context.sure:
        raise ReauthenticationRequired
    return found


async def _own(context: RequestContext) -> Credential:
    """Raises NotHere."""
    async with context.parts.database.connection() as connection:
        for one in await dealers.credentials(connection, context.tenant_id):
            if one.app_key == context.path["app_key"]:
                return one
    raise NotFound


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/credentials", SECRETS, credentials, "Credentials"),
    Route("GET", "/console/credentials/{app_key}/secret", SECRETS, secret),
    Route("POST", "/console/credentials/{app_key}/reset", SECRETS, reset),
)
