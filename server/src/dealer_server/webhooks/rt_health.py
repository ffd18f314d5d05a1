"""Does a URL take the RT family's events? CHECK_HEALTH is sent, and must be answered 2xx, before the URL is saved."""

from datetime import datetime
from uuid import uuid4

from dealer_server.db.database import Database
from dealer_server.db.sealing import MasterKeys
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.rules.rt import events
from dealer_server.store.webhooks import endpoints
from dealer_server.store.webhooks import signer as webhook_signer
from dealer_server.webhooks import signature
from dealer_server.webhooks.outbound import Outbound


async def check(
    database: Database, master_keys: MasterKeys, outbound: Outbound, tenant_id: int, url: str, now: datetime
) -> None:
    """Raises 310501 where it is not taken. Nothing is stored."""
    async with database.connection() as connection:
        endpoint = await endpoints.find(connection, tenant_id)
        signer = await webhook_signer.load(connection, tenant_id)
    if signer is None:
        raise CallbackUrlRefused("webhook: the dealer has no AppKey whose secret could sign events")
    body = events.health(now).body
    standard_id = f"health-{uuid4().hex}" if endpoint is not None and endpoint.standard_headers else None
    answer = await outbound.post(url, body, signature.headers(signer, master_keys, body, now, standard_id), now)
    if answer.error is not None:
        said = f"HTTP {answer.status}" if answer.status is not None else answer.error
        raise CallbackUrlRefused(
            f"webhook: CHECK_HEALTH was not taken there ({said}); accepted: a URL that answers 2xx"
        )
