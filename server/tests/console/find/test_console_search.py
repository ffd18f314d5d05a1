"""What people type finds what they mean; lists have views of one's own; forms outlive a session."""

import re
import secrets
from datetime import timedelta

import pytest

from dealer_server.console.find.hits import Found, Group, Hit
from dealer_server.operations.search.collect import SearchCollector
from dealer_server.operations.users import sessions
from support.api_client import ApiClient, Service
from support.browser import Browser, said, signed_in
from support.console.operator_pages import see, text_of
from support.reports import folded


async def collected(service: Service) -> None:
    """All orders there are, as if a minute had passed."""
    now = service.database.clock.now() + timedelta(minutes=3)
    collector = SearchCollector(service.database, lambda: now)
    await collector.collect()
    await collector.close()


async def who_and_csrf(one: Browser, path: str) -> dict[str, str]:
    page = (await one.get(path)).text
    found = re.search(r'name="csrf" value="(\w+)"><input type="hidden" name="once" value="(\w+)"[^>]*>'
                      r'<input type="hidden" name="who" value="([^"]+)"', page)  # fmt: skip
    assert found
    return {"csrf": found[1], "once": found[2], "who": found[3]}


@pytest.mark.parametrize("is_collected", [False, True])
async def test_an_order_is_found_by_a_part_of_its_texts(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser, is_collected: bool
) -> None:
    mark = f"{'abc' if is_collected else 'xyz'}{dealer.tenant_id}"
    mine = (await dealer.order(transactionId=f"Shop-{mark}-TAIL", remark=f"Für Größe {mark} Lyon 100%_")).data
    theirs = (await stranger.order(transactionId=f"other-{mark}")).data
    await dealer.delivered(mine["orderNo"])
    if is_collected:
        await collected(service)
    page = await see(admin, f"/console/search?q={mark}")
    assert mine["orderNo"] in page and theirs["orderNo"] in page and "part of the transactionId" not in page
    for typed in (f"{mark}-tail", f"größe {mark}", f"lyon {mark[2:]}", "100%25_"):
        found = await admin.get(f"/console/search?q={typed}", **{"HX-Request": "true"})
        assert mine["orderNo"] in found.text and theirs["orderNo"] not in found.text, typed
    async with signed_in(service, "finance", int(dealer.tenant_id)) as own:
        found = (await own.get(f"/console/search?q={mark}", **{"HX-Request": "true"})).text
        assert mine["orderNo"] in found and theirs["orderNo"] not in found


async def test_an_esim_is_found_by_the_end_of_its_iccid(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
) -> None:
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    profile = order["items"][0]["profiles"][0]
    for digits in (4, 8):
        found = await admin.get(f"/console/search?q={profile['iccid'][-digits:]}", **{"HX-Request": "true"})
        assert profile["iccid"] in found.text and "end of the ICCID" not in found.text, "the title shows it"
    async with signed_in(service, "admin", int(stranger.tenant_id)) as other:
        assert profile["iccid"] not in (await other.get(f"/console/search?q={profile['iccid'][-8:]}")).text


async def test_packages_and_dealers_are_found_by_a_part_of_their_name(dealer: ApiClient, admin: Browser) -> None:
    page = await see(admin, "/console/search?q=test-")
    assert "TEST-OK" in page and "package code" not in page and re.search(r"Show all \d+ packages", page)
    assert 'href="/console/packages?q=test-"' in (await admin.get("/console/search?q=test-")).text
    assert "<mark>TEST-</mark>OK" in (await admin.get("/console/search?q=test-")).text, "what matched is marked"
    named = await see(admin, "/console/search?q=7 days")
    assert "1 GB 7 days" in named and "package name" not in named and "newest" not in page
    assert (await admin.get("/console/search?q=test-ok")).headers["location"] == "/console/packages/TEST-OK"
    assert "No match for" in await see(admin, "/console/search?q=no-such-thing-here")


async def test_a_dealer_finds_what_it_can_buy_and_the_list_of_a_number(service: Service, dealer: ApiClient) -> None:
    topup = (await dealer.post("/account/topup", {"transactionId": "search-1", "amount": "5"})).data["topupNo"]
    async with signed_in(service, "finance", int(dealer.tenant_id)) as own:
        page = (await own.get("/console/search?q=TEST-")).text
        total = re.search(r'href="/console/catalogue\?q=TEST-">Show all (\d+) packages<', page)
        assert total and int(total[1]) > 8 and page.count('class="thing hit"') == 8
        assert f"{total[1]} packages" in (await own.get("/console/catalogue?q=TEST-")).text
        there = (await own.get(f"/console/search?q={topup}")).headers["location"]
        assert there.startswith("/console/wallet/topups?before=") and topup in (await own.get(there)).text
        empty = await see(own, "/console/search?q=no-such-thing-here")
        assert "No match for" in empty and "Dealers A part of the name" not in empty


