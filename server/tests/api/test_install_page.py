"""The install page through the public door: what it shows at each stage, in each language, on each device; and that
looking at it changes nothing and tells nobody."""

import asyncio
import base64
import gzip
import hashlib
import html
import json
import re
import string
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from dealer_server import clock
from dealer_server.api.install_page.routes import install_page_route
from dealer_server.api.install_page.texts import FOLDER, texts
from dealer_server.db.errors import DatabaseLost
from dealer_server.operations.catalogue.edit_package import WrongFields, edit_package
from dealer_server.operations.tenants.brand import BrandChange, set_brand
from dealer_server.rules.esim import qr
from dealer_server.rules.install.languages import LANGUAGES, Language
from dealer_server.rules.install.stage import STAGES
from support.api_client import ApiClient, Service, running_service
from support.browser import signed_in
from support.money.recharges import advance, recharged
from support.money.refunds import bought, profiles, query, refund
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.supplier_setup import fresh

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1"
OLD_IPHONE = IPHONE.replace("18_1", "16_7")
ANDROID = "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/130.0.0.0 Mobile Safari/537.36"
LOGO = b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><path d="M0 0h9v9z"/></svg>'


async def opened(dealer: ApiClient, url: str, status: int = 200, **headers: str) -> str:
    answer = await dealer.http.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code == status, answer.text[:500]
    return answer.text


async def page_of(dealer: ApiClient, order: dict[str, Any], **headers: str) -> str:
    return await opened(dealer, profiles(order)[0]["installPageUrl"], **headers)


def shows_codes(page: str, profile: dict[str, Any]) -> bool:
    """Whether anything of it installs the eSIM; all that does must be there together."""
    text = html.unescape(page)
    parts = [profile["matchingId"] in text, profile["smdpAddress"] in text, profile["installUrls"]["ios"] in text]
    drawn = re.search(r'class="qr"', page) is not None
    assert all(parts) or not any(parts)
    assert drawn is parts[0]
    return parts[0]


def title(page: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", page)
    assert found
    return html.unescape(found[1])


async def test_the_address_is_wherever_the_qr_link_is(dealer: ApiClient, service: Service):
    order = await bought(dealer)
    [profile] = profiles(order)
    token = profile["qrCodeUrl"].rpartition("/")[2]
    assert profile["installPageUrl"] == f"{service.url}/i/{dealer.tenant_id}-{profile['profileId']}-{token}"
    listed = (await dealer.post("/esim/profile/list", {"profileId": profile["profileId"]})).data["records"]
    assert listed[0]["profile"]["installPageUrl"] == profile["installPageUrl"]


async def test_a_ready_esim_can_be_installed_from_its_page(dealer: ApiClient):
    order = await bought(dealer)
    [profile] = profiles(order)
    page = await page_of(dealer, order)
    assert shows_codes(page, profile) and title(page) == "Install your eSIM"
    text = html.unescape(page)
    assert profile["activationCode"] in text and profile["installUrls"]["android"] in text and profile["iccid"] in text
    words = texts("en")
    for key in ("before_wifi", "before_once", "before_keep", "roaming", "FIRST_NETWORK", "ios_3", "android_3"):
        assert words(key) in text, key
    assert "1\N{NO-BREAK SPACE}GB" in text and "7 days" in text and words("use_by") in text


async def test_the_qr_code_on_the_page_is_that_of_the_esim(dealer: ApiClient):
    order = await bought(dealer)
    drawn = qr.inline_svg(profiles(order)[0]["activationCode"], texts("en")("qr_title"))
    assert drawn in await page_of(dealer, order)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("DOWNLOAD",), "Your eSIM is on your phone"),
        (("DOWNLOAD", "INSTALL", "ENABLE"), "Your eSIM is on your phone"),
        (("DOWNLOAD", "INSTALL", "ENABLE", "START"), "Your eSIM is in use"),
        (("DOWNLOAD", "INSTALL", "ENABLE", "START", "EXPIRE"), "Your plan has ended"),
        (("DOWNLOAD", "INSTALL", "DELETE"), "This eSIM was removed from its phone"),
    ],
)
async def test_after_the_download_no_code_is_shown(dealer: ApiClient, steps: tuple[str, ...], expected: str):
    order = await bought(dealer)
    for step in steps:
        await advance(dealer, order, step)
    for device in ("", IPHONE, ANDROID):
        page = await page_of(dealer, order, User_Agent=device)
        assert title(page) == expected
        assert not shows_codes(page, profiles(order)[0])
        assert "carddata" not in page and "LPA:1$" not in html.unescape(page) and "data-copy=" not in page


