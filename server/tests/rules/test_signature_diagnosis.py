"""What is said of a signature that does not fit: each of the usual mistakes by its name, and nothing else."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.access.signature_diagnosis import Call, explain

SECRET = b"sk_test_" + b"s" * 40
OLD = b"sk_test_" + b"o" * 40
TIMESTAMP, REQUEST_ID, APP_KEY = b"1763626530000", b"6F9619FF-8B86-D011-B42D-00CF4FC964FF", b"ak_test_" + b"k" * 24
BODY = '{"orderNo": "D1", "remark": "für"}'.encode()
EXACT = TIMESTAMP + REQUEST_ID + APP_KEY + BODY


def mac(message: bytes, key: bytes = SECRET) -> bytes:
    return hmac.digest(key, message, "sha256").hex().encode()


@pytest.mark.parametrize(
    ("signature", "said"),
    [
        (mac(EXACT), "in force now"),
        (mac(EXACT).upper(), "in force now"),
        (mac(EXACT, OLD), "before the last reset"),
        (mac(EXACT, SECRET + b"\n"), "a line end behind it"),
        (mac(EXACT, SECRET[8:]), "without its beginning"),
        (mac(EXACT, APP_KEY), "AppKey was used as the key"),
        (base64.b64encode(hmac.digest(SECRET, EXACT, "sha256")), "Base64"),
        (mac(TIMESTAMP + REQUEST_ID + APP_KEY), "left out"),
        (mac(TIMESTAMP + REQUEST_ID + APP_KEY + b"{}"), "signed as {}"),
        (mac(EXACT + b"\n"), "line end behind it, and sent without"),
        (mac(TIMESTAMP + REQUEST_ID + APP_KEY + hashlib.sha256(BODY).hexdigest().encode()), "SHA-256 of the body"),
        (mac(TIMESTAMP + REQUEST_ID + APP_KEY + '{"orderNo":"D1","remark":"für"}'.encode()), "serialized twice"),
        (mac(TIMESTAMP + REQUEST_ID + APP_KEY + rb'{"orderNo": "D1", "remark": "f\u00fcr"}'), "serialized twice"),
        (mac(TIMESTAMP[:10] + REQUEST_ID + APP_KEY + BODY), "in seconds"),
        (mac(TIMESTAMP + REQUEST_ID.lower() + APP_KEY + BODY), "another spelling"),
        (mac(TIMESTAMP + REQUEST_ID.replace(b"-", b"") + APP_KEY + BODY), "another spelling"),
        (
            mac(APP_KEY + TIMESTAMP + REQUEST_ID + BODY),
            "RT-AccessCode + RT-Timestamp + RT-RequestID + body, with nothing",
        ),
        (mac(b"\n".join((TIMESTAMP, REQUEST_ID, APP_KEY, BODY))), "with a line end between"),
        (hashlib.sha256(EXACT + SECRET).hexdigest().encode(), "plain SHA-256"),
    ],
)
def test_a_usual_mistake_is_named(signature: bytes, said: str):
    words = explain(Call(TIMESTAMP, REQUEST_ID, APP_KEY, BODY, signature), SECRET, OLD)
    assert said in words
    assert SECRET.decode() not in words and OLD.decode() not in words


@given(st.binary(max_size=80), st.binary(max_size=80))
def test_of_anything_else_nothing_is_said(signature: bytes, body: bytes):
    assert explain(Call(TIMESTAMP, REQUEST_ID, APP_KEY, body, signature), SECRET, None) == ""


def test_a_secret_that_never_was_reset_explains_no_old_one():
    assert explain(Call(TIMESTAMP, REQUEST_ID, APP_KEY, BODY, mac(EXACT, OLD)), SECRET, None) == ""
