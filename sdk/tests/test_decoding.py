import subprocess
import sys

import msgspec
import pytest

from esim_dealer.decoding import decode
from esim_dealer.wire.calls import Profiles
from esim_dealer.wire.operations import OPERATIONS
from esim_dealer.wire.snapshot import Snapshot

from .conftest import snapshot


def raw(value: object) -> bytes:
    return msgspec.json.encode(value)


def test_known_words_give_exactly_the_contracts_type():
    assert type(decode(raw(snapshot()), Snapshot)) is Snapshot


def test_an_unknown_word_deep_inside_is_handed_on():
    order = snapshot()
    order["items"][0]["profiles"][0]["lifecycleStatus"] = "SUSPENDED"
    order["items"][0]["itemStatus"] = "PAUSED"
    read = decode(raw(order), Snapshot)
    assert isinstance(read, Snapshot)
    assert (read.items[0].item_status, read.items[0].profiles[0].lifecycle_status) == ("PAUSED", "SUSPENDED")
    assert read.items[0].profiles[0].smdp_status is msgspec.UNSET
    assert raw(read) != b""


def test_every_answer_can_be_widened():
    for operation in OPERATIONS:
        with pytest.raises(msgspec.ValidationError):
            decode(b"[]", operation.answer)


@pytest.mark.parametrize("spoiled", [{"orderId": "one"}, {"orderNo": None}, {"items": {}}, {"createTime": "noon"}])
def test_what_is_no_word_must_still_fit(spoiled: dict):
    with pytest.raises(msgspec.ValidationError):
        decode(raw(snapshot(**spoiled)), Snapshot)


def test_a_missing_field_is_still_missing():
    with pytest.raises(msgspec.ValidationError, match="pager"):
        decode(b'{"records":[]}', Profiles)


_AT_ONCE = """
import sys, threading
from esim_dealer.decoding import decode
from esim_dealer.wire.snapshot import Snapshot

sys.setswitchinterval(1e-6)
begin, decoded = threading.Barrier(24), []

def first():
    begin.wait()
    decoded.append(decode(sys.argv[1].encode(), Snapshot))

threads = [threading.Thread(target=first) for _ in range(24)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(decoded) == 24
"""


def test_threads_may_decode_their_first_snapshot_at_once():
    """In a process of its own, as it is the first use of a type that msgspec does not guard."""
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-c", _AT_ONCE, raw(snapshot())], capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, "")
