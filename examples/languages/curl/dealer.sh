#!/usr/bin/env bash
# The eSIM Dealer Open API with bash, curl and openssl, for trials: `sign`, `order PACKAGE PRICE`, `verify`.
# openssl takes the secret as an argument, where other users of the machine can see it.
set -euo pipefail

signature() { # signature TIMESTAMP REQUEST_ID APP_KEY, the body on standard input
  { printf '%s' "$1$2$3" && cat; } | openssl dgst -sha256 -hmac "$ESIM_DEALER_APP_SECRET" | sed 's/^.* //'
}

call() { # call PATH BODY
  local timestamp request_id
  timestamp=$(date +%s)000           # milliseconds
  request_id=$(openssl rand -hex 16) # a UUID without dashes
  curl --silent --show-error --max-time 15 "$ESIM_DEALER_URL/open-api/v1$1" \
    --header "Content-Type: application/json" \
    --header "RT-AccessCode: $ESIM_DEALER_APP_KEY" \
    --header "RT-RequestID: $request_id" \
    --header "RT-Timestamp: $timestamp" \
    --header "X-Signature: $(printf '%s' "$2" | signature "$timestamp" "$request_id" "$ESIM_DEALER_APP_KEY")" \
    --data-raw "$2"
}

field() { # field NAME, the JSON on standard input
  grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4
}

order() { # order PACKAGE PRICE
  local placed order_no transaction_id
  transaction_id=sh-$(openssl rand -hex 16) # store it first: the same id again never buys twice
  placed=$(call /esim/order '{"transactionId": "'"$transaction_id"'", "amount": "'"$2"'",
    "items": [{"packageCode": "'"$1"'", "quantity": 1, "price": "'"$2"'"}]}')
  order_no=$(field orderNo <<<"$placed") || { echo "refused: $placed" >&2 && return 1; }
  until [[ $placed == *'"deliveryStatus":"DELIVERED"'* ]]; do
    [[ $placed != *'"deliveryStatus":"FAILED"'* ]] || { echo "$order_no failed and is refunded" >&2 && return 1; }
    sleep 1
    placed=$(call /esim/query '{"orderNo": "'"$order_no"'"}')
  done
  echo "$order_no $(field iccid <<<"$placed") $(field activationCode <<<"$placed")"
}

verify() { # the headers as CGI names them, the body on standard input
  local right age
  [[ ${HTTP_RT_TIMESTAMP-} =~ ^[0-9]{13}$ ]] || return 1
  right=$(signature "$HTTP_RT_TIMESTAMP" "${HTTP_RT_REQUESTID-}" "${HTTP_RT_ACCESSCODE-}")
  age=$(($(date +%s) - HTTP_RT_TIMESTAMP / 1000))
  # For a day after a reset of the AppSecret there are two. bash does not compare in constant time.
  [[ ${age#-} -le 300 && ($right == "${HTTP_X_SIGNATURE-}" || $right == "${HTTP_X_SIGNATURE_PREVIOUS-}") ]]
}

case "$#:${1-}" in
3:order) order "$2" "$3" ;;
1:sign) signature "$TIMESTAMP" "$REQUEST_ID" "$ESIM_DEALER_APP_KEY" ;;
1:verify)
  verify || { echo "not verified: answer 401" >&2 && exit 1; }
  echo "verified: store it, answer 200, then work"
  ;;
*) echo "usage: dealer.sh order PACKAGE PRICE | sign | verify" >&2 && exit 2 ;;
esac
