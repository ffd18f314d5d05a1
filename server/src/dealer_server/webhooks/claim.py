"""Which deliveries does this worker attempt next? Dealers take turns, each with an equal share of a batch.

One transaction claims due deliveries, freezes their contents and counts the attempts. A worker that dies afterwards
leaves leases that expire, and the same bytes are sent again.
"""

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from time import perf_counter
from typing import NamedTuple

from dealer_server import failpoints, traces
from dealer_server.clock import Clock
from dealer_server.db.distributed import one_transaction_each
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.store.webhooks import circuit_breaker, claim
from dealer_server.store.webhooks.claim import Claimed, TenantQuota
from dealer_server.store.webhooks.signer import Signer
from dealer_server.webhooks.in_flight import ByTenant
from dealer_server.webhooks.prepare import Content, Preparer

LEASE_SECONDS = 60.0  # far longer than an attempt may take, 10 s
PROFILES_PER_BATCH = 1_000  # they are prepared at once, which takes some 30 ms
TENANTS_PER_VISIT = 500
POSTPONED = timedelta(minutes=1)  # how much later a delivery that cannot be prepared becomes due


class Attempt(NamedTuple):
    """An attempt that is about to be made."""

    delivery: Claimed
    claim: int
    number: int
    order_version: int
    body: bytes
    signer: Signer
    latest_start: float  # loop time; after it the lease may expire before the attempt is recorded


class ClaimedBatch(NamedTuple):
    claim: int
    attempts: list[Attempt]
    unchanged: list[Claimed]  # updates that equal the last snapshot delivered


class Claimer:
    """Claims for one worker; any number of workers may run on one database."""

    def __init__(
        self,
        session: Session,
        preparer: Preparer,
        clock: Clock,
        in_flight: ByTenant,
        lease_seconds: float = LEASE_SECONDS,
    ):
        self._session = session
        self._preparer = preparer
        self._clock = clock
        self._in_flight = in_flight
        self._lease_seconds = lease_seconds
        self._after_tenant = 0

    async def claim(self, limit: int) -> ClaimedBatch:
        """Claims and freezes at most `limit` deliveries. Raises DatabaseLost; asyncpg.UniqueViolationError and
        asyncpg.DeadlockDetectedError if another worker claimed a delivery of the same order at the same time."""
        now = self._clock()
        shares, signers = await self._shares(limit, now)
        claim_id = secrets.randbits(62)
        if not shares:
            return ClaimedBatch(claim_id, [], [])
        begun, began = asyncio.get_running_loop().time(), perf_counter()
        contents: list[Content] = []
        for together in one_transaction_each(self._session, shares):
            try:
                contents += await self._freeze_due(together, signers, claim_id, now)
            except DatabaseLost:
                if len(together) == len(shares):
                    raise
        if not contents:
            return ClaimedBatch(claim_id, [], [])
        failpoints.hit("webhook.frozen")
        traces.batch("prepare webhooks", (content.delivery.order_id for content in contents), began)
        return _batch(claim_id, contents, signers, begun + self._lease_seconds / 2)

    async def _freeze_due(
        self, shares: Sequence[TenantQuota], signers: Mapping[int, Signer], claim_id: int, now: datetime
    ) -> list[Content]:
        """Puts due deliveries of these tenants in flight, in one transaction."""
        async with self._session.transaction() as session:
            due = await claim.due_deliveries(session, shares, now)
            claimed = await self._allowed(_limit_profiles(due), now)
            if not claimed:
                return []
            failpoints.hit("webhook.claimed")
            contents = await self._preparer.prepare(
                session, [delivery for delivery in claimed if delivery.tenant_id in signers]
            )
            await self._postpone_others(claimed, contents, now)
            if contents:
                lease_until = now + timedelta(seconds=self._lease_seconds)
                await claim.freeze(session, [content.frozen for content in contents], claim_id, lease_until)
            return list(contents)

    async def _shares(self, limit: int, now: datetime) -> tuple[list[TenantQuota], dict[int, Signer]]:
        """The tenants whose turn it is, with an equal share of the batch for each, and who signs for each."""
        wrapped = self._after_tenant == 0
        while True:
            visited = await claim.tenants_waiting(self._session, self._after_tenant, TENANTS_PER_VISIT, now)
            rooms = [
                TenantQuota(tenant.tenant_id, self._in_flight[tenant.tenant_id].room(tenant.cap, tenant.in_flight))
                for tenant in visited
            ]
            waiting = [share for share in rooms if share.quota > 0]
            if len(waiting) > limit:
                waiting = waiting[:limit]
                self._after_tenant = waiting[-1].tenant_id
            else:
                self._after_tenant = visited[-1].tenant_id if len(visited) == TENANTS_PER_VISIT else 0
            if waiting:
                share = -(-limit // len(waiting))
                return (
                    [TenantQuota(tenant.tenant_id, min(tenant.quota, share)) for tenant in waiting],
                    {tenant.tenant_id: tenant.signer for tenant in visited if tenant.signer is not None},
                )
            if self._after_tenant == 0:
                if wrapped:
                    return [], {}
                wrapped = True

    async def _allowed(self, claimed: list[Claimed], now: datetime) -> list[Claimed]:
        """All but those that an open circuit breaker stops. It lets resends pass, and one probe a minute."""
        stopped = {delivery.tenant_id for delivery in claimed if delivery.breaker_open and delivery.trigger != "RESEND"}
        if not stopped:
            return claimed
        stopped -= await circuit_breaker.take_probe(self._session, list(stopped), now)
        return [delivery for delivery in claimed if delivery.tenant_id not in stopped or delivery.trigger == "RESEND"]

    async def _postpone_others(self, claimed: Sequence[Claimed], contents: Sequence[Content], now: datetime) -> None:
        """Makes deliveries that could not be prepared due later."""
        prepared = {(content.delivery.tenant_id, content.delivery.delivery_id) for content in contents}
        others = [key for delivery in claimed if (key := (delivery.tenant_id, delivery.delivery_id)) not in prepared]
        if others:
            await claim.postpone(self._session, others, now + POSTPONED)


def _limit_profiles(due: list[Claimed]) -> list[Claimed]:
    """The first deliveries, up to PROFILES_PER_BATCH: this bounds the memory and the pause of a batch."""
    total = 0
    for count, delivery in enumerate(due):
        total += delivery.profiles if delivery.body is None else 0
        if total > PROFILES_PER_BATCH and count:
            return due[:count]
    return due


def _batch(
    claim_id: int, contents: Sequence[Content], signers: Mapping[int, Signer], latest_start: float
) -> ClaimedBatch:
    batch = ClaimedBatch(claim_id, [], [])
    for delivery, body, frozen in contents:
        if body is None:
            batch.unchanged.append(delivery)
        else:
            attempt = Attempt(
                delivery=delivery,
                claim=claim_id,
                number=delivery.attempt_count + 1,
                order_version=frozen.order_version,
                body=body,
                signer=signers[delivery.tenant_id],
                latest_start=latest_start,
            )
            batch.attempts.append(attempt)
    return batch
