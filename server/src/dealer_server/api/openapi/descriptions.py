"""What does a dealer read in the OpenAPI document? The texts; docs/specification.md says the same at length."""

from collections.abc import Mapping
from typing import Any

from esim_dealer.wire.vocabulary import EventType


def introduction(worked_example: str, codes_table: str) -> str:
    return f"""\
Sell eSIM data packages. Orders are paid from your BALANCE wallet; eSIM profiles are delivered in the answer of
`/esim/query` and by signed webhooks.

Every operation is a `POST` with a JSON object in UTF-8, at most 262144 bytes, without a query string. An empty body
counts as `{{}}` and needs no Content-Type. Fields this document does not name are ignored.

Begin in this order: `/health`, `/account/balance`, `/package/list`, `/esim/order`, `/esim/query`,
`/esim/profile/list`, `/webhook/set`.

## Signing

    stringToSign = RT-Timestamp + RT-RequestID + RT-AccessCode + rawBody
    X-Signature  = lowercase hex of HMAC-SHA256(key = AppSecret, message = stringToSign)

No separators. Both key and message are UTF-8 bytes; `rawBody` is the body exactly as sent, the empty string where there
is none. Sign the bytes you send: writing the JSON a second time may change them. A worked example:

{worked_example}

`RT-Signature` is accepted in place of `X-Signature` where that is absent. Webhooks are signed in the same way.

## Answers

Every answer is `{{"code", "message", "data"}}`, errors too. `code` `000000` is success. Branch on `code`, never on
`message`. Every answer carries `X-Trace-Id`; give it to support.

{codes_table}

## Formats

- Times: RFC 3339 in UTC and whole seconds, `2026-11-20T08:15:30Z`. Calls may use any offset. What is absent is left
  out.
- Money: a decimal string in major units, `"1.80"`, beside its `currency`. Calls may send a JSON number or a string,
  with at most as many decimals as the currency has. `refundAmount` of an order is a JSON number.
- Data volumes: integer bytes; 1 GB is 1073741824.
- Lists: `pager.pageNum` and `pager.pageSize`, or the last answer's `pager.next` as `pager.after`, which stays fast on
  deep pages. Without `pager.next` there is no further page.
- New fields and new words may be added to answers and events at any time: ignore what you do not know.
"""


TAGS = {
    "health": "Verify signing and connectivity.",
    "account": "Your BALANCE wallet.",
    "package": "What you can sell, and for how much.",
    "region": "Where packages work.",
    "esim": "Orders and the eSIM profiles they bring.",
    "webhook": "Being told when an order changes.",
    "test": "The test environment's hand.",
}

