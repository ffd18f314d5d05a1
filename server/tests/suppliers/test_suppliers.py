"""Suppliers: the simulated network gives each unit one eSIM for ever, and plays the scripted packages."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server.dev import catalogue
from dealer_server.rules.catalogue.package import GB
from dealer_server.rules.esim import activation_code, iccid
from dealer_server.rules.orders import identity
from dealer_server.suppliers import registry
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.builtin.stock import Stock
from dealer_server.suppliers.chain.client import ChainSettings
from dealer_server.suppliers.contract import Builtin, Done, FromStock, Outcome, Pending, Rejected, Unit
from dealer_server.suppliers.rt.upstream import RtSettings

SEED = bytes(range(32))
PAID = datetime(2026, 11, 20, 8, 15, 30, 400_000, tzinfo=UTC)
PROFILE = 217_325_730_000_001
SCRIPTED = [one.package_code for one in catalogue.catalogue("test") if one.package_code.startswith("TEST-")]
RECHARGES = [code for code in SCRIPTED if code.startswith("TEST-TOPUP-")]


def unit(package: str = "TEST-OK", position: int = 1, quantity: int = 1, profile_id: int = PROFILE) -> Unit:
    key = f"u-217325730170001-0-{position}"
    return Unit(key, profile_id + position - 1, package, position, quantity, 1, GB, PAID)


async def answer(of: Unit, seconds: float = 0, supplier: Builtin | None = None) -> Outcome:
    return await (supplier or Simulated(SEED)).allocate(of, PAID + timedelta(seconds=seconds))


async def codes(of: Unit, seed: bytes = SEED) -> Done:
    outcome = await answer(of, supplier=Simulated(seed))
    assert isinstance(outcome, Done)
    return outcome


async def test_a_unit_gets_the_same_esim_however_often_and_whenever_it_is_asked_for():
    first = await codes(unit())
    assert await answer(unit(), 86_400) == first
    assert await answer(unit(), supplier=Simulated(SEED, speed=100)) == first


def test_what_the_registry_says_of_a_kind_its_suppliers_say_too():
    settings = {
        "es2plus": None,
        "rt_upstream": RtSettings("http://127.0.0.1", "code", "secret"),
        "chain": ChainSettings("http://127.0.0.1", "ak_test_1", "sk_test_0001"),
    }
    for name, kind in registry.KINDS.items():
        if (given := settings[name]) is not None:
            made = kind.make(name, given).caps
            assert (made.suspend, made.recharges) == (kind.caps.suspend, kind.caps.recharges), name
    builtin = {"simulated": Simulated(SEED).caps, "stock": Stock.caps}
    for name, caps in builtin.items():
        known = registry.caps_of(name)
        assert (caps.suspend, caps.recharges, caps.sms) == (known.suspend, known.recharges, known.sms), name
    kinds = [*registry.KINDS, *builtin, "of a later release"]
    assert [name for name in kinds if registry.caps_of(name).recharges] == ["rt_upstream", "chain", "simulated"]
    assert [name for name in kinds if registry.caps_of(name).suspend] == ["rt_upstream", "chain", "simulated"]


async def test_codes_are_what_a_phone_takes():
    found = await codes(unit())
    assert re.fullmatch(r"89000[0-9]{15}", found.iccid) and iccid.is_luhn(found.iccid)
    code = activation_code.parse(found.activation_code)
    assert code.smdp_address == "rsp.sandbox.example"
    assert re.fullmatch(r"[0-9A-Z-]{26}", code.matching_id)
    assert (found.esim_status, found.smdp_status) == ("GOT_RESOURCE", "RELEASED")


async def test_whoever_lacks_the_seed_cannot_tell_the_codes():
    mine, theirs = await codes(unit()), await codes(unit(), bytes(32))
    assert mine.iccid != theirs.iccid and mine.activation_code != theirs.activation_code


async def test_units_of_one_order_have_codes_of_their_own():
    found = [await codes(unit(position=n, quantity=100)) for n in range(1, 101)]
    assert len({one.iccid for one in found}) == len({one.activation_code for one in found}) == 100


YEAR_2051 = identity.first_id_at(int(datetime(2051, 1, 1, tzinfo=UTC).timestamp()))
PROFILES = st.tuples(st.integers(0, YEAR_2051 // identity.SEQUENCE), st.integers(0, 99_999)).map(
    lambda pair: pair[0] * identity.SEQUENCE + pair[1]
)


@given(st.sets(PROFILES, min_size=2, max_size=50), st.binary(min_size=16, max_size=40))
async def test_no_two_profiles_of_a_deployment_share_an_iccid_until_2051(profiles: set[int], seed: bytes):
    found = {(await codes(unit(profile_id=one), seed)).iccid for one in profiles}
    assert len(found) == len(profiles)
    assert all(iccid.parse(one) == one and iccid.is_luhn(one) for one in found)


async def test_profiles_of_the_same_moment_in_other_years_share_no_iccid():
    """What a shorter number would do: it repeats after so many seconds."""
    moments = [PROFILE + seconds * identity.SEQUENCE for seconds in (0, 10**5, 10**6, 10**7, 10**8, 5 * 10**8)]
    assert len({(await codes(unit(profile_id=one))).iccid for one in moments}) == len(moments)


@pytest.mark.parametrize(
    "package", [*sorted(set(SCRIPTED) - {"TEST-DELAY", "TEST-PARTIAL", "TEST-FAIL"} - set(RECHARGES)), "FR-1GB-7D", "X"]
)
async def test_other_packages_are_delivered_at_once(package: str):
    assert isinstance(await answer(unit(package)), Done)


@pytest.mark.parametrize(
    ("seconds", "left"), [(-1, 6), (0, 5), (1.5, 3.5), (4.999, 0.001), (5, None), (5.001, None), (1e6, None)]
)
async def test_delay_is_delivered_five_seconds_after_payment(seconds: float, left: float | None):
    outcome = await answer(unit("TEST-DELAY"), seconds)
    if left is None:
        assert isinstance(outcome, Done)
    else:
        assert isinstance(outcome, Pending) and outcome.poll_after_seconds == pytest.approx(left)


@pytest.mark.parametrize(("quantity", "at_once"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (100, 50)])
async def test_partial_gives_the_first_half_at_once_and_the_rest_after_ten_seconds(quantity: int, at_once: int):
    units = [unit("TEST-PARTIAL", position, quantity) for position in range(1, quantity + 1)]
    assert [isinstance(await answer(one), Done) for one in units] == [n < at_once for n in range(quantity)]
    assert all([isinstance(await answer(one, 10), Done) for one in units])
    assert all([await answer(one, 9) == Pending(1) for one in units[at_once:]])


async def test_fail_is_rejected_for_good():
    outcome = await answer(unit("TEST-FAIL"), 1e6)
    assert isinstance(outcome, Rejected)
    assert (outcome.code, outcome.retry_elsewhere) == ("NOT_ALLOWED", False)


async def test_speed_divides_the_delays():
    fast = Simulated(SEED, speed=100)
    early = await answer(unit("TEST-DELAY"), 0.04, fast)
    assert isinstance(early, Pending) and early.poll_after_seconds == pytest.approx(0.01)
    assert isinstance(await answer(unit("TEST-DELAY"), 0.05, fast), Done)
    assert isinstance(await answer(unit("TEST-PARTIAL", 2, 2), 0.1, fast), Done)


async def test_stock_sends_to_the_shelf_and_never_knows_more():
    assert await answer(unit("DEMO-STOCK"), supplier=Stock()) == FromStock()
    assert Stock().code == "stock"
