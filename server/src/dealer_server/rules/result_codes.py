"""Which HTTP status has each result code, and what does it tell the caller? (specification 7)"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from dealer_server.rules import refusal
from dealer_server.rules.access.scopes import SCOPES
from dealer_server.rules.refusal import Refusal
from esim_dealer.wire.vocabulary import SUCCESS_MESSAGE, ResultCode

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_SCOPE: Schema = {"enum": list(SCOPES)}


class Described(NamedTuple):
    """A result code as the documentation shows it. `data` has the JSON Schema of each field of the refusal's `data`."""

    status: int
    meaning: str
    example: Refusal | None = None
    data: Mapping[str, Schema] = {}


def _described(status: int, meaning: str, example: Refusal | None = None, /, **data: Schema) -> Described:
    return Described(status, meaning, example, data)


RESULT_CODES: Mapping[ResultCode, Described] = {
    "000000": _described(200, SUCCESS_MESSAGE),
    "000001": _described(
        500,
        "unexpected server error; nothing was done in part",
        traceId={**_TEXT, "description": "As in X-Trace-Id."},
    ),
    "000101": _described(
        401,
        "a required header is missing",
        refusal.HeaderMissing("RT-RequestID is missing: a new UUID with each call"),
    ),
    "000102": _described(
        400,
        "a header is malformed or was sent twice",
        refusal.HeaderMalformed(
            "RT-Timestamp has 10 digits, so it counts seconds; accepted: milliseconds since 1970, 13 digits"
        ),
    ),
    "000103": _described(405, "method other than POST", refusal.MethodNotAllowed()),
    "000104": _described(400, "the body is not a JSON object in UTF-8", refusal.NotJson()),
    "000105": _described(400, "a required parameter is absent", refusal.ParameterMissing("transactionId is required")),
    "000106": _described(
        400,
        "a required parameter is null or empty",
        refusal.ParameterEmpty("transactionId is null; accepted: a string"),
    ),
    "000107": _described(
        400,
        "a parameter is too long",
        refusal.ParameterLength("callbackUrl is too long; accepted: at most 512 characters"),
    ),
    "000108": _described(
        400,
        "a parameter has the wrong type, format, range or word; or a query string was sent",
        refusal.ParameterInvalid("pager.pageSize is out of range; accepted: an integer from 1 to 500"),
    ),
    "000109": _described(415, "Content-Type is not application/json", refusal.ContentTypeRefused()),
    "000110": _described(413, "the body is over 262144 bytes", refusal.BodyTooLarge()),
    "000111": _described(
        400,
        "a parameter that is not accepted here, or both of two exclusive ones",
        refusal.ParameterNotAccepted("profileId and iccid exclude each other; send exactly one of them"),
    ),
    "000112": _described(404, "no such path", refusal.PathUnknown()),
    "101001": _described(
        401,
        "RT-Timestamp is more than 300 s from the server's clock",
        refusal.TimestampOutsideWindow(
            "RT-Timestamp is 600 s behind the server; accepted: within 300 s. Set your clock",
            {"serverTime": 1_767_226_200_000},
        ),
        serverTime={**_COUNT, "description": "The server's clock, in milliseconds since 1970."},
    ),
    "101002": _described(
        403,
        "calls from this address are not allowed",
        refusal.AddressNotAllowed("calls from 198.51.100.7 are not allowed; ask the operator to add it"),
    ),
    "101003": _described(
        401,
        "the signature does not fit",
        refusal.SignatureMismatch(
            data={
                "bodyLength": 2,
                "bodySha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            }
        ),
        bodyLength={**_COUNT, "description": "Bytes of the body as received."},
        bodySha256={**_TEXT, "pattern": "^[0-9a-f]{64}$", "description": "SHA-256 of them, in hex."},
    ),
    "101004": _described(401, "RT-RequestID was already used", refusal.RequestIdUsed()),
    "101005": _described(401, "the AppKey is unknown in this environment", refusal.AppKeyUnknown()),
    "101006": _described(403, "the tenant or its credential is disabled", refusal.TenantDisabled()),
    "101007": _described(
        403,
        "the AppKey lacks the operation's scope; `data.requiredScope` names it",
        refusal.ScopeMissing(
            "/esim/refund needs an AppKey with the scope money; this one has: read, order",
            {"requiredScope": "money", "scopes": ["read", "order"]},
        ),
        requiredScope={**_SCOPE, "description": "What the operation needs."},
        scopes={"type": "array", "items": _SCOPE, "description": "What the AppKey has."},
    ),
    "101013": _described(
        429,
        "too many calls a second, or a second SMS to a profile within a minute",
        refusal.RateExceeded("more than 10 calls a second"),
    ),
    "900001": _described(
        503,
        "busy or in maintenance; nothing was done unless `data.outcome` is `UNKNOWN`",
        refusal.Busy(),
        outcome={"const": "UNKNOWN", "description": "The call may have been carried out."},
    ),
    "900002": _described(502, "reserved: a supplier failed, and nothing was done; no call is answered so today"),
    "200002": _described(409, "not allowed in the current status, or without a callback URL", refusal.StatusForbids()),
    "200003": _described(
        409, "nothing can be refunded in the given scope; `data.profiles` says why", refusal.NothingRefundable()
    ),
    "200004": _described(409, "a refund of the same profiles is in progress", refusal.RefundInProgress()),
    "200005": _described(
        422,
        "a line's price is not your price; `data.lines` has the expected ones",
        refusal.PriceDiffers(
            "items[0].price is not your price of TEST-OK; accepted: 1.80 USD",
            {"lines": [{"index": 0, "packageCode": "TEST-OK", "expectedPrice": "1.80", "currency": "USD"}]},
        ),
        lines={
            "type": "array",
            "description": "The lines whose price differs.",
            "items": {
                "type": "object",
                "required": ["index", "packageCode", "expectedPrice", "currency"],
                "properties": {
                    "index": {**_COUNT, "description": "Which line of items, from 0."},
                    "packageCode": _TEXT,
                    "expectedPrice": {**_TEXT, "description": "Your price now."},
                    "currency": _TEXT,
                },
            },
        },
    ),
    "200006": _described(
        422,
        "amount is not the sum of the lines; `data.expectedAmount` is",
        refusal.AmountDiffers(
            "amount is not the sum of price x quantity x periodNum; accepted: 3.60 USD", {"expectedAmount": "3.60"}
        ),
        expectedAmount={**_TEXT, "description": "The sum of the lines."},
    ),
    "200007": _described(
        402,
        "the wallet does not hold the amount",
        refusal.BalanceInsufficient(
            "the order costs 1.80 USD, the wallet has 1.20 available",
            {"requiredAmount": "1.80", "availableBalance": "1.20", "currency": "USD"},
        ),
        requiredAmount={**_TEXT, "description": "What the order costs."},
        availableBalance={**_TEXT, "description": "What the wallet has, credit included."},
        currency=_TEXT,
    ),
    "200008": _described(
        422,
        "the order's lines are inconsistent",
        refusal.LinesInconsistent("items[0].quantity is 2; TEST-OK takes at most 1"),
    ),
    "200010": _described(409, "the profile has no codes yet", refusal.NotAllocated()),
    "200011": _described(
        409,
        "not enough profiles in stock",
        refusal.OutOfStock("DEMO-STOCK has 0 profiles in stock, 1 wanted; nothing was charged"),
    ),
    "200014": _described(
        409,
        "the package is not on sale for you",
        refusal.NotOnSale("items[0].packageCode TEST-OK is not on sale"),
    ),
    "200015": _described(
        422,
        "the currency is not the wallet's",
        refusal.CurrencyDiffers("currency 'EUR' is not the wallet's; accepted: USD"),
    ),
    "200020": _described(403, "the wallet is frozen", refusal.WalletFrozen()),
    "200021": _described(
        409,
        "too many top-ups wait for review",
        refusal.TooManyTopups("20 top-ups wait for review already; wait until they are reviewed"),
    ),
    "200022": _described(
        501,
        "the package's supplier does not support this operation",
        refusal.NotSupported("nobody reports on profiles from stock"),
    ),
    "310241": _described(
        404,
        "the packageCode does not exist",
        refusal.PackageUnknown("items[0].packageCode 'TEST-0K' does not exist"),
    ),
    "310272": _described(
        404,
        "no such order or delivery, or orderNo and transactionId name different orders",
        refusal.OrderNotFound(),
    ),
    "310274": _described(
        404,
        "the item is not in the order",
        refusal.ItemNotInOrder("items[0].itemNo names no item of order D261120081530000041"),
    ),
    "310402": _described(409, "the transactionId was used with other content", refusal.TransactionIdReused()),
    "310403": _described(
        404,
        "the item has no such profile, or its two ids disagree",
        refusal.ProfileNotInItem("items[0].profiles[0] names no profile of its item"),
    ),
    "310404": _described(404, "no such profile", refusal.ProfileNotFound()),
    "310405": _described(404, "no such top-up", refusal.TopupNotFound()),
    "310501": _described(
        422,
        "the callbackUrl is refused",
        refusal.CallbackUrlRefused("callbackUrl: the address 10.0.0.1 is not a public one"),
    ),
}

STATUS: Mapping[ResultCode, int] = {code: described.status for code, described in RESULT_CODES.items()}