OPERATIONS = {
    "/health": "The first call to make: when it answers `UP`, headers and signature are right.",
    "/account/balance": (
        "What can be spent is `availableBalance`: `balance` plus `creditLimit`. `lowBalance` is true while that is"
        " below `lowBalanceThreshold`."
    ),
    "/package/list": (
        'Packages on sale for you, at your prices. All filters must match; `""` counts as absent. To keep a copy, ask'
        " with `updatedSince` (packages no longer on sale are then listed too, as `OFF_SALE`), or send the"
        " `catalogVersion` you have: where nothing changed, `notModified` is true and the list is empty."
    ),
    "/region/list": "Countries, regions and global bundles that packages on sale for you are made for.",
    "/esim/order": (
        "Buys one line per package and pays from the wallet at once. `price` is the unit price of `/package/list`, for"
        " packages sold by the day that of one day; `amount` is the sum of `price` × `quantity` × `periodNum`.\n\n"
        "`transactionId` is your idempotency key. The same one with the same content gives the order as it now stands,"
        " with `duplicate` true and no second debit, however often and however late. With other content it is refused"
        " with `310402`. A refused order leaves its `transactionId` free. After a lost answer, a `5xx` or a timeout:"
        " repeat with the same `transactionId` and a new `RT-RequestID`.\n\n"
        "What is refused here was not charged. Delivery follows: query the order, or wait for `DELIVERY_UPDATED`."
    ),
    "/esim/query": (
        "The order as it stands, found by `orderNo`, `transactionId`, or both. An order whose delivery is under way is"
        " a normal answer: profiles without `iccid` are still to come."
    ),
    "/esim/order/list": "Your orders, newest first, from `startTime` until before `endTime`. All filters must match.",
    "/esim/profile/list": (
        "Your allocated eSIM profiles, newest first, each with the order and line it belongs to. Those that still wait"
        " for their codes are listed where `lifecycleStatus` names `PENDING`, and one without codes where `profileId`"
        " names it. All filters must match; ids that name nothing of yours give an empty page."
    ),
    "/esim/refund": (
        "Gives money back into the wallet: of the whole order without `items`, of whole lines, or of named profiles,"
        " all of which must be refundable or nothing is done. Refundable is what was not used, installed, cancelled or"
        " refunded. `REFUNDED` is credited; `REFUNDING` is accepted and held until its supplier or an operator has"
        " agreed: wait for `REFUND_COMPLETED`, or query the order. `REJECTED`, seen in repeats only, was not"
        " credited.\n\n"
        "A repeat credits nothing and is answered with the first refund and `duplicate` true: by `refundTransactionId`"
        " for ever, without it by the same scope within 24 hours."
    ),
    "/esim/profile/cancel": (
        "Voids a profile, named by `profileId` or `iccid`. The wallet is not credited: for money back use"
        " `/esim/refund` instead. Repeating it is success. `asyncStatus` `PENDING`: its supplier has to be asked; wait"
        " for `DELIVERY_UPDATED` with `PROFILE_CANCELLED`, or query the order."
    ),
    "/esim/profile/revoke": "The same as `/esim/profile/cancel`.",
    "/esim/profile/usage": (
        "What is used of a profile's plan, as last heard. With `refresh` its supplier is asked first, at most once a"
        " minute; `realTime` says whether the answer has come. What it brings is an event like any other."
    ),
    "/test/profile/advance": (
        "In the test environment only: lets the simulated network report a step in the life of a profile, now. All else"
        " follows as from a real network: its statuses, the order's, and `DELIVERY_UPDATED`. Steps may be left out and"
        " come in any order; what is further on already stays."
    ),
    "/account/statement": (
        "Every movement of money, newest first; the amounts of all entries sum to the balance. All filters must match."
    ),
    "/account/topup": (
        "Asks for money in the wallet: an operator looks at it and credits the wallet, or refuses. `transactionId` is"
        " your idempotency key, apart from those of orders: a repeat is answered with the first request and `duplicate`"
        " true."
    ),
    "/account/topup/query": "A top-up as it stands, found by `topupNo`, `transactionId`, or both.",
    "/account/topup/cancel": (
        "Withdraws a top-up that waits for review, found by `topupNo`, `transactionId`, or both: it is `CANCELLED`, and"
        " nothing is credited. Repeating it is success, with `duplicate` true. One that was approved or rejected is"
        " `200002`; of approval and withdrawal at the same moment exactly one happens."
    ),
    "/webhook/set": (
        'Where events are sent from now on. `""` or null: nowhere. A URL that had been disabled is enabled again.'
        " In production it must be https. Ports 80, 443, 8443 and those above 1023 are accepted, public addresses only."
    ),
    "/webhook/query": "The callback URL and how deliveries to it fare.",
    "/webhook/test": (
        "Sends a sample `ORDER_PAID` to your callback URL at once, truly signed, with the header `RT-Test: true` and an"
        " `orderNo` that begins with `TEST`, and tells what your receiver answered. The call itself succeeds whatever"
        " that was."
    ),
    "/webhook/delivery/list": (
        "Events sent or to be sent to you, newest first, each with its attempts of the last 30 days and the beginning"
        " of what your receiver answered. All filters must match. `pager.total` counts to 10000; beyond it is 10001."
    ),
    "/webhook/delivery/resend": (
        "Lets a delivery go once more: the same body, hints and `RT-Delivery-ID` under a new signature, also where it"
        " was delivered before. One that waits for a retry goes now instead. It goes as soon as nothing else of its"
        " order is on its way."
    ),
}

