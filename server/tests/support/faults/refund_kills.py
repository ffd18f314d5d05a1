"""A dealer whose refunds are under way while API or worker are killed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.dev import catalogue as generate
from dealer_server.failpoints import Failpoint
from dealer_server.operations.catalogue.import_packages import put_packages
from support.api_client import ApiClient, Service, test_settings
from support.patience import PATIENCE
from support.processes import environment
from support.webhook_fixture import Receiver, listening

KILLED = -9
SERVE_POINTS = [
    Failpoint("refund.decided"),
    Failpoint("refund.written"),
    Failpoint("refund.written", 1, 0.0002),
    Failpoint("refund.committed"),
]
WORK_POINTS = [
    Failpoint("void.claimed"),
    Failpoint("void.answered"),
    Failpoint("void.answered", 1, 0.0005),
    Failpoint("void.recorded"),
    Failpoint("refund.taken"),
    Failpoint("refund.settled"),
    Failpoint("refund.settled", 1, 0.0002),
]


class RefundingDealer:
    """A dealer, its receiver, and the database."""

    def __init__(self, service: Service, client: ApiClient, receiver: Receiver):
        self.service = service
        self.client = client
        self.receiver = receiver
        self.env = environment(service.settings.database_url)
        self.credited = 0

    async def at(self, url: str) -> ApiClient:
        return replace(self.client, url=url)

    async def rows(self, sql: str, *args: object) -> list[tuple]:
        async with self.service.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def until(self, sql: str, *args: object) -> None:
        async with asyncio.timeout(PATIENCE):
            while not (await self.rows(sql, *args))[0][0]:
                await asyncio.sleep(0.02)

    async def lanes(self) -> set[int]:
        """The sessions of the programs that run."""
        found = await self.rows(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'esim-dealer session'"
        )
        return {row[0] for row in found}

    async def leases_run_out(self, dead: set[int]) -> None:
        """Ends the leases of a killed worker, once PostgreSQL has run what it had sent."""
        await self.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = ANY($1::int[])", list(dead))
        await self.rows("UPDATE void_request SET due_at = now() WHERE due_at IS NOT NULL AND claim IS NOT NULL")
        await self.rows("UPDATE order_item SET due_at = now() WHERE due_at IS NOT NULL")
        await self.rows("UPDATE webhook_delivery SET due_at = now() WHERE state = 'IN_FLIGHT'")

    async def all_is_exact(self) -> None:
        """Each refund is credited once, and its webhook has one delivery id."""
        await self.until("SELECT count(*) = 0 FROM refund WHERE status = 'REFUNDING'")
        await self.until(
            "SELECT count(*) = 0 FROM webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED', 'SKIPPED')"
        )
        [(refunds, entries)] = await self.rows(
            "SELECT (SELECT count(*) FROM refund), (SELECT count(*) FROM ledger_entry WHERE entry_type = 'REFUND')"
        )
        assert refunds == entries == self.credited
        told = [one.headers["rt-delivery-id"] for one in self.receiver.requests if one.event == "REFUND_COMPLETED"]
        assert len(set(told)) == self.credited
        assert await self.service.audit() == []


@asynccontextmanager
async def refunding_dealer(database_url: str) -> AsyncIterator[RefundingDealer]:
    settings = test_settings(database_url)
    database = await Database.open(database_url)
    await put_packages(database, generate.catalogue("test"), "test", clock.now)
    service = Service("", database, settings)
    async with listening(1) as [receiver], service.client(await service.tenant(balance="10000", qps=0)) as client:
        yield RefundingDealer(service, client, receiver)
    await database.close()
