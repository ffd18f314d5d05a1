"""How are many webhooks sent again? Operators' resend jobs enqueue a few at a time, at most half of a dealer's cap.

Each step of a job is one transaction, so a job continues after a restart.
"""

import asyncio
from collections.abc import Sequence

import structlog

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.polling import attempt
from dealer_server.db.session import Session
from dealer_server.rules.orders import identity
from dealer_server.store.webhooks import resend
from dealer_server.store.webhooks.resend import Job

log = structlog.get_logger()

POLL_SECONDS = 0.5  # while there are no jobs
STEP_SECONDS = 0.05  # while there are some


class Resender:
    """Runs resend jobs; any number of workers may do so on one database. `enqueued` is set when deliveries are."""

    def __init__(self, database: Database, clock: Clock, enqueued: asyncio.Event):
        self.wake = asyncio.Event()
        self._session = database.session()
        self._clock = clock
        self._enqueued = enqueued

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                jobs = await attempt("webhook jobs", self.step)
                await asyncio.sleep(STEP_SECONDS if jobs else POLL_SECONDS)
                if not jobs:
                    await self.wake.wait()
                    self.wake.clear()
        finally:
            await self._session.close()

    async def step(self) -> int:
        """Continues each job by one step; returns how many jobs there are. Raises DatabaseLost."""
        job_ids = await resend.unfinished_jobs(self._session)
        for job_id in job_ids:
            if await self._continue(job_id):
                self._enqueued.set()
        return len(job_ids)

    async def _continue(self, job_id: int) -> int:
        """Enqueues the next deliveries of a job; how many."""
        async with self._session.transaction() as session:
            job = await resend.lock_job(session, job_id)
            capacity = await resend.capacity(session, job.tenant_id) if job else 0
            if job is None or not capacity:
                return 0
            ids = await _next_ids(session, job, capacity)
            if not ids:
                await resend.finish_job(session, job_id, self._clock())
                log.info("webhook_job_done", job_id=job_id, tenant_id=job.tenant_id, done=job.done)
                return 0
            enqueue = resend.resend if job.kind == "RESEND" else resend.sync
            sent = await enqueue(session, job.tenant_id, ids, self._clock())
            await resend.advance_job(session, job_id, ids[-1], sent)
            return sent


async def _next_ids(session: Session, job: Job, limit: int) -> Sequence[int]:
    if job.kind == "RESEND":
        return await resend.next_deliveries(session, job, limit)
    first, end = identity.ids_between(job.start_at, job.end_at)
    return await resend.next_orders(session, job, first, end, limit)
