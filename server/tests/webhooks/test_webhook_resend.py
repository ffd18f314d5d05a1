"""Resending one delivery, syncing an order, resend jobs; and usage, which is reported at intervals only."""

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
    webhook_fixture,
)


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        await webhooks.execute("TRUNCATE webhook_job")
        yield webhooks


async def resend(webhooks: WebhookFixture, dealer: Dealer, *delivery_ids: int) -> int:
    async with webhooks.database.transaction() as connection:
        return await webhook_resend.resend(connection, dealer.tenant_id, delivery_ids, webhooks.clock())


async def sync(webhooks: WebhookFixture, dealer: Dealer, *order_ids: int) -> int:
    async with webhooks.database.transaction() as connection:
        return await webhook_resend.sync(connection, dealer.tenant_id, order_ids, webhooks.clock())


async def failed_deliveries(webhooks: WebhookFixture, dealer: Dealer, receiver: Receiver, count: int = 1) -> list[int]:
    """Orders whose only delivery has FAILED; returns the ids of the deliveries."""
    receiver.answers = [500]
    orders = [await webhooks.order(dealer) for _ in range(count)]
    async with webhooks.deliverer(schedule=(0,)) as deliverer:
        while await deliver_all(deliverer):  # without failures on record, so that the breaker stays closed
            await webhooks.execute("UPDATE webhook_endpoint SET consecutive_failures = 0, probe_at = NULL")
    deliveries = [row for order_id in orders for row in await webhooks.deliveries(dealer, order_id)]
    assert {row["state"] for row in deliveries} == {"FAILED"}
    receiver.answers = [OK]
    receiver.requests.clear()
    return [row["delivery_id"] for row in deliveries]


