"""What makes a call of the API in a shell?"""

import shlex

VARIABLE = "ESIM_DEALER_APP_SECRET"


def call_curl(url: str, app_key: str, body: str) -> str:
    """For bash with openssl. The AppSecret is read from the environment, so that it stands nowhere."""
    return f"""\
export {VARIABLE}=…
app_key={app_key}
body={shlex.quote(body)}
timestamp=$(date +%s)000; request_id=$(openssl rand -hex 16)
signature=$(printf '%s' "$timestamp$request_id$app_key$body" |
  openssl dgst -sha256 -hmac "${VARIABLE}" | sed 's/^.* //')
curl {url} \\
  --header 'Content-Type: application/json' \\
  --header "RT-AccessCode: $app_key" \\
  --header "RT-RequestID: $request_id" \\
  --header "RT-Timestamp: $timestamp" \\
  --header "X-Signature: $signature" \\
  --data-raw "$body"
"""
