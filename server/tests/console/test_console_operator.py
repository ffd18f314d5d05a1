"""The operator's pages: orders and what happened to them, dealers, queues, webhooks, packages, the audit log."""

import asyncio
import csv
import io
import json
import re
import secrets
from datetime import timedelta
from typing import Any

import pytest

from dealer_server import clock
from dealer_server.dev import catalogue
from dealer_server.fulfillment.health_monitor import HealthMonitor
from dealer_server.rules.catalogue import importing
from dealer_server.rules.orders import identity
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import suppliers
from dealer_server.store.console.orders import OrderFilter
from dealer_server.suppliers.contract import Health
from dealer_server.suppliers.rt.calls import RtSettings
from dealer_server.suppliers.rt.upstream import RtUpstream
from support.api_client import ApiClient, Service, running_service
from support.browser import Browser, signed_in
from support.console.catalogue import hidden
from support.console.onboarding import onboarded, tenant_of
from support.console.operator_pages import acts, does, failed_for_good, fill, park, see, text_of
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.supplier_setup import Source, fresh, set_up
from support.webhook_fixture import Receiver, answer

ROLES = ("admin", "finance", "support", "readonly")


# Orders


async def test_an_order_is_told_in_one_line_of_time(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order = (await dealer.order(remark="for the fair")).data
    await dealer.delivered(order["orderNo"])
    await receiver.received(2)
    page = await see(admin, f"/console/orders/{order['orderNo']}")
    told = ("Delivered by simulated", "Order placed, 1.80 USD debited", "Webhook ORDER_PAID", "HTTP 200",
            "Webhook DELIVERY_UPDATED", order["transactionId"], "for the fair", "ICCID_READY")  # fmt: skip
    for words in told:
        assert words in page
    assert "debited, eSIM delivered" not in page, "its steps say it"
    assert f'"orderNo": "{order["orderNo"]}"' in page, "the body is opened"


async def test_bodies_are_for_admins_and_support_and_hold_no_codes(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order_no = (await dealer.order()).data["orderNo"]
    profile = (await dealer.delivered(order_no))["items"][0]["profiles"][0]
    secret = (profile["activationCode"].split("$")[2], profile["qrCodeUrl"].rpartition("/")[2])
    await receiver.received(2)
    for role in ROLES:
        async with signed_in(service, role) as one:
            page = (await one.get(f"/console/orders/{order_no}")).text
            links = set(re.findall(r"/console/deliveries/\d+/\d+", page))
            pages = [page, *[(await one.get(link)).text for link in links]]
            assert len(pages) == 3
            assert not [code for code in secret for page in pages if code in page], role
            assert all(("LPA:1$" in page) == (role in ("admin", "support")) for page in pages[:1]), role


async def test_a_refund_and_its_credit_stand_in_the_order(dealer: ApiClient, admin: Browser):
    order = (await dealer.order()).data
    await dealer.delivered(order["orderNo"])
    refund = (await dealer.post("/esim/refund", {"orderNo": order["orderNo"]})).data
    page = await see(admin, f"/console/orders/{order['orderNo']}")
    assert "Refund of 1.80 USD requested" in page and "1.80 USD credited" in page
    assert refund["refundNo"] in page


async def test_what_is_no_order_is_not_here(admin: Browser):
    for number in ("D000000000000000000", "nonsense", "D26112008153012345"):
        assert (await admin.get(f"/console/orders/{number}")).status_code == 404


async def test_the_list_keeps_to_its_filters(service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser):
    ours, failed = (await dealer.order()).data, (await dealer.order("TEST-FAIL")).data
    theirs = (await stranger.order()).data
    await dealer.delivered(failed["orderNo"])
    page = await see(admin, f"/console/orders?dealer={dealer.tenant_id}")
    assert ours["orderNo"] in page and failed["orderNo"] in page and theirs["orderNo"] not in page
    page = await see(admin, f"/console/orders?dealer={dealer.tenant_id}&package=TEST-FAIL")
    assert failed["orderNo"] in page and ours["orderNo"] not in page
    page = await see(admin, f"/console/orders?dealer={dealer.tenant_id}&to=2020-01-01")
    assert "No orders match" in page


async def test_the_file_is_what_the_list_shows(dealer: ApiClient, admin: Browser):
    orders = [(await dealer.order(transactionId=f"-a{secrets.token_hex(4)}")).data for _ in range(3)]
    answered = await admin.get(f"/console/orders.csv?dealer={dealer.tenant_id}")
    assert answered.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answered.text)))
    assert [row["orderNo"] for row in rows] == [order["orderNo"] for order in reversed(orders)]
    assert rows[0]["amount"] == "1.80" and rows[0]["packages"] == "TEST-OK x1"
    assert rows[0]["transactionId"].startswith("'-"), "no spreadsheet takes it for a formula"


