"""The queue of an order in the database: which delivery goes next, and concurrent changes, claims and results."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from dealer_server import store
from dealer_server.db.sealing import delivery_context
from dealer_server.db.session import Session
from dealer_server.store.webhooks import claim, enqueue, order_queue, results
from dealer_server.store.webhooks.claim import Claimed, Frozen, TenantQuota
from dealer_server.store.webhooks.results import DeliveryResult
from esim_dealer.wire.vocabulary import DeliveryState
from support.databases import lock_waiters
from support.webhook_fixture import (
    PATIENCE,
    Dealer,
    Receiver,
    Request,
    WebhookFixture,
    deliver_all,
    eventually,
    webhook_fixture,
)

NOWHERE = "http://127.0.0.1:9/hook"


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


@pytest.fixture
async def session(webhooks: WebhookFixture) -> AsyncIterator[Session]:
    """A worker's connection."""
    session = webhooks.database.session()
    yield session
    await session.close()


async def claimed_by(webhooks: WebhookFixture, session: Session, dealer: Dealer) -> list[Claimed]:
    return await claim.due_deliveries(session, [TenantQuota(dealer.tenant_id, 10)], webhooks.clock())


def claimed(webhooks: WebhookFixture, row: Mapping[str, Any]) -> Claimed:
    """A delivery as a worker claims it."""
    return Claimed(
        tenant_id=row["tenant_id"],
        delivery_id=row["delivery_id"],
        order_id=row["order_id"],
        event_type=row["event_type"],
        trigger=row["trigger"],
        order_version=row["order_version"],
        attempt_count=row["attempt_count"],
        body=row["body"],
        url=NOWHERE,
        breaker_open=False,
        delivered_before=False,
        deliverable_since=webhooks.clock(),
        profiles=1,
    )


async def freeze(webhooks: WebhookFixture, session: Session, claimed: list[Claimed], number: int) -> None:
    frozen = [Frozen(one.tenant_id, one.delivery_id, one.order_version, "USAGE_UPDATED", b"sealed") for one in claimed]
    await claim.freeze(session, frozen, number, webhooks.clock() + timedelta(minutes=1))


def result(
    webhooks: WebhookFixture, delivery: Claimed, claim_number: int, state: DeliveryState = "DELIVERED"
) -> DeliveryResult:
    return DeliveryResult(
        tenant_id=delivery.tenant_id,
        order_id=delivery.order_id,
        delivery_id=delivery.delivery_id,
        claim=claim_number,
        state=state,
        due_at=webhooks.clock() + timedelta(seconds=5) if state == "RETRY" else None,
        number=delivery.attempt_count + 1,
        started_at=webhooks.clock(),
        duration_ms=1,
        remote_address="127.0.0.1",
        http_status=200,
        answer_head="",
    )


async def record(webhooks: WebhookFixture, session: Session, one: DeliveryResult) -> None:
    """Records one result as the worker does."""
    await order_queue.lock_unfinished(session, [(one.tenant_id, one.order_id)])
    waiting = (await results.record(session, [one], webhooks.clock())).waiting
    await order_queue.make_next_ready(session, waiting, webhooks.clock())


async def blocked(webhooks: WebhookFixture) -> bool:
    """Whether a session of this database waits for a lock."""
    async with webhooks.database.connection() as connection:
        return bool(await connection.fetch(f"SELECT FROM {lock_waiters()}"))


async def test_change_of_an_order_without_open_deliveries_is_due_at_once(webhooks: WebhookFixture):
    dealer, stranger = await webhooks.dealer(NOWHERE), await webhooks.dealer()
    orders = [(one, await webhooks.order(one, paid_event=False)) for one in (dealer, stranger)]
    async with webhooks.database.transaction() as connection:
        changes = [(one.tenant_id, order_id, 2) for one, order_id in orders]
        await enqueue.order_changed(connection, changes, webhooks.clock())
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "READY")]
    assert await webhooks.states(stranger) == [("DELIVERY_UPDATED", "SKIPPED")], "no endpoint"


async def test_order_changed_without_changes_runs_no_statement(webhooks: WebhookFixture):
    async with webhooks.database.connection() as connection:
        await enqueue.order_changed(connection, [], webhooks.clock())


async def test_order_given_twice_is_enqueued_once_at_its_latest_version(webhooks: WebhookFixture):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    async with webhooks.database.transaction() as connection:
        changes = [(dealer.tenant_id, order_id, 2), (dealer.tenant_id, order_id, 3)]
        await enqueue.order_changed(connection, changes, webhooks.clock())
    [row] = await webhooks.deliveries(dealer)
    assert row["order_version"] == 3


