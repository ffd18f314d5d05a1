"""Code that a dealer may copy: a first call, a shell that sends a webhook again."""

import shlex

from dealer_server.console.shared.api_log.curl import VARIABLE, call_curl
from dealer_server.console.shared.webhook_headers import delivery_headers
from dealer_server.store.webhooks.log import Delivery


def webhook_curl(delivery: Delivery, app_key: str, url: str, body: str) -> str:
    """For bash with openssl. The AppSecret is read from the environment, so that it stands nowhere."""
    fixed = "".join(f" \\\n  --header {shlex.quote(f'{name}: {value}')}" for name, value in delivery_headers(delivery))
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
    curl = call_curl(f"{base_url}/open-api/v1/account/balance", app_key, "{}")
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
