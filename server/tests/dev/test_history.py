"""The business that a new data folder of `dealer-server dev` begins with."""

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import httpx2
import msgspec
import pytest

from dealer_server.dev import calls, catalogue, history, lives, notices, payments, receivers
from dealer_server.dev.run import Demo
from dealer_server.rules.lifecycle.use import USES, use
from dealer_server.rules.money import money
from dealer_server.rules.notices.notice import OPERATORS
from dealer_server.rules.orders import identity
from dealer_server.store.past.orders import PastOrder
from support.api_client import ApiClient
from support.databases import postgres_folder
from support.processes import environment, run, running

NOW = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)
PACKAGES = {package.package_code: package for package in catalogue.catalogue("test")}


@pytest.fixture
def folder() -> Iterator[Path]:
    with postgres_folder() as one:
        yield one


def _told(past: PastOrder) -> list[tuple[str, int, datetime]]:
    return [(event_type, order.version, at) for event_type, order, at in past.told]


def test_orders_fill_the_days_before_now_and_no_two_profiles_have_the_same_id():
    dealers = (history.DEMO, *history.OTHERS)
    orders = [order for dealer in dealers for order in history.sold(dealer, PACKAGES, 30, NOW)]
    assert set(history.POPULAR) == {order.package.package_code for order in orders}
    ids = sorted(
        profile_id for order in orders for profile_id in range(order.order_id, order.order_id + order.quantity)
    )
    assert all(one < following for one, following in itertools.pairwise(ids))
    days = {identity.created_at(one).date() for one in ids}
    assert days == {(NOW - timedelta(days=n)).date() for n in range(31)}
    assert all(
        NOW - timedelta(days=31) < identity.created_at(one.order_id) + timedelta(seconds=one.delivered_seconds) <= NOW
        for one in orders
    )


def test_dealers_were_told_of_plans_the_day_before_they_ended_and_of_each_top_up():
    orders = [lives.lived(order, n, NOW) for n, order in enumerate(history.sold(history.DEMO, PACKAGES, 30, NOW), 1)]
    topups = payments.payments(history.DEMO, orders, NOW - timedelta(days=30, hours=1), NOW)
    told = notices.told(7, orders, [], topups, NOW)
    ending = {one.notice.fact: one.at for one in told if one.notice.notice_type == "PLANS_ENDING"}
    assert len(ending) == notices.DAYS and max(ending) == f"{NOW:%Y-%m-%d}"
    assert all(at.date() + timedelta(days=1) == datetime.fromisoformat(day).date() for day, at in ending.items())
    reviewed = {one.at for one in told if one.notice.notice_type == "TOPUP_REVIEWED"}
    since = NOW - timedelta(days=notices.DAYS)
    assert reviewed == {one.reviewed_at for one in topups if one.reviewed_at and one.reviewed_at >= since} != set()
    asked = [one for one in told if one.notice.tenant_id == OPERATORS]
    assert asked and all(one.ended_at and one.ended_at > one.at for one in asked), "the operator has reviewed them"


def test_every_folder_begins_with_the_same_business():
    first, again = (history.sold(history.DEMO, PACKAGES, 5, NOW) for _ in range(2))
    assert first == again != history.sold(history.OTHERS[0], PACKAGES, 5, NOW)


def test_each_order_was_a_call_that_wrote_and_none_of_its_questions_lies_ahead():
    orders = [lives.lived(order, n, NOW) for n, order in enumerate(history.sold(history.DEMO, PACKAGES, 5, NOW), 1)]
    made = calls.made(orders, NOW)
    assert [call.at for call in made] == sorted(call.at for call in made) and made[-1].at <= NOW
    assert sum(call.writes for call in made) == len(orders) < len(made) / 2
    assert sum(sum(spread) for spread in calls.spreads(made).values()) == len(made)
    served = calls.served(history.DEMO, 1, "ak_test_1", made)
    assert len({call.request_id for call in served}) == len({call.trace_id for call in served}) == len(made)
    assert [call.at for call in calls.made(orders, NOW)] == [call.at for call in made]


def test_esims_live_as_their_orders_ids_tell_and_in_every_way_there_is():
    sold = history.sold(history.DEMO, PACKAGES, 30, NOW)
    first, again = ([lives.lived(one, number, NOW) for number, one in enumerate(sold, 1)] for _ in range(2))
    assert [(one.lives, _told(one), one.reported) for one in first] == [
        (one.lives, _told(one), one.reported) for one in again
    ]
    orders = [one.order for one in first]
    uses = {use(esim) for order in orders for esim in order.profiles if not esim.cancelled}
    assert uses == set(USES) - {"PENDING"}
    assert {order.delivery_status for order in orders} == {"DELIVERED", "FAILED"}
    for one in first:
        assert [version for _, version, _ in _told(one)] == sorted(version for _, version, _ in _told(one))
        assert one.told[-1].order == one.order and one.order.updated_at <= NOW
        settled = one.refund is not None and one.refund.settled_at is not None
        assert one.order.refund_amount == (one.order.amount if settled else 0)


