"""A service whose old webhooks were deleted: its audit, its lists, its command, its settings."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dealer_server.operations.retention.sweep import Sweeper
from dealer_server.settings import SettingsError
from support.api_client import ApiClient, Service, test_settings
from support.browser import Browser, signed_in
from support.money.refunds import bought, refund
from support.processes import environment, run
from support.reports import rebuilt
from support.webhook_fixture import listening

DELIVERY_DAYS = 90

# Moves all that there is so many days back: the ids of orders, which hold their time, and all times but what is due.
AGE = """
DO $$ DECLARE one record; days int := {days}; BEGIN
    FOR one IN SELECT table_name, column_name, data_type FROM information_schema.columns JOIN information_schema.tables
        USING (table_schema, table_name) WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
        AND (column_name = 'order_id' OR data_type LIKE 'timestamp%' AND column_name <> 'due_at')
        AND table_name NOT IN ('audit_log', 'retention', 'api_minute', 'migration', 'console_session')
    LOOP
        EXECUTE format('UPDATE %I SET %I = %I - %s', one.table_name, one.column_name, one.column_name, CASE
            one.column_name WHEN 'order_id' THEN '86400000000 * ' || days ELSE 'interval ''1 day'' * ' || days END);
    END LOOP;
    UPDATE ledger_entry SET reference = reference - 86400000000 * days WHERE entry_type = 'ORDER_PAY';
END $$
"""


async def execute(service: Service, sql: str) -> None:
    async with service.database.transaction() as connection:
        await connection.execute("SET LOCAL session_replication_role = replica")
        await connection.execute(sql)
    await rebuilt(service.database)


@asynccontextmanager
async def sweeper_of(service: Service) -> AsyncIterator[Sweeper]:
    made = Sweeper(service.database, service.database.clock.now, test_settings(service.database.dsn).retention)
    yield made
    await made.close()


async def traded(dealer: ApiClient) -> dict[str, Any]:
    """An order delivered and one refunded, with their webhooks; the first."""
    async with listening(1) as [receiver]:
        await dealer.post("/webhook/set", {"callbackUrl": receiver.url})
        order = await bought(dealer)
        await refund(dealer, await bought(dealer))
        await receiver.until(lambda one: one.event == "REFUND_COMPLETED")
        while await unfinished(dealer):
            await asyncio.sleep(0.02)
        await dealer.post("/webhook/set", {"callbackUrl": ""})
    return order


async def unfinished(dealer: ApiClient) -> bool:
    listed = (await dealer.post("/webhook/delivery/list", {})).data["deliveries"]
    return any(one["status"] not in ("DELIVERED", "SUPERSEDED") for one in listed)


async def test_swept_database_passes_the_audit_which_still_finds_what_is_missing(service: Service, dealer: ApiClient):
    order = await traded(dealer)
    listed = (await dealer.post("/webhook/delivery/list", {})).data["deliveries"]
    await execute(service, AGE.format(days=DELIVERY_DAYS + 10))
    young = await bought(dealer)
    assert await service.audit() == []
    async with sweeper_of(service) as one:
        deleted = await one.sweep()
    assert deleted["webhook_delivery"] >= 4
    assert await service.audit() == []
    kept = (await dealer.post("/webhook/delivery/list", {})).data["deliveries"]
    assert {one["deliveryId"] for one in kept} & {one["deliveryId"] for one in listed}  # the baselines
    gone = {one["deliveryId"] for one in listed} - {one["deliveryId"] for one in kept}
    assert (await dealer.post("/webhook/set", {"callbackUrl": "http://127.0.0.1:9999/hook"})).code == "000000"
    assert (await dealer.post("/webhook/delivery/resend", {"deliveryId": gone.pop()})).code == "310272"
    assert order["orderNo"] not in {one["orderNo"] for one in kept if one["eventType"] == "ORDER_PAID"}
    await execute(service, "DELETE FROM webhook_delivery WHERE event_type = 'ORDER_PAID'"
                  f" AND order_id = {int(young['orderId'])}")  # fmt: skip
    assert await service.audit() == ["A13"]


async def test_pages_show_an_order_whose_webhooks_were_deleted(service: Service, dealer: ApiClient, admin: Browser):
    await traded(dealer)
    before = (await dealer.post("/webhook/delivery/list", {})).data["deliveries"]
    await execute(service, AGE.format(days=DELIVERY_DAYS + 10))
    async with sweeper_of(service) as one:
        await one.sweep()
    after = (await dealer.post("/webhook/delivery/list", {})).data["deliveries"]
    order_no, kept = after[-1]["orderNo"], {one["deliveryId"] for one in after}
    gone = next(one["deliveryId"] for one in before if one["deliveryId"] not in kept)
    async with signed_in(service, tenant_id=dealer.tenant_id) as person:
        for who in (admin, person):
            assert (await who.get(f"/console/orders/{order_no}")).status_code == 200
        assert (await person.get(f"/console/webhooks/{gone}")).status_code == 404
        assert (await person.get("/console/webhooks")).status_code == 200
    operators = f"/console/deliveries/{dealer.tenant_id}/{gone}"
    assert (await admin.get(operators)).status_code == 404
    assert (await admin.get("/console/webhooks?status=FAILED")).status_code == 200
    assert (await admin.post(f"{operators}/resend")).status_code < 500


async def test_command_shows_what_is_kept(service: Service, dealer: ApiClient):
    await bought(dealer)
    async with sweeper_of(service) as one:
        await one.sweep()
    env = environment(service.database.dsn, DEALER_WEBHOOK_DELIVERY_DAYS="0")
    shown = [json.loads(line) for line in (await run("retention", "--json", env=env)).out.splitlines()]
    assert [(one["kind"], one["days"]) for one in shown] == [
        ("webhook_attempt", 30),
        ("webhook_delivery", 0),
        ("supplier_call", 30),
        ("supplier_event", 30),
        ("sms", 30),
        ("notice", 90),
        ("served_call", 30),
        ("buyer_mail", 90),
    ]
    assert shown[1]["oldestTime"] and shown[1]["sweptTime"] and shown[1]["sizeBytes"] > 0
    assert "for ever" in (await run("retention", env=env)).out


@pytest.mark.parametrize("days", ["29", "-1", "36501", "x"])
def test_settings_out_of_bounds_are_named(days: str):
    with pytest.raises(SettingsError, match="DEALER_WEBHOOK_DELIVERY_DAYS"):
        test_settings("postgresql://localhost/x", webhook_delivery_days=days)


def test_empty_setting_keeps_for_ever():
    settings = test_settings("postgresql://localhost/x", webhook_delivery_days="", webhook_attempt_days=0)
    assert set(settings.retention) == {"supplier_call", "supplier_event", "sms", "notice", "served_call", "buyer_mail"}
