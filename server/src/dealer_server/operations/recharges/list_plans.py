"""Which plans does an eSIM have? /esim/profile/plans (specification 4.14)"""

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders import plans, snapshot
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.recharges import recharge as recharges
from esim_dealer.wire import calls


async def list_plans(database: Database, data_keys: DataKeys, tenant_id: int, call: calls.ProfilePlans) -> calls.Plans:
    """Raises 000105, 000111, 310404."""
    profile_id, iccid = profile_key(call.profile_id, call.iccid)
    async with database.connection() as connection:
        [key] = await iccids.locate(connection, [(tenant_id, profile_id, iccid)])
        if key is None:
            raise refusal.ProfileNotFound
        pending = await recharges.not_applied(connection, (tenant_id, key[2]))
        orders = await store.order.load(connection, [key[:2], *pending], data_keys)
    item, profile = orders[key[:2]].find_profile(key[2])
    applied = plans.applied(plans.with_first(profile, key[1], item.package_code))
    waiting = [orders[each] for each in pending if not orders[each].profiles[0].made]  # applied since: among `applied`
    found = sorted(applied + [plans.pending(order) for order in waiting], key=lambda plan: plan.plan_no)
    return calls.Plans(
        profile_id=profile.profile_id,
        iccid=profile.iccid or UNSET,
        plans=tuple(snapshot.plan(plan) for plan in found),
    )
