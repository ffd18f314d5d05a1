"""A dealer's credentials: the AppKeys; a secret after the password was asked for again, and a new one in its place."""

from dealer_server.console.dealer import own
from dealer_server.console.dealer.own import SECRETS
from dealer_server.console.visit import Go, MustBeSure, NotHere, Page, Route, Visit
from dealer_server.operations import tenant
from dealer_server.store import console_api_log, console_dealer, console_dealers
from dealer_server.store.console_dealers import Credential


async def credentials(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        found = await console_dealers.credentials(connection, visit.tenant_id)
        qps, allowed = await console_dealer.access_terms(connection, visit.tenant_id)
    base_url = visit.parts.settings.base_url
    return own.page(visit, "credentials", credentials=found, qps=qps, allowed=allowed, base_url=base_url, now=visit.now)


async def secret(visit: Visit) -> Page:
    """The secret in force where its button was pressed, or it is `fresh`; who looked is in the audit log. Raises
    MustBeSure, NotHere."""
    found, fresh = await _sure_of(visit), "fresh" in visit.query
    text = await _seen(visit, found) if fresh or "show" in visit.query else ""
    return own.page(visit, "secret", credential=found, secret=text, fresh=fresh, now=visit.now)


async def _seen(visit: Visit, found: Credential) -> str:
    parts = visit.parts
    text = await tenant.view_secret(parts.database, parts.master_keys, found.app_key, visit.author)
    async with parts.database.connection() as connection:
        await console_api_log.record_steps(connection, [(visit.tenant_id, "CREDENTIALS")], visit.now)
    return text


async def reset(visit: Visit) -> Go:
    """Leads to the new secret; the old one opens calls for 24 hours more. Raises MustBeSure, NotHere."""
    found, parts = await _sure_of(visit), visit.parts
    await tenant.reset_secret(parts.database, parts.master_keys, found.app_key, visit.author, lambda: visit.now)
    return Go(f"/console/credentials/{found.app_key}/secret?fresh=reset")


async def _sure_of(visit: Visit) -> Credential:
    """The dealer's own credential. Raises MustBeSure, NotHere."""
    found = await _own(visit)
    if not visit.sure:
        raise MustBeSure
    return found


async def _own(visit: Visit) -> Credential:
    """Raises NotHere."""
    async with visit.parts.database.connection() as connection:
        for one in await console_dealers.credentials(connection, visit.tenant_id):
            if one.app_key == visit.path["app_key"]:
                return one
    raise NotHere


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/credentials", SECRETS, credentials, "Credentials"),
    Route("GET", "/console/credentials/{app_key}/secret", SECRETS, secret),
    Route("POST", "/console/credentials/{app_key}/reset", SECRETS, reset),
)
