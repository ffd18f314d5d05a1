"""A new dealer by the steps of the console: nothing filled in is lost, and nothing half made is left."""

import html
import re
import secrets
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.console.operator.dealer_setup.wizard import OPTIONAL
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.operations.users import accounts
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import Service
from support.browser import PASSWORDS, Browser, browser, said, signed_in
from support.console.onboarding import NEW, onboarded, tenant_of, up_to
from support.console.operator_pages import see, text_of

GOOD = "correct horse battery"


async def rows(service: Service, sql: str, *args: object) -> list[Any]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


def filled(text: str) -> dict[str, str]:
    """What the fields of a form hold."""
    inputs = re.findall(r'<input class="form-control[^"]*" type="text" value="([^"]*)"[^>]* name="(\w+)"', text)
    areas = re.findall(r'<textarea[^>]* name="(\w+)"[^>]*>([^<]*)<', text)
    ticked = re.findall(r'<input type="checkbox"[^>]* name="(\w+)"[^>]* checked>', text)
    chosen = re.findall(r'<select[^>]* name="(\w+)"[^>]*>.*?<option value="([^"]*)" selected>', text, re.DOTALL)
    found = {name: value for value, name in inputs} | dict(areas) | dict(chosen) | dict.fromkeys(ticked, "on")
    return {name: html.unescape(value) for name, value in found.items()}


ALL = {
    "currency": "EUR",
    "balance": "500",
    "credit_limit": "50",
    "low_balance": "20",
    "qps": "7",
    "ip_allow": "203.0.113.7",
    "manages_keys": "on",
    "brand_name": "Alpine",
    "support_email": "help@alpine.example",
    "support_url": "https://alpine.example/help",
    "markup": "12.5",
    "prices": "TEST-OK 1.80\nTEST-DELAY off",
    "role": "admin",
}


async def test_the_steps_make_dealer_prices_and_first_user_at_once(service: Service, admin: Browser) -> None:
    name, address = f"Alpine {secrets.token_hex(4)}", f"lena-{secrets.token_hex(4)}@alpine.example"
    last = await up_to(admin, "review", name=name, address=address, **ALL)
    review = (await admin.get(last)).text
    for words in (name, "EUR", "500", "12.5 %", "2 packages", address, "Admin", "help@alpine.example"):
        assert words in review, words
    assert not await rows(service, "SELECT 1 FROM tenant WHERE name = $1", name), "nothing is made before the end"
    led = await admin.post(last)
    tenant_id = tenant_of(led)
    page = (await admin.get(led.headers["location"])).text
    link = re.search(rf"<code>{re.escape(service.url)}(/console/invitation/[\w-]+)</code>", page)
    assert link and f"{name} created" in page and "sk_test_" not in page
    assert link[1] not in (await admin.get(led.headers["location"])).text, "shown once"
    made = await rows(
        service,
        "SELECT t.qps, t.ip_allow, t.markup_basis_points, t.manages_keys, t.edits_ip_allow, w.currency, w.balance,"
        " w.credit_limit, w.low_balance_threshold, b.name, b.support_email, b.support_url"
        " FROM tenant t JOIN wallet w USING (tenant_id) JOIN brand b USING (tenant_id) WHERE tenant_id = $1",
        tenant_id,
    )
    assert made == [
        (7, ["203.0.113.7/32"], 1250, True, False, "EUR", 5_000_000, 500_000, 200_000, "Alpine", "help@alpine.example",
         "https://alpine.example/help")
    ]  # fmt: skip
    prices = "SELECT package_code, price FROM price WHERE tenant_id = $1 ORDER BY 1"
    assert await rows(service, prices, tenant_id) == [("TEST-DELAY", None), ("TEST-OK", 18_000)]
    async with browser(service) as lena:
        assert (await lena.send(link[1], {"new": GOOD, "again": GOOD})).headers["location"] == "/console"
        assert "Get started" in (await lena.get("/console")).text
    assert not await rows(service, "SELECT 1 FROM dealer_draft WHERE fields->>'name' = $1", name)
    assert await service.audit() == []