async def test_usage_and_times_are_shown_of_an_esim_in_use(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "START")
    used = await advance(dealer, order, "USE", dataUsageBytes=402_653_184)
    page = await page_of(dealer, order)
    text = html.unescape(page)
    assert "of 1\N{NO-BREAK SPACE}GB" in text and "640\N{NO-BREAK SPACE}MB left" in text
    assert 'max="100" value="63"' in page, "of what is left"
    assert '="mailto:' not in page and "used up, the shop where you bought this eSIM can sell you more." in text
    assert "Last reported: " in text and "Get more data" not in text, "no contact is set"
    assert "No internet?" in text and "Countries and networks" in text
    end = datetime.fromisoformat(used["planUseEndTime"])
    assert texts("en").days_left((end - datetime.now(UTC)).days) in text and "Data per day" not in text, "of one day"
    assert f'datetime="{used["planUseEndTime"]}"' in page and f'datetime="{used["planUseStartTime"]}"' in page
    japanese = html.unescape(await page_of(dealer, order, Accept_Language="ja"))
    assert re.search(r"最終報告：<time [^>]*>[^<]*</time></p>", japanese) and "データを使い切った場合は" in japanese
    french = html.unescape(await page_of(dealer, order, Accept_Language="fr"))
    assert "Il reste 640\N{NO-BREAK SPACE}Mo" in french and "1\N{NO-BREAK SPACE}Go" in french


async def test_plans_of_a_recharged_esim_are_shown(dealer: ApiClient):
    order = await bought(dealer)
    await advance(dealer, order, "START")
    await recharged(dealer, order)
    text = html.unescape(await page_of(dealer, order))
    assert "Plans on this eSIM" in text and text.count("In use") + text.count("Begins later") >= 2
    assert "TEST-TOPUP-OK" in text


async def test_a_cancelled_esim_says_so_without_codes(dealer: ApiClient):
    order = await bought(dealer)
    await dealer.post("/esim/profile/cancel", {"profileId": int(profiles(order)[0]["profileId"])})
    page = await page_of(dealer, order)
    assert title(page) == "This eSIM was cancelled" and not shows_codes(page, profiles(order)[0])


async def test_a_refunded_esim_says_so_without_codes(dealer: ApiClient):
    order = await bought(dealer)
    assert (await refund(dealer, order)).data["status"] == "REFUNDED"
    page = await page_of(dealer, order)
    assert title(page) == "This eSIM was cancelled" and not shows_codes(page, profiles(order)[0])


async def test_while_a_refund_is_under_way_no_code_is_shown(dealer: ApiClient):
    order = await bought(dealer, "TEST-REVIEW")
    assert (await refund(dealer, order)).data["status"] == "REFUNDING"
    page = await page_of(dealer, order)
    assert title(page) == "A refund is under way" and not shows_codes(page, profiles(order)[0])


async def test_a_suspended_esim_says_so(dealer: ApiClient):
    order = await bought(dealer)
    await dealer.post("/esim/profile/suspend", {"profileId": int(profiles(order)[0]["profileId"])})
    page = await page_of(dealer, order)
    assert texts("en")("suspended") in page and texts("en")("suspended_state") in page


async def test_an_esim_from_stock_keeps_its_codes(dealer: ApiClient, admin: Any):
    await admin.post("/console/packages/TEST-STOCKOUT/stock", files={"file": stock_csv(1).encode()})
    order = await bought(dealer, "TEST-STOCKOUT")
    page = await page_of(dealer, order)
    assert shows_codes(page, profiles(order)[0]) and "<progress" not in page


# Devices and languages


