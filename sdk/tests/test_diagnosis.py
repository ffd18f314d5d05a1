"""One good webhook; each test spoils one part, and the diagnosis names that part and no other."""

import json

import pytest

from esim_dealer.diagnosis import Finding, diagnose

from .conftest import APP_KEY, APP_SECRET, NOON, event_body, event_headers

BODY = event_body(remark="é")


@pytest.fixture
def headers() -> dict[str, str]:
    return event_headers(BODY, now=NOON)


def look(headers: dict, body: bytes = BODY, secret: str = APP_SECRET, **options) -> list[Finding]:
    return diagnose(headers, body, secret, **({"app_key": APP_KEY, "now": NOON} | options))


def wrong(headers: dict, body: bytes = BODY, secret: str = APP_SECRET, **options) -> dict[str, str]:
    return {found.part: found.words for found in look(headers, body, secret, **options) if not found.right}


def test_a_good_webhook_has_nothing_wrong(headers: dict):
    found = {each.part: each.words for each in look(headers)}
    assert wrong(headers) == {}
    assert found["body"].startswith(f"{len(BODY)} bytes, SHA-256 ")
    assert found["string-to-sign"].startswith(f"{13 + 36 + len(APP_KEY) + len(BODY)} bytes, SHA-256 ")
    assert found["X-Signature"] == f"fits ({headers['X-Signature'][:8]}…)"
    assert found["event"] == "DELIVERY_UPDATED of D251231120000000001, ICCID_READY,DELIVERY_STATUS_CHANGED"


def test_another_secret_shows_both_signatures_by_their_beginning(headers: dict):
    other = event_headers(BODY, now=NOON, secret="sk_test_other")
    found = wrong(headers | {"X-Signature": other["X-Signature"]})
    assert list(found) == ["X-Signature", "body"]
    assert found["X-Signature"].endswith(f"given {other['X-Signature'][:8]}…")
    assert found["body"].startswith("another AppSecret")


def test_the_secret_and_whole_signatures_are_never_shown(headers: dict):
    for spoilt in (headers, headers | {"X-Signature": "0" * 64}):
        text = " ".join(found.words for found in look(spoilt))
        assert APP_SECRET not in text
        assert headers["X-Signature"] not in text


@pytest.mark.parametrize("name", ["RT-AccessCode", "RT-RequestID", "RT-Timestamp", "X-Signature"])
def test_a_missing_header_is_named(headers: dict, name: str):
    del headers[name]
    assert wrong(headers)[name] == f"{name} is missing"


def test_seconds_instead_of_milliseconds_are_named(headers: dict):
    assert wrong(headers | {"RT-Timestamp": str(int(NOON))})["RT-Timestamp"] == "RT-Timestamp is not 13 digits"


def test_an_old_webhook_is_too_old_unless_its_age_does_not_matter(headers: dict):
    assert list(wrong(headers, now=NOON + 3600)) == ["RT-Timestamp"]
    assert wrong(headers, now=NOON + 3600)["RT-Timestamp"].endswith("signed 3600 s ago, 300 s are allowed")
    assert wrong(headers, now=NOON + 3600, any_age=True) == {}


def test_another_app_key_is_named(headers: dict):
    assert wrong(headers, app_key="ak_test_0002") == {"RT-AccessCode": f"signed for AppKey {APP_KEY}, not ak_test_0002"}
    assert wrong(headers, app_key=None) == {}


def test_during_a_reset_the_previous_signature_is_enough(headers: dict):
    headers |= {"X-Signature": "0" * 64, "X-Signature-Previous": headers["X-Signature"]}
    assert wrong(headers) == {}
    assert "X-Signature-Previous" in [found.part for found in look(headers)]


@pytest.mark.parametrize(
    ("received", "happened"),
    [
        (BODY + b"\n", "without the line break at its end"),
        (BODY + b"\r\n", "without the line break at its end"),
        (json.dumps(json.loads(BODY), ensure_ascii=False).encode(), "written compactly"),
        (json.dumps(json.loads(BODY), indent=2).encode(), "written compactly"),
    ],
    ids=["newline", "CRLF", "spaces", "indented"],
)
def test_a_body_that_was_rewritten_on_the_way_is_recognised(headers: dict, received: bytes, happened: str):
    found = wrong(headers, received)
    assert happened in found["body"]


def test_a_truly_signed_body_that_is_no_event_is_named():
    body = b'{"orderNo":"D1"}'
    found = wrong(event_headers(body, now=NOON), body)
    assert list(found) == ["event"]
    assert found["event"].startswith("not an order snapshot")
