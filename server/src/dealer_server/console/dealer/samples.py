"""Code that a dealer may copy: a first call, the headers of a webhook, a shell that sends it again."""

import shlex
from typing import NamedTuple

from dealer_server.store.webhooks.log import Delivery
from esim_dealer.wire import signing

NEW = "new at each attempt"
VARIABLE = "ESIM_DEALER_APP_SECRET"


class Header(NamedTuple):
    """`note`: what stands for a value that is not kept."""

    name: str
    value: str
    note: str = ""


def webhook_headers(delivery: Delivery, app_key: str, *, standard: bool) -> list[Header]:
    """What each attempt carries; of its last one the number. `standard`: those of Standard Webhooks too."""
    return [
        Header("Content-Type", "application/json"),
        Header(signing.ACCESS_CODE, app_key),
        Header(signing.REQUEST_ID, "", f"a UUID, {NEW}"),
        Header(signing.TIMESTAMP, "", f"milliseconds, {NEW}"),
        Header(signing.SIGNATURE, "", f"HMAC-SHA256 with your AppSecret, {NEW}"),
        *_fixed(delivery),
        *([Header(signing.STANDARD_ID, str(delivery.delivery_id))] if standard else ()),
        *([Header(signing.STANDARD_TIMESTAMP, "", f"seconds, {NEW}")] if standard else ()),
        *([Header(signing.STANDARD_SIGNATURE, "", f"of Standard Webhooks, {NEW}")] if standard else ()),
    ]


def _fixed(delivery: Delivery) -> list[Header]:
    return [
        Header(signing.DELIVERY_ID, str(delivery.delivery_id)),
        Header(signing.DELIVERY_ATTEMPT, str(delivery.attempt_count or 1)),
        Header(signing.ORDER_VERSION, str(delivery.order_version)),
    ]


def webhook_curl(delivery: Delivery, app_key: str, url: str, body: str) -> str:
    """For bash with openssl. The AppSecret is read from the environment, so that it stands nowhere."""
    fixed = "".join(f" \\\n  --header {shlex.quote(f'{name}: {value}')}" for name, value, _ in _fixed(delivery))
    return f"""\
# export {VARIABLE}=…
app_key={app_key}
body={shlex.quote(body)}
timestamp=$(date +%s)000
request_id=$(openssl rand -hex 16)
signature=$(printf '%s' "$timestamp$request_id$app_key$body" |
  openssl dgst -sha256 -hmac "${VARIABLE}" | sed 's/^.* //')
curl --include {shlex.quote(url or "https://example.com/webhooks")} \\
  --header 'Content-Type: application/json' \\
  --header "RT-AccessCode: $app_key" \\
  --header "RT-RequestID: $request_id" \\
  --header "RT-Timestamp: $timestamp" \\
  --header "X-Signature: $signature"{fixed} \\
  --data-raw "$body"
"""


def first_calls(base_url: str, app_key: str) -> list[tuple[str, str, str]]:
    """A call of /account/balance: id, language and code. The AppSecret is read from the environment."""
    curl = f"""\
export {VARIABLE}=…
app_key={app_key}
timestamp=$(date +%s)000; request_id=$(openssl rand -hex 16); body='{{}}'
signature=$(printf '%s' "$timestamp$request_id$app_key$body" |
  openssl dgst -sha256 -hmac "${VARIABLE}" | sed 's/^.* //')
curl {base_url}/open-api/v1/account/balance \\
  --header 'Content-Type: application/json' \\
  --header "RT-AccessCode: $app_key" \\
  --header "RT-RequestID: $request_id" \\
  --header "RT-Timestamp: $timestamp" \\
  --header "X-Signature: $signature" \\
  --data-raw "$body"
"""
    python = f"""\
import os

from esim_dealer import Dealer

dealer = Dealer(
    "{base_url}",
    "{app_key}",
    os.environ["{VARIABLE}"],
)
print(dealer.balance().available_balance)
"""
    typescript = f"""\
import {{ Dealer }} from "esim-dealer";

const dealer = new Dealer({{
  url: "{base_url}",
  appKey: "{app_key}",
  appSecret: process.env.{VARIABLE},
}});
console.log((await dealer.balance()).availableBalance);
"""
    return [("curl", "curl", curl), ("python", "Python", python), ("typescript", "TypeScript", typescript)]