async def test_what_is_bought_most_is_found_first(service: Service, dealer: ApiClient, admin: Browser) -> None:
    for code in ("TEST-SLOW", "TEST-OK", "TEST-OK"):
        await dealer.order(code)
    await folded(service.database)
    async with signed_in(service, "finance", int(dealer.tenant_id)) as own:
        for one in (own, admin):
            page = await see(one, "/console/search?q=TEST-")
            first = re.findall(r"TEST-[A-Z-]+\b", page.partition("Package ")[2])
            assert re.search("(Dealer p|P)rice, USD", page) and first[0] == "TEST-OK"
            assert ("Sold, 30 days" in page) == (one is admin), "what sold most stands first"


# Type-ahead fields


async def test_a_field_for_dealers_takes_a_number_or_the_whole_name(service: Service, admin: Browser) -> None:
    made = [await service.tenant(name=name) for name in ("Twin House", "Twin House", "بيت الشرائح")]
    for typed in (made[2].tenant_id, "بيت الشرائح", f"بيت الشرائح · {made[2].tenant_id}"):
        page = (await admin.http.get(f"{admin.url}/console/orders", params={"dealer": typed})).text
        assert f"بيت الشرائح · {made[2].tenant_id}" in page
    page = (await admin.http.get(f"{admin.url}/console/orders", params={"dealer": "twin house"})).text
    assert "Several dealers are called twin house" in page and made[0].tenant_id in page
    for path in ("orders", "profiles", "webhooks", "audit", "reports", "users"):
        page = (await admin.http.get(f"{admin.url}/console/{path}", params={"dealer": "nobody at all"})).text
        assert "No dealer nobody at all" in page, path
        marked = "Nothing is listed" in page and "Clear filters" in page and "Export CSV" not in page
        assert marked or path == "users", path
    offered = (await admin.get("/console/lookup/dealers?q=twin", **{"HX-Request": "true"})).text
    assert offered.count('role="option"') == 2 and f"Twin House · {made[1].tenant_id}" in offered


async def test_without_scripts_a_page_finds_a_dealer_for_a_filter(service: Service, admin: Browser) -> None:
    made = await service.tenant(name="Lone House")
    back = "/console/orders?status=FAILED&before=7&trail=9"
    page = (await admin.http.get(f"{admin.url}/console/lookup/dealers", params={"q": "lone", "back": back})).text
    assert f'href="/console/orders?status=FAILED&amp;dealer=Lone+House+%C2%B7+{made.tenant_id}"' in page
    elsewhere = (await admin.get("/console/lookup/dealers?q=lone&back=https://example.com/console/")).text
    assert f'href="/console/dealers/{made.tenant_id}"' in elsewhere and "example.com" not in elsewhere
    found = (await admin.get("/console/lookup/packages?q=TEST-OK&back=/console/orders")).text
    assert 'href="/console/orders?package=TEST-OK"' in found


async def test_small_packages_stand_before_large_ones(admin: Browser) -> None:
    found = (await admin.get("/console/lookup/places?q=fran", **{"HX-Request": "true"})).text
    assert 'data-value="France · FR"' in found and "Europe" in found
    assert "Europe · EU-35" in (await admin.get("/console/lookup/places?q=EU-35", **{"HX-Request": "true"})).text
    found = (await admin.get("/console/lookup/packages?q=FR-")).text
    codes = re.findall(r"\bFR-(\d+)GB-\w+\b", found)
    assert [int(code) for code in dict.fromkeys(codes)] == sorted({int(code) for code in codes}) and "10" in codes


@pytest.mark.parametrize("path", ["orders?from=2026-99-99", "orders?status=NONE", "profiles?state=NONE", "audit?to=x"])
async def test_a_filter_that_is_not_valid_is_marked_and_can_be_cleared(admin: Browser, path: str) -> None:
    page = (await admin.get(f"/console/{path}")).text
    assert "is not" in page and "invalid-feedback" in page and "Nothing is listed" in page and "Clear filters" in page
    assert "Export CSV" not in page


@pytest.mark.parametrize(
    ("path", "title", "way_on"),
    [
        ("audit?action=none.such", "No entries match", "Clear filters"),
        ("reports?package=NO-SUCH", "No sales match", "Clear filters"),
        ("waiting?supplier=nobody", "No items match", "Clear filters"),
        ("refunds?status=REJECTED", "No rejected refunds", "All refunds"),
        ("topups?status=CANCELLED", "No cancelled top-ups", "All top-ups"),
    ],
)
async def test_a_filter_that_finds_nothing_is_named(admin: Browser, path: str, title: str, way_on: str) -> None:
    page = (await admin.get(f"/console/{path}")).text
    assert title in page and way_on in page


