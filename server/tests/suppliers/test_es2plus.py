"""An SM-DP+ as a supplier, over mutual TLS on real sockets: what each fault means, and that nothing is bought twice."""

import asyncio
import socket
import ssl
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from dealer_server.operations.suppliers.configure import load_iccids
from dealer_server.rules.esim import activation_code
from dealer_server.rules.lifecycle.lifecycle import Report
from dealer_server.suppliers import registry
from dealer_server.suppliers.contract import (
    BadEvent,
    Bought,
    Done,
    NotVoided,
    Outcome,
    Pending,
    ProfileReport,
    Purchase,
    Rejected,
    Remote,
    Unit,
    Unknown,
    VoidDone,
    VoidUnit,
)
from dealer_server.suppliers.es2plus import client
from dealer_server.suppliers.es2plus.client import CONFIRM_TAKEN, Es2Plus, Es2PlusSettings
from dealer_server.suppliers.registry import BadSettings
from support.api_client import ApiClient, Service, running_service
from support.patience import PATIENCE
from support.supplier_setup import Source, free_address, fresh, hop, set_up
from support.suppliers.smdp import (
    HOST,
    TWICE,
    Authority,
    Fault,
    Faults,
    Smdp,
    handshakes,
    iccids,
    plan,
    progress,
    running_smdp,
)
from support.suppliers.smdp import Profile as SmdpProfile

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
EID = "89049032123451234512345678901235"
ICCIDS = iccids(20)
ICCID, OTHER = ICCIDS[:2]
FIRST, CONFIRM = "", "CONFIRM"


def purchase(iccid: str = ICCID, step: str = FIRST, matching_id: str = "", sku: str = "TYPE") -> Purchase:
    unit = Unit("u-217325730170001-0-1", 217_325_730_000_001, "EU-1", 1, 1, 1, None, NOW)
    return Purchase(unit, sku, step, iccid, matching_id or f"M-{iccid}")


def void_unit(iccid: str = ICCID) -> VoidUnit:
    return VoidUnit(217_325_730_000_001, "EU-1", iccid, True, NOW, matching_id=f"M-{iccid}")


@asynccontextmanager
async def smdp_supplier(
    folder: Path, *, fault: Faults | Iterable[Fault | None] = (), traits: dict[str, Any] | None = None, **changed: Any
) -> AsyncIterator[tuple[Smdp, Es2Plus]]:
    """An SM-DP+ with 20 profiles, and a supplier that calls it; `changed` are its settings."""
    async with running_smdp(folder, profiles={"TYPE": ICCIDS}, fault=fault, **(traits or {})) as smdp:
        supplier = Es2Plus("es2:test", msgspec.structs.replace(smdp.settings, **changed))
        try:
            yield smdp, supplier
        finally:
            await supplier.close()


async def story(supplier: Remote, one: Purchase, calls: int = 60) -> tuple[Outcome, Purchase]:
    """Asks as the contract says until the purchase is over: what came of it, and how it stands."""
    unknown, outcome = False, None
    for _ in range(calls):
        outcome = await (supplier.probe(one, NOW) if unknown else supplier.allocate(one, NOW))
        unknown = isinstance(outcome, Unknown)
        if isinstance(outcome, Pending):
            one = msgspec.structs.replace(one, step=one.step if outcome.step is None else outcome.step)
        elif not unknown and not (isinstance(outcome, Rejected) and outcome.code == "TEMPORARY"):
            return outcome, one
    raise AssertionError(f"still open after {calls} calls: {outcome}")


async def buy(supplier: Remote, iccid: str = ICCID) -> Done:
    outcome, _ = await story(supplier, purchase(iccid))
    assert isinstance(outcome, Done)
    return outcome


# Buying


