"""Webhooks as dealers and operators use them: test events, the delivery list, resends, metrics."""

import asyncio
import json
import re

import httpx2
import pytest

from support.api_client import ApiClient, Service
from support.processes import environment, run, running
from support.webhook_fixture import OK, Receiver, answer, eventually, hang

LOG = "/webhook/delivery/list"
RESEND = "/webhook/delivery/resend"


async def bought(dealer: ApiClient, receiver: Receiver) -> str:
    """The orderNo of an order whose two events were sent."""
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    order_no = (await dealer.order()).data["orderNo"]
    await receiver.received(2)
    return order_no


async def deliveries_of(dealer: ApiClient, **filters: object) -> list[dict]:
    reply = await dealer.post(LOG, filters)
    assert reply.code == "000000", reply
    return reply.data["deliveries"]


async def test_test_event_is_signed_and_its_result_returned(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    reply = await dealer.post("/webhook/test")
    assert (reply.code, reply.data["delivered"], reply.data["httpStatus"]) == ("000000", True, 200)
    assert reply.data["durationMs"] >= 0 and "error" not in reply.data
    [request] = receiver.requests
    event = request.verified(dealer.app_secret)
    assert event.is_test and event.event_type == "ORDER_PAID" and event.hints == ("ORDER_PAID",)
    assert event.snapshot.order_no.startswith("TEST") and event.snapshot.items[0].package_code == "TEST-OK"
    assert await deliveries_of(dealer) == [], "a test event is no delivery"


@pytest.mark.parametrize(
    ("said", "status", "error"), [(500, 500, "STATUS"), (302, 302, "REDIRECT"), (410, 410, "GONE")]
)
async def test_failed_test_event_returns_success_and_does_not_count(
    dealer: ApiClient, receiver: Receiver, said: int, status: int, error: str
):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    receiver.answers = [said]
    reply = await dealer.post("/webhook/test")
    assert (reply.code, reply.data["delivered"]) == ("000000", False)
    assert (reply.data["httpStatus"], reply.data["error"]) == (status, error)
    state = (await dealer.post("/webhook/query")).data
    assert (state["state"], state["consecutiveFailures"]) == ("ACTIVE", 0)


async def test_test_event_without_a_listening_receiver_returns_connect(dealer: ApiClient):
    await dealer.post("/webhook/set", {"callbackUrl": "http://127.0.0.1:1024/"})
    reply = await dealer.post("/webhook/test")
    assert (reply.data["delivered"], reply.data["error"]) == (False, "CONNECT") and "httpStatus" not in reply.data


async def test_test_event_and_resend_without_a_callback_url_are_refused(dealer: ApiClient):
    assert (await dealer.post("/webhook/test")).code == "200002"
    order_no = (await dealer.order()).data["orderNo"]
    [paid] = await deliveries_of(dealer, orderNo=order_no, eventType="ORDER_PAID")
    assert paid["status"] == "SKIPPED" and paid["attempts"] == [] and "nextAttemptTime" not in paid
    reply = await dealer.post(RESEND, {"deliveryId": paid["deliveryId"]})
    assert reply.code == "200002" and "/webhook/set" in reply.message


async def test_delivery_list_shows_each_delivery_with_its_attempts(dealer: ApiClient, receiver: Receiver):
    receiver.answers = [answer(500, body=b"no such table: orders"), OK]
    order_no = await bought(dealer, receiver)
    [paid] = await deliveries_of(dealer, orderNo=order_no, eventType="ORDER_PAID")
    assert (paid["status"], paid["trigger"], paid["orderVersion"]) == ("RETRY", "AUTO", 1)
    assert (paid["changeHints"], paid["attemptCount"]) == (["ORDER_PAID"], 1)
    [attempt] = paid["attempts"]
    assert (attempt["number"], attempt["httpStatus"], attempt["error"]) == (1, 500, "STATUS")
    assert attempt["answerHead"] == "no such table: orders" and attempt["durationMs"] >= 0
    assert paid["nextAttemptTime"] > attempt["time"] >= paid["createTime"]


async def test_delivery_list_filters_and_pages(dealer: ApiClient, receiver: Receiver):
    orders = [await bought(dealer, receiver) for _ in range(3)]
    await receiver.received(6)

    async def all_delivered() -> bool:
        return len(await deliveries_of(dealer, status="DELIVERED")) == 6

    await eventually(all_delivered)
    assert {row["orderNo"] for row in await deliveries_of(dealer, orderNo=orders[1])} == {orders[1]}
    assert await deliveries_of(dealer, status="FAILED") == []
    assert (
        await deliveries_of(dealer, orderNo="D000000000000000000") == await deliveries_of(dealer, orderNo="what") == []
    )
    assert await deliveries_of(dealer, endTime="2020-01-01T00:00:00Z") == []
    assert len(await deliveries_of(dealer, startTime="2020-01-01T00:00:00Z")) == 6
    seen, page = [], {"pageSize": 4}
    while page:
        reply = await dealer.post(LOG, {"pager": page})
        assert reply.data["pager"]["total"] == 6
        seen += [row["deliveryId"] for row in reply.data["deliveries"]]
        following = reply.data["pager"].get("next")
        page = {"pageSize": 4, "after": following} if following else None
    assert len(seen) == len(set(seen)) == 6 and seen == sorted(seen, key=int, reverse=True)
    assert len(await deliveries_of(dealer, pager={"pageNum": 2, "pageSize": 4})) == 2


@pytest.mark.parametrize(
    ("path", "call", "code", "named"),
    [
        (LOG, {"status": "SENT"}, "000108", "status"),
        (LOG, {"eventType": "PAID"}, "000108", "eventType"),
        (LOG, {"startTime": "yesterday"}, "000108", "startTime"),
        (LOG, {"pager": {"pageSize": 0}}, "000108", "pager.pageSize"),
        (LOG, {"pager": {"after": "x"}}, "000108", "pager.after"),
        (RESEND, {}, "000105", "deliveryId"),
        (RESEND, {"deliveryId": None}, "000106", "deliveryId"),
        (RESEND, {"deliveryId": True}, "000108", "deliveryId"),
        (RESEND, {"deliveryId": "x"}, "310272", "deliveryId"),
        (RESEND, {"deliveryId": 2**60}, "310272", "deliveryId"),
        (RESEND, {"deliveryId": -1}, "310272", "deliveryId"),
    ],
)
async def test_bad_input_is_named(dealer: ApiClient, path: str, call: dict[str, object], code: str, named: str):
    reply = await dealer.post(path, call)
    assert reply.code == code and named in reply.message, reply


async def test_a_long_list_is_counted_to_10000_and_once_a_minute(
    service: Service, dealer: ApiClient, receiver: Receiver
):
    await bought(dealer, receiver)
    assert (await dealer.post(LOG)).data["pager"]["total"] == 2
    async with service.database.connection() as connection:
        tenant_id = await connection.fetchval(
            "INSERT INTO webhook_delivery"
            " (tenant_id, order_id, event_type, order_version, state, created_at, finished_at)"
            " SELECT tenant_id, order_id, 'DELIVERY_UPDATED', 0, 'SUPERSEDED', created_at, created_at"
            " FROM webhook_delivery, generate_series(1, 10000)"
            " WHERE tenant_id = $1 AND event_type = 'ORDER_PAID' RETURNING tenant_id",
            int(dealer.tenant_id),
        )
        assert (await dealer.post(LOG)).data["pager"]["total"] == 10_001
        assert (await dealer.post(LOG, {"status": "DELIVERED"})).data["pager"]["total"] == 2
        await connection.execute(
            "DELETE FROM webhook_delivery WHERE tenant_id = $1 AND state = 'SUPERSEDED'", tenant_id
        )
    reply = await dealer.post(LOG)
    assert (len(reply.data["deliveries"]), reply.data["pager"]["total"]) == (2, 10_001)


async def test_dealer_resends_a_delivery(dealer: ApiClient, receiver: Receiver):
    order_no = await bought(dealer, receiver)
    [paid] = await deliveries_of(dealer, orderNo=order_no, eventType="ORDER_PAID")
    reply = await dealer.post(RESEND, {"deliveryId": int(paid["deliveryId"])})
    assert reply.code == "000000" and reply.data["deliveryId"] == paid["deliveryId"]
    assert reply.data["trigger"] == "RESEND" and reply.data["status"] in ("READY", "WAITING")
    third = (await receiver.received(3))[2]
    assert third.headers["rt-delivery-id"] == paid["deliveryId"]
    assert third.body == next(one for one in receiver.requests if one.event == "ORDER_PAID").body


async def test_deliveries_of_other_dealers_are_not_found(dealer: ApiClient, stranger: ApiClient, receiver: Receiver):
    order_no = await bought(dealer, receiver)
    [paid] = await deliveries_of(dealer, orderNo=order_no, eventType="ORDER_PAID")
    assert await deliveries_of(stranger) == await deliveries_of(stranger, orderNo=order_no) == []
    await stranger.post("/webhook/set", {"callbackUrl": receiver.url})
    theirs = await stranger.post(RESEND, {"deliveryId": paid["deliveryId"]})
    nobodys = await stranger.post(RESEND, {"deliveryId": "999999999"})
    assert (theirs.status, theirs.code, theirs.message) == (nobodys.status, nobodys.code, nobodys.message)
    assert theirs.code == "310272"


async def test_audit_finds_no_violation(service: Service):
    assert await service.audit() == []


# The operator


@pytest.fixture(scope="module")
def env(database_url: str) -> dict[str, str]:
    return environment(database_url)


async def test_operator_sees_failures_and_resends_them(
    service: Service, dealer: ApiClient, receiver: Receiver, env: dict[str, str]
):
    order_no = await bought(dealer, receiver)

    async def delivered() -> bool:
        return len(await deliveries_of(dealer, status="DELIVERED")) == 2

    await eventually(delivered)
    await service.database.run(
        lambda connection: connection.execute(
            "UPDATE webhook_delivery SET state = 'FAILED', due_at = NULL, finished_at = now(), delivered_at = NULL"
            " WHERE tenant_id = $1",
            dealer.tenant_id,
        )
    )
    mine = ("--tenant", str(dealer.tenant_id))
    shown = await run("webhook", "failures", *mine, "--json", env=env)
    found = [json.loads(line) for line in shown.out.splitlines()]
    assert sorted((one["eventType"], one["total"], one["httpStatus"]) for one in found) == [
        ("DELIVERY_UPDATED", 1, 200),
        ("ORDER_PAID", 1, 200),
    ]
    assert "ORDER_PAID" in (await run("webhook", "failures", *mine, env=env)).out

    asked = await run("webhook", "resend", *mine, env=env)
    assert asked.status == 1 and f"2 deliveries of {dealer.tenant_id}" in asked.err and "--yes" in asked.err
    sent = await run("webhook", "resend", *mine, "--since", "1h", "--yes", "--wait", "--json", env=env)
    assert sent.status == 0 and json.loads(sent.out)["total"] == 2, sent
    await receiver.received(4)
    jobs = [json.loads(line) for line in (await run("webhook", "jobs", "--json", env=env)).out.splitlines()]
    assert jobs[0]["tenantId"] == str(dealer.tenant_id) and jobs[0]["done"] == 2

    synced = await run("webhook", "sync", order_no, *mine, env=env)
    assert synced.out == "1 snapshot is sent\n"
    assert (await receiver.received(5))[4].json["changeHints"] == ["ORDER_SNAPSHOT_SYNC"]
    deliveries = await deliveries_of(dealer, orderNo=order_no, eventType="ORDER_PAID")
    again = await run("webhook", "resend", deliveries[0]["deliveryId"], *mine, env=env)
    assert again.out == "1 delivery is sent again\n"
    await receiver.received(6)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resend", "7"), "--tenant"),
        (("resend", "7", "--tenant", "1"), "no callback URL"),
        (("resend", "--tenant", "1"), "no tenant 1"),
        (("resend", "--state", "RETRY"), "RETRY"),
        (("resend", "--since", "noon"), "--since 'noon'"),
        (("sync", "--tenant", "1"), "--since"),
        (("stop", "4711"), "no job 4711"),
    ],
)
async def test_invalid_command_says_why(arguments: tuple[str, ...], said: str, env: dict[str, str]):
    done = await run("webhook", *arguments, env=env)
    assert done.status == 1 and done.err.startswith("dealer-server: ") and said in done.err, done