async def test_a_new_dealer_has_a_price_list_in_place_of_a_markup(service: Service, admin: Browser) -> None:
    name, listed = f"Listed {secrets.token_hex(4)}", f"Shops {secrets.token_hex(4)}"
    made = await admin.post("/console/price-lists", {"name": listed, "markup": "10", "basis": "PRICE"})
    number = made.headers["location"].rpartition("/")[2]
    prices = await up_to(admin, "prices", name=name, address="")
    assert f">{listed}</option>" in (await admin.get(prices)).text
    both = await admin.refused(prices, {"price_list": number, "markup": "5", "prices": ""})
    assert "has no markup of its own" in both.text
    gone = await admin.refused(prices, {"price_list": "999999", "markup": "", "prices": ""})
    assert "price list was removed" in gone.text
    await admin.post(prices, {"price_list": number, "markup": "", "prices": ""})
    review = prices.replace("/prices", "/review")
    assert listed in (await admin.get(review)).text
    tenant_id = tenant_of(await admin.post(review))
    assert await rows(service, "SELECT price_list_id FROM tenant WHERE tenant_id = $1", tenant_id) == [(int(number),)]
    assert not await rows(service, "SELECT 1 FROM notice WHERE tenant_id = $1", tenant_id), "its prices are not news"


async def test_prices_below_the_cost_are_confirmed_before_the_dealer_is_created(service: Service, admin: Browser):
    await set_route(service.database, "TEST-PARTIAL", [Hop("stock", "TEST-PARTIAL", 15_000, "USD")], "test", clock.now)
    name = f"Cheap {secrets.token_hex(4)}"
    prices = await up_to(admin, "prices", name=name)
    typed = {"markup": "", "prices": "TEST-PARTIAL 1.20\nTEST-OK 1.70"}
    asked = await admin.post(prices, typed)
    assert asked.status_code == 409 and "1 price would be below the cost" in text_of(asked.text)
    assert "TEST-PARTIAL 1.20 USD 1.50 USD 0.30 USD" in text_of(asked.text) and f'href="{prices}"' in asked.text
    assert filled((await admin.get(prices)).text)["prices"] == typed["prices"], "kept while it is asked"
    review = (await admin.post(prices, typed | {"allow_below_cost": "on"})).headers["location"]
    review = (await admin.post(review, {"address": "", "role": "admin"})).headers["location"]
    assert "Below cost Confirmed" in await see(admin, review)
    assert (await admin.post(prices, typed)).status_code == 409, "asked again where it is filled in again"
    assert (await admin.post(review)).status_code == 409, "and before the dealer is created"
    tenant_id = tenant_of(await admin.post(review, {"allow_below_cost": "on"}))
    mine = f"/console/dealers/{tenant_id}"
    asked = await admin.post(f"{mine}/prices", {"package": "TEST-PARTIAL", "price": "1.10"})
    assert asked.status_code == 409 and "1.10 USD 1.50 USD 0.40 USD" in text_of(asked.text)
    kept = await admin.post(f"{mine}/terms", {"name": name, "markup": "-90", "status": "ACTIVE"})
    assert kept.status_code == 303, "its custom price is none of the markup"
    await admin.post(f"{mine}/prices", {"package": "TEST-PARTIAL", "price": "1.10", "allow_below_cost": "on"})
    assert "1.10" in await see(admin, mine)


async def test_what_was_filled_in_is_there_when_going_back(service: Service, admin: Browser) -> None:
    name = f"Back {secrets.token_hex(4)}"
    user = await up_to(admin, "user", name=name, **ALL)
    gone_back = await admin.post(user, {"address": "half@", "role": "finance", "go": "back"})
    prices = gone_back.headers["location"]
    assert prices == user.replace("/user", "/prices")
    kept = filled((await admin.get(prices)).text) | {"price_list": ""}
    assert kept == {"price_list": "", "markup": "12.5", "prices": "TEST-OK 1.80\nTEST-DELAY off"}
    assert filled((await admin.get(user)).text) == {"address": "half@", "role": "finance"}, "also what is not right yet"
    dealer = filled((await admin.get(user.replace("/user", "/dealer"))).text)
    assert '<details class="card" open>' in (await admin.get(user.replace("/user", "/dealer"))).text
    assert dealer == {"name": name} | {key: ALL[key] for key in ALL if key not in ("markup", "prices", "role")}
    listed = (await admin.get("/console/dealers")).text
    assert f"{name}</span>" in listed and user.replace("/user", "/dealer") in listed
    async with signed_in(service, "readonly") as reader:
        assert name not in (await reader.get("/console/dealers")).text
    await admin.post(user.replace("/user", "/discard"))
    assert name not in (await admin.get("/console/dealers")).text
    assert (await admin.get(user)).status_code == 404


