"""Which plans does an eSIM have? /esim/profile/plans (specification 4.14)"""

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders import plans, snapshot
from dealer_server.rules.orders.model import Item, Order
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
        of_esim = (tenant_id, key[2])
        added = (await recharges.of_profiles(connection, [of_esim])).get(of_esim, [])
        orders = await store.order.load(
            connection, [key[:2], *[(tenant_id, order_id) for order_id, _ in added]], data_keys
        )
    sold_in = orders[key[:2]]
    item, profile = sold_in.find_profile(key[2])
    recharging = [orders[tenant_id, order_id] for order_id, _ in added]
    found = plans.of(profile, [order.profiles[0] for order in recharging])
    bought: list[tuple[Order, Item]] = [(sold_in, item), *[(order, order.items[0]) for order in recharging]]
    return calls.Plans(
        profile_id=profile.profile_id,
        iccid=profile.iccid or UNSET,
        plans=tuple(_plan(plan, profile.profile_id, *of) for plan, of in zip(found, bought, strict=True)),
    )


def _plan(plan: plans.Plan, esim: int, order: Order, item: Item) -> calls.Plan:
    profile, made = plan.profile, plan.status not in ("PENDING", "FAILED")
    used = plan.status in ("ACTIVE", "ENDED")
    started, ends = plan.started_at, plan.ends_at
    return calls.Plan(
        plan_no=profile.plan_no,
        type="BASE" if profile.profile_id == esim else "TOPUP",
        package_code=item.package_code,
        order_no=order.order_no,
        status=plan.status,
        data_total_bytes=plan.total_bytes if made else UNSET,
        data_usage_bytes=plan.used_bytes,
        start_time=snapshot.whole_seconds(started) if used and started else UNSET,
        end_time=snapshot.whole_seconds(ends) if used and ends else UNSET,
    )
