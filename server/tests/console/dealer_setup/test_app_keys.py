"""AppKeys and IP allowlists in the console: what operators do, and what dealers do as far as they are permitted."""

import asyncio
import re
from dataclasses import replace
from typing import Any

from support.api_client import ApiClient, Service
from support.browser import Browser, said, signed_in
from support.patience import PATIENCE

KEYS = "/console/credentials"
READ_ONLY = {"name": "Reports", "scope_read": "on", "ip_allow": ""}


async def rows(service: Service, sql: str, *args: object) -> list[Any]:
    async with service.database.connection() as connection:
        return [tuple(row) for row in await connection.fetch(sql, *args)]


async def new_key(one: Browser, place: str, dealer: ApiClient, **fields: str) -> ApiClient:
    """An AppKey that is made in the console, with what its page shows."""
    led = await one.post(place, READ_ONLY | fields)
    assert led.status_code == 303 and led.headers["location"].endswith("?fresh=new"), led.text
    page = (await one.get(led.headers["location"])).text
    secret, app_key = re.search(r"sk_test_\w{40}", page), re.search(r"ak_test_\w{24}", led.headers["location"])
    assert secret and app_key
    return replace(dealer, app_key=app_key[0], app_secret=secret[0])


async def until(client: ApiClient, code: str, path: str = "/health") -> None:
    async with asyncio.timeout(PATIENCE):
        while (await client.post(path)).code != code:
            await asyncio.sleep(0.02)


async def test_an_operator_makes_and_limits_an_app_key(service: Service, dealer: ApiClient, admin: Browser) -> None:
    home = f"/console/dealers/{dealer.tenant_id}"
    key = await new_key(admin, f"{home}/credentials", dealer)
    await until(key, "000000")
    assert (await key.post("/esim/refund")).code == "101007"
    place = f"{home}/credentials/{key.app_key}"
    await admin.post(f"{place}/limits", {"name": "Refunds", "scope_money": "on", "ip_allow": "127.0.0.1"})
    await until(key, "101007")
    assert (await key.post("/esim/refund")).code == "000105"
    page = (await admin.get(home)).text
    assert "Refunds" in page and page.count("signs webhooks") == 1
    await admin.post(f"{place}/webhooks")
    signs = "SELECT app_key FROM credential WHERE tenant_id = $1 AND signs_webhooks"
    assert await rows(service, signs, dealer.tenant_id) == [(key.app_key,)]
    await admin.post(f"{place}/disable")
    await until(key, "101006")
    actions = "SELECT action FROM audit_log WHERE tenant_id = $1 AND action LIKE 'credentials.%' ORDER BY audit_id"
    done = [action for (action,) in await rows(service, actions, dealer.tenant_id) if action != "credentials.view"]
    assert done == [f"credentials.{act}" for act in ("create", "set", "sign_webhooks", "disable")]
    assert await service.audit() == []


async def test_limits_that_make_no_sense_are_refused(dealer: ApiClient, admin: Browser) -> None:
    place = f"/console/dealers/{dealer.tenant_id}/credentials"
    for fields, words in (
        ({"name": "x"}, "scope"),
        ({"name": "x" * 61, "scope_read": "on"}, "60"),
        ({"scope_read": "on", "ip_allow": "203.0.113.999"}, "203.0.113.999"),
        ({"scope_read": "on", "ip_allow": "10.0.0.1 " * 101}, "100"),
    ):
        led = await admin.post(place, fields)
        assert led.status_code == 303 and words in said(await admin.get(f"/console/dealers/{dealer.tenant_id}"))


