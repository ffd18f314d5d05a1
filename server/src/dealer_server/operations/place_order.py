"""Buying: orders are decided and written in batches (specification 4.2, architecture: group commit).

The fast path sends one statement: a process that knows a wallet's version and balance from its own last commit decides
on those, and the statement undoes itself where they are stale or a transactionId is known. Then, and for what memory
must not decide (refusals, stock), the batch takes the locking path: find, lock, find again, decide, write, commit.
"""

import asyncio
from collections.abc import Callable, Sequence

import asyncpg
import structlog

from dealer_server import kill_points, store
from dealer_server.clock import Clock
from dealer_server.operations.numbers import Numbers
from dealer_server.rules import order, refusal
from dealer_server.rules.order import Decision, Placed, Wanted
from dealer_server.rules.wallet import Wallet
from dealer_server.store.database import DatabaseLost, Desk, Session

log = structlog.get_logger()

ROWS_PER_BATCH = 2_000
MOST_DISTRUST = 64
LOOK_UP_TRIES = 3


class OrderDesk:
    """Where orders wait for the batch that decides them. One per process."""

    def __init__(
        self,
        session: Session,
        lookups: Session,
        numbers: Numbers,
        clock: Clock,
        placed: Callable[[], None] = lambda: None,
    ):
        self._session = session
        self._lookups = lookups
        self._numbers = numbers
        self._clock = clock
        self._placed = placed
        self._known: dict[int, Wallet] = {}
        self._distrust = 0  # batches that go straight to the locking path
        self._next_distrust = 1
        self._desk: Desk[Wanted, Decision] = Desk(self._run, bound=ROWS_PER_BATCH, weight=_rows)
        self._refused: Desk[Wanted, Decision] = Desk(self._look_up, bound=ROWS_PER_BATCH)

    def submit(self, wanted: Wanted) -> asyncio.Future[Decision]:
        """The order's decision; a refusal is raised. What its lines refuse already needs no wallet, only a look whether
        it is a repeat."""
        return (self._desk if wanted.refused is None else self._refused).submit(wanted)

    async def drain(self) -> None:
        await self._desk.drain()
        await self._refused.drain()

    async def _look_up(self, batch: Sequence[Wanted]) -> Sequence[Decision]:
        keys = [(wanted.tenant_id, wanted.transaction_id) for wanted in batch]
        before = await store.order.find(self._lookups, keys)
        if before:
            await store.order.confirm(self._lookups)
        decisions: list[Decision] = []
        for key, wanted in zip(keys, batch, strict=True):
            assert wanted.refused is not None
            decisions.append(order.repeat(before[key], wanted) if key in before else wanted.refused)
        return decisions

    async def _run(self, batch: Sequence[Wanted]) -> Sequence[Decision]:
        decisions = await self._from_memory(batch) or await self._locked(batch)
        self._placed()
        return decisions

    async def _from_memory(self, batch: Sequence[Wanted]) -> Sequence[Decision] | None:
        """Decides on the wallets as this process left them; None where that cannot be, or did not hold."""
        if self._distrust:
            self._distrust -= 1
            return None
        if not all(wanted.tenant_id in self._known for wanted in batch):
            return None
        known = {wanted.tenant_id: self._known[wanted.tenant_id] for wanted in batch}
        decisions: Sequence[Decision] = []
        try:
            await self._provide_numbers(batch)
            decisions = order.decide(batch, known, {}, {}, self._numbers.take, self._clock())
            placed = order.placements(decisions)
            if len(placed) != len(batch):
                return None
            kill_points.reach("order.fast.before")
            await store.order.write(self._session, placed)
            kill_points.reach("order.fast.committed")
        except (store.order.WalletMoved, asyncpg.UniqueViolationError, asyncpg.CheckViolationError):
            self._distrust, self._next_distrust = self._next_distrust, min(self._next_distrust * 2, MOST_DISTRUST)
            return None
        except DatabaseLost as lost:
            return await self._after_loss(lost, batch, decisions)
        self._next_distrust = 1
        self._remember(placed)
        return decisions

    async def _locked(self, batch: Sequence[Wanted]) -> Sequence[Decision]:
        keys = [(wanted.tenant_id, wanted.transaction_id) for wanted in batch]
        decisions: Sequence[Decision] = []
        session = self._session
        try:
            before = await store.order.find(session, keys)
            if len(before) == len(set(keys)):
                await store.order.confirm(session)
                return [order.repeat(before[key], wanted) for key, wanted in zip(keys, batch, strict=True)]
            await self._provide_numbers(batch)
            kill_points.reach("order.before_begin")
            async with session.transaction():
                wallets = await store.wallet.lock(session, sorted({wanted.tenant_id for wanted in batch}))
                kill_points.reach("order.locked")
                existing = await store.order.find(session, keys)
                codes = sorted({code for wanted in batch for code in wanted.from_stock})
                stock = await store.stock.levels(session, codes) if codes else {}
                decisions = order.decide(batch, wallets, existing, stock, self._numbers.take, self._clock())
                placed = order.placements(decisions)
                if placed:
                    await store.order.write(session, placed)
                if sold := order.sold(placed):
                    await store.stock.sell(session, sold)
                kill_points.reach("order.written")
            kill_points.reach("order.committed")
        except DatabaseLost as lost:
            return await self._after_loss(lost, batch, decisions)
        self._known.update(wallets)
        self._remember(placed)
        return decisions

    async def _provide_numbers(self, batch: Sequence[Wanted]) -> None:
        await self._numbers.provide(len(batch), sum([wanted.profile_count for wanted in batch]))

    def _remember(self, placed: Sequence[Placed]) -> None:
        """Keeps each wallet as the last of these placements left it."""
        last = {one.wanted.tenant_id: one for one in placed}
        for tenant_id, one in last.items():
            before = self._known[tenant_id]
            self._known[tenant_id] = Wallet(
                tenant_id, before.currency, one.balance_after, before.credit_limit, one.version, before.frozen
            )

    async def _after_loss(
        self, lost: DatabaseLost, batch: Sequence[Wanted], decisions: Sequence[Decision]
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
                found = await store.order.find(self._session, keys)
                await store.order.confirm(self._session)
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


def _rows(wanted: Wanted) -> int:
    """What an order costs its batch: its own rows, its lines and its profiles."""
    return 3 + len(wanted.lines) + wanted.profile_count
