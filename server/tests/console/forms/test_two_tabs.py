"""Of two tabs the second does not overwrite the first: it is told what was changed, keeps what was filled in, and can
go on. The forms of suppliers and routes are in test_console_suppliers.py."""

import re
from html import unescape
from typing import NamedTuple

import pytest

from dealer_server.store.console.kept import MOST_FORMS
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import does, text_of

TOLD = "Somebody else changed this while your form was open"


class Case(NamedTuple):
    """`fields`: what both tabs send, beside theirs and mine. `told`: the row of the field that was changed, with what
    is stored and what the second tab has. `others`: words that say nothing was changed."""

    page: str
    action: str
    fields: dict[str, str]
    theirs: dict[str, str]
    mine: dict[str, str]
    told: str
    done: str


CASES = {
    "terms of a dealer": Case(
        "/console/dealers/{dealer}",
        "/console/dealers/{dealer}/terms",
        {"name": "Two tabs", "credit_limit": "0", "low_balance": "0", "status": "ACTIVE"},
        {"qps": "33", "ip_allow": "203.0.113.7", "markup": "5"},
        {"qps": "44", "ip_allow": "", "markup": "7.5"},
        "Rate limit 33 44 IP allowlist 203.0.113.7/32 empty Markup 5 7.5",
        "The terms are changed",
    ),
    "a custom price": Case(
        "/console/dealers/{dealer}",
        "/console/dealers/{dealer}/prices",
        {"package": "TEST-OK"},
        {"price": "1.50"},
        {"price": "1.60"},
        "Price of TEST-OK 1.50 1.60",
        "TEST-OK is 1.60 now",
    ),
    "a package": Case(
        "/console/packages/TEST-OK/edit",
        "/console/packages/TEST-OK/edit",
        {},
        {"unusedValidDays": "90", "price": "1.81"},
        {"unusedValidDays": "120", "price": "1.82"},
        "Dealer price 1.81 1.82 Use within 90 120",
        "TEST-OK is saved",
    ),
    "terms of a price list": Case(
        "{price_list}",
        "{price_list}/terms",
        {"name": "Tabs"},
        {"markup": "11", "basis": "COST"},
        {"markup": "12", "basis": "PRICE"},
        "Based on Cost Dealer price Markup 11 12",
        "The price list is changed",
    ),
    "an exception of a price list": Case(
        "{price_list}?q=TEST-OK",
        "{price_list}/exceptions",
        {},
        {"price TEST-OK": "2.50"},
        {"price TEST-OK": "2.60"},
        "List price of TEST-OK, USD 2.50 2.60",
        "TEST-OK costs 2.60 now",
    ),
    "the low balance": Case(
        "/console/wallet",
        "/console/wallet/threshold",
        {},
        {"threshold": "5"},
        {"threshold": "7"},
        "Low balance notice below 5.00 7.00",
        "The low balance notice is set",
    ),
}


def form_of(html: str, action: str, field: str = "") -> dict[str, str]:
    """The hidden fields of the last form that goes there and has this field, as its page has them."""
    forms = [form.partition("</form>")[0] for form in html.split(f'action="{action}"')[1:]]
    inside = [form for form in forms if f'name="{field}' in form][-1]
    found = re.findall(r'<input (?:type="hidden"|hidden) name="([^"]+)" value="([^"]*)"', inside)
    return {name: unescape(value) for name, value in found}


async def sent(browser: Browser, page: str, action: str, fields: dict[str, str]) -> str:
    """A form as a browser sends it, and the page that it leads to."""
    answer = await browser.send(action, fields, Referer=f"{browser.url}{page}")
    assert answer.status_code == 303, answer.text
    return (await browser.get(answer.headers["location"])).text


@pytest.fixture(scope="module")
async def price_list(service: Service) -> str:
    async with signed_in(service) as admin:
        answer = await admin.post("/console/price-lists", {"name": "Tabs", "basis": "PRICE", "markup": "10"})
    return answer.headers["location"]


