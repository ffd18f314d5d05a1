"""The service without its API, for tests: dealers, orders and eSIMs on a real database, at a time the test sets."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, MasterKeys
from dealer_server.dev import catalogue
from dealer_server.fulfillment.builtin.fulfiller import Fulfiller
from dealer_server.operations.audit.check_invariants import check_invariants
from dealer_server.operations.catalogue import load_stock as stock
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.tenants.create import create_tenant
from dealer_server.operations.tenants.set_terms import Terms
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import iccid
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.order import OrderRequest, Placed
from dealer_server.rules.orders.priced_lines import OrderLine
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.builtin.stock import Stock
from dealer_server.suppliers.contract import Builtin

SEED = bytes(range(32))
MASTER_KEYS = MasterKeys({"test": bytes(32)})
START = datetime(2026, 11, 20, 8, 15, 30, 400_000, tzinfo=UTC)
PACKAGES: Mapping[str, Package] = {package.package_code: package for package in catalogue.catalogue("test")}
LineKey = tuple[str, int] | tuple[str, int, int]


class Time:
    """A clock that a test advances."""

    def __init__(self, now: datetime = START):
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class StoreFixture:
    def __init__(self, database: Database, data_keys: DataKeys, batcher: OrderBatcher, time: Time):
        self.database = database
        self.data_keys = data_keys
        self.time = time
        self._batcher = batcher
        self._fulfillers: list[Fulfiller] = []

    async def dealer(self) -> int:
        created = await create_tenant(
            self.database, MASTER_KEYS, "test", "USD", Terms(name="Dealer", balance="1000000"), "test", self.time
        )
        return int(created.tenant_id)

    async def order(self, dealer: int, *lines: LineKey) -> int:
        """Places an order of (packageCode, quantity, periodNum); gives its orderId."""
        (placed,) = await self.orders(dealer, [lines])
        return placed

    async def orders(self, dealer: int, orders: Sequence[Sequence[LineKey]]) -> list[int]:
        decisions = await asyncio.gather(*[self._batcher.submit(_wanted(dealer, lines)) for lines in orders])
        placed = [one.order_id for one in decisions if isinstance(one, Placed)]
        assert len(placed) == len(orders)
        return placed

    async def load(self, dealer: int, order_id: int) -> Order:
        async with self.database.connection() as connection:
            found = await store.order.load(connection, [(dealer, order_id)], self.data_keys)
        return found[dealer, order_id]

    async def rows(self, sql: str, *args: object) -> list[tuple[object, ...]]:
        async with self.database.connection() as connection:
            return [tuple(row) for row in await connection.fetch(sql, *args)]

    async def due(self, dealer: int, order_id: int, line: int = 0) -> float | None:
        """In how many seconds a line is due."""
        ((at,),) = await self.rows(
            "SELECT due_at FROM order_item WHERE tenant_id = $1 AND order_id = $2 AND line = $3", dealer, order_id, line
        )
        return (at - self.time.now).total_seconds() if isinstance(at, datetime) else None

    async def events(self, dealer: int, order_id: int) -> list[tuple[object, ...]]:
        """(eventType, order version) of the webhooks, in order."""
        return await self.rows(
            "SELECT event_type, order_version FROM webhook_delivery WHERE tenant_id = $1 AND order_id = $2"
            " ORDER BY delivery_id",
            dealer,
            order_id,
        )

    def fulfiller(
        self,
        *suppliers: Builtin,
        package: Callable[[str], Package | None] = PACKAGES.get,
        changed: Callable[[], None] = lambda: None,
    ) -> Fulfiller:
        """A worker. Suppliers named replace the usual ones of their code."""
        known = {one.code: one for one in (Simulated(SEED), Stock(), *suppliers)}
        made = Fulfiller(self.database, known, self.data_keys, package, self.time, changed, refund_failed=False)
        self._fulfillers.append(made)
        return made

    async def fulfil(self, *suppliers: Builtin) -> int:
        """All that is due now; gives how many lines that were."""
        worker, total = self.fulfiller(*suppliers), 0
        while lines := await worker.run_once():
            total += lines
        return total

    async def load_stock(self, count: int, first: int = 0) -> None:
        report = await stock.load_stock(self.database, self.data_keys, "DEMO-STOCK", stock_csv(count, first), "test")
        assert report.loaded == count

    async def violations(self) -> list[str]:
        """What `dealer-server audit` finds."""
        report = await check_invariants(self.database, MASTER_KEYS, self.data_keys, self.time.now)
        return [str(one) for one in report.violated]

    async def close(self) -> None:
        for one in self._fulfillers:
            await one.close()


@asynccontextmanager
async def opened(database_url: str) -> AsyncIterator[StoreFixture]:
    """A database without orders, with the test catalogue."""
    database, time = await Database.open(database_url, size=8), Time()
    sessions = [database.session()]
    try:
        async with database.connection() as connection:
            await connection.execute(
                "TRUNCATE tenant, wallet, price, credential, refund, package, audit_log, ledger_entry, orders,"
                " order_item, profile, profile_life,"
                " stock_profile, webhook_delivery, webhook_attempt CASCADE; UPDATE audit_head SET acts = 0, hash = ''"
            )
            data_keys = await store.data_key.load(connection, MASTER_KEYS)
            await store.package.put(connection, list(PACKAGES.values()), time())
        batcher = OrderBatcher(database, IdAllocator(sessions[0], time), time)
        fixture = StoreFixture(database, data_keys, batcher, time)
        yield fixture
        await fixture.close()
        await batcher.close()
    finally:
        for session in sessions:
            await session.close()
        await database.close()


def stock_csv(count: int, first: int = 0) -> str:
    """A file with this many profiles; `first` says which numbers they take."""
    rows = ["iccid,activationCode"]
    for number in range(first, first + count):
        digits = f"8944{number:014}"
        rows.append(f"{digits}{iccid.luhn_digit(digits)},LPA:1$rsp.example.com$STOCK-{number:08}")
    return "\r\n".join(rows)


def _wanted(dealer: int, lines: Sequence[LineKey]) -> OrderRequest:
    bought = []
    for package_code, quantity, *rest in lines:
        package = PACKAGES[str(package_code)]
        bought.append(
            OrderLine(package.package_code, quantity, rest[0] if rest else 1, package.price, package.supplier)
        )
    amount = sum(line.price * line.quantity * line.period_num for line in bought)
    return OrderRequest(dealer, f"t-{secrets.token_hex(8)}", secrets.token_bytes(16), "USD", amount, tuple(bought))
