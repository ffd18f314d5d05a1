"""The eSIMs of the RT face: give back, revoke, suspend, usage, SMS."""

from uuid import uuid4

import msgspec

from dealer_server.api.routes.route import Parts
from dealer_server.api.rt import calls
from dealer_server.api.rt.waiting import until
from dealer_server.operations.cache import Caller
from dealer_server.operations.orders.query import OrderLookup
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.rules.rt import esim, status
from dealer_server.store.profiles import iccid as iccids
from esim_dealer.wire import calls as own

CANCEL_SECONDS = 10.0
NOTHING: dict[str, str] = {}


class Usage(msgspec.Struct, frozen=True, rename="camel"):
    esim_tran_no: str
    data_usage: int
    total_data: int
    last_update_time: str


class Usages(msgspec.Struct, frozen=True, rename="camel"):
    esim_usage_list: tuple[Usage, ...]


async def cancel(parts: Parts, caller: Caller, call: calls.OneEsim) -> dict[str, str]:
    """Our refund of an eSIM that was neither installed nor used. It waits for its supplier, then says 900001: the call
    may be repeated, and gives back once."""
    tenant_id = caller.tenant_id
    async with parts.database.connection() as connection:
        [key] = await iccids.locate(connection, [(tenant_id, *profile_key(*call.named))])
    if key is None:
        raise refusal.ProfileNotFound
    _, order_id, profile_id = key

    async def look() -> tuple[Order, Profile]:
        order = await parts.queries.submit(OrderLookup(tenant_id, order_id, None))
        assert order is not None, "the order of an eSIM"
        return order, order.find_profile(profile_id)[1]

    order, profile = await look()
    if profile.refunded:
        return NOTHING
    if not profile.held:
        if profile.cancelled or not status.is_unused(profile):
            raise refusal.StatusForbids(_why_not(profile))
        item, _ = order.find_profile(profile_id)
        scope = own.RefundItem(
            item_no=identity.item_no(order_id, item.line), profiles=(own.RefundProfile(profile_id=profile_id),)
        )
        refund = await parts.refunds.refund(tenant_id, own.RefundOrder(order_no=order.order_no, items=(scope,)))
        if refund.status == "REFUNDED":
            return NOTHING

    async def settled() -> Profile | None:
        _, profile = await look()
        return profile if profile.refunded or not profile.held else None

    after = await until(settled, CANCEL_SECONDS)
    if after is None:
        raise refusal.Busy(
            "the supplier or a review has not decided yet; repeat the call, it gives back once", retry_after=2
        )
    if not after.refunded:
        raise refusal.StatusForbids("the supplier does not take this eSIM back")
    return NOTHING


async def revoke(parts: Parts, caller: Caller, call: calls.OneEsim) -> dict[str, str]:
    profile_id, iccid = call.named
    await parts.voids.void(caller.tenant_id, own.VoidProfile(profile_id=profile_id, iccid=iccid))
    return NOTHING


async def suspend(parts: Parts, caller: Caller, call: calls.OneEsim) -> dict[str, str]:
    profile_id, iccid = call.named
    await parts.suspender.suspend(caller.tenant_id, own.SuspendProfile(profile_id=profile_id, iccid=iccid))
    return NOTHING


async def unsuspend(parts: Parts, caller: Caller, call: calls.OneEsim) -> dict[str, str]:
    profile_id, iccid = call.named
    await parts.suspender.unsuspend(caller.tenant_id, own.SuspendProfile(profile_id=profile_id, iccid=iccid))
    return NOTHING


async def send_sms(parts: Parts, caller: Caller, call: calls.SendSms) -> dict[str, str]:
    """The family's call has no key by which a repeat is known: each is one SMS."""
    profile_id, iccid = call.named
    sms = own.SendSms(transaction_id=f"rt-{uuid4().hex}", profile_id=profile_id, iccid=iccid, message=call.message)
    await parts.sms.send(caller.tenant_id, sms)
    return NOTHING


async def query_usage(parts: Parts, caller: Caller, call: calls.UsageQuery) -> Usages:
    """As last reported; unlimited is 0. The first eSIM that has no usage refuses the call."""
    found = []
    for number in call.esim_tran_no_list:
        usage = await parts.usage(caller.tenant_id, own.ProfileUsage(profile_id=number))
        found.append(
            Usage(
                esim_tran_no=number,
                data_usage=usage.data_usage_bytes,
                total_data=usage.data_total_bytes or 0,
                last_update_time=esim.time_text(usage.last_update_time),
            )
        )
    return Usages(tuple(found))


def _why_not(profile: Profile) -> str:
    if profile.iccid is None:
        return "this eSIM is still being allocated; cancel it once it has its codes"
    state = f"esimStatus {status.esim_status(profile, 'QUERY')}, smdpStatus {status.smdp_status(profile)}"
    return f"this eSIM has {state}; accepted: one that is GOT_RESOURCE and RELEASED"
