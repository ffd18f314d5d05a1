"""The route of refunds."""

from dealer_server.api.routes.route import Parts, route
from dealer_server.operations.cache import Caller
from esim_dealer.wire import calls, operations

FIELDS = {
    "RefundOrder.items": "The lines to be refunded; without it, the whole order.",
    "RefundItem.profiles": "Those to be refunded; without it, or empty, the whole line.",
    "refundTransactionId": "Your idempotency key: letters, digits and `. _ : @ -`, case-sensitive.",
    "esimTranNo": "Not accepted here: `000111`.",
    "RefundOrder.profiles": "Not accepted here: `000111`. Name profiles in `items[].profiles`.",
    "refundNo": "The platform's number of this refund.",
    "Refund.status": "`REFUNDED` is credited.",
    "Refund.refundAmount": "Of this request.",
    "totalRefundAmount": "Of the order in all.",
    "Refund.items": "The lines it names something of.",
    "refundStatus": "Whether this line's refund is credited. `REJECTED`, seen in repeats only, was not.",
    "profileIds": "The profiles refunded by this request; not those that were rejected beside others of the line.",
    "iccids": "Their iccids; absent ones were never allocated.",
    "Refund.duplicate": "Whether this is the result of an earlier request; then nothing more is credited.",
}


@route(
    operations.REFUND,
    summary="Refund",
    description=(
        "Gives money back into the wallet: of the whole order without `items`, of whole lines, or of named profiles,"
        " all of which must be refundable or nothing is done. Refundable is what was not used, installed, cancelled or"
        " refunded. `REFUNDED` is credited; `REFUNDING` is accepted and held until its supplier or an operator has"
        " agreed: wait for `REFUND_COMPLETED`, or query the order. `REJECTED`, seen in repeats only, was not"
        " credited.\n\n"
        "A repeat credits nothing and is answered with the first refund and `duplicate` true: by `refundTransactionId`"
        " for ever, without it by the same scope within 24 hours."
    ),
    refusals=("310272", "310402", "310274", "310403", "000111", "200004", "200003"),
)
async def refund_order(parts: Parts, caller: Caller, call: calls.RefundOrder) -> calls.Refund:
    return await parts.refunds.refund(caller.tenant_id, call)
