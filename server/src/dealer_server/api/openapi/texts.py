"""What does the OpenAPI document say beside the words of each route? docs/specification.md says it at length."""


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
    "webhook": "Where events are sent, and whether they arrive.",
    "test": "Available in the test environment only.",
}
"""By the first part of a path."""

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

FIELDS = {
    "pager": "Which page.",
    "pageNum": "Counted from 1.",
    "pageSize": "Rows a page.",
    "after": "`pager.next` of the previous answer; then pageNum is not looked at.",
    "total": "Rows in all that match.",
    "next": "Send it back as `pager.after` for the next page. Absent on the last page.",
    "currency": "ISO 4217.",
    "transactionId": "Your idempotency key: letters, digits and `. _ : @ -`, case-sensitive.",
    "remark": "Yours to use.",
    "updatedSince": "Changed at or after.",
}
"""Fields that several nouns share; the others stand in FIELDS of the modules of api/routes. A name without its struct
means the same everywhere else."""
