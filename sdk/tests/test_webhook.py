"""One good webhook; each test spoils one part of it."""

import hashlib
import hmac
import json
from collections.abc import Callable
from email.message import Message
from typing import get_args

import httpx2
import pytest

from esim_dealer import ChangeHint, EventType, MalformedWebhook, SignatureMismatch, StaleTimestamp, verify
from esim_dealer.wire.snapshot import Snapshot

from .conftest import APP_KEY, APP_SECRET, NOON, snapshot

OLD_SECRET = "sk_test_before_the_reset"


def signature(headers: dict[str, str], body: bytes, secret: str = APP_SECRET) -> str:
    text = headers["RT-Timestamp"] + headers["RT-RequestID"] + headers["RT-AccessCode"]
    return hmac.new(secret.encode(), text.encode() + body, hashlib.sha256).hexdigest()


@pytest.fixture
def body() -> bytes:
    event = snapshot(eventType="DELIVERY_UPDATED", changeHints=["ICCID_READY", "QR_CODE_READY"], remark="é")
    return json.dumps(event, ensure_ascii=False).encode()


@pytest.fixture
def headers(body: bytes) -> dict[str, str]:
    good = {
        "Content-Type": "application/json",
        "RT-AccessCode": APP_KEY,
        "RT-RequestID": "4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2",
        "RT-Timestamp": str(int(NOON * 1000)),
        "RT-Delivery-ID": "w-1",
        "RT-Delivery-Attempt": "2",
        "RT-Order-Version": "5",
    }
    return good | {"X-Signature": signature(good, body)}


def check(headers: object, body: bytes, **options: object) -> object:
    return verify(headers, body, APP_SECRET, **({"now": NOON + 10} | options))


def test_a_true_webhook_is_an_event(headers: dict, body: bytes):
    event = check(headers, body, app_key=APP_KEY)
    assert event.event_type == "DELIVERY_UPDATED"
    assert event.hints == ("ICCID_READY", "QR_CODE_READY")
    assert isinstance(event.snapshot, Snapshot)
    assert event.snapshot.items[0].profiles[0].iccid == "8910300000000000017"
    assert event.dedupe_key == ("D251231120000000001", "DELIVERY_UPDATED", "w-1")
    assert (event.attempt, event.order_version, event.is_test) == (2, 5, False)


