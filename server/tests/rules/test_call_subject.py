"""What a call is about, by its body."""

import pytest

from dealer_server.rules.access.call_subject import MOST, of_body


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b'{"orderNo":"D1","transactionId":"t"}', "orderNo", "D1"),
        (b'{"items":[{"packageCode":"TEST-OK"}],"transactionId":"t-1","remark":"Ann"}', "transactionId", "t-1"),
        (b'{"refundTransactionId":"r-1","reason":"x"}', "refundTransactionId", "r-1"),
        (b'{"profileId":218096158386320}', "profileId", "218096158386320"),
        (b'{"iccid":"8900","message":"hello"}', "iccid", "8900"),
        (b'{"transactionId":null,"topupNo":"T1"}', "topupNo", "T1"),
        (b'{"transactionId":{"a":1}}', "", ""),
        (b'{"transactionId":""}', "", ""),
        (b"{}", "", ""),
        (b"[]", "", ""),
        (b"", "", ""),
        (b"{", "", ""),
        (b'{"orderNo":"\xff"}', "", ""),
        (b'{"orderNo":"\\ud800"}', "", ""),
        (b'{"orderNo":true}', "", ""),
        (b'{"orderNo":' + b"[" * 5_000, "", ""),
        (b'{"x":' + b"[" * 5_000 + b"]" * 5_000 + b"}", "", ""),
        (b'{"orderNo":"a\\u0000b"}', "orderNo", "ab"),
    ],
)
def test_the_number_that_names_it_is_found(body: bytes, kind: str, text: str):
    assert of_body(body) == (kind, text)


def test_a_long_one_is_cut():
    assert of_body(b'{"orderNo":"%s"}' % (b"9" * 500)) == ("orderNo", "9" * MOST)
