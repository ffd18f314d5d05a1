"""Stock: an operator's file is loaded whole or not at all, and each code is handed out once."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dealer_server import store
from dealer_server.db import sealing
from dealer_server.operations.catalogue.load_stock import StockReport, load_stock
from dealer_server.operations.profiles.show_qr import code_of
from dealer_server.rules.catalogue import stock_file
from dealer_server.rules.catalogue.importing import Fault
from support import paths
from support import store_fixture as shops
from support.patience import PATIENCE
from support.store_fixture import StoreFixture, stock_csv

A, B, C, OLD = "8944000000000000001", "8944000000000000019", "8944000000000000027", "8944000000000000035"
HEADER = "iccid,activationCode\n"
GOOD = f"{HEADER}{A},LPA:1$rsp.example.com$AAA\n{B},LPA:1$rsp.example.com$BBB\n"


def read(text: str) -> list[tuple[str, str]]:
    """(iccid, activation code) of a file without faults."""
    file = stock_file.read(text)
    assert file.faults == ()
    return [(one.iccid, one.code.text) for one in file.profiles]


def faults(text: str) -> list[tuple[int, str, str]]:
    return [(fault.line, fault.column, fault.message) for fault in stock_file.read(text).faults]


# Reading


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "\ufeff" + GOOD,
        GOOD.replace("\n", "\r\n"),
        GOOD.replace("\n", "\r\n\r\n") + " , \r\n",
        GOOD.replace(",", " , "),
        GOOD.replace(A, f'"{A}"').replace("LPA:1$rsp.example.com$AAA", '"LPA:1$rsp.example.com$AAA"'),
        GOOD.replace(A, f"{A}F").replace(B, f"{B}f"),
        GOOD.replace("LPA:", ""),
        GOOD.replace("LPA:", "lpa:"),
        f"activationCode,iccid\nLPA:1$rsp.example.com$AAA,{A}\nLPA:1$rsp.example.com$BBB,{B}",
        f"smdpAddress,iccid,matchingId\nrsp.example.com,{A},AAA\nrsp.example.com,{B},BBB",
    ],
)
def test_a_file_is_read_however_programs_write_it(text: str):
    assert read(text) == [(A, "LPA:1$rsp.example.com$AAA"), (B, "LPA:1$rsp.example.com$BBB")]
    assert stock_file.read(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, "", "the file is empty"),
        ("\n \n", 1, "", "the file is empty"),
        (HEADER, 1, "", "no line after the header"),
        ("\n" + HEADER, 2, "", "no line after the header"),
        (GOOD.replace(HEADER, ""), 1, "", "the first line must be the header: iccid,activationCode"),
        (GOOD.replace(",", ";"), 1, "", "separated by semicolons"),
        (GOOD.replace(",", "\t"), 1, "", "separated by tabs"),
        ("activationCode\nLPA:1$a.b$C", 1, "iccid", "required column is missing"),
        (f"iccid\n{A}", 1, "activationCode", "or both smdpAddress and matchingId"),
        (f"iccid,matchingId\n{A},X", 1, "activationCode", "or both smdpAddress and matchingId"),
        (f"iccid,activationCode,matchingId\n{A},LPA:1$a.b$C,C", 1, "matchingId", "without activationCode"),
        (f"iccid,activationCode,pin1\n{A},LPA:1$a.b$C,1", 1, "pin1", "column 3 cannot be used: take it out"),
        (f"iccid,activationCode,Iccid\n{A},LPA:1$a.b$C,1", 1, "Iccid", "did you mean iccid?"),
        (f"iccid,activationCode,iccid\n{A},LPA:1$a.b$C,1", 1, "iccid", "column 3 repeats column 1"),
        (f"{GOOD}{C}", 4, "", "this line has 1 cells, the header has 2"),
        (f"{GOOD}{C},LPA:1$a.b$C,", 4, "", "this line has 3 cells, the header has 2"),
        (f"{GOOD},LPA:1$a.b$C", 4, "iccid", "must be an ICCID of 18 to 20 digits; it is empty"),
        (f"{GOOD}8944,LPA:1$a.b$C", 4, "iccid", "must be an ICCID of 18 to 20 digits, not '8944'"),
        (f"{GOOD}8.944E+18,LPA:1$a.b$C", 4, "iccid", "a spreadsheet program rounded it; format the column as text"),
        (f"{GOOD}{C},", 4, "activationCode", "must have the form LPA:1$host$matchingId"),
        (f"{GOOD}{C},LPA:1$a.b$", 4, "activationCode", "must have a MatchingID"),
        (f"smdpAddress,iccid,matchingId\nrsp,{A},AAA", 2, "matchingId", "must name the host"),
        (f"{GOOD}{A},LPA:1$a.b$C", 4, "iccid", f"{A} is already that of line 2"),
        (f"{GOOD}{A}F,LPA:1$a.b$C", 4, "iccid", f"{A} is already that of line 2"),
        (f"{GOOD}{C},1$RSP.example.com$BBB$1.3", 4, "activationCode", "is already that of line 3"),
        (f'{GOOD}"{C},LPA:1$a.b$C', 4, "", "a quotation mark is never closed; nothing after this line was read"),
        (f"{GOOD}{C},LPA:1$a.b$C\x00", 4, "activationCode", "MatchingID"),
    ],
)
def test_a_fault_names_its_line_and_column(text: str, line: int, column: str, message: str):
    ((found_line, found_column, found),) = faults(text)
    assert (found_line, found_column) == (line, column)
    assert message in found


def test_every_fault_of_a_file_is_named_at_once():
    text = f"{HEADER}1,LPA:1$a.b$C\n{A},nonsense\n\n2,nonsense\n{B},LPA:1$a.b$C\n{B},LPA:1$a.b$C\n"
    assert [(line, column) for line, column, _ in faults(text)] == [
        (2, "iccid"),
        (3, "activationCode"),
        (5, "iccid"),
        (5, "activationCode"),
        (7, "iccid"),
        (7, "activationCode"),
    ]


def test_a_record_over_several_lines_is_named_by_its_first():
    assert faults(f'{HEADER}"{A}\n",LPA:1$a.b$C\nx,LPA:1$a.b$D')[0][0] == 4


def test_no_fault_repeats_an_activation_code():
    secret = "LPA:1$rsp.example.com$SECRET"
    swapped = f"{HEADER}{secret},{A}\n{A},{secret}x y\n{A},{secret}$$7\n{A},LPA:1$SECRET$rsp.example.com\n"
    assert len(faults(swapped)) == 5
    assert not any("SECRET" in message for _, _, message in faults(swapped + f"{secret}\n"))
    assert "an activation code stands here" in faults(swapped)[0][2]


def test_doubtful_profiles_are_warned_of_and_read():
    file = stock_file.read(f"{HEADER}8944000000000000002,LPA:1$a.b$C\n{B},LPA:1$a.b$D$$1")
    assert file.faults == () and len(file.profiles) == 2
    assert [(one.line, one.column) for one in file.warnings] == [(2, "iccid"), (3, "activationCode")]
    assert "check digit" in file.warnings[0].message and "confirmation code" in file.warnings[1].message


def test_the_files_of_the_guide_are_good_ones():
    guide = (paths.DOCS / "guides/stock.md").read_text()
    files = re.findall(r"```csv\n(.*?)```", guide, re.DOTALL)
    assert len(files) == 2
    for text in files:
        file = stock_file.read(text)
        assert file.profiles and not file.faults and not file.warnings


@given(st.text(st.sampled_from(f'iccd,activtoCe"\n\r\t;{A}LPA:1$a.b-F \x00\ufeff') | st.characters()))
def test_whatever_the_text_it_is_read_or_faulted(text: str):
    for start in ("", HEADER, GOOD):
        file = stock_file.read(start + text)
        assert file.profiles or file.faults
        assert [one.iccid for one in file.profiles] == [one.iccid.strip() for one in file.profiles]


# Loading


@pytest.fixture
async def fixture(database_url: str) -> AsyncIterator[StoreFixture]:
    async with shops.opened(database_url) as fixture:
        yield fixture


async def load(fixture: StoreFixture, text: str, package: str = "DEMO-STOCK") -> StockReport:
    return await load_stock(fixture.database, fixture.data_keys, package, text, "ann")


async def stored(fixture: StoreFixture) -> list[str]:
    return [str(row[0]) for row in await fixture.rows("SELECT iccid FROM stock_profile ORDER BY iccid")]


async def test_a_good_file_is_loaded_and_recorded(fixture: StoreFixture):
    assert await load(fixture, GOOD) == StockReport("DEMO-STOCK", 2, 2, (), ())
    assert await load(fixture, f"{HEADER}{C},LPA:1$rsp.example.com$CCC") == StockReport("DEMO-STOCK", 1, 3, (), ())
    assert await stored(fixture) == [A, B, C]
    acts = await fixture.rows(
        "SELECT author, tenant_id, detail FROM audit_log WHERE action = 'stock.load' ORDER BY audit_id"
    )
    assert [(author, tenant, json.loads(str(detail))) for author, tenant, detail in acts] == [
        ("ann", None, {"packageCode": "DEMO-STOCK", "loaded": 2}),
        ("ann", None, {"packageCode": "DEMO-STOCK", "loaded": 1}),
    ]
    assert await fixture.violations() == []


async def test_codes_are_sealed_in_stock(fixture: StoreFixture):
    await load(fixture, GOOD)
    rows = await fixture.rows("SELECT stock_profile::text FROM stock_profile")
    assert not any(part in str(rows) for part in ("LPA", "AAA", b"rsp.example.com$AAA".hex()))


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}{C},nonsense",
        f"{GOOD}{A},LPA:1$rsp.example.com$CCC",
        f"{GOOD}{C},LPA:1$rsp.example.com$OLD",
        f"{GOOD}{OLD},LPA:1$rsp.example.com$CCC",
    ],
)
async def test_a_file_with_a_fault_changes_nothing(fixture: StoreFixture, text: str):
    await load(fixture, f"{HEADER}{OLD},LPA:1$rsp.example.com$OLD")
    report = await load(fixture, text)
    assert (report.loaded, report.free) == (0, None)
    assert [fault.line for fault in report.faults] == [4]
    assert await stored(fixture) == [OLD]
    assert await fixture.rows("SELECT count(*) FROM stock_profile WHERE taken_by IS NULL") == [(1,)]
    assert await fixture.rows("SELECT count(*) FROM audit_log WHERE action = 'stock.load'") == [(1,)]


async def test_what_was_loaded_before_is_named_with_the_faults_of_the_file(fixture: StoreFixture):
    await load(fixture, GOOD)
    report = await load(fixture, f"{HEADER}x,LPA:1$a.b$C\n{A},LPA:1$RSP.example.com$BBB")
    assert report.faults == (
        Fault(2, "iccid", "must be an ICCID of 18 to 20 digits, not 'x'"),
        Fault(3, "iccid", f"{A} was loaded before"),
        Fault(3, "activationCode", "was loaded before"),
    )


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("NOWHERE", "there is no package NOWHERE"),
        ("TEST-OK", "package TEST-OK is not sold from stock: its supplier is simulated"),
    ],
)
async def test_only_a_stock_package_takes_codes(fixture: StoreFixture, package: str, message: str):
    report = await load(fixture, GOOD, package)
    assert report == StockReport(package, 0, None, (Fault(0, "", message),), ())
    assert await stored(fixture) == []


async def test_the_same_file_loaded_by_many_at_once_is_loaded_once(fixture: StoreFixture):
    reports = await asyncio.gather(*[load(fixture, stock_csv(300)) for _ in range(6)])
    assert sorted(report.loaded for report in reports) == [0, 0, 0, 0, 0, 300]
    assert all(len(report.faults) == 600 for report in reports if not report.loaded)
    assert await fixture.rows("SELECT count(*) FROM stock_profile WHERE taken_by IS NULL") == [(300,)]


# Selling


async def test_stock_is_handed_out_in_order_and_each_code_once(fixture: StoreFixture):
    dealer, other = await fixture.dealer(), await fixture.dealer()
    await fixture.load_stock(5)
    mine, theirs = await fixture.order(dealer, ("DEMO-STOCK", 2)), await fixture.order(other, ("DEMO-STOCK", 3))
    await fixture.fulfil()
    orders = [await fixture.load(dealer, mine), await fixture.load(other, theirs)]
    assert [order.order_status for order in orders] == ["COMPLETED", "COMPLETED"]
    profiles = [profile for order in orders for profile in order.profiles]
    assert sorted(str(profile.iccid) for profile in profiles) == await stored(fixture)
    assert {profile.activation_code for profile in profiles} == {
        f"LPA:1$rsp.example.com$STOCK-{n:08}" for n in range(5)
    }
    taken = await fixture.rows("SELECT iccid, taken_tenant_id, taken_by FROM stock_profile")
    assert set(taken) == {(one.iccid, dealer, one.profile_id) for one in orders[0].profiles} | {
        (one.iccid, other, one.profile_id) for one in orders[1].profiles
    }
    assert await fixture.violations() == []


async def test_codes_from_stock_come_without_reports(fixture: StoreFixture):
    dealer = await fixture.dealer()
    await fixture.load_stock(1)
    order_id = await fixture.order(dealer, ("DEMO-STOCK", 1))
    await fixture.fulfil()
    (profile,) = (await fixture.load(dealer, order_id)).profiles
    assert (profile.esim_status, profile.smdp_status) == (None, None)
    assert profile.data_total_bytes == 2**30


async def test_stock_that_is_short_is_waited_for(fixture: StoreFixture, capfd: pytest.CaptureFixture[str]):
    """Cannot come about by selling: each profile takes its code when it is paid."""
    dealer = await fixture.dealer()
    await fixture.load_stock(2)
    order_id = await fixture.order(dealer, ("DEMO-STOCK", 2))
    held = (
        "UPDATE stock_profile SET package_code = $1, taken_tenant_id = NULL, taken_by = NULL"
        " WHERE iccid = (SELECT max(iccid) FROM stock_profile) RETURNING 1"
    )
    await fixture.rows(held, "TEST-OK")
    await fixture.fulfil()
    order = await fixture.load(dealer, order_id)
    assert (order.order_status, order.delivery_status) == ("FULFILLING", "PARTIAL")
    assert await fixture.due(dealer, order_id) == 5
    assert "stock_short" in "".join(capfd.readouterr())
    await fixture.rows(held, "DEMO-STOCK")
    fixture.time.passes(5)
    await fixture.fulfil()
    assert (await fixture.load(dealer, order_id)).order_status == "COMPLETED"


async def test_two_transactions_take_different_codes_without_waiting(fixture: StoreFixture):
    dealer = await fixture.dealer()
    await fixture.load_stock(5)
    profiles = (await fixture.load(dealer, await fixture.order(dealer, ("DEMO-STOCK", 5)))).profiles
    wanted = [(dealer, profile.profile_id) for profile in profiles]
    await fixture.rows("UPDATE stock_profile SET taken_tenant_id = NULL, taken_by = NULL")
    async with asyncio.timeout(PATIENCE), fixture.database.transaction() as one, fixture.database.transaction() as two:
        first = await store.stock.take(one, "DEMO-STOCK", wanted[:3], fixture.data_keys, fixture.time())
        second = await store.stock.take(two, "DEMO-STOCK", wanted[3:], fixture.data_keys, fixture.time())
    assert (len(first), len(second)) == (3, 2)
    assert len({taken.iccid for taken in (*first, *second)}) == 5


async def test_a_code_opens_only_on_its_own_row(fixture: StoreFixture):
    """A sealed code copied to another stock profile, or read as a profile's, does not open."""
    await fixture.load_stock(2)
    async with fixture.database.connection() as connection:
        (first, sealed), (second, _) = await store.stock.lock_free(connection, "DEMO-STOCK", 2)
    seal = sealing
    assert fixture.data_keys.open(sealed, seal.stock_context(first)).startswith(b"LPA:1$")
    for context in (seal.stock_context(second), seal.profile_context(1, 1)):
        with pytest.raises(seal.CannotOpen):
            fixture.data_keys.open(sealed, context)


