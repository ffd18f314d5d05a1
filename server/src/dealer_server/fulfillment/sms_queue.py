"""Has suppliers send SMS: each is asked with no transaction open, after it was noted that the SMS may be sent now.

A call without an answer that counts is repeated only where the supplier knows a repeat by its key
(docs/decisions/0031-sms.md). No log has a word of a text, nor of what a supplier says, which may repeat the text.
"""

import asyncio
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

import structlog

from dealer_server import failpoints
from dealer_server.clock import Clock
from dealer_server.db.sealing import DataKeys, sms_context
from dealer_server.db.session import Session
from dealer_server.fulfillment.call_pool import Answered, CallPool
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.lifecycle.sms import SENT, Next, before_sending, failed, unanswered
from dealer_server.rules.orders import identity
from dealer_server.store.profiles import sms as sms_store
from dealer_server.store.profiles.sms import DueSms
from dealer_server.suppliers.contract import Remote, Sms, SmsFailed, SmsOutcome, SmsSent, SmsWaits, Unknown

log = structlog.get_logger()

LEASE_SECONDS = 60.0  # a call ends before, with time left to record
ASK_SECONDS = 45.0


class SmsClaim(NamedTuple):
    claim_id: int
    sms: DueSms


class SmsQueue:
    """Sends the SMS that wait for one supplier."""

    poll_seconds = 0.5
    interval_seconds = 0.0
    grace_seconds = 5.0
    keeps_locked = True

    def __init__(self, supplier: Remote, session: Session, data_keys: DataKeys, clock: Clock):
        self.name = f"SMS at {supplier.code}"
        self.parallel = supplier.caps.parallel
        self.wake = asyncio.Event()
        self._supplier = supplier
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._pool = CallPool[SmsClaim, Next](self)

    async def run(self) -> None:
        """Until cancelled; see CallPool."""
        try:
            await self._pool.run()
        finally:
            await self._session.close()

    async def begin(self, room: int) -> int:
        if not room:
            return 0
        now, claim_id = self._clock(), secrets.randbits(62)
        until = now + timedelta(seconds=LEASE_SECONDS)
        claimed = await sms_store.claim_due(self._session, self._supplier.code, claim_id, now, until, room)
        if claimed:
            failpoints.hit("sms.claimed")
        for sms in claimed:
            claim = SmsClaim(claim_id, sms)
            self._pool.start([claim], self._send(claim))
        return len(claimed)

    async def _send(self, claim: SmsClaim) -> Answered[SmsClaim, Next]:
        sms, now = claim.sms, self._clock()
        over = before_sending(sms.created_at, sms.in_doubt, self._supplier.caps.sms_repeatable, now)
        if over is not None:
            return [(claim, over)]
        outcome = await self._ask(sms, now)
        failpoints.hit("sms.answered")
        return [(claim, self._after(sms, outcome))]

    async def _ask(self, sms: DueSms, now: datetime) -> SmsOutcome:
        text = self._data_keys.open(sms.message, sms_context(sms.tenant_id, sms.sms_id)).decode()
        key = f"m-{sms.sms_id}"  # sms_ids are unique over all tenants
        asked = Sms(key, sms.iccid, text, unit_ref=sms.unit_ref, asked_before=sms.in_doubt)
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._supplier.send_sms(asked, now)
        except asyncio.CancelledError:
            return Unknown("this worker ended before the answer came")
        except Exception as error:
            return Unknown(fault_text(error))

    def _after(self, sms: DueSms, outcome: SmsOutcome) -> Next:
        match outcome:
            case SmsSent():
                return SENT
            case SmsFailed(detail, maybe_sent):
                return failed(detail, in_doubt=maybe_sent)
            case SmsWaits(seconds, maybe_sent):
                seconds = min(max(seconds, 0.05), 600.0)
                return Next("PENDING", due_at=self._in(seconds), in_doubt=sms.in_doubt or maybe_sent)
            case Unknown(reason):
                return self._unanswered(sms, reason)

    def _unanswered(self, sms: DueSms, reason: str) -> Next:
        again_at = self._in(retry_seconds(sms.claims))
        return unanswered(reason, self._supplier.caps.sms_repeatable, again_at)

    def _in(self, seconds: float) -> datetime:
        return self._clock() + timedelta(seconds=seconds)

    def unanswered(self, claim: SmsClaim, fault: str) -> Next:
        return self._unanswered(claim.sms, fault)

    async def give_up(self, claim: SmsClaim, error: Exception) -> None:
        """What was answered cannot be recorded: nobody knows it any more."""
        await self.record([(claim, self._unanswered(claim.sms, fault_text(error)))])

    async def record(self, answered: Answered[SmsClaim, Next]) -> None:
        after = [(claim.claim_id, claim.sms.tenant_id, claim.sms.sms_id, sms) for claim, sms in answered]
        recorded = await sms_store.record(self._session, after, self._clock())
        for _, tenant_id, sms_id, sms in after:
            if sms.detail is not None and (tenant_id, sms_id) in recorded:
                log.warning("sms_not_sent", tenant_id=tenant_id, sms=identity.sms_no(sms_id),
                            supplier=self._supplier.code, status=sms.status, reason=sms.detail)  # fmt: skip
        failpoints.hit("sms.recorded")
