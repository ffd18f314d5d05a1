"""Dealers who buy without pause and keep all answers, for tests of faults."""

import asyncio
import random
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import httpx2

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.rules.orders import identity
from support.api_client import ApiClient, Reply
from support.patience import PATIENCE

MAJOR = 10_000  # money is kept in ten-thousandths
BUYERS = 6
PRICES = {"DEMO-STOCK": "2.50"}  # any other package of the test catalogue costs 1.80
LOST = (httpx2.TransportError, httpx2.InvalidURL)
RETRY, SOLD_OUT = "900001", "200011"


@dataclass(eq=False)
class Purchase:
    """One order as its dealer knows it. Without `order_no` no answer has said that it was placed; without
    `maybe` as well, an answer has said that it was not. It ends with an `order_no` or `sold_out`."""

    client: ApiClient
    call: Mapping[str, Any]
    order_no: str | None = None
    tries: int = 0
    maybe: bool = False  # an attempt had no answer, or UNKNOWN for one
    sold_out: bool = False

    @property
    def key(self) -> tuple[int, str]:
        return self.client.tenant_id, self.call["transactionId"]


@dataclass
class BuyingDealers:
    """`line` gives (packageCode, quantity) of the next order. One in ten is sent beside an acknowledged one that is
    repeated: the API decides a batch of both under locks. Half of those repeated are from before `buying` began, so
    that an API that started since does not remember them."""

    clients: Sequence[ApiClient]
    opening: int  # of each, in ten-thousandths
    line: Callable[[], tuple[str, int]] = lambda: ("TEST-OK", 1)
    purchases: list[Purchase] = field(default_factory=list)
    unknown: deque[Purchase] = field(default_factory=deque)
    replies: list[Reply] = field(default_factory=list)  # those that asked for a retry
    acknowledged: asyncio.Event = field(default_factory=asyncio.Event)
    earlier: int = 0  # how many purchases had begun before this block of `buying`

    @asynccontextmanager
    async def buying(self, *urls: str, count: int = BUYERS) -> AsyncIterator[None]:
        """They buy until the end of the block, and first repeat the orders with an unknown outcome."""
        self.earlier = len(self.purchases)
        tasks = [asyncio.create_task(self._buy(urls[number % len(urls)])) for number in range(count)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    raise ended

    async def attempt(self, purchase: Purchase, url: str) -> Reply | None:
        """Sends an order, and notes what came of it; None where no answer came."""
        purchase.tries += 1
        purchase.client.url = url
        reply, told, before = None, False, purchase.maybe
        purchase.maybe = True
        try:
            reply = await purchase.client.post("/esim/order", purchase.call)
            told = reply.code == "000000"
            purchase.sold_out = reply.code == SOLD_OUT
        except LOST:
            pass
        finally:
            if not told and not purchase.sold_out and purchase.order_no is None:
                self.unknown.append(purchase)
        if reply is not None and told:
            assert purchase.order_no in (None, reply.data["orderNo"]), "one transactionId, two orders"
            purchase.order_no = reply.data["orderNo"]
            self.acknowledged.set()
        elif reply is not None and purchase.sold_out:
            purchase.maybe = False
        elif reply is not None:
            assert reply.code == RETRY, (purchase, reply)
            self.replies.append(reply)
            purchase.maybe = before or "outcome" in reply.data
        return reply

    async def settle(self, url: str) -> None:
        """Retries until every outcome is known: an order, or none as the stock is sold out."""
        while self.unknown:
            waiting = list(self.unknown)
            self.unknown.clear()
            for batch in batched(waiting, 16):
                await asyncio.gather(*[self.attempt(one, url) for one in batch])

    async def all_again(self, url: str, most: int = 1_000) -> None:
        """Sends orders that are known a further time: each is answered as a repeat."""
        known = [one for one in self.purchases if one.order_no is not None]
        for batch in batched(random.sample(known, min(most, len(known))), 16):
            for reply in await asyncio.gather(*[self.attempt(one, url) for one in batch]):
                assert reply is not None and reply.data["duplicate"] is True

    async def next_acknowledged(self) -> None:
        """Returns once one more order is acknowledged."""
        self.acknowledged.clear()
        async with asyncio.timeout(PATIENCE):
            await self.acknowledged.wait()

    async def check(self, database: Database) -> None:
        """The database agrees with the answers so far, and the money with the orders."""
        told = {one.key: one.order_no for one in self.purchases if one.order_no is not None}
        refused = {one.key: one.tries for one in self.purchases if not one.maybe}
        tenants = [client.tenant_id for client in self.clients]
        async with database.connection() as connection, connection.transaction(isolation="repeatable_read"):
            orders = await connection.fetch(
                "SELECT tenant_id, transaction_id, order_id, amount FROM orders WHERE tenant_id = ANY($1)", tenants
            )
            wallets = await connection.fetch(
                "SELECT tenant_id, balance, order_count FROM wallet WHERE tenant_id = ANY($1)", tenants
            )
            credited = await self.credited(connection)
        placed = {(row[0], row[1]): identity.order_no(row[2]) for row in orders}
        assert len(placed) == len(orders) and placed.keys() <= {one.key for one in self.purchases}
        lost = {key: order_no for key, order_no in told.items() if placed.get(key) != order_no}
        assert not lost, "acknowledged and lost"
        made = [one.key for one in self.purchases if one.key in placed and refused.get(one.key) == one.tries]
        assert not made, "placed, and the dealer was told that nothing was done"
        for tenant_id, balance, order_count in wallets:
            mine = [row[3] for row in orders if row[0] == tenant_id]
            assert (balance, order_count) == (self.opening - sum(mine) + credited.get(tenant_id, 0), len(mine))

    async def credited(self, connection: Connection) -> Mapping[int, int]:
        """By tenant: the amount refunded."""
        return {}

    def new(self) -> Purchase:
        package, quantity = self.line()
        price = PRICES.get(package, "1.80")
        line = {"packageCode": package, "quantity": quantity, "price": price}
        amount = str(Decimal(price) * quantity)
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": amount, "items": [line]}
        purchase = Purchase(random.choice(self.clients), call)
        self.purchases.append(purchase)
        return purchase

    def _again(self) -> Purchase | None:
        """An acknowledged order, one time in ten if the one looked at is acknowledged."""
        if not self.purchases or random.random() >= 0.1:
            return None
        among = random.choice([self.earlier, len(self.purchases)]) or len(self.purchases)
        one = self.purchases[random.randrange(among)]
        return one if one.order_no is not None else None

    async def _buy(self, url: str) -> None:
        while True:
            if await self.next(url) is None:
                await asyncio.sleep(0.01)  # nobody is there

    async def next(self, url: str) -> Reply | None:
        """One call or two; None where no answer came."""
        if self.unknown:
            return await self.attempt(self.unknown.popleft(), url)
        if (known := self._again()) is None:
            return await self._attempt_new(url)
        [reply, _] = await asyncio.gather(self.attempt(known, url), self._attempt_new(url))
        return reply

    async def _attempt_new(self, url: str) -> Reply | None:
        """A purchase begins where it is sent: a task that is cancelled before it starts leaves none behind."""
        return await self.attempt(self.new(), url)


def batched(purchases: Sequence[Purchase], size: int) -> Iterator[Sequence[Purchase]]:
    for first in range(0, len(purchases), size):
        yield purchases[first : first + size]
