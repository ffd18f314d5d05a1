"""Sending again: one delivery, an order's snapshot, many by a job; and usage, which is told of a few times only."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dealer_server import clock
from dealer_server.db.sealing import delivery_context
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.webhooks import resend as resend_operations
from dealer_server.operations.webhooks.resend import DeliverySelection
from dealer_server.rules.lifecycle import usage
from dealer_server.store.webhooks import endpoints, enqueue
from dealer_server.store.webhooks import resend as webhook_resend
from dealer_server.store.webhooks.enqueue import Credit
from dealer_server.webhooks.resend import Resender
from support.webhook_fixture import (
    OK,
    Dealer,
    Receiver,
    WebhookFixture,
    deliver_all,
    eventually,
    listening,
    webhook_fixture,
)


@pytest.fixture
async def stage(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as stage:
        await stage.execute("TRUNCATE webhook_job")
        yield stage


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with listening(1) as [receiver]:
        yield receiver


async def resend(stage: WebhookFixture, dealer: Dealer, *delivery_ids: int) -> int:
    async with stage.database.transaction() as connection:
        return await webhook_resend.resend(connection, dealer.tenant_id, delivery_ids, stage.clock())


async def sync(stage: WebhookFixture, dealer: Dealer, *order_ids: int) -> int:
    async with stage.database.transaction() as connection:
        return await webhook_resend.sync(connection, dealer.tenant_id, order_ids, stage.clock())


async def failed_for_good(stage: WebhookFixture, dealer: Dealer, receiver: Receiver, count: int = 1) -> list[int]:
    """Orders whose only delivery has failed for good; the ids of the deliveries."""
    receiver.answers = [500]
    orders = [await stage.order(dealer) for _ in range(count)]
    async with stage.deliverer(schedule=(0,)) as deliverer:
        while await deliver_all(deliverer):  # with a clean record each time: this is not about the breaker
            await stage.execute("UPDATE webhook_endpoint SET consecutive_failures = 0, probe_at = NULL")
    deliveries = [row for order_id in orders for row in await stage.deliveries(dealer, order_id)]
    assert {row["state"] for row in deliveries} == {"FAILED"}
    receiver.answers = [OK]
    receiver.requests.clear()
    return [row["delivery_id"] for row in deliveries]


async def test_a_delivered_one_goes_once_more_with_the_same_bytes_and_id(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    await stage.order(dealer)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        [row] = await stage.deliveries(dealer)
        assert await resend(stage, dealer, row["delivery_id"]) == 1
        await deliver_all(deliverer)
    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["rt-delivery-id"] == second.headers["rt-delivery-id"] == str(row["delivery_id"])
    assert (first.number, second.number) == (1, 2)
    assert first.headers["x-signature"] != second.headers["x-signature"], "signed anew"
    assert second.verified(dealer.secret).hints == ("ORDER_PAID",)


async def test_a_delivered_one_that_fails_when_sent_again_stays_delivered_and_is_not_retried(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        receiver.answers = [500]
        [row] = await stage.deliveries(dealer)
        await resend(stage, dealer, row["delivery_id"])
        assert await deliver_all(deliverer) == 1
        [row] = await stage.deliveries(dealer)
        assert (row["state"], row["due_at"], row["attempt_count"]) == ("DELIVERED", None, 2)
        # Its bytes still are what the next hints are computed against.
        receiver.answers = [OK]
        await stage.use(dealer, order_id, 5)
        await deliver_all(deliverer)
    assert receiver.requests[-1].json["changeHints"] == ["USAGE_UPDATED"]


async def test_the_baseline_holds_while_a_delivered_one_is_on_its_way_again(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        await stage.use(dealer, order_id, 5)
        await deliver_all(deliverer)
        older, newer = await stage.deliveries(dealer)
        await resend(stage, dealer, older["delivery_id"], newer["delivery_id"])
        await stage.use(dealer, order_id, 6)
        await deliver_all(deliverer)
    assert [request.headers["rt-order-version"] for request in receiver.requests] == ["2", "3", "2", "3", "4"]
    assert receiver.requests[-1].json["changeHints"] == ["USAGE_UPDATED"]
    assert {state for _, state in await stage.states(dealer)} == {"DELIVERED"}


async def test_one_that_failed_for_good_gets_one_try(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    [delivery_id] = await failed_for_good(stage, dealer, receiver)
    receiver.answers = [500, OK]
    async with stage.deliverer() as deliverer:
        await resend(stage, dealer, delivery_id)
        assert await deliver_all(deliverer) == 1
        assert await stage.states(dealer) == [("ORDER_PAID", "FAILED")]
        await resend(stage, dealer, delivery_id)
        assert await deliver_all(deliverer) == 1
    assert await stage.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert [request.number for request in receiver.requests] == [2, 3]


async def test_one_that_waits_for_a_retry_goes_at_once_and_keeps_its_schedule(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    receiver.answers = [500]
    await stage.order(dealer)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        [row] = await stage.deliveries(dealer)
        await resend(stage, dealer, row["delivery_id"])
        assert await deliver_all(deliverer) == 1
    [row] = await stage.deliveries(dealer)
    assert (row["state"], row["attempt_count"], row["trigger"]) == ("RETRY", 2, "AUTO")


async def test_what_was_skipped_is_frozen_when_it_is_sent_after_all(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer()
    order_id = await stage.order(dealer)
    await stage.allocate(dealer, order_id)
    skipped = await stage.deliveries(dealer)
    assert {row["state"] for row in skipped} == {"SKIPPED"}
    async with stage.database.transaction() as connection:
        await endpoints.set_url(connection, dealer.tenant_id, receiver.url, stage.clock())
    await resend(stage, dealer, *[row["delivery_id"] for row in skipped])
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
    assert [request.event for request in receiver.requests] == ["ORDER_PAID", "DELIVERY_UPDATED"]
    assert "ICCID_READY" in receiver.requests[1].json["changeHints"]


async def test_an_update_that_says_nothing_new_says_so_when_it_is_pushed(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert await sync(stage, dealer, order_id) == 1
        assert await sync(stage, dealer, order_id) == 0, "one is on its way already"
        await deliver_all(deliverer)
    first, second = receiver.requests
    assert second.json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
    assert second.headers["rt-delivery-id"] != first.headers["rt-delivery-id"]
    assert second.json["items"] == first.json["items"]


async def test_a_sync_is_retried_like_any_event(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    receiver.answers = [500, OK]
    async with stage.deliverer() as deliverer:
        await sync(stage, dealer, order_id)
        await deliver_all(deliverer)
        assert await stage.states(dealer) == [("DELIVERY_UPDATED", "RETRY")]
        stage.clock.advance(10)
        await deliver_all(deliverer)
    assert await stage.states(dealer) == [("DELIVERY_UPDATED", "DELIVERED")]
    assert receiver.requests[0].body == receiver.requests[1].body


async def test_what_is_sent_again_passes_an_open_breaker_and_closes_it(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    receiver.answers = [500]
    orders = [await stage.order(dealer) for _ in range(30)]
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert (await stage.endpoint(dealer)).consecutive_failures >= 20
        asked = len(receiver.requests)
        receiver.answers = [OK]
        stage.clock.advance(8)
        assert await deliver_all(deliverer) == 0, "what waits for its retry waits for the probe, too"
        [last] = await stage.deliveries(dealer, orders[-1])
        await stage.execute("UPDATE webhook_delivery SET state = 'FAILED', due_at = NULL, finished_at = now()"
                            " WHERE delivery_id = $1", last["delivery_id"])  # fmt: skip
        await resend(stage, dealer, last["delivery_id"])
        await stage.execute("UPDATE webhook_endpoint SET probe_at = $1", stage.clock() + timedelta(minutes=1))
        assert await deliver_all(deliverer) == 1
        assert receiver.requests[asked].headers["rt-delivery-id"] == str(last["delivery_id"])
        await deliverer.upkeep.step()
        stage.clock.advance(61)
        await deliver_all(deliverer)
    assert {state for _, state in await stage.states(dealer)} == {"DELIVERED"}


async def test_a_job_goes_through_what_was_counted_and_no_further(stage: WebhookFixture, receiver: Receiver):
    dealer, other = await stage.dealer(receiver.url), await stage.dealer(receiver.url)
    await failed_for_good(stage, dealer, receiver, 40)
    await failed_for_good(stage, other, receiver, 1)
    chosen = DeliverySelection("RESEND", dealer.tenant_id, stage.clock() - timedelta(hours=1), stage.clock())
    parts = await resend_operations.count(stage.database, chosen)
    assert [(part.tenant_id, part.total) for part in parts] == [(dealer.tenant_id, 40)]
    [job] = await resend_operations.begin(stage.database, chosen, parts, "ops", stage.clock)
    await failed_for_good(stage, dealer, receiver, 1)

    async with stage.running() as wake:
        worker = Resender(stage.database, stage.clock, wake)
        while await worker.step():
            assert await on_their_way(stage, dealer) <= 16, "half of the dealer's cap"
        await receiver.received(40)

        async def over() -> bool:
            return await on_their_way(stage, dealer) == 0

        await eventually(over)
    ended = await resend_operations.job(stage.database, job.job_id)
    assert (ended.done, ended.total) == (40, 40) and ended.finished_at
    assert len(receiver.requests) == 40
    states = sorted(state for _, state in await stage.states(dealer))
    assert states == ["DELIVERED"] * 40 + ["FAILED"]
    assert await stage.states(other) == [("ORDER_PAID", "FAILED")]


async def on_their_way(stage: WebhookFixture, dealer: Dealer) -> int:
    return sum(state in ("WAITING", "READY", "IN_FLIGHT") for _, state in await stage.states(dealer))


async def test_a_job_survives_its_worker_and_an_endpoint_that_is_gone(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    await failed_for_good(stage, dealer, receiver, 20)
    chosen = DeliverySelection("RESEND", None, stage.clock() - timedelta(hours=1), stage.clock())
    parts = [
        part for part in await resend_operations.count(stage.database, chosen) if part.tenant_id == dealer.tenant_id
    ]
    [job] = await resend_operations.begin(stage.database, chosen, parts, "ops", stage.clock)
    async with stage.running() as wake:
        assert await Resender(stage.database, stage.clock, wake).step() == 1
        await receiver.received(16)
    await stage.execute("UPDATE webhook_endpoint SET state = 'DISABLED' WHERE tenant_id = $1", dealer.tenant_id)
    async with stage.running() as wake:
        second = Resender(stage.database, stage.clock, wake)
        assert await second.step() == 1, "it waits for an endpoint"
        assert (await resend_operations.job(stage.database, job.job_id)).done == 16
        async with stage.database.transaction() as connection:
            await endpoints.set_url(connection, dealer.tenant_id, receiver.url, stage.clock())

        async def over() -> bool:
            return await second.step() == 0

        await eventually(over)
        await receiver.received(20)
    assert len({request.headers["rt-delivery-id"] for request in receiver.requests}) == 20


async def test_a_job_sends_the_orders_of_a_time_as_they_stand(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    orders = [await stage.order(dealer, paid_event=False) for _ in range(5)]
    chosen = DeliverySelection(
        "SYNC", dealer.tenant_id, stage.clock() - timedelta(days=3650), stage.clock() + timedelta(days=1)
    )
    parts = await resend_operations.count(stage.database, chosen)
    assert parts[0].total == len(orders)
    await resend_operations.begin(stage.database, chosen, parts, "ops", stage.clock)
    async with stage.running() as wake:
        worker = Resender(stage.database, stage.clock, wake)
        while await worker.step():
            pass
        await receiver.received(len(orders))
    assert {request.event for request in receiver.requests} == {"DELIVERY_UPDATED"}


async def test_a_stopped_job_sends_no_more_and_every_act_is_in_the_audit_log(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    [delivery_id] = await failed_for_good(stage, dealer, receiver, 1)
    chosen = DeliverySelection("RESEND", dealer.tenant_id, stage.clock() - timedelta(hours=1), stage.clock())
    parts = await resend_operations.count(stage.database, chosen)
    [job] = await resend_operations.begin(stage.database, chosen, parts, "ops", stage.clock)
    await resend_operations.stop(stage.database, job.job_id, "ops", stage.clock)
    async with stage.running() as wake:
        assert await Resender(stage.database, stage.clock, wake).step() == 0
    await resend_operations.resend(stage.database, dealer.tenant_id, [delivery_id], "ops", stage.clock)
    async with stage.database.connection() as connection:
        acts = await connection.fetch(
            "SELECT author, action FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id", dealer.tenant_id
        )
    assert [tuple(act) for act in acts] == [
        ("ops", "webhook.resend"),
        ("ops", "webhook.stop"),
        ("ops", "webhook.resend"),
    ]


@pytest.mark.parametrize(
    ("spoilt", "named"),
    [
        ({"states": ("RETRY",)}, "RETRY"),
        ({"event_type": "PROFILE_READY"}, "PROFILE_READY"),
        ({"tenant_id": 1}, "no tenant 1"),
        ({"end": clock.now() - timedelta(days=2)}, "empty"),
    ],
)
async def test_a_choice_that_makes_no_sense_is_refused(stage: WebhookFixture, spoilt: dict[str, object], named: str):
    chosen = DeliverySelection("RESEND", None, clock.now() - timedelta(days=1), clock.now())._replace(**spoilt)
    with pytest.raises(OperatorError, match=named):
        await resend_operations.count(stage.database, chosen)


# Usage


@pytest.mark.parametrize(
    ("before", "after", "total", "crossed"),
    [
        (0, 49, 100, False),
        (49, 50, 100, True),
        (50, 79, 100, False),
        (79, 80, 100, True),
        (80, 89, 100, False),
        (89, 95, 100, True),
        (95, 99, 100, False),
        (99, 100, 100, True),
        (100, 140, 100, False),
        (0, 1_000, 100, True),
        (10, 90, None, False),
    ],
)
def test_a_mark_is_crossed_once(before: int, after: int, total: int | None, crossed: bool):
    assert usage.crossed(before, after, total) is crossed


async def used(stage: WebhookFixture, dealer: Dealer, order_id: int, usage_bytes: int, *, quietly: bool = True) -> None:
    """Usage alone changed; no mark was crossed where it is quiet."""
    async with stage.database.transaction() as connection:
        version = await connection.fetchval(
            "UPDATE orders SET version = version + 1 WHERE order_id = $1 RETURNING version", order_id
        )
        await connection.execute("UPDATE profile SET data_usage_bytes = $2 WHERE order_id = $1", order_id, usage_bytes)
        key = (dealer.tenant_id, order_id)
        only_usage = [key] if quietly else []
        await enqueue.order_changed(connection, [(*key, version)], stage.clock(), only_usage)


async def test_usage_is_told_of_once_in_a_quarter_of_an_hour(stage: WebhookFixture, receiver: Receiver):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer() as deliverer:
        await deliver_all(deliverer)
        await used(stage, dealer, order_id, 1)
        assert await deliver_all(deliverer) == 1, "the first at once"
        await used(stage, dealer, order_id, 2)
        await used(stage, dealer, order_id, 3)
        assert await deliver_all(deliverer) == 0
        stage.clock.advance(14 * 60)
        await used(stage, dealer, order_id, 4)
        assert await deliver_all(deliverer) == 0
        stage.clock.advance(61)
        assert await deliver_all(deliverer) == 1
        assert receiver.requests[-1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 4
        await used(stage, dealer, order_id, 5)
        assert await deliver_all(deliverer) == 0
        await used(stage, dealer, order_id, 60, quietly=False)
        assert await deliver_all(deliverer) == 1, "a mark is told of at once, with what waited"
        await used(stage, dealer, order_id, 61)
        await used(stage, dealer, order_id, 62)
        await stage.change(dealer, order_id, order_status="FULFILLING")
        assert await deliver_all(deliverer) == 1, "so is any other change"
        await used(stage, dealer, order_id, 63)
        await stage.change(dealer, order_id, order_status="COMPLETED")
        await used(stage, dealer, order_id, 64)
        assert await deliver_all(deliverer) == 1, "whatever came first"
    assert receiver.requests[-1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 64


async def test_a_credited_refund_goes_after_what_it_changed_and_hurries_what_was_held_back(
    stage: WebhookFixture, receiver: Receiver
):
    dealer = await stage.dealer(receiver.url)
    order_id = await stage.order(dealer, paid_event=False)
    await stage.allocate(dealer, order_id)
    async with stage.deliverer() as deliverer:
        await used(stage, dealer, order_id, 1)
        await deliver_all(deliverer)
        await used(stage, dealer, order_id, 2)
        async with stage.database.transaction() as connection:
            [delivery_id] = await enqueue.delivery_ids(connection, 1)
            body = b'{"eventType":"REFUND_COMPLETED"}'
            sealed = stage.data_keys.seal(body, delivery_context(dealer.tenant_id, delivery_id))
            credit = Credit(dealer.tenant_id, order_id, 4, delivery_id, sealed)
            await enqueue.refunds_credited(connection, [credit], ("REFUND_COMPLETED",), stage.clock())
        await deliver_all(deliverer)
    assert [request.event for request in receiver.requests][-2:] == ["DELIVERY_UPDATED", "REFUND_COMPLETED"]
    assert receiver.requests[-1].body == body