@pytest.mark.parametrize("dealer", (history.DEMO, *history.OTHERS))
def test_the_balance_pays_every_order_and_what_is_left_at_last_is_the_dealers(dealer: history.Dealer):
    sold = history.sold(dealer, PACKAGES, 30, NOW)
    orders = [lives.lived(one, number, NOW) for number, one in enumerate(sold, 1)]
    topups = payments.payments(dealer, orders, NOW - timedelta(days=30, hours=1), NOW)
    approved = [(one.reviewed_at, one.amount) for one in topups if one.status == "APPROVED"]
    moves = [*approved, *((identity.created_at(one.order.order_id), -one.order.amount) for one in orders)]
    refunds = [(one.refund.settled_at, one.order.refund_amount) for one in orders if one.refund]
    moves += [(at, amount) for at, amount in refunds if at is not None]
    assert len(refunds) > len([at for at, _ in refunds if at is not None])
    balance = 0
    for at, amount in sorted(moves):
        assert at <= NOW
        balance += amount
        assert balance >= 0
    assert len(approved) > 1 and balance == dealer.balance * money.SCALE
    assert [one.status for one in topups[len(approved) :]] == ["REJECTED", "PENDING"] * dealer.asks
    assert len({one.topup_id for one in topups}) == len({one.transaction_id for one in topups}) == len(topups)


def test_a_made_up_receiver_refuses_some_first_attempts_but_nothing_of_the_last_minute():
    harbour, before = history.OTHERS[1], NOW - timedelta(hours=1)
    made = [receivers.attempts(harbour, delivery_id, before, NOW) for delivery_id in range(100)]
    assert {len(attempts) for attempts in made} == {1, 2}
    for attempts in made:
        assert [one.http_status for one in attempts[:-1]] == [503] * (len(attempts) - 1)
        assert attempts[-1].http_status == 200 and before <= attempts[0].started_at < attempts[-1].ended_at < NOW
    assert [receivers.attempts(harbour, number, NOW, NOW)[-1].ended_at for number in range(100)] == [NOW] * 100


async def test_dev_begins_with_it_and_goes_on_from_there(folder: Path):
    arguments = ("dev", "--json", "--port", "0", "--data", str(folder / "data"), "--history", "12")
    counted: list[int] = []
    for _ in range(2):  # the second start finds the folder as the first one left it
        async with running(*arguments, env=environment(None), ready=False) as process:
            text = await process.line()
            assert text, process.said
            said = msgspec.json.decode(text, type=Demo)
            async with httpx2.AsyncClient(trust_env=False) as http:
                client = ApiClient(said.base_url, int(said.tenant_id), said.app_key, said.app_secret, http)
                counted.append((await client.post("/esim/order/list")).data["pager"]["total"])
                placed = await client.order()
                assert (await client.delivered(placed.data["orderNo"]))["orderStatus"] == "COMPLETED"
                await _bought_of_a_supplier(client)
            env = environment(None) | said.env
            listed = await run("tenant", "list", "--json", env=env)
            tenants = {one["name"]: one["tenantId"] for one in map(json.loads, listed.out.splitlines())}
            for dealer in history.OTHERS:  # who receive webhooks
                given = ("--tenant", tenants[dealer.name], "--state", "DELIVERED", "--since", "8h", "--yes", "--wait")
                resent = await run("webhook", "resend", *given, env=env)
                assert resent.status == 0, resent.out
            price_lists = await run("price-list", "list", "--json", env=env)
            assert {json.loads(line)["name"] for line in price_lists.out.splitlines()} == {"Partners", "Small shops"}
            audited = await run("audit", env=env)
            assert audited.status == 0, audited.out
            attempts = await _last_attempts_of_resent(said.env["DATABASE_URL"])
            assert len(attempts) > 10 and set(attempts) == {200}
            [(minutes,)] = await _fetch(said.env["DATABASE_URL"], "SELECT count(*) FROM api_minute WHERE process = 0")
            assert minutes > 20  # those of the last two days are kept
            moved = "wallet w JOIN ledger_entry e USING (tenant_id, version) WHERE e.created_at <> w.updated_at"
            others = f"SELECT count(*) FROM {moved} AND tenant_id <> {said.tenant_id}"
            assert await _fetch(said.env["DATABASE_URL"], others) == [(0,)], "the last movement is the newest entry"
            acts = "SELECT count(*) FROM audit_log WHERE action = 'supplier.set'"
            assert await _fetch(said.env["DATABASE_URL"], acts) == [(2,)], "the second start changes no supplier"
    assert counted[1] == counted[0] + 2 > 20


async def _bought_of_a_supplier(client: ApiClient) -> None:
    code = history.POPULAR[0]
    price = money.text(PACKAGES[code].price, "USD")
    placed = await client.order(items=[{"packageCode": code, "quantity": 1, "price": price}], amount=price)
    [item] = (await client.delivered(placed.data["orderNo"]))["items"]
    assert "rsp.wholesale.example" in item["profiles"][0]["activationCode"]


async def _last_attempts_of_resent(dsn: str) -> list[int]:
    rows = await _fetch(
        dsn,
        "SELECT last.http_status FROM webhook_delivery d CROSS JOIN LATERAL ("
        " SELECT http_status FROM webhook_attempt a WHERE a.tenant_id = d.tenant_id"
        " AND a.delivery_id = d.delivery_id ORDER BY number DESC LIMIT 1) last WHERE d.trigger = 'RESEND'",
    )
    return [row["http_status"] for row in rows]


async def _fetch(dsn: str, sql: str) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(sql)
    finally:
        await connection.close()
