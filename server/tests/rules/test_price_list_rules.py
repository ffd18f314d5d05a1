"""What a package costs on a price list, what a file changes of it, and columns that a catalogue's file leaves out."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.catalogue import importing
from dealer_server.rules.catalogue.package import PRICE_MAX, Package
from dealer_server.rules.money import money
from dealer_server.rules.orders import pricing
from dealer_server.rules.orders.pricing import OwnPrice, PriceList
from dealer_server.rules.price_lists import list_file, price_list
from dealer_server.rules.price_lists.effect import effect
from dealer_server.rules.price_lists.price_list import Basis, Cost, PriceListTerms
from support.store_fixture import PACKAGES

THEN, LATER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
OK = PACKAGES["TEST-OK"]  # 1.80 USD


def package(price: int = 18_000, currency: str = "USD") -> Package:
    return msgspec.structs.replace(OK, price=price, retail_price=price, currency=currency)


def terms(basis: Basis = "PRICE", markup: int = 0, **exceptions: int | None) -> PriceListTerms:
    return PriceListTerms(
        7,
        "Gold",
        basis,
        markup,
        THEN,
        {code.replace("_", "-"): OwnPrice(price, LATER) for code, price in exceptions.items()},
    )


def cost(agreed: int | None, currency: str = "USD", current: int | None = None) -> Cost:
    return Cost(agreed, agreed if current is None else current, currency, LATER)


@pytest.mark.parametrize(
    ("of", "asked", "on", "expected"),
    [
        (package(), None, terms(), 18_000),
        (package(), None, terms(markup=1_250), 20_300),  # 2.025 is 2.03
        (package(), None, terms(markup=-500), 17_100),
        (package(100), None, terms(markup=4_999), 100),  # 0.014999 is 0.01
        (package(100), None, terms(markup=5_000), 200),  # 0.015 is 0.02
        (package(100), None, terms(markup=-9_999), 100),  # at least the smallest amount
        (package(1_800_000, "JPY"), None, terms(markup=30), 1_810_000),  # 180.54 is 181
        (package(18_050, "KWD"), None, terms(markup=30), 18_100),  # 1.810415 is 1.810
        (package(), cost(10_000), terms(markup=1_250), 20_300),  # over the price, whatever it costs
        (package(), cost(10_000), terms("COST", 2_500), 12_500),
        (package(), cost(12_345), terms("COST"), 12_300),  # rounded half up, so below a cost of 1.2345
        (package(), cost(12_350), terms("COST"), 12_400),
        (
            package(),
            cost(10_000, current=90_000),
            terms("COST", 2_500),
            12_500,
        ),  # what a worker accepted moves no price
        (package(), None, terms("COST", 2_500), 18_000),  # not known: its own price, without the markup
        (package(), cost(10_000, "EUR"), terms("COST", 2_500), 18_000),
        (package(), Cost(None, 10_000, "USD", LATER), terms("COST", 2_500), 18_000),
        (package(), cost(10_000), terms("COST", 2_500, TEST_OK=15_000), 15_000),
        (package(), cost(10_000), terms("COST", 2_500, TEST_OK=None), None),
        (package(), None, terms(markup=1_250, TEST_DELAY=1), 20_300),
    ],
)
def test_what_a_package_costs_on_a_list(of: Package, asked: Cost | None, on: PriceListTerms, expected: int | None):
    assert price_list.price(of, asked, on) == expected


OWN = {"TEST-OK": OwnPrice(14_000, THEN)}
LISTED = {"TEST-OK": OwnPrice(15_000, THEN)}


@pytest.mark.parametrize(
    ("prices", "own", "listed", "expected"),
    [
        (PriceList("USD"), {}, None, 18_000),
        (PriceList("USD", 1_000), {}, None, 19_800),
        (PriceList("USD", price_list_id=7), {}, LISTED, 15_000),
        (PriceList("USD", price_list_id=7), OWN, LISTED, 14_000),  # its own price wins over the list's
        (PriceList("USD", price_list_id=7), {"TEST-OK": OwnPrice(None, THEN)}, LISTED, None),
        (PriceList("USD", price_list_id=7), {}, {"TEST-OK": OwnPrice(None, THEN)}, None),
        (
            PriceList("USD", price_list_id=7),
            {},
            {},
            None,
        ),  # a list that is not known yet sells nothing at a wrong price
        (PriceList("EUR", price_list_id=7), OWN, LISTED, None),
    ],
)
def test_which_price_of_a_dealer_wins(
    prices: PriceList, own: dict[str, OwnPrice], listed: dict[str, OwnPrice] | None, expected: int | None
):
    assert pricing.price(OK, prices, own, listed) == expected


def test_a_package_that_is_off_sale_is_sold_by_no_list():
    off = msgspec.structs.replace(OK, status="OFF_SALE")
    assert pricing.price(off, PriceList("USD", price_list_id=7), OWN, LISTED) is None


def test_all_that_is_on_sale_costs_what_an_order_pays():
    delay = PACKAGES["TEST-DELAY"]
    current = Catalogue(1, [(OK, THEN), (delay, THEN)], [terms(markup=1_250, TEST_DELAY=None)])
    listed, unknown = PriceList("USD", price_list_id=7), PriceList("USD", price_list_id=8)
    assert [(one.package, one.price) for one in current.on_sale(listed)] == [(OK, 20_300)]
    offer = current.offer("TEST-OK", listed)
    assert offer is not None and offer.price == 20_300
    assert current.on_sale(unknown) == []
    own = PriceList("USD", single=(("TEST-OK", OwnPrice(14_000, THEN)),), price_list_id=7)
    assert [one.price for one in current.on_sale(own)] == [14_000]


def test_a_mirror_hears_of_the_list_its_exception_the_cost_and_the_assignment():
    def at(prices: PriceList, on: PriceListTerms, asked: Cost | None = None) -> datetime:
        costs = {} if asked is None else {"TEST-OK": asked}
        return pricing.updated_at(OK, THEN, prices, {}, price_list.resolve([OK], costs, on))

    has, hour = PriceList("USD", price_list_id=7), timedelta(hours=1)
    assert at(has, terms()) == THEN
    assert at(has, terms(TEST_OK=1)) == LATER
    assert at(has, terms(), cost(1)) == THEN and at(has, terms("COST"), cost(1)) == LATER
    assert at(PriceList("USD", markup_updated_at=LATER + hour, price_list_id=7), terms()) == LATER + hour
    own = PriceList("USD", markup_updated_at=LATER, price_list_id=7)
    assert pricing.updated_at(OK, THEN, own, {"TEST-OK": OwnPrice(1, THEN + hour)}, LISTED) == THEN + hour


AMOUNTS = st.integers(1, 10**12)


@given(AMOUNTS, AMOUNTS, st.integers(-9_999, 1_000_000), st.sampled_from(sorted(money.EXPONENTS)))
def test_a_price_over_a_cost_is_an_amount_of_the_currency_and_as_near_as_can_be(
    own: int, asked: int, markup: int, currency: str
):
    step = money.unit(currency)
    paid = price_list.price(package(own * step, currency), cost(asked, currency), terms("COST", markup))
    assert paid is not None and paid >= step and paid % step == 0
    exact = asked * (10_000 + markup)
    assert abs(2 * (paid * 10_000 - exact)) <= 10_000 * step or paid == step


@given(AMOUNTS, st.integers(-9_999, 0), st.integers(0, 1_000_000))
def test_a_higher_markup_is_never_cheaper(own: int, low: int, high: int):
    one = package(own * 100)
    lower, higher = (price_list.price(one, None, terms(markup=markup)) for markup in (low, high))
    assert lower is not None and higher is not None and lower <= one.price <= higher


@given(AMOUNTS, st.integers(0, 10**12))
def test_a_margin_is_below_zero_exactly_where_the_price_is_below_the_cost(paid: int, asked: int):
    assert (price_list.margin(paid, asked) < 0) == (paid < asked)
    assert price_list.margin(paid, asked) <= 10_000


def test_a_cost_as_it_is_written():
    assert [cost_text(amount) for amount in (12_000, 12_345, 100, 0)] == ["1.20", "1.2345", "0.01", "0.00"]


# The file of a list


def test_a_list_goes_there_and_back():
    lines = [
        list_file.Line(package(), 12_345, True, 15_000, 1_770),
        list_file.Line(PACKAGES["TEST-DELAY"], None, False, 20_000, None),
        list_file.Line(PACKAGES["TEST-FAIL"], None, True, None, None),
    ]
    text = list_file.write(lines, cost_text)
    assert text.splitlines()[0] == ",".join(list_file.COLUMNS)
    assert ",1.80,1.2345,1.50,1.50,17.7" in text.splitlines()[1]
    read = list_file.read("\ufeff" + text)
    assert read.faults == ()
    assert {code: cell for code, (_, cell) in read.cells.items()} == {
        "TEST-OK": "1.50",
        "TEST-DELAY": "",
        "TEST-FAIL": "off",
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", (1, "", "the file is empty")),
        ("packageCode,price\n", (1, "exception", "this required column is missing")),
        ("packageCode;exception\n", (1, "", "cells are not separated by commas; save the file with commas")),
        ("packageCode,exception,exception\n", (1, "exception", "column 3 repeats column 2")),
        ("packageCode,exception\nA\n", (2, "", "this line has 1 cells, the header has 2")),
        ("packageCode,exception\n,1\n", (2, "packageCode", "must be given")),
        ("packageCode,exception\nA,1\nA,2\n", (3, "packageCode", "A is already that of line 2")),
        ('packageCode,exception\n"A\n', (2, "", "cannot be read as CSV: a quotation mark is never closed; nothing")),
    ],
)
def test_a_bad_file_is_told_by_line_and_column(text: str, fault: tuple[int, str, str]):
    [found] = list_file.read(text).faults
    assert (found.line, found.column) == fault[:2] and found.message.startswith(fault[2])


@pytest.mark.parametrize("cell", ["1,50", "-1", "0", "1.505", "free", "1e3", "99999999999", "OFF"])
def test_a_price_that_is_none_is_refused_with_what_is_accepted(cell: str):
    with pytest.raises(ValueError, match=r"must be .*, or off"):
        list_file.parse(cell, OK)


@given(st.integers(1, PRICE_MAX // 100))
def test_every_price_reads_back(amount: int):
    assert list_file.parse(money.text(amount * 100, "USD"), OK) == amount * 100


@given(st.text(st.characters() | st.sampled_from(',;"\r\n\x00-.')))
def test_no_text_breaks_the_reading_of_a_list(text: str):
    for start in ("", "packageCode,exception\n"):
        assert all(fault.line >= 1 and fault.message for fault in list_file.read(start + text).faults)


# Columns that a file of the catalogue leaves out


def test_a_file_changes_only_the_columns_it_has():
    read = importing.read("packageCode,price\nTEST-OK,1.95\n", existing=PACKAGES)
    assert (read.faults, read.resets) == ((), ())
    assert read.packages == (msgspec.structs.replace(OK, price=19_500),)


@settings(max_examples=20)
@given(st.sets(st.sampled_from(importing.NAMES)))
def test_whatever_columns_stay_a_package_stays_as_it_is(names: set[str]):
    columns, some = sorted({"packageCode", *names}), tuple(PACKAGES.values())[::30]
    rows = [[importing.texts(one)[name] for name in columns] for one in some]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in [columns, *rows])
    assert importing.read(text, [one.supplier for one in some], PACKAGES) == importing.Import(some, ())


def test_an_empty_cell_resets_its_field_and_says_so():
    given_name = msgspec.structs.replace(OK, description="Fast", unused_valid_days=90)
    read = importing.read("packageCode,description,unusedValidDays\nTEST-OK,,\n", existing={"TEST-OK": given_name})
    assert read.resets == (
        importing.Fault(2, "description", "the cell is empty: Fast is removed"),
        importing.Fault(2, "unusedValidDays", "the cell is empty: 90 becomes 180"),
    )
    assert read.packages[0].unused_valid_days == 180


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("packageCode,price\nTEST-OK,\n", (2, "price", "must be given")),
        ("packageCode,price\nTEST-OK,1.805\n", (2, "price", "must be a decimal such as 1.80")),
        ("packageCode,currency\nTEST-OK,EUR\n", (2, "currency", "must stay USD: it never changes, not 'EUR'")),
        ("packageCode,type\nTEST-OK,TOPUP\n", (2, "type", "must stay BASE: it never changes")),
        ("packageCode,locationCode\nTEST-OK,DE\n", (2, "locations", "must be locationCode alone")),
        ("slug\nx\n", (1, "packageCode", "this required column is missing")),
    ],
)
def test_a_bad_row_of_a_package_we_have_is_told_by_line_and_column(text: str, fault: tuple[int, str, str]):
    found = importing.read(text, existing=PACKAGES).faults[0]
    assert (found.line, found.column) == fault[:2] and found.message.startswith(fault[2])


def test_a_new_package_needs_every_required_column():
    faults = importing.read("packageCode,price\nTEST-OK,1.95\nTYPO,1\n", existing=PACKAGES).faults
    assert [(fault.line, fault.column) for fault in faults][:2] == [(1, "packageName"), (1, "locationCode")]
    assert faults[0].message == "this required column is missing: TYPO of line 3 is no package yet"


def test_what_is_no_field_of_a_file_stays():
    recharge = msgspec.structs.replace(OK, top_up_for=("A", "B"), fallback="rt:near")
    [read] = importing.read("packageCode,price\nTEST-OK,1.95\n", existing={"TEST-OK": recharge}).packages
    assert (read.top_up_for, read.fallback) == (("A", "B"), "rt:near")


def test_a_form_is_judged_as_a_line_of_a_file_is():
    made, faults = importing.read_form({"packageName": " New name "}, ["simulated", "stock"], OK)
    assert (made, faults) == (msgspec.structs.replace(OK, package_name="New name"), {})
    made, faults = importing.read_form({"packageCode": "A B", "price": "x"}, ["stock"], None)
    assert made is None and set(faults) >= {"packageCode", "packageName", "locationCode", "duration"}


# What terms come to


def test_terms_are_weighed_by_the_packages_on_sale():
    own = package()
    off = msgspec.structs.replace(own, status="OFF_SALE")

    def line(name: str, price: int | None, margin: int | None, one: Package = own) -> list_file.Line:
        named = msgspec.structs.replace(one, package_name=name)
        return list_file.Line(named, None if margin is None else 10_000, False, price, margin)

    lines = [
        line("A", 10_000, None),
        line("C", 10_000, -500),
        line("B", 12_000, 2_000),
        line("D", None, None),
        line("E", 12_000, 9_000, off),
    ]
    found = effect(lines)
    assert found.example == lines[2], "the first by name whose cost is known"
    assert (found.total, found.costed, found.losses) == (3, 2, 1)
    assert (found.lowest, found.highest) == (-500, 2_000)
    assert effect(lines[:1]).example == lines[0] and effect(lines[:1]).lowest is None
    assert effect([]).example is None
