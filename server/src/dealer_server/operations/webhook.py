"""Where does a dealer receive webhooks? (specification 4.5, decisions 4 and 6)"""

from datetime import datetime

import msgspec

from dealer_server.rules import endpoint, snapshot
from dealer_server.rules.endpoint import Policy
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.store import webhook as rows
from dealer_server.store.database import Connection, Database
from esim_dealer.wire.calls import SetWebhook, Webhook, WebhookState

SKIPPED_AT_ONCE = 5_000  # the worker gives up the rest

__all__ = ["Policy", "set_webhook", "webhook_state"]


async def set_webhook(database: Database, policy: Policy, tenant_id: int, call: SetWebhook, now: datetime) -> Webhook:
    """/webhook/set: puts the callback URL in place and enables it, also after a 410; "" or null removes it.

    What waits for a URL that is removed is SKIPPED. Whether the host resolves is seen when something is sent.
    Raises 310501.
    """
    url = call.callback_url or ""
    if url and (fault := endpoint.fault(url, policy)):
        raise CallbackUrlRefused(f"callbackUrl: {fault}")

    async def work(connection: Connection) -> None:
        await rows.set_endpoint(connection, tenant_id, url, now)
        if not url:
            await rows.skip_unfinished(connection, now, SKIPPED_AT_ONCE, tenant_id)

    await database.run(work)
    return Webhook(callback_url=url, enabled=bool(url), update_time=snapshot.whole_seconds(now))


async def webhook_state(database: Database, tenant_id: int) -> WebhookState:
    """/webhook/query."""
    async with database.connection() as connection:
        found = await rows.endpoint(connection, tenant_id)
    if found is None:
        return WebhookState(callback_url="", enabled=False, state="NOT_SET", consecutive_failures=0)
    state = WebhookState(
        callback_url=found.url,
        enabled=found.state == "ACTIVE",
        state=found.state,
        consecutive_failures=found.consecutive_failures,
    )
    if found.last_success_at is None:
        return state
    return msgspec.structs.replace(state, last_success_time=snapshot.whole_seconds(found.last_success_at))
