"""The vectors were made with openssl, so that client and server cannot agree on a mistake."""

import json
from pathlib import Path

import pytest

from esim_dealer.exchange import Credentials, sign
from esim_dealer.wire import signing

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "signing.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["body"] or "empty")
def test_signature_is_that_of_openssl(vector: dict):
    text = [vector[name].encode() for name in ("appSecret", "timestamp", "requestId", "appKey", "body")]
    assert signing.signature(*text) == vector["signature"]


@pytest.mark.parametrize("vector", VECTORS[:3], ids=lambda vector: vector["body"] or "empty")
def test_a_signed_request_carries_the_five_headers(vector: dict):
    request = sign(
        "https://api.dealer.test/x",
        vector["body"].encode(),
        Credentials(vector["appKey"], vector["appSecret"]),
        now_ms=int(vector["timestamp"]),
        request_id=vector["requestId"],
        timeout_seconds=1,
    )
    assert request.body == vector["body"].encode()
    assert request.headers == {
        "Content-Type": "application/json",
        "RT-AccessCode": vector["appKey"],
        "RT-RequestID": vector["requestId"],
        "RT-Timestamp": vector["timestamp"],
        "X-Signature": vector["signature"],
    }