@pytest.mark.parametrize("name", CASES)
async def test_the_second_tab_is_told_what_changed_and_can_go_on(
    service: Service, dealer: ApiClient, price_list: str, name: str
) -> None:
    case, things = CASES[name], {"dealer": dealer.tenant_id, "price_list": price_list}
    page, action, field = case.page.format(**things), case.action.format(**things), next(iter(case.theirs))
    async with signed_in(service, tenant_id=dealer.tenant_id if name == "the low balance" else None) as user:
        first, second = [form_of((await user.get(page)).text, action, field) for _ in range(2)]
        assert TOLD not in await sent(user, page, action, first | case.fields | case.theirs)
        html = await sent(user, page, action, second | case.fields | case.mine)
        text = text_of(html)
        assert TOLD in text and f"Field Stored now In your form {case.told} " in text
        for value in filter(None, case.mine.values()):
            assert f'value="{value}"' in html, "the form has what was filled in"
        again = form_of(html, action, field) | {"version": version_of_filled(html, action)}
        assert case.done in text_of(await sent(user, page, action, again | case.fields | case.mine))


def version_of_filled(html: str, action: str) -> str:
    """Of the form that is shown again: the newest version that any form of this action has."""
    forms = html.split(f'action="{action}"')[1:]
    found = [re.search(r'name="version" value="([^"]*)"', form.partition("</form>")[0]) for form in forms]
    return max((unescape(one[1]) for one in found if one), key=len)


async def test_what_others_changed_to_the_same_is_no_conflict(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    first, second = [form_of((await admin.get(home)).text, f"{home}/prices") for _ in range(2)]
    for form in (first, second):
        page = await sent(admin, home, f"{home}/prices", form | {"package": "TEST-OK", "price": "1.50"})
        assert "TEST-OK is 1.50 now" in page
    other = second | {"once": "0" * 32, "package": "TEST-DELAY", "price": "1.70"}
    assert "TEST-DELAY is 1.70 now" in await sent(admin, home, f"{home}/prices", other), "another package"


async def test_a_price_that_was_changed_is_not_removed_unseen(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    await does(admin, f"{home}/prices", package="TEST-OK", price="1.50")
    html = (await admin.get(home)).text
    remove = html.partition('name="price" value="list"')[2]
    version = re.search(r'name="version" value="([^"]*)"', remove)
    assert version
    await does(admin, f"{home}/prices", package="TEST-OK", price="1.55")
    row = {"package": "TEST-OK", "price": "list", "version": unescape(version[1])}
    told = await does(admin, f"{home}/prices", **row)
    assert TOLD in told and "Price of TEST-OK 1.55 empty" in told


# Forms that are refused


async def test_what_two_tabs_are_refused_at_once_is_shown_in_both(dealer: ApiClient, admin: Browser) -> None:
    """Of two pages, and of one page whose form both tabs sent."""
    home, users = f"/console/dealers/{dealer.tenant_id}", "/console/users"
    action, ours = f"{home}/adjust", [form_of((await admin.get(home)).text, f"{home}/adjust") for _ in range(3)]
    back = {"Referer": f"{admin.url}{home}"}
    for form, reason in zip(ours, ("first", "second"), strict=False):
        fields = form | {"direction": "add", "amount": "nonsense", "reason": reason}
        assert (await admin.send(action, fields, **back)).headers["location"] == home
    role = {"role": "nobody", "status": "ACTIVE"}
    assert (await admin.post(f"{users}/{admin.user_id}", role)).headers["location"] == users
    for reason in ("first", "second"):
        html = (await admin.get(home)).text
        assert f'value="{reason}"' in html and "'nonsense'" in text_of(html)
    assert "'nonsense'" not in text_of((await admin.get(home)).text), "it is said once"
    assert "changed by another admin" in text_of((await admin.get(users)).text)


async def test_of_many_refused_forms_the_newest_are_kept(service: Service, dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    for number in range(MOST_FORMS + 2):
        await admin.post(f"{home}/adjust", {"direction": "add", "amount": "x", "reason": f"reason {number}"})
    async with service.database.connection() as connection:
        count = "SELECT count(*) FROM console_unsent_form WHERE user_id = $1"
        assert await connection.fetchval(count, admin.user_id) == MOST_FORMS
    assert 'value="reason 2"' in (await admin.get(home)).text, "the oldest of those"
