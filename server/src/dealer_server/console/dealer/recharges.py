"""Recharges of a dealer's eSIMs: what fits an eSIM, and buying it."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec

from dealer_server.audit_context import Actor
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.page import action
from dealer_server.console.shared.permissions import DEALER_FINANCE, permissions
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.operations.recharges.offers import RechargeOffer, recharge_offers
from dealer_server.operations.recharges.request import recharge_request
from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import sold_by_day
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.order import Placed, Repeated
from dealer_server.store.tenants import tenant
from esim_dealer.wire import calls

UNSURE = "It is not known whether the eSIM was recharged. Look at its plans before you try again."


async def offers_of(context: RequestContext, profile_id: int) -> Sequence[RechargeOffer]:
    """What this user may recharge one of the dealer's own eSIMs with."""
    if not permissions(context.user).money:
        return ()
    async with context.parts.database.connection() as connection:
        return await recharge_offers(connection, context.parts.catalogue(), context.tenant_id, profile_id)


@action("/console/profiles/{profile_id}/recharge", DEALER_FINANCE)
async def recharge(context: RequestContext) -> Redirect:
    """As /esim/topup does, at the price that the form showed. The form holds its transactionId, so that sending it
    twice buys one recharge."""
    parts, form = context.parts, context.form
    package_code, _, price = form.get("offer", "").rpartition(" ")
    package = parts.catalogue().package(package_code)
    days = params.number(form, "days") if package is not None and sold_by_day(package.data_type) else None
    request = call(
        calls.RechargeProfile,
        transactionId=form.get("transaction_id", ""),
        profileId=context.path["profile_id"],
        packageCode=package_code,
        price=_money(price),
        amount=_money(_times(price, days or 1)),
        periodNum=days,
    )
    async with parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    act = Actor.current(context.author, None)
    address = f"/console/profiles/{context.path['profile_id']}"
    try:
        decision = await parts.recharges.submit(
            recharge_request(context.tenant_id, request, parts.catalogue(), prices, act)
        )
    except refusal.OutcomeUnknown:
        return Redirect(address, UNSURE, failed=True)
    assert isinstance(decision, Placed | Repeated)
    return Redirect(address, f"Recharged with {package_code}: order {identity.order_no(decision.order_id)}")


def _money(text: str) -> msgspec.Raw:
    """As a call writes it."""
    return msgspec.Raw(msgspec.json.encode(text))


def _times(price: str, days: int) -> str:
    """The amount, as the form adds it up. Raises ParameterInvalid."""
    try:
        return str(Decimal(price) * days)
    except InvalidOperation:
        raise refusal.ParameterInvalid(f"{price!r} is no price") from None
