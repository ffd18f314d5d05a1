"""One dealer's receiver is no other dealer's trouble: caps, shares, breakers; and what outlives a lost database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dealer_server.store.webhooks import endpoints
from support.webhook_fixture import (
    OK,
    Dealer,
    Receiver,
    Request,
    WebhookFixture,
    deliver_all,
    eventually,
    hang,
    listening,
    webhook_fixture,
)


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as stage:
        yield stage


@pytest.fixture
async def receivers() -> AsyncIterator[list[Receiver]]:
    async with listening(3) as receivers:
        yield receivers


async def pay(stage: WebhookFixture, dealer: Dealer, count: int) -> list[int]:
    return [await stage.order(dealer) for _ in range(count)]


async def test_a_receiver_that_hangs_delays_no_other_dealer(stage: WebhookFixture, receivers: list[Receiver]):
    hanging, healthy = receivers[:2]
    hanging.answers = [hang]
    dead, alive = await stage.dealer(hanging.url), await stage.dealer(healthy.url)
    await pay(stage, dead, 60)
    await pay(stage, alive, 60)
    # Posts that hang fill every place there is for fresh ones, and still the other dealer's go out.
    async with stage.running(in_flight=16, stop_seconds=0.05):
        await healthy.received(60)
        assert hanging.most_under_way <= 32
    assert {state for _, state in await stage.states(alive)} == {"DELIVERED"}


async def test_a_dealer_has_no_more_in_flight_than_its_cap(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer, go_on = await stage.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    receiver.answers = [held]
    await stage.execute("UPDATE webhook_endpoint SET cap_in_flight = 3 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(stage, dealer, 8)
    async with stage.deliverer() as one, stage.deliverer() as two:
        assert [await one.run_once(), await two.run_once(), await one.run_once()] == [3, 0, 0]
        await receiver.received(3)
        go_on.set()
        await one.settle()
        assert await deliver_all(two) == 5
    assert receiver.most_under_way == 3


async def test_a_backlog_leaves_others_their_share_of_each_batch(stage: WebhookFixture, receivers: list[Receiver]):
    busy, quiet = await stage.dealer(receivers[0].url), await stage.dealer(receivers[1].url)
    await pay(stage, busy, 100)
    await pay(stage, quiet, 2)
    async with stage.deliverer(in_flight=10) as deliverer:
        assert await deliverer.run_once() == 7
        await deliverer.settle()
        assert (len(receivers[0].requests), len(receivers[1].requests)) == (5, 2)


async def test_every_dealer_has_its_turn_however_many_wait(stage: WebhookFixture, receivers: list[Receiver]):
    dealers = [await stage.dealer(receivers[0].url) for _ in range(7)]
    for dealer in dealers:
        await pay(stage, dealer, 3)
    async with stage.deliverer(in_flight=3) as deliverer:
        for _ in range(3):
            await deliverer.run_once()
            await deliverer.settle()
    heard = {request.headers["rt-accesscode"] for request in receivers[0].requests}
    assert heard == {dealer.app_key for dealer in dealers}


async def test_twenty_failures_in_a_row_leave_one_probe_a_minute(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500]
    dealer = await stage.dealer(receiver.url)
    await pay(stage, dealer, 25)
    await stage.execute("UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", dealer.tenant_id)
    async with stage.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 20
        assert (await stage.endpoint(dealer)).consecutive_failures == 20
        untouched = [one for one in await stage.deliveries(dealer) if one["state"] == "READY"]
        assert [one["attempt_count"] for one in untouched] == [0] * 5, "a denied attempt is not counted"
        stage.clock.advance(61)
        assert await deliver_all(deliverer) == 1, "the probe"
        stage.clock.advance(30)
        assert await deliver_all(deliverer) == 0
        stage.clock.advance(31)
        assert await deliver_all(deliverer) == 1, "the next probe"


async def test_two_workers_send_one_probe(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500]
    dealer = await stage.dealer(receiver.url)
    await stage.execute("UPDATE webhook_endpoint SET consecutive_failures = 20 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(stage, dealer, 6)
    async with stage.deliverer() as one, stage.deliverer() as two:
        started = await asyncio.gather(one.run_once(), two.run_once())
        assert sorted(started) == [0, 1]


async def test_a_probe_that_succeeds_brings_what_waits_forward_over_a_minute(
    stage: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealer = await stage.dealer(receiver.url)
    await pay(stage, dealer, 40)
    later = stage.clock() + timedelta(hours=6)
    await stage.execute("UPDATE webhook_endpoint SET consecutive_failures = 33 WHERE tenant_id = $1", dealer.tenant_id)
    await stage.execute(
        "UPDATE webhook_delivery SET due_at = $2 WHERE tenant_id = $1 AND delivery_id % 2 = 0", dealer.tenant_id, later
    )
    async with stage.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 1
        assert await deliver_all(deliverer) == 0, "the breaker closes once the others are spread"
        before = stage.clock()
        await deliverer.upkeep.step()
        assert (await stage.endpoint(dealer)).consecutive_failures == 0
        waits = [
            (one["due_at"] - before).total_seconds()
            for one in await stage.deliveries(dealer)
            if one["state"] == "READY"
        ]
        assert len(waits) == 39 and min(waits) >= 0 and max(waits) <= 61
        assert max(waits) - min(waits) > 20
        stage.clock.advance(62)
        assert await deliver_all(deliverer) == 39


async def test_one_success_forgives_earlier_failures(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    receiver.answers = [500] * 19 + [OK]  # type: ignore[list-item]
    dealer = await stage.dealer(receiver.url)
    await stage.execute("UPDATE webhook_endpoint SET cap_in_flight = 1 WHERE tenant_id = $1", dealer.tenant_id)
    await pay(stage, dealer, 22)
    async with stage.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 22
    endpoint = await stage.endpoint(dealer)
    assert endpoint.consecutive_failures == 0 and endpoint.last_success_at is not None


async def test_two_workers_share_the_work_and_keep_each_order_in_order(
    stage: WebhookFixture, receivers: list[Receiver]
):
    [receiver, *_] = receivers
    dealers = [await stage.dealer(receiver.url) for _ in range(3)]
    orders = [(dealer, order_id) for dealer in dealers for order_id in await pay(stage, dealer, 20)]
    async with stage.running(in_flight=8) as wake, stage.running(in_flight=8) as other:
        for used in range(1, 4):
            for dealer, order_id in orders:
                await (stage.allocate(dealer, order_id) if used == 1 else stage.use(dealer, order_id, used))
            wake.set()
            other.set()
        await eventually(lambda: _all_finished(stage, dealers))
    versions: dict[int, list[int]] = {}
    for request in receiver.requests:
        versions.setdefault(request.json["orderId"], []).append(int(request.headers["rt-order-version"]))
    for seen in versions.values():
        assert seen == sorted(seen) and len(seen) == len(set(seen))
        assert seen[0] == 1 and seen[-1] == 4
    assert len(versions) == 60


async def _all_finished(stage: WebhookFixture, dealers: list[Dealer]) -> bool:
    states = [state for dealer in dealers for _, state in await stage.states(dealer)]
    return all(state in ("DELIVERED", "SUPERSEDED") for state in states)


async def test_results_outlive_a_lost_connection(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer, go_on = await stage.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    receiver.answers = [held]
    await pay(stage, dealer, 5)
    async with stage.deliverer() as deliverer:
        assert await deliverer.run_once() == 5
        await receiver.received(5)
        await _cut_lanes(stage)
        go_on.set()
        await deliverer.settle()
        assert {state for _, state in await stage.states(dealer)} == {"DELIVERED"}
    assert len(receiver.requests) == 5


async def test_the_worker_goes_on_after_its_connections_were_lost(stage: WebhookFixture, receivers: list[Receiver]):
    [receiver, *_] = receivers
    dealer = await stage.dealer(receiver.url)
    async with stage.running() as wake:
        await pay(stage, dealer, 3)
        await receiver.received(3)
        await _cut_lanes(stage)
        await pay(stage, dealer, 3)
        wake.set()
        await receiver.received(6)
        await eventually(lambda: _all_finished(stage, [dealer]))
    assert len({request.headers["rt-delivery-id"] for request in receiver.requests}) == 6


async def _cut_lanes(stage: WebhookFixture) -> None:
    """Ends every connection of a lane to this database, as a restart would."""
    await stage.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name = 'esim-dealer session'"
    )


async def test_what_slipped_in_while_an_endpoint_was_removed_is_given_up(
    stage: WebhookFixture, receivers: list[Receiver]
):
    dealer, stays = await stage.dealer(receivers[0].url), await stage.dealer(receivers[1].url)
    await pay(stage, dealer, 2)
    await pay(stage, stays, 1)
    async with stage.database.connection() as connection:
        await endpoints.set_url(connection, dealer.tenant_id, "", stage.clock())
    async with stage.deliverer() as deliverer:
        await deliverer.upkeep.step()
        assert await deliver_all(deliverer) == 1
    assert {state for _, state in await stage.states(dealer)} == {"SKIPPED"}
    assert [len(receiver.requests) for receiver in receivers] == [0, 1, 0]
