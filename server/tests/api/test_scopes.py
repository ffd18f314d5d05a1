"""What an AppKey may call, and from where: every operation, by signed HTTP (specification 2.1)."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import get_args

import pytest

from dealer_server import clock
from dealer_server.api.openapi import examples
from dealer_server.api.routes import ROUTES, Route
from dealer_server.operations.tenants import credentials
from dealer_server.operations.tenants.create import Created
from dealer_server.operations.tenants.credentials import KeyLimits
from dealer_server.store.tenants import credential
from esim_dealer.wire.operations import OPERATIONS
from esim_dealer.wire.vocabulary import Scope
from support.api_client import ApiClient, Reply, Service, running_service
from support.paths import DOCS
from support.patience import PATIENCE

SCOPES: tuple[Scope, ...] = get_args(Scope)
HERE, THERE, ELSEWHERE = "203.0.113.7", "203.0.113.8", "198.51.100.9"
# What processes write on their own: clocks, samples and what was refused.
UNRELATED = {
    "credential_use",
    "refused_call",
    "refused_count",
    "call_hour",
    "api_minute",
    "request_id",
    "first_run",
    "supplier_health",
}
EXAMPLES = examples.load()


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    async with running_service(database_url, worker=False, trusted_proxies="127.0.0.1") as service:
        yield service


@pytest.fixture
async def owner(service: Service) -> Created:
    """One for each test: a dealer has at most 20 AppKeys."""
    return await service.tenant(balance="1000", qps=0)


@asynccontextmanager
async def key_of(
    service: Service, owner: Created, scopes: Sequence[str] | None = None, ip_allow: Sequence[str] = ()
) -> AsyncIterator[ApiClient]:
    """Another AppKey of a dealer, as far as it may."""
    made = await credentials.create_key(
        service.database,
        service.settings.master_keys,
        "test",
        int(owner.tenant_id),
        KeyLimits(name="a test", scopes=scopes, ip_allow=ip_allow),
        "test",
    )
    async with service.client(owner) as client:
        client.app_key, client.app_secret = made
        yield client


async def everything(service: Service) -> dict[str, str]:
    """What stands in each table."""
    async with service.database.connection() as connection:
        rows = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
        tables = [row["tablename"] for row in rows if row["tablename"] not in UNRELATED]
        return {
            table: await connection.fetchval(
                f"SELECT count(*) || md5(coalesce(string_agg(t::text, '' ORDER BY t::text), '')) FROM {table} t"
            )
            for table in tables
        }


async def until(client: ApiClient, code: str, **headers: str) -> Reply:
    async with asyncio.timeout(PATIENCE):
        while (reply := await client.post("/health", **headers)).code != code:
            await asyncio.sleep(0.01)
    return reply


def test_every_operation_has_a_scope_and_the_specification_says_which():
    text = (DOCS / "specification.md").read_text()
    written = {
        path: scope
        for scope in SCOPES
        for row in re.findall(rf"^\| {scope} \| (`/.*) \|$", text, re.MULTILINE)
        for path in re.findall(r"`([^`]+)`", row)
    }
    assert written == {operation.path: operation.scope for operation in OPERATIONS}
    assert {operation.scope for operation in OPERATIONS} == set(SCOPES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_a_call_outside_the_scopes_does_nothing_and_names_the_scope(
    service: Service, owner: Created, route: Route
):
    needed = route.operation.scope
    others = [scope for scope in SCOPES if scope != needed]
    async with key_of(service, owner, others) as client:
        before = await everything(service)
        reply = await client.post(route.path, EXAMPLES[route.path].request)
        assert (reply.status, reply.code) == (403, "101007")
        assert reply.data == {"requiredScope": needed, "scopes": others}
        assert route.path in reply.message and f"the scope {needed}" in reply.message
        assert await everything(service) == before
    async with key_of(service, owner, [needed]) as client:
        allowed = await client.post(route.path, b"{")
        assert allowed.code == "000104", "the scope is looked at before the body"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_a_call_from_outside_the_list_of_the_key_does_nothing(service: Service, owner: Created, route: Route):
    async with key_of(service, owner, ip_allow=[HERE, "198.51.100.0/29"]) as client:
        before = await everything(service)
        reply = await client.post(route.path, EXAMPLES[route.path].request, **{"X-Forwarded-For": THERE})
        assert (reply.status, reply.code) == (403, "101002") and THERE in reply.message and "AppKey" in reply.message
        assert await everything(service) == before
        assert (await client.post(route.path, b"{", **{"X-Forwarded-For": HERE})).code == "000104"


async def test_a_call_has_to_come_from_both_lists(service: Service):
    owner = await service.tenant(qps=0, ip_allow=[HERE, THERE])
    async with key_of(service, owner, ip_allow=[THERE, ELSEWHERE]) as client:
        for address, code in ((HERE, "101002"), (THERE, "000000"), (ELSEWHERE, "101002")):
            assert (await client.post("/health", **{"X-Forwarded-For": address})).code == code


async def test_limits_and_disabling_hold_within_a_second(service: Service, owner: Created):
    async with key_of(service, owner) as client:
        assert (await client.post("/health")).code == "000000"
        await credentials.set_limits(service.database, client.app_key, KeyLimits(scopes=["order"]), "test")
        await until(client, "101007")
        limits = KeyLimits(scopes=["read", "order"], ip_allow=[HERE])
        await credentials.set_limits(service.database, client.app_key, limits, "test")
        await until(client, "101002")
        await until(client, "000000", **{"X-Forwarded-For": HERE})
        await credentials.disable_credential(service.database, client.app_key, "test", clock.now)
        await until(client, "101006", **{"X-Forwarded-For": HERE})
    async with service.client(owner) as first:
        assert (await first.post("/health")).code == "000000", "the others are as they were"


async def test_where_each_key_was_used_is_written_down_and_no_more_than_the_newest(service: Service):
    owner = await service.tenant(qps=0)
    async with key_of(service, owner) as client, service.client(owner) as first:
        for number in range(credential.ADDRESSES_KEPT + 5):
            assert (await client.post("/health", **{"X-Forwarded-For": f"203.0.113.{number}"})).code == "000000"
        assert (await first.post("/nothing", **{"X-Forwarded-For": HERE})).code == "000112"
        async with asyncio.timeout(PATIENCE), service.database.connection() as connection:
            while not (uses := await credential.uses(connection, [client.app_key, first.app_key])):
                await asyncio.sleep(0.05)
    assert {use.app_key for use in uses} == {client.app_key}
    assert 0 < len(uses) <= credential.ADDRESSES_KEPT + 5
    async with service.database.transaction() as connection:
        later = [(owner.app_key, f"198.51.100.{number}") for number in range(credential.ADDRESSES_KEPT + 5)]
        for at, use in enumerate(later):
            await credential.record_uses(connection, [use], uses[0].used_at.replace(microsecond=at))
        kept = [use.address for use in await credential.uses(connection, [owner.app_key])]
    assert kept == [address for _, address in reversed(later)][: credential.ADDRESSES_KEPT]
