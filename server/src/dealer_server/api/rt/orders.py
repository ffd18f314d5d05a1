"""The orders of the RT face: what is sold, buying, recharging, and the eSIMs bought."""

import msgspec

from dealer_server.api.routes.route import Parts, let_others_in
from dealer_server.api.rt import calls
from dealer_server.api.rt.waiting import until
from dealer_server.operations.cache import Caller
from dealer_server.operations.orders.query import OrderLookup, query_order
from dealer_server.operations.profiles.list import find_profiles
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.operations.recharges.fitting import fitting
from dealer_server.operations.recharges.request import RechargeRequest
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.order import Decision, OrderRequest
from dealer_server.rules.recharges.recharge import Wanted
from dealer_server.rules.rt import esim, ordering
from dealer_server.rules.rt.package import Filter
from esim_dealer.wire import calls as own

RECHARGE_SECONDS = 10.0


class Ordered(msgspec.Struct, frozen=True, rename="camel"):
    order_no: str
    transaction_id: str


class Page(msgspec.Struct, frozen=True, rename="camel"):
    page_size: int
    page_num: int
    total: int


class Esims(msgspec.Struct, frozen=True, rename="camel"):
    esim_list: tuple[esim.Esim, ...]
    pager: Page


class ToppedUp(msgspec.Struct, frozen=True, rename="camel"):
    transaction_id: str
    iccid: str
    expired_time: str | None
    total_volume: int
    total_duration: int
    order_usage: int
    top_up_esim_tran_no: str


async def list_packages(parts: Parts, caller: Caller, call: calls.PackageList) -> bytes:
    prices, catalogue = caller.access.prices, parts.cache.catalogue
    fits = None
    if call.iccid is not None:
        fits = await fitting(parts.reads, caller.tenant_id, own.PackageList(iccid=call.iccid))
    else:
        await let_others_in()
    named = catalogue.named(call.package_code) if call.package_code else None
    if call.type == "TOPUP" and named is not None and named.type == "BASE":  # what recharges its eSIMs
        fits, call = named.package_code, msgspec.structs.replace(call, package_code=None)
    wanted = Filter(
        type=call.type,
        location_code=call.location_code,
        package_code=call.package_code,
        slug=call.slug,
        data_type=None if call.data_type is None else str(call.data_type),
        fits=fits,
    )
    return catalogue.rt_packages(prices, wanted)


async def list_locations(parts: Parts, caller: Caller, _: calls.Empty) -> bytes:
    await let_others_in()
    return parts.cache.catalogue.rt_places(caller.access.prices)


async def place_order(parts: Parts, caller: Caller, call: calls.Order) -> Ordered:
    """An order of our own, decided and written with those of the other door. A repeat gives the same orderNo."""
    lines = [
        ordering.Line(line.package_code, line.count, line.price, line.period_num) for line in call.package_info_list
    ]
    wanted = ordering.Order(calls.transaction_id(call.transaction_id), ordering.Content(tuple(lines), call.amount))
    priced = parts.cache.catalogue.price_rt_order(wanted, caller.access.prices)
    request = OrderRequest(
        tenant_id=caller.tenant_id,
        transaction_id=call.transaction_id,
        digest=priced.digest,
        currency=priced.currency,
        amount=priced.amount,
        lines=priced.lines,
        refused=priced.refused,
    )
    decision = await parts.orders.submit(request)
    return Ordered(identity.order_no(_order_id(decision)), call.transaction_id)