async def test_changes_merge_into_the_update_that_was_never_attempted(webhooks: WebhookFixture):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer)
    for _ in range(50):
        await webhooks.change(dealer, order_id)
    deliveries = await webhooks.deliveries(dealer)
    assert [(one["event_type"], one["state"], one["order_version"]) for one in deliveries] == [
        ("ORDER_PAID", "READY", 1),
        ("DELIVERY_UPDATED", "WAITING", 51),
    ]


async def test_dead_receiver_keeps_at_most_two_unfinished_updates_per_order(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    for number in range(1, 10):
        await webhooks.change(dealer, order_id)
        async with session.transaction():
            await freeze(webhooks, session, await claimed_by(webhooks, session, dealer), number)
        await webhooks.change(dealer, order_id)
        await webhooks.change(dealer, order_id)
        unfinished = [state for _, state in await webhooks.states(dealer) if state in ("WAITING", "READY", "IN_FLIGHT")]
        assert len(unfinished) <= 2
        async with session.transaction():
            [row] = [one for one in await webhooks.deliveries(dealer) if one["state"] == "IN_FLIGHT"]
            one = claimed(webhooks, row)._replace(attempt_count=0)
            await record(webhooks, session, result(webhooks, one, number, "RETRY"))


async def test_next_delivery_is_that_of_the_oldest_change_not_of_the_lowest_id(
    webhooks: WebhookFixture, session: Session
):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer)
    # Ids come in blocks per connection: a later change may well have the smaller one.
    for delivery_id, event_type, version in ((2, "DELIVERY_UPDATED", 3), (3, "REFUND_COMPLETED", 2)):
        await webhooks.execute(
            "INSERT INTO webhook_delivery (tenant_id, delivery_id, order_id, event_type, order_version, state,"
            " created_at) VALUES ($1, $2, $3, $4, $5, 'WAITING', now())",
            dealer.tenant_id, delivery_id, order_id, event_type, version
        )  # fmt: skip
    async with session.transaction():
        [paid] = await claimed_by(webhooks, session, dealer)
        await freeze(webhooks, session, [paid], 1)
    async with session.transaction():
        await record(webhooks, session, result(webhooks, paid, 1))
    assert await webhooks.states(dealer) == [
        ("ORDER_PAID", "DELIVERED"),
        ("REFUND_COMPLETED", "READY"),
        ("DELIVERY_UPDATED", "WAITING"),
    ]


async def test_refund_completed_in_retry_delays_only_the_next_refund_completed(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    receiver.answers = [500, 200]
    # REFUND_COMPLETED is frozen when the refund is credited, with an id drawn before.
    for delivery_id, state in ((1, "READY"), (2, "WAITING")):
        body = b'{"eventType":"REFUND_COMPLETED","refund":%d}' % delivery_id
        sealed = webhooks.data_keys.seal(body, delivery_context(dealer.tenant_id, delivery_id))
        await webhooks.execute(
            "INSERT INTO webhook_delivery (tenant_id, delivery_id, order_id, event_type, order_version, state, due_at,"
            " created_at, hints, body) VALUES ($1, $2, $3, 'REFUND_COMPLETED', $4, $5, $6, now(), '{}', $7)",
            dealer.tenant_id, delivery_id, order_id, delivery_id + 1, state,
            webhooks.clock() if state == "READY" else None, sealed
        )  # fmt: skip
    for _ in range(3):
        await webhooks.change(dealer, order_id)
    await webhooks.allocate(dealer, order_id)
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)
        assert await webhooks.states(dealer) == [
            ("REFUND_COMPLETED", "RETRY"),
            ("REFUND_COMPLETED", "WAITING"),
            ("DELIVERY_UPDATED", "DELIVERED"),
        ]
        webhooks.clock.advance(10)
        await deliver_all(deliverer)
    assert [request.json.get("refund") for request in receiver.requests] == [1, None, 1, 2]


async def test_change_concurrent_with_a_freeze_becomes_a_separate_event(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.change(dealer, order_id)
    async with session.transaction():
        claimed = await claimed_by(webhooks, session, dealer)
        change = asyncio.create_task(webhooks.change(dealer, order_id))
        await eventually(lambda: blocked(webhooks))
        assert not change.done()
        await freeze(webhooks, session, claimed, 1)
    await change
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "IN_FLIGHT"), ("DELIVERY_UPDATED", "WAITING")]