async def test_two_calls_buy_the_planned_profile(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        assert await supplier.allocate(purchase(), NOW) == Pending(0, step=CONFIRM)
        done = await supplier.allocate(purchase(step=CONFIRM), NOW)
        assert done == Done(ICCID, f"LPA:1${HOST}$M-{ICCID}")
        assert smdp.functions() == ["downloadOrder", "confirmOrder"] and smdp.book == {ICCID: f"M-{ICCID}"}


async def test_each_activation_code_parses_and_downloads_its_own_profile(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        bought = await asyncio.gather(*(buy(supplier, iccid) for iccid in ICCIDS))
        for done in bought:
            assert activation_code.parse(done.activation_code).matching_id == smdp.book[done.iccid]
        assert {smdp.download(done.activation_code) for done in bought} == set(ICCIDS)


async def test_the_calls_are_those_of_the_standard(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        await buy(supplier)
        order, confirm = smdp.calls
        for call in smdp.calls:
            assert call.headers["X-Admin-Protocol"] == "gsma/rsp/v2.2.2"
            assert call.headers["Content-Type"] == "application/json"
            header = call.body.pop("header")
            assert header["functionRequesterIdentifier"] == "ESIM-DEALER-TEST"
            assert uuid.UUID(header["functionCallIdentifier"])
        assert order.body == {"iccid": ICCID}
        assert confirm.body == {"iccid": ICCID, "releaseFlag": True, "matchingId": f"M-{ICCID}"}


async def test_what_an_sm_dp_plus_wants_otherwise_can_be_set(tmp_path: Path):
    wanted = {"pad_iccid": True, "send_profile_type": True, "protocol": "gsma/rsp/v2.0.0"}
    async with smdp_supplier(tmp_path, traits={"pads": True}, **wanted) as (smdp, supplier):
        assert (await buy(supplier)).iccid == ICCID
        assert {call.body["iccid"] for call in smdp.calls} == {f"{ICCID}F"}
        assert smdp.calls[0].body["profileType"] == "TYPE" and "profileType" not in smdp.calls[1].body
        assert smdp.calls[0].headers["X-Admin-Protocol"] == "gsma/rsp/v2.0.0"


async def test_without_planned_ids_nothing_is_ordered(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        outcome = await supplier.allocate(msgspec.structs.replace(purchase(), planned_iccid=None), NOW)
        assert isinstance(outcome, Rejected) and not smdp.calls


# What a call's failure means


async def rejected(supplier: Es2Plus, one: Purchase | None = None) -> Rejected:
    outcome = await supplier.allocate(one or purchase(), NOW)
    assert isinstance(outcome, Rejected) and "SECRET" not in outcome.message
    return outcome


@pytest.mark.parametrize(
    ("code", "word", "elsewhere"),
    [
        ("8.2.5/3.7", "OUT_OF_STOCK", True), ("8.2.5/3.9", "CONFIG", True), ("1.1/3.9", "CONFIG", True),
        ("1.6/2.2", "BAD_REQUEST", True), ("1.2/4.4", "TEMPORARY", True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("step", [FIRST, CONFIRM])
async def test_a_failure_that_is_understood_rejects(tmp_path: Path, code: str, word: str, elsewhere: bool, step: str):
    async with smdp_supplier(tmp_path, fault=[Fault(code)]) as (smdp, supplier):
        found = await rejected(supplier, purchase(step=step))
        assert (found.code, found.retry_elsewhere) == (word, elsewhere) and code in found.message
        assert not smdp.book and not found.written_off


async def test_a_clash_of_other_ids_rejects_an_order(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[Fault("8.2.6/3.10")]) as (_, supplier):
        found = await rejected(supplier)
        assert (found.code, found.retry_elsewhere, found.written_off) == ("CONFLICT", False, False)


# Calls that are carried out twice: we see the second answer only


async def test_a_doubled_order_goes_on_with_its_own_reservation(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[TWICE]) as (smdp, supplier):
        assert await supplier.allocate(purchase(), NOW) == Pending(0, step=CONFIRM_TAKEN)
        outcome, _ = await story(supplier, purchase(step=CONFIRM_TAKEN))
        assert outcome == Done(ICCID, f"LPA:1${HOST}$M-{ICCID}") and smdp.profiles[ICCID].confirmations == 1


@pytest.mark.parametrize("doubled", [[None, TWICE], [TWICE, TWICE]])
async def test_a_doubled_confirmation_is_proven_by_the_profile_status(tmp_path: Path, doubled: list[Fault | None]):
    async with smdp_supplier(tmp_path, fault=doubled, traits={"profile_status": True}) as (smdp, supplier):
        done = await buy(supplier)
        assert smdp.functions() == ["downloadOrder", "confirmOrder", "getProfileStatus"]
        assert smdp.download(done.activation_code) == ICCID


async def test_without_a_profile_status_a_doubled_confirmation_is_burnt_and_written_off(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, TWICE, TWICE]) as (smdp, supplier):
        outcome, _ = await story(supplier, purchase())
        assert isinstance(outcome, Rejected)
        assert (outcome.code, outcome.retry_elsewhere, outcome.written_off) == ("CONFLICT", False, True)
        assert smdp.functions() == ["downloadOrder", "confirmOrder", "cancelOrder"]
        assert not smdp.book and smdp.profiles[ICCID].state == "UNAVAILABLE"


@pytest.mark.parametrize("lost", [False, True])
async def test_our_matching_id_in_use_proves_that_we_have_confirmed(tmp_path: Path, lost: bool):
    """Nobody else has it: it is random, and went to this SM-DP+ only with this ICCID."""
    twice = [Fault("RESET", True), Fault("8.2.6/3.3")] if lost else [Fault("8.2.6/3.3", True)]
    async with smdp_supplier(tmp_path, fault=[None, *twice]) as (smdp, supplier):
        done = await buy(supplier)
        assert smdp.book == {done.iccid: f"M-{ICCID}"}


async def test_what_somebody_else_may_have_sold_is_left_alone_and_written_off(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        await buy(supplier)
        outcome, _ = await story(supplier, purchase(ICCID, matching_id="MINE"))
        assert isinstance(outcome, Rejected) and (outcome.code, outcome.written_off) == ("CONFLICT", True)
        assert smdp.book == {ICCID: f"M-{ICCID}"} and "cancelOrder" not in smdp.functions()


async def test_what_somebody_else_has_sold_surely_is_not_written_off(tmp_path: Path):
    async with smdp_supplier(tmp_path, traits={"profile_status": True}) as (smdp, supplier):
        await buy(supplier)
        outcome, _ = await story(supplier, purchase(ICCID, matching_id="MINE"))
        assert isinstance(outcome, Rejected) and (outcome.code, outcome.written_off) == ("CONFLICT", False)
        assert smdp.book == {ICCID: f"M-{ICCID}"} and "cancelOrder" not in smdp.functions()


async def test_a_profile_status_that_is_refused_proves_nothing(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, TWICE, Fault("1.2/4.4")], traits={"profile_status": True}) as (
        smdp,
        supplier,
    ):
        assert isinstance(await buy(supplier), Done) and "cancelOrder" not in smdp.functions()


async def test_the_sm_dp_plus_itself_refuses_what_it_does_not_know_or_gave_away(tmp_path: Path):
    async with smdp_supplier(tmp_path, send_profile_type=True) as (smdp, supplier):
        smdp.load("OTHER", [unknown_type := iccids(1, first=500)[0]])
        assert (await rejected(supplier, purchase(iccids(1, first=900)[0]))).code == "CONFIG"
        assert (await rejected(supplier, purchase(sku="NONE"))).code == "CONFIG"
        assert (await rejected(supplier, purchase(unknown_type))).code == "CONFIG"


async def test_a_requester_it_does_not_know_is_a_matter_for_the_operator(tmp_path: Path):
    async with smdp_supplier(tmp_path, requester_id="SOMEBODY") as (_, supplier):
        assert (await rejected(supplier)).code == "CONFIG"


UNCLEAR = ["RESET", "HANG", "HTTP 500", "HTML", "HALF", "EXPIRED", "1.2/4.2", "1.6/5.3", "1.6/5.4", "7.7/7.7"]


@pytest.mark.parametrize("how", UNCLEAR)
@pytest.mark.parametrize("executed", [False, True])
@pytest.mark.parametrize("step", [FIRST, CONFIRM])
async def test_whatever_else_comes_back_means_that_nobody_knows(tmp_path: Path, how: str, executed: bool, step: str):
    async with smdp_supplier(tmp_path, fault=[Fault(how, executed)], read_seconds=0.3) as (_, supplier):
        outcome = await supplier.allocate(purchase(step=step), NOW)
        assert isinstance(outcome, Unknown) and outcome.reason and "SECRET" not in outcome.reason


async def test_an_answer_that_is_too_long_is_not_read(tmp_path: Path):
    good = msgspec.json.encode({"header": {"functionExecutionStatus": {"status": "Executed-Success"}}})

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b" " * length + good)

    async with smdp_supplier(tmp_path) as (smdp, supplier):
        smdp.serve_instead = answer
        length = client.MOST_ANSWER_BYTES - len(good)
        assert await supplier.allocate(purchase(), NOW) == Pending(0, step=CONFIRM)
        length += 1
        assert isinstance(await supplier.allocate(purchase(), NOW), Unknown)


async def test_another_iccid_than_the_planned_one_is_not_taken(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        smdp.answers_iccid = OTHER
        assert (await rejected(supplier)).code == "CONFIG"


# Nothing was sent


async def test_where_nobody_listens_nothing_was_sent(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        async with smdp_supplier(tmp_path, base_url=f"https://127.0.0.1:{free.getsockname()[1]}") as (_, supplier):
            assert (await rejected(supplier)).code == "TEMPORARY"
            assert isinstance(await supplier.probe(purchase(), NOW), Unknown)
            assert not (await supplier.health()).up


async def test_where_no_name_resolves_nothing_was_sent(tmp_path: Path):
    async with smdp_supplier(tmp_path, base_url="https://smdp.invalid") as (_, supplier):
        assert (await rejected(supplier)).code == "TEMPORARY"


async def test_where_the_handshake_never_ends_nothing_was_sent(tmp_path: Path):
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with silent:
        address = f"https://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        async with smdp_supplier(tmp_path, base_url=address, connect_seconds=0.2) as (_, supplier):
            assert (await rejected(supplier)).code == "TEMPORARY"


@pytest.mark.parametrize("shown", ["stranger", "expired"])
async def test_to_a_server_that_does_not_prove_itself_nothing_is_sent(tmp_path: Path, shown: str):
    stranger = Authority("another CA")
    async with smdp_supplier(tmp_path) as (smdp, _):
        own = smdp.authority.issue("smdp", expired=True)
        async with running_smdp(
            tmp_path, profiles={}, server=own if shown == "expired" else stranger.issue("smdp")
        ) as bad:
            wrong = Es2Plus("es2:test", msgspec.structs.replace(smdp.settings, base_url=bad.settings.base_url))
            found = await rejected(wrong)
            assert (found.code, found.retry_elsewhere) == ("CONFIG", True) and "certificate" in found.message
            assert isinstance(await wrong.probe(purchase(), NOW), Unknown) and not bad.calls
            assert not (await wrong.health()).up
            await wrong.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("shown", "alert"),
    [("stranger", "UNKNOWN_CA"), ("expired", "CERTIFICATE_EXPIRED"), ("none", "CERTIFICATE_REQUIRED")],
)
async def test_who_refuses_our_certificate_has_carried_out_nothing(
    tmp_path: Path, shown: str, alert: str, version: ssl.TLSVersion
):
    async with smdp_supplier(tmp_path) as (smdp, _):
        ours = {
            "stranger": Authority("another CA").issue("dealer"),
            "expired": smdp.authority.issue("dealer", expired=True),
            "none": smdp.authority.issue(
                "dealer", curve=ec.SECP256K1()
            ),  # TLS knows no signature for it: it stays away
        }[shown]
        async with handshakes(tmp_path, smdp.authority, version) as address:
            changed = {"base_url": address, "cert": ours.cert, "key": ours.key}
            supplier = Es2Plus("es2:test", msgspec.structs.replace(smdp.settings, **changed))
            found = await rejected(supplier)
            assert (found.code, found.retry_elsewhere) == ("CONFIG", True)
            assert alert in found.message or version == ssl.TLSVersion.TLSv1_2
            assert isinstance(await supplier.probe(purchase(), NOW), Unknown)
            assert not (await supplier.health()).up
            await supplier.close()


async def test_whoever_has_no_certificate_reaches_no_function(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        stranger = Authority("another CA").issue("dealer")
        wrong = Es2Plus("es2:test", msgspec.structs.replace(smdp.settings, cert=stranger.cert, key=stranger.key))
        assert not isinstance(await wrong.allocate(purchase(), NOW), Done | Pending)
        assert not (await wrong.health()).up and not smdp.calls
        await wrong.close()
        assert (await supplier.health()).up


# After an answer was lost


LOST = [Fault(how, executed) for how in ("RESET", "HTML", "EXPIRED") for executed in (False, True)]


@pytest.mark.parametrize("fault", LOST)
async def test_a_lost_download_order_is_repeated_for_the_same_iccid(tmp_path: Path, fault: Fault):
    async with smdp_supplier(tmp_path, fault=[fault]) as (smdp, supplier):
        await buy(supplier)
        assert smdp.functions() == ["downloadOrder", "downloadOrder", "confirmOrder"]
        assert smdp.profiles[ICCID].orders == 1 and smdp.book == {ICCID: f"M-{ICCID}"}


async def test_a_lost_confirmation_that_was_not_carried_out_is_made_good(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, Fault("RESET")]) as (smdp, supplier):
        await buy(supplier)
        assert smdp.functions() == ["downloadOrder", "confirmOrder", "confirmOrder"]


async def test_an_sm_dp_plus_that_repeats_its_answer_makes_it_easy(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, Fault("RESET", True)], traits={"retries": True}) as (
        smdp,
        supplier,
    ):
        await buy(supplier)
        assert smdp.profiles[ICCID].confirmations == 1 and len(smdp.calls) == 3


async def test_a_lost_confirmation_is_proven_by_the_profile_status(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, Fault("RESET", True)], traits={"profile_status": True}) as (
        smdp,
        supplier,
    ):
        done = await buy(supplier)
        assert smdp.functions() == ["downloadOrder", "confirmOrder", "confirmOrder", "getProfileStatus"]
        assert smdp.download(done.activation_code) == ICCID


async def test_a_lost_profile_status_leaves_it_open(tmp_path: Path):
    faults = [None, Fault("RESET", True), None, Fault("HTML")]
    async with smdp_supplier(tmp_path, fault=faults, traits={"profile_status": True}) as (smdp, supplier):
        await buy(supplier)
        assert smdp.functions()[2:] == ["confirmOrder", "getProfileStatus"] * 2


async def test_a_matching_id_of_somebody_else_is_a_clash_and_his_profile_is_left_alone(tmp_path: Path):
    async with smdp_supplier(tmp_path, traits={"profile_status": True}) as (smdp, supplier):
        await buy(supplier)
        outcome = await supplier.probe(purchase(ICCID, CONFIRM, matching_id="MINE"), NOW)
        assert isinstance(outcome, Rejected) and outcome.code == "CONFLICT" and not outcome.retry_elsewhere
        assert smdp.book == {ICCID: f"M-{ICCID}"}


async def test_a_taken_matching_id_on_an_unconfirmed_profile_burns_it(tmp_path: Path):
    async with smdp_supplier(tmp_path, traits={"profile_status": True}) as (smdp, supplier):
        await buy(supplier, OTHER)
        assert await supplier.allocate(purchase(), NOW) == Pending(0, step=CONFIRM)
        clash = purchase(ICCID, CONFIRM, matching_id=f"M-{OTHER}")
        assert await supplier.probe(clash, NOW) == Pending(0, step="CANCEL 8.2.6/3.3")
        outcome, _ = await story(supplier, msgspec.structs.replace(clash, step="CANCEL 8.2.6/3.3"))
        assert isinstance(outcome, Rejected) and outcome.code == "CONFLICT"
        assert smdp.profiles[ICCID].state == "UNAVAILABLE" and list(smdp.book) == [OTHER]


async def test_without_a_profile_status_a_lost_confirmation_burns_the_profile(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, Fault("RESET", True)]) as (smdp, supplier):
        outcome, _ = await story(supplier, purchase())
        assert isinstance(outcome, Rejected)
        assert (outcome.code, outcome.retry_elsewhere) == ("CONFLICT", False)
        assert smdp.functions() == ["downloadOrder", "confirmOrder", "confirmOrder", "cancelOrder"]
        assert not smdp.book and smdp.profiles[ICCID].state == "UNAVAILABLE"


@pytest.mark.parametrize("fault", LOST)
async def test_burning_goes_on_until_it_is_sure(tmp_path: Path, fault: Fault):
    faults = [None, Fault("RESET", True), None, fault, Fault("1.2/4.4")]
    async with smdp_supplier(tmp_path, fault=faults) as (smdp, supplier):
        outcome, _ = await story(supplier, purchase())
        assert isinstance(outcome, Rejected) and outcome.code == "CONFLICT"
        assert smdp.functions()[3:] == ["cancelOrder"] * 3 and smdp.profiles[ICCID].state == "UNAVAILABLE"


async def test_a_repeated_confirmation_refused_for_another_reason_burns_what_the_first_may_have_made(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[None, Fault("RESET", True), Fault("1.1/1.2")]) as (smdp, supplier):
        outcome, one = await story(supplier, purchase())
        assert isinstance(outcome, Rejected) and outcome.written_off and one.step == "CANCEL 1.1/1.2"
        assert "1.1/1.2" in outcome.message
        assert not smdp.book


async def test_a_busy_sm_dp_plus_says_nothing_about_the_lost_call(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[Fault("1.2/4.4")] * 2) as (smdp, supplier):
        assert isinstance(await supplier.probe(purchase(), NOW), Unknown)
        assert isinstance(await supplier.probe(purchase(step=CONFIRM), NOW), Unknown)
        assert not smdp.book


async def test_a_lost_order_for_what_is_unknown_there_is_rejected(tmp_path: Path):
    async with smdp_supplier(tmp_path, fault=[Fault("RESET")]) as (_, supplier):
        outcome, _ = await story(supplier, purchase(iccids(1, first=900)[0]))
        assert isinstance(outcome, Rejected) and outcome.code == "CONFIG"


# Random faults

FAULT = st.one_of(
    st.none(),
    st.builds(Fault, st.sampled_from(["RESET", "HTTP 500", "HTML", "HALF", "EXPIRED", "1.2/4.2"]), st.booleans()),
    st.just(TWICE),
    st.builds(Fault, st.sampled_from(["1.2/4.4", "8.2.5/3.7", "1.1/1.2", "1.6/2.1", "8.9/4.2"]), st.just(False)),
)


@pytest.fixture(
    scope="module", params=[(False, False), (True, False), (False, True)], ids=["plain", "retries", "status"]
)
async def long_lived(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Smdp, Es2Plus]]:
    retries, profile_status = request.param
    with tempfile.TemporaryDirectory() as folder:
        traits = {"retries": retries, "profile_status": profile_status}
        async with smdp_supplier(Path(folder), traits=traits) as (smdp, supplier):
            yield smdp, supplier


@settings(max_examples=100, deadline=None)
@given(faults=st.lists(FAULT, max_size=12), given_away=st.integers(0, 3))
async def test_whatever_goes_wrong_the_book_is_what_we_hold(
    long_lived: tuple[Smdp, Es2Plus], faults: list[Fault | None], given_away: int
):
    smdp, supplier = long_lived
    smdp.profiles.clear()
    smdp.load("TYPE", fresh := iccids(30))
    for iccid in fresh[:given_away]:
        smdp.profiles[iccid] = SmdpProfile("TYPE", "DOWNLOADED", f"THEIRS-{iccid}")  # by somebody else's customer
    left, at_a_time = iter(faults), list[int]()

    def fault(function: str, body: Mapping[str, Any]) -> Fault | None:
        at_a_time.append(len(smdp.book))
        return next(left, None)

    smdp.fault = fault
    outcome, written_off = await _bought_in_the_end(supplier, fresh)
    held = {outcome.iccid: outcome.activation_code} if isinstance(outcome, Done) else {}
    there = {iccid: f"LPA:1${HOST}${one}" for iccid, one in smdp.book.items() if iccid not in written_off}
    assert there == held and max(at_a_time) <= 1 + len(written_off)
    bought = {iccid for iccid, one in smdp.profiles.items() if one.confirmations}
    assert bought <= held.keys() | written_off and not held.keys() & written_off
    assert all(one.orders <= 1 and one.confirmations <= 1 for one in smdp.profiles.values())


async def _bought_in_the_end(supplier: Es2Plus, fresh: list[str]) -> tuple[Outcome, set[str]]:
    """A CONFLICT takes the next ids, as whoever drives a supplier does; and what was written off."""
    written_off = set[str]()
    for iccid in fresh:
        outcome, _ = await story(supplier, purchase(iccid))
        if not (isinstance(outcome, Rejected) and outcome.code == "CONFLICT"):
            return outcome, written_off
        if outcome.written_off:
            written_off.add(iccid)
    raise AssertionError("there are fewer faults than ids")


# Voiding


async def test_a_void_burns_the_profile(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        done = await buy(supplier)
        assert await supplier.void(void_unit(), NOW) == VoidDone()
        assert smdp.profiles[ICCID].state == "UNAVAILABLE"
        assert smdp.calls[-1].body["finalProfileStatusIndicator"] == "Unavailable"
        with pytest.raises(KeyError):
            smdp.download(done.activation_code)


async def test_a_downloaded_profile_is_not_voided(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        smdp.download((await buy(supplier)).activation_code)
        found = await supplier.void(void_unit(), NOW)
        assert isinstance(found, NotVoided) and "8.2.1/3.3" in found.message and "SECRET" not in found.message
        assert smdp.profiles[ICCID].state == "DOWNLOADED"


@pytest.mark.parametrize("fault", LOST)
async def test_a_void_whose_answer_was_lost_is_asked_again(tmp_path: Path, fault: Fault):
    async with smdp_supplier(tmp_path, fault=[None, None, fault]) as (smdp, supplier):
        await buy(supplier)
        assert isinstance(await supplier.void(void_unit(), NOW), Unknown)
        assert await supplier.void(void_unit(), NOW) == VoidDone()
        assert smdp.profiles[ICCID].state == "UNAVAILABLE"


async def test_the_profile_status_tells_a_burnt_profile_from_a_downloaded_one(tmp_path: Path):
    async with smdp_supplier(tmp_path, traits={"profile_status": True}) as (smdp, supplier):
        await buy(supplier)
        assert await supplier.void(void_unit(), NOW) == VoidDone() == await supplier.void(void_unit(), NOW)
        smdp.download((await buy(supplier, OTHER)).activation_code)
        assert isinstance(await supplier.void(void_unit(OTHER), NOW), NotVoided)
        smdp.fault = plan([None, Fault("HTML")])
        assert isinstance(await supplier.void(void_unit(OTHER), NOW), Unknown)


@pytest.mark.parametrize("code", ["1.1/1.2", "1.2/4.4", "1.6/2.1"])
async def test_a_void_refused_for_a_reason_outside_the_profile_is_open(tmp_path: Path, code: str):
    async with smdp_supplier(tmp_path, fault=[None, None, Fault(code)]) as (_, supplier):
        await buy(supplier)
        assert isinstance(await supplier.void(void_unit(), NOW), Unknown)
        assert await supplier.void(void_unit(), NOW) == VoidDone()


async def test_a_void_that_cannot_be_sent_is_open(tmp_path: Path):
    async with smdp_supplier(tmp_path, base_url="https://smdp.invalid") as (_, supplier):
        assert isinstance(await supplier.void(void_unit(), NOW), Unknown)


# Notifications


@asynccontextmanager
async def callback(supplier: Es2Plus) -> AsyncIterator[tuple[str, list[Any]]]:
    """An address that notifications may be sent to, and the events they are read as."""
    events: list[Any] = []

    async def receive(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        events.append(supplier.parse_event(headers, await request.read(), NOW))
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/gsma/rsp2/es2plus/handleDownloadProgressInfo", receive)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/gsma/rsp2/es2plus/handleDownloadProgressInfo", events
    finally:
        await runner.cleanup()


async def test_a_notification_is_a_sighting(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier), callback(supplier) as (url, events):
        assert await smdp.notify(url, f"{ICCID}F", 3, eid=EID) == 204
        [event] = events
        report = Report(datetime(2026, 11, 21, 9, tzinfo=UTC), "DOWNLOAD", eid=EID)
        assert event.reports == (ProfileReport(report, iccid=ICCID),)
        assert (event.kind, event.about) == ("DOWNLOAD", ())


async def test_late_and_doubled_notifications_are_told_apart(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier), callback(supplier) as (url, events):
        for point in (4, 3, 4, 3):
            await smdp.notify(url, ICCID, point)
        assert len({event.key for event in events}) == 2
        assert [event.key for event in events[:2]] == [event.key for event in events[2:]]
        assert [event.kind for event in events[:2]] == ["INSTALLATION", "DOWNLOAD"]


async def test_an_unknown_point_changes_nothing(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier), callback(supplier) as (url, events):
        await smdp.notify(url, ICCID, 100)
        assert (events[0].kind, events[0].reports) == ("UNKNOWN_POINT", ())


@pytest.mark.parametrize(
    ("table", "kind"), [("monogoto", "INSTALLATION"), ("ostelco", "DELETED"), ({"5": "ENABLED"}, "ENABLED")]
)
async def test_the_table_of_the_supplier_decides(tmp_path: Path, table: Any, kind: str):
    async with smdp_supplier(tmp_path, notification_table=table) as (_, supplier):
        assert supplier.parse_event({}, progress(ICCID, 5), NOW).kind == kind


async def test_what_is_no_notification_is_a_bad_event(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (_, supplier):
        for body in (b"", b"{}", progress("12"), b"<html>"):
            with pytest.raises(BadEvent):
                supplier.parse_event({}, body, NOW)


# State and health


async def test_the_profile_status_is_polled_where_there_is_one(tmp_path: Path):
    async with smdp_supplier(tmp_path, traits={"profile_status": True}) as (smdp, supplier):
        assert supplier.caps.polled and supplier.caps.plans_ids
        await buy(supplier, OTHER)
        smdp.download((await buy(supplier)).activation_code, EID)
        bought = [Bought(1, "u-1", "TYPE", iccid) for iccid in (ICCID, OTHER, iccids(1, first=900)[0])]
        at = datetime(2026, 11, 21, 8, tzinfo=UTC)
        assert await supplier.refresh(bought, NOW) == [
            ProfileReport(Report(at, "DOWNLOAD", eid=EID), iccid=ICCID),
            ProfileReport(Report(at, "RELEASED"), iccid=OTHER),
        ]


async def test_many_are_asked_for_in_several_calls_and_a_failed_one_tells_nothing(tmp_path: Path):
    many = iccids(250, first=2_000)
    async with smdp_supplier(tmp_path, fault=[None, Fault("HTML")], traits={"profile_status": True}) as (
        smdp,
        supplier,
    ):
        smdp.load("TYPE", many)
        seen = await supplier.refresh([Bought(1, "u-1", "TYPE", iccid) for iccid in many], NOW)
        assert [len(call.body["iccidList"]) for call in smdp.calls] == [100, 100, 50]
        assert [one.iccid for one in seen] == many[:100] + many[200:]


async def test_an_sm_dp_plus_without_profile_status_is_not_polled(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (_, supplier):
        assert not supplier.caps.polled


async def test_health_is_a_handshake_that_orders_nothing(tmp_path: Path):
    async with smdp_supplier(tmp_path) as (smdp, supplier):
        assert (await supplier.health()).up and not smdp.calls


# In the whole service


class SmdpService(NamedTuple):
    """A service that buys TEST-OK at an SM-DP+, and a dealer."""

    smdp: Smdp
    service: Service
    client: ApiClient
    events: str

    async def order(self, quantity: int) -> str:
        line = {"packageCode": "TEST-OK", "quantity": quantity, "price": "1.80"}
        return (await self.client.order(items=[line], amount=f"{1.8 * quantity:.2f}")).data["orderNo"]

    async def becomes(self, order_no: str, status: str) -> dict[str, Any]:
        """The order's first profile once it has this lifecycleStatus; pauses between questions are cut short."""
        async with asyncio.timeout(PATIENCE):
            while True:
                data = (await self.client.post("/esim/query", {"orderNo": order_no})).data
                profile = data["items"][0]["profiles"][0]
                if profile["lifecycleStatus"] == status:
                    return profile
                async with self.service.database.connection() as connection:
                    await connection.execute("UPDATE purchase SET due_at = now() WHERE state = 'UNKNOWN'")
                await asyncio.sleep(0.02)

    async def delivered(self, order_no: str) -> dict[str, str]:
        """Activation codes by ICCID."""
        await self.becomes(order_no, "DELIVERED")
        [item] = (await self.client.delivered(order_no))["items"]
        return {profile["iccid"]: profile["activationCode"] for profile in item["profiles"]}


@asynccontextmanager
async def running_fixture(
    postgres: str, template: str, folder: Path, fault: Faults | Iterable[Fault | None] = (), **traits: Any
) -> AsyncIterator[SmdpService]:
    async with (
        fresh(postgres, template) as url,
        running_smdp(folder, profiles={"TYPE": ICCIDS}, fault=fault, **traits) as smdp,
    ):
        sold = {"TEST-OK": [hop("es2:test", "TYPE")]}
        setup = await set_up(url, [Source("es2:test", "es2plus", smdp.settings)], sold)
        events = free_address()
        async with running_service(url, supplier_events=events) as service:
            await load_iccids(service.database, "es2:test", "TYPE", ICCIDS, "test")
            async with service.client(await service.tenant(balance="1000", qps=0)) as client:
                path = urlsplit(setup.events["es2:test"]).path
                yield SmdpService(smdp, service, client, f"http://{events}{path}")
            assert await service.audit() == []


@pytest.mark.parametrize("profile_status", [False, True])
async def test_a_dealers_order_is_bought_once_whatever_is_lost(
    postgres: str, template: str, tmp_path: Path, profile_status: bool
):
    faults = [Fault("RESET", True), None, Fault("HTML", True), Fault("HTTP 500"), None, Fault("EXPIRED", True)]
    async with running_fixture(postgres, template, tmp_path, faults, profile_status=profile_status) as fixture:
        codes = await fixture.delivered(await fixture.order(4))
        assert len(codes) == 4
        assert codes == {iccid: f"LPA:1${HOST}${matching_id}" for iccid, matching_id in fixture.smdp.book.items()}


async def test_what_the_phone_does_reaches_the_dealer(postgres: str, template: str, tmp_path: Path):
    async with running_fixture(postgres, template, tmp_path) as fixture:
        order_no = await fixture.order(1)
        [(iccid, code)] = (await fixture.delivered(order_no)).items()
        assert fixture.smdp.download(code) == iccid
        address = f"{fixture.events}/gsma/rsp2/es2plus/handleDownloadProgressInfo"
        assert [await fixture.smdp.notify(address, f"{iccid}F", point) for point in (4, 3, 4, 99)] == [204] * 4
        assert (await fixture.becomes(order_no, "ACTIVATING"))["smdpStatus"] == "INSTALLATION"


async def test_a_refund_burns_the_profile(postgres: str, template: str, tmp_path: Path):
    async with running_fixture(postgres, template, tmp_path) as fixture:
        order_no = await fixture.order(1)
        await fixture.delivered(order_no)
        assert (await fixture.client.post("/esim/refund", {"orderNo": order_no, "reason": "test"})).code == "000000"
        await fixture.becomes(order_no, "CANCELLED")
        assert not fixture.smdp.book and fixture.smdp.functions()[-1] == "cancelOrder"


# Settings


@pytest.fixture(scope="module")
def good() -> Es2PlusSettings:
    authority = Authority("CA")
    mine = authority.issue("dealer")
    return Es2PlusSettings(
        base_url="https://smdp.example.com:8443", requester_id="ACME", smdp_address="rsp.example.com", ca=authority.pem,
        cert=mine.cert, key=mine.key,
    )  # fmt: skip


def test_settings_are_read_from_json(good: Es2PlusSettings):
    assert registry.read("es2plus", msgspec.json.encode(good)) == good
    changed = msgspec.structs.replace(good, notification_table={"3": "DOWNLOAD"}, parallel=64)
    assert registry.read("es2plus", msgspec.json.encode(changed)) == changed
    assert isinstance(registry.make("es2:test", "es2plus", msgspec.json.encode(good)), Es2Plus)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("baseUrl", ["", "http://a.example.com", "a.example.com", "https://", "https://u:p@a.example.com",
                      "https://a.example.com/?q", "https://a.example.com#f", "https://a.example.com:99999"]),
        ("requesterId", ["", "A B", "É", "A" * 129]),
        ("smdpAddress", ["", "rsp", "rsp.example.com:8000", "https://rsp.example.com", "a$b", "127.0.0.1"]),
        ("ca", ["", "/etc/ca.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "É"]),
        ("cert", ["", "/etc/cert.pem", "É"]),
        ("notificationTable", [{"three": "DOWNLOAD"}, {"": "DOWNLOAD"}, {"٣": "DOWNLOAD"}]),
        ("protocol", ["", "gsma/rsp/v2", "gsma/rsp/v2.2.2\n"]),
        ("parallel", [0, -1, 65]),
        ("connectSeconds", [0, -1, 11]), ("readSeconds", [0, 18]),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_in_one_line(good: Es2PlusSettings, field: str, values: list[Any]):
    for value in values:
        with pytest.raises(BadSettings, match=rf"\b{field}\b") as raised:
            registry.read("es2plus", msgspec.json.encode({**msgspec.to_builtins(good), field: value}))
        assert "\n" not in str(raised.value)


def test_a_key_that_is_not_the_certificates_is_named_without_showing_it(good: Es2PlusSettings):
    other = Authority("CA").issue("other")
    with pytest.raises(BadSettings, match="cert and key") as raised:
        registry.read("es2plus", msgspec.json.encode({**msgspec.to_builtins(good), "key": other.key}))
    assert "PRIVATE" not in str(raised.value)


def test_what_the_operator_must_set_has_no_default(good: Es2PlusSettings):
    whole = msgspec.to_builtins(good)
    for name in ("baseUrl", "requesterId", "smdpAddress", "ca", "cert", "key"):
        with pytest.raises(BadSettings, match=name):
            registry.read("es2plus", msgspec.json.encode({key: value for key, value in whole.items() if key != name}))
    with pytest.raises(BadSettings, match="confirmationCode"):
        registry.read("es2plus", msgspec.json.encode({**whole, "confirmationCode": "1"}))


def test_the_key_is_not_in_what_a_log_would_show(good: Es2PlusSettings):
    assert "PRIVATE" not in repr(good) and "PRIVATE" not in f"{good}" and good.key not in repr({"settings": good})
