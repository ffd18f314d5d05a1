"""What does a worker do beside delivering? Takes back expired leases, closes circuit breakers."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import structlog

from dealer_server import metrics
from dealer_server.clock import Clock
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.polling import wait_for
from dealer_server.db.session import Session
from dealer_server.store.webhooks import circuit_breaker, upkeep
from dealer_server.webhooks import outcome
from dealer_server.webhooks.record import Recorder

log = structlog.get_logger()

MOST_LEASES, LEASES_SHOWN = 500, 5
ROWS_AT_ONCE = 5_000
UPKEEP_SECONDS = 1.0


class Upkeep:
    """Runs beside the loop of one worker, on a session of its own."""

    def __init__(
        self,
        session: Session,
        clock: Clock,
        recorder: Recorder,
        wake: asyncio.Event,
        schedule: Sequence[float],
        lease_seconds: float,
    ):
        self._session = session
        self._clock = clock
        self._recorder = recorder
        self._wake = wake
        self._schedule = schedule
        self._lease = timedelta(seconds=lease_seconds)

    async def run(self) -> None:
        """Runs until cancelled: every second, and at once when the recorder asks for it."""
        while True:
            try:
                await self.step()
            except DatabaseLost:
                pass
            except Exception:
                log.exception("webhook_upkeep_failed")
            await wait_for(self._recorder.upkeep_needed, UPKEEP_SECONDS)
            self._recorder.upkeep_needed.clear()

    async def step(self) -> None:
        """Takes back expired leases, skips deliveries of inactive endpoints, closes breakers. Raises DatabaseLost."""
        await self._take_back_leases()
        while await upkeep.skip_unfinished(self._session, self._clock(), ROWS_AT_ONCE) >= ROWS_AT_ONCE:
            pass
        while self._recorder.recovered:
            await self._close_breaker(self._recorder.recovered.pop())

    async def _take_back_leases(self) -> None:
        leases = await upkeep.expired_leases(self._session, self._clock(), MOST_LEASES)
        if leases:
            shown = [lease.delivery_id for lease in leases[:LEASES_SHOWN]]
            log.warning("webhook_leases_expired", deliveries=len(leases), delivery_ids=shown)
        for lease in leases:
            metrics.webhook_leases_lost.inc()
            started_at = lease.lease_until - self._lease
            expired = outcome.lease_expired(lease, started_at, self._schedule, self._clock())
            self._recorder.record_in_background(expired)

    async def _close_breaker(self, tenant_id: int) -> None:
        now = self._clock()
        while await circuit_breaker.spread_deliveries(self._session, tenant_id, now, ROWS_AT_ONCE) >= ROWS_AT_ONCE:
            pass
        await circuit_breaker.close(self._session, tenant_id)
        log.info("webhook_breaker_closed", tenant_id=tenant_id)
        self._wake.set()
