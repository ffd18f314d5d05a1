"""changeHints against the cases in vectors/, which other implementations may use too."""

import json
from typing import Any, get_args

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import replace

from dealer_server.rules.webhooks.change_hints import change_hints
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import ChangeHint
from support import paths

VECTORS = json.loads((paths.VECTORS / "change_hints.json").read_text())
# They go with the events of their names; they are no differences of two snapshots.
ELSEWHERE = {"ORDER_PAID", "REFUND_COMPLETED"}


def snapshot(name: str | None) -> Snapshot | None:
    return None if name is None else msgspec.convert(VECTORS["snapshots"][name], Snapshot)


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_hints_match_the_vectors(case: dict[str, Any]):
    after = snapshot(case["after"])
    assert after is not None
    assert list(change_hints(snapshot(case["before"]), after)) == case["hints"]


def test_vectors_cover_every_hint():
    shown = {hint for case in VECTORS["cases"] for hint in case["hints"]}
    assert shown == set(get_args(ChangeHint)) - ELSEWHERE


def test_every_snapshot_of_the_vectors_is_used():
    used = {case[end] for case in VECTORS["cases"] for end in ("before", "after")}
    assert used - {None} == set(VECTORS["snapshots"])


@pytest.mark.parametrize("name", VECTORS["snapshots"])
def test_snapshots_that_differ_in_hints_only_are_equal(name: str):
    one = snapshot(name)
    assert one is not None
    hinted = msgspec.structs.replace(one, change_hints=("USAGE_UPDATED",))
    assert change_hints(hinted, one) == ()


def test_a_snapshot_from_before_the_install_page_differs_in_nothing():
    """Otherwise an upgrade would send each dealer a webhook of each order that is touched."""
    example = EVENTS["DELIVERY_UPDATED"].example
    [item] = example.items
    [profile] = item.profiles or ()
    older = replace(example, items=(replace(item, profiles=(replace(profile, install_page_url=UNSET),)),))
    assert change_hints(older, example) == ()
    used = replace(example, items=(replace(item, profiles=(replace(profile, data_usage_bytes=1),)),))
    assert change_hints(older, used) == ("USAGE_UPDATED",)
