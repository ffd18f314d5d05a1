"""The account of the RT face: the balance, and where events go."""

import msgspec

from dealer_server.api.routes.route import Parts
from dealer_server.api.rt import calls
from dealer_server.operations.cache import Caller
from dealer_server.operations.webhooks import endpoint
from dealer_server.webhooks import rt_health


class Balance(msgspec.Struct, frozen=True, rename="camel"):
    """In ten-thousandths."""

    balance: int
    currency_code: str


async def read_balance(parts: Parts, caller: Caller, _: calls.Empty) -> Balance:
    parts.record_step(caller.tenant_id, "BALANCE")
    account = await parts.accounts.submit(caller.tenant_id)
    return Balance(account.balance + account.credit_limit, account.currency)


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    webhook: str


async def save_webhook(parts: Parts, caller: Caller, call: calls.SaveWebhook) -> dict[str, str]:
    """CHECK_HEALTH is sent first. Raises 310501."""
    now = parts.clock()
    endpoint.refuse_rt_url(call.webhook, parts.callbacks)
    await rt_health.check(parts.database, parts.master_keys, parts.outbound, caller.tenant_id, call.webhook, now)
    await endpoint.set_rt_url(parts.database, caller.tenant_id, call.webhook, now)
    parts.record_step(caller.tenant_id, "WEBHOOK")
    return {}


async def query_webhook(parts: Parts, caller: Caller, _: calls.Empty) -> Webhook:
    return Webhook(await endpoint.rt_url(parts.reads, caller.tenant_id))
