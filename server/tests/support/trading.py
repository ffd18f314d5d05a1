"""For tests of faults: a database, dealers who buy, a receiver of their webhooks, and what must hold afterwards."""

import asyncio
import math
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.operations.catalogue import load_stock
from dealer_server.operations.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.store.tenants import data_key
from esim_dealer.wire import signing
from esim_dealer.wire.calls import SetWebhook
from support.api_client import ApiClient, Service, http_client, put_catalogue, test_settings
from support.buying_dealers import MAJOR, BuyingDealers
from support.patience import PATIENCE
from support.store_fixture import stock_csv
from support.webhook_fixture import Receiver

OPENING = 10_000_000
DEALERS = 3
SESSIONS = "pg_stat_activity WHERE datname = current_database() AND application_name = 'esim-dealer session'"


@dataclass
class Trading:
    url: str
    service: Service
    buyers: BuyingDealers
    receiver: Receiver
    kills: Counter[str] = field(default_factory=Counter)

    @property
    def database(self) -> Database:
        return self.service.database

    async def check(self) -> None:
        """Acknowledged orders are there, the money agrees, every invariant holds."""
        await self.buyers.check(self.database)
        assert await self.service.audit() == []

    async def rows(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        async with self.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def leases_run_out(self) -> None:
        """Ends the leases of a killed worker. Locks are taken in the order of living ones (order_queue.py)."""
        async with self.database.connection() as connection:
            await connection.execute(
                "UPDATE order_item SET due_at = due_at - interval '1 minute' WHERE ctid = ANY(ARRAY(SELECT ctid"
                " FROM order_item WHERE claim <> 0 ORDER BY tenant_id, order_id, line FOR NO KEY UPDATE))"
            )
            await connection.execute(
                "UPDATE webhook_delivery SET due_at = due_at - interval '1 minute' WHERE ctid = ANY(ARRAY(SELECT ctid"
                " FROM webhook_delivery WHERE state = 'IN_FLIGHT'"
                " ORDER BY tenant_id, order_id, order_version, delivery_id FOR NO KEY UPDATE))"
            )

    async def becomes_empty(self, what: str) -> None:
        """Returns once no such row is there; gives up when they have not become fewer for PATIENCE seconds."""
        fewest = math.inf
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                while (left := (await self.rows(f"SELECT count(*)::int FROM {what}"))[0][0]) != 0:
                    assert isinstance(left, int)
                    if left < fewest:
                        fewest = left
                        patience.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"{fewest} stay in {what}: {await self.rows(f'SELECT * FROM {what} LIMIT 5')}"
            ) from None

    async def all_sessions_end(self) -> None:
        """PostgreSQL still runs what was sent before a kill; returns when it is done."""
        await self.becomes_empty(SESSIONS)

    async def all_is_well(self, url: str) -> None:
        """With API and worker running: outcomes are known, retries change nothing, all is delivered and sent."""
        buyers = self.buyers
        await buyers.settle(url)
        await self.check()
        await buyers.all_again(url)
        await self.becomes_empty("orders WHERE delivery_status <> 'DELIVERED'")
        await self.becomes_empty("webhook_delivery WHERE state NOT IN ('DELIVERED', 'SUPERSEDED', 'SKIPPED')")
        await self.check()
        assert {reply.status for reply in buyers.replies} <= {503}
        await self._every_profile_is_bought_once()
        self._all_was_told()

    async def _every_profile_is_bought_once(self) -> None:
        [(profiles, iccids, wanted)] = await self.rows(
            "SELECT count(*), count(DISTINCT iccid), (SELECT sum(quantity) FROM order_item) FROM profile"
        )
        assert profiles == iccids == wanted
        [(taken, sold)] = await self.rows(
            "SELECT (SELECT count(*) FROM stock_profile WHERE taken_by IS NOT NULL),"
            " (SELECT coalesce(sum(quantity), 0) FROM order_item WHERE package_code = 'DEMO-STOCK')"
        )
        assert taken == sold

    def _all_was_told(self) -> None:
        """Every order got ORDER_PAID and DELIVERY_UPDATED; a delivery has the same bytes always, 8 attempts at most."""
        told, said = defaultdict(set), defaultdict(list)
        for request in self.receiver.requests:
            told[request.json["orderNo"]].add(request.event)
            said[request.headers[signing.DELIVERY_ID.lower()]].append(request)
        for purchase in self.buyers.purchases:
            assert purchase.sold_out or told[purchase.order_no] == {"ORDER_PAID", "DELIVERY_UPDATED"}, purchase
        for requests in said.values():
            assert len({request.body for request in requests}) == 1
            assert len({request.number for request in requests}) == len(requests) <= 8


@asynccontextmanager
async def opened(database_url: str) -> AsyncIterator[Trading]:
    """Nobody serves it yet."""
    async with AsyncExitStack() as stack:
        settings = test_settings(database_url)
        database = await Database.open(database_url)
        stack.push_async_callback(database.close)
        service = Service("", database, settings)
        await put_catalogue(database)
        async with database.connection() as connection:
            keys = await data_key.load(connection, settings.master_keys)
        await load_stock.load_stock(database, keys, "DEMO-STOCK", stock_csv(10_000), "test")
        receiver = await Receiver().start()
        stack.push_async_callback(receiver.close)
        http = await stack.enter_async_context(http_client(PATIENCE))
        clients = []
        for _ in range(DEALERS):
            made = await service.tenant(balance=str(OPENING), qps=0)
            call = SetWebhook(callback_url=receiver.url)
            await endpoint.set_webhook(database, Policy(allow_loopback=True), int(made.tenant_id), call, clock.now())
            clients.append(ApiClient("", int(made.tenant_id), made.app_key, made.app_secret, http))
        yield Trading(database_url, service, BuyingDealers(clients, OPENING * MAJOR, any_line), receiver)


def any_line() -> tuple[str, int]:
    """Mostly orders for the fast path; orders from stock take the locking path."""
    return random.choices([("TEST-OK", 1), ("TEST-PARTIAL", 3), ("DEMO-STOCK", 2)], [6, 1, 1])[0]