@pytest.mark.parametrize(
    ("step", "wrong", "words"),
    [
        ("dealer", {"name": " "}, "name"),
        ("dealer", {"currency": "XXX"}, "currency"),
        ("dealer", {"balance": "1.234"}, "decimal"),
        ("dealer", {"credit_limit": "-1"}, "credit limit"),
        ("dealer", {"qps": "many"}, "QPS"),
        ("dealer", {"ip_allow": "203.0.113.999"}, "203.0.113.999"),
        ("dealer", {"support_email": "nobody"}, "support email"),
        ("dealer", {"support_url": "http://x"}, "support page"),
        ("prices", {"markup": "much"}, "markup"),
        ("prices", {"prices": "TEST-OK"}, "line 1"),
        ("prices", {"prices": "TEST-OK 1\nTEST-OK 2"}, "line 2"),
        ("prices", {"prices": "NO-SUCH 1.80"}, "NO-SUCH"),
        ("prices", {"prices": "TEST-OK 1.234"}, "price of TEST-OK"),
        ("prices", {"prices": "TEST-OK list"}, "leave a package out"),
        ("user", {"address": "nobody"}, "mail address"),
        ("user", {"address": "ann@example.com", "role": "king"}, "role"),
    ],
)
async def test_a_step_that_is_not_right_says_why_and_keeps_what_was_typed(
    service: Service, admin: Browser, step: str, wrong: dict[str, str], words: str
) -> None:
    before = await rows(service, "SELECT count(*) FROM tenant")
    place = await up_to(admin, step, name="Wrong")
    fields = {"name": "Wrong", "currency": "USD"} if step == "dealer" else {"role": "admin"}
    answer = await admin.refused(place, fields | wrong)
    assert words.lower() in said(answer).lower(), said(answer)
    assert f'id="field-{next(reversed(wrong))}-error"' in answer.text
    assert ('<details class="card" open>' in answer.text) == (next(reversed(wrong)) in OPTIONAL), (
        "what is wrong is seen"
    )
    for value in wrong.values():
        assert html.escape(value.strip()) in answer.text
    assert await rows(service, "SELECT count(*) FROM tenant") == before


async def test_what_fails_at_the_end_leaves_nothing_half_made(service: Service, admin: Browser) -> None:
    """Somebody else takes the mail address between the third step and the last."""
    name, address = f"Late {secrets.token_hex(4)}", f"late-{secrets.token_hex(4)}@example.com"
    last = await up_to(admin, "review", name=name, address=address)
    await accounts.create(service.database, PASSWORDS, None, address, "support", "test", GOOD)
    assert "there is a user" in said(await admin.refused(last))
    assert not await rows(service, "SELECT 1 FROM tenant WHERE name = $1", name)
    user = last.replace("/review", "/user")
    again = await admin.post(user, {"address": f"free-{address}", "role": "admin"})
    assert (await admin.post(again.headers["location"])).status_code == 303
    assert len(await rows(service, "SELECT 1 FROM tenant WHERE name = $1", name)) == 1
    assert (await admin.post(last)).status_code == 404


async def test_a_dealer_can_do_without_a_first_user(service: Service, admin: Browser) -> None:
    tenant_id = tenant_of(await onboarded(admin, name="Alone"))
    assert not await rows(service, "SELECT 1 FROM invitation WHERE tenant_id = $1", tenant_id)


@pytest.mark.parametrize("role", ["finance", "support", "readonly"])
async def test_only_admins_make_dealers(service: Service, role: str) -> None:
    async with signed_in(service, role) as one:
        for path in (NEW, f"{NEW}/1/prices"):
            assert (await one.get(path)).status_code == 403
            assert (await one.post(path, {"name": "x"})).status_code == 403


async def test_odd_addresses_of_steps_are_no_pages(admin: Browser) -> None:
    for path in (f"{NEW}/0/dealer", f"{NEW}/x/dealer", f"{NEW}/{'9' * 30}/dealer", f"{NEW}/1/nothing"):
        assert (await admin.get(path)).status_code == 404
        assert (await admin.post(path)).status_code == 404
