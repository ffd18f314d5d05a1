"""Do the samples look to a receiver like what the service sends?"""

from typing import get_args

import pytest

from esim_dealer import EventType, verify
from esim_dealer.exchange import Credentials
from esim_dealer.sample import signed_sample

from .conftest import APP_KEY, APP_SECRET, NOON


@pytest.mark.parametrize("event_type", get_args(EventType))
def test_a_sample_verifies_and_says_that_it_is_one(event_type: EventType):
    request = signed_sample(
        "http://127.0.0.1:9000/",
        event_type,
        Credentials(APP_KEY, APP_SECRET),
        order_no="TEST1",
        delivery_id="sample-1",
        now_ms=int(NOON * 1000),
        request_id="4ce9d9cd-ac9e-4e17-b3a2-c66c358c1ce2",
        timeout_seconds=10,
    )
    event = verify(request.headers, request.body, APP_SECRET, app_key=APP_KEY, now=NOON)
    assert event.dedupe_key == ("TEST1", event_type, "sample-1")
    assert event.is_test
    profiles = [profile for item in event.snapshot.items for profile in item.profiles or ()]
    assert [bool(profile.iccid) for profile in profiles] == ([] if event_type == "ORDER_PAID" else [True])


def test_the_refund_is_a_number_on_the_wire():
    request = signed_sample(
        "http://127.0.0.1:9000/",
        "REFUND_COMPLETED",
        Credentials(APP_KEY, APP_SECRET),
        order_no="TEST1",
        delivery_id="sample-1",
        now_ms=int(NOON * 1000),
        request_id="r-1",
        timeout_seconds=10,
    )
    assert b'"refundAmount":1.80,' in request.body
    assert b'"changeHints":["REFUND_COMPLETED","REFUND_AMOUNT_UPDATED"]' in request.body