async def test_the_apn_of_the_package_is_shown_to_travellers_and_in_the_console(
    dealer: ApiClient, service: Service, admin: Any
):
    order = await bought(dealer)
    [profile] = profiles(order)
    assert "APN" not in await page_of(dealer, order)
    for apn in ("a b", "é", "x" * 101):
        with pytest.raises(WrongFields, match="apn must be at most 100 visible ASCII characters"):
            await edit_package(service.database, "TEST-OK", {"apn": apn}, None, "test", clock.now)
    await edit_package(service.database, "TEST-OK", {"apn": "internet.<b>"}, None, "test", clock.now)
    async with asyncio.timeout(PATIENCE):
        while "APN" not in (page := await page_of(dealer, order)):  # the catalogue is read a few times a second
            await asyncio.sleep(0.05)
    assert 'data-copy="internet.&lt;b&gt;"' in page and texts("en")("apn_text") in html.unescape(page)
    async with signed_in(service, tenant_id=dealer.tenant_id) as user:
        for browser in (admin, user):
            assert (
                'data-copy="internet.&lt;b&gt;"'
                in (await browser.get(f"/console/profiles/{profile['profileId']}")).text
            )
    assert "internet." not in json.dumps(await query(dealer, order))
    await edit_package(service.database, "TEST-OK", {"apn": ""}, None, "test", clock.now)


async def test_the_button_is_that_of_the_device(dealer: ApiClient):
    order = await bought(dealer)
    links = profiles(order)[0]["installUrls"]
    words = texts("en")
    for device, own, other in ((IPHONE, "ios", "android"), (ANDROID, "android", "ios")):
        text = html.unescape(await page_of(dealer, order, User_Agent=device))
        assert links[own] in text and links[other] not in text
        assert words(f"note_{own}") in text
        code = f">{profiles(order)[0]['matchingId']}</code>"
        order_of = (words("before_once"), words("before_keep"), words(f"button_{own}"), words("qr_other"), code)
        places = [text.index(one) for one in (*order_of, words("steps"))]
        assert places == sorted(places), "what to mind, one tap, the QR code for another device, codes, steps"
    old = html.unescape(await page_of(dealer, order, User_Agent=OLD_IPHONE))
    assert words("note_ios_old") in old and words("note_ios") not in old
    computer = html.unescape(await page_of(dealer, order, User_Agent="curl/8.5"))
    assert links["ios"] in computer and links["android"] in computer
    assert computer.index('<h2 class="if-wide">Install</h2>') < computer.index(words("steps")), "a QR code to scan"


@pytest.mark.parametrize(
    ("device", "phone"),
    [
        (IPHONE, "ios"),
        (ANDROID, "pixel"),
        (ANDROID.replace("Pixel 9", "SM-S931B"), "samsung"),
        (ANDROID.replace("Pixel 9", "K"), "android"),
        ("curl/8.5", "ios"),
    ],
)
async def test_the_steps_are_those_of_the_phone_and_the_others_can_be_chosen(
    dealer: ApiClient, device: str, phone: str
):
    text = html.unescape(await page_of(dealer, await bought(dealer), User_Agent=device))
    assert re.findall(r'id="phone-(\w+)" checked', text) == [phone]
    words = texts("en")
    for key in ("ios_1", "samsung_1", "samsung_4", "pixel_2", "android_1"):
        assert words(key) in text, key


@pytest.mark.parametrize("language", LANGUAGES)
async def test_the_page_is_in_the_browsers_language(dealer: ApiClient, language: str):
    order = await bought(dealer)
    url = profiles(order)[0]["installPageUrl"]
    for asked in ({"Accept_Language": f"xx,{language}-ZZ;q=0.8"}, {}):
        answer = await dealer.http.get(
            url if asked else f"{url}?lang={language}", headers={"Accept-Language": language}
        )
        assert title(answer.text) == texts(language)("READY_title")  # type: ignore[arg-type]
        assert f'<html lang="{language}"' in answer.text and answer.headers["Content-Language"] == language
    links = re.findall(r'<a href="\?lang=(\w+)" hreflang="\1" lang="\1"', answer.text)
    assert links == list(LANGUAGES)


