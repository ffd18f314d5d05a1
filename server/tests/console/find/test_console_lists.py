"""Lists say what is so in few words: the audit log, endpoints, users, built-in suppliers."""

import csv
import json
import re

from dealer_server import clock
from support.api_client import ApiClient, Service
from support.browser import Browser, signed_in
from support.console.operator_pages import does, failed_for_good, see, text_of
from support.webhook_fixture import Receiver


def row(page: str) -> str:
    """The details of the newest act."""
    found = re.search(r'<td class="small text-break wide">(.*?)</td>', page, re.DOTALL)
    assert found is not None
    return found[1]


async def test_a_creation_in_the_audit_log_tells_what_is_not_the_default(dealer: ApiClient, admin: Browser) -> None:
    page = (await admin.get(f"/console/audit?dealer={dealer.tenant_id}&action=tenant.create")).text
    short, _, every = row(page).partition("All fields")
    assert "Balance</span> 1,000.00" in short and "Credit limit" not in short and "IP allowlist" not in short
    assert "IP allowlist</span> none" in every and "RT-family API</span> off" in every and "Markup</span> 0 %" in every
    assert "entryVersion" not in page


async def test_the_audit_log_is_filtered_by_an_act_or_a_part_of_its_code(dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    await does(admin, f"{home}/terms", name="Acme", markup="12.5", status="ACTIVE")
    of = f"/console/audit?dealer={dealer.tenant_id}"
    page = (await admin.get(f"{of}&action=tenant.set")).text
    assert "0 %</del> → 12.5 %" in row(page) and '<option value="tenant.set" selected>Changed the terms' in page
    part = (await admin.get(f"{of}&action=tenant.")).text
    assert '<option value="tenant." selected>' in part and 'title="tenant.create"' in part


async def test_an_actor_is_named_in_words(service: Service, dealer: ApiClient, admin: Browser) -> None:
    async with service.database.transaction() as connection:
        await connection.execute(
            "INSERT INTO audit_log (at, author, source, action, tenant_id, detail, hash)"
            " VALUES (now(), 'cli:root@vm', 'cli root@vm pid 7', 'keys.rotate', $1, '{}', '')",
            int(dealer.tenant_id),
        )
    page = f"/console/audit?dealer={dealer.tenant_id}&kind=users"
    assert "Sealed secrets with the newest key root Command line" in await see(admin, page)
    assert 'title="cli:root@vm, cli root@vm pid 7"' in (await admin.get(page)).text
    assert "Sealed secrets" not in (await see(admin, page.replace("users", "money"))).partition("Details")[2]


async def test_the_audit_log_begins_without_sign_ins(service: Service, admin: Browser, dealer: ApiClient) -> None:
    await does(admin, f"/console/dealers/{dealer.tenant_id}/adjust", direction="add", amount="1234.5", reason="late")
    first, every = await see(admin, "/console/audit"), await see(admin, "/console/audit?kind=all")
    assert "All Changes Orders and eSIMs Money" in first, "other kinds are in the filter"
    dealers = await admin.get(f"/console/audit?dealer={dealer.tenant_id}&kind=dealers")
    assert '<option value="dealers" selected>Dealers' in dealers.text and "Signed in" not in row(dealers.text)
    assert " Signed in " not in first.partition("Details")[2] and " Signed in " in every.partition("Details")[2]
    assert "Amount 1,234.50 USD" in first, "an amount has the currency of the dealer's wallet"
    file = (await admin.get("/console/audit.csv")).text
    assert "user.sign_in" not in file and "user.sign_in" in (await admin.get("/console/audit.csv?kind=all")).text


async def test_a_sign_in_says_where_from_and_its_user_once(admin: Browser) -> None:
    await admin.get("/console")
    page = text_of((await admin.get(f"/console/audit?author={admin.name}&action=user.sign_in")).text)
    assert f"Signed in {admin.name} 127.0.0.1 – " in page and f"User {admin.name}" not in page


async def test_the_audit_log_says_the_amount_of_a_top_up_before_the_balance(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    detail = {
        "topupNo": "T1",
        "amount": "250.00",
        "currency": "USD",
        "before": {"balance": "1000.00"},
        "after": {"balance": "1250.00"},
    }
    async with service.database.connection() as connection:
        await connection.execute(
            "INSERT INTO audit_log (at, author, source, action, tenant_id, detail, hash)"
            " VALUES (now(), 'test', 'here', 'topup.approve', $1, $2, 'x')",
            int(dealer.tenant_id), json.dumps(detail),
        )  # fmt: skip
    page = await see(admin, f"/console/audit?dealer={dealer.tenant_id}&action=topup.approve")
    assert re.search(r"Amount 250.00.*Balance 1,000.00 → 1,250.00", page), page


async def test_what_one_actor_did_at_once_is_one_row_of_the_audit_log(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    at = clock.now().replace(microsecond=0)
    async with service.database.connection() as connection:
        for action, package in (("supplier.cost", "A-1"), ("supplier.cost", "B-2"), ("catalog.edit", "C-3")):
            await connection.execute(
                "INSERT INTO audit_log (at, author, source, action, tenant_id, detail, hash)"
                " VALUES ($1, 'test', 'here', $2, $3, $4, 'x')",
                at, action, int(dealer.tenant_id), json.dumps({"package": package}),
            )  # fmt: skip
    page = await see(admin, f"/console/audit?dealer={dealer.tenant_id}&author=test")
    assert re.search(r"Changed package C-3 .* Changed cost × 2 .* B-2, A-1 ", page), page


async def test_dealers_without_an_endpoint_are_counted_and_shown_when_asked_for(
    service: Service, dealer: ApiClient, admin: Browser, receiver: Receiver
) -> None:
    without = await service.tenant(name="Deaf House")
    await failed_for_good(service, dealer, receiver)
    page = await see(admin, "/console/webhooks/endpoints")
    assert re.search(r"\d+ dealers? ha(ve|s) no endpoint\.", page) and "Deaf House" not in page
    assert f"Deaf House {without.tenant_id} Not set" in await see(admin, "/console/webhooks/endpoints?all=1")


async def test_users_are_operators_or_dealers_and_an_admin_without_a_code_stands_out(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    async with signed_in(service, "finance", int(dealer.tenant_id)) as theirs:
        for kind, shown in (("operators", True), ("dealers", False)):
            page = (await admin.get(f"/console/users?kind={kind}&sort=-seen")).text
            named = [f"<bdi>{one.name}</bdi></a>" in page for one in (admin, theirs)]
            assert named == [shown, not shown]
            assert ('state-warning">Off<' in page) == shown


async def test_a_page_stands_under_its_entry_of_the_menu(admin: Browser) -> None:
    for path, entry in (("/console/waiting?state=PARKED", "suppliers"), ("/console/suppliers", "suppliers")):
        assert f'class="side-link current" href="/console/{entry}"' in (await admin.get(path)).text
    assert "Unconfirmed purchases" in await see(admin, "/console/waiting?state=PARKED")
    assert re.search(r"[\d,]{2,} packages come from the built-in simulator", await see(admin, "/console/suppliers"))


async def test_a_changed_route_is_told_in_words_and_the_log_is_exported(
    service: Service, dealer: ApiClient, admin: Browser
) -> None:
    at = clock.now()
    detail = {
        "package": "TEST-OK",
        "before": [["rt:near", "JC016", 9500, "USD"], ["rt:far", "F1", None, None]],
        "after": [["rt:far", "F1", None, None], ["rt:near", "JC016", 9500, "USD"], ["stock", "TEST-OK", 100, "USD"]],
        "floorBefore": None,
        "floorAfter": 500,
    }
    address = {"baseUrl": "https://x.example", "limits": {"perSecond": 5}}
    async with service.database.connection() as connection:
        for action, told in (
            ("supplier.route", detail),
            (
                "catalog.status",
                {"packages": ["A-1", "B-2"], "before": {"status": "ON_SALE"}, "after": {"status": "OFF_SALE"}},
            ),
            ("supplier.set", {"code": "rt:x", "before": {}, "after": address}),
        ):
            await connection.execute(
                "INSERT INTO audit_log (at, author, source, action, tenant_id, detail, hash)"
                " VALUES ($1, 'test', 'here', $2, $3, $4, 'x')",
                at, action, int(dealer.tenant_id), json.dumps(told),
            )  # fmt: skip
    page = await see(admin, f"/console/audit?dealer={dealer.tenant_id}&author=test")
    assert "Position 1 rt:near as JC016, 0.95 USD → rt:far as F1, no cost known" in page, page
    assert "Position 3 stock as TEST-OK, 0.01 USD" in page and "Position 4" not in page
    assert "Margin floor the platform's → 5 %" in page
    assert "Status On sale → Off sale Packages A-1, B-2" in page
    assert "Base URL https://x.example" in page and "Rate limit 5" in page
    assert "[" not in page[page.index("Details") : page.rindex("New dealer")]
    file = await admin.get(f"/console/audit.csv?dealer={dealer.tenant_id}&author=test&action=supplier.route")
    [row] = csv.DictReader(file.text.splitlines())
    assert (row["action"], row["actor"], row["tenantId"]) == ("supplier.route", "test", str(dealer.tenant_id))
    assert "Margin floor: the platform's → 5 %" in row["details"]
    assert "Exported the audit log" in await see(admin, f"/console/audit?dealer={dealer.tenant_id}&action=audit.export")
