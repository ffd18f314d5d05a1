"""How is an eSIM recharged? An order is placed that names it (specification 4.14, docs/decisions/0030-recharges.md).

Recharges are decided in batches, as orders are. The fast path sends one statement, which finds the eSIMs and places the
orders; it writes nothing where an eSIM cannot be recharged, or its order changes meanwhile or is held by another
transaction. What it leaves the locking path decides: find, lock wallets and the orders of the eSIMs, decide, write,
commit. The orders that are written differ from others in their one profile only, which has no codes but an eSIM that it
recharges; the worker has its supplier apply it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter
from typing import NamedTuple

import asyncpg
import msgspec

from dealer_server import audit_context, failpoints, store, traces
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.locking_batcher import LockingBatcher, first_batches
from dealer_server.db.session import SHARED_LOCK_TIMEOUT, Session
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.orders.place import RecentOrders
from dealer_server.operations.recharges.known_fits import KnownFits
from dealer_server.operations.recharges.request import RechargeRequest
from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, order
from dealer_server.rules.orders.order import Decision, NextPlan, OrderRequest, Placed
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Fit, Target
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.orders.order import Written
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.recharges import recharge as recharges
from dealer_server.suppliers import registry

RECHARGES_PER_BATCH = 200
RECENT_RECHARGES = 20_000  # whose repeats go straight to the locking path
Esim = tuple[int, int]
"""tenant_id, profile_id"""


class _Try(NamedTuple):
    """A recharge that one statement is to place, if its eSIM is as `fit` says."""

    request: RechargeRequest
    placed: Placed
    fit: Fit


class RechargeBatcher:
    """Decides and writes the recharges that arrive together as one batch. One per process."""

    def __init__(self, database: Database, ids: IdAllocator, clock: Clock, placed: Callable[[], None] = lambda: None):
        self._ids = ids
        self._clock = clock
        self._placed = placed
        self._recent = RecentOrders(RECENT_RECHARGES)
        self._known_fits = KnownFits()
        self._batcher = first_batches(
            database, self._fast_path, bound=RECHARGES_PER_BATCH, name="recharges", lock_timeout=SHARED_LOCK_TIMEOUT
        )
        self._locking: LockingBatcher[RechargeRequest, Decision] = LockingBatcher(
            database, self._under_locks, bound=RECHARGES_PER_BATCH, name="recharges_locking"
        )

    def submit(self, request: RechargeRequest) -> asyncio.Future[Decision]:
        """The decision on a recharge; a refusal is raised."""
        if self._is_apart(request) or self._locking.makes_wait(request.tenant_id):
            return self._locking.submit(request)
        return self._batcher.submit(request)

    def _is_apart(self, request: RechargeRequest) -> bool:
        """Whether one statement cannot place it: it is a repeat, or an act is recorded with it."""
        return request.act is not None or request.order in self._recent

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()
        await self._locking.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self._batcher.drain()
        await self._batcher.close()
        await self._locking.close()

    async def _fast_path(self, session: Session, batch: Sequence[RechargeRequest]) -> Sequence[Answer[Decision]]:
        """Places what one statement can place; the rest is decided under locks."""
        done, held = await self._write_at_once(session, batch)
        return [
            done.get(id(request))
            or (self._locking.wait_for_lock if request.tenant_id in held else self._locking.submit)(request)
            for request in batch
        ]

    async def _under_locks(
        self, session: Session, batch: Sequence[RechargeRequest], wait: bool
    ) -> Sequence[Answer[Decision]]:
        """With `wait` one statement, which waits for the wallets, is tried first."""
        done: Mapping[int, Answer[Decision]] = {}
        if wait and not any(self._is_apart(request) for request in batch):
            done, _ = await self._write_at_once(session, batch, wait=True)
        rest = [request for request in batch if id(request) not in done]
        decided = iter(await self._locking_path(session, rest, wait) if rest else ())
        return [done.get(id(request)) or next(decided) for request in batch]

    async def _write_at_once(
        self, session: Session, batch: Sequence[RechargeRequest], *, wait: bool = False
    ) -> tuple[Mapping[int, Answer[Decision]], Collection[int]]:
        """Writes the recharges of a batch without having locked anything. Gives the answers to those that are decided
        by it, by the id() of their requests, and the dealers whose wallets another transaction holds."""
        began = perf_counter()
        try:
            tries = await self._tries(session, batch)
        except DatabaseLost:
            raise DatabaseLost(sent=False) from None  # nothing was to be written so far
        try:
            written, plans = await _write_fitting(session, tries, wait)
        except asyncpg.UniqueViolationError:  # known transactionIds, or another recharge of an eSIM came first
            return {}, ()
        except DatabaseLost as lost:
            if not lost.sent:
                raise
            return {id(one.request): refusal.OutcomeUnknown() for one in tries}, ()
        apart = written.uncovered | written.held
        done = {
            id(one.request): one.placed.with_plan(plan)
            for one, plan in plans
            if written.done and one.request.tenant_id not in apart
        }
        if done:
            failpoints.hit("recharge.committed")
            self._recent.add([placed.request for placed in done.values()])
            self._placed()
            traces.batch("place recharges", (placed.order_id for placed in done.values()), began)
        return done, written.held

    async def _tries(self, session: Session, batch: Sequence[RechargeRequest]) -> list[_Try]:
        """The recharges of a batch that nothing is known against, at most one of each eSIM."""
        keys = await _esims(session, batch)
        take_ids = await self._ids.reserve(len(batch), len(batch))
        fits = self._known_fits.find([(request.wanted, request.order.lines[0]) for request in batch])
        tries: dict[Esim, tuple[RechargeRequest, OrderRequest, Fit]] = {}
        for request, key, fit in zip(batch, keys, fits, strict=True):
            if key is None or fit is None or key in tries or request.wanted.refused or request.refused:
                continue
            tries[key] = request, msgspec.structs.replace(request.order, recharge=NextPlan(key[1])), fit
        decisions = order.decide([wanted for _, wanted, _ in tries.values()], None, {}, {}, take_ids, self._clock())
        return [
            _Try(request, decision, fit)
            for (request, _, fit), decision in zip(tries.values(), decisions, strict=True)
            if isinstance(decision, Placed)
        ]

    async def _locking_path(
        self, session: Session, batch: Sequence[RechargeRequest], wait: bool
    ) -> Sequence[Answer[Decision]]:
        """Decides under locks. Without `wait`, recharges that need a wallet or an order which another transaction holds
        are left to the lock waiters."""
        began = perf_counter()
        located = await iccids.locate(
            session, [(request.tenant_id, request.wanted.profile_id, request.wanted.iccid) for request in batch]
        )
        take_ids = await self._ids.reserve(len(batch), len(batch))
        try:
            async with session.transaction():
                wallets = await store.wallet.lock(session, sorted({one.tenant_id for one in batch}), wait=wait)
                of_esims = sorted({key[:2] for key in located if key is not None and key[0] in wallets})
                locked = await store.order.lock(session, of_esims, wait=wait)
                free = [
                    (request, key)
                    for request, key in zip(batch, located, strict=True)
                    if request.tenant_id in wallets and (key is None or key[:2] in locked)
                ]
                existing = await store.order.find(
                    session, [(one.tenant_id, one.order.transaction_id) for one, _ in free]
                )
                targets = await recharges.targets(session, sorted({(key[0], key[2]) for _, key in free if key}))
                keys = [None if key is None else (key[0], key[2]) for _, key in free]
                requests = _with_targets(zip([request for request, _ in free], keys, strict=True), targets)
                now = self._clock()
                decisions = order.decide(requests, wallets, existing, {}, take_ids, now)
                placed = order.placements(decisions)
                if placed:
                    written = await store.order.write(session, placed)
                    assert written.whole, "locked rows do not change"
                    await _record_acts(session, zip([request for request, _ in free], decisions, strict=True))
                failpoints.hit("recharge.written")
            failpoints.hit("recharge.committed")
        except DatabaseLost as lost:
            if not lost.sent:
                raise
            return [refusal.OutcomeUnknown() for _ in batch]
        if placed:
            self._learn(keys, decisions, targets)
            self._recent.add([placement.request for placement in placed])
            self._placed()
            traces.batch("place recharges", (placement.order_id for placement in placed), began)
        decided = {id(request): decision for (request, _), decision in zip(free, decisions, strict=True)}
        return [decided.get(id(request)) or self._locking.wait_for_lock(request) for request in batch]

    def _learn(
        self, keys: Iterable[Esim | None], decisions: Iterable[Decision], targets: Mapping[Esim, Target]
    ) -> None:
        """Keeps which eSIMs the recharges that were accepted fit."""
        for key, decision in zip(keys, decisions, strict=True):
            if key is not None and isinstance(decision, Placed):
                self._known_fits.add(decision.request.lines[0], targets[key])


async def _write_fitting(
    session: Session, tries: Sequence[_Try], wait: bool
) -> tuple[Written, Sequence[tuple[_Try, NextPlan]]]:
    """Writes the recharges of eSIMs that can be recharged, with their plans: where others are among them, which keep
    all from being written, the statement is sent again without those."""
    for _ in range(2):
        if not tries:
            break
        placed, fits = [one.placed for one in tries], [one.fit for one in tries]
        written, found = await store.order.write_recharges(session, placed, fits, wait=wait)
        plans = [(one, plan) for one, plan in zip(tries, found, strict=True) if plan is not None]
        if len(plans) == len(tries):
            return written, plans
        tries = [one for one, _ in plans]
    return Written(False), ()


async def _esims(session: Session, batch: Sequence[RechargeRequest]) -> list[Esim | None]:
    """The eSIMs that are named; None where an ICCID is unknown. There may be none with the profileId."""
    by_iccid = [(request.tenant_id, None, request.wanted.iccid) for request in batch if not request.wanted.profile_id]
    located = iter(await iccids.locate(session, by_iccid) if by_iccid else ())
    keys: list[Esim | None] = []
    for request in batch:
        if request.wanted.profile_id:
            keys.append((request.tenant_id, request.wanted.profile_id))
        else:
            found = next(located)
            keys.append(None if found is None else (found[0], found[2]))
    return keys


async def _record_acts(session: Session, decided: Iterable[tuple[RechargeRequest, Decision]]) -> None:
    """Records the recharges that people asked for."""
    for request, decision in decided:
        if request.act is None or not isinstance(decision, Placed):
            continue
        added = decision.request.recharge
        assert added is not None, "a recharge that is placed names its eSIM"
        detail = {
            "profileId": added.profile_id,
            "orderNo": identity.order_no(decision.order_id),
            "packageCode": request.order.lines[0].package_code,
            "amount": money.text(request.order.amount, request.order.currency),
        }
        # The batch runs in a task of its own, which has the source of no request.
        audit_context.source.set(request.act.source)
        await record_act(session, request.act.author, "profile.recharge", request.tenant_id, detail)


def _with_targets(
    located: Iterable[tuple[RechargeRequest, Esim | None]], targets: Mapping[Esim, Target]
) -> list[OrderRequest]:
    """The orders to be placed: each with its eSIM, or with why that cannot be recharged."""
    found = []
    for request, key in located:
        target = None if key is None else targets.get(key)
        refused = recharge.refuse(request.wanted, target, _recharges) or request.refused
        if refused is not None or target is None:
            found.append(msgspec.structs.replace(request.order, refused=refused))
            continue
        [line] = lines = request.order.lines
        if line.supplier != target.supplier:
            lines = (msgspec.structs.replace(line, supplier=target.supplier),)
        added = NextPlan(target.profile_id, target.plans + 1, target.order_id, target.version, target.iccid)
        found.append(msgspec.structs.replace(request.order, lines=lines, recharge=added))
    return found


def _recharges(kind: str) -> bool:
    return registry.caps_of(kind).recharges
