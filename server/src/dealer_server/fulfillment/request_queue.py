"""Asks one supplier for what rows request of it: each until it answers, with no transaction open.

Only a clear answer counts. A timeout, a reset or nonsense is Unknown: the supplier is asked again.
"""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from dealer_server import failpoints
from dealer_server.clock import Clock
from dealer_server.db.distributed import OfTenant, is_distributed
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment.call_pool import Answered, CallPool
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.suppliers.contract import Pending, Supplier, Unknown

LEASE_SECONDS = 60.0  # a call ends before, with time left to record
ASK_SECONDS = 45.0

AnySupplier = TypeVar("AnySupplier", bound=Supplier)
Request = TypeVar("Request", bound=OfTenant)
Outcome = TypeVar("Outcome")


class Claim(NamedTuple, Generic[Request]):
    claim_id: int
    request: Request


class RequestQueue(ABC, Generic[AnySupplier, Request, Outcome]):
    """Works off the requests that wait for one supplier. `changed` is called after each commit that changed an order.

    requests: what they are, for its name. point: how the names of its failpoints begin. The other attributes are those
    of `call_pool.CalledWork`.
    """

    requests = "requests"
    point = "request"
    interval_seconds = 0.0
    grace_seconds = 5.0
    keeps_locked = True

    def __init__(
        self,
        supplier: AnySupplier,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None] = lambda: None,
    ):
        self.name = f"{self.requests} at {supplier.code}"
        self.parallel = supplier.caps.parallel
        self.wake = asyncio.Event()
        self._supplier = supplier
        self.code = supplier.code
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self.by_dealer = is_distributed(session)
        self._pool = CallPool[Claim[Request], Outcome | Unknown](self)

    async def run(self) -> None:
        """Until cancelled; see CallPool."""
        try:
            await self._pool.run()
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """As many as may be asked for at a time; how many there were."""
        return await self._pool.run_once()

    async def begin(self, room: int) -> int:
        if not room:
            return 0
        now, claim_id = self._clock(), secrets.randbits(62)
        requests = await self._claim(claim_id, now, now + timedelta(seconds=LEASE_SECONDS), room)
        if requests:
            failpoints.hit(f"{self.point}.claimed")
        for request in requests:
            claim = Claim(claim_id, request)
            self._pool.start([claim], self._ask_in_time(claim))
        return len(requests)

    async def _ask_in_time(self, claim: Claim[Request]) -> Answered[Claim[Request], Outcome | Unknown]:
        try:
            async with asyncio.timeout(ASK_SECONDS):
                outcome = await self._ask(claim.request)
        except asyncio.CancelledError:
            return [(claim, Unknown("this worker ended before the answer came"))]
        except Exception as error:
            outcome = Unknown(fault_text(error))
        failpoints.hit(f"{self.point}.answered")
        return [(claim, outcome)]

    def dealer(self, claim: Claim[Request]) -> int:
        """Whose claim it is."""
        return claim.request.tenant_id

    def unanswered(self, claim: Claim[Request], fault: str) -> Outcome | Unknown:
        return Unknown(f"its answer could not be recorded: {fault}")

    async def give_up(self, claim: Claim[Request], error: Exception) -> None:
        """It is recorded as unknown, so that the supplier is asked again."""
        await self.record([(claim, self.unanswered(claim, fault_text(error)))])

    @abstractmethod
    async def _claim(self, claim_id: int, now: datetime, until: datetime, room: int) -> Sequence[Request]:
        """Takes due requests until the lease ends."""

    @abstractmethod
    async def _ask(self, request: Request) -> Outcome:
        """Asks the supplier."""

    @abstractmethod
    async def record(self, answered: Answered[Claim[Request], Outcome | Unknown]) -> None:
        """Records answers in one transaction."""


def ask_again_at(outcome: Pending | Unknown, claims: int, now: datetime) -> datetime:
    """When a supplier is asked again that has not answered clearly, after so many claims."""
    if isinstance(outcome, Pending):
        return now + timedelta(seconds=min(max(outcome.poll_after_seconds, 0.05), 3_600.0))
    return now + timedelta(seconds=retry_seconds(claims))
