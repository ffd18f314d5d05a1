"""How are orders placed? Decided and written in batches (specification 4.2, docs/decisions/0001-group-commit.md).

The fast path sends one statement, which debits each wallet as it finds it. It leaves out the orders of wallets that are
frozen, do not cover them or are held by another transaction, and writes nothing where a transactionId is known or the
stock is short. What it leaves the locking path decides: find, lock, find again, decide, write, commit. Orders of a
wallet that another transaction holds wait for it apart from all others (docs/decisions/0024-wallets-as-found.md).
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter

import asyncpg
import structlog

from dealer_server import audit_context, failpoints, store, traces
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.locking_batcher import LockingBatcher, first_batches
from dealer_server.db.session import SHARED_LOCK_TIMEOUT, Session
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.rules import refusal
from dealer_server.rules.install.languages import Language
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, order
from dealer_server.rules.orders.order import Decision, ExistingOrder, OrderRequest, Placed
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import buyer_mails
from dealer_server.store.notices.buyer_mails import NewMail
from dealer_server.store.orders.order import Written
from dealer_server.store.suppliers.stock import Free

log = structlog.get_logger()

ROWS_PER_BATCH = 2_000
RECENT_ORDERS = 20_000  # whose repeats go straight to the locking path
LOOK_UP_TRIES = 3
NO_STOCK = Free({}, frozenset())
SETTINGS = {"enable_sort": "off"}


class PersonalOrder(OrderRequest, frozen=True, kw_only=True):
    """An order that a person places at the console; `act` goes into the audit log with it."""

    act: Actor


class MailedOrder(OrderRequest, frozen=True, kw_only=True):
    """An order whose install pages are mailed as soon as they are ready; the mails are written with it."""

    mail: str
    language: Language


class OrderBatcher:
    """Decides and writes the orders that arrive together as one batch. One per process. `placed` is called after each
    commit, with the suppliers of the orders' lines."""

    def __init__(
        self,
        database: Database,
        ids: IdAllocator,
        clock: Clock,
        placed: Callable[[Collection[str]], None] = lambda suppliers: None,
    ):
        self._lookups = database.session()
        self._ids = ids
        self._clock = clock
        self._placed = placed
        self._short_stock: dict[str, int] = {}  # packages that were short of stock, and how many codes they have left
        self._recent = RecentOrders(RECENT_ORDERS)
        self._retried: set[int] = set()  # tenants whose wallets were held when the last batch was written
        self._uncovered: set[int] = set()  # tenants whose wallets did not cover their last orders
        self._batcher = first_batches(
            database,
            self._fast_path,
            bound=ROWS_PER_BATCH,
            weight=_rows,
            name="orders",
            lock_timeout=SHARED_LOCK_TIMEOUT,
            **SETTINGS,
        )
        self._locking: LockingBatcher[OrderRequest, Decision] = LockingBatcher(
            database, self._under_locks, bound=ROWS_PER_BATCH, weight=_rows, name="orders_locking", **SETTINGS
        )
        self._refused: Batcher[OrderRequest, Decision] = Batcher(self._look_up, bound=ROWS_PER_BATCH)

    def submit(self, request: OrderRequest) -> asyncio.Future[Decision]:
        """The decision on an order; a refusal is raised. An order whose lines are refused needs no wallet: it is only
        looked up, as it may be a repeat."""
        if request.refused is not None:
            return self._refused.submit(request)
        tenant_id = request.tenant_id
        if tenant_id in self._uncovered or self._is_apart(request) or self._locking.makes_wait(tenant_id):
            return self._locking.submit(request)
        return self._batcher.submit(request)

    def _is_apart(self, request: OrderRequest) -> bool:
        """Whether one statement cannot place it: it is a repeat, or an act or mails are written with it."""
        return request in self._recent or isinstance(request, PersonalOrder | MailedOrder)

    async def drain(self) -> None:
        await self._batcher.drain()
        await self._locking.drain()
        await self._refused.drain()

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()
        await self._locking.open()
        await self._lookups.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self.drain()
        await self._batcher.close()
        await self._locking.close()
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

    async def _fast_path(self, session: Session, batch: Sequence[OrderRequest]) -> Sequence[Answer[Decision]]:
        """Places what one statement can place; the rest is decided under locks. The only order of a wallet that another
        transaction holds is tried once more: it may be free by the next batch."""
        placed, written = await self._write_at_once(session, batch)
        held = Counter([request.tenant_id for request in batch if request.tenant_id in written.held])
        self._retried = {tenant_id for tenant_id, orders in held.items() if orders == 1} - self._retried

        def left(request: OrderRequest) -> asyncio.Future[Decision]:
            if request.tenant_id in self._retried:
                return self._batcher.submit(request)
            return (self._locking.wait_for_lock if request.tenant_id in held else self._locking.submit)(request)

        return [placed.get(id(request)) or left(request) for request in batch]

    async def _under_locks(
        self, session: Session, batch: Sequence[OrderRequest], wait: bool
    ) -> Sequence[Answer[Decision]]:
        """With `wait` one statement, which waits for the wallet, is tried first."""
        if wait and not any(self._is_apart(request) or request.tenant_id in self._uncovered for request in batch):
            placed, _ = await self._write_at_once(session, batch, wait=True)
            if placed:
                return [placed.get(id(request)) or self._locking.wait_for_lock(request) for request in batch]
        return await self._locking_path(session, batch, wait=wait)

    async def _write_at_once(
        self, session: Session, batch: Sequence[OrderRequest], *, wait: bool = False
    ) -> tuple[Mapping[int, Decision], Written]:
        """Writes the orders of a batch without having looked at a wallet, but for repeats and what the stock does not
        have. Gives the decisions on those written, by the id() of their requests."""
        began = perf_counter()
        demand = order.demand(batch)
        short = {code: self._short_stock[code] for code in demand if code in self._short_stock}
        take_ids = await self._ids.reserve(len(batch), sum([request.profile_count for request in batch]))
        decisions = order.decide(batch, None, {}, demand | short, take_ids, self._clock())
        placed = order.placements(decisions)
        if not placed:
            return {}, Written(False)
        outcomes: Mapping[int, Decision] = {placement.order_id: placement for placement in placed}
        try:
            failpoints.hit("order.fast.before")
            written = await store.order.write(session, placed, short, wait=wait)
            failpoints.hit("order.fast.committed")
        except asyncpg.UniqueViolationError:
            return {}, Written(False)
        except DatabaseLost as lost:
            outcomes, written = await self._after_loss(session, lost, placed), Written(True)
        self._uncovered |= written.uncovered
        if not written.done:
            return {}, written
        if not written.whole:
            apart = written.uncovered | written.held
            placed = [placement for placement in placed if placement.request.tenant_id not in apart]
            outcomes = {placement.order_id: placement for placement in placed}
        self._remember(placed, began)
        for code, count in order.demand(placement.request for placement in placed).items():
            if code in short:
                self._short_stock[code] = short[code] - count
        return {
            id(request): outcomes[decision.order_id]
            for request, decision in zip(batch, decisions, strict=True)
            if isinstance(decision, Placed) and decision.order_id in outcomes
        }, written

    async def _locking_path(
        self, session: Session, batch: Sequence[OrderRequest], *, wait: bool
    ) -> Sequence[Answer[Decision]]:
        """Decides under locks. Without `wait`, orders that need a wallet or a code which another transaction holds are
        left to the lock waiters."""
        began = perf_counter()
        keys = [(request.tenant_id, request.transaction_id) for request in batch]
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
                    if placed and not (await store.order.write(session, placed)).whole:
                        raise AssertionError("locked rows do not change")
                    await _record_acts(session, placed)
                    await _add_mails(session, placed)
                failpoints.hit("order.written")
            failpoints.hit("order.committed")
        except DatabaseLost as lost:
            outcomes = await self._after_loss(session, lost, placed)
            unknown = refusal.OutcomeUnknown()
            decisions = [
                outcomes[decision.order_id] if isinstance(decision, Placed) else unknown for decision in decisions
            ]
            return self._answers(batch, decided, decisions)
        self._remember(placed, began)
        self._remember_short_stock(demand, stock, order.demand(placement.request for placement in placed))
        return self._answers(batch, decided, decisions)

    def _answers(
        self, batch: Sequence[OrderRequest], decided: Sequence[OrderRequest], decisions: Sequence[Decision]
    ) -> Sequence[Answer[Decision]]:
        """The decisions, in the order of the batch; orders that were not decided are given to the lock waiters."""
        remaining, decided_ids = iter(decisions), {id(request) for request in decided}
        return [
            next(remaining) if id(request) in decided_ids else self._locking.wait_for_lock(request) for request in batch
        ]

    def _remember_short_stock(self, demand: Mapping[str, int], free: Free, sold: Mapping[str, int]) -> None:
        for code, count in demand.items():
            if code in free.held or free.locked[code] >= count:
                self._short_stock.pop(code, None)
            else:
                self._short_stock[code] = free.locked[code] - sold.get(code, 0)

    def _remember(self, placed: Sequence[Placed], began: float) -> None:
        self._recent.add([placement.request for placement in placed])
        self._uncovered.difference_update([placement.request.tenant_id for placement in placed])
        if placed:
            self._placed({line.supplier for placement in placed for line in placement.request.lines})
        traces.batch("place orders", (placement.order_id for placement in placed), began)

    async def _after_loss(
        self, session: Session, lost: DatabaseLost, placed: Sequence[Placed]
    ) -> Mapping[int, Decision]:
        """Looks the orders up on a new connection: one lost inside a commit leaves the outcome unknown. Gives what
        became of each by its orderId.

        Orders found were placed. The others may still be placed while the old connection's server process lives.
        """
        if not lost.sent or not placed:
            raise DatabaseLost(sent=False)
        log.warning("outcome_unknown", orders=len(placed))
        keys = [(placement.request.tenant_id, placement.request.transaction_id) for placement in placed]
        existing: Mapping[tuple[int, str], ExistingOrder] = {}
        for attempt in range(LOOK_UP_TRIES):
            try:
                found = await store.order.find(session, keys)
                await store.order.confirm(session)
                existing = found
                break
            except DatabaseLost:
                await asyncio.sleep(0.2 * 2**attempt)
        found_ids = {found.order_id for found in existing.values()}
        return {
            placement.order_id: placement if placement.order_id in found_ids else refusal.OutcomeUnknown()
            for placement in placed
        }


