"""How are webhook bodies kept? Small, the same bytes again, and readable by every later version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.db.sealing import CannotOpen, DataKeys, delivery_context
from dealer_server.store.webhooks import bodies
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.events import EVENTS

KEYS = DataKeys({1: bytes(range(32))})
EXAMPLES = {event: encoder.encode(description.example) for event, description in EVENTS.items()}
# Kept by the first version that compressed: an ORDER_PAID, delivery 7 of tenant 1.
KEPT = bytes.fromhex(
    "00010925737c7b84bd209abfcf09c70aedd8b7c3861748716b1e0a53b4d0c302aa6dd304c03345694d89356d03354b4273e9"
    "16cd4aa9955686ab7948a870c8c8109f4b755f841c421a0ee825ad134959a18afd957d1df39bde8f796fa682b97b6069"
)


@given(st.binary(max_size=5_000))
def test_every_body_comes_back_as_it_was(body: bytes):
    assert bodies.unseal(KEYS, bodies.seal(KEYS, body, 1, 2), 1, 2) == body


def test_what_is_kept_already_is_read_by_every_version():
    assert bodies.unseal(KEYS, KEPT, 1, 7) == (
        b'{"eventType":"ORDER_PAID","transactionId":"T-1","orderNo":"D261122101530000017","orderId":2175000000'
        b'00017,"payStatus":"PAID","deliveryStatus":"PENDING","orderStatus":"PAID","currency":"USD","amount":"'
        b'1.80","changeHints":["ORDER_PAID"],"items":[{"itemNo":"21750000000001700","packageCode":"TEST-OK","q'
        b'uantity":1,"itemStatus":"PAID"}],"createTime":"2026-11-22T10:15:30Z","updateTime":"2026-11-22T10:15:'
        b'30Z"}'
    )


@pytest.mark.parametrize("event", EXAMPLES)
def test_examples_of_all_events_take_a_third_at_most(event: str):
    body = EXAMPLES[event].replace(b"217325730000041", b"289913847120364").replace(b"0815", b"2139")
    assert len(bodies.seal(KEYS, body, 1, 2)) * 3 < len(body)


def test_body_that_was_kept_before_bodies_were_compressed_is_read():
    sealed = KEYS.seal(EXAMPLES["ORDER_PAID"], delivery_context(1, 2))
    assert bodies.unseal(KEYS, sealed, 1, 2) == EXAMPLES["ORDER_PAID"]


def test_body_of_another_delivery_does_not_open():
    with pytest.raises(CannotOpen):
        bodies.unseal(KEYS, bodies.seal(KEYS, b"{}", 1, 2), 1, 3)


def test_a_version_that_knows_nothing_of_compression_cannot_open_a_body_and_send_it():
    with pytest.raises(CannotOpen):
        KEYS.open(bodies.seal(KEYS, b"{}", 1, 2), delivery_context(1, 2))