async def query_esims(parts: Parts, caller: Caller, call: calls.Query) -> Esims:
    """By orderNo while any eSIM of it lacks its codes: 200010. Raises 310272, 000108."""
    pager = call.pager
    if call.order_no is not None:
        order = await query_order(parts.queries, caller.tenant_id, own.QueryOrder(order_no=call.order_no))
        if any(profile.live and not profile.made for profile in order.profiles):
            raise refusal.NotAllocated("the order's eSIMs are being allocated; ask again")
        found = [(order, item, profile) for item in order.items for profile in item.profiles if profile.iccid]
        first = (pager.page_num - 1) * pager.page_size
        total, found = len(found), found[first : first + pager.page_size]
    else:
        filters = own.ProfileList(
            profile_id=call.esim_tran_no,
            iccid=call.iccid,
            start_time=calls.moment("startTime", call.start_time),
            end_time=calls.moment("endTime", call.end_time),
            pager=own.Pager(page_num=pager.page_num, page_size=pager.page_size),
        )
        listed = await find_profiles(parts.reads, parts.data_keys, caller.tenant_id, filters)
        total, found = listed.total, [each for each in listed.profiles if each[2].iccid]
    return Esims(
        tuple([_esim(parts, *each) for each in found]),
        Page(page_size=pager.page_size, page_num=pager.page_num, total=total),
    )


async def top_up(parts: Parts, caller: Caller, call: calls.TopUp) -> ToppedUp:
    """A recharge of our own. The answer waits for its supplier, which the family's does too; where that takes longer,
    it says what the eSIM has until then. Raises 200002 where the supplier has refused and the money is given back."""
    profile_id, iccid = profile_key(*call.named)
    wanted = ordering.Recharge(
        transaction_id=calls.transaction_id(call.transaction_id),
        named=profile_id or iccid or "",
        package=call.package_code,
        amount=call.amount,
        period_num=call.period_num,
    )
    order_id = _order_id(await parts.recharges.submit(_recharge(parts, caller, wanted, profile_id, iccid)))

    async def settled() -> Order | None:
        order = await parts.queries.submit(OrderLookup(caller.tenant_id, order_id, None))
        assert order is not None, "an order that was placed"
        [added] = order.profiles
        if added.failed or added.refunded:
            raise refusal.StatusForbids("the supplier refused this recharge; its price comes back to the balance")
        return order if added.made else None

    await until(settled, RECHARGE_SECONDS)
    recharge = await parts.queries.submit(OrderLookup(caller.tenant_id, order_id, None))
    assert recharge is not None
    page = await find_profiles(
        parts.database, parts.data_keys, caller.tenant_id, own.ProfileList(profile_id=recharge.recharges)
    )
    [(order, item, profile)] = page.profiles
    totals = esim.totals(order, item, profile, parts.cache.catalogue.package)
    return ToppedUp(
        transaction_id=call.transaction_id,
        iccid=profile.iccid or "",
        expired_time=esim.time_text(totals.expires_at) if totals.expires_at else None,
        total_volume=totals.volume,
        total_duration=totals.days,
        order_usage=profile.data_usage_bytes,
        top_up_esim_tran_no=str(recharge.profiles[0].profile_id),
    )


def _recharge(
    parts: Parts, caller: Caller, wanted: ordering.Recharge, profile_id: int | None, iccid: str | None
) -> RechargeRequest:
    catalogue, prices = parts.cache.catalogue, caller.access.prices
    priced = catalogue.price_rt_recharge(wanted, prices)
    order = OrderRequest(
        tenant_id=caller.tenant_id,
        transaction_id=wanted.transaction_id,
        digest=ordering.recharge_digest(wanted),
        currency=prices.currency,
        amount=priced.amount,
        lines=(priced.line,),
    )
    named = Wanted(
        profile_id=profile_id,
        iccid=iccid,
        package=priced.package,
        period_num=wanted.period_num,
        base=catalogue.package,
        refused=priced.refused,
    )
    return RechargeRequest(order, named, priced.refused_price)


def _order_id(decision: Decision) -> int:
    assert not isinstance(decision, refusal.Refusal), "a refusal is raised"
    return decision.order_id


def _esim(parts: Parts, order: Order, item: Item, profile: Profile) -> esim.Esim:
    catalogue = parts.cache.catalogue
    sends_sms = catalogue.sends_sms(catalogue.package(item.package_code))
    return esim.esim(order, item, profile, catalogue.package, parts.links, sends_sms)
