"""Price lists: what their dealers see and pay, through the console, signed calls and the commands."""

import asyncio
import json
import re
from pathlib import Path

import httpx2
import pytest

from dealer_server import clock
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.catalogue import hidden, paid, preview
from support.console.operator_pages import acts, does, fill, see, text_of
from support.patience import PATIENCE
from support.processes import environment, run
from support.reports import folded

LISTS = "/console/price-lists"


async def made(admin: Browser, name: str, markup: str = "0", basis: str = "PRICE") -> str:
    """A new list; its page."""
    sent = await fill(admin, LISTS, name=name, markup=markup, basis=basis)
    assert sent.status_code == 303, text_of(sent.text)
    return sent.headers["location"]


async def assigned(admin: Browser, home: str, dealer: ApiClient) -> None:
    assert "has the price list now" in await does(admin, f"{home}/assign", dealer=str(dealer.tenant_id))


async def orders(dealer: ApiClient, package: str, price: str) -> str:
    """The code of the answer to an order at this price, once the process knows it."""
    line = {"packageCode": package, "quantity": 1, "price": price}
    return (await dealer.order(items=[line], amount=price)).code


async def routed(service: Service, code: str, cost: int) -> None:
    await set_route(service.database, code, [Hop("stock", code, cost, "USD")], "test", clock.now)


