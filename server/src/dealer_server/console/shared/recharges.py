"""The plans of an eSIM, and what an order recharges, as pages show them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server.console.shared.request_context import RequestContext
from dealer_server.console.shared.words import State, plan_state
from dealer_server.operations.recharges.list_plans import list_plans
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.store.orders import order as store_order
from esim_dealer.wire import calls
from esim_dealer.wire.snapshot import Plan


class Recharged(NamedTuple):
    """The eSIM that an order recharges. `plan`: what it adds to the `plans` of it."""

    profile_id: int
    iccid: str
    plan: Plan
    state: State
    plans: int


async def plans_of(context: RequestContext, tenant_id: int, profile_id: int) -> Sequence[tuple[Plan, State]]:
    """Each with its state."""
    plans = (await _list(context, tenant_id, profile_id)).plans
    ids = [identity.order_id(plan.order_no) for plan in plans if plan.status == "FAILED"]
    keys = [(tenant_id, order_id) for order_id in ids if order_id is not None]
    orders: Mapping[tuple[int, int], Order] = {}
    if keys:
        async with context.parts.database.connection() as connection:
            orders = await store_order.load(connection, keys, context.parts.data_keys)
    refunded = {order.order_no for order in orders.values() if order.order_status == "REFUNDED"}
    return [
        (plan, plan_state(plan.status, refunded=plan.order_no in refunded, first=plan.plan_no == 1)) for plan in plans
    ]


async def recharged_by(context: RequestContext, order: Order) -> Recharged | None:
    """None where the order sells eSIMs."""
    if order.recharges is None:
        return None
    found = await _list(context, order.tenant_id, order.recharges)
    plan = next(plan for plan in found.plans if plan.order_no == order.order_no)
    state = plan_state(plan.status, refunded=order.order_status == "REFUNDED")
    return Recharged(found.profile_id, found.iccid or "", plan, state, len(found.plans))


async def _list(context: RequestContext, tenant_id: int, profile_id: int) -> calls.Plans:
    parts = context.parts
    return await list_plans(parts.database, parts.data_keys, tenant_id, calls.ProfilePlans(profile_id=profile_id))
