"""The operators' pages of eSIMs and of places: they find what is asked for, show codes to few, and say who acted."""

import asyncio
import html
import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from dealer_server.api.install_page.texts import texts
from dealer_server.console.shared import words
from dealer_server.rules import dates
from dealer_server.rules.esim import qr
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.rules.orders import identity
from dealer_server.store.console import profiles, regions
from dealer_server.store.console.profiles import ProfileFilter
from dealer_server.store.notices import outbox
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import acts, does, fill, see
from support.money.recharges import advance
from support.money.refunds import bought, query, refund, settled
from support.money.refunds import profiles as profiles_of
from support.patience import PATIENCE
from support.store_fixture import stock_csv

ROLES = ("admin", "finance", "support", "readonly")
EVIL = '"><script>alert(1)</script>'
LINK = re.compile(r'<tr data-href="/console/profiles/(\d+)"')


async def one_bought(dealer: ApiClient, package: str = "TEST-OK") -> dict[str, Any]:
    """A delivered profile, as its dealer sees it, with its order's number."""
    order = await bought(dealer, package)
    return profiles_of(order)[0] | {"orderNo": order["orderNo"]}


async def listed(browser: Browser, query: str) -> list[str]:
    """The profileIds a list shows."""
    answered = await browser.get(f"/console/profiles?{query}")
    assert answered.status_code == 200
    return LINK.findall(answered.text)


# The list


async def test_the_list_is_of_all_dealers_and_keeps_to_its_filters(
    service: Service, dealer: ApiClient, stranger: ApiClient, admin: Browser
):
    ours, theirs = await one_bought(dealer), await one_bought(stranger)
    failed = (await dealer.order("TEST-FAIL")).data
    await dealer.delivered(failed["orderNo"])
    [lost] = profiles_of(failed)
    first = await listed(admin, "")
    assert first.index(lost["profileId"]) < first.index(theirs["profileId"]) < first.index(ours["profileId"])
    assert await listed(admin, f"dealer={stranger.tenant_id}") == [theirs["profileId"]]
    assert await listed(admin, f"dealer={dealer.tenant_id}&state=FAILED") == [lost["profileId"]]
    assert await listed(admin, f"dealer={dealer.tenant_id}&state=NOT_INSTALLED") == [ours["profileId"]]
    assert await listed(admin, f"iccid={theirs['iccid']}") == [theirs["profileId"]]
    assert await listed(admin, f"iccid={theirs['iccid']}&dealer={dealer.tenant_id}") == []
    assert await listed(admin, f"iccid={theirs['iccid'][-8:]}") == [theirs["profileId"]], "its last digits"
    assert "is not an ICCID or its last 4 digits" in await see(admin, "/console/profiles?iccid=%00'nothing")
    assert "No eSIMs match" in await see(admin, "/console/profiles?iccid=99999999999999999999")
    file = (await admin.get(f"/console/profiles.csv?iccid={theirs['iccid'][-8:]}")).text.splitlines()
    assert file[0].endswith("tenantId,dealer,supplier") and len(file) == 2 and theirs["iccid"] in file[1]


