"""Which field of a form is to blame where it is refused? The error stands beneath it, in plain words."""

import re
from typing import NamedTuple

import pytest
from playwright.async_api import expect

from support.api_client import ApiClient, Service
from support.browser import said, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened


class Case(NamedTuple):
    """`kind`: whose console."""

    kind: str
    page: str
    action: str
    fields: dict[str, str]
    fault: str
    told: str


OPERATOR, DEALER = "operator", "dealer"
HOME = "/console/dealers/{dealer}"
TERMS = {"name": "Fields", "status": "ACTIVE"}
CASES = [
    Case(OPERATOR, HOME, f"{HOME}/adjust", {"amount": "1,5", "reason": "x"}, "amount", "amount '1,5'"),
    Case(OPERATOR, HOME, f"{HOME}/adjust", {"amount": "1", "reason": " "}, "reason", "needs a reason"),
    Case(OPERATOR, HOME, f"{HOME}/terms", TERMS | {"markup": "x"}, "markup", "markup 'x'"),
    Case(OPERATOR, HOME, f"{HOME}/terms", TERMS | {"qps": "many"}, "qps", "QPS 'many'"),
    Case(OPERATOR, HOME, f"{HOME}/terms", TERMS | {"ip_allow": "here"}, "ip_allow", "here"),
    Case(OPERATOR, HOME, f"{HOME}/terms", TERMS | {"credit_limit": "-"}, "credit_limit", "credit limit"),
    Case(OPERATOR, HOME, f"{HOME}/prices", {"package": "NOPE", "price": "1"}, "package", "no package NOPE"),
    Case(OPERATOR, HOME, f"{HOME}/prices", {"package": "TEST-OK", "price": "x"}, "price", "price of TEST-OK"),
    Case(OPERATOR, HOME, f"{HOME}/callback", {"callback_url": "nowhere"}, "callback_url", "callbackUrl"),
    Case(
        *(OPERATOR, HOME, f"{HOME}/callback", {"callback_url": f"https://a.example/{'x' * 512}"}, "callback_url"),
        "Callback URL has 530 characters; accepted: 512 at most.",
    ),
    Case(
        *(OPERATOR, "/console/price-lists/new", "/console/price-lists", {"name": "", "markup": "5"}, "name"),
        "a price list's name",
    ),
    Case(
        OPERATOR, "/console/packages/import", "/console/packages/preview", {}, "file", "A CSV file in UTF-8 is needed"
    ),
    Case(DEALER, "/console/wallet", "/console/wallet/topups", {"amount": "0"}, "amount", "amount is 0"),
    Case(
        *(DEALER, "/console/wallet", "/console/wallet/topups", {"amount": "5", "remark": "x" * 256}, "remark"),
        "Remark has 256 characters; accepted: 255 at most.",
    ),
    Case(DEALER, "/console/webhooks", "/console/webhooks/url", {"callback_url": "x"}, "callback_url", "callbackUrl"),
]


def error_of(html: str, name: str) -> str:
    """The error of the field of this name, which is marked."""
    tags = [tag for tag in re.findall(r"<(?:input|textarea|select)[^>]*>", html) if "is-invalid" in tag]
    assert len(tags) == 1 and f' name="{name}"' in tags[0] and " autofocus" in tags[0], tags
    assert ' aria-invalid="true"' in tags[0]
    described = re.search(r'aria-describedby="(\S+?)[ "]', tags[0])
    assert described and html.count(f'id="{described[1]}"') == 1
    return html.partition(f'id="{described[1]}">')[2].partition("</div>")[0]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.action.rpartition('/')[2]} {case.told[:20]}" for case in CASES])
async def test_the_field_to_blame_has_the_error(service: Service, dealer: ApiClient, case: Case) -> None:
    page, action = case.page.format(dealer=dealer.tenant_id), case.action.format(dealer=dealer.tenant_id)
    async with signed_in(service, tenant_id=dealer.tenant_id if case.kind == DEALER else None) as user:
        sent = {"csrf": await user.csrf(), "once": "0" * 32, "direction": "add", "transaction_id": "console-1"}
        answer = await user.send(action, sent | case.fields, Referer=f"{user.url}{page}")
        assert (answer.status_code, answer.headers["location"]) == (303, page)
        shown = await user.get(page)
    assert case.told in said(shown) and "flash-bad" not in shown.text
    assert case.told.replace("'", "&#39;") in error_of(shown.text, case.fault)


async def test_what_no_field_is_to_blame_for_stands_at_the_top(service: Service, dealer: ApiClient) -> None:
    async with signed_in(service, tenant_id=dealer.tenant_id) as user:
        sent = {"csrf": await user.csrf(), "once": "0" * 32}
        await user.send("/console/wallet/topups/T1/cancel", sent, Referer=f"{user.url}/console/wallet")
        shown = (await user.get("/console/wallet")).text
    assert "No such top-up" in shown.partition('id="main"')[2].partition("<h1>")[0] and "aria-invalid" not in shown


@needs_chromium
@pytest.mark.parametrize("scripts", [True, False])
async def test_the_field_to_blame_has_the_focus_and_is_described_by_its_error(
    service: Service, dealer: ApiClient, scripts: bool
) -> None:
    async with opened() as chromium, signed_in(service) as one:
        context = await chromium.new_context(java_script_enabled=scripts)
        await context.add_cookies([{"name": "dealer_console", "value": one.token, "url": f"{service.url}/console"}])
        await context.add_init_script(AXE)
        page = await context.new_page()
        await page.goto(f"{service.url}/console/dealers/{dealer.tenant_id}")
        for place, opener, label in (
            (
                page.get_by_role("dialog", name="Adjust the balance"),
                page.get_by_role("button", name="Adjust balance"),
                "Amount",
            ),
            (page.locator("#terms"), page.get_by_text("Edit terms", exact=True), "Markup"),
        ):
            await opener.click()
            field = place.get_by_label(label)
            await field.fill("nonsense")
            if label == "Amount":
                await place.get_by_label("Reason").fill("to see")
            await place.locator("form button[type=submit]").first.click()
            await expect(field).to_be_focused()
            await expect(field).to_have_accessible_description(re.compile("'nonsense'"))
            assert not scripts or await barriers(page) == []
            if label == "Amount":
                await place.get_by_role("button", name="Back").click() if scripts else await page.goto(page.url)
        await context.close()
