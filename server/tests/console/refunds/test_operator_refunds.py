"""Refunds by an operator: of an order, a line or an eSIM, with a reason; and the queue of those that are to be decided,
with what its eSIMs have used and many at once."""

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import expect

from dealer_server.rules.orders import identity
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.chromium import AXE, barriers, needs_chromium, opened, page_faults
from support.console.operator_pages import acts, does, fill, see, text_of
from support.patience import found

QUEUE = "/console/refunds"
LISTS = (("orders", "status", "Refund in review 1", "Being refunded 1"), ("profiles", "state", "Ended 1", "Ended 1"))


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


async def two_lines(dealer: ApiClient) -> dict[str, object]:
    """A delivered order of two eSIMs and of one more."""
    items = [
        {"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"},
        {"packageCode": "TEST-DELAY", "quantity": 1, "price": "1.80"},
    ]
    return await dealer.delivered((await dealer.order(items=items, amount="5.40")).data["orderNo"])


async def in_review(dealer: ApiClient, quantity: int = 1) -> tuple[str, str]:
    """refundNo and orderNo of a refund that an operator decides."""
    items = [{"packageCode": "TEST-REVIEW", "quantity": quantity, "price": "1.80"}]
    order_no = (await dealer.order(items=items, amount=f"{quantity * 1.8:.2f}")).data["orderNo"]
    await dealer.delivered(order_no)
    return (await dealer.post("/esim/refund", {"orderNo": order_no})).data["refundNo"], order_no


async def use(service: Service, dealer: ApiClient, order_no: str) -> None:
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE profile SET data_usage_bytes = 2000000 WHERE tenant_id = $1 AND order_id = $2",
            dealer.tenant_id,
            identity.order_id(order_no),
        )


async def balance(dealer: ApiClient) -> str:
    return (await dealer.post("/account/balance")).data["balance"]