@pytest.mark.parametrize(
    ("language", "written"),
    [("en", "28 May 2027, 14:03 UTC"), ("de", "28. Mai 2027, 14:03 UTC"), ("es", "28 de mayo de 2027, 14:03 UTC"),
     ("fr", "28 mai 2027, 14:03 UTC"), ("ja", "2027年5月28日, 14:03 UTC"), ("zh", "2027年5月28日, 14:03 UTC")],
)  # fmt: skip
def test_times_are_written_as_the_language_writes_them(language: Language, written: str):
    told = texts(language).time(datetime(2027, 5, 28, 14, 3, tzinfo=UTC))
    assert told.replace("\N{NO-BREAK SPACE}", " ") == written
    assert all(len(texts(one)("months").split()) == 12 for one in LANGUAGES)


def values_of(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_all_languages_have_the_same_texts_with_the_same_values():
    catalogues = {path.stem: json.loads(path.read_text("utf-8")) for path in FOLDER.iterdir()}
    assert sorted(catalogues) == sorted(LANGUAGES)
    for language, words in catalogues.items():
        assert list(words) == list(catalogues["en"]), language
        for key, text in words.items():
            assert values_of(text) == values_of(catalogues["en"][key]), (language, key)
            assert text and text == text.strip(), (language, key)


def test_every_text_is_used():
    words = "".join(path.read_text("utf-8") for path in FOLDER.parent.iterdir() if path.suffix in (".html", ".py"))
    made = {f"{stage}_{part}" for stage in STAGES for part in ("title", "text", "state")}
    made |= {f"{about}_{part}" for about in ("unknown", "busy") for part in ("title", "text")}
    made |= {f"unit_{unit}" for unit in ("B", "KB", "MB", "GB", "TB")} | {"FIRST_INSTALL", "FIRST_NETWORK"}
    made |= {f"{phone}_{number}" for phone in ("ios", "android") for number in range(1, 5)}
    made |= {f"offline_{number}" for number in range(1, 4)}
    made |= {f"{phone}_{number}" for phone in ("samsung", "pixel") for number in (1, 2, 4)}
    made |= {f"plan_{status}" for status in ("PENDING", "QUEUED", "ACTIVE", "ENDED", "FAILED", "CANCELLED")}
    unused = [
        key for key in json.loads((FOLDER / "en.json").read_text()) if key not in made and f'"{key}"' not in words
    ]
    assert unused == []


# What keeps the address a secret


@pytest.fixture
async def answer(dealer: ApiClient) -> AsyncIterator[httpx2.Response]:
    yield await dealer.http.get(profiles(await bought(dealer))[0]["installPageUrl"])


async def test_the_headers_keep_the_address_a_secret(answer: httpx2.Response):
    headers = answer.headers
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert headers["Cache-Control"] == "private, no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Robots-Tag"] == "noindex, nofollow, noarchive" and 'content="noindex' in answer.text
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["X-Frame-Options"] == "DENY"
    assert "set-cookie" not in headers and "location" not in headers


def digests(page: str, element: str) -> set[str]:
    inside = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    return {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in inside}


async def test_the_policy_allows_what_is_in_the_page_and_nothing_else(answer: httpx2.Response):
    rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["Content-Security-Policy"].split(";"))
    assert (
        rules["default-src"] == "'none'" and rules["frame-ancestors"] == "'none'" and rules["form-action"] == "'none'"
    )
    assert {rules["style-src"]} == digests(answer.text, "style")
    assert {rules["script-src"]} == digests(answer.text, "script")
    assert rules["img-src"] == "data:" and not re.search(r'\sstyle="|\son\w+="', answer.text)


async def test_the_page_loads_nothing_from_anywhere(dealer: ApiClient, service: Service):
    order = await bought(dealer)
    change = BrandChange(name="Sunbird", logo=LOGO, support_url="https://sunbird.example/help")
    await set_brand(service.database, dealer.tenant_id, change, "test")
    page = await page_of(dealer, order)
    loaded = re.findall(r'(?:src|srcset|poster|data|action)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    loaded += re.findall(r'<link[^>]*href="([^"]*)"', page)
    assert loaded and all(address.startswith("data:") for address in loaded)
    links = {html.unescape(link) for link in re.findall(r'<a [^>]*href="([^"?#][^"]*)"', page)}
    installs = set(profiles(order)[0]["installUrls"].values())
    assert links == installs | {"https://sunbird.example/help"}
    assert "@import" not in page and "http-equiv" not in page