async def test_the_dealers_of_a_list_see_and_pay_its_prices(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    home = await made(admin, "Gold", "-10")
    await does(admin, f"{home}/exceptions", package="TEST-DELAY", price="1.55")
    await does(admin, f"{home}/exceptions", package="TEST-ASYNC", price="off")
    await paid(dealer, "TEST-OK", "1.80")
    await assigned(admin, home, dealer)
    for package, price in (("TEST-OK", "1.62"), ("TEST-DELAY", "1.55"), ("TEST-ASYNC", None)):
        await paid(dealer, package, price)
    assert await orders(dealer, "TEST-OK", "1.62") == "000000"
    assert await orders(dealer, "TEST-OK", "1.80") == "200005"
    assert await orders(dealer, "TEST-DELAY", "1.55") == "000000"
    assert await orders(dealer, "TEST-ASYNC", "1.80") != "000000"
    await paid(stranger, "TEST-OK", "1.80")
    await does(admin, f"/console/dealers/{dealer.tenant_id}/prices", package="TEST-DELAY", price="1.50")
    await paid(dealer, "TEST-DELAY", "1.50")
    shown = (await admin.get(home)).text  # its exceptions stand first
    assert "TEST-OK" not in shown and 'value="1.55"' in shown and 'value="off"' in shown
    assert re.search(r"Dealer price 1\.80 −13\.9 %", text_of(shown)), "beside the dealer price"
    everything = (await admin.get(f"{home}?only=all&q=TEST-")).text
    assert 'value="1.62"' in everything and 'value="1.55"' in everything
    assert "Gold" in await see(admin, f"/console/dealers/{dealer.tenant_id}")
    assert "Gold Price list, dealer price − 10 %, 1 dealer 1.62 USD" in await see(admin, "/console/packages/TEST-OK")
    await does(admin, f"{home}/unassign", dealer=str(dealer.tenant_id))
    await paid(dealer, "TEST-OK", "1.80")
    assert await service.audit() == []


async def test_lists_tell_their_rule_and_exceptions_and_what_their_dealers_bought(
    service: Service, dealer: ApiClient, admin: Browser
):
    home = await made(admin, "Telling", "-10")
    await does(admin, f"{home}/exceptions", package="TEST-DELAY", price="1.55")
    await assigned(admin, home, dealer)
    await paid(dealer, "TEST-OK", "1.62")
    line = {"packageCode": "TEST-OK", "quantity": 90, "price": "1.62"}
    assert (await dealer.order(items=[line], amount="145.80")).code == "000000"
    await folded(service.database)
    page = await see(admin, LISTS)
    told = re.search(r"Telling Dealer price − 10 % 1 (.+?) Without a list", page)
    assert told and "145.80 USD" in told[1], page
    page = await see(admin, f"{home}?only=all")
    assert "Revenue, 30 days 145.80 USD 90 eSIMs" in page and "TEST-OK" in page, "what sold most stands first"
    assert "1 package" in await see(admin, f"{home}?only=exceptions")
    assert "TEST-OK" not in (await see(admin, f"{home}?only=exceptions")).partition("List price")[2]
    number = dealer.tenant_id
    assert f"/console/dealers/{number}" in (await admin.get(f"/console/dealers?list={home.rpartition('/')[2]}")).text
    assert f"/console/dealers/{number}" not in (await admin.get("/console/dealers?list=none")).text
    assert re.search(
        rf"{number} · Telling(?: · ordered \S+)? 145.80 USD", await see(admin, f"/console/dealers?q={number}")
    )
    assert "/console/dealers?list=none" in (await admin.get(LISTS)).text


async def test_a_list_replaces_the_markup_of_a_dealer(service: Service, dealer: ApiClient, admin: Browser):
    await service.change(dealer.tenant_id, markup="50")
    await paid(dealer, "TEST-OK", "2.70")
    home = await made(admin, "Instead", "10")
    await assigned(admin, home, dealer)
    await paid(dealer, "TEST-OK", "1.98")
    path = f"/console/dealers/{dealer.tenant_id}"
    assert "has the price list 'Instead'" in await does(admin, f"{path}/terms", name="x", markup="5", status="ACTIVE")
    assert "The terms are changed" in await does(admin, f"{path}/terms", name="x", markup="0", status="ACTIVE")
    [act] = [one for one in await acts(service, "tenant.price_list") if one.tenant_id == dealer.tenant_id]
    assert json.loads(act.detail) == {
        "before": {"priceList": None, "markup": "50"},
        "after": {"priceList": "Instead", "markup": "0"},
    }
    assert "has the price list" in await does(admin, f"{home}/remove"), "not while somebody has it"
    await does(admin, f"{home}/unassign", dealer=str(dealer.tenant_id))
    assert "is removed" in await does(admin, f"{home}/remove")
    assert (await admin.get(home)).status_code == 404


async def test_prices_over_the_cost_follow_the_route_and_below_it_are_confirmed(
    service: Service, dealer: ApiClient, admin: Browser
):
    await routed(service, "TEST-PARTIAL", 10_000)
    home = await made(admin, "Cost plus", "25", "COST")
    await assigned(admin, home, dealer)
    await paid(dealer, "TEST-PARTIAL", "1.25")
    await paid(dealer, "TEST-OK", "1.80")
    await routed(service, "TEST-PARTIAL", 20_000)
    await paid(dealer, "TEST-PARTIAL", "2.50")
    form = {"name": "Cost plus", "basis": "COST", "markup": "-5"}
    sent = await fill(admin, f"{home}/terms", **hidden_version(await admin.get(home)), **form)
    assert sent.status_code == 409 and "1.90 USD 2.00 USD 0.10 USD" in text_of(sent.text)
    await paid(dealer, "TEST-PARTIAL", "2.50")
    assert "is changed" in await does(admin, f"{home}/terms", **hidden(sent))
    await paid(dealer, "TEST-PARTIAL", "1.90")
    assert "−5.3 %" in await see(admin, f"{home}?q=TEST-PARTIAL")
    sent = await fill(admin, f"{home}/exceptions", package="TEST-PARTIAL", price="1.00")
    assert sent.status_code == 409
    await does(admin, f"{home}/exceptions", **hidden(sent))
    await paid(dealer, "TEST-PARTIAL", "1.00")


async def test_terms_tell_what_they_come_to_before_they_are_saved(service: Service, admin: Browser):
    home = await made(admin, "Weighed", "10")
    await routed(service, "TEST-OK", 10_000)
    told = r"With these terms .+ sells at [0-9.]+ USD ?: cost [0-9.]+, (margin|loss) [0-9.]+ USD = −?[0-9,.]+ %"
    for path in (f"{home}?markup=-10&basis=COST", f"{LISTS}/new?markup=12.5&basis=PRICE"):
        page = await see(admin, path)
        assert re.search(told, page) and "No cost is known for " in page, page
    assert "Enter a percentage to see" in await see(admin, f"{home}?markup=ten")
    form = {"name": "Weighed less", "markup": "−3.5", "basis": "COST", "do": "preview"}
    for path, page in ((f"{home}/terms", home), (LISTS, f"{LISTS}/new")):
        sent = await fill(admin, path, **form)
        assert sent.headers["location"].startswith(f"{page}?"), sent.headers
        shown = (await admin.get(sent.headers["location"])).text
        assert 'value="Weighed less"' in shown and 'value="−3.5"' in shown and re.search(told, text_of(shown))
    assert "Weighed less" not in await see(admin, LISTS)


def hidden_version(page: httpx2.Response) -> dict[str, str]:
    """Of the form of the list's terms."""
    found = re.search(r'name="version" value="([^"]*)"', page.text.partition('/terms"')[2])
    assert found
    return {"version": found[1]}


async def test_changed_prices_are_told_to_the_dealers_of_the_list(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    home = await made(admin, "Told", "10")
    await assigned(admin, home, dealer)
    await does(admin, f"/console/dealers/{dealer.tenant_id}/prices", package="TEST-OK", price="1.80")
    await does(admin, f"{home}/terms", **hidden_version(await admin.get(home)), name="Told", basis="PRICE", markup="20")
    await does(
        admin, f"{home}/terms", **hidden_version(await admin.get(home)), name="Told on", basis="PRICE", markup="20"
    )
    await does(admin, f"{home}/exceptions", package="TEST-DELAY", price="9.99")
    async with service.database.connection() as connection:
        notices = await connection.fetch(
            "SELECT tenant_id, fact, data FROM notice WHERE notice_type = 'PRICE_CHANGED' AND tenant_id = ANY($1)"
            " ORDER BY notice_id",
            [dealer.tenant_id, stranger.tenant_id],
        )
    assert {row["tenant_id"] for row in notices} == {dealer.tenant_id}
    kinds = [row["fact"].partition(":")[0] for row in notices]
    assert kinds == ["terms", "terms", "list", "list"], "a new name changes no price"
    [last] = json.loads(notices[-1]["data"])["packages"]
    assert (last["packageCode"], last["after"]) == ("TEST-DELAY", "9.99")
    assert "TEST-OK" not in {one["packageCode"] for one in json.loads(notices[2]["data"])["packages"]}


async def test_a_mirror_of_the_catalogue_hears_of_a_list(service: Service, dealer: ApiClient, admin: Browser):
    home = await made(admin, "Mirrored", "10")
    async with service.database.connection() as connection:  # an hour passes
        earlier = await connection.fetchval("SELECT now() - interval '1 hour'")
        await connection.execute("UPDATE package SET updated_at = $1", earlier)
        await connection.execute("UPDATE price_list SET updated_at = $1", earlier)
        await connection.execute("UPDATE change SET version = version + 1")
        since = await connection.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC' - interval '30 minutes',"
                                          " 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")  # fmt: skip
    await until_listed(dealer, since, set())
    await assigned(admin, home, dealer)
    await until_listed(dealer, since, {"TEST-OK"})


async def until_listed(dealer: ApiClient, since: str, codes: set[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            call = {"packageCode": "TEST-OK", "updatedSince": since}
            if {one["packageCode"] for one in (await dealer.post("/package/list", call)).data["packages"]} == codes:
                return
            await asyncio.sleep(0.05)


# Its file


async def test_a_list_is_exported_edited_and_imported_as_previewed(service: Service, dealer: ApiClient, admin: Browser):
    await routed(service, "TEST-FAIL", 15_000)
    home = await made(admin, "Filed", "10")
    await assigned(admin, home, dealer)
    file = (await admin.get(f"{home}/export.csv")).text
    assert "Nothing changes" in text_of((await preview(admin, file, f"{home}/preview")).text)
    text = "packageCode,exception\nTEST-OK,1.70\nTEST-FAIL,1.20\n"
    shown = await preview(admin, text, f"{home}/preview")
    page = text_of(shown.text)
    assert "2 prices changed" in page and "1 price below cost" in page and "−25.0 %" in page
    assert "below the cost" in await does(admin, f"{home}/import", **hidden(shown))
    done = await does(admin, f"{home}/import", **hidden(shown), allow_below_cost="on")
    assert "2 packages read, 2 prices changed" in done
    await paid(dealer, "TEST-OK", "1.70")
    assert "changed since the preview" in await does(
        admin, f"{home}/import", **hidden(shown) | {"version": "0" * 16}, allow_below_cost="on"
    )
    await does(
        admin, f"{home}/import", **hidden(await preview(admin, "packageCode,exception\nTEST-OK,\n", f"{home}/preview"))
    )
    await paid(dealer, "TEST-OK", "1.98")
    bad = "packageCode,exception\nTEST-OK,1.00\nNO-SUCH,1\nTEST-DELAY,cheap\n"
    page = text_of((await preview(admin, bad, f"{home}/preview")).text)
    assert "2 faults" in page and "3 packageCode there is no package NO-SUCH" in page and "4 exception must be" in page


@pytest.mark.parametrize("role", ["finance", "support", "readonly"])
async def test_only_admins_change_a_list(service: Service, dealer: ApiClient, admin: Browser, role: str):
    home = await made(admin, f"Of {role}")
    async with signed_in(service, role) as somebody:
        assert (await somebody.get(home)).status_code == 200
        assert "Save rule" not in (await somebody.get(home)).text
        for path in (f"{home}/terms", f"{home}/exceptions", f"{home}/assign", f"{home}/import", LISTS):
            assert (await somebody.post(path, {})).status_code == 403
    async with signed_in(service, "admin", dealer.tenant_id) as theirs:
        assert (await theirs.get(home)).status_code == 404


async def test_prices_that_were_typed_are_saved_together_and_the_others_stay(admin: Browser, dealer: ApiClient):
    home = await made(admin, "Typed")
    await assigned(admin, home, dealer)
    form = {"was TEST-OK": "1.80", "price TEST-OK": "1.75", "was TEST-DELAY": "9.99", "price TEST-DELAY": "9.99"}
    assert "TEST-OK costs 1.75 now" in await does(admin, f"{home}/exceptions", **form)
    await paid(dealer, "TEST-OK", "1.75")
    await paid(dealer, "TEST-DELAY", "1.80")
    two = {"was TEST-OK": "1.75", "price TEST-OK": "1.70", "was TEST-DELAY": "1.80", "price TEST-DELAY": " 1.60 "}
    assert "2 prices are changed" in await does(admin, f"{home}/exceptions", **two)
    await paid(dealer, "TEST-OK", "1.70")
    await paid(dealer, "TEST-DELAY", "1.60")
    assert "No price was changed" in await does(admin, f"{home}/exceptions", **{"was A": "1", "price A": "1"})
    wrong = form | {"was TEST-OK": "1.70", "price TEST-OK": "free"}
    assert "must be a decimal" in await does(admin, f"{home}/exceptions", **wrong)
    page = (await admin.get(f"{home}?q=TEST-OK")).text
    assert 'name="price TEST-OK" value="1.70"' in page and "Take off sale" in page and "Use the rule" in page


async def test_bad_terms_are_refused_with_what_is_accepted(admin: Browser):
    home = await made(admin, "Refusing")
    for form, fault in (
        ({"name": ""}, "1 to 100 characters"),
        ({"name": "Refusing"}, "already"),
        ({"name": "x", "markup": "much"}, "a percentage with at most two decimals"),
        ({"name": "x", "markup": "-100"}, "out of range"),
        ({"name": "x", "basis": "LUCK"}, "accepted: PRICE"),
        ({"name": "x", "basis": "basis"}, "accepted: PRICE"),
    ):
        assert fault in await does(admin, LISTS, **{"basis": "PRICE", "markup": "1"} | form)
    for form, fault in (
        ({"package": "NO-SUCH", "price": "1"}, "no package"),
        ({"package": "TEST-OK", "price": "free"}, "must be a decimal"),
        ({"package": "TEST-OK", "price": "list"}, "has no exception"),
        ({"package": "TEST-OK"}, "are needed"),
    ):
        assert fault in await does(admin, f"{home}/exceptions", **form)
    for typed, fault in (
        ("Nobody", "No dealer Nobody. Enter a number such as 10001, or a whole name"),
        ("1", "No dealer 1. Enter"),
        ("", "Dealer: nothing is given; accepted is its number or its whole name"),
    ):
        assert fault in await does(admin, f"{home}/assign", dealer=typed)
    assert "A dealer is needed" in await does(admin, f"{home}/unassign", dealer="Nobody")


# The commands


async def test_the_commands_do_the_same(service: Service, dealer: ApiClient, tmp_path: Path):
    env = environment(service.settings.database_url)

    async def ok(*arguments: str) -> str:
        done = await run(*arguments, env=env)
        assert done.status == 0, done.err
        return done.out

    number = json.loads(await ok("price-list", "create", "Shell", "--markup", "10", "--json"))["priceListId"]
    await ok("price-list", "assign", "Shell", str(dealer.tenant_id))
    await ok("price-list", "set", "Shell", "--markup", "20", "--price", "TEST-DELAY=1.11")
    await paid(dealer, "TEST-OK", "2.16")
    await paid(dealer, "TEST-DELAY", "1.11")
    shown = json.loads(await ok("price-list", "show", str(number), "--json"))
    assert shown["dealers"][0]["tenantId"] == str(dealer.tenant_id)
    packages = {one["packageCode"]: (one["price"], one["exception"]) for one in shown["packages"]}
    assert (packages["TEST-OK"], packages["TEST-DELAY"]) == (("2.16", False), ("1.11", True))
    assert "Shell" in await ok("price-list", "list")
    file = tmp_path / "list.csv"
    await ok("price-list", "export", "Shell", str(file))
    plan = json.loads(await ok("price-list", "import", "Shell", str(file), "--preview", "--json"))
    assert plan["changes"] == [] and plan["faults"] == []
    file.write_text("packageCode,price\nTEST-ASYNC,3.21\n")
    plan = json.loads(await ok("catalog", "import", str(file), "--preview", "--json"))
    assert [change["fields"] for change in plan["changes"]] == [
        [{"column": "price", "before": "1.80", "after": "3.21"}]
    ]
    await ok("catalog", "import", str(file), "--version", plan["version"])
    assert json.loads(await ok("catalog", "show", "TEST-ASYNC"))["price"] == "3.21"
    done = await run("catalog", "set", "TEST-ASYNC", "--set", "price=1.80", "--version", "0" * 16, env=env)
    assert done.status == 1 and "price is 3.21 now, yours is 1.80" in done.err
    await ok("catalog", "set", "TEST-ASYNC", "--set", "price=1.80")
    await ok("catalog", "withdraw", "TEST-ASYNC")
    await paid(dealer, "TEST-ASYNC", None)
    await ok("catalog", "offer", "TEST-ASYNC")
    assert (await ok("catalog", "export")).startswith("packageCode,slug,")
    await ok("price-list", "unassign", str(dealer.tenant_id))
    await ok("price-list", "remove", "Shell")
    assert "no price list" in (await run("price-list", "show", "Shell", env=env)).err
