"""How is a call or a webhook signed? (specification 5.2)

stringToSign = RT-Timestamp + RT-RequestID + RT-AccessCode + rawBody
X-Signature  = lowercase hex of HMAC-SHA256(key = AppSecret, message = stringToSign), both as UTF-8

Webhooks may also carry the headers of standard-webhooks, signed with the same AppSecret (specification 6.6).
"""

import base64
import hmac
from collections.abc import Sequence

ACCESS_CODE = "RT-AccessCode"
REQUEST_ID = "RT-RequestID"
TIMESTAMP = "RT-Timestamp"
SIGNATURE = "X-Signature"
SIGNATURE_ALIAS = "RT-Signature"  # accepted where X-Signature is absent
PREVIOUS_SIGNATURE = "X-Signature-Previous"  # webhooks, during the overlap after a secret reset
DELIVERY_ID = "RT-Delivery-ID"
DELIVERY_ATTEMPT = "RT-Delivery-Attempt"
ORDER_VERSION = "RT-Order-Version"
STANDARD_ID, STANDARD_TIMESTAMP, STANDARD_SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TEST = "RT-Test"  # a sample event that /webhook/test sent
TRACE_ID = "X-Trace-Id"


def signature(secret: bytes, timestamp: bytes, request_id: bytes, app_key: bytes, body: bytes) -> str:
    """The signature of one call: 64 lower-case hex digits. All values exactly as sent, `body` the bytes on the wire."""
    return hmac.digest(secret, timestamp + request_id + app_key + body, "sha256").hex()


def signed_headers(app_key: str, secret: bytes, body: bytes, *, timestamp_ms: int, request_id: str) -> dict[str, str]:
    """The five headers that every call and every webhook carries (specification 5 rule 1)."""
    timestamp = str(timestamp_ms)
    return {
        "Content-Type": "application/json",
        ACCESS_CODE: app_key,
        REQUEST_ID: request_id,
        TIMESTAMP: timestamp,
        SIGNATURE: signature(secret, timestamp.encode(), request_id.encode(), app_key.encode(), body),
    }


def standard_headers(message_id: str, seconds: int, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """The headers of standard-webhooks, with one signature for each secret. Libraries take a secret as
    `standard_secret` writes it."""
    message = f"{message_id}.{seconds}.".encode() + body
    digests = [hmac.digest(secret, message, "sha256") for secret in secrets]
    return {
        STANDARD_ID: message_id,
        STANDARD_TIMESTAMP: str(seconds),
        STANDARD_SIGNATURE: " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }


def standard_secret(secret: str) -> str:
    """An AppSecret as libraries of standard-webhooks take it."""
    return f"whsec_{base64.b64encode(secret.encode()).decode()}"


def matches(expected: str, given: str) -> bool:
    """Whether a given signature is the expected one: constant time, either hex case. `given` must be ASCII."""
    return hmac.compare_digest(expected, given.lower())
