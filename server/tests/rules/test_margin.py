"""An upstream's package list becomes packages of ours at a margin; what makes no sense is left out, with the reason."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.rules.catalogue.margin import (
    Change,
    Margin,
    Offer,
    below_floor,
    preview,
    price_of,
    read_percent,
    rechargeable,
    share,
)
from dealer_server.rules.catalogue.package import GB, Network, Operator, faults
from dealer_server.rules.money import money, percent
from dealer_server.rules.recharges.recharge import fits
from support.rt_family import package

RULE = Margin(basis_points=2_000, minimum=5_000, prefix="EA-")


def seen(*listed: Any, existing: tuple[Offer, ...] = (), rule: Margin = RULE) -> list[Change]:
    return preview(listed, rule, existing, "rt:ea")


def added(**more: Any) -> Offer:
    (change,) = seen(package("JC016", **more))
    assert change.kind == "ADDED" and change.offer is not None, change.why
    return change.offer


def left_out(**more: Any) -> tuple[str, ...]:
    (change,) = seen(package("JC016", **more))
    assert change.kind == "LEFT_OUT" and change.offer is None
    return change.why


def test_a_package_of_theirs_becomes_one_of_ours():
    offer = added()
    ours = offer.package
    assert (offer.sku, offer.cost) == ("JC016", 18_000)
    assert (ours.package_code, ours.slug, ours.package_name) == ("EA-JC016", "ea-jc016", "Japan 1GB 7Days")
    assert (ours.location_type, ours.location_code, ours.location_name) == ("COUNTRY", "JP", "Japan")
    assert (ours.data_type, ours.data_bytes, ours.duration, ours.supplier) == ("TOTAL", GB, 7, "rt:ea")
    assert (ours.price, ours.retail_price, ours.currency) == (23_000, 36_000, "USD")
    assert ours.networks == (Network("JP", (Operator("SoftBank", "5G"),)),)
    assert not list(faults(ours))


@pytest.mark.parametrize(
    ("cost", "basis_points", "minimum", "currency", "price"),
    [
        (18_000, 0, 0, "USD", 18_000),
        (18_000, 2_000, 0, "USD", 21_600),
        (18_000, 2_000, 5_000, "USD", 23_000),
        (18_001, 0, 0, "USD", 18_100),  # a hundredth of a cent costs a cent
        (101, 1, 0, "USD", 200),
        (18_000, 1, 0, "JPY", 20_000),
        (18_000, 1, 0, "KWD", 18_010),
    ],
)
def test_prices_are_rounded_up_and_never_below_cost(
    cost: int, basis_points: int, minimum: int, currency: str, price: int
):
    assert price_of(cost, Margin(basis_points, minimum), currency) == price


@given(
    st.integers(1, 10**10), st.integers(0, 10**6), st.integers(0, 10**7), st.sampled_from(["USD", "JPY", "KWD", "CLF"])
)
def test_whatever_the_rule_the_margin_is_kept_and_nothing_more_is_added(
    cost: int, basis_points: int, minimum: int, currency: str
):
    price, step = price_of(cost, Margin(basis_points, minimum), currency), money.unit(currency)
    assert price % step == 0 and price >= cost + minimum
    assert price * 10_000 >= cost * (10_000 + basis_points)
    below = price - step
    assert below < cost + minimum or below * 10_000 < cost * (10_000 + basis_points)


@pytest.mark.parametrize(
    ("number", "data_type", "data_bytes"),
    [(2, "DAILY_REDUCED", GB), (3, "DAILY_CUTOFF", GB), (4, "DAILY_UNLIMITED", None)],
)
def test_packages_by_the_day_are_sold_by_the_day(number: int, data_type: str, data_bytes: int | None):
    ours = added(dataType=number, duration=1, fupPolicy="384 Kbps").package
    assert (ours.data_type, ours.data_bytes, ours.duration, ours.max_period_num) == (data_type, data_bytes, 1, 30)
    assert ours.fup_speed == (None if number == 3 else "384 Kbps")


def test_numbers_may_be_written_as_text():
    assert added(dataType="1", price="18000", volume="1073741824").package.data_bytes == GB


def test_several_countries_are_a_region_by_its_code():
    ours = added(location="JP, KR,JP", slug="AS-2_1_7").package
    assert (ours.location_type, ours.location_code, ours.locations) == ("REGION", "AS-2", ("JP", "KR"))
    assert added(location="JP,US", slug="GL-2_1_7").package.location_type == "GLOBAL"


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"location": "JP,XX", "slug": "AS-2_1_7"}, "locations"),
        ({"location": ""}, "locations"),
        ({"name": ""}, "package_name"),
        ({"name": "x\x00y"}, "package_name"),
        ({"name": "N" * 201}, "package_name"),
        ({"description": "\u202e" * 3_000}, "description"),
        ({"volume": None}, "data_bytes"),
        ({"volume": -1}, "data_bytes"),
        ({"duration": 0}, "duration"),
        ({"durationUnit": "MONTH"}, "duration_unit"),
        ({"dataType": 2, "duration": 1}, "fup_speed"),
        ({"dataType": 3, "duration": 7}, "duration"),
        ({"packageCode": "bad code"}, "package_code"),
        ({"speed": "<script>"}, "speed"),
        ({"price": 0}, "not a package"),
        ({"price": -5}, "not a package"),
        ({"price": "1.80"}, "not a package"),
        ({"dataType": 9}, "not a package"),
        ({"name": None}, "not a package"),
        ({"currencyCode": "XXX"}, "currencyCode"),
        ({"packageCode": "TOPUP_JC016"}, "a top-up"),
    ],
)
def test_what_makes_no_sense_is_left_out_and_it_is_said_why(more: dict[str, Any], field: str):
    assert any(reason.startswith(field) for reason in left_out(**more))


def test_one_faulty_package_spoils_no_other():
    kinds = [change.kind for change in seen(package("A", name=""), {}, package("B"), package("B"))]
    assert kinds == ["LEFT_OUT", "LEFT_OUT", "ADDED", "LEFT_OUT"]


def test_networks_of_unknown_places_are_not_named():
    networks = [
        {"locationName": "Atlantis", "operatorList": [{"operatorName": "Sea", "networkType": "4G"}]},
        {"locationName": "Elsewhere", "locationCode": "JP",
         "operatorList": [{"operatorName": "KDDI", "networkType": "3G/4G"}]},
    ]  # fmt: skip
    assert added(locationNetworkList=networks).package.networks == (Network("JP", (Operator("KDDI", "4G"),)),)


def test_the_same_list_twice_changes_nothing():
    assert seen(package("JC016"), existing=(added(),)) == []


def test_a_new_cost_is_told_with_the_old_and_the_new_price():
    (change,) = seen(package("JC016", price=36_000), existing=(added(),))
    assert (change.kind, change.old_price, change.new_price) == ("CHANGED", 23_000, 43_200)
    assert (change.old_cost, change.new_cost) == (18_000, 36_000)


def test_what_an_operator_wrote_stays():
    before = added()
    ours = msgspec.structs.replace(before.package, package_name="Nippon", slug="nippon", status="OFF_SALE")
    before = msgspec.structs.replace(before, package=ours)
    (change,) = seen(package("JC016", name="New name", price=36_000), existing=(before,))
    assert change.offer is not None
    now = change.offer.package
    assert (now.package_name, now.slug, now.status, now.price) == ("Nippon", "nippon", "OFF_SALE", 43_200)


def test_what_they_sell_no_longer_goes_off_sale_once():
    (change,) = seen(existing=(added(),))
    assert change.kind == "GONE" and change.offer is not None
    assert (change.offer.package.status, change.old_price, change.new_price) == ("OFF_SALE", 23_000, None)
    assert seen(existing=(change.offer,)) == []


def test_what_is_left_out_today_is_not_gone():
    (change,) = seen(package("JC016", volume=None), existing=(added(),))
    assert (change.kind, change.offer, change.old_price) == ("LEFT_OUT", None, 23_000)


def test_two_packages_never_share_an_address():
    first, second = seen(package("JC.016"), package("JC-016"))
    assert (first.kind, second.kind) == ("ADDED", "LEFT_OUT") and "ea-jc-016" in second.why[0]
    (third,) = seen(package("JC016"), package("jc016"), existing=(added(),))
    assert (third.kind, third.sku) == ("LEFT_OUT", "jc016")


@given(
    st.lists(
        st.dictionaries(st.sampled_from([*package("X"), "other"]), st.none() | st.integers() | st.text(), max_size=8)
    )
)
def test_no_list_makes_it_raise(listed: list[dict[str, Any]]):
    assert all(change.kind in ("ADDED", "LEFT_OUT") for change in seen(*listed))


def test_what_esims_of_a_package_are_recharged_with_is_a_package_of_its_own():
    base, other, plain = package("JC016", supportTopUpType=2), package("JC017", supportTopUpType="3"), package("JC018")
    for one in (other, plain):
        one["slug"] = one["packageCode"]
    assert rechargeable([base, other, plain]) == ["JC016", "JC017"]
    top_up = package("TOPUP_JC016", price=12_000)
    recharges = {"JC016": [top_up], "JC017": [top_up]}
    changes = preview([base, other, plain], RULE, (), "rt:ea", recharges)
    ours = {change.sku: change.offer.package for change in changes if change.offer is not None}
    assert [(one.type, one.top_up_support) for one in ours.values()] == [
        ("BASE", True),
        ("BASE", True),
        ("BASE", False),
        ("TOPUP", False),
    ]
    added = ours["TOPUP_JC016"]
    assert (added.package_code, added.top_up_for) == ("EA-TOPUP_JC016", ("EA-JC016", "EA-JC017"))
    assert [fits(added, ours[sku]) for sku in ("JC016", "JC017", "JC018")] == [True, True, False]
    existing = tuple(change.offer for change in changes if change.offer is not None)
    assert preview([base, other, plain], RULE, existing, "rt:ea", recharges) == []
    gone = preview([base, other, plain], RULE, existing, "rt:ea", {"JC016": [], "JC017": []})
    assert [(change.kind, change.sku) for change in gone] == [("GONE", "TOPUP_JC016")]


@pytest.mark.parametrize(
    ("price", "cost", "floor", "bought"),
    [
        (18_000, 18_000, 0, True),
        (18_000, 18_001, 0, False),
        (18_000, 16_200, 1_000, True),
        (18_000, 16_201, 1_000, False),
        (18_000, 0, 10_000, True),
        (0, 0, 5_000, True),
        (0, 1, 0, False),
    ],
)
def test_a_purchase_leaves_the_floor(price: int, cost: int, floor: int, bought: bool):
    assert (below_floor(price, cost, "USD", floor) is None) == bought


def test_why_a_supplier_is_skipped_names_cost_price_and_floor():
    assert below_floor(18_000, 16_201, "USD", 1_250) == (
        "the cost 1.6201 USD leaves 9.99 % of the price 1.80 USD; the margin floor is 12.5 %"
    )
    assert (share(18_000, 20_000), share(0, 1)) == ("−11.11 %", "nothing")


def test_percents_are_read_as_they_are_written():
    for text, basis_points in (("0", 0), ("12.5", 1_250), ("100", 10_000), ("0.01", 1)):
        assert read_percent(text) == basis_points and percent.number(basis_points) == text
    for text in ("", "-1", "100.01", "1e1", "12,5", "٣", "1.005"):
        with pytest.raises(ValueError, match="must be percent from 0 to 100"):
            read_percent(text)