async def test_a_filter_that_acts_is_shown_as_chosen(admin: Browser) -> None:
    assert '<option value="nobody" selected>' in (await admin.get("/console/waiting?supplier=nobody")).text


async def test_a_price_is_set_by_the_name_of_its_package(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    answer = await admin.post(f"{home}/prices", {"package": "test-ok", "price": "1.40"})
    assert answer.status_code == 303 and "TEST-OK is 1.40 now" in said(await admin.get(home))
    await admin.post(f"{home}/prices", {"package": "no such package", "price": "1.40"})
    assert "accepted is its code or its whole name" in said(await admin.get(home))


# Views


async def test_filters_are_saved_as_a_view_of_ones_own(service: Service, admin: Browser) -> None:
    path, query = "/console/orders", "status=FAILED&package=TEST-OK"
    assert "Save these filters" in (await admin.get(f"{path}?{query}")).text
    await admin.post("/console/views", {"path": path, "query": query, "name": "  Failed   <b> "})
    page = (await admin.get(f"{path}?{query}")).text
    assert "Failed &lt;b&gt;</bdi>" in page and "Save these filters" not in page
    found = re.search(r"/console/views/(\d+)/delete", page)
    assert found
    async with signed_in(service) as other:
        assert "Failed &lt;b&gt;" not in (await other.get(path)).text
        assert (await other.post(f"/console/views/{found[1]}/delete", {"path": path})).status_code == 404
    await admin.post(f"/console/views/{found[1]}", {"path": path, "name": "Renamed"})
    assert "Renamed</bdi>" in (await admin.get(path)).text
    await admin.post(f"/console/views/{found[1]}/delete", {"path": path})
    assert "Renamed</bdi>" not in (await admin.get(path)).text
    await admin.post("/console/views", {"path": "//elsewhere", "query": query, "name": "Bad"})
    assert "Only filters of a list" in said(await admin.get("/console"))


async def test_dealers_are_ordered_by_their_columns(service: Service, admin: Browser) -> None:
    for name, balance in (("Zz order", "5"), ("Aa order", "7")):
        await service.tenant(name=name, balance=balance)
    for sort, first in (("name", "Aa"), ("-name", "Zz"), ("-balance", "Aa"), ("balance", "Zz"), ("no;such", "Zz")):
        page = (await admin.get(f"/console/dealers?q=%20order&sort={sort}")).text
        assert (page.index("Aa order") < page.index("Zz order")) == (first == "Aa"), sort


# Forms that outlive a session


async def test_a_form_sent_after_signing_out_is_shown_again_and_not_carried_out(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    ours = await who_and_csrf(admin, home)
    await admin.post("/console/sign-out")
    entered = ours | {"direction": "add", "amount": "12.5", "reason": "a <gift>", "new_password": "hush"}
    answer = await admin.send(f"{home}/adjust", entered, Referer=f"{admin.url}{home}")
    assert answer.status_code == 401 and "nothing was sent" in answer.text and "gift" not in answer.text
    kept = re.search(r'name="kept" value="([^"]+)"', answer.text)
    assert kept
    wrong = await admin.sign_in(password="wrong", kept=kept[1])
    assert wrong.status_code == 403 and 'name="kept"' in wrong.text
    back = await admin.sign_in(kept=kept[1])
    assert (back.status_code, back.headers["location"]) == (303, home)
    page = await admin.get(home)
    assert "Your session had ended" in said(page) and 'value="a &lt;gift&gt;"' in page.text and "hush" not in page.text
    assert (await dealer.post("/account/balance")).data["balance"] == "1000.00"
    again = await who_and_csrf(admin, home)
    await admin.send(f"{home}/adjust", again | {"direction": "add", "amount": "12.5", "reason": "a <gift>"})
    assert (await dealer.post("/account/balance")).data["balance"] == "1012.50"
    assert "a &lt;gift&gt;" not in (await admin.get(home)).text.partition("<dialog")[2].partition("</dialog>")[0]


async def test_a_kept_form_is_for_the_user_who_had_opened_it(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    ours = await who_and_csrf(admin, home)
    await admin.post("/console/sign-out")
    answer = await admin.send(f"{home}/adjust", ours | {"reason": "of the first"}, Referer=f"{admin.url}{home}")
    kept = re.search(r'name="kept" value="([^"]+)"', answer.text)
    assert kept
    async with signed_in(service) as other:
        back = await admin.sign_in(other.name, other.password, kept=kept[1])
        assert back.status_code == 303 and "of the first" not in (await admin.get(home)).text
    forged = await admin.send(f"{home}/adjust", {"csrf": "x", "who": "AAAA", "reason": "of nobody"})
    assert forged.status_code == 403


async def test_a_form_opened_before_the_last_sign_in_is_shown_again(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    before = await who_and_csrf(admin, home)
    await admin.sign_in()
    answer = await admin.send(f"{home}/adjust", before | {"reason": "kept"}, Referer=f"{admin.url}{home}")
    assert (answer.status_code, answer.headers["location"]) == (303, home)
    assert 'value="kept"' in (await admin.get(home)).text


async def test_an_idle_session_keeps_its_form_too(service: Service, dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    ours = await who_and_csrf(admin, home)
    async with service.database.connection() as connection:
        await connection.execute("UPDATE console_session SET seen_at = seen_at - $1::interval", sessions.IDLE_TIMEOUT)
    answer = await admin.send(f"{home}/adjust", ours | {"reason": "late"}, Referer=f"{admin.url}{home}")
    assert answer.status_code == 401 and 'name="kept"' in answer.text


# On the wire


async def test_pages_are_compressed_but_those_with_secrets(dealer: ApiClient, admin: Browser) -> None:
    answer = await admin.get("/console/orders", **{"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip" and "Accept-Encoding" in answer.headers["vary"]
    for path in (
        "/console/users",
        "/console/account",
        f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}",
    ):
        assert "content-encoding" not in (await admin.get(path, **{"Accept-Encoding": "gzip"})).headers, path
    assert await admin.csrf() != await admin.csrf()


async def test_fonts_have_names_of_their_own(visitor: Browser) -> None:
    sheet = re.search(r'href="(/console/static/console\.\w{12}\.css)"', (await visitor.get("/console/sign-in")).text)
    assert sheet
    fonts = re.findall(r'url\("(vendor/inter/[^"]+\.\w{12}\.woff2)"\)', (await visitor.get(sheet[1])).text)
    assert len(fonts) == 3
    for font in fonts:
        assert "immutable" in (await visitor.get(f"/console/static/{font}")).headers["cache-control"]
    assert (await visitor.get("/console/static/vendor/inter/inter-latin.woff2")).headers["cache-control"] == "no-cache"


async def test_a_search_says_how_many_of_how_many(service: Service, dealer: ApiClient, admin: Browser) -> None:
    word = f"Kiosk {secrets.token_hex(6)}"
    for number in range(9):
        await service.tenant(name=f"{word} {number}")
    page = await see(admin, f"/console/search?q={word}")
    assert f"Results for “{word}”" in page and "Dealers 8 of 9 Show all 9 dealers" in page
    assert f"{word} 0" in page and f"{word} 8" not in page
    order_no = (await dealer.order()).data["orderNo"]
    alone = (await admin.get(f"/console/search?q={order_no}&kind=orders")).text
    assert alone.count('data-group="') == 1 and 'data-group="Orders"' in alone and order_no in alone


async def test_a_package_that_is_found_leads_to_its_orders(service: Service, dealer: ApiClient, admin: Browser) -> None:
    page = (await admin.get("/console/search?q=TEST-REVIE")).headers.get("location", "")
    assert page == "/console/packages/TEST-REVIEW"
    await dealer.order()
    await folded(service.database)
    async with signed_in(service, "finance", int(dealer.tenant_id)) as own:
        for one in (own, admin):
            found = (await one.get("/console/search?q=TEST-O", **{"HX-Request": "true"})).text
            assert 'href="/console/orders?package=TEST-OK"' in found and "eSIMs by ICCID" in found
            assert "TEST-OK" in (await one.get("/console/orders?package=TEST-OK")).text
    alone = (await admin.get("/console/search?q=TEST-REJE&kind=esims")).text
    assert "/console/orders?package" not in alone


def test_a_short_number_does_not_lead_to_the_delivery_that_has_it_by_chance() -> None:
    for number, leads in (("2611", False), ("261104", True)):
        hit = Hit(f"/console/deliveries/10001/{number}", "delivery id", number)
        assert Found([Group("Webhook deliveries", [hit], "1", "")], None).targets == ({hit.href} if leads else set())


async def test_an_operator_finds_regions_by_name_and_code(service: Service, dealer: ApiClient, admin: Browser) -> None:
    for typed in ("Europe", "eu-35"):
        found = (await admin.get(f"/console/search?q={typed}")).text
        assert 'data-group="Regions"' in found and 'href="/console/packages?region=EU-35"' in found, typed
        assert re.search(r"Region Code and packages Europe EU-35 · [1-9]\d* packages ", text_of(found)), text_of(found)
    async with signed_in(service, "finance", int(dealer.tenant_id)) as own:
        assert 'data-group="Regions"' not in (await own.get("/console/search?q=Europe")).text