async def test_a_dealer_manages_its_app_keys_where_it_may(service: Service, dealer: ApiClient) -> None:
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        assert "New AppKey" not in (await one.get(KEYS)).text
        for path in (KEYS, f"{KEYS}/{dealer.app_key}/limits", f"{KEYS}/{dealer.app_key}/revoke",
                     f"{KEYS}/{dealer.app_key}/webhooks"):  # fmt: skip
            assert (await one.post(path, READ_ONLY)).status_code == 403
        assert (await dealer.post("/health")).code == "000000"
        await service.change(dealer.tenant_id, manages_keys=True)
        assert "New AppKey" in (await one.get(KEYS)).text
        key = await new_key(one, KEYS, dealer)
        await until(key, "000000")
        assert (await key.post("/esim/order")).code == "101007"
        assert (
            await one.post(f"{KEYS}/{key.app_key}/limits", {"name": "Shop", "scope_order": "on"})
        ).status_code == 303
        await until(key, "101007")
        led = await one.post(f"{KEYS}/{key.app_key}/reset")
        assert "sk_test_" in (await one.get(led.headers["location"])).text
        await one.post(f"{KEYS}/{key.app_key}/revoke")
        await until(key, "101006")
        page = (await one.get(KEYS)).text
        assert "Shop" in page and "Disabled" in page and (await dealer.post("/health")).code == "000000"
        assert (await one.post(f"{KEYS}/{key.app_key}/enable")).status_code == 404, "only an operator takes it back"


async def test_a_dealer_touches_no_app_key_of_another(service: Service, dealer: ApiClient, stranger: ApiClient) -> None:
    await service.change(dealer.tenant_id, manages_keys=True)
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        for act in ("limits", "revoke", "webhooks", "reset"):
            assert (await one.post(f"{KEYS}/{stranger.app_key}/{act}", READ_ONLY)).status_code == 404
    async with signed_in(service, "finance", dealer.tenant_id) as one:
        assert (await one.post(KEYS, READ_ONLY)).status_code == 403
    assert (await stranger.post("/health")).code == "000000"


async def test_a_dealer_edits_its_allowlist_where_it_may_and_is_warned(service: Service, dealer: ApiClient) -> None:
    place, saved = f"{KEYS}/allowlist", "SELECT ip_allow FROM tenant WHERE tenant_id = $1"
    assert (await dealer.post("/health")).code == "000000"
    async with asyncio.timeout(PATIENCE):  # the call's address is written down
        while not await rows(service, "SELECT 1 FROM credential_use WHERE app_key = $1", dealer.app_key):
            await asyncio.sleep(0.05)
    async with signed_in(service, "developer", dealer.tenant_id) as one:
        assert (await one.post(place, {"ip_allow": "203.0.113.7"})).status_code == 403
        await service.change(dealer.tenant_id, edits_ip_allow=True)
        assert "Add 127.0.0.1 (last caller)<" in (await one.get(KEYS)).text
        assert ">127.0.0.1</textarea>" in (await one.get(f"{KEYS}?allow")).text
        assert await rows(service, saved, dealer.tenant_id) == [([],)], "it is only filled in"
        wrong = await one.post(place, {"ip_allow": "203.0.113.999"})
        assert wrong.status_code == 400 and "203.0.113.999" in said(wrong)
        warned = await one.post(place, {"ip_allow": "203.0.113.7"})
        assert warned.status_code == 400 and "127.0.0.1</code> last call" in warned.text
        assert "Nothing is saved yet" in warned.text and ">203.0.113.7</textarea>" in warned.text
        assert await rows(service, saved, dealer.tenant_id) == [([],)]
        assert (await one.post(place, {"ip_allow": "127.0.0.0/8\n203.0.113.7"})).status_code == 303
        await until(dealer, "000000")
        assert (await one.post(place, {"ip_allow": "203.0.113.7", "meant": "on"})).status_code == 303
        await until(dealer, "101002")
        assert (await one.post(place, {"ip_allow": ""})).status_code == 303
        await until(dealer, "000000")
    assert await rows(service, saved, dealer.tenant_id) == [([],)]


async def test_the_list_of_an_app_key_warns_too(service: Service, dealer: ApiClient) -> None:
    await service.change(dealer.tenant_id, manages_keys=True)
    place, fields = f"{KEYS}/{dealer.app_key}/limits", {"name": "Shop", "scope_read": "on", "ip_allow": "203.0.113.7"}
    async with signed_in(service, "admin", dealer.tenant_id) as one:
        warned = await one.post(place, fields)
        assert warned.status_code == 400 and "127.0.0.1" in warned.text and "Nothing is saved yet" in warned.text
        assert (await dealer.post("/health")).code == "000000"
        assert (await one.post(place, fields | {"meant": "on"})).status_code == 303
        await until(dealer, "101002")