async def test_one_esim_and_one_line_are_refunded_with_a_reason(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    order = await two_lines(dealer)
    page, [first, second] = f"/console/orders/{order['orderNo']}", order["items"]
    profile_id = str(first["profiles"][0]["profileId"])
    own = (await admin.get(f"/console/profiles/{profile_id}")).text
    assert "Refund this eSIM?" in own and f'name="item_no" value="{first["itemNo"]}"' in own
    html = (await admin.get(page)).text
    assert "Refund item 1, TEST-OK?" in html and "Refund item 2, TEST-DELAY?" in html
    named = {"item_no": first["itemNo"], "profile_id": profile_id, "reason": "lost phone"}
    assert "1.80 USD is refunded" in await does(admin, f"{page}/refund", **named)
    assert "Refund this eSIM?" not in (await admin.get(f"/console/profiles/{profile_id}")).text
    assert "1.80 USD is refunded" in await does(admin, f"{page}/refund", item_no=second["itemNo"], reason="late")
    html = (await admin.get(page)).text
    assert "Refund item 1, TEST-OK?" in html and "Refund item 2, TEST-DELAY?" not in html
    assert await balance(dealer) == "998.20"
    details = [act.detail for act in await acts(service, "order.refund") if act.tenant_id == dealer.tenant_id]
    assert len(details) == 2 and "lost phone" in details[1] and "late" in details[0]


async def test_support_refunds_nothing(service: Service, dealer: ApiClient) -> None:
    order = await two_lines(dealer)
    async with signed_in(service, "support") as support:
        assert "Refund item" not in (await support.get(f"/console/orders/{order['orderNo']}")).text
        refused = await fill(support, f"/console/orders/{order['orderNo']}/refund", reason="no")
        assert refused.status_code == 403
        assert (await fill(support, f"{QUEUE}/decide", verdict="approve")).status_code == 403


async def test_the_queue_says_how_much_waits_and_what_was_used(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    number, order_no = await in_review(dealer)
    page = await see(admin, QUEUE)
    assert "refund, 1.80 USD in review" in page or "refunds," in page
    row = page.partition(number)[2]
    assert row.index("Within policy Not installed, 0 of 1 GB") < row.index("Approve") and "TEST-REVIEW" in row
    await use(service, dealer, order_no)
    row = (await see(admin, QUEUE)).partition(number)[2]
    assert row.index("Outside policy 1.91 MB of 1 GB") < row.index("Approve")


async def test_what_was_settled_lately_stands_below_what_waits(dealer: ApiClient, admin: Browser) -> None:
    (settled, _), (waits, _) = await in_review(dealer), await in_review(dealer)
    assert settled not in (await see(admin, QUEUE)).partition("Settled lately")[2]
    await does(admin, f"{QUEUE}/{settled}/approve")

    async def credited() -> str | None:
        waiting, _, lately = (await see(admin, QUEUE)).partition("Any time")[2].partition("Settled lately")
        return waiting if settled in lately else None

    waiting = await found(credited)
    assert waits in waiting and settled not in waiting
    for other in ("?status=REVIEW", "?status=ALL", "?status=REFUNDED", f"?dealer={dealer.tenant_id}"):
        assert "Settled lately" not in await see(admin, f"{QUEUE}{other}")


async def test_each_refund_stands_in_one_tab_with_its_policy_and_in_its_file(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    number, _ = await in_review(dealer)
    row = (await see(admin, QUEUE)).partition(number)[2]
    lists = [(f"/console/{name}?dealer={dealer.tenant_id}&{state}", *tabs) for name, state, *tabs in LISTS]
    for path, tab, _ in lists:
        shown = await see(admin, f"{path}=REVIEW")
        assert tab in shown and "TEST-REVIEW" in shown.partition("Any time")[2]
        assert "TEST-REVIEW" not in (await see(admin, f"{path}=REFUNDING")).partition("Any time")[2]
    assert "Within policy" in row and number not in await see(admin, f"{QUEUE}?status=REFUNDING")
    assert number in (await admin.get(f"{QUEUE}.csv")).text
    assert number not in (await admin.get(f"{QUEUE}.csv?status=REFUNDING")).text
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE refund_line SET way = 'SUPPLIER' WHERE tenant_id = $1 AND refund_id = $2",
            dealer.tenant_id,
            identity.refund_id(number),
        )
    for path, _, tab in lists:
        assert tab in await see(admin, path) and "TEST-REVIEW" in await see(admin, f"{path}=REFUNDING")
    assert number not in await see(admin, QUEUE)
    assert number in await see(admin, f"{QUEUE}?status=REFUNDING") and "Being refunded 1" in await see(admin, QUEUE)
    assert number in (await admin.get(f"{QUEUE}.csv?status=REFUNDING")).text


async def test_a_refund_is_decided_on_the_page_of_its_order(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    number, order_no = await in_review(dealer)
    page = f"/console/orders/{order_no}"
    shown = await see(admin, page)
    told = shown.partition("Decide the refund of 1.80 USD")[2].partition("Dealer's reference")[0]
    assert "by the dealer, by API" in told and "Within policy" in told and "Supplier cost Not known" in told
    assert "Within policy" in told and number in told and "Refund in review" in shown.partition("Timeline")[2]
    for of_it in (page, f"/console/dealers/{dealer.tenant_id}", "/console/packages/TEST-REVIEW"):
        between, review, _ = (await see(admin, of_it)).partition(order_no)[2].partition("Refund in review")
        assert review and "Being refunded" not in between, of_it
    sent = await fill(admin, f"{QUEUE}/{number}/reject", page="order", reason="after 30 days")
    assert sent.headers["location"] == page
    assert "Decide the refund" not in await see(admin, page)

    async def rejected() -> str | None:
        after = await see(admin, page)
        return after if f"Refund {number} rejected" in after else None

    assert "after 30 days" in await found(rejected)


async def test_what_was_used_stands_against_a_refund_where_it_is_decided(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    _, order_no = await in_review(dealer)
    await use(service, dealer, order_no)
    told = (await see(admin, f"/console/orders/{order_no}")).partition("Decide the refund")[2]
    assert told.index("Outside policy: 1 used") < told.index("Timeline") and "1.91 MB of" in told
    async with signed_in(service, "support") as support:
        looked = await see(support, f"/console/orders/{order_no}")
        assert "In review: refund of" in looked and "Admins and finance decide" in looked and "Approve" not in looked


async def test_the_number_of_a_refund_leads_to_its_order(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
) -> None:
    number, order_no = await in_review(dealer)
    sent = await admin.get(f"{QUEUE}/{number}")
    assert (sent.status_code, sent.headers["location"]) == (303, f"/console/orders/{order_no}#{number}")
    for nonsense in ("R261129000000000000", "nothing"):
        assert (await admin.get(f"{QUEUE}/{nonsense}")).status_code == 404
    async with signed_in(service, "admin", dealer.tenant_id) as own:
        assert (await own.get(f"{QUEUE}/{number}")).status_code == 303
    async with signed_in(service, "admin", stranger.tenant_id) as another:
        assert (await another.get(f"{QUEUE}/{number}")).status_code == 404


async def test_who_at_the_console_asked_for_a_refund_is_named(dealer: ApiClient, admin: Browser) -> None:
    order = await two_lines(dealer)
    page = f"/console/orders/{order['orderNo']}"
    await does(admin, f"{page}/refund", item_no=order["items"][1]["itemNo"], reason="late")
    told = (await see(admin, page)).partition("Timeline")[2]
    assert "requested by the dealer" not in told and "Refund of 1.80 USD requested by" in told and "late" in told


async def test_many_are_approved_at_once(service: Service, dealer: ApiClient, admin: Browser) -> None:
    """One that somebody else decides meanwhile keeps no other back."""
    numbers = [(await in_review(dealer))[0] for _ in range(3)]
    picks = {f"pick-{number}": "on" for number in numbers}
    mine = (await admin.get(f"{QUEUE}?dealer={dealer.tenant_id}")).text
    assert "Approve 3 within policy, 5.40 USD" in text_of(mine)
    assert all(mine.count(f'name="{pick}" value="on"') == 2 for pick in picks), "a box, and a field of this button"
    html = (await fill(admin, f"{QUEUE}/selected", verdict="approve", **picks)).text
    text = text_of(html)
    assert "Approve 3 refunds" in text and "Total 5.40 USD" in text
    await does(admin, f"{QUEUE}/{numbers[0]}/reject", reason="used on the plane")
    told = await does(admin, f"{QUEUE}/decide", verdict="approve", **picks)
    assert f"2 refunds approved; the credits follow; {numbers[0]} is RE" in told
    for number in numbers[1:]:
        waiting = (await see(admin, QUEUE)).replace(told, "").partition("Settled lately")[0]
        assert number not in waiting
    approved = [act for act in await acts(service, "refund.approve") if act.tenant_id == dealer.tenant_id]
    assert len(approved) == 2
    assert "None of them waits any more" in text_of(
        (await fill(admin, f"{QUEUE}/selected", verdict="approve", **{f"pick-{numbers[1]}": "on"})).text
    )


async def test_the_button_of_the_policy_takes_what_is_within_it_when_it_is_pressed(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    """And the amount of the eSIMs that are decided: another of its refund goes by itself."""
    (whole, _), (part, _), (soon_used, soon), (used, before) = [
        await in_review(dealer, quantity) for quantity in (1, 2, 1, 1)
    ]
    await use(service, dealer, before)
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE refund_line SET way = 'SUPPLIER' WHERE tenant_id = $1 AND refund_id = $2 AND profile_id = ("
            "SELECT min(profile_id) FROM refund_line WHERE tenant_id = $1 AND refund_id = $2)",
            dealer.tenant_id,
            identity.refund_id(part),
        )
    html = (await admin.get(f"{QUEUE}?dealer={dealer.tenant_id}")).text
    assert "Approve 3 within policy, 5.40 USD" in text_of(html) and "1 of 2 eSIMs to decide, 1.80 USD" in text_of(html)
    form = html.partition(f'action="{QUEUE}/selected"')[2].partition("</form>")[0]
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))
    assert f"pick-{used}" not in fields
    await use(service, dealer, soon)
    answer = await fill(admin, f"{QUEUE}/selected", **fields, verdict="approve")
    shown = text_of(answer.text)
    assert "Approve 2 refunds" in shown and "Total 3.60 USD" in shown and "1 refund left out" in shown
    assert whole in shown and part in shown and soon_used not in shown
    left = await fill(admin, f"{QUEUE}/selected", verdict="approve", within="on", **{f"pick-{soon_used}": "on"})
    assert left.status_code == 400 and "None of them is within policy any more" in text_of(left.text)


async def test_many_are_rejected_with_one_reason(service: Service, dealer: ApiClient, admin: Browser) -> None:
    picks = {f"pick-{(await in_review(dealer))[0]}": "on" for _ in range(2)}
    assert "needs a reason" in await does(admin, f"{QUEUE}/decide", verdict="reject", **picks)
    told = await does(admin, f"{QUEUE}/decide", verdict="reject", reason="after 30 days", **picks)
    assert "2 refunds rejected" in told
    rejected = [act for act in await acts(service, "refund.reject") if act.tenant_id == dealer.tenant_id]
    assert len(rejected) == 2 and all("after 30 days" in act.detail for act in rejected)


@pytest.mark.parametrize("picked", [{}, {"pick-R1": "on"}, {"pick-nothing": "on"}])
async def test_nothing_or_nonsense_chosen_is_no_error(admin: Browser, picked: dict[str, str]) -> None:
    for path in ("selected", "decide"):
        answer = await fill(admin, f"{QUEUE}/{path}", verdict="approve", **picked)
        assert answer.status_code in (303, 400)


@needs_chromium
async def test_an_operator_refunds_an_order_by_keyboard_alone(
    chromium: Chromium, service: Service, dealer: ApiClient, admin: Browser
) -> None:
    """From the search to the credit, without a mouse."""
    order = await two_lines(dealer)
    context = await chromium.new_context(viewport={"width": 1280, "height": 900})
    await context.add_init_script(AXE)
    await context.add_cookies([{"name": "dealer_console", "value": admin.token, "url": service.url}])
    page = await context.new_page()
    faults = page_faults(page)
    await page.goto(f"{service.url}/console")
    await page.keyboard.press("/")
    await page.keyboard.type(str(order["orderNo"]))
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("TEST-OK 1 GB 7 days × 2 +1 more for Test dealer")
    button = page.locator("#actions").get_by_role("button", name="Refund", exact=True)
    for _ in range(60):
        await page.keyboard.press("Tab")
        if await button.evaluate("one => one === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Refund this order?")
    await expect(dialog.get_by_label("Reason")).to_be_visible()
    assert await barriers(page) == []
    while not await dialog.get_by_label("Reason").evaluate("one => one === document.activeElement"):
        await page.keyboard.press("Tab")
    await page.keyboard.type("the trip was cancelled")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("status").first).to_contain_text("5.40 USD is refunded")
    await expect(page.get_by_label("Summary")).to_contain_text("Refunded")
    assert faults == []
    assert await balance(dealer) == "1000.00"
    await context.close()


@needs_chromium
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
async def test_rows_of_the_queue_are_chosen_and_approved(
    chromium: Chromium, service: Service, dealer: ApiClient, admin: Browser, scripts: bool
) -> None:
    number, _ = await in_review(dealer)
    context = await chromium.new_context(viewport={"width": 1440, "height": 900}, java_script_enabled=scripts)
    if scripts:
        await context.add_init_script(AXE)
    await context.add_cookies([{"name": "dealer_console", "value": admin.token, "url": service.url}])
    page = await context.new_page()
    await page.goto(f"{service.url}{QUEUE}")
    box = page.get_by_label(f"Select {number}")
    if scripts:
        await page.locator("th").get_by_label("Select all").check()
        await expect(box).to_be_checked()
        await page.locator("th").get_by_label("Select all").uncheck()
        await expect(box).not_to_be_checked()
        assert await barriers(page) == []
    else:
        await expect(page.locator("th").get_by_label("Select all")).to_be_hidden()
    await box.check()
    await page.get_by_role("button", name="Approve selected").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Approve 1 refund")
    assert not scripts or await barriers(page) == []
    await page.get_by_role("button", name="Approve 1 refund").click()
    await expect(page.get_by_role("status").first).to_contain_text("1 refund approved")
    await context.close()
