"""Operators' writes beside each other: all take their locks in one order, so none ends in a deadlock."""

import asyncio

from dealer_server import clock
from dealer_server.dev import catalogue as generate
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.operations.price_lists import change
from dealer_server.operations.price_lists.change import ListForm
from dealer_server.operations.suppliers.configure import set_route
from dealer_server.operations.tenants.assign_price_list import assign
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.store.suppliers.purchase import Hop
from support.api_client import Service

ROUNDS = 40


async def test_concurrent_operator_writes_never_deadlock(service: Service):
    database = service.database
    packages = [one for one in generate.catalogue("test") if one.package_code.startswith("TEST-")]
    codes = [one.package_code for one in packages]
    dealers = [int((await service.tenant()).tenant_id) for _ in range(2)]

    async def routes() -> None:
        for number in range(ROUNDS):
            await set_route(database, codes[number % 2], [Hop("stock", "", None, None)], "test", clock.now)

    async def imports() -> None:
        for _ in range(ROUNDS):
            await put_packages(database, packages, "test", clock.now)

    async def imports_backwards() -> None:
        for _ in range(ROUNDS):
            await put_packages(database, packages[::-1], "test", clock.now)

    async def sales() -> None:
        for number in range(ROUNDS):
            status = "ON_SALE" if number % 2 else "OFF_SALE"
            await set_package_status(database, codes[::-1], status, "test", clock.now)

    async def lists() -> None:
        for number in range(ROUNDS):
            form = ListForm("Locked", "COST", str(number))
            await change.set_list(database, listed, form, None, "test", clock.now, allow_below_cost=True)

    async def assignments(dealer: int) -> None:
        for number in range(ROUNDS):
            await assign(database, dealer, None if number % 2 else listed, "test", clock.now)

    listed = await change.create_list(database, ListForm("Locked", "COST", "10"), "test", clock.now)

    async def prices(dealer: int, order: list[str]) -> None:
        for number in range(ROUNDS):
            terms = Terms(prices=dict.fromkeys(order, f"{1 + number}.00"))
            await set_tenant(database, dealer, terms, "test", clock.now)

    async with asyncio.TaskGroup() as group:
        for work in (routes(), imports(), imports_backwards(), sales(), lists(), assignments(dealers[0])):
            group.create_task(work)
        group.create_task(prices(dealers[0], codes))
        group.create_task(prices(dealers[1], codes[::-1]))
    await put_packages(database, packages, "test", clock.now)
    assert await service.audit() == []
