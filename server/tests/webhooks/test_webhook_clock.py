"""Clocks that step by an hour, between attempts and in flight, and failures that outlive the worker: nothing is lost,
nothing is sent a ninth time unasked, and a lease ends when the clock says so."""

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Collection

import pytest

from dealer_server.operations.audit.check_invariants import check_invariants
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
    listening,
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
async def stage(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as stage:
        yield stage


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening(1) as [receiver]:
        yield receiver


class Held:
    """An answer that comes when it is let go."""

    def __init__(self, said: bytes):
        self._said = said
        self._go_on = asyncio.Event()

    async def __call__(self, request: Request, _: object) -> bytes:
        await self._go_on.wait()
        return self._said

    def let_go(self) -> None:
        self._go_on.set()


async def until_due(stage: WebhookFixture, dealer: Dealer) -> None:
    """Time passes until the dealer's next delivery is due, if any is."""
    due = [one["due_at"] for one in await stage.deliveries(dealer) if one["due_at"] is not None]
    if due:
        stage.clock.advance(max((min(due) - stage.clock()).total_seconds(), 0))


async def again(stage: WebhookFixture, dealer: Dealer, delivery_id: int) -> None:
    """The dealer asks for a delivery again."""
    await webhook.resend(stage.database, dealer.tenant_id, ResendDelivery(delivery_id=str(delivery_id)), stage.clock())


async def books_are_right(
    stage: WebhookFixture, dealer: Dealer, invariants: Collection[str] = WEBHOOK_INVARIANTS
) -> None:
    report = await check_invariants(
        stage.database, stage.master_keys, stage.data_keys, stage.clock(), tenant_id=dealer.tenant_id
    )
    assert [report[code] for code in report.violated if code in invariants] == []


# Between attempts


@pytest.mark.parametrize("steps", WAYS.values(), ids=WAYS)
async def test_a_clock_that_steps_between_attempts_neither_loses_nor_adds_one(
    stage: WebhookFixture, receiver: Receiver, steps: list[int]
):
    dealer = await stage.dealer(receiver.url)
    receiver.answers = [500]
    await stage.order(dealer)
    made = []
    async with stage.deliverer() as deliverer:
        for step in steps:
            made.append(await deliver_all(deliverer))
            stage.clock.advance(step)
            await until_due(stage, dealer)
        assert made == [1] * 8
        stage.clock.advance(2 * DAY)
        assert await deliver_all(deliverer) == 0
    assert [request.number for request in receiver.requests] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert len({request.body for request in receiver.requests}) == 1
    [row] = await stage.deliveries(dealer)
    assert (row["state"], row["attempt_count"]) == ("FAILED", 8)
    assert [one["error"] for one in await stage.attempts(dealer)] == ["STATUS"] * 8


async def test_an_hour_forward_makes_due_what_waited_for_less_and_an_hour_back_makes_it_wait(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    receiver.answers = [500, 500, OK]
    await stage.order(dealer)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        stage.clock.advance(HOUR)
        assert await deliver_all(deliverer) == 1, "the retry of 5 s"
        stage.clock.advance(-HOUR)
        assert await deliver_all(deliverer) == 0
        stage.clock.advance(40)
        assert await deliver_all(deliverer) == 0, "that of 30 s counts from the hour before"
        stage.clock.advance(HOUR)
        assert await deliver_all(deliverer) == 1
    assert await stage.states(dealer) == [("ORDER_PAID", "DELIVERED")]


async def test_an_order_that_changes_after_the_clock_stepped_back_is_told_of_in_order(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    waiting = await stage.order(dealer)
    stage.clock.advance(-HOUR)
    await stage.allocate(dealer, waiting)
    fresh = await stage.order(dealer)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert [request.json["orderId"] for request in receiver.requests] == [fresh], "it is due by the new clock"
        await stage.use(dealer, waiting, 5)
        stage.clock.advance(HOUR)
        await deliver_all(deliverer)
    heard = [request for request in receiver.requests if request.json["orderId"] == waiting]
    assert [(request.event, request.number) for request in heard] == [("ORDER_PAID", 1), ("DELIVERY_UPDATED", 1)]
    assert heard[1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 5


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_an_open_breaker_lets_its_probe_pass_whatever_the_clock_does(
    stage: WebhookFixture, receiver: Receiver, step: int
):
    dealer = await stage.dealer(receiver.url)
    await stage.order(dealer)
    await stage.execute(
        "UPDATE webhook_endpoint SET consecutive_failures = 20, probe_at = $2 WHERE tenant_id = $1",
        dealer.tenant_id,
        stage.clock() + PROBE_INTERVAL,
    )
    async with stage.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 0
        stage.clock.advance(step)
        if step < 0:
            assert await deliver_all(deliverer) == 0
            stage.clock.advance(HOUR + 61)
        assert await deliver_all(deliverer) == 1
        await deliverer.upkeep.step()
    assert (await stage.endpoint(dealer)).consecutive_failures == 0


# In flight


@pytest.mark.parametrize("late", [200, 500, 410])
@pytest.mark.parametrize("first", ["the late answer", "the next attempt"])
async def test_an_hour_forward_in_flight_ends_the_lease_and_the_late_answer_changes_nothing(
    stage: WebhookFixture, receiver: Receiver, late: int, first: str
):
    dealer, held = await stage.dealer(receiver.url), Held(answer(late))
    receiver.answers = [held, OK]
    await stage.order(dealer)
    async with stage.deliverer() as slow, stage.deliverer() as deliverer:
        assert await slow.run_once() == 1
        await receiver.received(1)
        stage.clock.advance(HOUR)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await stage.states(dealer) == [("ORDER_PAID", "RETRY")], "LOST, and due at once"
        if first == "the late answer":
            held.let_go()
            await slow.settle()
            assert await stage.states(dealer) == [("ORDER_PAID", "RETRY")]
        assert await deliver_all(deliverer) == 1
        held.let_go()
        await slow.settle()
    one, two = receiver.requests
    assert (one.number, two.number) == (1, 2) and one.body == two.body
    assert await stage.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert [(row["number"], row["error"]) for row in await stage.attempts(dealer)] == [(1, "LOST"), (2, None)]
    endpoint = await stage.endpoint(dealer)
    assert (endpoint.state, endpoint.consecutive_failures) == ("ACTIVE", 0)
    await books_are_right(stage, dealer, WEBHOOK_INVARIANTS - {"A16"})  # nobody works on the codes of this order


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_the_worker_whose_clock_stepped_takes_its_own_lease_back_at_most_once(
    stage: WebhookFixture, receiver: Receiver, step: int
):
    """One worker, which looks after its leases itself while its attempt is under way."""
    dealer, held = await stage.dealer(receiver.url), Held(OK)
    receiver.answers = [held, OK]
    await stage.order(dealer)
    async with stage.deliverer() as deliverer:
        await deliverer.run_once()
        await receiver.received(1)
        stage.clock.advance(step)
        await deliverer.upkeep.step()
        if step > 0:
            await eventually(lambda: _is(stage, dealer, "RETRY"))
            assert await deliverer.run_once() == 1
            await receiver.received(2)
        assert await deliverer.run_once() == 0
        held.let_go()
        await deliverer.settle()
    assert await stage.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert len(receiver.requests) == (2 if step > 0 else 1)
    assert len({request.body for request in receiver.requests}) == 1


async def _is(stage: WebhookFixture, dealer: Dealer, state: str) -> bool:
    return {found for _, found in await stage.states(dealer)} == {state}


@pytest.mark.parametrize(("said", "state"), [(200, "DELIVERED"), (500, "RETRY"), (410, "FAILED")])
async def test_an_hour_back_in_flight_leaves_the_attempt_and_its_record_as_they_are(
    stage: WebhookFixture, receiver: Receiver, said: int, state: str
):
    dealer, held = await stage.dealer(receiver.url), Held(answer(said))
    receiver.answers = [held, OK]
    await stage.order(dealer)
    async with stage.deliverer() as one, stage.deliverer() as other:
        await one.run_once()
        await receiver.received(1)
        stage.clock.advance(-HOUR)
        await other.upkeep.step()
        assert await deliver_all(other) == 0, "the lease holds"
        held.let_go()
        await one.settle()
        assert await stage.states(dealer) == [("ORDER_PAID", state)]
        stage.clock.advance(6)
        assert await deliver_all(other) == (1 if state == "RETRY" else 0), "5 s by the new clock"
    assert [row["number"] for row in await stage.attempts(dealer)] == list(range(1, len(receiver.requests) + 1))


async def test_what_a_dead_worker_held_when_the_clock_stepped_back_is_taken_back_in_the_end(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    await stage.order(dealer)
    async with stage.deliverer() as crashed, stage.deliverer() as deliverer:
        [lost] = (await crashed.claimer.claim(10)).attempts
        stage.clock.advance(-HOUR)
        for seconds in (0, LEASE_SECONDS + 1, HOUR - 2 * LEASE_SECONDS):
            stage.clock.advance(seconds)
            await deliverer.upkeep.step()
            await deliverer.settle()
            assert await deliver_all(deliverer) == 0, "its lease ends by the clock it was given by"
        stage.clock.advance(2 * LEASE_SECONDS)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await deliver_all(deliverer) == 1
    [request] = receiver.requests
    assert (request.number, request.body) == (2, lost.body)


async def test_eight_leases_that_ran_out_are_eight_attempts(stage: WebhookFixture, receiver: Receiver):
    """A clock that runs ahead, or workers that die for ever, must not send for ever."""
    dealer = await stage.dealer(receiver.url)
    await stage.order(dealer)
    for number in range(1, 9):
        async with stage.deliverer() as crashed, stage.deliverer() as deliverer:
            [lost] = (await crashed.claimer.claim(10)).attempts
            assert lost.number == number
            stage.clock.advance(HOUR)
            await deliverer.upkeep.step()
            await deliverer.settle()
    async with stage.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 0
    assert await stage.states(dealer) == [("ORDER_PAID", "FAILED")]
    assert [row["error"] for row in await stage.attempts(dealer)] == ["LOST"] * 8
    assert receiver.requests == []


async def test_whatever_the_clock_does_to_a_running_worker_every_order_is_told_in_order(
    stage: WebhookFixture, receiver: Receiver
):
    chance, calm = random.Random(9), False

    async def moody(request: Request, _: object) -> bytes:
        return OK if calm or chance.random() < 0.875 else answer(503)

    receiver.answers = [moody]
    dealers = [await stage.dealer(receiver.url) for _ in range(2)]
    orders = [(dealer, await stage.order(dealer)) for dealer in dealers for _ in range(6)]
    used = itertools.count(1)
    for dealer, order_id in orders:
        await stage.allocate(dealer, order_id)
    async with stage.running(schedule=(0, *[0.02] * 7)) as wake:
        for step in (HOUR, -HOUR, HOUR, HOUR, -HOUR, -HOUR):
            heard = len(receiver.requests)
            for dealer, order_id in orders:
                await stage.use(dealer, order_id, next(used))
            wake.set()
            await receiver.received(heard + 1)
            stage.clock.advance(step)
            for dealer, order_id in orders[::2]:
                await stage.use(dealer, order_id, next(used))
            if step < 0:
                stage.clock.advance(HOUR)  # it passes
            wake.set()
        calm = True

        async def all_told() -> bool:
            states = {state for dealer in dealers for _, state in await stage.states(dealer)}
            return states <= {"DELIVERED", "SUPERSEDED"}

        await eventually(all_told)
    heard_of = defaultdict(list)
    for request in receiver.requests:
        heard_of[request.json["orderId"]].append(request)
    for dealer, order_id in orders:
        *_, last = await stage.deliveries(dealer, order_id)
        firsts = [int(request.headers["rt-order-version"]) for request in heard_of[order_id] if request.number == 1]
        assert firsts == sorted(firsts)
        assert max(firsts) == last["order_version"], "the last word arrived"
    bodies = defaultdict(set)
    for request in receiver.requests:
        assert request.number <= 8
        bodies[request.headers["rt-delivery-id"]].add(request.body)
    assert all(len(one) == 1 for one in bodies.values())
    for dealer in dealers:
        await books_are_right(stage, dealer)


# Failed for good


async def test_what_failed_outlives_the_worker_and_goes_again_when_asked(stage: WebhookFixture, receiver: Receiver):
    dealer, accepts = await stage.dealer(receiver.url), False

    async def refuse_updates(request: Request, _: object) -> bytes:
        return OK if accepts or request.event == "ORDER_PAID" else answer(500)

    receiver.answers = [refuse_updates]
    order_id = await stage.order(dealer)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer(schedule=(0,) * 8) as deliverer:
        await deliver_all(deliverer)
    _, failed = await stage.deliveries(dealer)
    assert (failed["state"], failed["attempt_count"]) == ("FAILED", 8)
    async with stage.deliverer() as restarted:
        stage.clock.advance(2 * DAY)
        await restarted.upkeep.step()
        assert await deliver_all(restarted) == 0, "nobody asked"
        await again(stage, dealer, failed["delivery_id"])
    async with stage.deliverer() as restarted:
        assert await deliver_all(restarted) == 1, "the asking outlives a restart too"
        _, once_more = await stage.deliveries(dealer)
        assert (once_more["state"], once_more["attempt_count"]) == ("FAILED", 9), "one try"
        stage.clock.advance(2 * DAY)
        assert await deliver_all(restarted) == 0
        accepts = True
        await again(stage, dealer, failed["delivery_id"])
        assert await deliver_all(restarted) == 1
        await stage.use(dealer, order_id, 5)
        await deliver_all(restarted)
    updates = [request for request in receiver.requests if request.event == "DELIVERY_UPDATED"]
    *same, after = updates
    assert [request.number for request in same] == list(range(1, 11))
    assert len({(request.body, request.headers["rt-delivery-id"]) for request in same}) == 1
    assert after.json["changeHints"] == ["USAGE_UPDATED"], "the difference to what went in the end"
    assert [state for _, state in await stage.states(dealer)] == ["DELIVERED"] * 3
    await books_are_right(stage, dealer)


async def test_what_failed_while_the_clock_was_wrong_goes_again_as_well(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    receiver.answers = [500] * 8 + [OK]  # type: ignore[list-item]
    await stage.order(dealer)
    stage.clock.advance(HOUR)
    async with stage.deliverer(schedule=(0,) * 8) as deliverer:
        await deliver_all(deliverer)
    stage.clock.advance(-HOUR)
    [failed] = await stage.deliveries(dealer)
    assert failed["state"] == "FAILED" and failed["finished_at"] > stage.clock()
    async with stage.deliverer() as restarted:
        await again(stage, dealer, failed["delivery_id"])
        assert await deliver_all(restarted) == 1
    assert await stage.states(dealer) == [("ORDER_PAID", "DELIVERED")]
