"""The plans of an eSIM, and what an order recharges, as pages show them."""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.console.shared.request_context import RequestContext
from dealer_server.operations.recharges.list_plans import list_plans
from dealer_server.rules.orders.model import Order
from esim_dealer.wire import calls
from esim_dealer.wire.snapshot import Plan


class Recharged(NamedTuple):
    """The eSIM that an order recharges. `plan`: what it adds to the `plans` of it."""

    profile_id: int
    iccid: str
    plan: Plan
    plans: int


async def plans_of(context: RequestContext, tenant_id: int, profile_id: int) -> Sequence[Plan]:
    return (await _list(context, tenant_id, profile_id)).plans


async def recharged_by(context: RequestContext, order: Order) -> Recharged | None:
    """None where the order sells eSIMs."""
    if order.recharges is None:
        return None
    found = await _list(context, order.tenant_id, order.recharges)
    plan = next(plan for plan in found.plans if plan.order_no == order.order_no)
    return Recharged(found.profile_id, found.iccid or "", plan, len(found.plans))


async def _list(context: RequestContext, tenant_id: int, profile_id: int) -> calls.Plans:
    parts = context.parts
    return await list_plans(parts.database, parts.data_keys, tenant_id, calls.ProfilePlans(profile_id=profile_id))
