"""Clocks that step by an hour, between attempts and in flight, and failures that outlast the worker: nothing is lost,
no ninth attempt is made without a resend, and a lease expires by the clock."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Collection

import pytest

from dealer_server.operations.audit.check_invariants import Scope, check_invariants
from dealer_server.operations.webhooks import endpoint as webhook
from dealer_server.store.webhooks.circuit_breaker import PROBE_INTERVAL
from esim_dealer.wire.calls import ResendDelivery
from support.webhook_fixture import (
    OK,
    Dealer,
    Receiver,
    Request,
    WebhookFixture,
    answer,
    deliver_all,
    eventually,
    webhook_fixture,
)

HOUR = 3_600
DAY = 24 * HOUR
LEASE_SECONDS = 60
WEBHOOK_INVARIANTS = frozenset(("A13", "A14", "A15", "A16"))
WAYS = {
    "forward": [HOUR] * 8,
    "back": [-HOUR] * 8,
    "forward and back": [HOUR, -HOUR] * 4,
    "back and forward": [-HOUR, HOUR] * 4,
}


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


class Held:
    """An answer that is sent when it is released."""

    def __init__(self, said: bytes):
        self._said = said
        self._go_on = asyncio.Event()

    async def __call__(self, request: Request, _: object) -> bytes:
        await self._go_on.wait()
        return self._said

    def release(self) -> None:
        self._go_on.set()


async def until_due(webhooks: WebhookFixture, dealer: Dealer) -> None:
    """Time passes until the dealer's next delivery is due, if any is."""
    due = [one["due_at"] for one in await webhooks.deliveries(dealer) if one["due_at"] is not None]
    if due:
        webhooks.clock.advance(max((min(due) - webhooks.clock()).total_seconds(), 0))


async def resend(webhooks: WebhookFixture, dealer: Dealer, delivery_id: int) -> None:
    """The dealer requests a resend."""
    await webhook.resend(
        webhooks.database, dealer.tenant_id, ResendDelivery(delivery_id=str(delivery_id)), webhooks.clock()
    )


async def audit_is_clean(
    webhooks: WebhookFixture, dealer: Dealer, invariants: Collection[str] = WEBHOOK_INVARIANTS
) -> None:
    report = await check_invariants(
        webhooks.database, webhooks.master_keys, webhooks.data_keys, webhooks.clock(), Scope(dealer.tenant_id)
    )
    assert [report[code] for code in report.violated if code in invariants] == []


# Between attempts


@pytest.mark.parametrize("steps", WAYS.values(), ids=WAYS)
async def test_clock_step_between_attempts_changes_no_attempt_count(
    webhooks: WebhookFixture, receiver: Receiver, steps: list[int]
):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    await webhooks.order(dealer)
    made = []
    async with webhooks.deliverer() as deliverer:
        for step in steps:
            made.append(await deliver_all(deliverer))
            webhooks.clock.advance(step)
            await until_due(webhooks, dealer)
        assert made == [1] * 8
        webhooks.clock.advance(2 * DAY)
        assert await deliver_all(deliverer) == 0
    assert [request.number for request in receiver.requests] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len({request.body for request in receiver.requests}) == 1
    [row] = await webhooks.deliveries(dealer)
    assert (row["state"], row["attempt_count"]) == ("FAILED", 8)
    assert [one["error"] for one in await webhooks.attempts(dealer)] == ["STATUS"] * 8


async def test_retry_becomes_due_after_a_clock_step_forward_and_waits_after_a_step_back(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500, 500, OK]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        webhooks.clock.advance(HOUR)
        assert await deliver_all(deliverer) == 1, "the retry of 5 s"
        webhooks.clock.advance(-HOUR)
        assert await deliver_all(deliverer) == 0
        webhooks.clock.advance(40)
        assert await deliver_all(deliverer) == 0, "that of 30 s counts from the hour before"
        webhooks.clock.advance(HOUR)
        assert await deliver_all(deliverer) == 1
    assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]


