"""What does Prometheus read of a process that serves the API?"""

from datetime import timedelta

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from dealer_server.store import gauges
from support.api_client import ApiClient, running_service
from support.patience import PATIENCE
from support.processes import Process, environment, running

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scraped(http: httpx2.AsyncClient, process: Process) -> Samples:
    answer = await http.get(f"{process.monitoring}/metrics")
    assert answer.status_code == 200, answer.text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_serve_counts_calls_by_operation_and_code_and_says_how_fast_and_in_which_batches(database_url: str):
    env = environment(database_url, DEALER_CONSOLE="")
    async with (
        running_service(database_url, worker=False) as service,
        service.client(await service.tenant(balance="5", qps=0)) as made,
        running("serve", "--port", "0", "--share-nothing", env=env) as serve,
    ):
        dealer = ApiClient(await serve.ready(), made.tenant_id, made.app_key, made.app_secret, made.http)
        codes = [(await dealer.order()).code for _ in range(3)]
        assert codes == ["000000", "000000", "200007"]
        await dealer.post("/account/balance")
        assert (await dealer.post("/no/such/operation")).code == "000112"
        assert (await made.http.get(f"{dealer.url}/livez")).json() == {"status": "UP"}
        found = await scraped(made.http, serve)

    def calls(operation: str, code: str) -> float:
        return found["dealer_api_calls_total", (("code", code), ("operation", operation))]

    assert calls("/esim/order", "000000") == 2 and calls("/esim/order", "200007") == 1
    assert calls("", "000112") == 1
    assert found["dealer_api_call_seconds_count", (("operation", "/esim/order"),)] == 3
    assert found["dealer_api_call_seconds_bucket", (("le", "+Inf"), ("operation", "/esim/order"))] == 3
    assert 0 < found["dealer_api_call_seconds_sum", (("operation", "/account/balance"),)] < 60
    assert found["dealer_batch_items_sum", (("batch", "orders"),)] == 3
    assert found["dealer_batch_items_sum", (("batch", "balances"),)] == 1
    assert found["dealer_api_connections", ()] >= 1
    assert found["dealer_api_connections_closed_total", (("reason", "malformed"),)] == 0
    assert found["dealer_ready", ()] == 1
    assert found["dealer_not_ready", (("reason", "clock"),)] == 0
    assert abs(found["dealer_clock_ahead_seconds", ()]) < 5
    assert found["dealer_database_connections", (("pool", "lists"), ("state", "most"))] == 4
    assert not any(name.startswith("dealer_webhook") for name, _ in found)


async def test_gauges_tell_how_long_the_oldest_order_waits_and_what_else_waits(database_url: str):
    async with running_service(database_url, worker=False) as service:
        made = await service.tenant(balance="5", qps=0)
        async with service.database.connection() as connection, service.client(made) as dealer:
            before = await gauges.read(connection, service.database.clock.now())
            assert (await dealer.order()).code == (await dealer.order()).code == "000000"
            await connection.execute(
                "UPDATE wallet SET low_balance_threshold = 100000, frozen = true WHERE tenant_id = $1",
                int(made.tenant_id),
            )
            await connection.execute("DELETE FROM audit_checkpoint")
            after = await gauges.read(connection, service.database.clock.now() + timedelta(hours=1))
        assert {name: after[name] - before[name] for name in ("orders_waiting", "wallets_low", "wallets_frozen")} == {
            "orders_waiting": 2,
            "wallets_low": 1,
            "wallets_frozen": 1,
        }
        assert 3600 <= after["orders_oldest_waiting_seconds"] < 7200
        assert after["audit_clean_timestamp_seconds"] == 0
        async with service.database.connection() as connection:
            await connection.execute("UPDATE wallet SET frozen = false WHERE tenant_id = $1", int(made.tenant_id))
        assert await service.audit() == []
        async with service.database.connection() as connection:
            audited = await gauges.read(connection, service.database.clock.now())
        assert abs(audited["audit_clean_timestamp_seconds"] - service.database.clock.now().timestamp()) < PATIENCE
