"""What is wrong with a dealer's account and orders, for its own home page."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from dealer_server.console.find import profiles
from dealer_server.console.shared import incidents as shown
from dealer_server.console.shared.concern import Link
from dealer_server.console.shared.incidents import IncidentRow
from dealer_server.console.shared.permissions import Permissions, permissions
from dealer_server.console.shared.request_context import RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.incidents import dealer as rules
from dealer_server.rules.incidents import receiver as receiver_rules
from dealer_server.rules.incidents.dealer import Answered, Dealer, Ending, Own
from dealer_server.rules.incidents.incident import Incident
from dealer_server.rules.orders import identity
from dealer_server.store.console import api_log, dealer
from dealer_server.store.console import profiles as console_profiles
from dealer_server.store.console.dealer import Span, Wallet
from dealer_server.store.console.incidents import buying, receivers
from dealer_server.store.notices import buyer_mails
from dealer_server.store.tenants import credential
from dealer_server.store.webhooks import log
from dealer_server.store.webhooks.log import Filter
from esim_dealer.wire.vocabulary import DeliveryState

REFUNDS = 20
ANSWERED_SINCE = timedelta(days=1)
"""Refunds that were answered are told of for so long."""
FAILED_SINCE = REFUSED_SINCE = timedelta(days=1)
"""Orders that failed and calls that were refused, too."""


async def incidents(
    connection: Connection, context: RequestContext, wallet: Wallet, days_left: int | None
) -> list[IncidentRow]:
    """The worst first. `days_left`: of the balance."""
    tenant_id, may = context.tenant_id, permissions(context.user)
    means = await buying.means(connection, tenant_id)
    found = Dealer(
        tenant_id=tenant_id,
        name=wallet.name,
        disabled=False,
        frozen=wallet.frozen,
        currency=wallet.currency,
        available=wallet.available,
        threshold=wallet.low_balance_threshold,
        cheapest=means.cheapest,
        credentials=means.credentials,
        receiver=await receivers.of_dealer(connection, tenant_id, context.now),
    )
    answered = await buying.answered_refunds(connection, tenant_id, context.now - ANSWERED_SINCE, REFUNDS)
    topups, sum_of_topups = await dealer.waiting_topups(connection, tenant_id)
    own = Own(
        failed=await buying.failed_orders(connection, tenant_id),
        returned=await buying.returned_orders(
            connection, tenant_id, identity.ids_between(context.now - FAILED_SINCE, None)[0]
        ),
        refunds=[Answered(*row) for row in answered],
        topups=topups,
        sum_of_topups=sum_of_topups,
        unmailed=await _unmailed(connection, context) if may.secrets else 0,
        refused=await api_log.refused_since(connection, tenant_id, context.now - REFUSED_SINCE) if may.secrets else 0,
        days_left=days_left,
        ending=await profiles.ending_soon_of(connection, context),
        secrets=await _ending_secrets(connection, context) if may.secrets else (),
    )
    told = rules.own_incidents(found, own, context.now)
    return shown.rows(told, lambda incident: _links(incident, may, own.ending))


async def _unmailed(connection: Connection, context: RequestContext) -> int:
    """eSIMs that wait to be mailed, of a dealer who mails from here."""
    if not await buyer_mails.has_any(connection, context.tenant_id):
        return 0
    return await console_profiles.count_unmailed(connection, context.tenant_id, rules.UNMAILED_COUNTED)


async def _ending_secrets(connection: Connection, context: RequestContext) -> list[tuple[str, datetime]]:
    """Of AppKeys whose secret was reset: until when the one before opens calls."""
    keys = await credential.of_tenant(connection, context.tenant_id)
    until = [(key.name or key.app_key, key.previous_until) for key in keys if key.status == "ACTIVE"]
    return [(name, at) for name, at in until if at is not None and at > context.now]


async def of_receiver(connection: Connection, context: RequestContext) -> list[IncidentRow]:
    """What is wrong with the dealer's receiver."""
    receiver = await receivers.of_dealer(connection, context.tenant_id, context.now)
    found = None if receiver is None else receiver_rules.incident(receiver, context.now, own=True)
    if found is not None and found.since and (status := await _latest_answer(connection, context.tenant_id)):
        found = found._replace(text=f"Your endpoint answers HTTP {status}")
    failed = Link("Failed webhooks", "/console/webhooks?status=FAILED")
    return shown.rows([] if found is None else [found], lambda _: [failed])


async def _latest_answer(connection: Connection, tenant_id: int) -> int | None:
    """The HTTP status of the last attempt of the newest webhook that was not accepted."""
    states: tuple[DeliveryState, ...] = ("FAILED", "RETRY")
    pages = [
        await dealer.list_deliveries(connection, tenant_id, Span(0, 2**53), Filter(states=(state,)), 1)
        for state in states
    ]
    newest = max((row.delivery_id for page in pages for row in page.rows), default=None)
    if newest is None:
        return None
    attempts = (await log.attempts(connection, tenant_id, [newest]))[newest]
    return attempts[-1].http_status if attempts else None


def _links(incident: Incident, may: Permissions, ending: Ending) -> Sequence[Link]:
    match incident.kind:
        case "RECEIVER" if may.secrets:
            return [Link("Failed webhooks", "/console/webhooks?status=FAILED"), Link("Webhooks", "/console/webhooks")]
        case "BALANCE" if may.money:
            return [Link("Top up", "/console/wallet/topups")]
        case "BALANCE":
            return [Link("Wallet", "/console/wallet")]
        case "FAILED":
            return [Link("See the orders", "/console/orders?status=FAILED")]
        case "RETURNED" | "REFUNDS" if incident.subject:
            return [Link("See the order", f"/console/orders/{incident.subject}")]
        case "RETURNED":
            return [Link("See the orders", "/console/orders?status=FAILED")]
        case "UNMAILED":
            return [Link("Mail the eSIMs", "/console/profiles?status=NOT_MAILED")]
        case "TOPUPS":
            return [Link("Top-ups", "/console/wallet/topups")]
        case "PLANS":
            word = "Recharge plans" if ending.rechargeable and may.money else "See the plans"
            return [Link(word, "/console/profiles?ends=soon")]
        case "CALLS" if may.secrets:
            return [Link("See why", "/console/api-log?result=refused")]
        case "CREDENTIALS" | "SECRET" if may.secrets:
            return [Link("AppKeys", "/console/credentials")]
        case _:
            return []
