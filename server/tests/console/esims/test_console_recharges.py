"""Recharges at the console: who may buy one buys it once, and every page tells of it rightly."""

import asyncio
import csv
import io
import json
import re
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dealer_server import clock
from dealer_server.dev import catalogue
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.rules.orders import identity
from dealer_server.store.console.audit import Act
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, said, signed_in
from support.console.operator_pages import acts, does, park, see, text_of
from support.money.refunds import bought, profiles, query
from support.patience import PATIENCE
from support.supplier_setup import Source, fresh, set_up

pytestmark = pytest.mark.usefixtures("exact")

GB = 2**30
TOPUP = "TEST-TOPUP-OK adds 1 GB and 7 days"
SETTINGS = {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush hush"}


@pytest.fixture
async def clerk(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        yield one


def page_of(order: dict[str, Any]) -> str:
    """Of the first eSIM."""
    return f"/console/profiles/{profiles(order)[0]['profileId']}"


async def form(one: Browser, page: str, offer: str = "TEST-TOPUP-OK 1.20", **fields: str) -> dict[str, str]:
    """The form that recharges, filled in."""
    text = (await one.get(page)).text
    _, _, inside = text.partition(f'action="{page}/recharge"')
    hidden = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', inside.partition("</form>")[0]))
    assert f'name="offer" value="{offer}"' in inside.partition("</form>")[0], text_of(text)
    return hidden | {"offer": offer} | fields


async def recharged(one: Browser, order: dict[str, Any], offer: str = "TEST-TOPUP-OK 1.20", **fields: str) -> str:
    """What the page says after an eSIM was recharged."""
    page = page_of(order)
    answer = await one.send(f"{page}/recharge", await form(one, page, offer, **fields), Referer=f"{one.url}{page}")
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    return said(await one.get(page))


async def until(one: Browser, page: str, words: str) -> str:
    """A page as text, once it says this."""
    async with asyncio.timeout(PATIENCE):
        while words not in (text := await see(one, page)):
            await asyncio.sleep(0.05)
    return text


async def bought_by_people(service: Service, dealer: ApiClient) -> list[Act]:
    """What the audit log says of recharges, the newest first."""
    return [act for act in await acts(service, "profile.recharge") if act.tenant_id == dealer.tenant_id]


async def balance(dealer: ApiClient) -> str:
    return (await dealer.post("/account/balance")).data["balance"]


async def settled(dealer: ApiClient, order_no: str, status: str = "COMPLETED") -> None:
    async with asyncio.timeout(PATIENCE):
        while (await query(dealer, {"orderNo": order_no}))["orderStatus"] != status:
            await asyncio.sleep(0.01)


# Buying one


async def test_an_esim_is_recharged_by_a_form_and_its_page_shows_the_plan(
    service: Service, dealer: ApiClient, clerk: Browser
):
    order = await bought(dealer)
    told = await recharged(clerk, order)
    order_no = told.rpartition(" ")[2]
    assert told == f"Paid. Plans shows the recharge: order {order_no}"
    await settled(dealer, order_no)
    assert await balance(dealer) == "997.00"
    page = await see(clerk, page_of(order))
    assert f"2 {TOPUP} Recharge {order_no} Queued 0 GB of 1 GB" in page
    assert "0 GB of 2 GB" in page, "of the eSIM as a whole"
    [act] = await bought_by_people(service, dealer)
    assert act.author == f"console:{clerk.name}"
    assert json.loads(act.detail) == {
        "profileId": int(profiles(order)[0]["profileId"]),
        "orderNo": order_no,
        "packageCode": "TEST-TOPUP-OK",
        "amount": "1.20",
    }


async def test_the_order_of_a_recharge_shows_what_it_recharges(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    order_no = (await recharged(clerk, order)).rpartition(" ")[2]
    await settled(dealer, order_no)
    path = f"/console/orders/{order_no}"
    page = await see(clerk, path)
    esim = profiles(order)[0]
    assert f"Recharge eSIM {esim['iccid']} Plan 2 of 2 Status Queued" in page
    assert f'href="{page_of(order)}"' in (await clerk.get(path)).text
    assert "Refund order" not in page and "Print QR codes" not in page
    listed = await see(clerk, "/console/orders")
    assert f"{TOPUP} No buyer {order_no} Recharge " in listed, listed
    assert listed.count(" Recharge ") == 1
    assert order_no in await see(clerk, "/console/wallet")
    found = await clerk.get(f"/console/orders?q={order_no}")
    assert found.headers["location"] == path


async def test_a_recharge_that_waits_is_refunded_on_its_page(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url, supplier_speed=0.001) as service:
        made = await service.tenant(balance="1000", qps=0)
        async with service.client(made) as dealer, signed_in(service, "finance", dealer.tenant_id) as clerk:
            order = await bought(dealer)
            order_no = (await recharged(clerk, order, "TEST-TOPUP-DELAY 1.20")).rpartition(" ")[2]
            path = f"/console/orders/{order_no}"
            assert "The recharge is cancelled, and 1.20 USD" in await see(clerk, path)
            assert "1.20 USD is refunded" in await does(clerk, f"{path}/refund", reason="too many")
            assert "Status Cancelled" in await see(clerk, path)
            assert f"Recharge {order_no} Cancelled" in await see(clerk, page_of(order))
            async with signed_in(service) as admin:
                page = await see(admin, page_of(order))
                assert "Recharge cancelled" in page and "Recharge applied" not in page
        assert await service.audit() == []


async def test_the_timeline_of_one_that_was_queued_and_refunded_tells_both(
    dealer: ApiClient, clerk: Browser, admin: Browser
):
    order = await bought(dealer)
    order_no = (await recharged(clerk, order, "TEST-TOPUP-QUEUE 1.20")).rpartition(" ")[2]
    await settled(dealer, order_no)
    path = f"/console/orders/{order_no}"
    assert "The note is kept" in await does(admin, f"{path}/note", note="asked by phone")
    await does(clerk, f"{path}/refund", reason="too many")
    await settled(dealer, order_no, "REFUNDED")
    page = await see(admin, path)
    applied, noted, cancelled = (page.index(told) for told in ("Recharge applied", "Note by", "Recharge cancelled"))
    assert applied > noted > cancelled, "the newest stands first"
    assert "Recharge cancelled" in await see(admin, page_of(order))


async def test_a_refund_that_a_recharge_stands_in_the_way_of_says_so(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    path = f"/console/orders/{order['orderNo']}"
    await settled(dealer, (await recharged(clerk, order)).rpartition(" ")[2])
    told = await does(clerk, f"{path}/refund", reason="too late")
    assert "Nothing was refunded. 1 eSIM: it was recharged, or a recharge of it is pending." in told
    assert "Reason has 256 characters; accepted: 255 at most." in await does(clerk, f"{path}/refund", reason="x" * 256)


async def test_a_double_click_recharges_once(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    page = page_of(order)
    fields = await form(clerk, page)
    answers = await asyncio.gather(
        *(clerk.send(f"{page}/recharge", fields, Referer=f"{clerk.url}{page}") for _ in range(3))
    )
    assert [(one.status_code, one.headers["location"]) for one in answers] == [(303, page)] * 3
    assert await balance(dealer) == "997.00"
    text = await see(clerk, page)
    assert "2 TEST-TOPUP-OK" in text and "3 TEST-TOPUP-OK" not in text


async def test_two_browsers_with_one_form_recharge_once_and_with_two_twice(
    service: Service, dealer: ApiClient, clerk: Browser
):
    order = await bought(dealer)
    page = page_of(order)
    async with signed_in(service, "admin", dealer.tenant_id) as boss:
        mine, theirs = await form(clerk, page), await form(boss, page)
        same = theirs | {"transaction_id": mine["transaction_id"]}
        await asyncio.gather(clerk.send(f"{page}/recharge", mine), boss.send(f"{page}/recharge", same))
        assert await balance(dealer) == "997.00"
        assert len(await bought_by_people(service, dealer)) == 1
        forms = [(clerk, await form(clerk, page)), (boss, await form(boss, page))]
        await asyncio.gather(*(one.send(f"{page}/recharge", fields) for one, fields in forms))
    assert await balance(dealer) == "994.60"
    authors = [act.author for act in await bought_by_people(service, dealer)]
    assert len(authors) == 3 and {f"console:{clerk.name}", f"console:{boss.name}"} == {*authors}
    assert "4 TEST-TOPUP-OK" in await see(clerk, page)


# Who, and what


async def test_only_those_who_move_money_recharge(service: Service, dealer: ApiClient, stranger: ApiClient):
    order, theirs = await bought(dealer), await bought(stranger)
    offer = {"offer": "TEST-TOPUP-OK 1.20", "transaction_id": f"console-{secrets.token_hex(8)}"}
    for role, status in (("developer", 403), ("finance", 303), ("admin", 303)):
        async with signed_in(service, role, dealer.tenant_id) as one:
            page = await see(one, page_of(order))
            assert ("Recharge this eSIM" in page) == (status == 303), role
            assert (await one.post(f"{page_of(order)}/recharge", {})).status_code == status
            await one.post(f"{page_of(theirs)}/recharge", offer)
    async with signed_in(service) as operator:
        assert "Recharge this eSIM" not in await see(operator, page_of(order))
        assert (await operator.post(f"{page_of(order)}/recharge", offer)).status_code == 404
    assert await balance(dealer) == await balance(stranger) == "998.20"


async def test_what_is_refused_leads_back_with_the_reason_and_costs_nothing(
    service: Service, dealer: ApiClient, clerk: Browser
):
    order = await bought(dealer)
    fields = await form(clerk, page_of(order))
    for offer, reason in (
        ("TEST-TOPUP-OK 1.10", "The price of TEST-TOPUP-OK is 1.20 USD now. Look at it and pay again."),
        ("TEST-TOPUP-OK much", "Choose a package."),
        ("TEST-OK 1.80", "This package does not fit this eSIM. Choose another."),
        ("", "Choose a package."),
    ):
        again = fields | {"offer": offer, "once": secrets.token_hex(16)}
        answer = await clerk.send(f"{page_of(order)}/recharge", again, Referer=f"{clerk.url}{page_of(order)}")
        assert answer.headers["location"] == page_of(order)
        shown = await clerk.get(page_of(order))
        assert said(shown) == reason
        dialog = shown.text.partition('id="dialog-recharge"')[2].partition("</dialog>")[0]
        assert "data-reopen" in dialog and " checked" not in dialog and reason in text_of(dialog)
    await dealer.post("/esim/profile/cancel", {"iccid": profiles(order)[0]["iccid"]})
    assert "Recharge this eSIM" not in await see(clerk, page_of(order))
    await clerk.send(f"{page_of(order)}/recharge", fields)
    assert said(await clerk.get(page_of(order))) == "This eSIM is cancelled."
    assert await balance(dealer) == "998.20"


async def test_the_form_says_what_each_package_adds_and_what_is_left_after_it(postgres: str, template: str):
    async with fresh(postgres, template) as url, running_service(url) as service:
        made = await service.tenant(balance="3.00", qps=0)
        async with service.client(made) as dealer, signed_in(service, "finance", dealer.tenant_id) as clerk:
            order = await bought(dealer)
            page = await see(clerk, page_of(order))
            assert "TEST-TOPUP-OK adds 1 GB and 7 days, 1.20 USD 1 GB, 7 days Balance after: 0.00 USD" in page
            assert "1 GB, 7 days, starts when the current plan ends Balance after" in page
            assert "Available balance: 1.20 USD" in page
            assert " checked" not in (await clerk.get(page_of(order))).text.partition('id="dialog-recharge"')[2]
            await settled(dealer, (await recharged(clerk, order)).rpartition(" ")[2])
            page = await see(clerk, page_of(order))
            assert "1 GB, 7 days Your balance does not cover it." in page and "Balance after" not in page


async def test_the_history_tells_of_a_plan_that_was_used_up_before_the_recharge(
    dealer: ApiClient, clerk: Browser, admin: Browser
):
    order = await bought(dealer)
    for step in ("START", "USE"):
        await dealer.post("/test/profile/advance", {"iccid": profiles(order)[0]["iccid"], "step": step})
    assert "starts when the current plan ends" not in await see(clerk, page_of(order)), "it has ended"
    order_no = (await recharged(clerk, order)).rpartition(" ")[2]
    await settled(dealer, order_no)
    for reader in (clerk, admin):
        history = (await see(reader, page_of(order))).partition(" History ")[2]
        told = ("Recharge applied", "Recharge paid", "Plan 1 used up", "Plan 1 started")
        assert sorted(told, key=history.index) == list(told), "the newest stands first"
        assert history.index("Plan 1 started") < history.rindex("Delivered")
    assert "simulated" not in await see(clerk, page_of(order)), "suppliers are not named"


async def test_the_history_tells_of_each_plan_that_was_queued(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    await settled(dealer, (await recharged(clerk, order, "TEST-TOPUP-QUEUE 1.20")).rpartition(" ")[2])
    for step in ("START", "USE", "USE"):
        await dealer.post("/test/profile/advance", {"iccid": profiles(order)[0]["iccid"], "step": step})
    history = (await see(clerk, page_of(order))).partition(" History ")[2]
    told = ("Plan ended", "Plan 2 started", "Plan 1 ended", "Plan 1 started")
    assert sorted(told, key=history.index) == list(told), history


def _plan_rows(page: str) -> str:
    return page.partition("<th>Started</th>")[2].partition("</tbody>")[0]


async def test_a_plan_in_use_shows_its_start_and_end_and_its_page_renews_itself_soon(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    path = page_of(order)
    assert "<time" not in _plan_rows((await clerk.get(path)).text)
    await dealer.post("/test/profile/advance", {"iccid": profiles(order)[0]["iccid"], "step": "START"})
    page = (await clerk.get(path)).text
    [plan] = (await dealer.post("/esim/profile/plans", {"iccid": profiles(order)[0]["iccid"]})).data["plans"]
    rows = _plan_rows(page)
    assert [f'datetime="{plan[name]}"' in rows for name in ("startTime", "endTime")] == [True, True]
    assert 'hx-trigger="every 2s"' in page, "it has just changed"


async def test_an_esim_that_nobody_can_recharge_has_no_form(service: Service, dealer: ApiClient, clerk: Browser):
    waiting = (await dealer.order("TEST-FAIL")).data
    await settled(dealer, waiting["orderNo"], "REFUNDED")
    page = await see(clerk, page_of(waiting))
    assert "Plan Status Used Started TEST-FAIL" in page and "Recharge this eSIM" not in page


async def test_a_package_that_is_sold_by_the_day_asks_for_days(service: Service, dealer: ApiClient, clerk: Browser):
    known = {package.package_code: package for package in catalogue.catalogue("test")}
    daily = {"data_type": "DAILY_CUTOFF", "min_period_num": 2, "max_period_num": 30, "location_code": "DAYS"}
    base = msgspec.structs.replace(known["TEST-OK"], package_code="BY-DAY", slug="by-day", **daily)
    more = msgspec.structs.replace(known["TEST-TOPUP-OK"], package_code="DAYS-MORE", slug="days-more", **daily)
    await put_packages(service.database, [base, more], "test", clock.now)
    line = {"packageCode": "BY-DAY", "quantity": 1, "price": "1.80", "periodNum": 2}
    async with asyncio.timeout(PATIENCE):
        while (placed := await dealer.order(items=[line], amount="3.60")).code == "310241":
            await asyncio.sleep(0.05)
    order = await dealer.delivered(placed.data["orderNo"])
    assert "1.20 USD a day 1 GB a day, 2 to 30 days" in await see(clerk, page_of(order))
    assert "is sold for 2 to 30 days" in await recharged(clerk, order, "DAYS-MORE 1.20", days="1")
    assert "Paid. " in await recharged(clerk, order, "DAYS-MORE 1.20", days="5")
    assert await balance(dealer) == "990.40"


# What operators see


async def test_an_operator_sees_plans_and_what_happened_to_them(dealer: ApiClient, clerk: Browser, admin: Browser):
    order = await bought(dealer)
    good = (await recharged(clerk, order)).rpartition(" ")[2]
    await settled(dealer, good)
    bad = (await recharged(clerk, order, "TEST-TOPUP-FAIL 1.20")).rpartition(" ")[2]
    await settled(dealer, bad, "REFUNDED")
    page = await see(admin, page_of(order))
    assert (
        f"2 {TOPUP} Recharge {good} Queued" in page
        and f"3 {TOPUP.replace('OK', 'FAIL')} Recharge {bad} Failed, refunded" in page
    )
    for told in ("Recharge paid, 1.20 USD Paid", "Recharge applied Delivered", "Recharge failed Failed"):
        assert told in page, told
    page = await see(admin, f"/console/orders/{good}")
    assert f"Recharge eSIM {profiles(order)[0]['iccid']} Plan 2 of 3" in page
    assert "Order placed, 1.20 USD debited" in page and "Recharge applied" in page and "Recharge paid" not in page
    page = await see(admin, f"/console/orders/{bad}")
    assert page.rindex("Recharge failed") > page.index("1.20 USD credited")
    page = await see(admin, f"/console/orders/{order['orderNo']}")
    assert page.count("Recharge paid") == 2 and "Recharge applied" in page


async def test_the_timelines_of_a_dealer_tell_of_recharges(dealer: ApiClient, clerk: Browser):
    order = await bought(dealer)
    good = (await recharged(clerk, order)).rpartition(" ")[2]
    await settled(dealer, good)
    bad = (await recharged(clerk, order, "TEST-TOPUP-FAIL 1.20")).rpartition(" ")[2]
    await settled(dealer, bad, "REFUNDED")
    path = f"/console/orders/{order['orderNo']}"
    page = await see(clerk, path)
    paid, applied, failed = (
        [at.start() for at in re.finditer(f"Recharge {what}", page)] for what in ("paid, 1.20 USD", "applied", "failed")
    )
    assert (len(paid), len(applied), len(failed)) == (2, 1, 1)
    assert failed[0] < paid[0] < applied[0] < paid[1], "the newest stands first"
    text = (await clerk.get(path)).text
    assert all(f'<a href="/console/orders/{order_no}">{order_no}</a>' in text for order_no in (good, bad))
    page = await see(clerk, f"/console/orders/{good}")
    assert "Recharge applied Delivered" in page and "Recharge paid" not in page
    page = await see(clerk, f"/console/orders/{bad}")
    assert "Recharge failed Failed" in page and "Recharge paid" not in page


async def test_lists_of_orders_say_which_are_recharges(dealer: ApiClient, clerk: Browser, admin: Browser):
    order = await bought(dealer)
    order_no = (await recharged(clerk, order)).rpartition(" ")[2]
    await settled(dealer, order_no)
    page = await see(admin, f"/console/orders?dealer={dealer.tenant_id}")
    assert re.search(rf"{order_no}( \S+)? Recharge", page)
    assert not re.search(rf"{order['orderNo']}( \S+)? Recharge", page)
    answered = await admin.get(f"/console/orders.csv?dealer={dealer.tenant_id}")
    rows = {row["orderNo"]: row["orderType"] for row in csv.DictReader(io.StringIO(answered.text))}
    assert rows == {order_no: "TOPUP", order["orderNo"]: "BASE"}


# A purchase of a recharge that nobody knows about


@pytest.fixture
async def slow(postgres: str, template: str) -> AsyncIterator[Service]:
    """The supplier rt:near is away, and what is delayed takes hours."""
    async with fresh(postgres, template) as url:
        await set_up(url, [Source("rt:near", "rt_upstream", SETTINGS)], {})
        async with running_service(url, supplier_speed=0.001) as service:
            yield service
            assert await service.audit() == []


async def parked(service: Service, dealer: ApiClient) -> tuple[dict[str, Any], str, str]:
    """An eSIM's order, the order of its recharge, and the unit that rt:near was asked for."""
    order = await bought(dealer)
    call = {"transactionId": f"r-{secrets.token_hex(8)}", "packageCode": "TEST-TOPUP-DELAY", "price": "1.20"}
    call |= {"iccid": profiles(order)[0]["iccid"], "amount": "1.20"}
    order_no = (await dealer.post("/esim/topup", call)).data["orderNo"]
    async with service.database.connection() as connection:
        await connection.execute(
            "UPDATE order_item SET sold_supplier = supplier, supplier = 'rt:near', due_at = NULL, claim = NULL"
            " WHERE order_id = $1",
            identity.order_id(order_no),
        )
    return order, *await park(service, dealer, order_no)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_recharge_that_nobody_knows_about_goes_on_at_an_operators_word(slow: Service, applied: bool):
    made = await slow.tenant(balance="1000", qps=0)
    async with slow.client(made) as dealer, signed_in(slow) as admin:
        order, order_no, unit = await parked(slow, dealer)
        page = await see(admin, "/console/suppliers")
        assert f"recharges {profiles(order)[0]['profileId']}" in page and "Applied" in page
        assert "ICCID" not in page.partition("Applied")[2].partition("Stock")[0]
        codes = {"iccid": "8944500102198304826", "code": "LPA:1$a.example$b"}
        wrong = await does(admin, "/console/suppliers/resolve", unit=unit, outcome="bought", **codes)
        assert "say that it was applied" in wrong
        outcome = "applied" if applied else "not bought"
        told = await does(admin, "/console/suppliers/resolve", unit=unit, outcome=outcome)
        assert f"{unit} is resolved: {outcome}" in told
        await settled(dealer, order_no, "COMPLETED" if applied else "REFUNDED")
        total = profiles(await query(dealer, order))[0]["remainDataBytes"]
        assert (total, await balance(dealer)) == ((2 * GB, "997.00") if applied else (GB, "998.20"))
        assert ("Recharge applied" if applied else "Recharge failed") in await see(admin, page_of(order))
        path = f"/console/orders/{order_no}"
        async with signed_in(slow, "finance", dealer.tenant_id) as clerk:
            for one, why in ((admin, "The recharge failed at rt:near"), (clerk, "The recharge failed")):
                page = await see(one, path)
                assert (why in page, "Recharge applied" in page or "recharge applied" in page) == (not applied, applied)
                assert "Recharge failed" not in page and ": recharge failed" not in page, "it is told once"
        [act] = await acts(slow, "supplier.resolve")
        assert json.loads(act.detail) == {"unitKey": unit, "outcome": outcome}


async def test_an_esim_that_was_bought_is_not_applied(slow: Service):
    made = await slow.tenant(balance="1000", qps=0)
    async with slow.client(made) as dealer, signed_in(slow) as admin:
        _, unit = await park(slow, dealer)
        told = await does(admin, "/console/suppliers/resolve", unit=unit, outcome="applied")
        assert "say that it was bought" in told
        assert await acts(slow, "supplier.resolve") == []
        async with slow.database.connection() as connection:
            await connection.execute("DELETE FROM purchase WHERE unit_key = $1", unit)
