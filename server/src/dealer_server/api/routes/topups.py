"""The routes of top-ups: request, query, withdraw."""

from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.topups import request as topups
from esim_dealer.wire import calls, operations

FIELDS = {
    "RequestTopup.amount": "How much to add.",
    "payMethod": "How you pay.",
    "payReference": "By which the payment can be found.",
    "topupNo": "The platform's number of this request.",
    "Topup.amount": "How much is asked for.",
    "Topup.status": "`APPROVED` is credited.",
    "rejectReason": "Why it was rejected.",
    "Topup.createTime": "When it was asked for.",
    "reviewTime": "When it was approved, rejected or withdrawn.",
    "Topup.duplicate": "Whether this is the result of an earlier call.",
}


@route(
    operations.TOPUP,
    summary="Ask for a top-up",
    description=(
        "Asks for money in the wallet: an operator looks at it and credits the wallet, or refuses. `transactionId` is"
        " your idempotency key, apart from those of orders: a repeat is answered with the first request and `duplicate`"
        " true."
    ),
    refusals=("200015", "310402", "200021"),
)
async def request_topup(parts: Parts, caller: Caller, call: calls.RequestTopup) -> calls.Topup:
    return await topups.request_topup(parts.database, caller.tenant_id, call, parts.clock())


@route(
    operations.TOPUP_QUERY,
    summary="Query a top-up",
    description="A top-up as it stands, found by `topupNo`, `transactionId`, or both.",
    refusals=("310405",),
)
async def query_topup(parts: Parts, caller: Caller, call: calls.QueryTopup) -> calls.Topup:
    return await topups.query_topup(parts.reads, caller.tenant_id, call)


@route(
    operations.TOPUP_CANCEL,
    summary="Withdraw a top-up",
    description=(
        "Withdraws a top-up that waits for review, found by `topupNo`, `transactionId`, or both: it is `CANCELLED`, and"
        " nothing is credited. Repeating it is success, with `duplicate` true. One that was approved or rejected is"
        " `200002`; of approval and withdrawal at the same moment exactly one happens."
    ),
    refusals=("310405", "200002"),
)
async def cancel_topup(parts: Parts, caller: Caller, call: calls.CancelTopup) -> calls.Topup:
    return await topups.cancel_topup(parts.database, caller.tenant_id, call, parts.clock())
