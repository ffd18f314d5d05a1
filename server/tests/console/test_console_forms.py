"""What is sent to the console acts once however often it is sent; what is asked of it ends in time."""

import asyncio
import re
import secrets

import httpx2
import pytest
from playwright.async_api import Page, expect

from dealer_server.db.database import Database
from dealer_server.db.errors import StatementTimeout
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, said, signed_in
from support.chromium import needs_chromium, opened

TWICE = "This form was already sent. It was not processed again."


async def value(service: Service, sql: str, *args: object) -> object:
    async with service.database.connection() as connection:
        return await connection.fetchval(sql, *args)


async def form(one: Browser, path: str, **fields: str) -> dict[str, str]:
    """The first form of a page, filled in."""
    found = re.search(
        r'name="csrf" value="(\w+)"><input type="hidden" name="once" value="(\w+)"', await page(one, path)
    )
    assert found
    return {"csrf": found[1], "once": found[2], **fields}


async def page(one: Browser, path: str) -> str:
    answer = await one.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.text


async def sent_at_once(one: Browser, path: str, fields: dict[str, str], back: str) -> list[httpx2.Response]:
    """The same form, as a double click sends it."""
    return await asyncio.gather(*(one.send(path, fields, Referer=f"{one.url}{back}") for _ in range(2)))


# Once