async def test_a_page_is_small_on_the_wire(answer: httpx2.Response):
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(gzip.compress(answer.content)) < 10_000


async def test_looking_changes_nothing(postgres: str, template: str):
    """No worker runs meanwhile: it writes of its own."""
    async with fresh(postgres, template) as url:
        async with (
            running_service(url) as service,
            service.client(await service.tenant(balance="1000", qps=0)) as dealer,
        ):
            [profile] = profiles(await bought(dealer))
        path = profile["installPageUrl"].partition("/i/")[2]
        async with running_service(url, worker=False) as service, httpx2.AsyncClient() as http:
            before = await everything(service)
            for method in ("GET", "HEAD"):
                for device in (IPHONE, ANDROID, "a mail scanner"):
                    answer = await http.request(
                        method, f"{service.url}/i/{path}", headers={"User-Agent": device}, follow_redirects=False
                    )
                    assert answer.status_code == 200
            await http.get(f"{service.url}/i/1-1-x")
            assert await everything(service) == before


async def everything(service: Service) -> dict[str, str]:
    """A digest of each table."""
    async with service.database.connection() as connection:
        tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        found = {}
        for row in tables:
            rows = f"SELECT t::text AS row FROM {row['tablename']} t ORDER BY 1"
            found[row["tablename"]] = (
                await connection.fetchval(f"SELECT md5(string_agg(row, ',')) FROM ({rows}) r") or ""
            )
        return found


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_a_page_accepts_only_reads(dealer: ApiClient, method: str):
    url = profiles(await bought(dealer))[0]["installPageUrl"]
    answer = await dealer.http.request(method, url)
    assert answer.status_code == 404 and answer.json()["code"] == "000112"


# Unknown pages


@pytest.mark.parametrize("language", LANGUAGES)
async def test_an_unknown_token_is_told_so_kindly_in_the_language(dealer: ApiClient, service: Service, language: str):
    page = await opened(dealer, f"{service.url}/i/1-2-unknown", 404, Accept_Language=language)
    assert title(page) == texts(language)("unknown_title") and "<script" not in page  # type: ignore[arg-type]


async def test_a_spoiled_address_and_that_of_another_esim_show_nothing(
    dealer: ApiClient, stranger: ApiClient, service: Service
):
    [profile], [theirs] = profiles(await bought(dealer)), profiles(await bought(stranger))
    url, token = profile["installPageUrl"], profile["qrCodeUrl"].rpartition("/")[2]
    tenant_id, number = dealer.tenant_id, int(profile["profileId"])
    spoiled = [
        url[:-1],
        url + "x",
        url + "/",
        url.upper().replace("HTTP", "http").replace("/I/", "/i/"),
        f"{service.url}/i/{tenant_id}-{number + 1}-{token}",
        f"{service.url}/i/{stranger.tenant_id}-{number}-{token}",
        f"{service.url}/i/{tenant_id}-{theirs['profileId']}-{token}",
        f"{service.url}/i/{stranger.tenant_id}-{theirs['profileId']}-{token}",
        f"{service.url}/i/{tenant_id}-{number}-{'-' * 22}",
        f"{service.url}/i/{tenant_id}-{number}-None",
    ]
    for address in spoiled:
        answer = await dealer.http.get(address)
        assert answer.status_code == 404 and profile["matchingId"] not in answer.text, address


async def test_an_esim_without_codes_has_no_page(dealer: ApiClient, service: Service):
    placed = await dealer.order("TEST-DELAY")
    waiting = await query(dealer, placed.data)
    [profile] = profiles(waiting)
    assert "installPageUrl" not in profile and "qrCodeUrl" not in profile
    await opened(dealer, f"{service.url}/i/{dealer.tenant_id}-{profile['profileId']}-{'-' * 22}", 404)