async def test_events_of_an_order_go_in_order_after_the_clock_stepped_back(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    waiting = await webhooks.order(dealer)
    webhooks.clock.advance(-HOUR)
    await webhooks.allocate(dealer, waiting)
    fresh = await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert [request.json["orderId"] for request in receiver.requests] == [fresh], (
            "only this one is due by the new clock"
        )
        await webhooks.use(dealer, waiting, 5)
        webhooks.clock.advance(HOUR)
        await deliver_all(deliverer)
    received = [request for request in receiver.requests if request.json["orderId"] == waiting]
    assert [(request.event, request.number) for request in received] == [("ORDER_PAID", 1), ("DELIVERY_UPDATED", 1)]
    assert received[1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 5


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_open_breaker_sends_its_probe_after_a_clock_step(webhooks: WebhookFixture, receiver: Receiver, step: int):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    await webhooks.execute(
        "UPDATE webhook_endpoint SET consecutive_failures = 20, probe_at = $2 WHERE tenant_id = $1",
        dealer.tenant_id,
        webhooks.clock() + PROBE_INTERVAL,
    )
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 0
        webhooks.clock.advance(step)
        if step < 0:
            assert await deliver_all(deliverer) == 0
            webhooks.clock.advance(HOUR + 61)
        assert await deliver_all(deliverer) == 1
        await deliverer.upkeep.step()
    assert (await webhooks.endpoint(dealer)).consecutive_failures == 0


# In flight


@pytest.mark.parametrize("late", [200, 500, 410])
@pytest.mark.parametrize("first", ["the late answer", "the next attempt"])
async def test_lease_expires_after_a_clock_step_forward_and_the_late_answer_is_ignored(
    webhooks: WebhookFixture, receiver: Receiver, late: int, first: str
):
    dealer, held = await webhooks.dealer(receiver.url), Held(answer(late))
    receiver.answers = [held, OK]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as slow, webhooks.deliverer() as deliverer:
        assert await slow.run_once() == 1
        await receiver.received(1)
        webhooks.clock.advance(HOUR)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await webhooks.states(dealer) == [("ORDER_PAID", "RETRY")], "LOST, and due at once"
        if first == "the late answer":
            held.release()
            await slow.settle()
            assert await webhooks.states(dealer) == [("ORDER_PAID", "RETRY")]
        assert await deliver_all(deliverer) == 1
        held.release()
        await slow.settle()
    one, two = receiver.requests
    assert (one.number, two.number) == (1, 2) and one.body == two.body
    assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert [(row["number"], row["error"]) for row in await webhooks.attempts(dealer)] == [(1, "LOST"), (2, None)]
    endpoint = await webhooks.endpoint(dealer)
    assert (endpoint.state, endpoint.consecutive_failures) == ("ACTIVE", 0)
    await audit_is_clean(
        webhooks, dealer, WEBHOOK_INVARIANTS - {"A16"}
    )  # A16 needs fulfillment, which does not run here


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_worker_takes_back_its_own_lease_at_most_once_after_a_clock_step(
    webhooks: WebhookFixture, receiver: Receiver, step: int
):
    """One worker, which takes back its own lease while its attempt is under way."""
    dealer, held = await webhooks.dealer(receiver.url), Held(OK)
    receiver.answers = [held, OK]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliverer.run_once()
        await receiver.received(1)
        webhooks.clock.advance(step)
        await deliverer.upkeep.step()
        if step > 0:
            await eventually(lambda: _is(webhooks, dealer, "RETRY"))
            assert await deliverer.run_once() == 1
            await receiver.received(2)
        assert await deliverer.run_once() == 0
        held.release()
        await deliverer.settle()
    assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert len(receiver.requests) == (2 if step > 0 else 1)
    assert len({request.body for request in receiver.requests}) == 1


async def _is(webhooks: WebhookFixture, dealer: Dealer, state: str) -> bool:
    return {found for _, found in await webhooks.states(dealer)} == {state}


@pytest.mark.parametrize(("said", "state"), [(200, "DELIVERED"), (500, "RETRY"), (410, "FAILED")])
async def test_clock_step_back_in_flight_does_not_affect_the_result(
    webhooks: WebhookFixture, receiver: Receiver, said: int, state: str
):
    dealer, held = await webhooks.dealer(receiver.url), Held(answer(said))
    receiver.answers = [held, OK]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as one, webhooks.deliverer() as other:
        await one.run_once()
        await receiver.received(1)
        webhooks.clock.advance(-HOUR)
        await other.upkeep.step()
        assert await deliver_all(other) == 0, "the lease holds"
        held.release()
        await one.settle()
        assert await webhooks.states(dealer) == [("ORDER_PAID", state)]
        webhooks.clock.advance(6)
        assert await deliver_all(other) == (1 if state == "RETRY" else 0), "5 s by the new clock"
    assert [row["number"] for row in await webhooks.attempts(dealer)] == list(range(1, len(receiver.requests) + 1))


async def test_lease_of_a_dead_worker_expires_after_the_clock_stepped_back(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer() as crashed, webhooks.deliverer() as deliverer:
        [lost] = (await crashed.claimer.claim(10)).attempts
        webhooks.clock.advance(-HOUR)
        for seconds in (0, LEASE_SECONDS + 1, HOUR - 2 * LEASE_SECONDS):
            webhooks.clock.advance(seconds)
            await deliverer.upkeep.step()
            await deliverer.settle()
            assert await deliver_all(deliverer) == 0, "the lease expires by the clock that set it"
        webhooks.clock.advance(2 * LEASE_SECONDS)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await deliver_all(deliverer) == 1
    [request] = receiver.requests
    assert (request.number, request.body) == (2, lost.body)


async def test_eight_expired_leases_count_as_eight_attempts(webhooks: WebhookFixture, receiver: Receiver):
    """A clock that runs ahead, or workers that die again and again, must not send for ever."""
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    for number in range(1, 9):
        async with webhooks.deliverer() as crashed, webhooks.deliverer() as deliverer:
            [lost] = (await crashed.claimer.claim(10)).attempts
            assert lost.number == number
            webhooks.clock.advance(HOUR)
            await deliverer.upkeep.step()
            await deliverer.settle()
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 0
    assert await webhooks.states(dealer) == [("ORDER_PAID", "FAILED")]
    assert [row["error"] for row in await webhooks.attempts(dealer)] == ["LOST"] * 8
    assert receiver.requests == []


async def test_events_of_every_order_go_in_order_while_the_clock_steps(webhooks: WebhookFixture, receiver: Receiver):
    chance, accepting = random.Random(9), False

    async def sometimes_fails(request: Request, _: object) -> bytes:
        return OK if accepting or chance.random() < 0.875 else answer(503)

    receiver.answers = [sometimes_fails]
    dealers = [await webhooks.dealer(receiver.url) for _ in range(2)]
    orders = [(dealer, await webhooks.order(dealer)) for dealer in dealers for _ in range(6)]
    used = itertools.count(1)
    for dealer, order_id in orders:
        await webhooks.allocate(dealer, order_id)
    async with webhooks.running(schedule=(0, *[0.02] * 7)) as wake:
        for step in (HOUR, -HOUR, HOUR, HOUR, -HOUR, -HOUR):
            received = len(receiver.requests)
            for dealer, order_id in orders:
                await webhooks.use(dealer, order_id, next(used))
            wake.set()
            await receiver.received(received + 1)
            webhooks.clock.advance(step)
            for dealer, order_id in orders[::2]:
                await webhooks.use(dealer, order_id, next(used))
            if step < 0:
                webhooks.clock.advance(HOUR)  # back to the time before
            wake.set()
        accepting = True

        async def all_finished() -> bool:
            states = {state for dealer in dealers for _, state in await webhooks.states(dealer)}
            return states <= {"DELIVERED", "SUPERSEDED"}

        await eventually(all_finished)
    received_of = defaultdict(list)
    for request in receiver.requests:
        received_of[request.json["orderId"]].append(request)
    for dealer, order_id in orders:
        *_, last = await webhooks.deliveries(dealer, order_id)
        firsts = [int(request.headers["rt-order-version"]) for request in received_of[order_id] if request.number == 1]
        assert firsts == sorted(firsts)
        assert max(firsts) == last["order_version"], "the last change arrived"
    bodies = defaultdict(set)
    for request in receiver.requests:
        assert request.number <= 8
        bodies[request.headers["rt-delivery-id"]].add(request.body)
    assert all(len(one) == 1 for one in bodies.values())
    for dealer in dealers:
        await audit_is_clean(webhooks, dealer)


# Failed for good


async def test_failed_delivery_is_resent_on_demand_after_a_restart(webhooks: WebhookFixture, receiver: Receiver):
    dealer, accepts = await webhooks.dealer(receiver.url), False

    async def refuse_updates(request: Request, _: object) -> bytes:
        return OK if accepts or request.event == "ORDER_PAID" else answer(500)

    receiver.answers = [refuse_updates]
    order_id = await webhooks.order(dealer)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer(schedule=(0,) * 8) as deliverer:
        await deliver_all(deliverer)
    _, failed = await webhooks.deliveries(dealer)
    assert (failed["state"], failed["attempt_count"]) == ("FAILED", 8)
    async with webhooks.deliverer() as restarted:
        webhooks.clock.advance(2 * DAY)
        await restarted.upkeep.step()
        assert await deliver_all(restarted) == 0, "no resend was requested"
        await resend(webhooks, dealer, failed["delivery_id"])
    async with webhooks.deliverer() as restarted:
        assert await deliver_all(restarted) == 1, "the resend survives a restart"
        _, once_more = await webhooks.deliveries(dealer)
        assert (once_more["state"], once_more["attempt_count"]) == ("FAILED", 9), "one try"
        webhooks.clock.advance(2 * DAY)
        assert await deliver_all(restarted) == 0
        accepts = True
        await resend(webhooks, dealer, failed["delivery_id"])
        assert await deliver_all(restarted) == 1
        await webhooks.use(dealer, order_id, 5)
        await deliver_all(restarted)
    updates = [request for request in receiver.requests if request.event == "DELIVERY_UPDATED"]
    *same, after = updates
    assert [request.number for request in same] == list(range(1, 11))
    assert len({(request.body, request.headers["rt-delivery-id"]) for request in same}) == 1
    assert after.json["changeHints"] == ["USAGE_UPDATED"], "the difference to the resent update"
    assert [state for _, state in await webhooks.states(dealer)] == ["DELIVERED"] * 3
    await audit_is_clean(webhooks, dealer)


async def test_delivery_that_failed_under_a_wrong_clock_can_be_resent(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500] * 8 + [OK]  # type: ignore[list-item]
    await webhooks.order(dealer)
    webhooks.clock.advance(HOUR)
    async with webhooks.deliverer(schedule=(0,) * 8) as deliverer:
        await deliver_all(deliverer)
    webhooks.clock.advance(-HOUR)
    [failed] = await webhooks.deliveries(dealer)
    assert failed["state"] == "FAILED" and failed["finished_at"] > webhooks.clock()
    async with webhooks.deliverer() as restarted:
        await resend(webhooks, dealer, failed["delivery_id"])
        assert await deliver_all(restarted) == 1
    assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]
