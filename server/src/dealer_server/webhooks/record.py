"""How are outcomes recorded? In batches: deliveries and attempts, the next of each order, the state of endpoints."""

import asyncio
from collections.abc import Sequence

import structlog

from dealer_server import failpoints, metrics
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer, Batcher
from dealer_server.db.distributed import one_transaction_each
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.store.notices import outbox
from dealer_server.store.webhooks import circuit_breaker, order_queue, results
from dealer_server.store.webhooks.circuit_breaker import EndpointChange
from dealer_server.webhooks import receiver_failing
from dealer_server.webhooks.outcome import Outcome, endpoint_results
from dealer_server.webhooks.tasks import BackgroundTasks

log = structlog.get_logger()

MOST_PER_BATCH = 500
BATCH_SECONDS = 0.03  # from one batch to the next at least, so that batches form
ENOUGH = 16  # outcomes that make a batch at once: a dealer whose attempts in flight are bounded waits for it
RETRY_SECONDS = 0.25


class Recorder:
    """Records outcomes of one worker. It sets `wake` after each batch, since other deliveries may be READY by then.

    `recovered` holds tenants whose endpoint answers again while its circuit breaker is open. `upkeep_needed` is set
    when a breaker must be closed or deliveries of a disabled endpoint skipped, `enough_ended` after ENOUGH outcomes.
    """

    def __init__(self, session: Session, clock: Clock, wake: asyncio.Event, tasks: BackgroundTasks):
        self._session = session
        self._clock = clock
        self._wake = wake
        self._tasks = tasks
        self._batcher: Batcher[Outcome, None] = Batcher(
            self._write, bound=MOST_PER_BATCH, interval_seconds=BATCH_SECONDS, enough=ENOUGH
        )
        self.recovered: set[int] = set()
        self.upkeep_needed = asyncio.Event()
        self.enough_ended = asyncio.Event()

    async def record(self, outcome: Outcome) -> None:
        """Returns once it is recorded, or abandoned: then the lease expires. Retries while the database is lost."""
        delivery_id = outcome.result.delivery_id
        while True:
            try:
                return await self._batcher.submit(outcome)
            except DatabaseLost:
                if asyncio.get_running_loop().time() > outcome.record_until:
                    log.warning("webhook_result_not_recorded", delivery_id=delivery_id)
                    return None
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("webhook_result_not_recorded", delivery_id=delivery_id)
                return None

    def record_in_background(self, outcome: Outcome) -> None:
        self._tasks.start(self.record(outcome))

    async def drain(self) -> None:
        """Returns once everything submitted is recorded."""
        await self._batcher.drain()

    async def _write(self, outcomes: Sequence[Outcome]) -> Sequence[Answer[None]]:
        answers: dict[int, DatabaseLost] = {}
        for together in one_transaction_each(self._session, outcomes):
            try:
                await self._write_together(together)
            except DatabaseLost as lost:
                answers |= {id(outcome): lost for outcome in together}
        if len(outcomes) >= ENOUGH:
            self.enough_ended.set()
        self._wake.set()
        return [answers.get(id(outcome)) for outcome in outcomes]

    async def _write_together(self, outcomes: Sequence[Outcome]) -> None:
        now, session = self._clock(), self._session
        batch = [outcome.result for outcome in outcomes]
        changes: list[EndpointChange] = []
        async with session.transaction():
            await order_queue.lock_unfinished(session, [(result.tenant_id, result.order_id) for result in batch])
            recorded = await results.record(session, batch, now)
            if recorded.waiting:
                await order_queue.make_next_ready(session, recorded.waiting, now)
            counted = [
                outcome
                for outcome in outcomes
                if (outcome.result.tenant_id, outcome.result.delivery_id) in recorded.deliveries
            ]
            news = [
                endpoint
                for endpoint in endpoint_results(counted)
                if endpoint.failures or endpoint.tenant_id in recorded.success_counts
            ]
            if news:
                changes = await circuit_breaker.record(session, news, now)
                await outbox.add(session, receiver_failing.notices(news, changes, now), now)
        failpoints.hit("webhook.recorded")
        metrics.webhook_ended([outcome.result.state for outcome in counted])
        for change in changes:
            self._note(change)

    def _note(self, change: EndpointChange) -> None:
        if change.breaker_opened:
            log.warning("webhook_breaker_opened", tenant_id=change.tenant_id, failures=change.failures)
        if change.state == "DISABLED":
            log.warning("webhook_endpoint_disabled", tenant_id=change.tenant_id)
            self.upkeep_needed.set()
        elif change.recovered:
            self.recovered.add(change.tenant_id)
            self.upkeep_needed.set()