@pytest.mark.parametrize(
    "shape",
    [
        lambda headers: {name.lower(): value for name, value in headers.items()},
        lambda headers: {name.upper(): value for name, value in headers.items()},
        lambda headers: list(headers.items()),
        lambda headers: [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        lambda headers: httpx2.Headers(headers),
        lambda headers: _message(headers),
    ],
    ids=["lower", "upper", "pairs", "asgi", "httpx2", "http.server"],
)
def test_headers_come_as_frameworks_give_them(headers: dict, body: bytes, shape: Callable):
    assert check(shape(headers), body).delivery_id == "w-1"


def _message(headers: dict[str, str]) -> Message:
    message = Message()
    for name, value in headers.items():
        message[name] = value
    return message


def test_either_hex_case_is_fine(headers: dict, body: bytes):
    assert check(headers | {"X-Signature": headers["X-Signature"].upper()}, body)


def test_rt_signature_stands_in_where_x_signature_is_absent(headers: dict, body: bytes):
    headers["RT-Signature"] = headers.pop("X-Signature")
    assert check(headers, body)


def test_rt_signature_never_overrules_x_signature(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        check(headers | {"RT-Signature": headers["X-Signature"], "X-Signature": "0" * 64}, body)


def test_a_receiver_with_the_old_secret_verifies_during_a_reset(headers: dict, body: bytes):
    headers["X-Signature-Previous"] = headers["X-Signature"]
    headers["X-Signature"] = signature(headers, body, "sk_test_after_the_reset")
    assert check(headers, body)


def test_a_receiver_with_the_new_secret_still_takes_the_old_one(headers: dict, body: bytes):
    headers["X-Signature"] = signature(headers, body, OLD_SECRET)
    assert check(headers, body, previous_secret=OLD_SECRET)
    with pytest.raises(SignatureMismatch):
        check(headers, body)


def test_a_wrong_previous_signature_helps_nobody(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        check(headers | {"X-Signature": "0" * 64, "X-Signature-Previous": "1" * 64}, body)


def test_another_body_does_not_fit(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        check(headers, body + b" ")


def test_the_same_json_written_otherwise_does_not_fit(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        check(headers, json.dumps(json.loads(body)).encode())


def test_another_secret_does_not_fit(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        verify(headers, body, "sk_test_other", now=NOON)


@pytest.mark.parametrize("name", ["RT-Timestamp", "RT-RequestID", "RT-AccessCode"])
def test_a_changed_signed_header_does_not_fit(headers: dict, body: bytes, name: str):
    changed = headers[name][:-1] + ("1" if headers[name][-1] != "1" else "2")
    with pytest.raises(SignatureMismatch):
        check(headers | {name: changed}, body)


def test_an_event_for_another_app_key_is_not_ours(headers: dict, body: bytes):
    with pytest.raises(SignatureMismatch, match="AppKey"):
        check(headers, body, app_key="ak_test_0002")


@pytest.mark.parametrize(("seconds", "fresh"), [(-301, False), (-300, True), (300, True), (301, False)])
def test_freshness_is_five_minutes_both_ways(headers: dict, body: bytes, seconds: float, fresh: bool):
    if fresh:
        assert check(headers, body, now=NOON + seconds)
    else:
        with pytest.raises(StaleTimestamp):
            check(headers, body, now=NOON + seconds)


@pytest.mark.parametrize("name", ["RT-Timestamp", "RT-RequestID", "RT-AccessCode", "X-Signature"])
def test_a_missing_header_is_named(headers: dict, body: bytes, name: str):
    del headers[name]
    with pytest.raises(MalformedWebhook, match=name):
        check(headers, body)


@pytest.mark.parametrize("name", ["RT-Timestamp", "RT-RequestID", "RT-AccessCode", "X-Signature", "RT-Delivery-ID"])
def test_a_header_given_twice_is_named(headers: dict, body: bytes, name: str):
    with pytest.raises(MalformedWebhook, match=name):
        check([*headers.items(), (name.lower(), headers[name])], body)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RT-Timestamp", "1767225600"),
        ("RT-Timestamp", "1_767_225_600_000"),
        ("RT-Timestamp", "１767225600000"),
        ("RT-RequestID", ""),
        ("RT-AccessCode", "é"),
        ("X-Signature", "0" * 63),
        ("X-Signature", "０" * 64),
        ("X-Signature", "sha256=" + "0" * 64),
        ("X-Signature-Previous", "é"),
    ],
)
def test_a_malformed_header_is_named(headers: dict, body: bytes, name: str, value: str):
    with pytest.raises(MalformedWebhook, match=name):
        check(headers | {name: value}, body)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"orderNo":"D1"}', json.dumps(snapshot())])
def test_truly_signed_nonsense_is_malformed(headers: dict, text: str):
    headers["X-Signature"] = signature(headers, text.encode())
    with pytest.raises(MalformedWebhook, match="truly signed"):
        check(headers, text.encode())


def test_words_of_a_later_version_are_handed_on(headers: dict):
    body = json.dumps(snapshot(eventType="PLAN_RENEWED", changeHints=["BRAND_NEW"])).encode()
    event = check(headers | {"X-Signature": signature(headers, body)}, body)
    assert (event.event_type, event.hints) == ("PLAN_RENEWED", ("BRAND_NEW",))


def test_additive_headers_may_be_absent_or_odd(headers: dict, body: bytes):
    del headers["RT-Delivery-ID"], headers["RT-Order-Version"]
    event = check(headers | {"RT-Delivery-Attempt": "second"}, body)
    assert (event.delivery_id, event.attempt, event.order_version) == (None, None, None)


def test_a_sample_event_says_so(headers: dict, body: bytes):
    assert check(headers | {"RT-Test": "true"}, body).is_test


@pytest.mark.parametrize("parsed", [{"orderNo": "D1"}, '{"orderNo":"D1"}', None])
def test_a_body_that_is_not_raw_bytes_is_a_mistake_of_the_caller(headers: dict, parsed: object):
    with pytest.raises(TypeError, match="as received"):
        check(headers, parsed)


# During a reset of the AppSecret (specification 6.6)

NEW_SECRET = "sk_test_after_the_reset"


@pytest.fixture
def rotating(headers: dict[str, str], body: bytes) -> dict[str, str]:
    """As the service signs during the overlap: X-Signature by the new secret, X-Signature-Previous by the old."""
    return headers | {
        "X-Signature": signature(headers, body, NEW_SECRET),
        "X-Signature-Previous": signature(headers, body, OLD_SECRET),
    }


@pytest.mark.parametrize(
    ("secret", "previous"), [(NEW_SECRET, None), (OLD_SECRET, None), (NEW_SECRET, OLD_SECRET), (OLD_SECRET, NEW_SECRET)]
)
def test_during_the_overlap_either_secret_verifies(rotating: dict, body: bytes, secret: str, previous: str | None):
    assert verify(rotating, body, secret, previous_secret=previous, now=NOON).delivery_id == "w-1"


def test_during_the_overlap_a_third_secret_does_not_verify(rotating: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        verify(rotating, body, "sk_test_third", previous_secret="sk_test_fourth", now=NOON)


def test_after_the_overlap_the_old_secret_does_not_verify(rotating: dict, body: bytes):
    del rotating["X-Signature-Previous"]
    with pytest.raises(SignatureMismatch):
        verify(rotating, body, OLD_SECRET, now=NOON)


def test_the_previous_signature_is_taken_in_either_hex_case(rotating: dict, body: bytes):
    rotating["X-Signature-Previous"] = rotating["X-Signature-Previous"].upper()
    assert verify(rotating, body, OLD_SECRET, now=NOON)


def test_the_previous_signature_signs_the_same_body(rotating: dict, body: bytes):
    with pytest.raises(SignatureMismatch):
        verify(rotating, body + b" ", OLD_SECRET, now=NOON)


def test_the_previous_signature_does_not_stand_alone(rotating: dict, body: bytes):
    del rotating["X-Signature"]
    with pytest.raises(MalformedWebhook, match="X-Signature is missing"):
        verify(rotating, body, OLD_SECRET, now=NOON)


def test_a_previous_signature_given_twice_is_refused(rotating: dict, body: bytes):
    with pytest.raises(MalformedWebhook, match="X-Signature-Previous"):
        verify([*rotating.items(), ("x-signature-previous", "0" * 64)], body, NEW_SECRET, now=NOON)


# Typed


def test_each_event_type_and_hint_is_a_word_of_the_specification(headers: dict):
    for event_type in get_args(EventType):
        body = json.dumps(snapshot(eventType=event_type, changeHints=get_args(ChangeHint))).encode()
        event = check(headers | {"X-Signature": signature(headers, body)}, body)
        assert (event.event_type, event.hints) == (event_type, get_args(ChangeHint))


def test_the_event_keeps_the_bytes_that_were_signed_but_does_not_print_them(headers: dict, body: bytes):
    event = check(headers, memoryview(body))
    assert event.raw_body == body
    assert "raw_body" not in repr(event)
    assert not event.stale