async def test_each_state_lists_the_esims_that_show_it(service: Service, dealer: ApiClient, admin: Browser):
    """Together they list every eSIM, and each one once."""
    made = [await one_bought(dealer) for _ in range(6)]
    steps = (("DOWNLOAD",), ("ENABLE",), ("START", "USE"), ("START",), ("START",), ("START",))
    for profile, done in zip(made[1:], steps, strict=False):
        for step in done:
            await dealer.post("/test/profile/advance", {"iccid": profile["iccid"], "step": step})
    for profile, used in ((made[4], 10), (made[5], 90)):
        call = {"iccid": profile["iccid"], "step": "USE", "dataUsageBytes": 2**30 * used // 100}
        assert (await dealer.post("/test/profile/advance", call)).code == "000000"
    failed = (await dealer.order("TEST-FAIL")).data
    await dealer.delivered(failed["orderNo"])
    await refund(dealer, await bought(dealer))
    seen: dict[str, str] = {}
    for state in profiles.STATES:
        async with service.database.connection() as connection:
            found = await profiles.list_profiles(connection, ProfileFilter(int(dealer.tenant_id), (state,)), None, 50)
        for row in found.rows:
            assert str(row.profile_id) not in seen, (state, seen)
            seen[str(row.profile_id)] = words.esim_state(row, suspended=row.shows_suspended).text
            told = words.text(state)
            assert seen[str(row.profile_id)] in (told, f"{told}, refunded"), (state, row)
    assert sorted(seen) == sorted(await listed(admin, f"dealer={dealer.tenant_id}"))
    assert [seen[one["profileId"]] for one in made] == [
        *("Not installed", "Installed", "Installed", "Used up", "In use", "Nearly used")
    ]


async def test_pages_of_all_dealers_lose_no_profile_and_show_none_twice(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    for client in (dealer, stranger, dealer):
        await bought(client, quantity=4)
    async with service.database.connection() as connection:
        seen = await _all(connection, ProfileFilter(), 5)
        rows = await connection.fetch("SELECT profile_id FROM profile ORDER BY profile_id DESC")
    assert seen == [row[0] for row in rows]


async def _all(connection: asyncpg.Connection, filters: ProfileFilter, size: int, most: int = 20_000) -> list[int]:
    """Page by page."""
    seen: list[int] = []
    before: int | None = None
    while True:
        found = await profiles.list_profiles(connection, filters, before, size, most)
        assert len(found.rows) <= size
        seen += [one.profile_id for one in found.rows]
        if (before := found.next) is None:
            return seen


async def hourly(connection: asyncpg.Connection, tenant_id: int, count: int) -> list[int]:
    """So many orders of one profile each, years ago and an hour apart; the profileIds, the newest first."""
    first = identity.first_id_at(identity.EPOCH_SECONDS + 3_600)
    await connection.execute(
        "WITH n AS (SELECT $2::bigint + n * 3600000000 AS id FROM generate_series(1, $3::bigint) n), placed AS ("
        " INSERT INTO orders (tenant_id, order_id, transaction_id, digest, currency, amount, updated_at)"
        " SELECT $1, id, 'hourly-' || id, '', 'USD', 0, now() FROM n RETURNING 1"
        "), line AS (INSERT INTO order_item (tenant_id, order_id, line, package_code, supplier, quantity, period_num,"
        "  price, first_profile_id) SELECT $1, id, 0, 'TEST-OK', 'simulated', 1, 1, 0, id FROM n RETURNING 1"
        ") INSERT INTO profile (tenant_id, profile_id, order_id, line, updated_at) SELECT $1, id, id, 0, now() FROM n",
        tenant_id,
        first,
        count,
    )
    rows = await connection.fetch("SELECT profile_id FROM profile WHERE tenant_id = $1", tenant_id)
    return sorted((row[0] for row in rows), reverse=True)


@asynccontextmanager
async def undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """Nothing of what is written stays: made-up orders would be found by the audit."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        yield
    finally:
        await transaction.rollback()


async def test_a_list_with_few_matches_goes_on_further_back_page_by_page(service: Service):
    """Each page looks at so many rows, whether they match or not."""
    tenant_id = int((await service.tenant()).tenant_id)
    async with service.database.connection() as connection, undone(connection):
        ids = await hourly(connection, tenant_id, 60)
        oldest = ids[-1]
        await connection.execute("UPDATE profile SET failed = true WHERE profile_id = $1", oldest)
        filters = ProfileFilter(tenant_id, ("FAILED",))
        found = await profiles.list_profiles(connection, filters, None, 5, 10)
        assert not found.rows and found.next is not None and oldest < found.next < ids[9]
        assert await _all(connection, filters, 5, 10) == [oldest]
        assert await _all(connection, ProfileFilter(tenant_id), 7, 10) == ids


# One profile


async def test_a_profiles_page_tells_its_state_its_life_and_where_it_belongs(dealer: ApiClient, admin: Browser):
    profile = await one_bought(dealer)
    for step in ({"step": "ENABLE"}, {"step": "START"}, {"step": "USE", "dataUsageBytes": 2**29}):
        reply = await dealer.post("/test/profile/advance", {"iccid": profile["iccid"], **step})
        assert reply.code == "000000", reply
    page = f"/console/profiles/{profile['profileId']}"
    told = await see(admin, page)
    for each in (profile["iccid"], profile["orderNo"], str(dealer.tenant_id), "simulated", "In use",
                  "512 MB of 1 GB", "Delivered by simulated", "plan started"):  # fmt: skip
        assert each.lower() in told.lower(), each
    text = (await admin.get(page)).text
    assert 'value="50.0"' in text and f'href="/console/orders/{profile["orderNo"]}"' in text
    assert page in (await admin.get(f"/console/orders/{profile['orderNo']}")).text
    for sought in (profile["iccid"], profile["profileId"]):
        assert (await admin.get(f"/console/search?q={sought}")).headers["location"] == page


async def test_support_asks_the_supplier_for_the_usage(service: Service, dealer: ApiClient, admin: Browser):
    page = f"/console/profiles/{(await one_bought(dealer))['profileId']}"
    assert "Refresh usage" in await see(admin, page)
    assert re.search("The usage is as of now|The supplier is asked", await does(admin, f"{page}/usage"))
    async with signed_in(service, "readonly") as reader:
        assert "Refresh usage" not in await see(reader, page)
        assert (await fill(reader, f"{page}/usage")).status_code == 403


async def test_what_is_no_profile_is_not_here(admin: Browser):
    for number in ("1", "0", "nonsense", "9" * 30, "%00", "１２"):
        for path in ("", "/code"):
            assert (await admin.get(f"/console/profiles/{number}{path}")).status_code == 404
        assert (await fill(admin, f"/console/profiles/{number}/cancel", reason="x")).status_code == 404


async def test_a_code_is_shown_to_few_when_asked_for_and_that_is_written_down(service: Service, dealer: ApiClient):
    profile = await one_bought(dealer)
    code, page = profile["activationCode"], f"/console/profiles/{profile['profileId']}"
    picture = re.compile(r'src="data:image/svg\+xml;base64,([^"]+)"')
    for role in ROLES:
        async with signed_in(service, role) as one:
            text = html.unescape((await one.get(page)).text)
            assert code not in text and code.split("$")[2] not in text and not picture.search(text)
            assert (f'href="{page}/code"' in text) == (role in ("admin", "support")), role
            answered = await one.get(f"{page}/code")
            assert answered.status_code == (200 if role in ("admin", "support") else 403), role
            shown = html.unescape(answered.text)
            assert (code in shown) == (role in ("admin", "support")), role
            if role == "support":
                author, found = f"console:{one.name}", picture.search(answered.text)
                assert found and b64decode(found[1]) == qr.svg(code)
                assert answered.headers["cache-control"] == "no-store"
                assert 'hx-trigger="every' not in shown, "a page that renews itself would look again and again"
    looked = [act for act in await acts(service, "profile.view_code") if act.tenant_id == dealer.tenant_id]
    assert len(looked) == 2 and looked[0].author == author and looked[0].source == "127.0.0.1"
    assert json.loads(looked[0].detail) == {"profileId": int(profile["profileId"])}


async def test_a_void_or_undelivered_profile_has_no_code_and_looking_is_no_act(
    service: Service, dealer: ApiClient, admin: Browser
):
    failed = (await dealer.order("TEST-FAIL")).data
    await dealer.delivered(failed["orderNo"])
    assert (await settled(dealer, failed))["orderStatus"] == "REFUNDED"
    void = await one_bought(dealer)
    await dealer.post("/esim/profile/cancel", {"iccid": void["iccid"]})
    for profile in (profiles_of(failed)[0], void):
        assert "Cancelled eSIMs have no code" in await see(admin, f"/console/profiles/{profile['profileId']}")
        assert (await admin.get(f"/console/profiles/{profile['profileId']}/code")).status_code == 404
    assert not [act for act in await acts(service, "profile.view_code") if act.tenant_id == dealer.tenant_id]


@pytest.mark.one_server("transactions of two nodes have no number in common")
async def test_an_operator_cancels_a_profile_and_stands_in_the_audit_log_by_the_same_transaction(
    service: Service, dealer: ApiClient, admin: Browser
):
    profile = await one_bought(dealer)
    page = f"/console/profiles/{profile['profileId']}"
    assert "needs a reason" in await does(admin, f"{page}/cancel", reason=" ")
    assert "Cancelled" not in await see(admin, page)
    told = await does(admin, f"{page}/cancel", reason=EVIL)
    assert "The eSIM is cancelled" in told and "Cancelled" in told
    order = await query(dealer, profile)
    assert profiles_of(order)[0]["lifecycleStatus"] == "CANCELLED" and order["refundAmount"] == 0
    [act] = [act for act in await acts(service, "profile.cancel") if act.tenant_id == dealer.tenant_id]
    assert (act.author, act.source) == (f"console:{admin.name}", "127.0.0.1")
    assert json.loads(act.detail) == {
        "orderNo": profile["orderNo"],
        "profileId": int(profile["profileId"]),
        "reason": EVIL,
        "asyncStatus": "COMPLETED",
    }
    async with service.database.connection() as connection:
        together = await connection.fetchval(
            "SELECT a.xmin = p.xmin FROM audit_log a, profile p WHERE a.audit_id = $1 AND p.profile_id = $2",
            act.audit_id,
            int(profile["profileId"]),
        )
    assert together, "the act is written with what it says"
    assert EVIL not in (await admin.get(f"/console/audit?dealer={dealer.tenant_id}")).text
    assert await service.audit() == []


async def test_each_of_many_who_cancel_at_once_stands_in_the_audit_log_with_the_own_reason(
    service: Service, dealer: ApiClient
):
    order = await bought(dealer, quantity=6)
    numbers = [one["profileId"] for one in profiles_of(order)]
    async with signed_in(service) as admin, signed_in(service, "support") as support:
        people = [admin, support] * 3
        await asyncio.gather(
            *(
                fill(who, f"/console/profiles/{number}/cancel", reason=f"of {number}")
                for who, number in zip(people, numbers, strict=True)
            ),
        )
        found = [act for act in await acts(service, "profile.cancel") if act.tenant_id == dealer.tenant_id]
        said = {(act.author, json.loads(act.detail)["profileId"], json.loads(act.detail)["reason"]) for act in found}
        assert said == {
            (f"console:{who.name}", int(number), f"of {number}") for who, number in zip(people, numbers, strict=True)
        }


async def test_suspensions_stand_on_the_page_and_in_the_history(dealer: ApiClient, admin: Browser):
    profile = await one_bought(dealer)
    page, named = f"/console/profiles/{profile['profileId']}", {"iccid": profile["iccid"]}
    assert (await dealer.post("/esim/profile/suspend", named)).code == "000000"
    text = await see(admin, page)
    assert "Suspended" in text and "Suspended since" in text and "simulated was asked to suspend it" in text
    assert (await dealer.post("/esim/profile/unsuspend", named)).code == "000000"
    text = await see(admin, page)
    assert "Suspended since" not in text and "simulated was asked to unsuspend it" in text
    history = await see(admin, f"/console/orders/{profile['orderNo']}")
    assert "simulated was asked to suspend it" in history and "simulated was asked to unsuspend it" in history


async def test_a_supplier_that_has_a_say_is_asked(service: Service, dealer: ApiClient, admin: Browser):
    profile = await one_bought(dealer, "TEST-ASYNC")
    page = f"/console/profiles/{profile['profileId']}"
    told = await does(admin, f"{page}/cancel", reason="lost")
    assert "Its supplier is asked to cancel it" in told and "simulated was asked to cancel it" in told
    [act] = [act for act in await acts(service, "profile.cancel") if act.tenant_id == dealer.tenant_id]
    assert json.loads(act.detail)["asyncStatus"] == "PENDING"
    async with asyncio.timeout(PATIENCE):
        while "Cancelled" not in await see(admin, page):
            await asyncio.sleep(0.05)


async def test_a_profile_that_a_refund_holds_is_not_cancelled(service: Service, dealer: ApiClient, admin: Browser):
    profile = await one_bought(dealer, "TEST-REVIEW")
    await dealer.post("/esim/refund", {"orderNo": profile["orderNo"]})
    page = f"/console/profiles/{profile['profileId']}"
    assert "dialog-cancel" not in (await admin.get(page)).text
    assert "a refund of this profile is in progress" in await does(admin, f"{page}/cancel", reason="x")
    assert not [act for act in await acts(service, "profile.cancel") if act.tenant_id == dealer.tenant_id]


async def test_each_role_does_only_its_own(service: Service, dealer: ApiClient):
    profile = await one_bought(dealer)
    page = f"/console/profiles/{profile['profileId']}"
    for role in ROLES:
        async with signed_in(service, role) as one:
            for path in (page, "/console/profiles", "/console/regions", f"/console/regions?q={EVIL}"):
                assert (await one.get(path)).status_code == 200, (role, path)
            may = role in ("admin", "support")
            assert ("dialog-cancel" in (await one.get(page)).text) == may, role
            assert (await fill(one, f"{page}/cancel")).status_code == (303 if may else 403), role


async def test_a_dealers_people_see_their_own_profiles_alone_and_no_operators_page(
    service: Service, dealer: ApiClient, stranger: ApiClient
):
    ours, theirs = await one_bought(dealer), await one_bought(stranger)
    for role in ("admin", "developer", "finance"):
        async with signed_in(service, role, dealer.tenant_id) as one:
            assert await listed(one, "") == [ours["profileId"]]
            assert await listed(one, f"dealer={stranger.tenant_id}") == [ours["profileId"]]
            assert await listed(one, f"dealer={stranger.tenant_id}&iccid={theirs['iccid']}") == []
            assert await listed(one, f"iccid={ours['iccid']}") == [ours["profileId"]]
            assert (await one.get(f"/console/profiles/{theirs['profileId']}")).status_code == 404
            assert (await one.get("/console/regions")).status_code == 404
            for profile in (ours, theirs):
                assert (await one.get(f"/console/profiles/{profile['profileId']}/code")).status_code == 404


async def test_what_others_write_is_shown_as_it_was_written(service: Service, dealer: ApiClient, admin: Browser):
    profile = await one_bought(dealer)
    await service.change(dealer.tenant_id, name=EVIL)
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
            " reason, supplier_ref, unknown_since, created_at) SELECT tenant_id, profile_id, 0, order_id, 0, $2,"
            " 'rt:near', $2, 'PARKED', $2, $2, now(), now() FROM profile WHERE profile_id = $1",
            int(profile["profileId"]),
            EVIL,
        )
        await connection.execute("UPDATE profile_life SET eid = $1", EVIL)
    page = f"/console/profiles/{profile['profileId']}"
    for path in (page, f"{page}/code", "/console/profiles", "/console/suppliers", f"/console/profiles?iccid={EVIL}"):
        text = (await admin.get(path)).text
        assert "<script>alert" not in text and EVIL in html.unescape(text), path


# Places


async def test_places_are_counted_as_the_packages_they_lead_to(service: Service, admin: Browser):
    async with service.database.connection() as connection:
        found = {one.code: one for one in await regions.regions(connection)}
        [[code, price]] = await connection.fetch(
            "SELECT document ->> 'location_code', min((document ->> 'price')::bigint) FROM package"
            " WHERE document ->> 'location_code' = 'FR' GROUP BY 1"
        )
        covering: int = await connection.fetchval(
            "SELECT count(*) FROM package WHERE document -> 'locations' ? 'FR' AND document ->> 'location_code' <> 'FR'"
        )
    france = found[code]
    assert (france.name, france.location_type, france.continent) == ("France", "COUNTRY", "Europe")
    assert list(france.cheapest) == [("USD", price)] and france.covering == covering > 0
    assert await _counted(admin, "region=FR&status=ON_SALE") == france.packages
    assert await _counted(admin, "covers=FR&status=ON_SALE") == covering
    assert "Regional bundles with FR" in await see(admin, "/console/packages?covers=FR")
    back = await fill(admin, "/console/packages/status", package="GL-126-1GB-7D", status="OFF_SALE")
    assert back.headers["location"] == "/console/packages/GL-126-1GB-7D"
    assert await _counted(admin, "covers=FR&status=ON_SALE") == covering - 1
    assert found["EU-35"].location_type == "REGION" and found["EU-35"].covering == 0


async def _counted(browser: Browser, query: str) -> int:
    """How many packages a list shows on all its pages."""
    path, count = f"/console/packages?{query}", 0
    while path:
        text = (await browser.get(path)).text
        count += text.count('<tr data-href="/console/packages/')
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    return count


async def test_a_place_that_is_only_a_part_of_wider_ones_is_covered_too(service: Service, admin: Browser):
    async with service.database.connection() as connection:
        await connection.execute(
            'UPDATE package SET document = document || \'{"status": "OFF_SALE"}\''
            " WHERE document ->> 'location_code' = 'LI'"
        )
        [place] = [one for one in await regions.regions(connection) if one.code == "LI"]
    assert (place.name, place.packages, list(place.cheapest)) == ("Liechtenstein", 0, []) and place.covering > 0
    assert "Liechtenstein LI Country Europe 0 " in await see(admin, "/console/regions?q=liechten")


async def test_places_are_found_by_name_code_continent_and_kind(admin: Browser):
    assert "France FR" in await see(admin, "/console/regions?q=fr")
    assert "Global GL-126" in await see(admin, "/console/regions?type=GLOBAL")
    oceania = await see(admin, "/console/regions?q=oceania&type=COUNTRY")
    assert "Australia AU" in oceania and "France" not in oceania and "Oceania OCEANIA-9" not in oceania
    assert "All 1 Countries 1 Regions 0 Global 0" in await see(admin, "/console/regions?q=liechtenstein")
    assert "No place matches" in await see(admin, "/console/regions?q=nowhere")
    path, seen = "/console/regions", []
    while path:
        text = (await admin.get(path)).text
        seen += re.findall(r'<div class="place-cell">(.*?)</div>', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = html.unescape(following[1]) if following else ""
    assert len(seen) == len(set(seen)) > 250


async def test_prices_of_several_currencies_stand_side_by_side(service: Service, admin: Browser):
    async with service.database.connection() as connection:
        await connection.execute(
            'UPDATE package SET document = document || \'{"currency": "JPY", "price": 5000000}\''
            " WHERE package_code = (SELECT min(package_code) FROM package WHERE document ->> 'location_code' = 'JP')"
        )
    page = await see(admin, "/console/regions?q=jp")
    assert "500 JPY" in page and "USD" in page


async def test_a_delivery_from_stock_stands_in_every_history(service: Service, dealer: ApiClient, admin: Browser):
    await admin.post("/console/packages/DEMO-STOCK/stock", files={"file": stock_csv(1).encode()})
    line = {"packageCode": "DEMO-STOCK", "quantity": 1, "price": "2.50"}
    order = await dealer.delivered((await dealer.order(amount="2.50", items=[line])).data["orderNo"])
    paths = [f"/console/orders/{order['orderNo']}", f"/console/profiles/{profiles_of(order)[0]['profileId']}"]
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        for path in paths:
            assert "elivered from stock" in await see(admin, path)
            page = await see(clerk, path)
            assert re.search(r"eSIM delivered in [\d.]+ s|History Delivered", page), page


async def test_data_by_day_is_shown_to_operator_dealer_and_buyer(service: Service, dealer: ApiClient, admin: Browser):
    order = await bought(dealer)
    await advance(dealer, order, "START")
    profile = profiles_of(await query(dealer, order))[0]
    path = f"/console/profiles/{profile['profileId']}"
    assert "Data by day" not in await see(admin, path), "nothing was used yet"
    first, second, third = (datetime.now(UTC).date() - timedelta(days=ago) for ago in (5, 4, 3))
    async with service.database.connection() as connection:  # two reports of earlier days
        await connection.execute(
            "UPDATE profile_life SET daily_usage = $3::jsonb WHERE tenant_id = $1 AND profile_id = $2",
            int(dealer.tenant_id),
            int(profile["profileId"]),
            json.dumps([[first.isoformat(), 1 << 20], [third.isoformat(), 4 << 20]]),
        )
    await advance(dealer, order, "USE", dataUsageBytes=6 << 20)  # goes on from there
    page = await see(admin, path)
    for day, used in ((first, "1 MB"), (second, "0"), (third, "3 MB")):
        assert f"{dates.day(day)} {used} " in page, (day, page)
    assert "so far 2 MB" in page
    async with signed_in(service, "admin", dealer.tenant_id) as clerk:
        assert f"{dates.day(third)} 3 MB" in await see(clerk, path)
    install = (await dealer.http.get(profile["installPageUrl"])).text
    assert "Data per day" in install
    told = rf"<dt>{texts('en').short_day(third)}</dt><dd><progress [^>]*></progress><span>3\sMB</span>"
    assert re.search(told, install)


async def test_a_dealer_lists_its_plans_in_use_by_their_end(
    service: Service, dealer: ApiClient, stranger: ApiClient
) -> None:
    order, foreign = await bought(dealer, quantity=4), await bought(stranger)
    made = profiles_of(await query(dealer, order))
    for profile in made[:3]:
        await dealer.post("/test/profile/advance", {"iccid": profile["iccid"], "step": "START"})
    await advance(stranger, foreign, "START")
    ids, now = [int(profile["profileId"]) for profile in made], datetime.now(UTC)
    async with service.database.connection() as connection:
        for profile_id, days in zip(ids[:3], (3, 1, 2), strict=True):
            await connection.execute(
                "UPDATE profile SET plan_use_start_at = $3, plan_use_end_at = $4"
                " WHERE tenant_id = $1 AND profile_id = $2",
                int(dealer.tenant_id),
                profile_id,
                now - timedelta(days=4),
                now + timedelta(days=days),
            )
        own = ProfileFilter(int(dealer.tenant_id))
        first = await profiles.list_by_end(connection, own, None, 2)
        rest = await profiles.list_by_end(connection, own, first.next, 2)
    assert [row.profile_id for row in (*first.rows, *rest.rows)] == [ids[1], ids[2], ids[0]] and rest.next is None
    async with signed_in(service, "admin", dealer.tenant_id) as clerk:
        for sort, expected in (("ends", [ids[1], ids[2], ids[0]]), ("-ends", [ids[0], ids[2], ids[1]])):
            page = (await clerk.get(f"/console/profiles?sort={sort}")).text
            assert re.findall(r'<tr data-href="/console/profiles/(\d+)"', page) == [str(one) for one in expected]
            assert "Plans in use, by their end" in page
        assert "No eSIM matches" in await see(clerk, "/console/profiles?sort=ends&status=NEARLY_USED")
        listed = await see(clerk, "/console/profiles")
        assert "All 4 Unused 1 In use 3 Ended 0 Failed 0" in listed
        assert "To do Ends soon 1 eSIM" in listed, "nothing else is to be done"
        async with service.database.connection() as connection:
            used = "UPDATE profile SET data_usage_bytes = $3 WHERE tenant_id = $1 AND profile_id = $2"
            await connection.execute(used, int(dealer.tenant_id), ids[0], 2**30 * 9 // 10)
        assert "To do Ends soon 1 Nearly used 1" in (listed := await see(clerk, "/console/profiles")), listed
        assert "In use 3 Ended 0" in listed, "it is in use, too"
        for where in ("/console/profiles?status=IN_USE", "/console/profiles.csv?status=IN_USE"):
            text = (await clerk.get(where)).text
            assert [one for one in ids[:3] if str(one) not in text] == [], text.splitlines()[1:]
        soon = (await clerk.get("/console/profiles?ends=soon")).text
        assert re.findall(r'<tr data-href="/console/profiles/(\d+)"', soon) == [str(ids[1])], "today or tomorrow"
        assert re.search(r'aria-current="page"><bdi>Ends soon</bdi> <span class="tab-count">1<', soon), soon
        home = await see(clerk, "/console")
        assert "1 plan ends tomorrow" in home, "home counts what the list shows"
        assert "it can be recharged" in home and "Recharge plans" in home
        async with signed_in(service, "developer", dealer.tenant_id) as developer:
            assert "See the plans" in await see(developer, "/console"), "who may not recharge"
        fitting = await dealer.post("/package/list", {"iccid": made[1]["iccid"], "type": "TOPUP"})
        await service.change(dealer.tenant_id, prices={one["packageCode"]: "off" for one in fitting.data["packages"]})
        assert "it cannot be recharged" in await see(clerk, "/console"), "with nothing that is on sale for the dealer"
        day = (datetime.now(UTC).date() + timedelta(days=1)).isoformat()
        notice = NewNotice(dealer.tenant_id, "PLANS_ENDING", day, {"date": day, "count": 2, "plans": []})
        await service.database.run(lambda connection: outbox.add(connection, [notice], datetime.now(UTC)))
        assert f"2 plans end on {dates.day(datetime.fromisoformat(day))}, 1 still in use" in await see(
            clerk, "/console/notices"
        ), "the inbox too"
        file = (await clerk.get("/console/profiles.csv?ends=soon")).text
        assert str(ids[1]) in file and str(ids[2]) not in file and len(file.split()) == 2
        async with service.database.connection() as connection:
            short = "UPDATE profile SET plan_use_start_at = $2 WHERE tenant_id = $1"
            await connection.execute(short, int(dealer.tenant_id), now)
        assert "plan ends" not in await see(clerk, "/console"), "of short plans nothing is told"
        assert "No eSIM matches" in await see(clerk, "/console/profiles?ends=soon")
