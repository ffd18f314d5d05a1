"""May this eSIM be recharged, and the recharge refunded? (specification 4.14, docs/decisions/0030-recharges.md)"""

import hashlib
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import Package, sold_by_day
from dealer_server.rules.delivery import delivery
from dealer_server.rules.money import money
from dealer_server.rules.orders import order, priced_lines
from dealer_server.rules.orders.model import AppliedPlan, Order, Profile
from dealer_server.rules.orders.priced_lines import Offer, OrderLine
from dealer_server.rules.refunds.refund import Reason
from esim_dealer.wire.calls import RechargeProfile


class Target(msgspec.Struct, frozen=True):
    """An eSIM that is to be recharged, as it stands. `supplier`, `kind`: who made it. `voiding`: its cancellation waits
    for that supplier. `plans`: the greatest plan_no it has. `version`: that of its order."""

    tenant_id: int
    order_id: int
    profile_id: int
    package_code: str
    supplier: str
    kind: str
    iccid: str | None
    cancelled: bool
    refunded: bool
    held: bool
    voiding: bool
    expired: bool
    plans: int
    version: int


class Wanted(msgspec.Struct, frozen=True):
    """A recharge that a dealer asks for. The eSIM is named by one of the first two; `base`: finds its package.
    `refused`: why it cannot be bought, whatever the eSIM is."""

    profile_id: int | None
    iccid: str | None
    package: Package | None
    period_num: int | None
    base: Callable[[str], Package | None]
    refused: refusal.Refusal | None


class Fit(NamedTuple):
    """Which eSIMs a recharge fits: the kind of their supplier, and the packageCodes of their packages, with commas
    between."""

    kind: str
    bases: str


class Priced(msgspec.Struct, frozen=True):
    """What a call asks for beside the eSIM, with its price. `package`: as it is on sale. `refused`: the first refusal
    that depends on neither eSIM nor wallet and stands before those that do; `refused_price`: one that stands behind
    them. `digested`: what is digested before the name of the eSIM, and after it."""

    package: Package | None
    amount: int
    line: OrderLine
    refused: refusal.Refusal | None
    refused_price: refusal.Refusal | None
    digested: tuple[str, str]


def price(call: RechargeProfile, currency: str, offer: Offer | None) -> Priced:
    """Malformed amounts raise 000106, 000108."""
    parsed_in = max(currency, call.currency or currency, key=lambda code: money.EXPONENTS.get(code, -1))
    unit_price = priced_lines.read_amount("price", call.price, parsed_in)
    amount = priced_lines.read_amount("amount", call.amount, parsed_in)
    return price_offer(call, currency, offer, unit_price, amount)


def price_offer(call: RechargeProfile, currency: str, offer: Offer | None, unit_price: int, amount: int) -> Priced:
    """The same of amounts that were read already; those of `call` are not looked at."""
    paid_in = call.currency or currency
    return Priced(
        package=offer.package if offer else None,
        amount=amount,
        line=OrderLine(
            package_code=call.package_code,
            quantity=1,
            period_num=call.period_num or 1,
            price=unit_price,
            supplier=offer.package.supplier if offer else "",
        ),
        refused=_refuse_package(call, offer),
        refused_price=None if offer is None else _refuse_price(call, currency, offer, unit_price, amount),
        digested=(f"recharge\0{paid_in}\0", f"\0{call.package_code}\0{call.period_num or 1}\0{unit_price}\0{amount}"),
    )


def digest(priced: Priced, named: int | str | None) -> bytes:
    """16 bytes that two calls share when they ask for the same. `named`: the eSIM as the call names it."""
    before, after = priced.digested
    return hashlib.sha256(f"{before}{named}{after}".encode()).digest()[:16]


def refuse(wanted: Wanted, target: Target | None, supported: Callable[[str], bool]) -> refusal.Refusal | None:
    """The first refusal of an eSIM: 310404, those of the package, 200022, 200008, 000105, 000108, 200010, 200002,
    200004. `supported`: whether suppliers of this kind recharge."""
    if target is None:
        return refusal.ProfileNotFound()
    if wanted.refused is not None:
        return wanted.refused
    assert wanted.package is not None, "an unknown package is refused"
    if not supported(target.kind):
        return refusal.NotSupported("the supplier of this eSIM does not recharge")
    return refuse_base(wanted, wanted.package, target.package_code) or refuse_state(target)


def _refuse_package(call: RechargeProfile, offer: Offer | None) -> refusal.Refusal | None:
    if offer is None:
        return refusal.PackageUnknown(f"packageCode {call.package_code!r} does not exist")
    if offer.price is None:
        return refusal.NotOnSale(f"packageCode {call.package_code} is not on sale")
    if offer.package.type != "TOPUP":
        return refusal.LinesInconsistent(
            f"packageCode {call.package_code} is not a TOPUP package; accepted: those of /package/list with type TOPUP"
        )
    return None


