"""The engine on order lines: they are claimed in batches, one call answers for a whole batch, and each order of it is
recorded, or fails to be, by itself."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Generic, NamedTuple, TypeVar

import structlog

from dealer_server.db.errors import LockTimeout
from dealer_server.fulfillment.engine import Decision, FulfillmentEngine, OrderKey, RowKey
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import lock_retry_seconds, retry_seconds
from dealer_server.rules.orders import identity
from dealer_server.store.orders import fulfillment as lines
from dealer_server.store.orders.fulfillment import Claimed, Scheduled

log = structlog.get_logger()

LINES_PER_BATCH, PROFILES_PER_BATCH = 200, 1_000
LEASE_SECONDS = 60.0

Answer = TypeVar("Answer")
Decided = TypeVar("Decided", bound=Decision)


class OrderLines(NamedTuple):
    """The lines of one order that were claimed together, or (claim_id None) are held by a transaction."""

    claim_id: int | None
    order: OrderKey
    lines: Sequence[Claimed]

    @property
    def recharged_order(self) -> OrderKey | None:
        return self.lines[0].recharged_order


class LineEngine(FulfillmentEngine[OrderLines, Answer, Decided], Generic[Answer, Decided]):
    async def _claim(self) -> list[OrderLines]:
        """Claims a batch. A line whose worker dies comes due again when the lease has run out."""
        claim_id, now = secrets.randbits(62), self._clock()
        until = now + timedelta(seconds=LEASE_SECONDS)
        claimed = await lines.claim(self._session, self.code, claim_id, now, until, LINES_PER_BATCH, PROFILES_PER_BATCH)
        return by_order(claim_id, claimed)

    async def _held(self, claims: Sequence[OrderLines]) -> Collection[RowKey]:
        held = set[RowKey]()
        for claim_id in {claim.claim_id for claim in claims}:
            assert claim_id is not None, "lines that a transaction holds are written in it"
            keys = [line.key for claim in claims if claim.claim_id == claim_id for line in claim.lines]
            held |= await lines.held(self._session, claim_id, keys)
        claimed = sum([len(claim.lines) for claim in claims])
        if len(held) < claimed:
            log.warning("claim_lost", supplier=self.code, lines=claimed - len(held))
        return held

    async def _reschedule(self, scheduled: Mapping[int | None, Sequence[Scheduled]]) -> None:
        """By claim_id."""
        for claim_id, claimed in scheduled.items():
            await lines.reschedule(self._session, claim_id, claimed)

    async def give_up(self, claim: OrderLines, error: Exception) -> None:
        """Its lines come due again later; sooner where only a lock was in the way."""
        locked = isinstance(error, LockTimeout)
        order_no, claims = identity.order_no(claim.order[1]), claim.lines[0].claims
        if locked:
            log.warning("order_waits_for_a_lock", supplier=self.code, order_no=order_no, claims=claims)
        else:
            log.error("order_not_recorded", supplier=self.code, order_no=order_no, claims=claims,
                      error=fault_text(error))  # fmt: skip
        wait_seconds = lock_retry_seconds if locked else retry_seconds
        now = self._clock()
        again = [
            Scheduled(line.key, now + timedelta(seconds=wait_seconds(line.claims)), answered=False)
            for line in claim.lines
        ]
        await self._reschedule({claim.claim_id: again})


def by_order(claim_id: int | None, claimed: Sequence[Claimed]) -> list[OrderLines]:
    grouped: dict[OrderKey, list[Claimed]] = {}
    for line in claimed:
        grouped.setdefault((line.tenant_id, line.order_id), []).append(line)
    return [OrderLines(claim_id, order, group) for order, group in grouped.items()]