# QR links


async def test_a_qr_link_shows_the_code_to_whoever_has_its_token(fixture: StoreFixture):
    dealer, other = await fixture.dealer(), await fixture.dealer()
    order_id, waiting = await fixture.order(dealer, ("TEST-OK", 2)), 0
    await fixture.fulfil()
    first, second = (await fixture.load(dealer, order_id)).profiles
    waiting = (await fixture.load(dealer, await fixture.order(dealer, ("TEST-DELAY", 1)))).profiles[0].profile_id

    async def shown(tenant_id: int, profile_id: int, token: str) -> str | None:
        return await code_of(fixture.database, fixture.data_keys, tenant_id, profile_id, token)

    token = str(first.qr_token)
    assert await shown(dealer, first.profile_id, token) == first.activation_code
    for tenant_id, profile_id, tried in (
        (other, first.profile_id, token),
        (dealer, second.profile_id, token),
        (dealer, first.profile_id, str(second.qr_token)),
        *[
            (dealer, first.profile_id, wrong)
            for wrong in ("", token[:-1], token + "A", token.swapcase(), "é", "\udc80")
        ],
        (dealer, waiting, ""),
        (dealer, waiting, "-" * 22),
        (dealer, 2**70, token),
        (2**70, first.profile_id, token),
        (0, 0, "-" * 22),
    ):
        assert await shown(tenant_id, profile_id, tried) is None


async def test_the_qr_code_of_a_cancelled_profile_is_gone(fixture: StoreFixture):
    dealer = await fixture.dealer()
    order_id = await fixture.order(dealer, ("TEST-OK", 1))
    await fixture.fulfil()
    (profile,) = (await fixture.load(dealer, order_id)).profiles
    await fixture.rows("UPDATE profile SET lifecycle_status = 'CANCELLED', cancelled = true RETURNING 1")
    assert await code_of(fixture.database, fixture.data_keys, dealer, profile.profile_id, str(profile.qr_token)) is None
