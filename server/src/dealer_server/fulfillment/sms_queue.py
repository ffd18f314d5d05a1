"""Has suppliers send SMS: each is asked with no transaction open, after it was noted that the SMS may be sent now.

A call without an answer that counts is repeated only where the supplier knows a repeat by its key
(docs/decisions/0031-sms.md). No log has a word of a text, nor of what a supplier says, which may repeat the text.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import failpoints
from dealer_server.db.sealing import sms_context
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.request_queue import Claim, RequestQueue
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.rules.lifecycle.sms import SENT, Next, before_sending, failed, unanswered
from dealer_server.rules.orders import identity
from dealer_server.store.profiles import sms as sms_store
from dealer_server.store.profiles.sms import DueSms
from dealer_server.suppliers.contract import Remote, Sms, SmsFailed, SmsOutcome, SmsSent, SmsWaits, Unknown

log = structlog.get_logger()


class SmsQueue(RequestQueue[Remote, DueSms, SmsOutcome | Next]):
    """Sends the SMS that wait for one supplier."""

    requests = "SMS"
    point = "sms"

    async def _claim(self, claim_id: int, now: datetime, until: datetime, room: int) -> Sequence[DueSms]:
        return await sms_store.claim_due(self._session, self.code, claim_id, now, until, room)

    async def _ask(self, request: DueSms) -> SmsOutcome | Next:
        """What becomes of one that is not to be sent any more is known without asking."""
        now = self._clock()
        over = before_sending(request.created_at, request.in_doubt, self._supplier.caps.sms_repeatable, now)
        if over is not None:
            return over
        text = self._data_keys.open(request.message, sms_context(request.tenant_id, request.sms_id)).decode()
        key = f"m-{request.sms_id}"  # sms_ids are unique over all tenants
        asked = Sms(key, request.iccid, text, unit_ref=request.unit_ref, asked_before=request.in_doubt)
        return await self._supplier.send_sms(asked, now)

    async def record(self, answered: Answered[Claim[DueSms], SmsOutcome | Next]) -> None:
        now = self._clock()
        after = [
            (claim.claim_id, claim.request.tenant_id, claim.request.sms_id, self._after(claim.request, outcome, now))
            for claim, outcome in answered
        ]
        recorded = await sms_store.record(self._session, after, now)
        for _, tenant_id, sms_id, sms in after:
            if sms.detail is not None and (tenant_id, sms_id) in recorded:
                log.warning("sms_not_sent", tenant_id=tenant_id, sms=identity.sms_no(sms_id),
                            supplier=self.code, status=sms.status, reason=sms.detail)  # fmt: skip
        failpoints.hit("sms.recorded")

    def _after(self, sms: DueSms, outcome: SmsOutcome | Next, now: datetime) -> Next:
        match outcome:
            case Next():
                return outcome
            case SmsSent():
                return SENT
            case SmsFailed(detail, maybe_sent):
                return failed(detail, in_doubt=maybe_sent)
            case SmsWaits(seconds, maybe_sent):
                due_at = now + timedelta(seconds=min(max(seconds, 0.05), 600.0))
                return Next("PENDING", due_at=due_at, in_doubt=sms.in_doubt or maybe_sent)
            case Unknown(reason):
                again_at = now + timedelta(seconds=retry_seconds(sms.claims))
                return unanswered(reason, self._supplier.caps.sms_repeatable, again_at)