async def test_each_form_has_a_value_of_its_own(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    texts = await page(admin, home) + await page(admin, home)
    values = re.findall(r'name="once" value="([0-9a-f]{32})"', texts)
    assert len(values) > 4 and len(set(values)) == len(values)


async def test_an_adjustment_sent_twice_moves_money_once(service: Service, dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    fields = await form(admin, home, direction="add", amount="12.50", reason="a gift")
    answers = await sent_at_once(admin, f"{home}/adjust", fields, home)
    assert [(one.status_code, one.headers["location"]) for one in answers] == [(303, home)] * 2
    assert (await dealer.post("/account/balance")).data["balance"] == "1012.50"
    again = await admin.send(f"{home}/adjust", fields, Referer=f"{admin.url}{home}")
    assert again.status_code == 303 and said(await admin.get(home)) == TWICE
    assert (await dealer.post("/account/balance")).data["balance"] == "1012.50"
    await admin.send(f"{home}/adjust", await form(admin, home, direction="add", amount="12.50", reason="another"))
    assert (await dealer.post("/account/balance")).data["balance"] == "1025.00"


async def test_a_form_that_failed_may_be_sent_again(service: Service, dealer: ApiClient, admin: Browser) -> None:
    """A true fault: the database refuses to write, for a reason that nobody thought of."""
    home = f"/console/dealers/{dealer.tenant_id}"
    fields = await form(admin, home, direction="add", amount="12.50", reason="a gift")
    one_entry = f"EXCLUDE (tenant_id WITH =) WHERE (tenant_id = {dealer.tenant_id})"
    await value(service, f"ALTER TABLE ledger_entry ADD CONSTRAINT broken {one_entry}")
    answer = await admin.send(f"{home}/adjust", fields, Referer=f"{admin.url}{home}")
    assert answer.status_code == 500, answer.headers
    assert "Try again" not in answer.text and ">Go to the overview</a>" in answer.text and "data-copy=" in answer.text
    await value(service, "ALTER TABLE ledger_entry DROP CONSTRAINT broken")
    await admin.send(f"{home}/adjust", fields, Referer=f"{admin.url}{home}")
    assert said(await admin.get(home)) == "The wallet is adjusted by 12.50 USD"
    await admin.send(f"{home}/adjust", fields, Referer=f"{admin.url}{home}")
    assert said(await admin.get(home)) == TWICE
    assert (await dealer.post("/account/balance")).data["balance"] == "1012.50"
    assert await service.audit() == []


async def test_a_page_that_failed_is_tried_again_or_left(service: Service, admin: Browser) -> None:
    await value(service, "ALTER TABLE price_list RENAME TO broken")
    page = await admin.get("/console/price-lists?sort=name&before=1")
    await value(service, "ALTER TABLE broken RENAME TO price_list")
    again = '<a class="btn btn-primary" href="/console/price-lists?sort=name&amp;before=1">Try again</a>'
    assert page.status_code == 500 and again in page.text and ">Go to the overview</a>" in page.text
    assert re.search(r'data-copy="[0-9a-f]{32}"', page.text)


async def test_a_browser_that_says_nonsense_of_where_it_was_is_led_to_the_first_page(admin: Browser) -> None:
    fields = await form(admin, "/console/users", role="readonly", status="NONE")
    answer = await admin.send(f"/console/users/{admin.user_id}", fields, Referer="http://[")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


@pytest.mark.parametrize(
    ("action", "fields", "page", "back"),
    [
        ("/topups/T1/approve", {}, "/topups?status=ALL", "/topups?status=ALL"),
        ("/webhooks/begin", {"kind": "SYNC"}, "/webhooks/count", "/webhooks"),  # the answer to another form
        ("/webhooks/begin", {"kind": "SYNC"}, "/wallet", ""),  # a page of other people's
        ("/webhooks/begin", {"kind": "SYNC"}, None, "/webhooks"),  # a browser that does not say
    ],
)
async def test_what_is_refused_leads_back_to_where_its_form_was(
    admin: Browser, action: str, fields: dict[str, str], page: str | None, back: str
) -> None:
    assert await refused(admin, action, fields, page) == f"/console{back}"
    assert said(await admin.get(f"/console{back}"))


async def refused(one: Browser, action: str, fields: dict[str, str], page: str | None) -> str:
    """Where a form that is refused leads."""
    sent = {"csrf": await one.csrf(), "once": secrets.token_hex(16), **fields}
    answer = await one.send(f"/console{action}", sent, **({"Referer": f"{one.url}/console{page}"} if page else {}))
    assert answer.status_code == 303
    return answer.headers["location"]


async def test_a_page_that_answered_a_form_is_no_page_to_go_back_to(service: Service, dealer: ApiClient) -> None:
    """/webhooks/test would be read as the page of a delivery."""
    async with signed_in(service, "developer", dealer.tenant_id) as developer:
        assert (
            await refused(developer, "/webhooks/url", {"callback_url": "no"}, "/webhooks/test") == "/console/webhooks"
        )


async def test_what_is_refused_after_the_password_leads_back_to_before_it(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    home = f"/dealers/{dealer.tenant_id}"
    action, sent = f"{home}/credentials/{dealer.app_key}/enable", {"csrf": await admin.csrf(), "once": "0" * 32}
    await value(service, "UPDATE console_session SET sure_at = sure_at - interval '6 minutes'")
    asked = await admin.send(f"/console{action}", sent, Referer=f"{admin.url}/console{home}")
    kept = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', asked.text))
    fields = {**kept, "sure_password": admin.password}
    assert await refused(admin, action, fields, action) == f"/console{home}"


async def test_a_reset_sent_twice_makes_one_secret(service: Service, dealer: ApiClient, admin: Browser) -> None:
    """Two would end the one that signs at this moment."""
    path = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
    answers = await sent_at_once(admin, f"{path}/reset", await form(admin, path), path)
    assert sorted(one.headers["location"] for one in answers) == [path, f"{path}?fresh=reset"]
    assert await value(service, "SELECT secret_version FROM credential WHERE app_key = $1", dealer.app_key) == 2


async def test_a_user_invited_twice_is_invited_once_and_the_link_is_not_lost(admin: Browser) -> None:
    name = f"twice-{secrets.token_hex(4)}@example.com"
    fields = await form(admin, "/console/users", name=name, role="support", tenant="")
    answers = await sent_at_once(admin, "/console/users", fields, "/console/users")
    assert [one.headers["location"] for one in answers] == ["/console/users"] * 2
    assert f"Invitation for {name}" in await page(admin, "/console/users")


@pytest.mark.parametrize("once", [None, "", "x" * 32, "A" * 32, "0" * 31])
async def test_a_form_without_its_value_is_refused(service: Service, admin: Browser, once: str | None) -> None:
    fields = {"csrf": await admin.csrf(), "name": "no-value@example.com", "role": "support", "tenant": ""}
    answer = await admin.send("/console/users", fields | ({} if once is None else {"once": once}))
    assert answer.status_code == 403
    assert not await value(service, "SELECT 1 FROM invitation WHERE address = 'no-value@example.com'")


async def test_a_form_that_was_refused_can_be_sent_again(service: Service, dealer: ApiClient, admin: Browser) -> None:
    """A user, and an adjustment."""
    fields = await form(admin, "/console/users", name="two words", role="support", tenant="")
    await admin.send("/console/users", fields)
    fields["name"] = f"mended-{secrets.token_hex(4)}@example.com"
    assert (await admin.send("/console/users", fields)).status_code == 303
    assert await value(service, "SELECT count(*) FROM invitation WHERE address = $1", fields["name"]) == 1
    home = f"/console/dealers/{dealer.tenant_id}"
    fields = await form(admin, home, direction="add", amount="1", reason=" ")
    await admin.send(f"{home}/adjust", fields)
    await admin.send(f"{home}/adjust", fields | {"reason": "mended"})
    assert (await dealer.post("/account/balance")).data["balance"] == "1001.00"


async def test_a_form_acts_after_the_password_was_asked_for_and_then_once(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    path = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
    fields = await form(admin, path, now="on")
    await value(service, "UPDATE console_session SET sure_at = sure_at - interval '6 minutes'")
    asked = (await admin.send(f"{path}/reset", fields)).text
    kept = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)"', asked.split('id="main"')[1]))
    assert kept == {"csrf": kept["csrf"], "once": kept["once"], "sure_for": "POST", "now": "on"}
    assert kept["once"] != fields["once"] and asked.count('name="once"') == 1
    given = kept | {"sure_password": admin.password}
    answers = [await admin.send(f"{path}/reset", given) for _ in range(2)]
    assert [one.status_code for one in answers] == [303, 303]
    assert await value(service, "SELECT secret_version FROM credential WHERE app_key = $1", dealer.app_key) == 2


async def test_what_one_session_sent_is_nothing_to_another(service: Service, admin: Browser) -> None:
    once = secrets.token_hex(16)
    async with signed_in(service) as other:
        for one in (admin, other):
            name = f"s-{secrets.token_hex(4)}@example.com"
            await one.post("/console/users", {"once": once, "name": name, "role": "support", "tenant": ""})
            assert await value(service, "SELECT 1 FROM invitation WHERE address = $1", name)


async def test_with_a_session_goes_what_it_sent(service: Service) -> None:
    async with signed_in(service) as one:
        await one.post("/console/users", {"name": "x y", "role": "support"})
        await one.post(
            "/console/users", {"name": f"g-{secrets.token_hex(4)}@example.com", "role": "support", "tenant": ""}
        )
        sent = "SELECT count(*) FROM console_form JOIN console_session USING (session_id) WHERE user_id = $1"
        assert await value(service, sent, one.user_id) == 1
        everything = await value(service, "SELECT count(*) FROM console_form")
        await one.post("/console/sign-out")
        assert await value(service, "SELECT count(*) FROM console_form") == int(str(everything)) - 1


# No secret is an answer to a form


async def test_no_form_is_answered_with_a_secret(dealer: ApiClient, admin: Browser) -> None:
    """What was sent can be loaded again by mistake; an answer to it stands in no history."""
    path = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
    new = {"name": "Web shop", "scope_read": "on"}
    for place, fields in ((f"{path}/reset", {}), (path.removesuffix(f"/{dealer.app_key}"), new)):
        answer = await admin.post(place, fields)
        assert (answer.status_code, answer.text) == (303, "")
        assert "sk_test_" in await page(admin, answer.headers["location"])


async def test_an_app_key_is_made_by_somebody_who_is_sure(service: Service, dealer: ApiClient, admin: Browser) -> None:
    place = f"/console/dealers/{dealer.tenant_id}/credentials"
    await value(service, "UPDATE console_session SET sure_at = sure_at - interval '6 minutes'")
    fields = {"name": f"Sure {secrets.token_hex(4)}", "scope_read": "on", "ip_allow": "203.0.113.7\n::1"}
    asked = await admin.post(place, fields)
    assert "sure_password" in asked.text and 'value="203.0.113.7\n::1"' in asked.text
    assert not await value(service, "SELECT 1 FROM credential WHERE name = $1", fields["name"])
    done = await admin.post(place, fields | {"sure_for": "POST", "sure_password": admin.password})
    assert "sk_test_" in await page(admin, done.headers["location"])


# In time


async def test_a_page_that_takes_too_long_ends_with_what_to_do(database_url: str) -> None:
    """Here a table is held by somebody else for as long as the page would wait."""
    async with running_service(database_url, worker=False, console_seconds=0.3) as service, signed_in(service) as one:
        async with service.database.transaction() as connection:
            await connection.execute("LOCK TABLE webhook_delivery IN ACCESS EXCLUSIVE MODE")
            answer = await one.get("/console/webhooks")
            part = await one.get("/console/webhooks", **{"HX-Request": "true"})
        assert answer.status_code == 503 and "Narrow the filter" in answer.text
        assert (part.status_code, part.headers["hx-reswap"]) == (503, "none")
        assert (await one.get("/console/webhooks")).status_code == 200


async def test_what_only_looks_ends_in_time_and_what_writes_takes_its_own(database_url: str) -> None:
    database = await Database.open(database_url, size=1, read_timeout_seconds=0.2)
    try:
        with pytest.raises(StatementTimeout):
            async with database.connection() as connection:
                await connection.execute("SELECT pg_sleep(30)")
        assert await database.run(lambda connection: connection.fetchval("SELECT 1 FROM pg_sleep(0.5)")) == 1
        async with database.connection() as connection:
            assert await connection.fetchval("SHOW statement_timeout") == "200ms"
    finally:
        await database.close()


# In a browser


@needs_chromium
@pytest.mark.parametrize("scripts", [True, False])
async def test_a_button_pressed_twice_acts_once_with_scripts_and_without(
    service: Service, dealer: ApiClient, scripts: bool
) -> None:
    async with opened() as chromium, signed_in(service) as one:
        context = await chromium.new_context(java_script_enabled=scripts)
        await context.add_cookies([{"name": "dealer_console", "value": one.token, "url": f"{service.url}/console"}])
        seen = await context.new_page()
        sent: list[str] = []
        seen.on("request", lambda asked: sent.append(asked.method) if asked.method == "POST" else None)
        await seen.goto(f"{service.url}/console/dealers/{dealer.tenant_id}")
        await adjust(seen)
        await expect(seen.locator(".flash")).to_be_visible()
        assert (await dealer.post("/account/balance")).data["balance"] == "1002.50"
        assert len(sent) == 1 or not scripts
        await context.close()


async def adjust(seen: Page) -> None:
    """By 2.50, with a button that is pressed twice."""
    form = seen.locator("form[action$='/adjust']")
    await seen.get_by_role("button", name="Adjust balance").click()
    await form.locator("[name=amount]").fill("2.50")
    await form.locator("[name=reason]").fill("pressed twice")
    await form.locator("button[type=submit]").dblclick()


@needs_chromium
async def test_a_button_works_again_when_somebody_comes_back(service: Service) -> None:
    async with opened() as chromium, signed_in(service) as one:
        seen = await chromium.new_page()
        await seen.context.add_cookies(
            [{"name": "dealer_console", "value": one.token, "url": f"{service.url}/console"}]
        )
        await seen.goto(f"{service.url}/console/account/password")
        button = seen.get_by_role("button", name="Change password")
        await seen.route("**/console/account/password", lambda route: route.fulfill(status=204))
        await seen.get_by_label("Current password").fill("x")
        await seen.get_by_label("New password", exact=True).fill("correct horse battery")
        await seen.get_by_label("Confirm new password").fill("correct horse battery")
        await button.click(no_wait_after=True)
        await expect(button).to_be_disabled()
        assert not await renews(seen), "what came now would bring the button back"
        await seen.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
        await expect(button).to_be_enabled()
        assert await renews(seen)


async def renews(seen: Page) -> bool:
    """Whether a part that renews itself would take its new content now."""
    return await seen.evaluate(
        """() => {
            const part = document.createElement("div");
            part.setAttribute("hx-trigger", "every 2s");
            document.body.append(part);
            return part.dispatchEvent(new CustomEvent("htmx:before:swap", { bubbles: true, cancelable: true }));
        }"""
    )
