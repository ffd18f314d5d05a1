"""How are many webhooks sent again? Jobs of operators, a few deliveries at a time, no faster than half of what the
dealer may have in flight. Each step is one transaction, so a job goes on where it was, whatever happens."""

import asyncio
from collections.abc import Sequence

import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.rules.orders import identity
from dealer_server.store.webhooks import resend as rows
from dealer_server.store.webhooks.resend import Job

log = structlog.get_logger()

POLL_SECONDS = 0.5  # while there is none
STEP_SECONDS = 0.05  # while there are some


class Resender:
    """Goes on with jobs; any number of them may run on one database. `wake` is rung when something is to be sent."""

    def __init__(self, database: Database, clock: Clock, wake: asyncio.Event):
        self._session = database.session()
        self._clock = clock
        self._wake = wake

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                running = await self._run_whatever_comes()
                await asyncio.sleep(STEP_SECONDS if running else POLL_SECONDS)
        finally:
            await self._session.close()

    async def step(self) -> int:
        """Goes on a little with each job; how many there are. Raises DatabaseLost."""
        running = await rows.running(self._session)
        for job_id in running:
            if await self._go_on(job_id):
                self._wake.set()
        return len(running)

    async def _run_whatever_comes(self) -> int:
        try:
            return await self.step()
        except DatabaseLost:
            pass
        except Exception:
            log.exception("webhook_job_failed")
        return 0

    async def _go_on(self, job_id: int) -> int:
        """How many of the job were let go."""
        async with self._session.transaction() as session:
            job = await rows.take(session, job_id)
            room = await rows.room(session, job.tenant_id) if job else 0
            if job is None or not room:
                return 0
            chosen = await _following(session, job, room)
            if not chosen:
                await rows.end(session, job_id, self._clock())
                log.info("webhook_job_done", job_id=job_id, tenant_id=job.tenant_id, done=job.done)
                return 0
            again = rows.resend if job.kind == "RESEND" else rows.sync
            sent = await again(session, job.tenant_id, chosen, self._clock())
            await rows.advance(session, job_id, chosen[-1], sent)
            return sent


async def _following(session: Session, job: Job, limit: int) -> Sequence[int]:
    if job.kind == "RESEND":
        return await rows.next_deliveries(session, job, limit)
    return await rows.next_orders(session, job, *identity.ids_between(job.start_at, job.end_at), limit)
