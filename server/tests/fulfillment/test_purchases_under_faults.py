"""A tenth of all calls to suppliers goes wrong, before or after they were carried out, or is done twice: what was
bought is held by our dealers or written off, nothing is sold twice, and each code is the one the supplier holds."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dealer_server import metrics
from dealer_server.operations.suppliers.configure import load_iccids
from dealer_server.operations.suppliers.resolve import list_parked
from support.api_client import ApiClient, Service, running_service
from support.rt_family import FAULTS, running_upstream
from support.supplier_setup import Source, fresh, hop, set_up
from support.suppliers.smdp import HOST, TWICE, Fault, Faults, iccids, running_smdp

PER_ORDER = 20
PATIENCE = 300.0
UNSETTLED = """SELECT EXISTS (SELECT FROM purchase WHERE state IN ('PLANNED', 'SENT', 'PENDING', 'UNKNOWN'))
    OR EXISTS (SELECT FROM order_item WHERE due_at IS NOT NULL)"""
LOST = [Fault(how, executed) for how in ("RESET", "HTTP 500", "HTML", "HALF", "EXPIRED") for executed in (True, False)]


def a_tenth(function: str, body: object) -> Fault | None:
    return random.choice([TWICE, *LOST]) if random.random() < 0.1 else None


def doubled(of: str) -> Faults:
    """A tenth of the calls of one function is carried out twice."""
    return lambda function, body: TWICE if function == of and random.random() < 0.1 else None


async def bought_and_delivered(service: Service, client: ApiClient, count: int) -> list[dict[str, Any]]:
    """Every eSIM of so many, ordered together; the pauses between questions are cut short."""
    line = {"packageCode": "TEST-OK", "quantity": PER_ORDER, "price": "1.80"}
    for _ in range(count // PER_ORDER):
        assert (await client.order(items=[line], amount=f"{1.8 * PER_ORDER:.2f}")).code == "000000"
    async with asyncio.timeout(PATIENCE):
        while True:
            async with service.database.connection() as connection:
                # In one statement: between two of them what waits becomes a purchase, or a purchase waits again.
                if not await connection.fetchval(UNSETTLED):
                    break
                await connection.execute(
                    "UPDATE purchase SET due_at = now() WHERE state IN ('PLANNED', 'PENDING', 'UNKNOWN')"
                )
            await asyncio.sleep(0.05)
    found = await all_profiles(client)
    assert len(found) == count
    return found


async def all_profiles(client: ApiClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    pager: dict[str, Any] = {"pageSize": 500}
    while True:
        page = (await client.post("/esim/profile/list", {"pager": pager})).data
        found += [record["profile"] for record in page["records"]]
        if "next" not in page["pager"]:
            return found
        pager = {"pageSize": 500, "after": page["pager"]["next"]}


@asynccontextmanager
async def served(url: str) -> AsyncIterator[tuple[Service, ApiClient]]:
    async with (
        running_service(url) as service,
        service.client(await service.tenant(balance="100000", qps=0)) as client,
    ):
        yield service, client
        assert await service.audit() == []


async def at_an_smdp(
    postgres: str, template: str, folder: Path, count: int, profile_status: bool = True, fault: Faults = a_tenth
) -> None:
    spare = iccids(3 * count)
    counted_before = written_off_counted()
    async with (
        fresh(postgres, template) as url,
        running_smdp(folder, profiles={"TYPE": spare}, fault=fault, profile_status=profile_status) as smdp,
    ):
        await set_up(url, [Source("es2:test", "es2plus", smdp.settings)], {"TEST-OK": [hop("es2:test", "TYPE")]})
        async with served(url) as (service, client):
            await load_iccids(service.database, "es2:test", "TYPE", spare, "test")
            found = await bought_and_delivered(service, client, count)
            held = {one["iccid"]: one["activationCode"] for one in found if "iccid" in one}
            async with service.database.connection() as connection:
                rows = await connection.fetch("SELECT planned_iccid FROM purchase WHERE state = 'WRITTEN_OFF'")
            written_off = {row[0] for row in rows}
        assert len(held) == count and not held.keys() & written_off
        assert held == {iccid: f"LPA:1${HOST}${code}" for iccid, code in smdp.book.items() if iccid in held}
        assert {iccid for iccid, one in smdp.profiles.items() if one.confirmations} == held.keys() | written_off
        assert all(profile.confirmations <= 1 for profile in smdp.profiles.values())
        assert {iccid for iccid, one in smdp.profiles.items() if one.state == "ALLOCATED"} == set(), "reserved for ever"
    assert written_off_counted() - counted_before == len(written_off)


def written_off_counted() -> float:
    labels = {"supplier": "es2:test", "outcome": "WRITTEN_OFF"}
    return metrics.REGISTRY.get_sample_value("dealer_purchases_total", labels) or 0.0


async def at_a_reseller(postgres: str, template: str, count: int) -> None:
    async with fresh(postgres, template) as url, running_upstream() as upstream:
        upstream.book.balance = 10**12
        for operation in ("esim/order", "esim/query"):
            upstream.fault(
                operation, *(random.choice(FAULTS) if random.random() < 0.1 else "" for _ in range(20 * count))
            )
        await set_up(url, [Source("rt:test", "rt_upstream", upstream.settings)], {"TEST-OK": [hop("rt:test", "JC016")]})
        async with served(url) as (service, client):
            found = await bought_and_delivered(service, client, count)
            held = {one["iccid"]: one["activationCode"] for one in found if "iccid" in one}
            parked = await list_parked(service.database)
        assert len(held) + len(parked) == count
        sold = {esim.iccid: esim.ac for esim in upstream.book.esims()}
        assert {iccid: sold[iccid] for iccid in held} == held
        assert len(sold) <= count
        assert max(Counter(order.transaction_id for order in upstream.book.orders).values()) == 1


@pytest.mark.parametrize("profile_status", [False, True])
async def test_what_an_smdp_sold_under_faults_is_what_dealers_hold(
    postgres: str, template: str, tmp_path: Path, profile_status: bool
):
    await at_an_smdp(postgres, template, tmp_path, 60, profile_status)


@pytest.mark.parametrize("profile_status", [False, True])
@pytest.mark.parametrize("function", ["downloadOrder", "confirmOrder"])
async def test_what_a_proxy_repeats_is_sold_once(
    postgres: str, template: str, tmp_path: Path, function: str, profile_status: bool
):
    await at_an_smdp(postgres, template, tmp_path, 60, profile_status, doubled(function))


async def test_what_a_reseller_sold_under_faults_is_what_dealers_hold(postgres: str, template: str):
    await at_a_reseller(postgres, template, 60)


@pytest.mark.soak
async def test_a_thousand_esims_of_an_smdp_under_faults(postgres: str, template: str, tmp_path: Path):
    await at_an_smdp(postgres, template, tmp_path, 1_000)


@pytest.mark.soak
async def test_a_thousand_esims_of_a_reseller_under_faults(postgres: str, template: str):
    await at_a_reseller(postgres, template, 1_000)
