"""The eSIM Dealer Open API with nothing but the standard library: `sign`, `order PACKAGE PRICE`, `verify`.

The SDK does all of this and retries: pip install ./sdk.
"""

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid

APP_KEY, APP_SECRET = os.environ["ESIM_DEALER_APP_KEY"], os.environ["ESIM_DEALER_APP_SECRET"]


def signature(timestamp: str, request_id: str, app_key: str, body: bytes) -> str:
    message = (timestamp + request_id + app_key).encode() + body
    return hmac.new(APP_SECRET.encode(), message, hashlib.sha256).hexdigest()


def call(path: str, request: dict) -> dict:
    body = json.dumps(request).encode()  # made once: signed and sent are the same bytes
    timestamp, request_id = str(time.time_ns() // 1_000_000), str(uuid.uuid4())
    headers = {
        "Content-Type": "application/json",
        "RT-AccessCode": APP_KEY,
        "RT-RequestID": request_id,
        "RT-Timestamp": timestamp,
        "X-Signature": signature(timestamp, request_id, APP_KEY, body),
    }
    url = f"{os.environ['ESIM_DEALER_URL']}/open-api/v1{path}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=15) as response:
            return json.load(response)["data"]
    except urllib.error.HTTPError as refused:
        sys.exit(f"{path} was refused: {refused.read().decode()}")


def order(package_code: str, price: str) -> None:
    line = {"packageCode": package_code, "quantity": 1, "price": price}
    transaction_id = f"py-{uuid.uuid4()}"  # store it first: the same id again never buys twice
    placed = call("/esim/order", {"transactionId": transaction_id, "amount": price, "items": [line]})
    while placed["deliveryStatus"] != "DELIVERED":
        if placed["deliveryStatus"] == "FAILED":
            sys.exit(f"{placed['orderNo']} failed and is refunded")
        time.sleep(1)
        placed = call("/esim/query", {"orderNo": placed["orderNo"]})
    esim = placed["items"][0]["profiles"][0]
    print(placed["orderNo"], esim["iccid"], esim["activationCode"])


def verify(headers: dict[str, str], body: bytes) -> bool:
    """`headers` by lower-case name; `body` as it was received, before any parsing."""
    timestamp, request_id, app_key = (
        headers.get(name, "") for name in ("rt-timestamp", "rt-requestid", "rt-accesscode")
    )
    right = signature(timestamp, request_id, app_key, body)
    given = (headers.get("x-signature", ""), headers.get("x-signature-previous", ""))  # two for a day after a reset
    fresh = timestamp.isdecimal() and abs(time.time() - int(timestamp) / 1000) <= 300
    return fresh and any(hmac.compare_digest(right.encode(), each.encode()) for each in given)


if __name__ == "__main__":
    command, *words = sys.argv[1:] or [""]
    if command == "order" and len(words) == 2:
        order(*words)
    elif command == "sign":
        body = sys.stdin.buffer.read()
        print(signature(os.environ["TIMESTAMP"], os.environ["REQUEST_ID"], APP_KEY, body))
    elif command == "verify":  # the headers as CGI names them
        cgi = {name[5:].lower().replace("_", "-"): text for name, text in os.environ.items() if name[:5] == "HTTP_"}
        if not verify(cgi, sys.stdin.buffer.read()):
            sys.exit("not verified: answer 401")
        print("verified: store it, answer 200, then work")
    else:
        print("usage: dealer.py order PACKAGE PRICE | sign | verify", file=sys.stderr)
        sys.exit(2)
