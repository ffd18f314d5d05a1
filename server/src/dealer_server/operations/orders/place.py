"""How are orders placed? Decided and written in batches (specification 4.2, docs/decisions/0001-group-commit.md).

The fast path sends one statement. A process that knows a wallet's version and balance from its own last commit decides
on those, and the statement writes nothing where they are stale, a transactionId is known or the stock is short. Such
batches, and all refusals, take the locking path: find, lock, find again, decide, write, commit. Orders of a wallet that
another transaction holds wait for it apart from all others.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import asyncpg
import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.locking_batcher import LockingBatcher
from dealer_server.db.session import Session
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.rules import refusal
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import order
from dealer_server.rules.orders.order import Decision, OrderRequest, Placed
from dealer_server.store.suppliers.stock import Free

log = structlog.get_logger()

ROWS_PER_BATCH = 2_000
MAX_SKIPPED_BATCHES = 64
RECENT_ORDERS = 20_000  # whose repeats go straight to the locking path
LOOK_UP_TRIES = 3
NO_STOCK = Free({}, frozenset())


class OrderBatcher:
    """Decides and writes the orders that arrive together as one batch. One per process."""

    def __init__(
        self,
        database: Database,
        ids: IdAllocator,
        clock: Clock,
        placed: Callable[[], None] = lambda: None,
    ):
        self._lookups = database.session()
        self._ids = ids
        self._clock = clock
        self._placed = placed
        self._wallets: dict[int, Wallet] = {}  # as this process left them, by tenant_id
        self._short_stock: dict[str, int] = {}  # packages that were short of stock, and how many codes they have left
        self._recent = RecentOrders(RECENT_ORDERS)
        self._skips = 0  # how many batches go straight to the locking path
        self._next_skips = 1
        self._batcher: LockingBatcher[OrderRequest, Decision] = LockingBatcher(
            database, self._decide, bound=ROWS_PER_BATCH, weight=_rows, enable_sort="off"
        )
        self._refused: Batcher[OrderRequest, Decision] = Batcher(self._look_up, bound=ROWS_PER_BATCH)

    def submit(self, request: OrderRequest) -> asyncio.Future[Decision]:
        """The decision on an order; a refusal is raised. An order whose lines are refused needs no wallet: it is only
        looked up, as it may be a repeat."""
        if request.refused is not None:
            return self._refused.submit(request)
        return self._batcher.submit(request)

    async def drain(self) -> None:
        await self._batcher.drain()
        await self._refused.drain()

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()
        await self._lookups.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self.drain()
        await self._batcher.close()
        await self._lookups.close()

    async def _look_up(self, batch: Sequence[OrderRequest]) -> Sequence[Decision]:
        keys = [(request.tenant_id, request.transaction_id) for request in batch]
        existing = await store.order.find(self._lookups, keys)
        if existing:
            await store.order.confirm(self._lookups)
        decisions: list[Decision] = []
        for key, request in zip(keys, batch, strict=True):
            assert request.refused is not None
            decisions.append(order.repeat(existing[key], request) if key in existing else request.refused)
        return decisions

    async def _decide(self, session: Session, batch: Sequence[OrderRequest], wait: bool) -> Sequence[Answer[Decision]]:
        decisions = None if wait else await self._fast_path(session, batch)
        decisions = decisions or await self._locking_path(session, batch, wait=wait)
        self._placed()
        return decisions

    async def _fast_path(self, session: Session, batch: Sequence[OrderRequest]) -> Sequence[Decision] | None:
        """Decides on the wallets as this process left them. None where it cannot, or where they have changed."""
        if self._skips:
            self._skips -= 1
            return None
        if not all(request.tenant_id in self._wallets for request in batch):
            return None
        if any((request.tenant_id, request.transaction_id) in self._recent for request in batch):
            return None
        demand = order.demand(batch)
        short = {code: self._short_stock[code] for code in demand if code in self._short_stock}
        wallets = {request.tenant_id: self._wallets[request.tenant_id] for request in batch}
        decisions: Sequence[Decision] = []
        placed: Sequence[Placed] = []
        try:
            take_ids = await self._ids.reserve(len(batch), sum([request.profile_count for request in batch]))
            decisions = order.decide(batch, wallets, {}, demand | short, take_ids, self._clock())
            placed = order.placements(decisions)
            if len(placed) != len(batch):
                return None
            failpoints.hit("order.fast.before")
            written = await store.order.write(session, placed, short)
            failpoints.hit("order.fast.committed")
        except asyncpg.UniqueViolationError:
            written = False
        except DatabaseLost as lost:
            return await self._after_loss(session, lost, batch, decisions)
        if not written:
            self._skips, self._next_skips = self._next_skips, min(self._next_skips * 2, MAX_SKIPPED_BATCHES)
            return None
        self._next_skips = 1
        self._remember_wallets(placed, wallets)
        for code, count in order.demand(placement.request for placement in placed).items():
            if code in short:
                self._short_stock[code] = short[code] - count
        return decisions

    async def _locking_path(
        self, session: Session, batch: Sequence[OrderRequest], *, wait: bool
    ) -> Sequence[Answer[Decision]]:
        """Decides under locks. Without `wait`, orders that need a wallet or a code which another transaction holds are
        left to the lock waiters."""
        keys = [(request.tenant_id, request.transaction_id) for request in batch]
        wallets: Mapping[int, Wallet] = {}
        decided, placed, decisions = batch, [], []
        stock, demand = NO_STOCK, {}
        try:
            existing = await store.order.find(session, keys)
            if len(existing) == len(set(keys)):
                await store.order.confirm(session)
                return [order.repeat(existing[key], request) for key, request in zip(keys, batch, strict=True)]
            take_ids = await self._ids.reserve(len(batch), sum([request.profile_count for request in batch]))
            failpoints.hit("order.before_begin")
            async with session.transaction():
                wallets = await store.wallet.lock(session, sorted({key[0] for key in keys}), wait=wait)
                if not wait:
                    decided = [request for request in batch if request.tenant_id in wallets]
                demand = order.demand(decided)
                if demand:
                    stock = await store.stock.lock(session, demand, wait=wait)
                decided = [request for request in decided if stock.held.isdisjoint(request.from_stock)]
                if decided:
                    failpoints.hit("order.locked")
                    existing = await store.order.find(session, keys)
                    decisions = order.decide(decided, wallets, existing, stock.locked, take_ids, self._clock())
                    placed = order.placements(decisions)
                    if placed and not await store.order.write(session, placed):
                        raise AssertionError("locked rows do not change")
                failpoints.hit("order.written")
            failpoints.hit("order.committed")
        except DatabaseLost as lost:
            outcomes = await self._after_loss(session, lost, decided, decisions)
            return self._answers(batch, decided, outcomes)
        self._wallets.update(wallets)
        self._remember_wallets(placed, wallets)
        self._remember_short_stock(demand, stock, order.demand(placement.request for placement in placed))
        return self._answers(batch, decided, decisions)

    def _answers(
        self, batch: Sequence[OrderRequest], decided: Sequence[OrderRequest], decisions: Sequence[Decision]
    ) -> Sequence[Answer[Decision]]:
        """The decisions, in the order of the batch; orders that were not decided are given to the lock waiters."""
        remaining, decided_ids = iter(decisions), {id(request) for request in decided}
        return [
            next(remaining) if id(request) in decided_ids else self._batcher.wait_for_lock(request) for request in batch
        ]

    def _remember_short_stock(self, demand: Mapping[str, int], free: Free, sold: Mapping[str, int]) -> None:
        for code, count in demand.items():
            if code in free.held or free.locked[code] >= count:
                self._short_stock.pop(code, None)
            else:
                self._short_stock[code] = free.locked[code] - sold.get(code, 0)

    def _remember_wallets(self, placed: Sequence[Placed], wallets: Mapping[int, Wallet]) -> None:
        """Keeps each wallet as the last of these placements left it. `wallets`: as they were before."""
        self._recent.add((placement.request.tenant_id, placement.request.transaction_id) for placement in placed)
        last = {placement.request.tenant_id: placement for placement in placed}
        for tenant_id, placement in last.items():
            before = wallets[tenant_id]
            self._wallets[tenant_id] = Wallet(
                tenant_id=tenant_id,
                currency=before.currency,
                balance=placement.balance_after,
                credit_limit=before.credit_limit,
                version=placement.version,
                frozen=before.frozen,
            )

    async def _after_loss(
        self, session: Session, lost: DatabaseLost, batch: Sequence[OrderRequest], decisions: Sequence[Decision]
    ) -> Sequence[Decision]:
        """Looks the orders up on a new connection: one lost inside a commit leaves the outcome unknown.

        Orders found were placed. The others may still be placed while the old connection's server process lives.
        """
        self._wallets.clear()
        if not lost.sent or not order.placements(decisions):
            raise DatabaseLost(sent=False)
        log.warning("outcome_unknown", orders=len(batch))
        keys = [(request.tenant_id, request.transaction_id) for request in batch]
        for attempt in range(LOOK_UP_TRIES):
            try:
                existing = await store.order.find(session, keys)
                await store.order.confirm(session)
                break
            except DatabaseLost:
                await asyncio.sleep(0.2 * 2**attempt)
        else:
            return [refusal.OutcomeUnknown() for _ in batch]
        return [
            decision
            if isinstance(decision, Placed) and key in existing and existing[key].order_id == decision.order_id
            else refusal.OutcomeUnknown()
            for key, decision in zip(keys, decisions, strict=True)
        ]


class RecentOrders:
    """The last (tenant_id, transactionId) added: at least `count` of them, at most twice as many."""

    def __init__(self, count: int):
        self._count = count
        self._new: set[tuple[int, str]] = set()
        self._old: set[tuple[int, str]] = set()

    def __contains__(self, key: tuple[int, str]) -> bool:
        return key in self._new or key in self._old

    def add(self, keys: Iterable[tuple[int, str]]) -> None:
        self._new.update(keys)
        if len(self._new) >= self._count:
            self._new, self._old = set(), self._new


def _rows(request: OrderRequest) -> int:
    """What an order costs its batch: its own rows, its lines and its profiles."""
    return 3 + len(request.lines) + request.profile_count
