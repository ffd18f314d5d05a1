"""What is old goes, and nothing that is still needed: webhooks, their attempts, and the log of suppliers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dealer_server.operations.retention import sweep
from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.rules.retention.retention import Kind
from dealer_server.store.webhooks import resend
from support.webhook_fixture import (
    Dealer,
    Receiver,
    WebhookFixture,
    deliver_all,
    webhook_fixture,
)

DAY = 86_400.0
DELIVERY_DAYS, ATTEMPT_DAYS = 90, 30
RETENTION: dict[Kind, timedelta] = {
    "webhook_attempt": timedelta(days=ATTEMPT_DAYS),
    "webhook_delivery": timedelta(days=DELIVERY_DAYS),
    "supplier_call": timedelta(days=30),
    "supplier_event": timedelta(days=30),
}


@pytest.fixture
async def webhooks(database_url: str) -> AsyncIterator[WebhookFixture]:
    async with webhook_fixture(database_url) as webhooks:
        yield webhooks


@asynccontextmanager
async def sweeper(webhooks: WebhookFixture) -> AsyncIterator[Sweeper]:
    made = Sweeper(webhooks.database, webhooks.clock, RETENTION)
    yield made
    await made.close()


async def swept(webhooks: WebhookFixture, after_days: float) -> dict[Kind, int]:
    """What a sweep deletes so many days later."""
    webhooks.clock.advance(after_days * DAY)
    async with sweeper(webhooks) as one:
        return await one.sweep()


async def sent(webhooks: WebhookFixture) -> None:
    async with webhooks.deliverer() as deliverer:
        await deliver_all(deliverer)


async def ids(webhooks: WebhookFixture, dealer: Dealer) -> list[int]:
    return sorted(one["delivery_id"] for one in await webhooks.deliveries(dealer))


async def used(webhooks: WebhookFixture, dealer: Dealer, order_id: int, usage_bytes: int) -> None:
    """One more update, received."""
    await webhooks.use(dealer, order_id, usage_bytes)
    await sent(webhooks)


async def test_last_update_received_stays_so_that_the_next_hints_are_the_difference(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer)
    await webhooks.allocate(dealer, order_id)
    await sent(webhooks)
    await used(webhooks, dealer, order_id, 1_000)
    deleted = await swept(webhooks, DELIVERY_DAYS + 1)
    assert deleted["webhook_delivery"] == 2
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "DELIVERED")]
    await used(webhooks, dealer, order_id, 2_000)
    assert receiver.requests[-1].json["changeHints"] == ["USAGE_UPDATED"]


async def test_baseline_goes_once_a_newer_one_is_old(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    await sent(webhooks)
    assert (await swept(webhooks, DELIVERY_DAYS + 1))["webhook_delivery"] == 0
    await used(webhooks, dealer, order_id, 2_000)
    first, second = await ids(webhooks, dealer)
    assert (await swept(webhooks, 1))["webhook_delivery"] == 0
    assert (await swept(webhooks, DELIVERY_DAYS))["webhook_delivery"] == 1
    assert await ids(webhooks, dealer) == [second]
    assert first < second


async def test_update_that_may_have_been_received_stays_with_its_baseline(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    order_id = await webhooks.order(dealer, paid_event=False)
    await webhooks.allocate(dealer, order_id)
    await sent(webhooks)
    receiver.answers = [410]
    await used(webhooks, dealer, order_id, 2_000)
    assert (await swept(webhooks, DELIVERY_DAYS + 1))["webhook_delivery"] == 0
    assert await webhooks.states(dealer) == [("DELIVERY_UPDATED", "DELIVERED"), ("DELIVERY_UPDATED", "FAILED")]


async def test_unfinished_delivery_stays_and_goes_when_it_was_finished_long_ago(
    webhooks: WebhookFixture, receiver: Receiver
):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    assert (await swept(webhooks, DELIVERY_DAYS + 1))["webhook_delivery"] == 0
    await sent(webhooks)
    assert (await swept(webhooks, DELIVERY_DAYS - 1))["webhook_delivery"] == 0
    assert (await swept(webhooks, 2))["webhook_delivery"] == 1


async def test_delivery_that_was_sent_again_is_as_old_as_its_last_attempt(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    await sent(webhooks)
    webhooks.clock.advance(20 * DAY)
    async with webhooks.database.transaction() as connection:
        assert await resend.resend(connection, dealer.tenant_id, await ids(webhooks, dealer), webhooks.clock()) == 1
    await sent(webhooks)
    assert (await swept(webhooks, ATTEMPT_DAYS - 10))["webhook_attempt"] == 0
    assert (await swept(webhooks, 11))["webhook_attempt"] == 2
    assert (await swept(webhooks, DELIVERY_DAYS - ATTEMPT_DAYS - 2))["webhook_delivery"] == 0
    assert (await swept(webhooks, 2))["webhook_delivery"] == 1


async def test_attempts_go_before_their_delivery_and_with_it(webhooks: WebhookFixture, receiver: Receiver):
    dealer = await webhooks.dealer(receiver.url)
    await webhooks.order(dealer)
    await sent(webhooks)
    assert await swept(webhooks, ATTEMPT_DAYS - 1) == dict.fromkeys(RETENTION, 0)
    assert len(await webhooks.attempts(dealer)) == 1
    assert (await swept(webhooks, 2))["webhook_attempt"] == 1
    [delivery] = await webhooks.deliveries(dealer)
    assert delivery["attempt_count"] == 1
    await webhooks.execute(
        "INSERT INTO webhook_attempt (tenant_id, delivery_id, number, started_at, duration_ms)"
        " VALUES ($1, $2, 1, $3, 1)",
        dealer.tenant_id, delivery["delivery_id"], webhooks.clock()
    )  # fmt: skip
    assert (await swept(webhooks, DELIVERY_DAYS))["webhook_delivery"] == 1
    assert await webhooks.attempts(dealer) == []


async def test_no_delivery_that_is_too_young_is_passed_over(webhooks: WebhookFixture):
    """Ids were handed out in blocks once: a younger delivery may have the smaller id."""
    dealer = await webhooks.dealer()
    for _ in range(3):
        await webhooks.order(dealer)  # without an endpoint: SKIPPED at once
    first, second, third = await ids(webhooks, dealer)
    for delivery_id, days in ((second, 10), (third, -5)):
        await webhooks.execute(
            "UPDATE webhook_delivery SET created_at = created_at + $2, finished_at = finished_at + $2"
            " WHERE delivery_id = $1",
            delivery_id,
            timedelta(days=days),
        )
    assert (await swept(webhooks, DELIVERY_DAYS + 1))["webhook_delivery"] == 1
    assert await ids(webhooks, dealer) == [second, third]
    assert (await swept(webhooks, 1))["webhook_delivery"] == 0
    assert (await swept(webhooks, 9))["webhook_delivery"] == 2
    assert await ids(webhooks, dealer) == []
    assert first < second


async def test_two_sweepers_share_the_work(webhooks: WebhookFixture):
    dealers = [await webhooks.dealer() for _ in range(3)]
    for dealer in dealers:
        await webhooks.execute(
            "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, created_at,"
            " finished_at) SELECT $1, n, 'ORDER_PAID', 1, 'SKIPPED', $2, $2 FROM generate_series(1, 1200) n",
            dealer.tenant_id,
            webhooks.clock(),
        )
    webhooks.clock.advance((DELIVERY_DAYS + 1) * DAY)
    async with sweeper(webhooks) as one, sweeper(webhooks) as other:
        deleted = await asyncio.gather(one.sweep(), other.sweep())
    assert sum(one["webhook_delivery"] for one in deleted) == 3_600
    assert [await ids(webhooks, dealer) for dealer in dealers] == [[], [], []]


async def test_locked_tenant_is_left_to_the_worker_that_sweeps_it(webhooks: WebhookFixture):
    dealer = await webhooks.dealer()
    await webhooks.order(dealer)
    assert (await swept(webhooks, 1))["webhook_delivery"] == 0
    async with webhooks.database.transaction() as connection:
        await connection.execute(
            "SELECT FROM retention_cursor WHERE tenant_id = $1 AND kind = 'webhook_delivery' FOR UPDATE",
            dealer.tenant_id,
        )
        assert (await swept(webhooks, DELIVERY_DAYS))["webhook_delivery"] == 0
    assert (await swept(webhooks, 0))["webhook_delivery"] == 1


async def test_dealer_without_deliveries_is_visited_again_when_there_may_be_some(webhooks: WebhookFixture):
    dealer = await webhooks.dealer()
    await swept(webhooks, DELIVERY_DAYS + 1)
    [due] = await cursors(webhooks, dealer)
    assert webhooks.clock() - timedelta(minutes=1) < due["oldest_at"] <= webhooks.clock()
    await webhooks.order(dealer)
    assert (await swept(webhooks, DELIVERY_DAYS - 1))["webhook_delivery"] == 0
    assert [due] == await cursors(webhooks, dealer)
    assert (await swept(webhooks, 2))["webhook_delivery"] == 1


async def cursors(webhooks: WebhookFixture, dealer: Dealer) -> list[Mapping[str, Any]]:
    async with webhooks.database.connection() as connection:
        return await connection.fetch(
            "SELECT * FROM retention_cursor WHERE tenant_id = $1 AND kind = 'webhook_delivery'", dealer.tenant_id
        )


async def test_more_than_one_page_of_a_dealer_is_swept_at_once(webhooks: WebhookFixture):
    """Each order keeps its last update, however its deliveries are spread over the pages."""
    dealer = await webhooks.dealer()
    per_order, orders = 7, sweep.SUBJECTS_AT_ONCE // 3
    await webhooks.execute(
        "INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, attempt_count, body,"
        " hints, created_at, finished_at, delivered_at) SELECT $1, one.order_id, 'DELIVERY_UPDATED', one.version,"
        " 'DELIVERED', 1, '', '{}', $2, $2, $2 FROM generate_series(1, $4::int) AS version,"
        " generate_series(1, $3::int) AS order_id CROSS JOIN LATERAL (SELECT order_id, version) one"
        " ORDER BY version, order_id",
        dealer.tenant_id,
        webhooks.clock(),
        orders,
        per_order,
    )
    assert (await swept(webhooks, DELIVERY_DAYS + 1))["webhook_delivery"] == (per_order - 1) * orders
    assert {one["order_version"] for one in await webhooks.deliveries(dealer)} == {per_order}


async def test_log_of_suppliers_goes_when_the_purchase_is_over(webhooks: WebhookFixture):
    dealer = await webhooks.dealer()
    order_id, now = await webhooks.order(dealer, quantity=2), webhooks.clock()
    await webhooks.execute("UPDATE retention_cursor SET oldest_at = $1 WHERE kind = 'supplier_event'", now)
    await webhooks.execute(
        "INSERT INTO purchase (tenant_id, profile_id, position, order_id, line, unit_key, supplier, sku, state,"
        " created_at, finished_at) SELECT tenant_id, profile_id, 0, order_id, line, profile_id::text, 's', 's', state,"
        " $3::timestamptz, CASE state WHEN 'REJECTED' THEN $3::timestamptz END FROM (SELECT p.*,"
        "  CASE row_number() OVER (ORDER BY profile_id) WHEN 1 THEN 'REJECTED' ELSE 'PARKED' END AS state"
        "  FROM profile p WHERE tenant_id = $1 AND order_id = $2) bought",
        dealer.tenant_id,
        order_id,
        now,
    )
    await webhooks.execute(
        "INSERT INTO supplier_call (tenant_id, profile_id, position, number, supplier, kind, step, sent_at)"
        " SELECT tenant_id, profile_id, 0, n, 's', 'ALLOCATE', '', $2 FROM purchase, generate_series(1, 2) n"
        " WHERE tenant_id = $1",
        dealer.tenant_id,
        now,
    )
    await webhooks.execute(
        "INSERT INTO supplier_event (supplier, key, kind, state, body, received_at)"
        " VALUES ('s', 'old', 'k', 'APPLIED', '', $1), ('s', 'young', 'k', 'UNKNOWN', '', $2)",
        now,
        now + timedelta(days=5),
    )
    deleted = await swept(webhooks, 31)
    assert (deleted["supplier_call"], deleted["supplier_event"]) == (2, 1)
    await webhooks.execute("UPDATE purchase SET state = 'WRITTEN_OFF', finished_at = $1", webhooks.clock())
    deleted = await swept(webhooks, 31)
    assert (deleted["supplier_call"], deleted["supplier_event"]) == (2, 1)
