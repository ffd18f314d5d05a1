"""What becomes of a delivery after an attempt, and what do attempts say about an endpoint? Values only, no I/O."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.rules.webhooks import backoff
from dealer_server.store.webhooks.circuit_breaker import EndpointResults
from dealer_server.store.webhooks.claim import Claimed
from dealer_server.store.webhooks.results import DeliveryResult
from dealer_server.store.webhooks.upkeep import ExpiredLease
from dealer_server.webhooks.claim import Attempt
from dealer_server.webhooks.outbound import GONE, Answer
from dealer_server.webhooks.post import Posted
from esim_dealer.wire.vocabulary import AttemptError, DeliveryState

# Failures of the worker: LOST when it did not record the attempt, STOPPED when it was stopped in the middle. They count
# as attempts and say nothing about the endpoint.
OWN_FAILURES: frozenset[AttemptError] = frozenset(("LOST", "STOPPED", "INTERNAL"))


class Outcome(NamedTuple):
    """The end of a claim: the result to record, and where the attempt went."""

    result: DeliveryResult
    url: str = ""  # '' if no attempt was made
    record_until: float = 0.0  # loop time; how long recording is tried again while the database is lost

    @property
    def tenant_id(self) -> int:
        return self.result.tenant_id


def after_attempt(attempt: Attempt, posted: Posted, schedule: Sequence[float], now: datetime) -> Outcome:
    delivery, answer = attempt.delivery, posted.answer
    state, due_at = _next(delivery, attempt.number, answer, schedule, now)
    result = DeliveryResult(
        tenant_id=delivery.tenant_id,
        order_id=delivery.order_id,
        delivery_id=delivery.delivery_id,
        claim=attempt.claim,
        state=state,
        due_at=due_at,
        number=attempt.number,
        started_at=posted.started_at,
        duration_ms=posted.duration_ms,
        remote_address=answer.remote_address,
        http_status=answer.status,
        error=answer.error,
        answer_head=answer.head or None,
        answer_fields=answer.fields or None,
    )
    return Outcome(result, delivery.url, attempt.latest_start)


def unchanged(delivery: Claimed, claim: int, now: datetime) -> Outcome:
    """The dealer has received this content already: no attempt is made."""
    return Outcome(
        DeliveryResult(
            tenant_id=delivery.tenant_id,
            order_id=delivery.order_id,
            delivery_id=delivery.delivery_id,
            claim=claim,
            state="SUPERSEDED",
            due_at=None,
            number=None,
            started_at=now,
        )
    )


def lease_expired(lease: ExpiredLease, started_at: datetime, schedule: Sequence[float], now: datetime) -> Outcome:
    """The attempt was counted and its answer is unknown: it is made again at once."""
    if lease.attempt_count:
        state, due_at = _next(lease, lease.attempt_count, Answer("LOST"), schedule, now)
    else:  # it was claimed with unchanged content
        state, due_at = "SUPERSEDED", None
    return Outcome(
        DeliveryResult(
            tenant_id=lease.tenant_id,
            order_id=lease.order_id,
            delivery_id=lease.delivery_id,
            claim=lease.claim,
            state=state,
            due_at=due_at,
            number=lease.attempt_count or None,
            started_at=started_at,
            error="LOST",
        )
    )


def _next(
    delivery: Claimed | ExpiredLease, attempts: int, answer: Answer, schedule: Sequence[float], now: datetime
) -> tuple[DeliveryState, datetime | None]:
    """The state after so many attempts, and when the next one is due. A resend gets one attempt."""
    if answer.error is None:
        return "DELIVERED", None
    if delivery.trigger == "RESEND":
        return "DELIVERED" if delivery.delivered_before else "FAILED", None
    wait = backoff.delay_seconds(attempts, random.random(), answer.retry_after_seconds, schedule)
    if wait is None or answer.status == GONE:
        return "FAILED", None
    if answer.error in ("LOST", "STOPPED"):
        wait = 0.0
    return "RETRY", now + timedelta(seconds=wait)


def endpoint_results(outcomes: Sequence[Outcome]) -> list[EndpointResults]:
    """The results of attempts, given in the order in which they ended, by endpoint."""
    by_endpoint: dict[tuple[int, str], EndpointResults] = {}
    for result, url, _ in outcomes:
        if not url or result.error in OWN_FAILURES:
            continue
        key = (result.tenant_id, url)
        before = by_endpoint.get(key) or EndpointResults(*key, succeeded=False, failures=0, gone=False)
        if result.error is None:
            by_endpoint[key] = before._replace(succeeded=True, failures=0)
        else:
            by_endpoint[key] = before._replace(
                failures=before.failures + 1, gone=before.gone or result.http_status == GONE
            )
    return sorted(by_endpoint.values())
