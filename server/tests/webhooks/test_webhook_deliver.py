"""The webhook worker against real receivers: order of events, merging, retries, what is sent and what is stored."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec
import pytest

from dealer_server import metrics
from dealer_server.db.sealing import credential_context, delivery_context
from dealer_server.rules.webhooks.backoff import SCHEDULE_SECONDS
from dealer_server.store.tenants import credential
from dealer_server.store.webhooks import endpoints
from dealer_server.webhooks import outcome
from dealer_server.webhooks.loop import Batch
from dealer_server.webhooks.outbound import Answer
from dealer_server.webhooks.post import Posted
from support.webhook_fixture import (
    OK,
    Receiver,
    Request,
    StillClock,
    WebhookFixture,
    answer,
    deliver_all,
    hang,
    listening,
    webhook_fixture,
)

ADDED = ("amount", "createTime", "updateTime")  # fields that older snapshots lack


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


@pytest.fixture
async def other() -> AsyncIterator[Receiver]:
    async with listening(1) as [receiver]:
        yield receiver


async def test_order_is_reported_from_payment_to_delivery_in_signed_snapshots(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, quantity=2)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 2
    paid, updated = [request.verified(dealer.secret) for request in receiver.requests]
    assert (paid.event_type, paid.hints, paid.order_version) == ("ORDER_PAID", ("ORDER_PAID",), 1)
    assert paid.snapshot.items and not paid.snapshot.items[0].profiles
    assert (updated.event_type, updated.order_version, updated.attempt) == ("DELIVERY_UPDATED", 2, 1)
    assert updated.hints[:4] == ("ICCID_READY", "QR_CODE_READY", "ACTIVATION_CODE_READY", "DELIVERY_STATUS_CHANGED")
    assert len(updated.snapshot.items[0].profiles or ()) == 2
    assert updated.dedupe_key != paid.dedupe_key
    assert [one["state"] for one in await webhooks.deliveries(dealer)] == ["DELIVERED", "DELIVERED"]
    attempts = await webhooks.attempts(dealer)
    assert [(one["number"], one["http_status"], one["error"]) for one in attempts] == [(1, 200, None)] * 2
    assert attempts[0]["remote_address"] == "127.0.0.1" and attempts[0]["answer_head"] == "ok"


async def test_body_is_sealed_at_rest_and_compact_on_the_wire(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.allocate(dealer, await webhooks.order(dealer))
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
    sent = receiver.requests[1].body
    assert b"LPA:1$" in sent and b'": ' not in sent and b"\n" not in sent
    assert b"LPA:1$" not in b"".join([one["body"] for one in await webhooks.deliveries(dealer)])


async def test_order_paid_goes_before_delivery_updated_even_if_the_worker_is_late(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    orders = [await webhooks.order(dealer) for _ in range(20)]
    for order_id in orders:
        await webhooks.allocate(dealer, order_id)
    async with webhooks.running():
        await receiver.received(40)
    by_order: dict[str, list[str]] = {}
    for request in receiver.requests:
        by_order.setdefault(request.json["orderNo"], []).append(request.event)
    assert list(by_order.values()) == [["ORDER_PAID", "DELIVERY_UPDATED"]] * 20


async def test_changes_during_an_attempt_become_one_event(webhooks: WebhookFixture, receiver: Receiver):
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    receiver.answers = [held, OK]
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        assert await deliverer.run_once() == 1
        await receiver.received(1)
        for used in (100, 200, 300):
            await webhooks.use(dealer, order_id, used)
        assert await deliverer.run_once() == 0, "one request in flight per order"
        go_on.set()
        await deliverer.settle()
        await deliver_all(deliverer)
    first, second = receiver.requests
    assert second.json["changeHints"] == ["USAGE_UPDATED"]
    assert second.json["items"][0]["profiles"][0]["dataUsageBytes"] == 300
    assert (first.headers["rt-order-version"], second.headers["rt-order-version"]) == ("2", "5")


async def test_newer_update_supersedes_a_failed_one_and_carries_its_hints(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500, OK]
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "RETRY")]
        await webhooks.use(dealer, order_id, 5)
        assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "SUPERSEDED"), ("DELIVERY_UPDATED", "READY")]
        await deliver_all(deliverer)
    failed, second = receiver.requests
    assert set(second.json["changeHints"]) == {*failed.json["changeHints"], "USAGE_UPDATED"}
    assert second.headers["rt-delivery-id"] != failed.headers["rt-delivery-id"]
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "SUPERSEDED"), ("DELIVERY_UPDATED", "DELIVERED")]


async def test_superseded_metric_counts_committed_changes_only(webhooks: WebhookFixture, receiver: Receiver):
    def superseded_count() -> float | None:
        return metrics.REGISTRY.get_sample_value("dealer_webhook_superseded_total")

    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500, OK]
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        before = superseded_count() or 0
        with pytest.raises(ZeroDivisionError):
            async with webhooks.database.transaction() as connection:
                await webhooks.change_in(connection, dealer, order_id)
                raise ZeroDivisionError
        assert superseded_count() == before
        await webhooks.use(dealer, order_id, 5)
        assert superseded_count() == before + 1


async def test_failed_update_is_superseded_by_a_change_during_its_attempt(webhooks: WebhookFixture, receiver: Receiver):
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return answer(503)

    receiver.answers = [held, OK]
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliverer.run_once()
        await receiver.received(1)
        await webhooks.use(dealer, order_id, 7)
        go_on.set()
        await deliverer.settle()
        assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "SUPERSEDED"), ("DELIVERY_UPDATED", "READY")]
        await deliver_all(deliverer)
    assert "ICCID_READY" in receiver.requests[1].json["changeHints"]


async def test_order_paid_in_retry_does_not_delay_delivery_updated(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500, OK]
    order_id = await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await webhooks.allocate(dealer, order_id)
        await deliver_all(deliverer)
        assert await webhooks.states(dealer) == [("ORDER_PAID", "RETRY"), ("DELIVERY_UPDATED", "DELIVERED")]
        webhooks.clock.advance(10)
        await deliver_all(deliverer)
    assert [request.event for request in receiver.requests] == ["ORDER_PAID", "DELIVERY_UPDATED", "ORDER_PAID"]
    assert [request.number for request in receiver.requests] == [1, 1, 2]
    assert receiver.requests[0].body == receiver.requests[2].body


async def test_retries_send_the_same_bytes_with_a_new_signature(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500, 500, OK]
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        # A change without an event, such as the acceptance of a refund, must not change the frozen body.
        await webhooks.execute("UPDATE orders SET order_status = 'REFUNDING' WHERE order_id = $1", order_id)
        for _ in range(2):
            webhooks.clock.advance(60)
            await deliver_all(deliverer)
    events = [request.verified(dealer.secret) for request in receiver.requests]
    assert len({request.body for request in receiver.requests}) == 1
    assert len({request.headers["rt-requestid"] for request in receiver.requests}) == 3
    assert len({request.headers["rt-timestamp"] for request in receiver.requests}) == 3
    assert [event.attempt for event in events] == [1, 2, 3]
    assert len({event.dedupe_key for event in events}) == 1


async def test_delivery_fails_after_eight_attempts_on_schedule(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    await webhooks.order(dealer)
    schedule = (0, 0.02, 0.03, 0.02, 0.03, 0.02, 0.03, 0.05)
    async with webhooks.running(schedule=schedule):
        requests = await receiver.received(8)
    assert [request.number for request in requests] == [1, 2, 3, 4, 5, 6, 7, 8]
    waits = [after.at - before.at for before, after in itertools.pairwise(requests)]
    assert all(wait >= planned * 0.9 for wait, planned in zip(waits, schedule[1:], strict=True))
    [row] = await webhooks.deliveries(dealer)
    assert (row["state"], row["attempt_count"], row["due_at"]) == ("FAILED", 8, None)
    async with webhooks.deliverer(schedule=schedule) as deliverer:
        webhooks.clock.advance(86_400)
        assert await deliver_all(deliverer) == 0
    assert [(one["number"], one["error"]) for one in await webhooks.attempts(dealer)] == [
        (number, "STATUS") for number in range(1, 9)
    ]


async def test_delay_is_that_of_the_schedule_within_its_jitter(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [500]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        for wait in (5, 30, 120, 600, 3_600, 21_600, 86_400):
            before = webhooks.clock()
            await deliver_all(deliverer)
            [row] = await webhooks.deliveries(dealer)
            assert wait * 0.9 <= (row["due_at"] - before).total_seconds() <= wait * 1.1 + 5
            webhooks.clock.advance(wait * 1.1 + 5)


async def test_retry_after_lengthens_the_delay_to_the_next_one_at_most(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [
        answer(503, "Retry-After: 20"),
        answer(503, "Retry-After: 86400"),
        answer(429, "Retry-After: 1"),
    ]
    await webhooks.order(dealer)
    waits = []
    async with webhooks.deliverer() as deliverer:
        for _ in range(3):
            before = webhooks.clock()
            await deliver_all(deliverer)
            [row] = await webhooks.deliveries(dealer)
            waits.append((row["due_at"] - before).total_seconds())
            webhooks.clock.advance(waits[-1] + 1)
    assert 19 < waits[0] < 25
    assert 119 < waits[1] < 125  # two minutes: the next but one delay
    assert 107 < waits[2] < 137  # Retry-After never shortens the delay


async def test_status_410_disables_the_endpoint_and_skips_later_deliveries(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [410]
    first = await webhooks.order(dealer)
    await webhooks.allocate(dealer, first)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert (await webhooks.endpoint(dealer)).state == "DISABLED"
        await deliverer.upkeep.step()
        assert await webhooks.states(dealer) == [("ORDER_PAID", "FAILED"), ("DELIVERY_UPDATED", "SKIPPED")]
        later = await webhooks.order(dealer)
        await webhooks.allocate(dealer, later)
        assert await webhooks.states(dealer, later) == [("ORDER_PAID", "SKIPPED"), ("DELIVERY_UPDATED", "SKIPPED")]
        assert await deliver_all(deliverer) == 0
    assert len(receiver.requests) == 1


async def test_status_410_of_an_old_url_does_not_disable_the_new_one(
    webhooks: WebhookFixture, receiver: Receiver, other: Receiver
):
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return answer(410)

    receiver.answers = [held]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        await deliverer.run_once()
        await receiver.received(1)
        async with webhooks.database.connection() as connection:
            await endpoints.set_url(connection, dealer.tenant_id, other.url, webhooks.clock())
        go_on.set()
        await deliverer.settle()
        assert (await webhooks.endpoint(dealer)).state == "ACTIVE"
        assert (await webhooks.endpoint(dealer)).consecutive_failures == 0


async def test_update_equal_to_the_last_delivered_one_is_not_sent(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await webhooks.change(dealer, order_id, remark="not shown")
        await deliverer.run_once()
        await deliverer.settle()
        _, silent = await webhooks.deliveries(dealer)
        assert (silent["state"], silent["hints"], silent["attempt_count"]) == ("SUPERSEDED", [], 0)
        await webhooks.use(dealer, order_id, 9)
        await deliver_all(deliverer)
    assert [request.json["changeHints"] for request in receiver.requests[1:]] == [["USAGE_UPDATED"]]


async def test_later_update_time_alone_makes_no_event(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    webhooks.clock = StillClock()
    async with webhooks.deliverer() as worker:
        order_id = await webhooks.order(dealer, paid_event=False)
        await webhooks.allocate(dealer, order_id)
        await deliver_all(worker)
        webhooks.clock.advance(60)
        await webhooks.change(dealer, order_id)
        await deliver_all(worker)
    assert [one.event for one in receiver.requests] == ["DELIVERY_UPDATED"]
    assert [state for _, state in await webhooks.states(dealer, order_id)] == ["DELIVERED", "SUPERSEDED"]


async def test_snapshot_delivered_before_three_fields_were_added_is_a_baseline(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    webhooks.clock = StillClock()
    async with webhooks.deliverer() as worker:
        order_id = await webhooks.order(dealer, paid_event=False)
        await webhooks.allocate(dealer, order_id)
        await deliver_all(worker)
        first = receiver.requests[0].json
        assert first.keys() >= {*ADDED}
        [row] = await webhooks.deliveries(dealer, order_id)
        old = msgspec.json.encode({name: value for name, value in first.items() if name not in ADDED})
        sealed = webhooks.data_keys.seal(old, delivery_context(dealer.tenant_id, row["delivery_id"]))
        await webhooks.execute(
            "UPDATE webhook_delivery SET body = $2 WHERE delivery_id = $1", row["delivery_id"], sealed
        )
        webhooks.clock.advance(60)
        await webhooks.change(dealer, order_id)
        await deliver_all(worker)
        assert len(receiver.requests) == 1, "nothing but the fields that were added differs"
        await webhooks.use(dealer, order_id, 100)
        await deliver_all(worker)
    assert receiver.requests[1].json["changeHints"] == ["USAGE_UPDATED"]
    later = datetime.fromisoformat(receiver.requests[1].json["updateTime"])
    assert later - datetime.fromisoformat(first["updateTime"]) == timedelta(seconds=60)


async def test_change_that_no_hint_names_is_sent_as_order_snapshot_sync(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        await webhooks.change(dealer, order_id, pay_status="REFUNDED")
        await deliver_all(deliverer)
    assert receiver.requests[1].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]


async def test_both_secrets_sign_after_a_reset_until_the_old_one_expires(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    sealed = webhooks.master_keys.seal(b"sk_test_new", credential_context(dealer.tenant_id, dealer.app_key, 2))
    until = webhooks.clock() + timedelta(hours=24)
    async with webhooks.database.connection() as connection:
        await credential.reset_secret(connection, dealer.app_key, dealer.tenant_id, 2, sealed, until)
    async with webhooks.deliverer() as deliverer:
        await webhooks.order(dealer)
        await deliver_all(deliverer)
        webhooks.clock.advance(25 * 3_600)
        await webhooks.order(dealer)
        await deliver_all(deliverer)
    during, later = receiver.requests
    assert during.verified(dealer.secret) and during.verified("sk_test_new")
    assert "x-signature-previous" in during.headers and "x-signature-previous" not in later.headers
    del during.headers["x-signature-previous"]
    assert during.verified("sk_test_new"), "X-Signature is made with the new secret"


async def test_delivery_frozen_before_a_crash_is_superseded_by_the_next_change(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as crashed, webhooks.deliverer() as deliverer:
        [lost] = (
            await crashed.claimer.claim(10)
        ).attempts  # claimed, frozen, superseded_count; then the process is gone
        await webhooks.use(dealer, order_id, 77)
        assert await deliver_all(deliverer) == 0, "the lease holds"
        webhooks.clock.advance(61)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "SUPERSEDED"), ("DELIVERY_UPDATED", "READY")]
    assert lost.number == 1 and receiver.requests == []


async def test_expired_lease_counts_as_a_lost_attempt(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer() as crashed, webhooks.deliverer() as deliverer:
        [lost] = (await crashed.claimer.claim(10)).attempts
        webhooks.clock.advance(61)
        await deliverer.upkeep.step()
        await deliverer.settle()
        assert await deliver_all(deliverer) == 1
        # The first worker records after all: that must change nothing.
        posted = Posted(Answer(None, 200), webhooks.clock(), 61_000)
        await crashed.recorder.record(outcome.after_attempt(lost, posted, SCHEDULE_SECONDS, webhooks.clock()))
    [request] = receiver.requests
    assert (request.body, request.number) == (lost.body, 2)
    assert [(one["number"], one["error"]) for one in await webhooks.attempts(dealer)] == [(1, "LOST"), (2, None)]
    [row] = await webhooks.deliveries(dealer)
    assert row["state"] == "DELIVERED"
    assert (await webhooks.endpoint(dealer)).consecutive_failures == 0, "LOST says nothing about the receiver"


async def test_worker_paused_past_its_lease_sends_nothing(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    async with webhooks.deliverer() as paused:
        [late] = (await paused.claimer.claim(10)).attempts
        batch = Batch(0.0, 1)
        await paused._attempt(late._replace(latest_start=0.0), batch)
    assert receiver.requests == [] and batch.left == 0


async def test_stop_waits_for_attempts_in_flight_and_records_them(webhooks: WebhookFixture, receiver: Receiver):
    dealer, go_on = await webhooks.dealer(receiver.url), asyncio.Event()

    async def held(request: Request, _: object) -> bytes:
        await go_on.wait()
        return OK

    receiver.answers = [held]
    await webhooks.order(dealer)
    async with webhooks.deliverer() as deliverer:
        task = asyncio.create_task(deliverer.run())
        await receiver.received(1)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await asyncio.wait([task])
        assert await webhooks.states(dealer) == [("ORDER_PAID", "DELIVERED")]


async def test_stop_cancels_hanging_attempts_and_leaves_them_due_at_once(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    receiver.answers = [hang, OK]
    await webhooks.order(dealer)
    async with webhooks.running(stop_seconds=0.05):
        await receiver.received(1)
    [row] = await webhooks.deliveries(dealer)
    assert (row["state"], row["attempt_count"]) == ("RETRY", 1) and row["due_at"] <= webhooks.clock()
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 1
    assert receiver.requests[0].body == receiver.requests[1].body
    assert [one["error"] for one in await webhooks.attempts(dealer)] == ["STOPPED", None]


async def test_deliveries_without_a_url_are_skipped_and_a_later_url_gets_none_of_them(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer()
    order_id = await webhooks.order(dealer)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 0
        async with webhooks.database.connection() as connection:
            await endpoints.set_url(connection, dealer.tenant_id, receiver.url, webhooks.clock())
        assert await deliver_all(deliverer) == 0
        await webhooks.use(dealer, order_id, 3)
        await deliver_all(deliverer)
    assert await webhooks.states(dealer) == [
        ("ORDER_PAID", "SKIPPED"),
        ("DELIVERY_UPDATED", "SKIPPED"),
        ("DELIVERY_UPDATED", "DELIVERED"),
    ]
    assert "ICCID_READY" in receiver.requests[0].json["changeHints"], "nothing was ever delivered: an empty baseline"


async def test_dealer_receives_events_of_its_own_orders_only(
    webhooks: WebhookFixture, receiver: Receiver, other: Receiver
):
    mine, theirs = await webhooks.dealer(receiver.url), await webhooks.dealer(other.url)
    orders = {await webhooks.order(mine): receiver, await webhooks.order(theirs): other}
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
    for order_id, one in orders.items():
        assert [request.json["orderId"] for request in one.requests] == [order_id]
    assert receiver.requests[0].headers["rt-accesscode"] == mine.app_key


async def test_delivery_that_cannot_be_prepared_delays_no_other(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    broken, sound = await webhooks.order(dealer, paid_event=False), await webhooks.order(dealer, paid_event=False)
    for order_id in (broken, sound):
        await webhooks.allocate(dealer, order_id)
    await webhooks.execute("UPDATE profile SET activation_code = '\\x0001' WHERE order_id = $1", broken)
    async with webhooks.deliverer() as deliverer:
        assert await deliver_all(deliverer) == 1
        [aside] = await webhooks.deliveries(dealer, broken)
        assert aside["state"] == "READY" and aside["due_at"] > webhooks.clock() + timedelta(seconds=30)
    assert [request.json["orderId"] for request in receiver.requests] == [sound]