@pytest.mark.parametrize(("error", "status"), [(DatabaseLost(sent=True), 503), (RuntimeError("a defect"), 500)])
async def test_a_page_that_cannot_be_shown_says_so_in_the_language(error: Exception, status: int):
    async def fails(_: str) -> None:
        raise error

    app = Starlette(routes=[install_page_route(fails)])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as http:
        answer = await http.get("/i/1-2-secret", headers={"Accept-Language": "ja"})
    assert (answer.status_code, title(answer.text)) == (status, texts("ja")("busy_title"))
    assert answer.headers.get("Retry-After") == ("60" if status == 503 else None)
    assert answer.headers["Cache-Control"] == "private, no-store"


# The brand


async def test_the_brand_of_the_dealer_is_shown_and_no_others(dealer: ApiClient, stranger: ApiClient, service: Service):
    order, theirs = await bought(dealer), await bought(stranger)
    change = BrandChange(
        name="<b>Sunbird</b> سفر",
        colour="#e11d74",
        logo=LOGO,
        support_email="help@sunbird.example",
        support_phone="+44 20 7946 0000",
        support_url="https://sunbird.example/help",
    )
    await set_brand(service.database, dealer.tenant_id, change, "test")
    page = await page_of(dealer, order)
    assert "<bdi>&lt;b&gt;Sunbird&lt;/b&gt; سفر</bdi>" in page and "<b>Sunbird" not in page
    assert "--fill:#e11d74" in page and f"data:image/svg+xml;base64,{base64.b64encode(LOGO).decode()}" in page
    assert 'href="mailto:help@sunbird.example"' in page and 'href="tel:+442079460000"' in page
    for step, said in (
        ("START", "سفر can sell you more"),
        ("EXPIRE", "0\N{NO-BREAK SPACE}B of 1\N{NO-BREAK SPACE}GB used"),
    ):
        await advance(dealer, order, step)
        page = await page_of(dealer, order)
        assert re.search(r'href="https://sunbird.example/help"[^>]*>Get more data<', page) and said in page
        assert (" left<" in page) == (step == "START"), "what is left has ended with the plan"
        assert ('class="button second"' in page) == (step == "START"), "much is left: it is quiet"
    selling = BrandChange(sales_url="https://shop.sunbird.example/esim")
    await set_brand(service.database, dealer.tenant_id, selling, "test")
    page = await page_of(dealer, order)
    assert re.search(r'href="https://shop.sunbird.example/esim"[^>]*>Get more data<', page)
    assert 'href="https://sunbird.example/help"' in page, "where it is asked"
    alone = BrandChange(support_email="", support_phone="", support_url="")
    await set_brand(service.database, dealer.tenant_id, alone, "test")
    assert ">shop.sunbird.example</a>" in (page := await page_of(dealer, order)) and "Ask the shop where" in page
    other = await page_of(stranger, theirs)
    assert "Sunbird" not in other and texts("en")("support_shop") in other and "data:image" not in other


# QR codes in a size


@pytest.mark.parametrize("size", [200, 201, 333, 1200])
async def test_a_qr_code_comes_in_the_size_asked_for(dealer: ApiClient, size: int):
    [profile] = profiles(await bought(dealer))
    for ending in ("", ".png"):
        picture = await dealer.http.get(f"{profile['qrCodeUrl']}{ending}?size={size}")
        width, height = (int.from_bytes(picture.content[at : at + 4], "big") for at in (16, 20))
        assert (picture.status_code, width, height) == (200, size, size)
    drawing = (await dealer.http.get(f"{profile['qrCodeUrl']}.svg?size={size}")).text
    assert f'width="{size}" height="{size}"' in drawing and "viewBox" in drawing


@pytest.mark.parametrize("size", ["199", "1201", "0", "-300", "300.0", "3e2", "", "wide", "٣٠٠", "9" * 400])
async def test_another_size_is_refused(dealer: ApiClient, size: str):
    [profile] = profiles(await bought(dealer))
    for address in (f"{profile['qrCodeUrl']}?size={size}", f"{profile['qrCodeUrl']}x.svg?size={size}"):
        refused = await dealer.http.get(address)
        assert (refused.status_code, refused.json()["code"]) == (400, "000108")
        assert refused.json()["message"] == "size is invalid; accepted: pixels, an integer from 200 to 1200"