async def test_delivered_delivery_is_resent_with_the_same_bytes_and_id(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        [row] = await webhooks.deliveries(dealer)
        assert await resend(webhooks, dealer, row["delivery_id"]) == 1
        await deliver_all(deliverer)
    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["rt-delivery-id"] == second.headers["rt-delivery-id"] == str(row["delivery_id"])
    assert (first.number, second.number) == (1, 2)
    assert first.headers["x-signature"] != second.headers["x-signature"], "signed anew"
    assert second.verified(dealer.secret).hints == ("ORDER_PAID",)


async def test_failed_resend_of_a_delivered_delivery_stays_delivered_without_retry(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        receiver.answers = [500]
        [row] = await webhooks.deliveries(dealer)
        await resend(webhooks, dealer, row["delivery_id"])
        assert await deliver_all(deliverer) == 1
        [row] = await webhooks.deliveries(dealer)
        assert (row["state"], row["due_at"], row["attempt_count"]) == ("DELIVERED", None, 2)
        # It is still the baseline of the next hints.
        receiver.answers = [OK]
        await webhooks.use(dealer, order_id, 5)
        await deliver_all(deliverer)
    assert receiver.requests[-1].json["changeHints"] == ["USAGE_UPDATED"]


async def test_resend_in_progress_does_not_change_the_baseline(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await webhooks.use(dealer, order_id, 5)
        await deliver_all(deliverer)
        older, newer = await webhooks.deliveries(dealer)
        await resend(webhooks, dealer, older["delivery_id"], newer["delivery_id"])
        await webhooks.use(dealer, order_id, 6)
        await deliver_all(deliverer)
    assert [request.headers["rt-order-version"] for request in receiver.requests] == ["2", "3", "2", "3", "4"]
    assert receiver.requests[-1].json["changeHints"] == ["USAGE_UPDATED"]
    assert {state for _, state in await webhooks.states(dealer)} == {"DELIVERED"}


async def test_resend_of_a_failed_delivery_gets_one_attempt(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    [delivery_id] = await failed_deliveries(webhooks, dealer, receiver)
    receiver.answers = [500, OK]
    async with webhooks.deliverer() as deliverer:
        await resend(webhooks, dealer, delivery_id)
        assert await deliver_all(deliverer) == 1
        assert await webhooks.states(dealer) == [("ORDER_PAID", "FAILED")]
        await resend(webhooks, dealer, delivery_id)
        assert await deliver_all(deliverer) == 1
    assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]
    assert [request.number for request in receiver.requests] == [2, 3]


async def test_resend_of_a_delivery_in_retry_is_due_at_once_and_keeps_its_schedule(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        [row] = await webhooks.deliveries(dealer)
        await resend(webhooks, dealer, row["delivery_id"])
        assert await deliver_all(deliverer) == 1
    [row] = await webhooks.deliveries(dealer)
    assert (row["state"], row["attempt_count"], row["trigger"]) == ("RETRY", 2, "AUTO")


async def test_skipped_delivery_is_frozen_when_it_is_resent(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer()
    order_id = await webhooks.order(dealer)
    await webhooks.allocate(dealer, order_id)
    skipped = await webhooks.deliveries(dealer)
    assert {row["state"] for row in skipped} == {"SKIPPED"}
    async with webhooks.database.transaction() as connection:
        await endpoints.set_url(connection, dealer.tenant_id, receiver.url, webhooks.clock())
    await resend(webhooks, dealer, *[row["delivery_id"] for row in skipped])
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
    assert [request.event for request in receiver.requests] == ["ORDER_PAID", "DELIVERY_UPDATED"]
    assert "ICCID_READY" in receiver.requests[1].json["changeHints"]


async def test_sync_of_an_unchanged_order_is_sent_as_order_snapshot_sync(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert await sync(webhooks, dealer, order_id) == 1
        assert await sync(webhooks, dealer, order_id) == 0, "a sync is unfinished already"
        await deliver_all(deliverer)
    first, second = receiver.requests
    assert second.json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
    assert second.headers["rt-delivery-id"] != first.headers["rt-delivery-id"]
    assert second.json["items"] == first.json["items"]


async def test_sync_is_retried_like_any_event(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    receiver.answers = [500, OK]
    async with webhooks.deliverer() as deliverer:
        await sync(webhooks, dealer, order_id)
        await deliver_all(deliverer)
        assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "RETRY")]
        webhooks.clock.advance(10)
        await deliver_all(deliverer)
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "DELIVERED")]
    assert receiver.requests[0].body == receiver.requests[1].body


async def test_resend_passes_an_open_breaker_and_closes_it(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    orders = [await webhooks.order(dealer) for _ in range(30)]
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert (await webhooks.endpoint(dealer)).consecutive_failures >= 20
        asked = len(receiver.requests)
        receiver.answers = [OK]
        webhooks.clock.advance(8)
        assert await deliver_all(deliverer) == 0, "deliveries in RETRY wait for the probe too"
        [last] = await webhooks.deliveries(dealer, orders[-1])
        await webhooks.execute("UPDATE webhook_delivery SET state = 'FAILED', due_at = NULL, finished_at = now()"
                            " WHERE delivery_id = $1", last["delivery_id"])  # fmt: skip
        await resend(webhooks, dealer, last["delivery_id"])
        await webhooks.execute("UPDATE webhook_endpoint SET probe_at = $1", webhooks.clock() + timedelta(minutes=1))
        assert await deliver_all(deliverer) == 1
        assert receiver.requests[asked].headers["rt-delivery-id"] == str(last["delivery_id"])
        await deliverer.upkeep.step()
        webhooks.clock.advance(61)
        await deliver_all(deliverer)
    assert {state for _, state in await webhooks.states(dealer)} == {"DELIVERED"}


async def test_job_resends_the_counted_deliveries_only(webhooks: WebhookFixture, receiver: Receiver):
    dealer, other = await webhooks.dealer(receiver.url), await webhooks.dealer(receiver.url)
    await failed_deliveries(webhooks, dealer, receiver, 40)
    await failed_deliveries(webhooks, other, receiver, 1)
    selection = DeliverySelection("RESEND", dealer.tenant_id, webhooks.clock() - timedelta(hours=1), webhooks.clock())
    parts = await resend_operations.count(webhooks.database, selection)
    assert [(part.tenant_id, part.total) for part in parts] == [(dealer.tenant_id, 40)]
    [job] = await resend_operations.begin(webhooks.database, selection, parts, "ops", webhooks.clock)
    await failed_deliveries(webhooks, dealer, receiver, 1)

    async with webhooks.running() as wake:
        worker = Resender(webhooks.database, webhooks.clock, wake)
        while await worker.step():
            assert await unfinished(webhooks, dealer) <= 16, "half of the dealer's cap"
        await receiver.received(40)

        async def over() -> bool:
            return await unfinished(webhooks, dealer) == 0

        await eventually(over)
    ended = await resend_operations.job(webhooks.database, job.job_id)
    assert (ended.done, ended.total) == (40, 40) and ended.finished_at
    assert len(receiver.requests) == 40
    states = sorted(state for _, state in await webhooks.states(dealer))
    assert states == ["DELIVERED"] * 40 + ["FAILED"]
    assert await webhooks.states(other) == [("ORDER_PAID", "FAILED")]


async def unfinished(webhooks: WebhookFixture, dealer: Dealer) -> int:
    return sum(state in ("WAITING", "READY", "IN_FLIGHT") for _, state in await webhooks.states(dealer))


async def test_job_continues_after_a_restart_and_a_disabled_endpoint(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await failed_deliveries(webhooks, dealer, receiver, 20)
    selection = DeliverySelection("RESEND", None, webhooks.clock() - timedelta(hours=1), webhooks.clock())
    parts = [
        part
        for part in await resend_operations.count(webhooks.database, selection)
        if part.tenant_id == dealer.tenant_id
    ]
    [job] = await resend_operations.begin(webhooks.database, selection, parts, "ops", webhooks.clock)
    async with webhooks.running() as wake:
        assert await Resender(webhooks.database, webhooks.clock, wake).step() == 1
        await receiver.received(16)
    await webhooks.execute("UPDATE webhook_endpoint SET state = 'DISABLED' WHERE tenant_id = $1", dealer.tenant_id)
    async with webhooks.running() as wake:
        second = Resender(webhooks.database, webhooks.clock, wake)
        assert await second.step() == 1, "the job waits for an endpoint"
        assert (await resend_operations.job(webhooks.database, job.job_id)).done == 16
        async with webhooks.database.transaction() as connection:
            await endpoints.set_url(connection, dealer.tenant_id, receiver.url, webhooks.clock())

        async def over() -> bool:
            return await second.step() == 0

        await eventually(over)
        await receiver.received(20)
    assert len({request.headers["rt-delivery-id"] for request in receiver.requests}) == 20


async def test_sync_job_sends_the_orders_of_a_time_range(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    orders = [await webhooks.order(dealer, paid_event=False) for _ in range(5)]
    selection = DeliverySelection(
        "SYNC", dealer.tenant_id, webhooks.clock() - timedelta(days=3650), webhooks.clock() + timedelta(days=1)
    )
    parts = await resend_operations.count(webhooks.database, selection)
    assert parts[0].total == len(orders)
    await resend_operations.begin(webhooks.database, selection, parts, "ops", webhooks.clock)
    async with webhooks.running() as wake:
        worker = Resender(webhooks.database, webhooks.clock, wake)
        while await worker.step():
            pass
        await receiver.received(len(orders))
    assert {request.event for request in receiver.requests} == {"DELIVERY_UPDATED"}


async def test_stopped_job_sends_no_more_and_every_act_is_audited(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    [delivery_id] = await failed_deliveries(webhooks, dealer, receiver, 1)
    selection = DeliverySelection("RESEND", dealer.tenant_id, webhooks.clock() - timedelta(hours=1), webhooks.clock())
    parts = await resend_operations.count(webhooks.database, selection)
    [job] = await resend_operations.begin(webhooks.database, selection, parts, "ops", webhooks.clock)
    await resend_operations.stop(webhooks.database, job.job_id, "ops", webhooks.clock)
    async with webhooks.running() as wake:
        assert await Resender(webhooks.database, webhooks.clock, wake).step() == 0
    await resend_operations.resend(webhooks.database, dealer.tenant_id, [delivery_id], "ops", webhooks.clock)
    async with webhooks.database.connection() as connection:
        acts = await connection.fetch(
            "SELECT author, action FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id", dealer.tenant_id
        )
    assert [tuple(act) for act in acts] == [
        ("ops", "webhook.resend"),
        ("ops", "webhook.stop"),
        ("ops", "webhook.resend"),
    ]


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"states": ("RETRY",)}, "RETRY"),
        ({"event_type": "PROFILE_READY"}, "PROFILE_READY"),
        ({"tenant_id": 1}, "no tenant 1"),
        ({"end": clock.now() - timedelta(days=2)}, "empty"),
    ],
)
async def test_invalid_selection_is_refused(webhooks: WebhookFixture, changed: dict[str, object], named: str):
    selection = DeliverySelection("RESEND", None, clock.now() - timedelta(days=1), clock.now())._replace(**changed)
    with pytest.raises(OperatorError, match=named):
        await resend_operations.count(webhooks.database, selection)


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
def test_usage_threshold_is_crossed_once(before: int, after: int, total: int | None, crossed: bool):
    assert usage.crossed(before, after, total) is crossed


async def used(
    webhooks: WebhookFixture, dealer: Dealer, order_id: int, usage_bytes: int, *, quietly: bool = True
) -> None:
    """Only usage changed; it crossed a threshold unless `quietly`."""
    async with webhooks.database.transaction() as connection:
        version = await connection.fetchval(
            "UPDATE orders SET version = version + 1 WHERE order_id = $1 RETURNING version", order_id
        )
        await connection.execute("UPDATE profile SET data_usage_bytes = $2 WHERE order_id = $1", order_id, usage_bytes)
        key = (dealer.tenant_id, order_id)
        only_usage = [key] if quietly else []
        await enqueue.order_changed(connection, [(*key, version)], webhooks.clock(), only_usage)


async def test_usage_is_reported_once_in_fifteen_minutes(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await used(webhooks, dealer, order_id, 1)
        assert await deliver_all(deliverer) == 1, "the first is reported at once"
        await used(webhooks, dealer, order_id, 2)
        await used(webhooks, dealer, order_id, 3)
        assert await deliver_all(deliverer) == 0
        webhooks.clock.advance(14 * 60)
        await used(webhooks, dealer, order_id, 4)
        assert await deliver_all(deliverer) == 0
        webhooks.clock.advance(61)
        assert await deliver_all(deliverer) == 1
        assert receiver.requests[-1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 4
        await used(webhooks, dealer, order_id, 5)
        assert await deliver_all(deliverer) == 0
        await used(webhooks, dealer, order_id, 60, quietly=False)
        assert await deliver_all(deliverer) == 1, "a crossed threshold is reported at once, with the update held back"
        await used(webhooks, dealer, order_id, 61)
        await used(webhooks, dealer, order_id, 62)
        await webhooks.change(dealer, order_id, order_status="FULFILLING")
        assert await deliver_all(deliverer) == 1, "any other change is reported at once"
        await used(webhooks, dealer, order_id, 63)
        await webhooks.change(dealer, order_id, order_status="COMPLETED")
        await used(webhooks, dealer, order_id, 64)
        assert await deliver_all(deliverer) == 1, "in any order"
    assert receiver.requests[-1].json["items"][0]["profiles"][0]["dataUsageBytes"] == 64


async def test_credited_refund_goes_after_the_update_and_releases_a_held_back_one(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await used(webhooks, dealer, order_id, 1)
        await deliver_all(deliverer)
        await used(webhooks, dealer, order_id, 2)
        async with webhooks.database.transaction() as connection:
            [delivery_id] = await enqueue.delivery_ids(connection, 1)
            body = b'{"eventType":"REFUND_COMPLETED"}'
            sealed = webhooks.data_keys.seal(body, delivery_context(dealer.tenant_id, delivery_id))
            credit = Credit(dealer.tenant_id, order_id, 4, delivery_id, sealed)
            await enqueue.refunds_credited(connection, [credit], ("REFUND_COMPLETED",), webhooks.clock())
        await deliver_all(deliverer)
    assert [request.event for request in receiver.requests][-2:] == ["DELIVERY_UPDATED", "REFUND_COMPLETED"]
    assert receiver.requests[-1].body == body
