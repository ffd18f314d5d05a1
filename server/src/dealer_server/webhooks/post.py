"""How is an attempt made? The body is signed and posted once; no database connection is held."""

import asyncio
from datetime import datetime
from time import perf_counter
from typing import NamedTuple

import structlog

from dealer_server import failpoints, metrics, traces
from dealer_server.clock import Clock
from dealer_server.db.sealing import MasterKeys
from dealer_server.webhooks import signature
from dealer_server.webhooks.claim import Attempt
from dealer_server.webhooks.outbound import Answer, Outbound
from esim_dealer.wire import signing

log = structlog.get_logger()


class Posted(NamedTuple):
    answer: Answer
    started_at: datetime
    duration_ms: int


class Poster:
    def __init__(self, outbound: Outbound, master_keys: MasterKeys, clock: Clock):
        self._outbound = outbound
        self._master_keys = master_keys
        self._clock = clock

    async def post(self, attempt: Attempt, turns: asyncio.Semaphore) -> Posted | None:
        """Makes the attempt when it is its turn. None if it is too late for it: the process was stopped, or others took
        long, and its lease may have expired.

        A cancelled attempt ends with the error STOPPED; CancelledError is not raised.
        """
        loop = asyncio.get_running_loop()
        began, started_at = perf_counter(), self._clock()
        try:
            async with turns:
                began, started_at = perf_counter(), self._clock()
                if loop.time() > attempt.latest_start:
                    return None
                if attempt.number == 1:
                    waited = started_at - attempt.delivery.deliverable_since
                    metrics.webhook_wait.observe(waited.total_seconds())
                headers = self._headers(attempt, started_at)
                answer = await self._outbound.post(attempt.delivery.url, attempt.body, headers, started_at)
                failpoints.hit("webhook.posted")
        except asyncio.CancelledError:
            answer = Answer("STOPPED")
        except Exception:
            log.exception("webhook_attempt_failed", delivery_id=attempt.delivery.delivery_id)
            answer = Answer("INTERNAL")
        metrics.webhook_attempt(answer.error)
        seconds, delivery = perf_counter() - began, attempt.delivery
        outcome, failed = answer.error or "DELIVERED", answer.error is not None
        traces.request(f"webhook {delivery.event_type}", delivery.order_id, outcome, failed, began)
        return Posted(answer, started_at, round(seconds * 1000))

    def _headers(self, attempt: Attempt, now: datetime) -> dict[str, str]:
        delivery_id = str(attempt.delivery.delivery_id)
        standard_id = delivery_id if attempt.delivery.standard_headers else None
        headers = signature.headers(attempt.signer, self._master_keys, attempt.body, now, standard_id)
        headers[signing.DELIVERY_ID] = delivery_id
        headers[signing.DELIVERY_ATTEMPT] = str(attempt.number)
        headers[signing.ORDER_VERSION] = str(attempt.order_version)
        return headers