async def test_who_takes_a_file_is_written_down_with_its_filter(service: Service, dealer: ApiClient):
    async with signed_in(service, "readonly") as one:
        await one.get(f"/console/orders.csv?dealer={dealer.tenant_id}&status=FAILED&trail=1~2&package=&from=2026-01-01")
        await one.get("/console/orders.csv?dealer=nobody")
        await one.get("/console/orders.csv")
        await one.get(f"/console/dealers/{dealer.tenant_id}/statement.csv?type=ADJUST&to=2026-02-01")
        everything, nothing, some = (await acts(service, "orders.export"))[:3]
        [statement] = [act for act in await acts(service, "statement.export") if act.author == f"console:{one.name}"]
    assert (everything.author, everything.tenant_id, everything.detail) == (f"console:{one.name}", None, "{}")
    assert (nothing.tenant_id, json.loads(nothing.detail)) == (None, {"dealer": "nobody"})
    assert (some.author, some.source, some.tenant_id) == (f"console:{one.name}", "127.0.0.1", dealer.tenant_id)
    wanted = {"dealer": str(dealer.tenant_id), "status": "FAILED", "from": "2026-01-01"}
    assert json.loads(some.detail) == wanted
    assert statement.tenant_id == dealer.tenant_id
    assert json.loads(statement.detail) == {"type": "ADJUST", "to": "2026-02-01"}


