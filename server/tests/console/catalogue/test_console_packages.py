"""The page of a package, its form, and the catalogue as a file: there, and back by the columns that a file has."""

import json
import re
from decimal import Decimal
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.rules.catalogue import importing
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.catalogue import hidden, paid, preview
from support.console.operator_pages import acts, does, fill, see, text_of
from support.money.refunds import bought
from support.reports import folded
from support.store_fixture import PACKAGES, stock_csv

HOME = "/console/packages/TEST-OK"
NEW = {
    "packageCode": "FR-1GB",
    "type": "BASE",
    "packageName": "France 1 GB",
    "status": "ON_SALE",
    "supplier": "stock",
    "price": "1.10",
    "currency": "USD",
    "dataType": "TOTAL",
    "dataBytes": "1GB",
    "duration": "7",
    "locationCode": "FR",
}


async def of_stock(service: Service, code: str, cost: int) -> None:
    """The package is sold from stock, at this cost."""
    await set_route(service.database, code, [Hop("stock", code, cost, "USD")], "test", clock.now)


async def one(dealer: ApiClient, code: str) -> dict[str, Any]:
    return (await dealer.post("/package/list", {"packageCode": code})).data["packages"][0]


async def test_a_package_has_a_page_with_its_route_stock_payers_and_sales(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    await does(admin, f"/console/dealers/{stranger.tenant_id}/prices", package="DEMO-STOCK", price="1.65")
    await fill(admin, "/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(3).encode()})
    await of_stock(service, "DEMO-STOCK", 10_000)
    price = (await one(dealer, "DEMO-STOCK"))["price"]
    line = {"packageCode": "DEMO-STOCK", "quantity": 2, "price": price}
    order_no = (await dealer.order(items=[line], amount=str(2 * Decimal(price)))).data["orderNo"]
    await folded(service.database)
    page = await see(admin, "/console/packages/DEMO-STOCK")
    assert "DEMO-STOCK" in page and "1.00 USD" in page and "1 eSIM available" in page
    assert "Custom price 1.65 USD 39.4 %" in page and "Dealer price" in page
    assert order_no in page and f"Revenue, 30 days {2 * Decimal(price)} USD" in page
    assert "Sold per day 2 in 30 days" in page
    assert 'href="/console/packages/DEMO-STOCK"' in (await admin.get("/console/packages?q=DEMO")).text
    assert (await admin.get("/console/packages/NO-SUCH")).status_code == 404


async def test_a_package_is_edited_and_its_dealers_see_it(service: Service, dealer: ApiClient, admin: Browser):
    form = hidden(await admin.get(f"{HOME}/edit"))
    assert "saved" in await does(admin, f"{HOME}/edit", **form, packageName="Better name", price="1.90")
    await paid(dealer, "TEST-OK", "1.90")
    assert (await one(dealer, "TEST-OK"))["packageName"] == "Better name"
    assert (await dealer.order("TEST-OK")).code == "200005", "the old price is not taken any more"
    act = json.loads((await acts(service, "catalog.edit"))[0].detail)
    assert act["package"] == "TEST-OK" and act["after"] == {"packageName": "Better name", "price": "1.90"}
    form = hidden(await admin.get(f"{HOME}/edit"))
    await does(admin, f"{HOME}/edit", **form, packageName=PACKAGES["TEST-OK"].package_name, price="1.80")
    await paid(dealer, "TEST-OK", "1.80")


async def test_what_is_wrong_is_said_at_its_field_and_what_never_changes_is_refused(admin: Browser):
    form = hidden(await admin.get(f"{HOME}/edit"))
    sent = await fill(admin, f"{HOME}/edit", **form, price="1,90", networks="Orange")
    page = text_of(sent.text)
    assert sent.status_code == 400 and "2 fields to correct" in page
    assert "must be a decimal such as 1.80" in page and "must have the form FR:Orange/5G" in page
    assert 'value="1,90"' in sent.text, "what was typed is kept"
    sent = await fill(admin, f"{HOME}/edit", **form, currency="EUR")
    assert sent.status_code == 400 and "must stay USD: it never changes" in text_of(sent.text)
    assert "cannot change" in text_of((await admin.get(f"{HOME}/edit")).text)


async def test_a_package_is_made_withdrawn_and_offered_again(service: Service, dealer: ApiClient, admin: Browser):
    assert "FR-1GB is made" in await does(admin, "/console/packages/new", **NEW)
    await paid(dealer, "FR-1GB", "1.10")
    again = await fill(admin, "/console/packages/new", **NEW)
    assert again.status_code == 400 and "is that of another package" in again.text
    status = {"package": "FR-1GB"}
    page = await does(admin, "/console/packages/status", **status, status="OFF_SALE")
    assert "France 1 GB" in page and "FR-1GB is off sale" in page
    await paid(dealer, "FR-1GB", None)
    line = {"packageCode": "FR-1GB", "quantity": 1, "price": "1.10"}
    assert (await dealer.order(items=[line], amount="1.10")).code != "000000"
    await does(admin, "/console/packages/status", **status, status="ON_SALE")
    await paid(dealer, "FR-1GB", "1.10")
    assert [json.loads(act.detail)["package"] for act in await acts(service, "catalog.create")] == ["FR-1GB"]


async def test_a_place_is_typed_by_its_name_and_brings_what_follows_from_it(dealer: ApiClient, admin: Browser):
    assert "is made" in await does(admin, "/console/packages/new", **NEW | {"packageCode": "MOVES"})
    form = hidden(await admin.get("/console/packages/MOVES/edit"))
    assert 'value="France · FR"' in (await admin.get("/console/packages/MOVES/edit")).text
    for typed, code, name in (("spain", "ES", "Spain"), ("Italy · IT", "IT", "Italy"), ("EU-35", "EU-35", "Europe")):
        form = hidden(await admin.get("/console/packages/MOVES/edit"))
        assert "saved" in await does(admin, "/console/packages/MOVES/edit", **form | {"locationCode": typed})
        page = await see(admin, "/console/packages/MOVES")
        assert f" MOVES {name} " in page, page
        assert f'value="{name} · {code}"' in (await admin.get("/console/packages/MOVES/edit")).text
    form = hidden(await admin.get("/console/packages/MOVES/edit"))
    answer = await fill(admin, "/console/packages/MOVES/edit", **form | {"locationCode": "Nowhere"})
    assert answer.status_code == 400 and 'id="field-locationCode-error"' in answer.text


async def test_a_price_below_the_cost_is_asked_to_be_confirmed(service: Service, admin: Browser):
    await of_stock(service, "TEST-DELAY", 12_345)
    home = "/console/packages/TEST-DELAY"
    form = hidden(await admin.get(f"{home}/edit"))
    sent = await fill(admin, f"{home}/edit", **form, price="1.23")
    assert sent.status_code == 409 and "1.2345 USD" in text_of(sent.text) and "0.0045 USD" in text_of(sent.text)
    assert "1.23 USD" not in await see(admin, home)
    assert "saved" in await does(admin, f"{home}/edit", **hidden(sent))
    assert "−0.4 %" in await see(admin, home)
    form = hidden(await admin.get(f"{home}/edit"))
    assert "saved" in await does(admin, f"{home}/edit", **form, packageName="Still below"), "the price did not change"


# The list


async def test_the_list_tells_cost_and_margin_and_finds_what_is_sold_at_a_loss(service: Service, admin: Browser):
    await of_stock(service, "TEST-REJECT", 20_000)
    await of_stock(service, "TEST-ASYNC", 9_000)
    page = await see(admin, "/console/packages?q=TEST-REJECT")
    assert "2.00 USD 1.80 USD −11.1 % 0 –" in page, page
    losses = await see(admin, "/console/packages?margin=loss&supplier=stock")
    assert "TEST-REJECT" in losses and "TEST-ASYNC" not in losses
    assert re.search(r"[1-9] packages? below the cost", await see(admin, "/console/packages"))
    lowest = await see(admin, "/console/packages?status=ALL&sort=margin")
    assert lowest.index("TEST-REJECT") < lowest.index("TEST-ASYNC"), "the lowest margin first, what is unknown last"
    unknown = await see(admin, "/console/packages?margin=unknown&q=TEST-")
    assert "TEST-OK" in unknown and "TEST-REJECT" not in unknown


async def test_the_list_finds_packages_by_kind_and_place_and_sorts_them_by_data(admin: Browser):
    page = (await admin.get("/console/packages?region=FR&kind=DAILY&sort=-data")).text
    assert "4 packages" in text_of(page) and page.index("FR-UNL-DAY") < page.index("FR-2GB-DAY-C")
    assert "TEST-TOPUP-OK" in await see(admin, "/console/packages?kind=RECHARGE")


async def test_tabs_tell_how_many_are_on_sale_sold_out_and_off_sale(admin: Browser):
    assert "All 1 Sold in 30 days 0 On sale 0 Sold out 1 Off sale 0" in await see(
        admin, "/console/packages?q=TEST-STOCKOUT"
    )
    page = await see(admin, "/console/packages?status=SOLD_OUT&q=TEST-STOCKOUT")
    assert "1 package" in page and "Upload codes" in page
    assert "No package matches" in await see(admin, "/console/packages?status=OFF_SALE&q=TEST-STOCKOUT")


async def test_chosen_packages_are_taken_off_sale_and_put_back_together(service: Service, admin: Browser):
    chosen = {"pick-TEST-OK": "on", "pick-TEST-ASYNC": "on"}
    shown = await fill(admin, "/console/packages/selected", **chosen, verdict="OFF_SALE")
    assert "Take 2 packages off sale" in text_of(shown.text)
    assert "2 packages taken off sale" in await does(admin, "/console/packages/decide", **hidden(shown))
    assert "Off sale" in await see(admin, "/console/packages?q=TEST-ASYNC&status=OFF_SALE")
    assert "2 packages put on sale" in await does(admin, "/console/packages/decide", **chosen, verdict="ON_SALE")
    assert "choose 1 to 25 packages" in (await does(admin, "/console/packages/selected", verdict="OFF_SALE")).lower()


async def test_chosen_packages_are_set_on_a_price_list_together(service: Service, admin: Browser):
    made = await fill(admin, "/console/price-lists", name="Chosen", basis="PRICE", markup="")
    number = made.headers["location"].rpartition("/")[2]
    chosen = {"pick-TEST-OK": "on", "pick-TEST-REVIEW": "on", "verdict": "LIST", "list": number}
    page = await does(admin, "/console/packages/decide", **chosen, terms="MARKUP", markup="-50")
    assert "2 exceptions set" in page
    assert 'value="0.90"' in (await admin.get(f"/console/price-lists/{number}")).text
    await does(admin, "/console/packages/decide", **chosen, terms="OFF")
    assert "Not on sale" in await see(admin, f"/console/price-lists/{number}?q=TEST-OK")


# The file


async def test_the_catalogue_is_exported_and_reads_back_unchanged(service: Service, admin: Browser):
    file = await admin.get("/console/packages/export.csv")
    assert file.headers["content-type"].startswith("text/csv") and file.content.startswith(b"\xef\xbb\xbf")
    content = importing.read(file.text, ["simulated", "stock"])
    assert content.faults == () and "TEST-OK" in {package.package_code for package in content.packages}
    assert "Nothing changes" in text_of((await preview(admin, file.text)).text)
    assert (await acts(service, "catalog.export"))[0].author == f"console:{admin.name}"


async def test_a_file_with_one_column_changes_that_column_alone(service: Service, dealer: ApiClient, admin: Browser):
    before = await one(dealer, "TEST-PARTIAL")
    shown = await preview(admin, "packageCode,price\nTEST-PARTIAL,7.77\n")
    page = text_of(shown.text)
    assert "1 package: 0 new, 1 changed" in page and f"price {before['price']} 7.77" in page and "warning" not in page
    assert "1 of them new or changed" in await does(admin, "/console/packages/import", **hidden(shown))
    await paid(dealer, "TEST-PARTIAL", "7.77")
    after = await one(dealer, "TEST-PARTIAL")
    assert {name for name in after if after[name] != before[name]} == {"price", "updateTime"}
    act = json.loads((await acts(service, "catalog.import"))[0].detail)
    assert act == {"packages": 1, "changed": 1, "columns": ["price"]}


async def test_what_a_file_would_reset_or_sell_below_the_cost_is_warned_of(service: Service, admin: Browser):
    await of_stock(service, "TEST-FAIL", 50_000)
    shown = await preview(admin, "packageCode,price,networks,supplier\nTEST-FAIL,1.00,,simulated\n")
    page = text_of(shown.text)
    assert "the cell is empty" in page and "stays stock: the package's route says it" in page
    assert "1 price below cost" in page and "4.00 USD" in page
    assert "below the cost" in await does(admin, "/console/packages/import", **hidden(shown))
    assert "1.00 USD" not in await see(admin, "/console/packages/TEST-FAIL")
    done = await does(admin, "/console/packages/import", **hidden(shown), allow_below_cost="on")
    assert "1 package, 1 of them new or changed" in done


async def test_what_is_applied_is_what_was_previewed(admin: Browser):
    shown = await preview(admin, "packageCode,price\nTEST-STOCKOUT,3.33\n")
    form = hidden(await admin.get("/console/packages/TEST-STOCKOUT/edit"))
    await does(admin, "/console/packages/TEST-STOCKOUT/edit", **form, price="2.22")
    assert "changed since the preview" in await does(admin, "/console/packages/import", **hidden(shown))
    assert "2.22 USD" in await see(admin, "/console/packages/TEST-STOCKOUT")


async def test_bad_rows_are_named_and_nothing_is_half_done(admin: Browser):
    text = "packageCode,price,currency\nTEST-REVIEW,4.44,USD\nTEST-REJECT,4.444,USD\nTEST-ASYNC,1.00,EUR\n"
    page = text_of((await preview(admin, text)).text)
    assert "2 faults: nothing can be imported" in page
    assert "3 price must be a decimal such as 1.80" in page and "4 currency must stay USD" in page
    assert "4.44" not in await see(admin, "/console/packages/TEST-REVIEW")
    assert "missing" in await does(admin, "/console/packages/import", packed="forged")


@pytest.mark.parametrize(("role", "status"), [("admin", 200), ("finance", 403), ("support", 403), ("readonly", 403)])
async def test_only_admins_edit(service: Service, dealer: ApiClient, role: str, status: int):
    async with signed_in(service, role) as somebody:
        assert (await somebody.get(HOME)).status_code == 200
        assert (await somebody.get(f"{HOME}/edit")).status_code == status
        assert (await somebody.get("/console/packages/new")).status_code == status
        assert ("Take off sale" in (await somebody.get(HOME)).text) == (status == 200)
    async with signed_in(service, "admin", dealer.tenant_id) as theirs:
        assert (await theirs.get(HOME)).status_code == 404
        assert (await theirs.get("/console/packages/export.csv")).status_code == 404


async def test_data_is_a_number_and_its_unit_and_bytes_stay_bytes(admin: Browser):
    await does(admin, "/console/packages/new", **NEW | {"packageCode": "UNIT", "dataBytes": "512", "dataUnit": "MB"})
    assert "512 MB" in await see(admin, "/console/packages/UNIT")
    page = (await admin.get("/console/packages/UNIT/edit")).text
    assert 'name="dataBytes" value="512"' in page and "<option selected>MB</option>" in page
    await does(admin, "/console/packages/UNIT/edit", dataBytes="1500000001", dataUnit="")
    page = (await admin.get("/console/packages/UNIT/edit")).text
    assert 'name="dataBytes" value="1500000001"' in page and '<option value="" selected>bytes</option>' in page


async def test_the_template_of_an_import_can_be_imported(admin: Browser):
    page = await see(admin, "/console/packages/import")
    assert all(name in page for name in importing.NAMES), "every column is told of"
    template = await admin.get("/console/packages/template.csv")
    assert "attachment" in template.headers["content-disposition"]
    sent = await fill(admin, "/console/packages/preview", files={"file": template.content})
    assert "1 package: 1 new" in text_of(sent.text)


# The margin, while a price is decided


async def test_the_margin_of_a_price_is_told_before_it_is_saved(service: Service, admin: Browser):
    await of_stock(service, "TEST-LIFECYCLE", 9_500)
    home = "/console/packages/TEST-LIFECYCLE"
    for price, told in (
        ("1.20", "Cost 0.95 USD at stock: margin 0.25 USD = 20.8 %"),
        ("0.90", "Cost 0.95 USD at stock: loss 0.05 USD = −5.6 %"),
        ("x", "Cost 0.95 USD at stock."),
    ):
        assert told in await see(admin, f"{home}/edit?price={price}")
    for retail, told in (("2.40", "retail price keeps 1.20 USD = 50.0 %."), ("1.10", "Below the dealer price.")):
        assert told in await see(admin, f"{home}/edit?price=1.20&retailPrice={retail}")
    sent = await fill(admin, f"{home}/edit", **hidden(await admin.get(f"{home}/edit")), price="1.20", do="preview")
    assert sent.status_code == 200 and "margin 0.25 USD = 20.8 %" in text_of(sent.text)
    assert "1.20 USD" not in await see(admin, home)
    assert "saved" in await does(admin, f"{home}/edit", **hidden(sent), price="1.20")
    assert "1.20 USD" in await see(admin, home)
    assert "No cost is known without a route, so no margin." in await see(admin, "/console/packages/TEST-OK/edit")
    row = "supplier-0=stock&sku-0=X&cost-0=1.00&currency-0=USD"
    assert "At the dealer price: margin 0.20 USD = 16.7 %" in await see(admin, f"{home}/route?{row}")
    assert "skip it: the cost 1.00 USD leaves 16.67 %" in await see(admin, f"{home}/route?{row}&floor=20")
    assert "1.00" not in (await admin.get(f"{home}/route")).text.partition('name="cost-0"')[2].partition(">")[0]


async def test_packages_are_sorted_as_people_count_and_tell_what_they_sold(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    names = ["Zed 500 MB 30 days", "Zed 1 GB 7 days", "Zed 1 GB 30 days", "Zed 3 GB 30 days", "Zed 10 GB 30 days"]
    for number, name in enumerate(sorted(names)):
        _, amount, unit, days, _ = name.split()
        made = {"packageCode": f"ZED-{number}", "packageName": name, "dataBytes": amount + unit, "duration": days}
        made["locationCode"] = "ZW"
        await does(admin, "/console/packages/new", **NEW | made)
    page = await see(admin, "/console/packages?q=ZED-")
    assert sorted(names, key=page.index) == names, "where nothing was sold, by name"
    await bought(dealer, quantity=2)
    await folded(service.database)
    page = await see(admin, "/console/packages?q=TEST-")
    assert re.search(r"TEST-OK 1 GB 7 days TEST-OK (\d+) sold .* \1 [\d.,]+ USD", page), page
    assert page.index("TEST-OK 1 GB") < page.index("TEST-ASYNC"), "what sold most stands first"
    edit = await see(admin, "/console/packages/TEST-OK/edit?price=9.00")
    assert "Dealers without a price list" in edit and "9.00 USD" in edit.partition("Who pays what")[2]