def refuse_base(wanted: Wanted, package: Package, base_code: str) -> refusal.Refusal | None:
    """The first refusal of a recharge with `package` for eSIMs of the package `base_code`: 200008, 000105, 000108."""
    base = wanted.base(base_code)
    if base is None or not fits(package, base):
        return refusal.LinesInconsistent(
            f"packageCode {package.package_code} does not fit an eSIM of {base_code}; accepted: what"
            f" /package/list lists for type TOPUP and forPackageCode {base_code}"
        )
    days = by_day(package, base)
    if not days and wanted.period_num not in (None, 1):
        return refusal.ParameterInvalid(f"periodNum is not accepted for {package.package_code}; leave it out")
    if days and not package.min_period_num <= (wanted.period_num or 0) <= package.max_period_num:
        accepted = f"{package.min_period_num} to {package.max_period_num}"
        if wanted.period_num is None:
            return refusal.ParameterMissing(f"periodNum of {package.package_code} is required; accepted: {accepted}")
        return refusal.ParameterInvalid(f"periodNum of {package.package_code} must be {accepted}")
    return None


def fits(package: Package, base: Package) -> bool:
    """Whether eSIMs of `base` may be recharged with `package`: the same supplier offers it for the same place."""
    return (
        package.type == "TOPUP"
        and base.type == "BASE"
        and base.top_up_support
        and package.supplier == base.supplier
        and package.location_code == base.location_code
        and (not package.top_up_for or base.package_code in package.top_up_for)
        and (package.min_period_num <= 1 or by_day(package, base))
    )


def by_day(package: Package, base: Package) -> bool:
    """Whether eSIMs of `base` are recharged with `package` for a number of days."""
    return base.support_top_up_type == 3 and sold_by_day(package.data_type)


def refuse_state(target: Target) -> refusal.Refusal | None:
    """The first refusal that no package changes: 200010, 200002, 200004."""
    about = {"profileId": target.profile_id}
    if target.iccid is None:
        return refusal.NotAllocated()
    if target.cancelled or target.refunded or target.voiding:
        return refusal.StatusForbids("this eSIM is cancelled", {**about, "reason": "CANCELLED"})
    if target.expired:
        return refusal.StatusForbids("this eSIM has expired", {**about, "reason": "EXPIRED"})
    if (why := order.refuse_plan(target.profile_id, target.plans + 1)) is not None:
        return why
    if target.held:
        return refusal.RefundInProgress(data={"profiles": [{**about, "reason": "PENDING_REFUND"}]})
    return None


def not_refundable(recharge: Order, esim: Order) -> Reason | None:
    """Why the plan that was queued for this recharge cannot be refunded. `esim`: the order of the eSIM."""
    profile, plan = _queued(recharge, esim)
    if profile.cancelled:
        return "CANCELLED"
    return None if plan is None or (plan.waits and not profile.queue_over) else "APPLIED"


def with_refund(esim: Order, recharge: Order, now: datetime) -> Order:
    """The order of an eSIM with the plan that was queued for this recharge held, or cancelled, as the recharge is."""
    profile, plan = _queued(recharge, esim)
    if plan is None:
        return esim
    [of] = recharge.profiles
    changed = msgspec.structs.replace(plan, held=of.held, cancelled=of.refunded)
    plans = tuple([changed if each.plan_no == plan.plan_no else each for each in profile.plans])
    return delivery.with_profiles(esim, {profile.profile_id: msgspec.structs.replace(profile, plans=plans)}, now)


def _queued(recharge: Order, esim: Order) -> tuple[Profile, AppliedPlan | None]:
    """The eSIM, and its plan that was queued for this recharge, if one was."""
    assert recharge.recharges is not None
    _, profile = esim.find_profile(recharge.recharges)
    of_recharge = [plan for plan in profile.plans if plan.order_id == recharge.order_id and plan.mode == "QUEUE"]
    return profile, of_recharge[0] if of_recharge else None


def _refuse_price(
    call: RechargeProfile, currency: str, offer: Offer, unit_price: int, amount: int
) -> refusal.Refusal | None:
    if call.currency not in (None, currency):
        return refusal.CurrencyDiffers(f"currency {call.currency!r} is not the wallet's; accepted: {currency}")
    if offer.price is None:
        return None
    if unit_price != offer.price:
        text = money.text(offer.price, currency)
        line = {"index": 0, "packageCode": call.package_code, "expectedPrice": text, "currency": currency}
        return refusal.PriceDiffers(
            f"price is not your price of {call.package_code}; accepted: {text} {currency}",
            {"expectedPrice": text, "lines": [line]},
        )
    if amount != offer.price * (call.period_num or 1):
        text = money.text(offer.price * (call.period_num or 1), currency)
        return refusal.AmountDiffers(
            f"amount is not price x periodNum; accepted: {text} {currency}", {"expectedAmount": text}
        )
    return None
