"""A service that buys from suppliers: from two upstreams, or from another instance."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dealer_server.operations.tenants.create import Created
from support.api_client import ApiClient, Service, running_service
from support.patience import found
from support.rt_family import TOP_UP_PRICE, Upstream, running_upstream
from support.supplier_setup import COST, Source, SupplierSetup, free_address, fresh, hop, set_up


@dataclass
class PurchaseFixture:
    """A service with two upstreams: `near` is asked first, then `far`. `client` is a dealer."""

    near: Upstream
    far: Upstream
    service: Service
    client: ApiClient
    setup: SupplierSetup
    events: str

    async def rows(self, sql: str, *args: object) -> list[tuple[Any, ...]]:
        async with self.service.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def until(self, order_no: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:

        async def look() -> dict[str, Any] | None:
            await self.allocated()
            data = (await self.client.post("/esim/query", {"orderNo": order_no})).data
            return data if holds(data) else None

        return await found(look)

    async def becomes(self, sql: str, wanted: object) -> None:
        """Waits until that is the one value that is found."""

        async def look() -> bool | None:
            return await self.rows(sql) == [(wanted,)] or None

        await found(look)

    async def asked_again(self) -> None:
        """The pauses between questions are over."""
        await self.rows("UPDATE purchase SET due_at = now() WHERE state IN ('PLANNED', 'PENDING', 'UNKNOWN')")

    async def allocated(self) -> None:
        """The pause before an order is looked at again is over, where the supplier has it ready."""
        codes = [code for code, one in (("rt:near", self.near), ("rt:far", self.far)) if one.all_ready]
        sql = "UPDATE purchase SET due_at = now() WHERE state = 'PENDING' AND due_at > now() AND supplier = ANY($1)"
        await self.rows(sql, codes)

    async def states(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT supplier, state FROM purchase ORDER BY profile_id, position")

    def sold(self) -> tuple[int, int]:
        return len(self.near.book.esims()), len(self.far.book.esims())


@asynccontextmanager
async def purchase_fixture(postgres: str, template: str, **changed: object) -> AsyncIterator[PurchaseFixture]:
    async with fresh(postgres, template) as url, running_upstream() as near, running_upstream() as far:
        setup = await set_up(
            url,
            [Source("rt:near", "rt_upstream", near.settings), Source("rt:far", "rt_upstream", far.settings)],
            {
                "TEST-OK": [hop("rt:near", "JC016"), hop("rt:far", "JC016")],
                "TEST-TOPUP-OK": [hop(code, "TOPUP_JC016", TOP_UP_PRICE) for code in ("rt:near", "rt:far")],
            },
        )
        events = free_address()
        async with (
            running_service(url, supplier_events=events, **changed) as service,
            service.client(await service.tenant(balance="1000", qps=0)) as client,
        ):
            made = PurchaseFixture(near, far, service, client, setup, f"http://{events}")
            client.before_look = made.allocated
            yield made


async def routed(database_url: str, base_url: str, account: Created, code: str = "chain:a") -> SupplierSetup:
    """TEST-OK, TEST-DELAY and TEST-FAIL of this database are bought there, and the recharges of their eSIMs."""
    settings = {"baseUrl": base_url, "appKey": account.app_key, "appSecret": account.app_secret, "perSecond": 1000}
    packages = [f"TEST-{kind}{what}" for kind in ("", "TOPUP-") for what in ("OK", "DELAY", "FAIL")]
    packages += ["TEST-TOPUP-QUEUE", "TEST-TOPUP-ASYNC"]
    return await set_up(
        database_url,
        [Source(code, "chain", settings)],
        {package: [hop(code, package, TOP_UP_PRICE if "TOPUP" in package else COST)] for package in packages},
    )
