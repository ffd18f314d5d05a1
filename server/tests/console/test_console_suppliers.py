"""Suppliers without a shell: set up, tested, routed, changed and removed by forms, with real suppliers on sockets."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from playwright.async_api import Page, expect

from dealer_server import clock
from dealer_server.console.operator.suppliers import fields, supplier
from dealer_server.operations.suppliers.check import check_health
from dealer_server.operations.suppliers.configure import put_supplier, set_route
from dealer_server.operations.suppliers.describe import load_supplier
from dealer_server.store.console.supplier_work import CallRow
from dealer_server.suppliers import registry
from support.browser import Browser, said, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.operator_pages import acts, does, fill, park, see, text_of
from support.supplier_setup import hop
from support.suppliers.purchases import PurchaseFixture, purchase_fixture

NEW, NEAR, SETTINGS = "/console/suppliers/new", "/console/suppliers/rt:near", "/console/suppliers/rt:near/settings"
ROUTE = "/console/packages/TEST-OK/route"


@pytest.fixture
async def market(postgres: str, template: str) -> AsyncIterator[PurchaseFixture]:
    async with purchase_fixture(postgres, template) as market:
        yield market
        assert await market.service.audit() == []


@pytest.fixture
async def admin(market: PurchaseFixture) -> AsyncIterator[Browser]:
    async with signed_in(market.service) as admin:
        yield admin


def reseller(market: PurchaseFixture, **changed: str) -> dict[str, str]:
    settings = market.near.settings
    given = {"baseUrl": settings.base_url, "accessCode": settings.access_code, "secretKey": settings.secret_key}
    return {"kind": "rt_upstream", "code": "rt:new"} | given | changed


def hidden(html: str, name: str = "version") -> str:
    return html.partition(f'name="{name}" value="')[2].partition('"')[0]


def row(at: int, supplier: str, cost: str = "1.60", sku: str = "JC016", currency: str = "USD") -> dict[str, str]:
    return {f"supplier-{at}": supplier, f"sku-{at}": sku, f"cost-{at}": cost, f"currency-{at}": currency}


async def settings_of(market: PurchaseFixture, code: str) -> dict[str, object]:
    async with market.service.database.connection() as connection:
        supplier = await load_supplier(connection, market.setup.keys, code)
    return msgspec.json.decode(supplier.settings)


def test_every_setting_of_every_kind_has_a_field():
    assert fields.KINDS.keys() == registry.KINDS.keys()
    for name, kind in registry.KINDS.items():
        settings = {one.encode_name for one in msgspec.structs.fields(kind.settings)} - {"mark"}
        assert {field.name for field in fields.KINDS[name].fields} == settings, name


# Settings


async def test_a_supplier_is_set_up_tested_and_removed(market: PurchaseFixture, admin: Browser):
    page = await see(admin, NEW)
    assert all(kind.title in page for kind in fields.KINDS.values())
    page = await does(admin, NEW, **reseller(market))
    assert "rt:new is set up" in page and "None: nothing is bought here" in page
    assert market.near.settings.secret_key not in (await admin.get("/console/suppliers/rt:new/settings")).text
    tested = text_of((await fill(admin, "/console/suppliers/rt:new/check")).text)
    assert "The supplier answers · balance 100,000.00 USD" in tested
    assert "rt:new is removed" in await does(admin, "/console/suppliers/rt:new/remove")
    assert "rt:near stays: package TEST-OK is routed to it" in await does(admin, f"{NEAR}/remove")
    assert [act.action for act in await acts(market.service, "supplier.remove")] == ["supplier.remove"]


async def test_a_chain_and_an_smdp_are_set_up_by_their_own_fields(market: PurchaseFixture, admin: Browser):
    chain = {"kind": "chain", "code": "chain:b", "appKey": "ak_test_1", "appSecret": "a secret of theirs"}
    assert "chain:b is set up" in await does(admin, NEW, baseUrl="http://127.0.0.1:9", **chain)
    own = await fill(admin, NEW, baseUrl=market.service.url, **chain | {"code": "chain:me"})
    assert "this service's own address" in text_of(own.text)
    refused = await fill(
        admin, NEW, kind="es2plus", code="es2:a", baseUrl="http://plain", ca="x", notificationTable="{"
    )
    assert refused.status_code == 400
    for told in ("Base URL", "Requester ID", "SM-DP+ address", "Their CA certificate", "Our private key"):
        assert told in text_of(refused.text)
    assert refused.text.count('aria-invalid="true"') >= 4


async def test_what_was_wrong_with_each_field_is_said_and_what_is_accepted(market: PurchaseFixture, admin: Browser):
    wrong = reseller(market, code="RT EA", baseUrl="ftp://x", accessCode="a b", perSecond="many", senderIps="here")
    page = (await fill(admin, NEW, **wrong)).text
    assert "a code is 1 to 64 of a-z" in text_of(page)
    wrong["code"] = "rt:new"
    page = text_of((await fill(admin, NEW, **wrong)).text)
    for told in (
        "“ftp://x” is not accepted: it must be an address such as https://api.example.com.",
        "“a b” is not accepted: it must be 1 to 128 printed characters",
        "“many” is not accepted: it must be a number above 0 such as 8.",
    ):
        assert told in page
    assert market.near.settings.secret_key not in page
    page = text_of((await fill(admin, NEW, **reseller(market, senderIps="here"))).text)
    assert "“here” is not accepted: it must be IP addresses or networks" in page
    page = text_of((await fill(admin, NEW, **reseller(market, code="rt:near"))).text)
    assert "there is a supplier rt:near already" in page


async def test_a_secret_that_is_not_filled_in_stays(market: PurchaseFixture, admin: Browser):
    before = await settings_of(market, "rt:near")
    form = {name: text for name, text in reseller(market, secretKey="", perSecond="5").items() if name != "code"}
    version = hidden((await admin.get(SETTINGS)).text)
    assert "The settings are saved" in await does(admin, SETTINGS, version=version, **form)
    after = await settings_of(market, "rt:near")
    assert after == before | {"perSecond": 5.0}
    version = hidden((await admin.get(SETTINGS)).text)
    await does(admin, SETTINGS, version=version, **form | {"secretKey": "another secret"})
    assert (await settings_of(market, "rt:near"))["secretKey"] == "another secret"
    assert all("another secret" not in act.detail for act in await acts(market.service, "supplier.set"))


async def test_settings_that_were_changed_meanwhile_are_not_overwritten(market: PurchaseFixture, admin: Browser):
    version = hidden((await admin.get(SETTINGS)).text)
    theirs = msgspec.json.encode({"perSecond": 3})
    keys, database = market.setup.keys, market.service.database
    await put_supplier(database, keys, "rt:near", "rt_upstream", theirs, "http://ours", "test", keep=True)
    form = reseller(market, secretKey="", perSecond="7") | {"readSeconds": "30"}
    form["readSeconds"] = "35"
    sent = await fill(admin, SETTINGS, version=version, **form)
    again = (await admin.get(sent.headers["location"])).text
    refused = text_of(again)
    assert "Somebody else changed this while your form was open" in refused and "Rate limit 3 7" in refused
    assert (await settings_of(market, "rt:near"))["perSecond"] == 3
    assert re.search('value="7"[^>]*id="field-perSecond"', again), "the form has what was filled in"
    await does(admin, SETTINGS, version=hidden(again), **form)
    assert (await settings_of(market, "rt:near"))["perSecond"] == 7
    version = hidden((await admin.get(SETTINGS)).text)
    await does(admin, SETTINGS, version=version, **form | {"secretKey": "theirs"})
    refused = await does(admin, SETTINGS, version=version, **form | {"secretKey": "mine"})
    assert re.search("Secret key secret ([0-9a-f]{6}) secret (?!\\1)[0-9a-f]{6} ", refused)
    assert (await settings_of(market, "rt:near"))["secretKey"] == "theirs"


async def test_only_an_admin_who_gave_the_password_lately_touches_settings(market: PurchaseFixture, admin: Browser):
    async with market.service.database.connection() as connection:
        await connection.execute("UPDATE console_session SET sure_at = sure_at - interval '1 hour'")
    assert "Confirm" in await see(admin, SETTINGS) or "Is it you" in await see(admin, SETTINGS)
    for role in ("finance", "support", "readonly"):
        async with signed_in(market.service, role) as other:
            assert "rt:near" in await see(other, NEAR)
            assert "JC016" in (await other.get(ROUTE)).text
            assert (await other.get(SETTINGS)).status_code == 403
            for path in (f"{NEAR}/settings", f"{NEAR}/remove", f"{NEAR}/status", NEW, ROUTE):
                assert (await other.post(path)).status_code == 403, path


# Test


async def test_a_test_says_what_was_wrong(market: PurchaseFixture, admin: Browser):
    version = hidden((await admin.get(SETTINGS)).text)
    wrong = {name: text for name, text in reseller(market, secretKey="wrong").items() if name != "code"}
    await does(admin, SETTINGS, version=version, **wrong)
    page = text_of((await fill(admin, f"{NEAR}/check")).text)
    assert "The supplier does not answer: 101003" in page and "fill the secret in again" in page
    await market.near.leave()
    page = text_of((await fill(admin, f"{NEAR}/check")).text)
    assert "refuses connections" in page and "compare the base URL" in page


async def test_a_test_ends_in_time(market: PurchaseFixture):
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = msgspec.json.encode({"baseUrl": f"http://127.0.0.1:{port}"})
        keys, database = market.setup.keys, market.service.database
        await put_supplier(database, keys, "rt:far", "rt_upstream", settings, "http://ours", "test", keep=True)
        health = await check_health(database, keys, "rt:far", seconds=0.2)
    assert (health.up, health.detail) == (False, "no answer in 0.2 seconds")


# Routes


async def test_a_route_is_edited_as_a_whole_and_saved_once(market: PurchaseFixture, admin: Browser):
    version = hidden((await admin.get(ROUTE)).text)
    both = row(0, "rt:near") | row(1, "rt:far", "1.70") | {"version": version, "floor": "5"}
    page = (await fill(admin, ROUTE, do="down:0", **both)).text
    assert page.index("<option selected>rt:far") < page.index("<option selected>rt:near") and "Not saved yet" in page
    page = (await fill(admin, ROUTE, do="remove:1", **both)).text
    assert "<option selected>rt:far" not in page
    page = (await fill(admin, ROUTE, do="add", **both)).text
    assert 'name="supplier-2"' in page
    told = len(await acts(market.service, "supplier.route"))
    swapped = row(0, "rt:far", "1.70") | row(1, "rt:near") | {"version": version, "floor": "5", "do": "save"}
    assert "TEST-OK is made by rt:far, then rt:near" in await does(admin, ROUTE, **swapped)
    assert await market.rows("SELECT supplier, cost FROM route WHERE package_code = 'TEST-OK' ORDER BY position") == [
        ("rt:far", 17_000),
        ("rt:near", 16_000),
    ]
    [last, *_] = found = await acts(market.service, "supplier.route")
    assert len(found) == told + 1 and json.loads(last.detail)["floorAfter"] == 500
    assert "First" in await see(admin, "/console/suppliers/rt:far")


async def test_what_is_wrong_with_a_route_is_said_at_its_fields(market: PurchaseFixture, admin: Browser):
    wrong = row(0, "rt:near", "1.x") | row(1, "rt:near", "1", "") | row(2, "nobody", "", currency="?") | row(3, "stock")
    page = await fill(admin, ROUTE, version=hidden((await admin.get(ROUTE)).text), floor="200", **wrong)
    text = text_of(page.text)
    assert page.status_code == 400
    for told in (
        "“1.x” is not accepted: it must be an amount such as 1.80",
        "rt:near stands on the route already",
        "Missing: what the supplier calls the package",
        "“nobody” is no supplier: choose one of rt:far, rt:near, stock.",
        "“?” is not accepted: it must be an ISO 4217 currency",
        "stock can only be the first of a route",
        "“200” is not accepted: it must be percent from 0 to 100",
    ):
        assert told in text, told
    page = await fill(admin, ROUTE, version=hidden((await admin.get(ROUTE)).text), floor="")
    assert "A route names at least one supplier" in text_of(page.text)
    assert (await admin.get("/console/packages/NO-SUCH/route")).status_code == 404


async def test_a_route_that_was_changed_meanwhile_is_not_overwritten(market: PurchaseFixture, admin: Browser):
    version = hidden((await admin.get(ROUTE)).text)
    await set_route(market.service.database, "TEST-OK", [hop("rt:far", "OTHER")], "test", clock.now)
    mine = row(0, "rt:near", "1.60") | {"floor": "", "do": "save"}
    refused = await fill(admin, ROUTE, version=version, **mine)
    assert refused.status_code == 409 and "Somebody else changed this" in text_of(refused.text)
    assert "Position 1 rt:far as OTHER, 1.80 USD rt:near as JC016, 1.60 USD" in text_of(refused.text)
    assert "is made by rt:near" in await does(admin, ROUTE, version=hidden(refused.text), **mine)


async def test_a_cost_above_what_a_dealer_pays_is_warned_of(market: PurchaseFixture, admin: Browser):
    await market.service.tenant(name="Cheap Roaming", markup="-20")
    page = await see(admin, ROUTE)
    assert "At the dealer price: margin 0.00 USD = 0 %" in page
    assert "Cost above what a dealer pays: Cheap Roaming 1.44 USD" in page
    assert "Above a dealer's price" in await see(admin, NEAR)
    form = row(0, "rt:near", "1.75") | {"floor": "5", "do": "down:9"}
    page = text_of((await fill(admin, ROUTE, **form)).text)
    assert "Orders at the dealer price skip it: the cost 1.75 USD leaves 2.78 %" in page


# The page of a supplier


async def test_a_supplier_shows_its_calls_its_errors_and_what_waits(market: PurchaseFixture, admin: Browser):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    await market.client.delivered((await market.client.order()).data["orderNo"])
    market.near.fault("esim/order", *["200007"] * 50)
    orders = [(await market.client.order()).data["orderNo"] for _ in range(3)]  # fewer failures are chance
    await market.becomes("SELECT count(*)::int FROM purchase WHERE reason LIKE 'INSUFFICIENT_FUNDS%'", 3)
    page = await see(admin, NEAR)
    assert re.search(
        r"Last failure .*?: our balance at the supplier is too low. Top up our balance at the supplier\. Edit route",
        page,
    )
    waits = page[page.index("Waiting orders") : page.index("Recent purchases")]
    plain = "Our balance at the supplier is too low. Top up our balance at the supplier."
    said = f"{plain} INSUFFICIENT_FUNDS: 200007 as the test wants it"
    assert all(one in waits for one in orders) and said in waits
    packages_from = page.index("Routed packages", page.index("Recent purchases"))
    calls = page[page.index("Recent purchases") : packages_from]
    failed = "Failed 3 orders Our balance at the supplier is too low INSUFFICIENT_FUNDS: 200007 "
    assert "Bought" in calls and failed in calls and "TEST-OK 1 GB 7 days Test dealer Failed" in calls
    assert re.search(r"[0-9]+ of [0-9]+ calls failed", page)
    packages = page[packages_from:]
    assert "TEST-OK" in packages and "JC016" in packages and "1.80 USD" in packages
    listed = await see(admin, "/console/suppliers")
    assert re.search(
        r"Supplier rt:near has been degraded since .*?, the latest failed: our balance at the supplier is", listed
    )
    assert re.search(
        r"rt:near RT reseller API Degraded less than 95 % succeeded [0-9.]+ % [0-9]+ of [0-9]+ failed .*? rt:far ",
        listed,
    )
    assert re.search(r"Healthy suppliers\s1 of 2 ", await see(admin, "/console"))
    async with market.service.database.connection() as connection:
        await connection.execute(
            "UPDATE supplier_call c SET sent_at = sent_at - interval '2 days' WHERE NOT EXISTS"
            " (SELECT FROM purchase p WHERE p.profile_id = c.profile_id AND p.failures > 0)"
        )
    none = r"none of ([0-9]+) calls succeeded in the last 24 hours"
    overview, listed = await see(admin, "/console"), await see(admin, "/console/suppliers")
    assert re.search(rf"Supplier rt:near has been failing since .*? {none}", overview), overview
    assert re.search(r"Healthy suppliers\s1 of 2 rt:far Up rt:near Failing", overview)
    row = r"rt:near RT reseller API Failing no call succeeded 0 % \1 of \1 failed"
    assert re.search(rf"{none}.*? {row}", listed), listed
    assert re.search(r"Supplier rt:near has been failing since .*? Last failure ", await see(admin, NEAR))
    assert "rt:near is failing : it is the only supplier" in await see(admin, "/console/packages/TEST-OK")
    assert re.search(rf"Supplier rt:near has been failing .*?{none[1:]}", await see(admin, "/console/notices"))


async def test_a_few_failures_are_told_in_grey_for_they_are_no_notice(market: PurchaseFixture, admin: Browser):
    await set_route(market.service.database, "TEST-OK", [hop("rt:near", "JC016")], "test", clock.now)
    await market.client.delivered((await market.client.order()).data["orderNo"])
    market.near.fault("esim/order", "200011")
    await market.client.order()
    await market.becomes("SELECT count(*)::int FROM purchase WHERE reason LIKE 'OUT_OF_STOCK%'", 1)
    page = await see(admin, NEAR)
    advised = r"Ask the supplier for stock, [^.]+\. Last failure [^ ]+ ?: out of stock\. OUT_OF_STOCK"
    found = re.search(rf"1 of ([0-9]+) calls failed .*? {advised}", page)
    assert found, page
    assert "near Up RT" in page and "Edit route View failed order" in page
    listed = await see(admin, "/console/suppliers")
    said = f"rt:near RT reseller API Up degraded once 3 calls have failed [0-9.]+ % 1 of {found[1]} failed "
    assert re.search(said, listed), listed
    assert re.search(r"simulated Test environment Makes test eSIMs and buys nothing [\d,]+ ", listed), listed
    assert re.search(r"Healthy suppliers\s2 of 2 rt:far Up rt:near Up ", await see(admin, "/console"))
    assert f"rt:near Up · 1 of {found[1]} calls failed" in await see(admin, "/console/packages/TEST-OK")
    for path in (NEAR, "/console/suppliers", "/console/packages/TEST-OK"):
        assert "below-norm" not in (await admin.get(path)).text
    before = clock.now().astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=23, seconds=30)
    async with market.service.database.connection() as connection:  # 24 hours begin with a full hour
        await connection.execute(
            "UPDATE supplier_call SET sent_at = $1 WHERE supplier = 'rt:near' AND outcome !~ '^REJECTED'", before
        )
    page = await see(admin, NEAR)
    assert (both := re.search(r" of ([0-9]+) calls? failed .*?Calls ([0-9]+) in 24 hours", page)), page
    assert both[1] == both[2]
    async with market.service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO supplier_call (tenant_id, profile_id, position, number, supplier, kind, step, sent_at,"
            " answered_at, outcome) SELECT tenant_id, profile_id, position, 1000 + n, supplier, kind, step, $1, $1,"
            " outcome FROM supplier_call, generate_series(1, 24) n WHERE supplier = 'rt:near' AND number = 1",
            clock.now() - timedelta(days=3),
        )
    assert re.search(r"Calls [0-9]+ in 7 days 24 hours 7 days 30 days .*?Show as table", await see(admin, NEAR))
    assert "too few for a chart" in await see(admin, f"{NEAR}?range=24h")


async def test_a_supplier_shows_its_first_packages_and_all_of_them_when_asked(market: PurchaseFixture, admin: Browser):
    database = market.service.database
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT package_code FROM package ORDER BY document->>'package_name', 1")
        codes = [row["package_code"] for row in rows]
    for code in codes[: supplier.ROUTED + 1]:
        await set_route(database, code, [hop("rt:near", code)], "test", clock.now)
    page = await see(admin, NEAR)
    listed = page[page.index("Routed packages", page.index("Recent purchases")) :]
    assert "The only supplier of each." in listed and "Position" not in listed and "Their code" not in listed
    assert re.search(r"All [0-9]+ packages", listed) and codes[0] in listed and codes[supplier.ROUTED] not in listed
    assert codes[supplier.ROUTED] in await see(admin, f"{NEAR}?packages=all")


OF = (10001, "TEST-OK")
"""The dealer and the package of calls."""


def test_calls_in_a_row_with_the_same_result_are_one():
    at = datetime(2026, 11, 20, 7, 0, tzinfo=UTC)
    outcomes = ["DONE", "REJECTED TEMPORARY", "REJECTED TEMPORARY", "REJECTED TEMPORARY", "DONE"]
    calls = [
        CallRow(order_id, f"u-{order_id}", "ALLOCATE", "", at - timedelta(minutes=order_id), at, outcome, None, *OF)
        for order_id, outcome in enumerate(outcomes)
    ]
    runs = [(run.latest.order_id, run.more, run.since) for run in supplier._runs(calls)]
    assert runs == [
        (0, 0, at),
        (1, 2, at - timedelta(minutes=3)),
        (4, 0, at - timedelta(minutes=4)),
    ]


def test_calls_about_one_unit_are_one_purchase():
    at = datetime(2026, 11, 20, 7, 0, tzinfo=UTC)
    sent = at - timedelta(seconds=5)
    calls = [
        CallRow(7, "u-7", "ALLOCATE", "QUERY", at, at + timedelta(seconds=1), "DONE", None, *OF),
        CallRow(8, "u-8", "ALLOCATE", "", at, None, None, None, *OF),
        CallRow(7, "u-7", "ALLOCATE", "", sent, sent, "PENDING", None, *OF),
    ]
    runs = [(run.latest.result, run.calls, run.seconds, run.more) for run in supplier._runs(calls)]
    assert runs == [("Bought", 2, 6.0, 0), ("No answer yet", 1, None, 0)]


def test_esims_of_one_order_that_went_alike_are_one_row():
    at = datetime(2026, 11, 20, 7, 0, tzinfo=UTC)
    calls = [
        CallRow(order_id, unit, "ALLOCATE", "", at - timedelta(seconds=3), at, outcome, None, *OF)
        for order_id, unit, outcome in (
            *((7, "u-1", "DONE"), (7, "u-2", "DONE"), (8, "u-3", "DONE")),
            *((9, "u-4", "REJECTED OUT_OF_STOCK"), (9, "u-5", "REJECTED OUT_OF_STOCK")),
            (6, "u-6", "REJECTED OUT_OF_STOCK"),
        )
    ]
    runs = [(run.latest.order_id, run.esims, run.calls, run.seconds, run.more) for run in supplier._runs(calls)]
    assert runs == [(7, 2, 2, 3.0, 0), (8, 1, 1, 3.0, 0), (9, 2, 2, 3.0, 1)]


async def test_an_unconfirmed_purchase_is_settled_on_the_page_of_its_supplier(market: PurchaseFixture, admin: Browser):
    _, unit = await park(market.service, market.client)
    assert unit in await see(admin, NEAR)
    answered = await fill(admin, "/console/suppliers/resolve", unit=unit, outcome="not bought", of="rt:near")
    assert answered.headers["location"] == NEAR
    assert f"{unit} is resolved" in said(await admin.get(NEAR))


async def test_iccids_are_loaded_by_a_form(market: PurchaseFixture, admin: Browser):
    page = await does(admin, f"{NEAR}/iccids", sku="TYPE", iccids="8944538532008160222\n\n")
    assert "1 new ICCID for TYPE" in page and "ICCIDs left TYPE 1" in page
    assert "line 1" in await does(admin, f"{NEAR}/iccids", sku="TYPE", iccids="12")
    assert "Profile type" in await does(admin, f"{NEAR}/iccids", iccids="8944538532008160222")


# In a browser


@needs_chromium
@pytest.mark.parametrize(("width", "scripts"), [(1440, True), (390, False)])
async def test_a_supplier_created_tested_and_routed_delivers_an_order(
    market: PurchaseFixture, admin: Browser, width: int, scripts: bool
):
    async with opened() as chromium:
        size = {"width": width, "height": 900}
        context = await chromium.new_context(viewport=size, java_script_enabled=scripts)  # pyright: ignore[reportArgumentType]
        if scripts:
            await context.add_init_script(AXE)
        await context.add_cookies([{"name": "dealer_console", "value": admin.token, "url": market.service.url}])
        page = await context.new_page()
        faults = page_faults(page)
        await page.goto(f"{market.service.url}/console/suppliers")
        await _set_up(page, market, scripts)
        await _routed(page, market, scripts)
        order = await market.client.delivered((await market.client.order()).data["orderNo"])
        assert (order["deliveryStatus"], market.sold()) == ("DELIVERED", (0, 1))
        assert await market.states() == [("rt:new", "DONE")]
        await page.goto(f"{market.service.url}/console/suppliers/rt:new")
        await expect(page.locator("#main")).to_contain_text("Bought")
        await expect(page.locator("#main")).to_contain_text("TEST-OK 1 GB 7 days")
        assert not scripts or await barriers(page) == []
        assert faults == []


async def _set_up(page: Page, market: PurchaseFixture, scripts: bool) -> None:
    """By the keyboard where it matters: Enter sends the form."""
    far = market.far.settings
    await page.get_by_role("link", name="New supplier").click()
    await page.get_by_role("link", name="RT reseller API").click()
    assert not scripts or await barriers(page) == []
    await page.locator("#field-code").fill("rt:new")
    await page.get_by_label("Base URL").fill(far.base_url)
    await page.get_by_label("Access code").fill(far.access_code)
    await page.get_by_label("Secret key").fill(far.secret_key)
    await page.get_by_label("Secret key").press("Enter")
    await expect(page.get_by_role("status")).to_contain_text("rt:new is set up")
    if await (more := page.get_by_role("button", name="More actions")).is_visible():  # on a phone
        await more.click()
    await page.get_by_role("button", name="Test connection").click()
    await expect(page.get_by_role("status")).to_contain_text("The supplier answers · balance 100,000.00 USD")
    assert not scripts or await barriers(page) == []


async def _routed(page: Page, market: PurchaseFixture, scripts: bool) -> None:
    """The new supplier first: added, filled in, moved up twice, and the old ones removed."""
    await page.goto(f"{market.service.url}{ROUTE}")
    await page.get_by_role("button", name="Add a supplier").click()
    await page.get_by_label("Supplier of position 3").select_option("rt:new")
    await page.get_by_label("Their code of position 3").fill("JC016")
    await page.get_by_label("Cost of position 3").fill("1.80")
    for position in (3, 2):
        await page.get_by_role("button", name=f"Move position {position} up").click()
    await expect(page.get_by_label("Supplier of position 1")).to_have_value("rt:new")
    await expect(page.get_by_role("status").first).to_contain_text("Not saved yet")
    assert not scripts or await barriers(page) == []
    for _ in range(2):
        await page.get_by_role("button", name="Remove position 2").click()
    await page.get_by_label("Cost of position 1").press("Enter")
    await expect(page.locator(".flash")).to_contain_text("TEST-OK is made by rt:new")
