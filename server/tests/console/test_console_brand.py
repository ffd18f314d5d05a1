"""The brand of a dealer: set by its own users, operators and the command; checked, recorded, on its pages at once."""

import html
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dealer_server.console.operator import codes
from dealer_server.rules.esim import qr
from support.api_client import ApiClient, Service
from support.browser import Browser, said, signed_in
from support.money.refunds import bought, profiles
from support.processes import environment, run

SCRIPT = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
LOGO = qr.png("LPA:1$rsp.example.com$X", 200)
FIELDS = {
    "name": "Sunbird Travel",
    "colour": "#E11D74",
    "support_email": "help@sunbird.example",
    "support_phone": "+44 20 7946 0000",
    "support_url": "https://sunbird.example/help",
    "sales_url": "https://shop.sunbird.example",
}


@pytest.fixture
async def owner(service: Service, dealer: ApiClient) -> AsyncIterator[Browser]:
    """Somebody of the dealer who may change its settings."""
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        yield one


async def acts(service: Service, dealer: ApiClient) -> list[dict[str, Any]]:
    async with service.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT author, detail FROM audit_log WHERE tenant_id = $1 AND action = 'tenant.brand' ORDER BY audit_id",
            dealer.tenant_id,
        )
    return [{"author": row["author"], **json.loads(row["detail"])} for row in rows]


async def install_page(dealer: ApiClient) -> str:
    return html.unescape((await dealer.http.get(profiles(await bought(dealer))[0]["installPageUrl"])).text)


async def test_a_dealer_sets_its_brand_and_its_pages_show_it(service: Service, dealer: ApiClient, owner: Browser):
    sent = await owner.post("/console/brand", FIELDS, {"logo": LOGO})
    assert (sent.status_code, sent.headers["location"]) == (303, "/console/brand")
    page = await owner.get("/console/brand")
    assert said(page).startswith("The brand is saved") and 'value="#e11d74"' in page.text
    assert page.text.count("data:image/png;base64,") == 1, "all previews use it"
    shown = await install_page(dealer)
    assert "Sunbird Travel" in shown and "--fill:#e11d74" in shown and "data:image/png" in shown
    [act] = await acts(service, dealer)
    assert act["author"] == f"console:{owner.name}" and act["before"]["name"] == ""
    assert act["after"] | FIELDS == act["after"] | {"colour": "#e11d74"} | FIELDS
    assert act["after"]["logo"].startswith(f"image/png, {len(LOGO)} bytes, ")


async def test_fields_left_empty_are_removed_and_the_logo_stays_until_it_is_removed(
    service: Service, dealer: ApiClient, owner: Browser
):
    await owner.post("/console/brand", FIELDS, {"logo": LOGO})
    await owner.post("/console/brand", {"name": "Sunbird"}, {"logo": b""})
    shown = await install_page(dealer)
    assert "data:image/png" in shown and "sunbird.example" not in shown and "#e11d74" not in shown
    await owner.post("/console/brand", {"name": "Sunbird", "no_logo": "on"})
    assert "data:image/png" not in await install_page(dealer)
    assert [sorted(act["after"]) for act in await acts(service, dealer)][1:] == [
        ["colour", "name", "sales_url", "support_email", "support_phone", "support_url"],
        ["logo"],
    ]


@pytest.mark.parametrize(
    ("changed", "logo", "fault"),
    [
        ({"name": "x" * 61}, b"", "has 61 characters; accepted: at most 60"),
        ({"colour": "red"}, b"", "colour 'red' must be a colour such as #1d5fd1"),
        ({"support_email": "nobody"}, b"", "support email 'nobody' must be an email address"),
        ({"support_phone": "call us"}, b"", "support phone 'call us' must be a telephone number"),
        ({"support_url": "http://sunbird.example"}, b"", "must be an https address"),
        ({"sales_url": "ftp://sunbird.example"}, b"", "shop address 'ftp://sunbird.example' must be an https address"),
        ({}, b"GIF89a", "logo is no picture of an accepted kind; accepted: PNG, WebP, SVG"),
        ({}, b"\x89PNG\r\n\x1a\n" + b"\0" * 40_000, "logo has 40,008 bytes; accepted: at most 32,768"),
        (
            {},
            SCRIPT,
            "logo is an SVG file with <script>",
        ),
    ],
)
async def test_what_is_refused_is_named_and_the_form_keeps_what_was_typed(
    service: Service, dealer: ApiClient, owner: Browser, changed: dict[str, str], logo: bytes, fault: str
):
    sent = await owner.refused("/console/brand", FIELDS | changed, {"logo": logo})
    assert fault in said(sent) and f'id="field-{next(iter(changed), "logo")}-error"' in sent.text
    assert all(f'value="{html.escape(text)}"' in sent.text for text in (FIELDS | changed).values())
    assert await acts(service, dealer) == []


