"""Fulfills paid orders at one supplier: claims work, asks the supplier, decides what its answers mean, records that.

The engine is the same for every supplier. Its three kinds differ in what they claim and how they ask for it: the order
lines of a builtin supplier (`builtin/lines.py`), order lines that are still to become purchases
(`purchases/purchase_planner.py`), the purchases at a remote supplier (`purchases/purchaser.py`). See
docs/decisions/0022-one-fulfilment-engine.md.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import Generic, NamedTuple, Protocol, TypeVar

from dealer_server import failpoints, store, traces
from dealer_server.clock import Clock
from dealer_server.db.distributed import is_distributed
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import order_record
from dealer_server.fulfillment.call_pool import Answered, CallPool
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery.delivery import Result
from dealer_server.rules.orders.model import Order
from dealer_server.store.refunds.void import Void
from dealer_server.suppliers.contract import Supplier

OrderKey = tuple[int, int]
"""tenant_id, order_id"""
RowKey = tuple[int, int, int]
"""The key of a claimed row."""


class Context(NamedTuple):
    """What an engine works with. session: its only connection. `package` finds a package by its code; `changed` is
    called after each commit that changed an order, `settle` after each that left a refund or a void to be settled.
    refund_failed: what fails for good is refunded automatically."""

    session: Session
    data_keys: DataKeys
    package: Callable[[str], Package | None]
    clock: Clock
    changed: Callable[[], None]
    refund_failed: bool = True
    settle: Callable[[], None] = lambda: None


class Claimed(Protocol):
    """`order`: whose row it is. `recharged_order`: that of the eSIM which it recharges."""

    @property
    def order(self) -> OrderKey: ...

    @property
    def recharged_order(self) -> OrderKey | None: ...


@dataclass
class Decision:
    """What answers mean for orders. results: what profiles get, by profileId. begun: the lines that fulfillment has
    begun. voids: eSIMs that were made for profiles that are void by now."""

    results: dict[int, Result] = field(default_factory=dict)
    begun: dict[OrderKey, frozenset[int]] = field(default_factory=dict)
    voids: list[Void] = field(default_factory=list)


Claim = TypeVar("Claim", bound=Claimed)
Answer = TypeVar("Answer")
Decided = TypeVar("Decided", bound=Decision)


class FulfillmentEngine(ABC, Generic[Claim, Answer, Decided]):
    """Several may work on one database: no two claim the same row, and what a dead one claimed comes due again.

    point: how the names of its failpoints begin. The other attributes are those of `call_pool.CalledWork`.
    """

    point = "fulfillment"
    interval_seconds = 0.0
    grace_seconds = 5.0
    keeps_locked = False

    def __init__(self, supplier: Supplier, name: str, parallel: int, context: Context):
        self.code = supplier.code
        self.name = f"{name} at {supplier.code}"
        self.parallel = parallel
        self.wake = asyncio.Event()
        self._caps = supplier.caps
        self._context = context
        self._session, self._data_keys, self._clock = context.session, context.data_keys, context.clock
        self.by_dealer = is_distributed(self._session)
        self._pool = CallPool[Claim, Answer](self)

    async def run(self) -> None:
        """Until cancelled; see CallPool."""
        try:
            await self._pool.run()
        finally:
            await self.close()

    async def run_once(self) -> int:
        """Claims what is due now and works it off; how much there was."""
        return await self._pool.run_once()

    async def close(self) -> None:
        await self._session.close()

    # Claim and ask

    @abstractmethod
    async def begin(self, room: int) -> int:
        """Claims due work and starts at most `room` calls for it; how much work there was."""

    def dealer(self, claim: Claim) -> int:
        """Whose claim it is."""
        return claim.order[0]

    @abstractmethod
    def unanswered(self, claim: Claim, fault: str) -> Answer:
        """The answer of a call that broke."""

    # Decide and record

    async def record(self, answered: Answered[Claim, Answer]) -> None:
        """Records answers in one transaction with the orders and the events that tell their dealers."""
        session, now, began = self._session, self._clock(), perf_counter()
        async with session.transaction():
            await store.order.lock(session, _orders(answered))
            held = await self._held([claim for claim, _ in answered])
            written = await self._write_answers(answered, held, now)
        await self._committed(*written)
        traces.batch(f"record {self.name}", (claim.order[1] for claim, _ in answered), began)

    async def _write_answers(
        self, answered: Answered[Claim, Answer], held: Collection[RowKey], now: datetime
    ) -> tuple[Decided, Sequence[Order]]:
        """Inside the transaction, which holds the orders: what was decided, and the orders that it changed."""
        session = self._session
        before = await store.order.load(session, _orders(answered), self._data_keys)
        decided = await self._decide(answered, held, before, now)
        after = await order_record.put(
            session,
            before,
            decided.results,
            decided.begun,
            self._data_keys,
            supplier=self.code,
            caps=self._caps,
            refund_failed=self._context.refund_failed,
            now=now,
        )
        await self._write(decided, before, after, now)
        if decided.voids:
            await store.void.add_voids(session, decided.voids)
        failpoints.hit(f"{self.point}.written")
        return decided, [order for key, order in after.items() if order is not before[key]]

    async def _committed(self, decided: Decided, changed: Sequence[Order]) -> None:
        if changed:
            self._context.changed()
        if decided.voids or any(profile.held for order in changed for profile in order.profiles):
            self._context.settle()
        await self._recorded(decided)
        failpoints.hit(f"{self.point}.recorded")

    @abstractmethod
    async def _held(self, claims: Sequence[Claim]) -> Collection[RowKey]:
        """The rows that are still claimed, locked. Their orders are locked."""

    @abstractmethod
    async def _decide(
        self,
        answered: Answered[Claim, Answer],
        held: Collection[RowKey],
        orders: Mapping[OrderKey, Order],
        now: datetime,
    ) -> Decided:
        """What the answers mean for rows that are still claimed."""

    @abstractmethod
    async def _write(
        self, decided: Decided, before: Mapping[OrderKey, Order], after: Mapping[OrderKey, Order], now: datetime
    ) -> None:
        """Writes the claimed rows. `before`, `after`: the orders as they were read, and as they are written."""

    async def _recorded(self, decided: Decided) -> None:
        """After the commit."""

    @abstractmethod
    async def give_up(self, claim: Claim, error: Exception) -> None:
        """The answer to this claim cannot be recorded: its rows come due again later."""


def _orders(answered: Answered[Claim, Answer]) -> list[OrderKey]:
    """Those of the claims, and those of the eSIMs that they recharge."""
    own = {claim.order for claim, _ in answered}
    return sorted(own | {claim.recharged_order for claim, _ in answered if claim.recharged_order is not None})