# What each code means to the caller. Codes of operations to come are in docs/specification.md.
CODES = {
    "000001": "unexpected server error; nothing was done in part",
    "000101": "a required header is missing",
    "000102": "a header is malformed or was sent twice",
    "000103": "method other than POST",
    "000104": "the body is not a JSON object in UTF-8",
    "000105": "a required parameter is absent",
    "000106": "a required parameter is null or empty",
    "000107": "a parameter is too long",
    "000108": "a parameter has the wrong type, format, range or word; or a query string was sent",
    "000109": "Content-Type is not application/json",
    "000110": "the body is over 262144 bytes",
    "000111": "a parameter that is not accepted here, or both of two exclusive ones",
    "000112": "no such path",
    "101001": "RT-Timestamp is more than 300 s from the server's clock",
    "101002": "calls from this address are not allowed",
    "101003": "the signature does not fit",
    "101004": "RT-RequestID was already used",
    "101005": "the AppKey is unknown in this environment",
    "101006": "the tenant or its credential is disabled",
    "101013": "too many calls a second",
    "900001": "busy or in maintenance; nothing was done unless `data.outcome` is `UNKNOWN`",
    "200002": "not allowed in the current status, or without a callback URL",
    "200003": "nothing can be refunded in the given scope; `data.profiles` says why",
    "200004": "a refund of the same profiles is in progress",
    "200005": "a line's price is not your price; `data.lines` has the expected ones",
    "200006": "amount is not the sum of the lines; `data.expectedAmount` is",
    "200007": "the wallet does not hold the amount",
    "200008": "the order's lines are inconsistent",
    "200010": "the profile has no codes yet",
    "200011": "not enough profiles in stock",
    "200014": "the package is not on sale for you",
    "200015": "the currency is not the wallet's",
    "200020": "the wallet is frozen",
    "200021": "too many top-ups wait for review",
    "200022": "the package's supplier does not support this operation",
    "310241": "the packageCode does not exist",
    "310274": "the item is not in the order",
    "310403": "the item has no such profile, or its two ids disagree",
    "310404": "no such profile",
    "310405": "no such top-up",
    "310272": "no such order or delivery, or orderNo and transactionId name different orders",
    "310402": "the transactionId was used with other content",
    "310501": "the callbackUrl is refused",
}

_TEXT: Mapping[str, Any] = {"type": "string"}
_WHOLE: Mapping[str, Any] = {"type": "integer", "minimum": 0}

# What `data` of a refusal holds, by code.
REFUSAL_DATA: Mapping[str, Mapping[str, Any]] = {
    "000001": {"traceId": {"type": "string", "description": "As in X-Trace-Id."}},
    "101001": {"serverTime": {**_WHOLE, "description": "The server's clock, in milliseconds since 1970."}},
    "101003": {
        "bodyLength": {**_WHOLE, "description": "Bytes of the body as received."},
        "bodySha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of them, in hex."},
    },
    "900001": {"outcome": {"const": "UNKNOWN", "description": "The call may have been carried out."}},
    "200005": {
        "lines": {
            "type": "array",
            "description": "The lines whose price differs.",
            "items": {
                "type": "object",
                "required": ["index", "packageCode", "expectedPrice", "currency"],
                "properties": {
                    "index": {**_WHOLE, "description": "Which line of items, from 0."},
                    "packageCode": _TEXT,
                    "expectedPrice": {**_TEXT, "description": "Your price now."},
                    "currency": _TEXT,
                },
            },
        }
    },
    "200006": {"expectedAmount": {**_TEXT, "description": "The sum of the lines."}},
    "200007": {
        "requiredAmount": {**_TEXT, "description": "What the order costs."},
        "availableBalance": {**_TEXT, "description": "What the wallet has, credit included."},
        "currency": _TEXT,
    },
}