async def test_claim_skips_deliveries_locked_by_a_change(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.change(dealer, order_id)
    async with webhooks.database.transaction() as connection:
        await webhooks.change_in(connection, dealer, order_id)
        async with session.transaction():
            assert await claimed_by(webhooks, session, dealer) == []
    async with session.transaction():
        [one] = await claimed_by(webhooks, session, dealer)
    assert one.order_version == 3


async def test_the_next_deliveries_of_two_dealers_become_ready(webhooks: WebhookFixture, session: Session):
    keys = []
    for _ in range(2):
        dealer = await webhooks.dealer(NOWHERE)
        keys.append((dealer.tenant_id, await webhooks.order(dealer, paid_event=False)))
        await webhooks.change(dealer, keys[-1][1])
    await webhooks.execute("UPDATE webhook_delivery SET state = 'WAITING', due_at = NULL")
    async with session.transaction():
        await order_queue.lock_unfinished(session, keys)
        assert await order_queue.make_next_ready(session, keys, webhooks.clock()) == 2


@pytest.mark.parametrize("state", ["DELIVERED", "RETRY"])
async def test_change_concurrent_with_a_result_becomes_ready(
    webhooks: WebhookFixture, session: Session, state: DeliveryState
):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.change(dealer, order_id)
    async with session.transaction():
        [one] = await claimed_by(webhooks, session, dealer)
        await freeze(webhooks, session, [one], 1)
    async with session.transaction():
        await record(webhooks, session, result(webhooks, one, 1, state))
        change = asyncio.create_task(webhooks.change(dealer, order_id))
        await eventually(lambda: blocked(webhooks))
        assert not change.done()
    await change
    assert (await webhooks.states(dealer))[1] == ("DELIVERY_UPDATED", "READY")


@pytest.mark.parametrize("state", ["DELIVERED", "RETRY", "FAILED"])
async def test_result_concurrent_with_a_change_makes_its_event_ready(
    webhooks: WebhookFixture, session: Session, state: DeliveryState
):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.change(dealer, order_id)
    async with session.transaction():
        [one] = await claimed_by(webhooks, session, dealer)
        await freeze(webhooks, session, [one], 1)

    async def record_result() -> None:
        async with session.transaction():
            await record(webhooks, session, result(webhooks, one, 1, state))

    async with webhooks.database.transaction() as connection:
        await webhooks.change_in(connection, dealer, order_id)
        recording = asyncio.create_task(record_result())
        await eventually(lambda: blocked(webhooks))
        assert not recording.done()
    await recording
    assert (await webhooks.states(dealer))[1] == ("DELIVERY_UPDATED", "READY")


async def test_two_workers_cannot_claim_deliveries_of_the_same_order(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer)
    async with session.transaction():
        [paid] = await claimed_by(webhooks, session, dealer)
        await freeze(webhooks, session, [paid], 1)
    await webhooks.change(dealer, order_id)
    async with session.transaction():
        await record(webhooks, session, result(webhooks, paid, 1, "RETRY"))
    webhooks.clock.advance(10)  # both are due: the retry of ORDER_PAID and the update
    second = webhooks.database.session()
    async with session.transaction():
        assert len(await claimed_by(webhooks, session, dealer)) == 1
        async with second.transaction():
            assert await claimed_by(webhooks, second, dealer) == []
    await second.close()


async def test_unique_index_allows_one_delivery_in_flight_per_order(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer)
    await webhooks.change(dealer, order_id)
    await webhooks.execute("UPDATE webhook_delivery SET state = 'READY', due_at = now() WHERE order_id = $1", order_id)
    both = [claimed(webhooks, row) for row in await webhooks.deliveries(dealer)]
    with pytest.raises(asyncpg.UniqueViolationError):
        async with session.transaction():
            await freeze(webhooks, session, both, 1)


async def test_result_of_a_lost_claim_is_ignored(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    await webhooks.order(dealer)
    async with session.transaction():
        [one] = await claimed_by(webhooks, session, dealer)
        await freeze(webhooks, session, [one], 1)
    assert await results.record(session, [result(webhooks, one, 2)], webhooks.clock()) == (set(), [], set())
    assert await webhooks.states(dealer) == [("ORDER_PAID", "IN_FLIGHT")]
    assert await webhooks.attempts(dealer) == []


async def test_baseline_is_the_delivered_update_of_the_highest_version(webhooks: WebhookFixture, session: Session):
    dealer = await webhooks.dealer(NOWHERE)
    order_id = await webhooks.order(dealer, paid_event=False)
    for version, state in ((5, "DELIVERED"), (9, "FAILED"), (3, "DELIVERED")):  # a resend of an old one arrives last
        await webhooks.execute(
            "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at, body,"
            " delivered_at) VALUES ($1, $2, 'DELIVERY_UPDATED', $3, $4, now(), $5,"
            " CASE WHEN $4 = 'DELIVERED' THEN now() END)",
            dealer.tenant_id, order_id, version, state, b"%d" % version
        )  # fmt: skip
    await webhooks.change(dealer, order_id)
    async with session.transaction():
        [due] = await claimed_by(webhooks, session, dealer)
    assert (due.body, due.baseline_body, due.in_doubt) == (None, b"5", False)


@pytest.mark.parametrize("seed", range(4))
async def test_random_steps_leave_no_delivery_stuck_and_deliver_the_last_change(
    webhooks: WebhookFixture, receiver: Receiver, seed: int
):
    chance = random.Random(seed)
    dealer = await webhooks.dealer(receiver.url)
    orders = [await webhooks.order(dealer) for _ in range(5)]
    used = dict.fromkeys(orders, 0)
    failing = True

    async def sometimes_fails(request: Request, _: object) -> bytes:
        status = chance.choice([200, 500, 503]) if failing else 200
        return b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status

    receiver.answers = [sometimes_fails]
    for order_id in orders:
        await webhooks.allocate(dealer, order_id)
    async with (
        webhooks.deliverer(schedule=(0, *[30] * 500)) as one,
        webhooks.deliverer(schedule=(0, *[30] * 500)) as two,
    ):
        for _ in range(60):
            step = chance.randrange(4)
            if step == 0:
                order_id = chance.choice(orders)
                used[order_id] += 1
                await webhooks.use(dealer, order_id, used[order_id])
            elif step == 1:
                await chance.choice([one, two]).run_once()
            elif step == 2:
                await chance.choice([one, two]).settle()
            else:
                webhooks.clock.advance(chance.choice([1, 40]))
            await _nothing_is_stuck(webhooks)
        failing = False
        await webhooks.execute(
            "UPDATE webhook_endpoint SET consecutive_failures = 0 WHERE tenant_id = $1", dealer.tenant_id
        )
        for _ in range(10):
            await one.settle()
            await two.settle()
            webhooks.clock.advance(40)
            await deliver_all(one)
    assert {state for _, state in await webhooks.states(dealer)} <= {"DELIVERED", "SUPERSEDED"}
    for order_id in orders:
        received = [request for request in receiver.requests if request.json["orderId"] == order_id]
        updates = [request for request in received if request.event == "DELIVERY_UPDATED"]
        assert updates[-1].json["items"][0]["profiles"][0]["dataUsageBytes"] == used[order_id]
        firsts = [int(request.headers["rt-order-version"]) for request in received if request.number == 1]
        assert firsts == sorted(firsts), "first attempts go out in order of change"


async def _nothing_is_stuck(webhooks: WebhookFixture) -> None:
    """Every WAITING delivery has one of its order before it: READY, IN_FLIGHT or, of its event type, in RETRY."""
    async with webhooks.database.connection() as connection:
        stuck = await connection.fetch(
            "SELECT * FROM webhook_delivery w WHERE state = 'WAITING' AND NOT EXISTS (SELECT FROM webhook_delivery o"
            " WHERE o.tenant_id = w.tenant_id AND o.order_id = w.order_id AND (o.state IN ('READY', 'IN_FLIGHT')"
            " OR o.state = 'RETRY' AND o.event_type = w.event_type AND w.event_type <> 'DELIVERY_UPDATED'))"
        )
        ready = await connection.fetchval(
            "SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM webhook_delivery WHERE state IN ('READY',"
            " 'IN_FLIGHT') AND attempt_count = 0 GROUP BY tenant_id, order_id) c"
        )
    assert not stuck
    assert ready <= 1


async def test_concurrent_changes_and_results_do_not_deadlock(webhooks: WebhookFixture, receiver: Receiver):
    dealers = [await webhooks.dealer(receiver.url) for _ in range(2)]
    orders = [(dealer, await webhooks.order(dealer)) for dealer in dealers for _ in range(10)]
    chance = random.Random(7)

    async def change(version: int) -> None:
        some = sorted(chance.sample(orders, 6), key=lambda one: (one[0].tenant_id, one[1]))
        async with webhooks.database.transaction() as connection:
            keys = [(dealer.tenant_id, order_id) for dealer, order_id in some]
            await store.order.lock(connection, keys)
            for dealer, order_id in some:
                await connection.execute(
                    "UPDATE profile SET data_usage_bytes = $3 WHERE tenant_id = $1 AND order_id = $2",
                    dealer.tenant_id, order_id, version
                )  # fmt: skip
            changed = await connection.fetch(
                "UPDATE orders SET version = version + 1 WHERE order_id = ANY($1::bigint[])"
                " RETURNING tenant_id, order_id, version",
                [order_id for _, order_id in some],
            )
            await enqueue.order_changed(connection, [tuple(row) for row in changed], webhooks.clock())  # type: ignore[misc]

    async with asyncio.timeout(PATIENCE), webhooks.running(), webhooks.running():
        for batch in range(15):
            await asyncio.gather(*[change(batch * 4 + n) for n in range(4)])

        async def finished() -> bool:
            states = [state for dealer in dealers for _, state in await webhooks.states(dealer)]
            return all(state in ("DELIVERED", "SUPERSEDED") for state in states)

        await eventually(finished)