async def test_pages_of_all_dealers_lose_no_order_and_show_none_twice(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    for number in range(12):
        await (dealer if number % 3 else stranger).order()
    async with service.database.connection() as connection:
        seen: list[int] = []
        before: int | None = None
        while True:
            found = await console_orders.list_orders(connection, OrderFilter(), before, 5)
            seen += [one.order_id for one in found.rows]
            if (before := found.next) is None:
                break
        rows = await connection.fetch("SELECT order_id FROM orders ORDER BY order_id DESC")
    assert seen == [row[0] for row in rows]


async def test_older_orders_are_found_far_behind_the_newest(service: Service, dealer: ApiClient):
    """Years lie between two orders: the list steps over the time between."""
    order = (await dealer.order()).data
    order_id = identity.order_id(order["orderNo"])
    assert order_id is not None
    later = clock.now() + timedelta(days=2_000)
    async with service.database.connection() as connection:
        filters = OrderFilter(tenant_id=dealer.tenant_id, end=later)
        found = await console_orders.list_orders(connection, filters, identity.first_id_at(int(later.timestamp())), 5)
    assert [one.order_id for one in found.rows] == [order_id]


# Search


async def test_a_search_goes_straight_to_the_one_that_is_meant(service: Service, dealer: ApiClient, admin: Browser):
    order = (await dealer.order()).data
    profile = (await dealer.delivered(order["orderNo"]))["items"][0]["profiles"][0]
    for word, page in (
        (order["orderNo"], f"/console/orders/{order['orderNo']}"),
        (order["transactionId"], f"/console/orders/{order['orderNo']}"),
        (profile["iccid"], f"/console/profiles/{profile['profileId']}"),
        (profile["profileId"], f"/console/profiles/{profile['profileId']}"),
    ):
        assert (await admin.get(f"/console/search?q={word}")).headers["location"] == page
    answered = await admin.get(f"/console/search?q={dealer.app_key}")
    assert answered.headers["location"] == f"/console/dealers/{dealer.tenant_id}"


async def test_a_search_that_means_several_shows_them(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    number = secrets.token_hex(6)
    ours, theirs = [(await client.order(transactionId=number)).data for client in (dealer, stranger)]
    page = await see(admin, f"/console/search?q={number}")
    assert ours["orderNo"] in page and theirs["orderNo"] in page
    assert "No match for" in await see(admin, "/console/search?q=%00%25_nothing")


# Dealers


async def test_a_new_dealers_secret_is_on_no_page_but_its_own(service: Service, admin: Browser):
    led = await onboarded(admin, name="<b>Acme</b> & sons", currency="EUR", balance="50", qps="5", markup="12.5")
    assert led.status_code == 303 and "sk_test_" not in led.text
    answered, home = await admin.get(led.headers["location"]), f"/console/dealers/{tenant_of(led)}"
    app_key = re.search(r"ak_test_\w{24}", answered.text)
    assert app_key and "sk_test_" not in answered.text and "<b>Acme" not in answered.text
    page = await see(admin, home)
    assert "sk_test_" not in page and "50.00 EUR" in page and "<b>Acme</b> & sons" in page
    assert "12.5" in (await admin.get(home)).text
    assert "sk_test_" in (await admin.get(f"{home}/credentials/{app_key[0]}")).text


async def test_a_form_that_makes_no_sense_says_so_and_keeps_what_was_typed(admin: Browser):
    answered = await admin.refused("/console/dealers/new", {"name": "Acme", "currency": "USD", "balance": "1.234"})
    assert "decimal" in text_of(answered.text) and 'value="Acme"' in answered.text


@pytest.mark.parametrize("markup", ["²", "1²", "12.²", "١٢", "１２", "1.½", "-²", "+5", "1 2", "9" * 5_000])
async def test_a_markup_that_is_no_number_of_ours_is_refused(dealer: ApiClient, admin: Browser, markup: str):
    home = f"/console/dealers/{dealer.tenant_id}"
    assert f"markup {markup!r}" in await does(admin, f"{home}/terms", name="Acme", markup=markup, status="ACTIVE")


async def test_terms_are_changed_by_one_form_and_its_change_is_in_the_audit_log(
    service: Service, dealer: ApiClient, admin: Browser
):
    home = f"/console/dealers/{dealer.tenant_id}"
    terms = {"name": "Renamed", "credit_limit": "25", "low_balance": "5", "qps": "7", "markup": "3"}
    page = await does(admin, f"{home}/terms", **terms, status="ACTIVE", ip_allow="203.0.113.7, 198.51.100.0/24")
    assert "The terms are changed" in page and "1,025.00 USD with credit" in page
    assert "1,000.00 USD credit + 25.00 USD" in await see(admin, f"/console/dealers?q={dealer.tenant_id}")
    assert "203.0.113.7" in page and "198.51.100.0/24" in page
    audit = await see(admin, f"/console/audit?dealer={dealer.tenant_id}&action=tenant.set")
    assert "Changed the terms of a dealer" in audit and "Credit limit 0.00 → 25.00 USD" in audit
    assert f"Changed the terms of a dealer {admin.name} 127.0.0.1" in audit
    raw = (await admin.get(f"/console/audit?dealer={dealer.tenant_id}&action=tenant.set")).text
    assert f'title="console:{admin.name}, 127.0.0.1"' in raw and f'<tr data-href="{home}">' in raw
    page = await does(admin, f"{home}/terms", name="Renamed", credit_limit="-1", status="ACTIVE")
    assert "credit limit '-1'" in page


async def test_an_adjustment_has_a_reason_and_stands_in_the_statement(
    service: Service, dealer: ApiClient, admin: Browser
):
    home = f"/console/dealers/{dealer.tenant_id}"
    page = await does(admin, f"{home}/adjust", direction="take", amount="12.50", reason="paid twice")
    assert "Balance 987.50 USD View entries Revenue, 30 days 0.00 USD" in page, "all of it is available"
    assert "a reason" in await does(admin, f"{home}/adjust", direction="add", amount="1", reason=" ")
    assert "Adjust" in await see(admin, f"{home}/statement?type=ADJUST")
    rows = list(csv.DictReader(io.StringIO((await admin.get(f"{home}/statement.csv")).text)))
    assert [row["amount"] for row in rows] == ["-12.50", "1000.00"]
    assert "paid twice" in await see(admin, f"/console/audit?dealer={dealer.tenant_id}&action=adjust")


async def test_a_price_of_its_own_is_what_the_dealer_pays(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    assert "1.50 USD" in await does(admin, f"{home}/prices", package="TEST-OK", price="1.50")
    assert "no package" in await does(admin, f"{home}/prices", package="NO-SUCH", price="1")
    assert "off sale" in await does(admin, f"{home}/prices", package="TEST-OK", price="off")


async def test_a_price_of_its_own_is_removed_and_the_dealers_mirror_hears_of_it(
    service: Service, dealer: ApiClient, admin: Browser
):
    home = f"/console/dealers/{dealer.tenant_id}"
    await does(admin, f"{home}/terms", name="Marked up", markup="50", status="ACTIVE")
    await does(admin, f"{home}/prices", package="TEST-OK", price="1.50")
    before = await seen(dealer, ["1.50"])
    async with service.database.connection() as connection:  # an hour passes
        hour_ago = clock.now() - timedelta(hours=1)
        await connection.execute("UPDATE package SET updated_at = $1", hour_ago)
        await connection.execute("UPDATE tenant SET markup_updated_at = $1", hour_ago)
        await connection.execute("UPDATE price SET updated_at = $1", hour_ago)
        await connection.execute("UPDATE change SET version = version + 1")
    since = {"updatedSince": f"{clock.now() - timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}"}
    await seen(dealer, [], **since)
    page = await does(admin, f"{home}/prices", package="TEST-OK", price="list")
    assert "TEST-OK follows the price list again" in page and "1.50 USD" not in page
    after = await seen(dealer, ["2.70"], **since)
    assert after["catalogVersion"] != before["catalogVersion"]
    told = (await acts(service, "tenant.set"))[0]
    assert json.loads(told.detail) == {"before": {"price TEST-OK": "1.50"}, "after": {"price TEST-OK": "list"}}
    assert "no price of this dealer's own" in await does(admin, f"{home}/prices", package="TEST-OK", price="list")


async def seen(dealer: ApiClient, prices: list[str], **call: str) -> dict[str, Any]:
    """The dealer's catalogue once TEST-OK is in it at this price: processes look for changes a few times a second."""
    async with asyncio.timeout(PATIENCE):
        while True:
            data = (await dealer.post("/package/list", {"packageCode": "TEST-OK", **call})).data
            if [one["price"] for one in data["packages"]] == prices:
                return data
            await asyncio.sleep(0.05)


async def test_a_secret_is_shown_to_those_who_are_sure_and_looking_is_written_down(
    service: Service, dealer: ApiClient, admin: Browser
):
    path = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
    assert dealer.app_secret in await see(admin, path)
    looked = (await acts(service, "credentials.view"))[0]
    assert (looked.author, looked.tenant_id) == (f"console:{admin.name}", dealer.tenant_id)
    async with service.database.connection() as connection:
        await connection.execute("UPDATE console_session SET sure_at = sure_at - interval '6 minutes'")
    answered = await admin.get(path)
    assert dealer.app_secret not in answered.text and "sure_password" in answered.text


async def test_a_reset_gives_a_new_secret_and_ends_the_old_one_where_that_is_wanted(
    service: Service, dealer: ApiClient, admin: Browser
):
    path = f"/console/dealers/{dealer.tenant_id}/credentials/{dealer.app_key}"
    page = await does(admin, f"{path}/reset", now="on")
    fresh_secret = re.search(r"sk_test_\w{40}", page)
    assert "The old one is no longer valid" in page
    assert fresh_secret and fresh_secret[0] != dealer.app_secret
    page = await does(admin, f"{path}/disable")
    assert "Disabled" in page


async def test_a_disabled_credential_is_enabled_again(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    path = f"{home}/credentials/{dealer.app_key}"
    assert f"{path}/enable" not in (await admin.get(home)).text
    assert "Disabled" in await does(admin, f"{path}/disable")
    await heard(dealer, refused=True)
    assert f"{path}/enable" in (await admin.get(home)).text
    assert f"{dealer.app_key} is enabled" in await does(admin, f"{path}/enable")
    await heard(dealer, refused=False)
    act = (await acts(service, "credentials.enable"))[0]
    assert (act.author, act.tenant_id) == (f"console:{admin.name}", dealer.tenant_id)
    assert json.loads(act.detail) == {
        "appKey": dealer.app_key, "before": {"status": "DISABLED"}, "after": {"status": "ACTIVE"},
    }  # fmt: skip
    async with signed_in(service, "support") as support:
        assert (await fill(support, f"{path}/enable")).status_code == 403


async def heard(dealer: ApiClient, *, refused: bool) -> None:
    """Returns once the service has heard whether this dealer's calls are refused."""
    async with asyncio.timeout(PATIENCE):
        while ((await dealer.post("/health")).code != "000000") != refused:
            await asyncio.sleep(0.05)


async def test_a_credential_is_its_own_dealers_alone(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    path = f"/console/dealers/{stranger.tenant_id}/credentials/{dealer.app_key}"
    assert (await admin.get(path)).status_code == 404


async def test_the_rt_face_is_switched_on_and_shown(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    assert "needs an address allowlist" in await does(admin, f"{home}/terms", rt_face="access-code")
    await does(admin, f"{home}/terms", rt_face="signed")
    assert '<option value="signed" selected' in (await admin.get(home)).text
    await does(admin, f"{home}/callback", callback_url="http://127.0.0.1:9999/hook", standard_headers="on")
    assert (await dealer.post("/webhook/query")).data["standardHeaders"] is True
    assert {json.loads(act.detail)["after"].get("rtFace") for act in await acts(service, "tenant.set")} >= {"signed"}


async def test_a_callback_url_is_set_and_refused_as_the_api_does(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    page = await does(admin, f"{home}/callback", callback_url="http://127.0.0.1:9999/hook")
    assert "The callback URL is set" in page
    assert "callbackUrl" in await does(admin, f"{home}/callback", callback_url="ftp://example.com/")
    [act] = [act for act in await acts(service, "webhook.set") if act.tenant_id == dealer.tenant_id]
    assert act.author == f"console:{admin.name}"
    changed = {"before": {"callbackUrl": ""}, "after": {"callbackUrl": "http://127.0.0.1:9999/hook"}}
    assert json.loads(act.detail) == changed
    await dealer.post("/webhook/set", {"callbackUrl": ""})
    assert len([act for act in await acts(service, "webhook.set") if act.tenant_id == dealer.tenant_id]) == 1


# Queues


async def test_a_topup_is_approved_once_and_counted_in_the_menu_until_then(
    service: Service, dealer: ApiClient, admin: Browser
):
    asked = {"amount": "250.00", "transactionId": secrets.token_hex(6), "payReference": "bank 42"}
    number = (await dealer.post("/account/topup", asked)).data["topupNo"]
    page = await see(admin, "/console/topups")
    assert number in page and "bank 42" in page and "250.00 USD the first top-up 1,250.00 USD now 1,000.00" in page
    assert f'href="/console/topups/{number}"' in (await admin.get("/console/topups")).text
    alone = await see(admin, f"/console/topups/{number}")
    assert "Waiting" in alone and "Balance now 1,000.00 USD After approval 1,250.00 USD" in alone
    assert "is approved and credited" in await does(admin, f"/console/topups/{number}/approve")
    alone = await see(admin, f"/console/topups/{number}")
    assert "Credited +250.00 USD Balance before 1,000.00 USD Balance after 1,250.00 USD" in alone
    for nothing in ("T1", "T260101000000000001"):
        assert (await admin.get(f"/console/topups/{nothing}")).status_code == 404
    assert "is APPROVED already" in await does(admin, f"/console/topups/{number}/approve")
    assert (await dealer.post("/account/balance")).data["balance"] == "1250.00"
    approved = await see(admin, f"/console/topups?status=APPROVED&dealer={dealer.tenant_id}")
    assert "1 top-up, 250.00 USD approved" in approved and f"{number} " in approved and "bank 42" in approved
    assert (await admin.get(f"/console/search?q={number}")).headers["location"] == f"/console/topups/{number}"
    await dealer.post("/account/topup", asked | {"amount": "900", "transactionId": secrets.token_hex(6)})
    assert "900.00 USD usually 250.00, last " in await see(admin, f"/console/topups?dealer={dealer.tenant_id}")


async def test_a_rejected_topup_says_why(service: Service, dealer: ApiClient, admin: Browser):
    asked = {"amount": "1.00", "transactionId": secrets.token_hex(6)}
    number = (await dealer.post("/account/topup", asked)).data["topupNo"]
    assert "needs a reason" in await does(admin, f"/console/topups/{number}/reject", reason="")
    await does(admin, f"/console/topups/{number}/reject", reason="no money came")
    assert "no money came" in await see(admin, "/console/topups?status=REJECTED")
    own = (await dealer.post("/account/topup", asked | {"transactionId": secrets.token_hex(6)})).data["topupNo"]
    async with signed_in(service, "admin", dealer.tenant_id) as person:
        await does(person, f"/console/wallet/topups/{own}/cancel")
    assert own in await see(admin, "/console/topups?status=CANCELLED")
    lately = (await see(admin, "/console/topups")).partition("Decided lately")[2]
    assert number in lately and own not in lately, "its dealer cancelled it"


async def test_a_refund_that_waits_is_approved_and_credited(service: Service, dealer: ApiClient, admin: Browser):
    order = (await dealer.order("TEST-REVIEW")).data
    await dealer.delivered(order["orderNo"])
    refund = (await dealer.post("/esim/refund", {"orderNo": order["orderNo"], "remark": "not used"})).data
    assert refund["status"] == "REFUNDING"
    page = await see(admin, "/console/refunds")
    assert refund["refundNo"] in page and "not used" in page
    assert "is approved" in await does(admin, f"/console/refunds/{refund['refundNo']}/approve")
    assert refund["refundNo"] not in (await see(admin, "/console/refunds?status=REVIEW")).replace("is approved", "")


# Webhooks


async def test_what_failed_is_listed_and_sent_once_more(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    order_no = await failed_for_good(service, dealer, receiver)
    html = (await admin.get(f"/console/webhooks?status=FAILED&dealer={dealer.tenant_id}")).text
    page = text_of(html)
    assert order_no in page and "HTTP 500" in page and "Resend all" in page
    link = re.search(rf"/console/deliveries/{dealer.tenant_id}/\d+", html)
    assert link is not None and "out of paper" in (page := await see(admin, link[0]))
    assert "Fix the endpoint, then resend." in page and receiver.url in page
    before, receiver.answers = len(receiver.requests), [answer(200)]
    assert "sent again" in await does(admin, f"{link[0]}/resend")
    await receiver.received(before + 1)


async def test_many_are_counted_before_they_are_sent_again(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    await failed_for_good(service, dealer, receiver)
    chosen = {"kind": "RESEND", "dealer": str(dealer.tenant_id), "state": "FAILED", "event": "", "from": "", "to": ""}
    counted = text_of((await fill(admin, "/console/webhooks/count", **chosen)).text)
    assert "Total" in counted
    before, receiver.answers = len(receiver.requests), [answer(200)]
    assert "The deliveries are being resent" in await does(admin, "/console/webhooks/begin", **chosen)
    await receiver.received(before + 1)
    assert "for a time range" in await does(admin, "/console/webhooks/count", kind="SYNC")


async def test_an_orders_snapshot_goes_out_at_a_click(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order_no = (await dealer.order()).data["orderNo"]
    await dealer.delivered(order_no)
    before = len(await receiver.received(2))
    assert "The current state is sent" in await does(admin, f"/console/orders/{order_no}/sync")
    assert (await receiver.received(before + 1))[-1].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]


# Packages and stock


async def test_an_import_is_previewed_before_it_changes_anything(service: Service, dealer: ApiClient, admin: Browser):
    [package] = [one for one in catalogue.catalogue("test") if one.package_code == "DEMO-STOCK"]
    text = importing.write([package]).replace(package.package_name, "Quite another name")
    shown = await fill(admin, "/console/packages/preview", files={"file": text.encode()})
    page = text_of(shown.text)
    assert "0 new, 1 changed" in page and package.package_name in page and "Quite another name" in page
    assert "Quite another name" not in await see(admin, "/console/packages?q=DEMO-STOCK")
    assert "1 package, 1 of them new or changed" in await does(admin, "/console/packages/import", **hidden(shown))
    assert "Quite another name" in await see(admin, "/console/packages?q=DEMO-STOCK")


async def test_a_file_with_faults_is_reported_line_by_line(service: Service, admin: Browser):
    text = "packageCode,packageName,locationCode,price,currency,dataType,duration\nX 1,,FR,0,USD,TOTAL,7\n"
    page = text_of((await fill(admin, "/console/packages/preview", files={"file": text.encode()})).text)
    assert "nothing can be imported" in page and "packageName" in page and "Import " not in page.split("price")[1]


async def test_a_package_goes_off_sale_and_on_again(service: Service, dealer: ApiClient, admin: Browser):
    assert "is off sale" in await does(admin, "/console/packages/status", package="TEST-DELAY", status="OFF_SALE")
    assert "TEST-DELAY" in await see(admin, "/console/packages?status=OFF_SALE")
    assert (await acts(service, "catalog.status"))[0].detail.count("TEST-DELAY") == 1
    await does(admin, "/console/packages/status", package="TEST-DELAY", status="ON_SALE")
    assert "TEST-DELAY" not in await see(admin, "/console/packages?status=OFF_SALE")


async def test_stock_is_loaded_whole_or_not_at_all(service: Service, admin: Browser):
    path, text = "/console/packages/DEMO-STOCK/stock", stock_csv(3)
    spoiled = text + text.splitlines()[1] + "\n"
    answered = await fill(admin, path, files={"file": spoiled.encode()})
    assert answered.status_code == 400 and "nothing was loaded" in text_of(answered.text)
    page = text_of((await fill(admin, path, files={"file": text.encode()})).text)
    assert "3 eSIMs loaded; 3 available now" in page
    assert "3" in await see(admin, "/console/suppliers")


# Suppliers, the overview, the audit log, roles


async def test_a_supplier_is_paused_checked_and_resumed(postgres: str, template: str):
    async with fresh(postgres, template) as url:
        settings = {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush hush"}
        await set_up(url, [Source("rt:near", "rt_upstream", settings)], {})
        async with running_service(url, worker=False) as service, signed_in(service) as admin:
            assert "rt:near" in await see(admin, "/console/suppliers")
            page = await see(admin, "/console/suppliers/rt:near?totals=1")
            assert "hush hush" not in page
            assert "is paused" in await does(admin, "/console/suppliers/rt:near/status", status="PAUSED")
            checked = text_of((await fill(admin, "/console/suppliers/rt:near/check")).text)
            assert "The supplier does not answer" in checked
            assert "is active" in await does(admin, "/console/suppliers/rt:near/status", status="ACTIVE")


async def test_a_dealer_that_is_filtered_by_stays_chosen_among_however_many(postgres: str, template: str):
    async with (
        fresh(postgres, template) as url,
        running_service(url, worker=False) as service,
        signed_in(service) as admin,
    ):
        async with service.database.connection() as connection:
            await connection.execute(
                "INSERT INTO tenant (tenant_id, name) SELECT 20000 + n, lpad(n::text, 4, '0')"
                " FROM generate_series(1, 600) n"
            )
        for page in ("orders", "profiles", "webhooks"):
            html = (await admin.get(f"/console/{page}?dealer=20600")).text
            assert 'value="0600 · 20600"' in html and "0500" not in html


class Odd(RtUpstream):
    """A supplier that says of itself what few say."""

    def __init__(self, said: Health):
        super().__init__("rt:near", RtSettings(base_url="http://127.0.0.1:9", access_code="ours", secret_key="hush"))
        self.said = said

    async def health(self) -> Health:
        return self.said


async def test_what_a_supplier_says_of_itself_is_shown_however_odd(postgres: str, template: str):
    """Its balance may be in a currency that is none of ours, and in fractions that no bank knows."""
    odd = [Health(True, "", 12_345_678, "USD"), Health(True, "", 12_345_600, "USDT"), Health(True, "", -1, None)]
    async with fresh(postgres, template) as url:
        settings = {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush hush"}
        await set_up(url, [Source("rt:near", "rt_upstream", settings)], {})
        async with running_service(url, worker=False) as service, signed_in(service) as admin:
            for health, shown in zip(odd, ("1,234.5678 USD", "1,234.56 USDT", "−0.0001"), strict=True):
                await heartbeat(service, health)
                for path in ("/console/suppliers", "/console/suppliers/rt:near"):
                    assert shown in await see(admin, path)


async def test_what_cannot_be_stored_of_a_supplier_ends_nothing(postgres: str, template: str):
    async with fresh(postgres, template) as url:
        settings = {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush hush"}
        await set_up(url, [Source("rt:near", "rt_upstream", settings)], {})
        async with running_service(url, worker=False) as service:
            await heartbeat(service, Health(True, "fine", 5, "USD"))
            for spoiled in (Health(False, "no\0thing"), Health(True, "", 2**70, "USD"), Health(True, "", 1, "\0")):
                await heartbeat(service, spoiled)
            async with service.database.connection() as connection:
                [kept] = await suppliers.list_suppliers(connection)
    assert (kept.detail, kept.balance) == ("fine", 5)


async def heartbeat(service: Service, said: Health) -> None:
    """What a worker does about once a minute."""
    await HealthMonitor(service.database, Odd(said), clock.now, lambda: None).check()


async def test_a_purchase_nobody_knows_about_goes_on_at_an_operators_word(postgres: str, template: str):
    async with fresh(postgres, template) as url:
        settings = {"baseUrl": "http://127.0.0.1:9", "accessCode": "ours", "secretKey": "hush hush"}
        await set_up(url, [Source("rt:near", "rt_upstream", settings)], {})
        async with (
            running_service(url, worker=False) as service,
            signed_in(service) as admin,
            service.client(await service.tenant(balance="1000", qps=0)) as client,
        ):
            order_no, unit = await park(service, client)
            page = await see(admin, "/console/suppliers")
            assert unit in page and "no answer that counts" in page and order_no in page
            assert "Outcome at rt:near unknown" in await see(admin, f"/console/orders/{order_no}")
            spoiled = {"unit": unit, "outcome": "bought", "iccid": "12", "code": "LPA:1$a$b"}
            assert "resolved" not in await does(admin, "/console/suppliers/resolve", **spoiled)
            told = await does(admin, "/console/suppliers/resolve", unit=unit, outcome="not bought")
            assert f"{unit} is resolved: not bought" in told
            again = await does(admin, "/console/suppliers/resolve", unit=unit, outcome="not bought")
            assert "does not wait" in again


async def test_the_overview_counts_what_happened(service: Service, dealer: ApiClient, admin: Browser):
    order = (await dealer.order()).data
    await dealer.delivered(order["orderNo"])
    page = (await admin.get("/console")).text
    assert f'href="/console/orders/{order["orderNo"]}"' in page and "Orders per day" in page


async def test_every_page_opens_for_every_operator_and_writes_only_for_those_who_may(
    service: Service, dealer: ApiClient
):
    order_no = (await dealer.order()).data["orderNo"]
    home = f"/console/dealers/{dealer.tenant_id}"
    pages = ("", "/orders", f"/orders/{order_no}", "/dealers", "/topups", "/refunds", "/webhooks",
             "/webhooks/endpoints", "/webhooks/resend", "/suppliers", "/packages", "/audit", "/search",
             "/orders.csv")  # fmt: skip
    writes = {
        f"{home}/adjust": ("admin", "finance"),
        "/console/topups/T1/approve": ("admin", "finance"),
        "/console/refunds/R1/reject": ("admin", "finance"),
        f"{home}/terms": ("admin",),
        f"{home}/callback": ("admin",),
        f"{home}/prices": ("admin",),
        f"{home}/credentials/{dealer.app_key}/enable": ("admin",),
        f"/console/orders/{order_no}/sync": ("admin", "support"),
        "/console/packages/status": ("admin",),
    }
    for role in ROLES:
        async with signed_in(service, role) as one:
            for path in (*(f"/console{path}" for path in pages), home, f"{home}/statement"):
                assert (await one.get(path)).status_code == 200, (role, path)
            for path, roles in writes.items():
                status = (await fill(one, path)).status_code
                assert status == (303 if role in roles else 403), (role, path)
            allowed = (await one.get(f"{home}/credentials/{dealer.app_key}")).status_code
            assert allowed == (200 if role == "admin" else 403)


async def test_a_dealers_people_see_none_of_it(service: Service, dealer: ApiClient):
    async with signed_in(service, tenant_id=dealer.tenant_id) as one:
        for path in (
            "/console/dealers",
            "/console/audit",
            "/console/suppliers",
            "/console/topups",
            "/console/packages",
        ):
            assert (await one.get(path)).status_code == 404, path


async def test_what_a_dealer_writes_is_shown_as_it_was_written(service: Service, dealer: ApiClient, admin: Browser):
    evil = '"><script>alert(1)</script>'
    order_no = (await dealer.order(remark=evil)).data["orderNo"]
    await service.change(dealer.tenant_id, name=evil)
    await dealer.post("/account/topup", {"amount": "1", "transactionId": secrets.token_hex(6), "remark": evil})
    for path in (f"/console/orders/{order_no}", "/console/orders", "/console/dealers", "/console/topups",
                 f"/console/audit?dealer={dealer.tenant_id}", "/console/webhooks"):  # fmt: skip
        assert "<script>alert" not in (await admin.get(path)).text
