"""The routes of webhooks: the callback URL, a sample event, the log of deliveries."""

from collections.abc import Awaitable

from dealer_server.api.routes.route import Parts, route
from dealer_server.db.database import Database
from dealer_server.operations.cache import Caller
from dealer_server.operations.webhooks import endpoint
from dealer_server.webhooks import sample_event
from esim_dealer.wire import calls, operations

FIELDS = {
    "callbackUrl": "Where events are sent; empty: nowhere.",
    "SetWebhook.callbackUrl": 'An absolute http(s) URL. `""` or null removes it.',
    "SetWebhook.standardHeaders": "Whether events carry `webhook-id`, `webhook-timestamp` and `webhook-signature`"
    " too, as libraries of standard-webhooks verify them. Left out: as it is.",
    "standardHeaders": "Whether events carry the headers of standard-webhooks too.",
    "enabled": "Whether events are sent.",
    "state": "`DISABLED`: your receiver answered 410. `NOT_SET`: there is no callbackUrl.",
    "consecutiveFailures": "Attempts that failed since the last success.",
    "lastSuccessTime": "When an event was last received.",
    "delivered": "Whether your receiver answered 2xx in time.",
    "httpStatus": "What your receiver answered; absent where it did not.",
    "durationMs": "How long that took, in milliseconds.",
    "error": "Why it failed; absent where it did not.",
    "deliveries": "Newest first.",
    "deliveryId": "Names the delivery: its RT-Delivery-ID.",
    "DeliveryList.eventType": "Only these.",
    "Delivery.eventType": "What happened.",
    "DeliveryList.status": "Only these.",
    "Delivery.status": "Where the delivery stands.",
    "DeliveryList.startTime": "Made at or after.",
    "DeliveryList.endTime": "Made before.",
    "trigger": "Why it was sent last.",
    "orderVersion": "The version of the order that it carries: RT-Order-Version.",
    "Delivery.changeHints": "What it says has changed; empty until its first attempt.",
    "attemptCount": "How often it was tried.",
    "nextAttemptTime": "When it goes; absent where it does not, and behind another event of its order.",
    "Delivery.createTime": "When the order changed.",
    "attempts": "Those of the last 30 days.",
    "number": "Counts the attempts from 1: RT-Delivery-Attempt.",
    "time": "When it was begun.",
    "answerHead": "The beginning of what your receiver answered.",
}


@route(
    operations.WEBHOOK_SET,
    summary="Set the callback URL",
    description=(
        'Where events are sent from now on. `""` or null: nowhere. A URL that had been disabled is enabled again.'
        " In production it must be https. Ports 80, 443, 8443 and those above 1023 are accepted, public addresses only."
    ),
    refusals=("310501",),
)
async def set_webhook(parts: Parts, caller: Caller, call: calls.SetWebhook) -> calls.Webhook:
    return await endpoint.set_webhook(parts.database, parts.callbacks, caller.tenant_id, call, parts.clock())


@route(
    operations.WEBHOOK_QUERY,
    summary="Read the callback URL and its state",
    description="The callback URL and how deliveries to it fare.",
)
async def query_webhook(parts: Parts, caller: Caller, _: calls.Empty) -> calls.WebhookState:
    return await endpoint.webhook_state(parts.reads, caller.tenant_id)


@route(
    operations.WEBHOOK_TEST,
    summary="Send a sample event",
    description=(
        "Sends a sample `ORDER_PAID` to your callback URL at once, truly signed, with the header `RT-Test: true` and an"
        " `orderNo` that begins with `TEST`, and reports what your receiver answered. The call itself succeeds whatever"
        " that was."
    ),
    refusals=("200002",),
)
async def send_test(parts: Parts, caller: Caller, _: calls.Empty) -> calls.WebhookTest:
    currency = caller.access.prices.currency
    result = await sample_event.send(
        parts.database, parts.master_keys, parts.outbound, caller.tenant_id, currency, parts.clock()
    )
    return result.test


@route(
    operations.DELIVERY_LIST,
    summary="List webhook deliveries",
    description=(
        "Events sent or to be sent to you, newest first, each with its attempts of the last 30 days and the beginning"
        " of what your receiver answered. All filters must match. `pager.total` counts to 10000; beyond it is 10001."
    ),
)
async def list_deliveries(parts: Parts, caller: Caller, call: calls.DeliveryList) -> calls.Deliveries:
    def read(reads: Database) -> Awaitable[calls.Deliveries]:
        return endpoint.list_deliveries(reads, parts.delivery_counts, caller.tenant_id, call)

    return await parts.lists.run(read, exact=True)


@route(
    operations.DELIVERY_RESEND,
    summary="Send a delivery again",
    description=(
        "Sends a delivery once more: the same body, hints and `RT-Delivery-ID` under a new signature, also where it"
        " was delivered before. One that waits for a retry goes now instead. It goes as soon as nothing else of its"
        " order is on its way."
    ),
    refusals=("310272", "200002"),
)
async def resend_delivery(parts: Parts, caller: Caller, call: calls.ResendDelivery) -> calls.Delivery:
    return await endpoint.resend(parts.database, caller.tenant_id, call, parts.clock())