EVENTS: Mapping[EventType, tuple[str, str]] = {
    "ORDER_PAID": ("An order is paid", "Payment succeeded and fulfillment starts. Items carry no profiles yet."),
    "DELIVERY_UPDATED": (
        "Delivery or a profile changed",
        "Something of the order or its profiles changed: codes ready, installed, activated, data used, cancelled."
        " `changeHints` say what. The body is the order as it stood when the event was first sent.",
    ),
    "REFUND_COMPLETED": (
        "A refund is credited",
        "The wallet was credited. `refundAmount` is what the order was refunded in all.",
    ),
}

RECEIVING = """\
The body is the whole order, never a difference: verify the signature on the raw bytes, answer 2xx within 10 seconds,
then replace your copy.

- Retries carry the same bytes, hints and `RT-Delivery-ID`; timestamp, request id and signature are fresh.
- Take `orderNo` + `eventType` + `RT-Delivery-ID` as the key to drop repetitions.
- Never let a smaller `RT-Order-Version` overwrite the snapshot of a greater one.
- After a failure: again after 5 s, 30 s, 2 min, 10 min, 1 h, 6 h and 24 h, 8 attempts in all.
- A redirect is a failure: it is not followed."""

SIGNATURE_OF_CALL = (
    "64 hex digits: HMAC-SHA256 with your AppSecret over RT-Timestamp + RT-RequestID + RT-AccessCode + the raw body."
)
SIGNATURE_OF_EVENT = f"{SIGNATURE_OF_CALL} By the new AppSecret after a reset."
PREVIOUS_SIGNATURE = "The same by the old AppSecret, for 24 hours after a reset."
DELIVERY_ID = "Names the delivery: the same on all its attempts and re-sends."
DELIVERY_ATTEMPT = "1 to 8, counted on by re-sends."
ORDER_VERSION = "Grows with every change of the order."


def field(name: str) -> str:
    """The text for `Struct.field`; fields that mean the same everywhere are named without their struct."""
    return _FIELDS.get(name) or _FIELDS.get(name.partition(".")[2], "")


