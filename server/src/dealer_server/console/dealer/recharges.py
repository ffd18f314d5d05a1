"""Recharges of a dealer's eSIMs: what fits an eSIM, and buying it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import msgspec

from dealer_server.audit_context import Actor
from dealer_server.console.dealer.buying import catalogue, words
from dealer_server.console.dealer.buying.catalogue import PackageView
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.page import action
from dealer_server.console.shared.permissions import DEALER_FINANCE, permissions
from dealer_server.console.shared.request_context import Redirect, RequestContext
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.recharges.offers import recharge_offers
from dealer_server.operations.recharges.request import recharge_request
from dealer_server.rules import refusal
from dealer_server.rules.catalogue.choosing import OnSale
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Profile
from dealer_server.rules.orders.order import Placed, Repeated
from dealer_server.rules.refusal import Refusal
from dealer_server.store.console import dealer
from dealer_server.store.tenants import tenant
from esim_dealer.wire import calls

UNSURE = "It is not known whether the eSIM was recharged. Look at its plans before you try again."
_SENTENCES: Mapping[str, str] = {
    "200004": "A refund of this eSIM is under way.",
    "200008": "This package does not fit this eSIM. Choose another.",
    "200010": "This eSIM has no ICCID yet. Try again once it has.",
    "200022": "This eSIM cannot be recharged.",
    "CANCELLED": "This eSIM is cancelled.",
    "EXPIRED": "This eSIM has expired.",
    "TOO_MANY_PLANS": "This eSIM has as many plans as it can have.",
}


class Choice(NamedTuple):
    """A package that an eSIM can be recharged with. `days`: None where it is not sold by the day; its price is that of
    a day else. `queued`: it begins when the current plan ends. `left`: what can still be spent after it, in major
    units; "" where that depends on the days, None where the balance does not cover it."""

    view: PackageView
    currency: str
    days: range | None
    queued: bool
    left: str | None

    @property
    def value(self) -> str:
        """What the form sends."""
        return f"{self.view.package.package_code} {self.view.price}"


class Offered(NamedTuple):
    """`available`: what can be spent now, in major units."""

    choices: Sequence[Choice]
    available: str
    currency: str


async def offered(context: RequestContext, profile: Profile) -> Offered | None:
    """What this user may recharge one of the dealer's own eSIMs with; None where that is nothing."""
    if not permissions(context.user).money:
        return None
    async with context.parts.database.connection() as connection:
        offers = await recharge_offers(connection, context.parts.catalogue(), context.tenant_id, profile.profile_id)
        wallet = await dealer.wallet(connection, context.tenant_id)
    choices = [
        Choice(
            view=catalogue.view(OnSale(offer.package, offer.price, "")),
            currency=offer.currency,
            days=offer.days,
            queued=offer.queued and profile.plan_use_status != "ENDED",
            left=_left(wallet.available, offer.price, offer.days, offer.currency),
        )
        for offer in sorted(offers, key=lambda offer: offer.price)
    ]
    return Offered(choices, money.text(wallet.available, wallet.currency), wallet.currency) if choices else None


def _left(available: int, price: int, days: range | None, currency: str) -> str | None:
    if available < price * (days[0] if days else 1):
        return None
    return "" if days else money.text(available - price, currency)


@action("/console/profiles/{profile_id}/recharge", DEALER_FINANCE)
async def recharge(context: RequestContext) -> Redirect:
    """As /esim/topup does, at the price that the form showed. The form holds its transactionId, so that sending it
    twice buys one recharge."""
    parts, form = context.parts, context.form
    package_code, _, price = form.get("offer", "").rpartition(" ")
    package = parts.catalogue().package(package_code)
    if package is None:
        raise OperatorError("Choose a package.", "offer")
    days = _days(form, package)
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
    except refusal.TransactionIdReused as why:
        return Redirect(address, words.of(why), failed=True)
    except Refusal as why:
        raise OperatorError(_plain(why, package_code, prices.currency)) from None
    assert isinstance(decision, Placed | Repeated)
    order_no = identity.order_no(decision.order_id)
    if isinstance(decision, Repeated):
        return Redirect(address, f"This form was sent before. It was not processed again: order {order_no}")
    return Redirect(address, f"Paid. Plans shows the recharge: order {order_no}")


def _days(form: Mapping[str, str], package: Package) -> int | None:
    """None where it is not sold by the day. Raises OperatorError."""
    if not sold_by_day(package.data_type):
        return None
    days, least, most = params.number(form, "days"), package.min_period_num, package.max_period_num
    if days is not None and not least <= days <= most:
        raise OperatorError(f"{package.package_name} is sold for {least} to {most} days.", "days")
    return days


def _plain(why: Refusal, package_code: str, currency: str) -> str:
    data = why.data or {}
    if why.code == "200005":
        return f"The price of {package_code} is {data.get('expectedPrice')} {currency} now. Look at it and pay again."
    reason = str(data.get("reason")) if why.code == "200002" else why.code
    return _SENTENCES.get(reason) or words.of(why)


def _money(text: str) -> msgspec.Raw:
    """As a call writes it."""
    return msgspec.Raw(msgspec.json.encode(text))


def _times(price: str, days: int) -> str:
    """The amount, as the form adds it up. Raises OperatorError."""
    try:
        return str(Decimal(price) * days)
    except InvalidOperation:
        raise OperatorError("Choose a package.", "offer") from None