async def _record_acts(session: Session, placed: Iterable[Placed]) -> None:
    """Records the orders that people placed."""
    for placement in placed:
        request = placement.request
        if not isinstance(request, PersonalOrder):
            continue
        detail = {
            "orderNo": identity.order_no(placement.order_id),
            "transactionId": request.transaction_id,
            "packageCode": request.lines[0].package_code,
            "quantity": request.profile_count,
            "amount": money.text(request.amount, request.currency),
            "currency": request.currency,
        }
        # The batch runs in a task of its own, which has the source of no request.
        audit_context.source.set(request.act.source)
        await record_act(session, request.act.author, "order.place", request.tenant_id, detail)


async def _add_mails(session: Session, placed: Iterable[Placed]) -> None:
    """Of orders whose install pages are to be mailed."""
    mails = [
        NewMail(request.tenant_id, one.order_id, profile_id, request.mail, request.language, one.at)
        for one in placed
        if isinstance(request := one.request, MailedOrder)
        for profile_id in range(one.first_profile_id, one.first_profile_id + request.profile_count)
    ]
    if mails:
        await buyer_mails.add_with_orders(session, mails)


class RecentOrders:
    """The transactionIds of the last orders added: of at least `count`, at most twice as many."""

    def __init__(self, count: int):
        self._count = count
        self._new: set[tuple[int, str]] = set()
        self._old: set[tuple[int, str]] = set()

    def __contains__(self, request: OrderRequest) -> bool:
        key = (request.tenant_id, request.transaction_id)
        return key in self._new or key in self._old

    def add(self, requests: Iterable[OrderRequest]) -> None:
        self._new.update([(request.tenant_id, request.transaction_id) for request in requests])
        if len(self._new) >= self._count:
            self._new, self._old = set(), self._new


def _rows(request: OrderRequest) -> int:
    """What an order costs its batch: its own rows, its lines and its profiles."""
    return 3 + len(request.lines) + request.profile_count