async def test_all_that_is_wrong_is_named_at_once_each_at_its_field(
    service: Service, dealer: ApiClient, admin: Browser
):
    wrong = {"name": "Sunbird", "colour": "red", "support_email": "nobody", "support_phone": "+44 20 7946 0000",
             "support_url": "http://sunbird.example"}  # fmt: skip
    async with signed_in(service, "developer", dealer.tenant_id) as owner:
        own, operators = (owner, "/console/brand"), (admin, f"/console/dealers/{dealer.tenant_id}/brand")
        for one, path in (own, operators):
            page = (await one.refused(path, wrong, {"logo": LOGO})).text
            faults = dict(re.findall(r'id="field-(\w+)-error">([^<]*)<', page))
            assert list(faults) == ["colour", "logo", "support_email", "support_url"]
            assert "such as #1d5fd1" in faults["colour"] and "https address" in faults["support_url"]
            assert faults["logo"] == "Choose the file again: it was not kept."
            assert all(f'value="{text}"' in page for text in wrong.values()) and page.count("autofocus") == 1
            assert "flash-bad" not in page, "said where it is wrong, and nowhere else"
    assert await acts(service, dealer) == []


async def test_only_those_who_may_change_settings_open_it(service: Service, dealer: ApiClient, stranger: ApiClient):
    brands = {}
    for role in ("admin", "developer", "finance"):
        async with signed_in(service, role, dealer.tenant_id) as one:
            status = (await one.get("/console/brand")).status_code
            brands[role] = (status, (await one.post("/console/brand", {"name": role})).status_code)
    assert brands == {"admin": (200, 303), "developer": (200, 303), "finance": (403, 403)}
    path = f"/console/dealers/{dealer.tenant_id}/brand"
    for role, tenant_id, status in (("finance", None, 403), ("admin", stranger.tenant_id, 404), ("admin", None, 200)):
        async with signed_in(service, role, tenant_id) as one:
            assert (await one.get(path)).status_code == status
    assert len(await acts(service, dealer)) == 2


async def test_an_operator_sets_it_for_a_dealer(service: Service, dealer: ApiClient, admin: Browser):
    home = f"/console/dealers/{dealer.tenant_id}"
    assert f'href="{home}/brand"' in (await admin.get(home)).text
    sent = await admin.post(f"{home}/brand", FIELDS, {"logo": LOGO})
    assert (sent.status_code, sent.headers["location"]) == (303, f"{home}/brand")
    assert "such as #1d5fd1" in said(await admin.refused(f"{home}/brand", {"colour": "red"}))
    [act] = await acts(service, dealer)
    assert act["author"] == f"console:{admin.name}" and act["after"]["name"] == "Sunbird Travel"
    assert (await admin.get("/console/dealers/999999/brand")).status_code == 404


async def test_the_command_sets_it_too(service: Service, dealer: ApiClient, tmp_path: Path):
    env, tenant = environment(service.settings.database_url), str(dealer.tenant_id)
    (tmp_path / "logo.png").write_bytes(LOGO)
    done = await run("tenant", "brand", tenant, "--name", "Sunbird", "--logo", str(tmp_path / "logo.png"), env=env)
    assert (done.status, done.out) == (0, f"the brand of tenant {tenant} is changed\n"), done
    assert "Sunbird" in await install_page(dealer)
    (tmp_path / "empty.png").write_bytes(b"")
    faults = {
        ("--colour", "red"): "colour 'red' must be a colour such as #1d5fd1",
        ("--logo", str(tmp_path / "empty.png")): "logo is no picture of an accepted kind; accepted: PNG, WebP, SVG",
        ("--logo", str(tmp_path / "none.png")): f"{tmp_path / 'none.png'}: No such file or directory",
    }
    for arguments, fault in faults.items():
        refused = await run("tenant", "brand", tenant, *arguments, env=env)
        assert (refused.status, refused.err) == (1, f"dealer-server: {fault}")
    unknown = await run("tenant", "brand", "999999", "--name", "x", env=env)
    assert unknown.err == "dealer-server: no tenant 999999"
    assert [act["author"].partition(":")[0] for act in await acts(service, dealer)] == ["cli"]
    assert (await run("tenant", "brand", tenant, "--no-logo", env=env)).status == 0
    assert "data:image/png" not in await install_page(dealer)


async def test_the_page_of_an_esim_has_its_link_to_copy_and_share(service: Service, dealer: ApiClient, owner: Browser):
    [profile] = profiles(await bought(dealer))
    path, url = f"/console/profiles/{profile['profileId']}", profile["installPageUrl"]
    page = (await owner.get(path)).text
    assert f'data-copy="{url}"' in page and f'data-share="{url}"' in page and f'href="{url}"' in page
    assert f'href="{url}"' in (await owner.get("/console/brand")).text, "the newest eSIM"
    async with signed_in(service, "finance", dealer.tenant_id) as clerk:
        assert url not in (await clerk.get(path)).text, "sees no codes"
    await dealer.post("/esim/profile/cancel", {"profileId": int(profile["profileId"])})
    assert url not in (await owner.get(path)).text


async def test_operators_do_not_see_the_address_in_bodies_of_webhooks(dealer: ApiClient):
    [profile] = profiles(await bought(dealer))
    body = json.dumps({"items": [{"profiles": [profile]}]}).encode()
    token = profile["installPageUrl"].rpartition(f"{profile['profileId']}-")[2]
    assert token not in codes.indented(body) and codes.HIDDEN in codes.indented(body)