async def test_worker_serves_health_and_metrics(service: Service, env: dict[str, str]):
    async with (
        running("work", "--metrics", "127.0.0.1:0", env=env) as work,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        assert await work.ready() == "worker"
        found = re.search(r"metrics_served .*:(\d+)", work.said)
        assert found, work.said
        port = found[1]
        health = (await http.get(f"http://127.0.0.1:{port}/health")).json()
        assert health["status"] == "UP" and health["webhooks"]["oldest_due_seconds"] >= 0
        metrics = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    for name in (
        "dealer_webhook_attempts_total",
        "dealer_webhook_wait_seconds_bucket",
        "dealer_webhook_oldest_due_seconds",
        "dealer_webhook_breakers_open",
        "dealer_webhook_superseded_total",
        "dealer_webhook_leases_lost_total",
        "dealer_webhook_failed",
        "dealer_webhook_in_flight",
        "dealer_orders_waiting",
        "dealer_orders_oldest_waiting_seconds",
        "dealer_wallets_low",
        "dealer_audit_clean_timestamp_seconds",
        "dealer_ready 1.0",
        'dealer_database_connections{pool="main",state="most"} 4.0',
    ):
        assert name in metrics, name


async def test_second_worker_on_one_machine_runs_without_metrics(env: dict[str, str]):
    async with running("work", env=env) as first, running("work", env=env) as second:
        assert await first.ready() == await second.ready() == "worker"


async def test_test_event_to_a_hanging_receiver_delays_no_other_call(dealer: ApiClient, receiver: Receiver):
    await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
    receiver.answers = [hang]
    test_event = asyncio.create_task(dealer.post("/webhook/test"))
    await receiver.received(1)
    assert (await dealer.post("/health")).code == "000000" and not test_event.done()
    test_event.cancel()
