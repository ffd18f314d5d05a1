"""The routes of recharges: add a plan to an eSIM, list its plans."""

from dealer_server.api.routes.orders import placed_or_repeated
from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.recharges.list_plans import list_plans
from dealer_server.operations.recharges.request import recharge_request
from esim_dealer.wire import calls, operations
from esim_dealer.wire.snapshot import Snapshot

FIELDS = {
    "RechargeProfile.profileId": "The eSIM to recharge; or name it by `iccid`.",
    "RechargeProfile.iccid": "The eSIM to recharge; or name it by `profileId`.",
    "RechargeProfile.packageCode": "A `TOPUP` package that fits it.",
    "RechargeProfile.price": "Your price of the package, of one day for `DAILY_*`.",
    "RechargeProfile.amount": "price × periodNum.",
    "RechargeProfile.periodNum": "Days, where the eSIM's `supportTopUpType` is 3. Otherwise 1 or absent.",
    "orderType": "`BASE`: eSIMs were sold. `TOPUP`: an eSIM was recharged.",
    "topUp": "The plan that a recharge adds, instead of `profiles`.",
    "plans": "In the order of their payment; the first is the one the eSIM was sold with.",
    "planNo": "Counts the plans of the eSIM.",
    "type": "`BASE`: sold with the eSIM. `TOPUP`: a recharge.",
    "AddedPlan.profileId": "That of the eSIM.",
    "AddedPlan.status": "That of the plan now, as `/esim/profile/plans` says it.",
    "Plan.status": "`PENDING`: paid. `QUEUED`: applied, not in use yet. `ACTIVE`: in use. `ENDED`: used up or over.",
    "Plan.orderNo": "The order that paid for it.",
    "Plan.dataTotalBytes": "Its volume; null where it is unlimited; absent before it is applied.",
    "Plan.dataUsageBytes": "Used of it.",
    "Plan.mode": "How a recharge was added; absent before it is applied.",
    "Plan.startTime": "When its use began; absent before.",
    "Plan.endTime": "When it ends or ended; absent before its use, and where that is not known (4.14).",
}


@route(
    operations.RECHARGE,
    summary="Recharge an eSIM",
    description=(
        "Adds a plan to an eSIM that you sold: a `TOPUP` package, paid from the wallet at once, as an order of its own."
        " `/package/list` with `type` `TOPUP` and `profileId` lists what fits. An eSIM that is used up can be"
        " recharged, one that has expired or is cancelled cannot. Not `/account/topup`, which asks for money in the"
        " wallet.\n\n"
        "`transactionId` is your idempotency key, as for `/esim/order`, whose keys it shares. The order is `DELIVERED`"
        " once the supplier has applied it; `DELIVERY_UPDATED` tells so, of this order and of the one the eSIM was sold"
        " with. What fails for good is refunded. Several recharges of one eSIM are applied one after the other."
    ),
    refusals=(
        "310402",
        "310404",
        "310241",
        "200014",
        "200008",
        "200022",
        "200010",
        "200002",
        "200004",
        "200015",
        "200005",
        "200006",
        "200020",
        "200007",
        "000111",
    ),
)
async def recharge(parts: Parts, caller: Caller, call: calls.RechargeProfile) -> Snapshot:
    catalogue, prices = parts.cache.catalogue, caller.access.prices
    decision = await parts.recharges.submit(recharge_request(caller.tenant_id, call, catalogue, prices))
    return await placed_or_repeated(parts, caller, decision)


@route(
    operations.PLANS,
    summary="List the plans of an eSIM",
    description=(
        "The plan it was sold with and its recharges. Those that were added share one volume and one end; usage counts"
        " for the first until that is used up, then for the next. A queued one begins when the plan before it ends."
    ),
    refusals=("000111", "310404"),
)
async def plans(parts: Parts, caller: Caller, call: calls.ProfilePlans) -> calls.Plans:
    return await list_plans(parts.database, parts.data_keys, caller.tenant_id, call)
