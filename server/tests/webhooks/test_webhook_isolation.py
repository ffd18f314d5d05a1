"""One dealer's receiver does not affect other dealers: caps, shares, circuit breakers. And lost connections."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dealer_server.store.webhooks import endpoints
from support.patience import PATIENCE
from support.webhook_fixture import (
    OK,
    Answering,
    Dealer,
    Receiver,
    Request,
    StillClock,
    WebhookFixture,
    deliver_all,
    eventually,
    hang,
    listening,
    webhook_fixture,
)


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


@pytest.fixture
async def receivers() -> AsyncIterator[list[Receiver]]:
    async with listening(3) as receivers:
        yield receivers


async def pay(webhooks: WebhookFixture, dealer: Dealer, count: int) -> list[int]:
    return [await webhooks.order(dealer) for _ in range(count)]


async def test_hanging_receiver_delays_no_other_dealer(webhooks: WebhookFixture, receivers: list[Receiver]):
    hanging, healthy = receivers[:2]
    hanging.answers = [hang]
    dead, alive = await webhooks.dealer(hanging.url), await webhooks.dealer(healthy.url)
    await pay(webhooks, dead, 60)
    await pay(webhooks, alive, 60)
    # Hanging attempts use up the limit for fast ones, and the other dealer's deliveries still go out.
    async with webhooks.running(in_flight=16, stop_seconds=0.05):
        await healthy.received(60)
        assert hanging.most_under_way <= 32
    assert {state for _, state in await webhooks.states(alive)} == {"DELIVERED"}


def answering_after(go_on: asyncio.Event) -> Answering:
    async def answer(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    return answer


async def test_dealer_has_at_most_its_cap_in_flight(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    receiver.answers = [answering_after(go_on)]
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 3 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(webhooks, dealer, 8)
    async with webhooks.deliverer() as one, webhooks.deliverer() as two:
        assert [await one.run_once(), await two.run_once(), await one.run_once()] == [3, 0, 0]
        await receiver.received(3)
        go_on.set()
        await one.settle()
        assert await deliver_all(two) == 5
    assert receiver.most_under_way == 3


async def test_what_a_receiver_has_accepted_leaves_room_before_it_is_recorded(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    receiver.answers = [answering_after(go_on)]
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 3 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(webhooks, dealer, 6)
    async with webhooks.deliverer() as deliverer:
        assert [await deliverer.run_once(), await deliverer.run_once()] == [3, 0]
        await receiver.received(3)
        async with webhooks.database.transaction() as connection:  # nothing can be recorded meanwhile
            locked = await connection.fetch("SELECT FROM webhook_delivery WHERE state = 'IN_FLIGHT' FOR UPDATE")
            assert len(locked) == 3
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                started = 0
                while started < 3:
                    started += await deliverer.run_once()
            await receiver.received(6)
    assert receiver.most_under_way == 3
    assert [state for _, state in await webhooks.states(dealer)] == ["DELIVERED"] * 6


async def test_a_quick_receiver_is_read_ahead_for_and_gets_no_more_at_a_time(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 3 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(webhooks, dealer, 20)
    async with webhooks.deliverer(quick_seconds=PATIENCE) as deliverer:
        assert await deliverer.run_once() == 3
        await deliverer.settle()
        receiver.answers = [answering_after(go_on)]
        assert [await deliverer.run_once(), await deliverer.run_once()] == [9, 0]
        await receiver.received(6)
        go_on.set()
        await deliverer.settle()
        assert receiver.most_under_way == 3
        receiver.answers = [500]
        assert await deliverer.run_once() == 8, "all that is left"
        await deliverer.settle()
        await pay(webhooks, dealer, 20)
        assert await deliverer.run_once() == 3, "a receiver that fails is not read ahead for"
        await deliverer.settle()


async def test_deliveries_that_wait_for_their_turn_are_due_again_when_the_worker_stops(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 3 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(webhooks, dealer, 12)
    async with webhooks.deliverer(quick_seconds=PATIENCE, stop_seconds=0.05) as deliverer:
        assert await deliverer.run_once() == 3
        await deliverer.settle()
        receiver.answers = [hang]
        assert await deliverer.run_once() == 9
        await receiver.received(6)
        await deliverer.stop()
    assert len(receiver.requests) == 6
    assert Counter(state for _, state in await webhooks.states(dealer)) == {"DELIVERED": 3, "RETRY": 9}
    receiver.answers = [OK]
    async with webhooks.deliverer() as other:
        assert await deliver_all(other) == 9


async def test_backlog_of_one_dealer_leaves_others_their_share_of_each_batch(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    busy, quiet = await webhooks.dealer(receivers[0].url), await webhooks.dealer(receivers[1].url)
    await pay(webhooks, busy, 100)
    await pay(webhooks, quiet, 2)
    async with webhooks.deliverer(in_flight=10) as deliverer:
        assert await deliverer.run_once() == 7
        await deliverer.settle()
        assert (len(receivers[0].requests), len(receivers[1].requests)) == (5, 2)


async def test_every_dealer_gets_a_turn_when_many_have_work(webhooks: WebhookFixture, receivers: list[Receiver]):
    dealers = [await webhooks.dealer(receivers[0].url) for _ in range(7)]
    for dealer in dealers:
        await pay(webhooks, dealer, 3)
    async with webhooks.deliverer(in_flight=3) as deliverer:
        for _ in range(3):
            await deliverer.run_once()
            await deliverer.settle()
    received_by = {request.headers["rt-accesscode"] for request in receivers[0].requests}
    assert received_by == {dealer.app_key for dealer in dealers}


async def test_open_breaker_allows_one_probe_a_minute(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500]
    webhooks.clock = StillClock()  # no retry becomes due meanwhile
    dealer = await webhooks.dealer(receiver.url)
    await pay(webhooks, dealer, 25)
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", dealer.tenant_id)
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 20
        assert (await webhooks.endpoint(dealer)).consecutive_failures == 20
        untouched = [one for one in await webhooks.deliveries(dealer) if one["state"] == "READY"]
        assert [one["attempt_count"] for one in untouched] == [0] * 5, (
            "an attempt that the breaker stops is not counted"
        )
        webhooks.clock.advance(61)
        assert await deliver_all(deliverer) == 1, "the probe"
        webhooks.clock.advance(30)
        assert await deliver_all(deliverer) == 0
        webhooks.clock.advance(31)
        assert await deliver_all(deliverer) == 1, "the next probe"


async def test_two_workers_send_one_probe(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500]
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.execute(
        "UPDATE webhook_endpoint SET consecutive_failures = 20 WHERE tenant_id = $1", dealer.tenant_id
    )
    await pay(webhooks, dealer, 6)
    async with webhooks.deliverer() as one, webhooks.deliverer() as two:
        started = await asyncio.gather(one.run_once(), two.run_once())
        assert sorted(started) == [0, 1]


async def test_successful_probe_spreads_waiting_deliveries_over_a_minute(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealer = await webhooks.dealer(receiver.url)
    await pay(webhooks, dealer, 40)
    later = webhooks.clock() + timedelta(hours=6)
    await webhooks.execute(
        "UPDATE webhook_endpoint SET consecutive_failures = 33 WHERE tenant_id = $1", dealer.tenant_id
    )
    await webhooks.execute(
        "UPDATE webhook_delivery SET due_at = $2 WHERE tenant_id = $1 AND delivery_id % 2 = 0", dealer.tenant_id, later
    )
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 1
        assert await deliver_all(deliverer) == 0, "the breaker closes once the others are spread"
        before = webhooks.clock()
        await deliverer.upkeep.step()
        assert (await webhooks.endpoint(dealer)).consecutive_failures == 0
        waits = [
            (one["due_at"] - before).total_seconds()
            for one in await webhooks.deliveries(dealer)
            if one["state"] == "READY"
        ]
        assert len(waits) == 39 and min(waits) >= 0 and max(waits) <= 61
        assert max(waits) - min(waits) > 20
        webhooks.clock.advance(62)
        assert await deliver_all(deliverer) == 39


async def test_success_resets_the_failure_count(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500] * 19 + [OK]  # type: ignore[list-item]
    webhooks.clock = StillClock()  # no retry becomes due meanwhile
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.execute("UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(webhooks, dealer, 22)
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 22
    endpoint = await webhooks.endpoint(dealer)
    assert endpoint.consecutive_failures == 0 and endpoint.last_success_at is not None


async def test_two_workers_share_work_and_keep_each_order_in_order(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealers = [await webhooks.dealer(receiver.url) for _ in range(3)]
    orders = [(dealer, order_id) for dealer in dealers for order_id in await pay(webhooks, dealer, 20)]
    async with webhooks.running(in_flight=8) as wake, webhooks.running(in_flight=8) as other:
        for used in range(1, 4):
            for dealer, order_id in orders:
                await (webhooks.allocate(dealer, order_id) if used == 1 else webhooks.use(dealer, order_id, used))
            wake.set()
            other.set()
        await eventually(lambda: _all_finished(webhooks, dealers))
    versions: dict[int, list[int]] = {}
    for request in receiver.requests:
        versions.setdefault(request.json["orderId"], []).append(int(request.headers["rt-order-version"]))
    for seen in versions.values():
        assert seen == sorted(seen) and len(seen) == len(set(seen))
        assert seen[0] == 1 and seen[-1] == 4
    assert len(versions) == 60


async def _all_finished(webhooks: WebhookFixture, dealers: list[Dealer]) -> bool:
    states = [state for dealer in dealers for _, state in await webhooks.states(dealer)]
    return all(state in ("DELIVERED", "SUPERSEDED") for state in states)


async def test_results_are_recorded_after_a_lost_connection(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    receiver.answers = [held]
    await pay(webhooks, dealer, 5)
    async with webhooks.deliverer() as deliverer:
        assert await deliverer.run_once() == 5
        await receiver.received(5)
        await _end_worker_connections(webhooks)
        go_on.set()
        await deliverer.settle()
        assert {state for _, state in await webhooks.states(dealer)} == {"DELIVERED"}
    assert len(receiver.requests) == 5


async def test_worker_continues_after_lost_connections(webhooks: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer = await webhooks.dealer(receiver.url)
    async with webhooks.running() as wake:
        await pay(webhooks, dealer, 3)
        await receiver.received(3)
        await _end_worker_connections(webhooks)
        await pay(webhooks, dealer, 3)
        wake.set()
        await receiver.received(6)
        await eventually(lambda: _all_finished(webhooks, [dealer]))
    assert len({request.headers["rt-delivery-id"] for request in receiver.requests}) == 6


async def _end_worker_connections(webhooks: WebhookFixture) -> None:
    """Ends every worker connection to this database, as a restart of PostgreSQL does."""
    await webhooks.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'esim-dealer session'"
    )


async def test_delivery_enqueued_while_endpoint_is_removed_is_skipped(
    webhooks: WebhookFixture, receivers: list[Receiver]
):
    dealer, stays = await webhooks.dealer(receivers[0].url), await webhooks.dealer(receivers[1].url)
    await pay(webhooks, dealer, 2)
    await pay(webhooks, stays, 1)
    async with webhooks.database.connection() as connection:
        await endpoints.set_url(connection, dealer.tenant_id, "", webhooks.clock())
    async with webhooks.deliverer() as deliverer:
        await deliverer.upkeep.step()
        assert await deliver_all(deliverer) == 1
    assert {state for _, state in await webhooks.states(dealer)} == {"SKIPPED"}
    assert [len(receiver.requests) for receiver in receivers] == [0, 1, 0]
