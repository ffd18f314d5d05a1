"""Operators view and reset secrets, and rotate the sealing key."""

import asyncio
import base64
import json

import pytest

from dealer_server.db.sealing import MasterKeys, credential_context
from support.api_client import SEALING_KEYS, ApiClient, Service, running_service
from support.patience import PATIENCE
from support.processes import environment, run

NEW = f"new:{base64.b64encode(bytes(range(32, 64))).decode()}"
BOTH = f"{NEW},{SEALING_KEYS}"


async def acts_on(service: Service, dealer: ApiClient) -> list[tuple[str, str]]:
    async with service.database.connection() as connection:
        rows = await connection.fetch(
            "SELECT action, detail::text FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id", dealer.tenant_id
        )
    return [(row[0], row[1]) for row in rows]


async def test_viewing_a_secret_is_recorded_without_the_secret(service: Service, dealer: ApiClient):
    env = environment(service.settings.database_url)
    shown = await run("credentials", "view", dealer.app_key, "--json", env=env)
    assert json.loads(shown.out) == {"appKey": dealer.app_key, "appSecret": dealer.app_secret}
    action, detail = (await acts_on(service, dealer))[-1]
    assert action == "credentials.view" and dealer.app_key in detail and dealer.app_secret not in detail
    unknown = await run("credentials", "view", "ak_test_nobody", env=env)
    assert unknown.status == 1 and "no credential" in unknown.err


@pytest.mark.parametrize(("arguments", "code"), [((), "000000"), (("--now",), "101003")])
async def test_the_old_secret_signs_calls_for_a_day_or_not_at_all(
    service: Service, dealer: ApiClient, arguments: tuple[str, ...], code: str
):
    env = environment(service.settings.database_url)
    reset = json.loads((await run("credentials", "reset", dealer.app_key, *arguments, "--json", env=env)).out)
    old = dealer.app_secret
    dealer.app_secret = reset["appSecret"]
    async with asyncio.timeout(PATIENCE):
        while (await dealer.post("/health")).code != "000000":
            await asyncio.sleep(0.02)
    dealer.app_secret = old
    assert (await dealer.post("/health")).code == code


async def test_sealing_keys_are_rotated_while_calls_continue(database_url: str):
    async with running_service(database_url, sealing_keys=BOTH) as service:
        before = MasterKeys.parse(SEALING_KEYS)
        created = [await service.tenant(balance="10", qps=0) for _ in range(3)]
        async with service.database.transaction() as connection:
            for one in created:  # as the old key sealed them
                context = credential_context(int(one.tenant_id), one.app_key, 1)
                await connection.execute(
                    "UPDATE credential SET sealed_secret = $2 WHERE app_key = $1",
                    one.app_key,
                    before.seal(one.app_secret.encode(), context),
                )
            await connection.execute("UPDATE change SET version = version + 1 WHERE subject = 'tenant'")
        async with service.client(created[0]) as dealer:
            over = asyncio.Event()

            async def call() -> set[str]:
                codes = set()
                while not over.is_set():
                    codes.add((await dealer.post("/health")).code)
                return codes

            calling = asyncio.create_task(call())
            env = environment(database_url) | {"DEALER_SEALING_KEYS": BOTH}
            first = await run("keys", "rotate", "--json", env=env)
            again = await run("keys", "rotate", "--json", env=env)
            over.set()
            assert await calling == {"000000"}
        done = json.loads(first.out)
        assert done["credentials"] >= 3 and json.loads(again.out) == {"credentials": 0, "dataKeys": 0}
        assert await service.audit() == []
    async with running_service(database_url, sealing_keys=NEW) as service, service.client(created[1]) as dealer:
        assert (await dealer.order()).code == "000000", "the old key is needed no more"
        assert await service.audit() == []