_FIELDS = {
    # Health
    "status": "`UP` when healthy.",
    "tenantId": "Your tenant's id.",
    "clientName": "Your tenant's name.",
    # Balance
    "accountType": "The kind of wallet.",
    "balance": "What the wallet holds; below zero while credit is used.",
    "creditLimit": "How far the balance may fall below zero.",
    "availableBalance": "balance plus creditLimit.",
    "lowBalanceThreshold": "Below this, lowBalance is true.",
    "lowBalance": "Whether availableBalance is below lowBalanceThreshold.",
    # Paging
    "pager": "Which page.",
    "pageNum": "Counted from 1.",
    "pageSize": "Rows a page.",
    "after": "`pager.next` of the previous answer; then pageNum is not looked at.",
    "total": "Rows in all that match.",
    "next": "Send it back as `pager.after` for the next page. Absent on the last page.",
    # Regions
    "regions": "Ordered by regionCode.",
    "regionCode": "ISO 3166-1 alpha-2 for a country (XK is Kosovo), else the bundle's code.",
    "regionName": "In English.",
    "Region.type": "Whether it is a country, a region or global.",
    "RegionList.type": "Only these.",
    "continent": "Empty where it spans several.",
    "packageCount": "Packages on sale for you.",
    "subRegions": "The countries of a region.",
    # Packages
    "packages": "One page of them, the last changed first.",
    "catalogVersion": "Names the state of the catalogue.",
    "PackageList.catalogVersion": "The one you have: where it is still current, notModified is true.",
    "notModified": "Whether the catalogVersion sent is current; packages is then empty.",
    "packageCode": "What you order by.",
    "OrderItem.packageCode": "The package ordered.",
    "slug": "Its part of a web address.",
    "packageName": "In English.",
    "description": "In English.",
    "PackageList.type": "`BASE` or `TOPUP`. There are no TOPUP packages yet.",
    "Package.type": "What kind of package it is.",
    "Package.status": "Whether it is on sale for you.",
    "locationType": "A country, a region or global.",
    "locationCode": "The country (ISO 3166-1 alpha-2) or region it is made for.",
    "PackageList.locationCode": "A country or region; also finds the regions that a country is part of.",
    "Network.locationCode": "The country.",
    "locations": "The countries it works in, ISO 3166-1 alpha-2.",
    "Package.price": "Your price of one unit; of one day for `DAILY_*`.",
    "retailPrice": "Recommended price for the end customer.",
    "currency": "ISO 4217.",
    "PlaceOrder.currency": "If given, it must be the wallet's.",
    "dataType": "`TOTAL`: a volume for the whole duration. `DAILY_*`: a volume, or none, for each day.",
    "PackageList.dataType": "`TOTAL`, `DAILY_REDUCED`, `DAILY_CUTOFF` or `DAILY_UNLIMITED`.",
    "dataBytes": "The volume, of one day for `DAILY_*`; null where it is unlimited.",
    "fupSpeed": "The speed once the volume is used up.",
    "duration": "How many durationUnits; 1 for `DAILY_*`, which are ordered by periodNum.",
    "durationUnit": "Days.",
    "minPeriodNum": "Fewest days of a `DAILY_*` package.",
    "maxPeriodNum": "Most days of a `DAILY_*` package.",
    "unusedValidDays": "Days a profile that is not used stays valid.",
    "activationType": "When its days begin: with the installation, or with the first network.",
    "speed": "Network generations, such as 4G/5G.",
    "ipExport": "Country whose addresses the traffic carries; empty where not known.",
    "topUpSupport": "Whether its profiles can be topped up.",
    "maxQuantity": "Most units in an order line.",
    "networks": "Operators by country.",
    "operators": "The mobile networks used there.",
    "operatorName": "As it calls itself.",
    "networkType": "Its newest generation used, such as 5G.",
    "supportedFields": "Which optional profile fields its supplier fills.",
    "keyword": "Part of a name or code, in any case.",
    "updatedSince": "Changed at or after.",
    # Orders
    "transactionId": "Your idempotency key: letters, digits and `. _ : @ -`, case-sensitive.",
    "PlaceOrder.amount": "The sum of price × quantity × periodNum.",
    "Snapshot.amount": "What was paid.",
    "PlaceOrder.items": "One line per package; at most 500 profiles in all.",
    "Snapshot.items": "One per line.",
    "remark": "Yours to use.",
    "quantity": "How many profiles.",
    "OrderLine.price": "Your price of one unit, of one day for `DAILY_*`.",
    "OrderLine.periodNum": "Days of a `DAILY_*` package, where it is required. Otherwise 1 or absent.",
    "OrderItem.periodNum": "Days ordered; absent where it is 1.",
    "orderNo": "The platform's order number.",
    "orderId": "The same order as a number.",
    "eventType": "Webhooks only.",
    "changeHints": "Webhooks only: what changed since the last event of this type that you received.",
    "payStatus": "`REFUNDED` only when all of the amount was refunded.",
    "deliveryStatus": "How many of the profiles have their codes.",
    "orderStatus": "Where the order stands.",
    "OrderList.orderStatus": "Only these.",
    "refundAmount": "What was refunded in all, as a JSON number.",
    "duplicate": "Whether an earlier order was found under this transactionId; then nothing was charged.",
    "createTime": "When it was paid.",
    "updateTime": "When it last changed.",
    "startTime": "Ordered at or after.",
    "endTime": "Ordered before.",
    "orders": "Newest first.",
    # Items and profiles
    "itemNo": "Names the line.",
    "itemStatus": "Where the line stands.",
    "profiles": "One per unit. Absent in ORDER_PAID.",
    "records": "Newest first.",
    "profile": "The eSIM.",
    "profileId": "Names the eSIM.",
    "iccid": "The card's number (ITU-T E.118), once it is allocated.",
    "qrCodeUrl": "PNG to scan and install; with `.svg` appended, an SVG. It never changes; whoever has it can install.",
    "activationCode": "`LPA:1$…` (GSMA SGP.22).",
    "smdpAddress": "The activation code's SM-DP+ address.",
    "matchingId": "The activation code's MatchingID.",
    "installUrls": "Links that open the phone's own installer.",
    "ios": "For iPhones.",
    "android": "For Android phones.",
    "lifecycleStatus": "Where the eSIM stands; use this in your logic.",
    "ProfileList.lifecycleStatus": "One word or several. With `PENDING`, profiles that wait for their codes too.",
    "esimStatus": "The supplier's word, as it came. Supplementary.",
    "smdpStatus": "The SM-DP+'s word, as it came. Supplementary.",
    "planUseStatus": "Whether its plan has started or ended.",
    "planUseStartTime": "When it started.",
    "planUseEndTime": "When it ends or ended.",
    "dataUsageBytes": "Used so far.",
    "remainDataBytes": "Still left; absent where unlimited.",
    "usagePercent": "Used, of the whole.",
    "activated": "Whether it was ever activated.",
    "cancelled": "Whether it is void.",
    "ProfileList.cancelled": "Only void ones, or only the others.",
    # Webhooks
    "callbackUrl": "Where events are sent; empty: nowhere.",
    "SetWebhook.callbackUrl": 'An absolute http(s) URL. `""` or null removes it.',
    "enabled": "Whether events are sent.",
    "state": "`DISABLED`: your receiver answered 410. `NOT_SET`: there is no callbackUrl.",
    "consecutiveFailures": "Attempts that failed since the last success.",
    "lastSuccessTime": "When an event was last received.",
    # Refunds and voids
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
    "asyncStatus": "`PENDING`: its supplier has to be asked.",
    # Usage
    "refresh": "Whether its supplier is asked first.",
    "dataTotalBytes": "The whole volume; null where it is unlimited.",
    "realTime": "Whether the supplier was asked within the last minute, and has answered since.",
    "lastUpdateTime": "When anything was last heard of it.",
    "step": "What happens to it.",
    "AdvanceProfile.dataUsageBytes": "With `USE` only: the total used by then. Without it, everything.",
    # The wallet
    "entries": "Newest first.",
    "entryNo": "Counts the entries of your wallet from 1.",
    "entryType": "What moved the money.",
    "Statement.entryType": "Only these.",
    "Statement.startTime": "Made at or after.",
    "Statement.endTime": "Made before.",
    "Entry.amount": "Below zero where money left the wallet.",
    "balanceAfter": "The balance this entry left.",
    "Entry.createTime": "When it was made.",
    "Entry.orderNo": "Of a debit or a refund.",
    "Entry.topupNo": "Of a top-up.",
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
    "delivered": "Whether your receiver answered 2xx in time.",
    "httpStatus": "What your receiver answered; absent where it did not.",
    "durationMs": "How long that took, in milliseconds.",
    "error": "Why it failed; absent where it did not.",
    "deliveries": "Newest first.",
    "deliveryId": "Names the delivery: its RT-Delivery-ID.",
    "DeliveryList.eventType": "Only these.",
    "Delivery.eventType": "What it tells.",
    "DeliveryList.status": "Only these.",
    "Delivery.status": "Where the delivery stands.",
    "DeliveryList.startTime": "Made at or after.",
    "DeliveryList.endTime": "Made before.",
    "trigger": "Why it was sent last.",
    "orderVersion": "The order's version it tells of: RT-Order-Version.",
    "Delivery.changeHints": "What it says has changed; empty until its first attempt.",
    "attemptCount": "How often it was tried.",
    "nextAttemptTime": "When it goes; absent where it does not, and behind another event of its order.",
    "Delivery.createTime": "When the order changed.",
    "attempts": "Those of the last 30 days.",
    "number": "Counts the attempts from 1: RT-Delivery-Attempt.",
    "time": "When it was begun.",
    "answerHead": "The beginning of what your receiver answered.",
}
