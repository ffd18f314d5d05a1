"""Buying: orders are decided and written in batches (specification 4.2, architecture: group commit).

The fast path sends one statement: a process that knows a wallet's version and balance from its own last commit decides
on those, and the statement writes nothing where they are stale, a transactionId is known or the stock is short. Then,
and for refusals, which memory must not decide, the batch takes the locking path: find, lock, find again, decide, write,
commit. Orders of a wallet that another transaction holds wait for it apart from all others.
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
MOST_DISTRUST = 64
RECENT_ORDERS = 20_000  # whose repeats are known without asking
LOOK_UP_TRIES = 3
NO_STOCK = Free({}, frozenset())


class OrderBatcher:
    """Where orders wait for the batch that decides them. One per process."""

    def __init__(
        self,
        database: Database,
        numbers: IdAllocator,
        clock: Clock,
        placed: Callable[[], None] = lambda: None,
    ):
        self._lookups = database.session()
        self._numbers = numbers
        self._clock = clock
        self._placed = placed
        self._known: dict[int, Wallet] = {}
        self._short: dict[str, int] = {}  # stock packages that did not suffice: how many codes they have left
        self._recent = RecentOrders(RECENT_ORDERS)
        self._distrust = 0  # batches that go straight to the locking path
        self._next_distrust = 1
        self._batcher: LockingBatcher[OrderRequest, Decision] = LockingBatcher(
            database, self._decide, bound=ROWS_PER_BATCH, weight=_rows, enable_sort="off"
        )
        self._refused: Batcher[OrderRequest, Decision] = Batcher(self._look_up, bound=ROWS_PER_BATCH)

    def submit(self, wanted: OrderRequest) -> asyncio.Future[Decision]:
        """The order's decision; a refusal is raised. What its lines refuse already needs no wallet, only a look whether
        it is a repeat."""
        if wanted.refused is not None:
            return self._refused.submit(wanted)
        return self._batcher.submit(wanted)

    async def drain(self) -> None:
        await self._batcher.drain()
        await self._refused.drain()

    async def open(self) -> None:
        """Opens what the first call will need. Raises DatabaseLost."""
        await self._batcher.open()
        await self._lookups.open()

    async def close(self) -> None:
        """Returns once everything submitted is answered, with its connections closed."""
        await self.drain()
        await self._batcher.close()
        await self._lookups.close()

    async def _look_up(self, batch: Sequence[OrderRequest]) -> Sequence[Decision]:
        keys = [(wanted.tenant_id, wanted.transaction_id) for wanted in batch]
        before = await store.order.find(self._lookups, keys)
        if before:
            await store.order.confirm(self._lookups)
        decisions: list[Decision] = []
        for key, wanted in zip(keys, batch, strict=True):
            assert wanted.refused is not None
            decisions.append(order.repeat(before[key], wanted) if key in before else wanted.refused)
        return decisions

    async def _decide(self, session: Session, batch: Sequence[OrderRequest], wait: bool) -> Sequence[Answer[Decision]]:
        decisions = None if wait else await self._from_memory(session, batch)
        decisions = decisions or await self._locked(session, batch, wait=wait)
        self._placed()
        return decisions

    async def _from_memory(self, session: Session, batch: Sequence[OrderRequest]) -> Sequence[Decision] | None:
        """Decides on the wallets as this process left them; None where that cannot be, or did not hold."""
        if self._distrust:
            self._distrust -= 1
            return None
        if not all(wanted.tenant_id in self._known for wanted in batch):
            return None
        if any((wanted.tenant_id, wanted.transaction_id) in self._recent for wanted in batch):
            return None
        demand = order.demand(batch)
        short = {code: self._short[code] for code in demand if code in self._short}
        known = {wanted.tenant_id: self._known[wanted.tenant_id] for wanted in batch}
        decisions: Sequence[Decision] = []
        placed: Sequence[Placed] = []
        try:
            number = await self._numbers.reserve(len(batch), sum([wanted.profile_count for wanted in batch]))
            decisions = order.decide(batch, known, {}, demand | short, number, self._clock())
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
            self._distrust, self._next_distrust = self._next_distrust, min(self._next_distrust * 2, MOST_DISTRUST)
            return None
        self._next_distrust = 1
        self._remember(placed, known)
        for code, count in order.demand(one.wanted for one in placed).items():
            if code in short:
                self._short[code] = short[code] - count
        return decisions

    async def _locked(
        self, session: Session, batch: Sequence[OrderRequest], *, wait: bool
    ) -> Sequence[Answer[Decision]]:
        """Decides under locks; without `wait`, what asks for a wallet or a code that another transaction holds is left
        to wait for it."""
        keys = [(wanted.tenant_id, wanted.transaction_id) for wanted in batch]
        wallets: Mapping[int, Wallet] = {}
        mine, placed, decisions = batch, [], []
        stock, demand = NO_STOCK, {}
        try:
            before = await store.order.find(session, keys)
            if len(before) == len(set(keys)):
                await store.order.confirm(session)
                return [order.repeat(before[key], wanted) for key, wanted in zip(keys, batch, strict=True)]
            number = await self._numbers.reserve(len(batch), sum([wanted.profile_count for wanted in batch]))
            failpoints.hit("order.before_begin")
            async with session.transaction():
                wallets = await store.wallet.lock(session, sorted({key[0] for key in keys}), wait=wait)
                if not wait:
                    mine = [wanted for wanted in batch if wanted.tenant_id in wallets]
                demand = order.demand(mine)
                if demand:
                    stock = await store.stock.lock(session, demand, wait=wait)
                mine = [wanted for wanted in mine if stock.held.isdisjoint(wanted.from_stock)]
                if mine:
                    failpoints.hit("order.locked")
                    existing = await store.order.find(session, keys)
                    decisions = order.decide(mine, wallets, existing, stock.locked, number, self._clock())
                    placed = order.placements(decisions)
                    if placed and not await store.order.write(session, placed):
                        raise AssertionError("what is locked does not move")
                failpoints.hit("order.written")
            failpoints.hit("order.committed")
        except DatabaseLost as lost:
            decided = await self._after_loss(session, lost, mine, decisions)
            return self._answers(batch, mine, decided)
        self._known.update(wallets)
        self._remember(placed, wallets)
        self._remember_short(demand, stock, order.demand(one.wanted for one in placed))
        return self._answers(batch, mine, decisions)

    def _answers(
        self, batch: Sequence[OrderRequest], decided: Sequence[OrderRequest], decisions: Sequence[Decision]
    ) -> Sequence[Answer[Decision]]:
        """The decisions, and in their places the orders that asked for what another transaction holds."""
        following, mine = iter(decisions), {id(wanted) for wanted in decided}
        return [next(following) if id(wanted) in mine else self._batcher.wait_for_lock(wanted) for wanted in batch]

    def _remember_short(self, demand: Mapping[str, int], free: Free, sold: Mapping[str, int]) -> None:
        for code, count in demand.items():
            if code in free.held or free.locked[code] >= count:
                self._short.pop(code, None)
            else:
                self._short[code] = free.locked[code] - sold.get(code, 0)

    def _remember(self, placed: Sequence[Placed], wallets: Mapping[int, Wallet]) -> None:
        """Keeps each wallet as the last of these placements left it; `wallets` as they were before."""
        self._recent.add((one.wanted.tenant_id, one.wanted.transaction_id) for one in placed)
        last = {one.wanted.tenant_id: one for one in placed}
        for tenant_id, one in last.items():
            before = wallets[tenant_id]
            self._known[tenant_id] = Wallet(
                tenant_id, before.currency, one.balance_after, before.credit_limit, one.version, before.frozen
            )

    async def _after_loss(
        self, session: Session, lost: DatabaseLost, batch: Sequence[OrderRequest], decisions: Sequence[Decision]
    ) -> Sequence[Decision]:
        """A connection lost inside a commit leaves the outcome unknown: looks the orders up on a new one.

        Those found were placed. The others may still come to be while the old connection's server process lives.
        """
        self._known.clear()
        if not lost.sent or not order.placements(decisions):
            raise DatabaseLost(sent=False)
        log.warning("outcome_unknown", orders=len(batch))
        keys = [(wanted.tenant_id, wanted.transaction_id) for wanted in batch]
        for attempt in range(LOOK_UP_TRIES):
            try:
                found = await store.order.find(session, keys)
                await store.order.confirm(session)
                break
            except DatabaseLost:
                await asyncio.sleep(0.2 * 2**attempt)
        else:
            return [refusal.OutcomeUnknown() for _ in batch]
        return [
            decision
            if isinstance(decision, Placed) and key in found and found[key].order_id == decision.order_id
            else refusal.OutcomeUnknown()
            for key, decision in zip(keys, decisions, strict=True)
        ]


class RecentOrders:
    """The last keys that were added: at least `count` of them, at most twice as many."""

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


def _rows(wanted: OrderRequest) -> int:
    """What an order costs its batch: its own rows, its lines and its profiles."""
    return 3 + len(wanted.lines) + wanted.profile_count
