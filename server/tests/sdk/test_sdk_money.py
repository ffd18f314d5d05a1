"""Money after the sale with the SDK and its command, against the real service."""

import asyncio
import json
import sys

import pytest

from esim_dealer import AsyncDealer, Conflict, Line
from support.api_client import ApiClient


async def command(dealer: ApiClient, *arguments: str) -> tuple[int, str, str]:
    """`esim-dealer` as a dealer types it."""
    env = {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
        "NO_PROXY": "*",
    }
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "esim_dealer.cli", *arguments, env=env, stdout=-1, stderr=-1
    )
    out, err = await running.communicate()
    assert running.returncode is not None
    return running.returncode, out.decode(), err.decode()


async def test_a_refund_with_the_sdk_from_order_to_credit(dealer: ApiClient):
    async with AsyncDealer(dealer.url, dealer.app_key, dealer.app_secret) as sdk:
        placed = await sdk.order("t-1", [Line("TEST-ASYNC", 2, "1.80")])
        order = await sdk.wait_for_delivery(placed.order_no)
        [item] = order.items
        first = (item.profiles or ())[0]
        refund = await sdk.refund(order.order_no, items={item.item_no: [first.iccid or ""]})
        assert refund.status == "REFUNDING"
        after = await sdk.wait_for_refund(order.order_no, poll=0.02)
        assert float(after.refund_amount or 0) == 1.8
        with pytest.raises(Conflict):
            await sdk.refund(order.order_no, items={item.item_no: [first.iccid or ""]}, refund_transaction_id="r-2")
        second = (item.profiles or ())[1]
        assert (await sdk.suspend(second.profile_id)).suspended
        assert not (await sdk.unsuspend(second.profile_id)).suspended
        assert (await sdk.cancel(iccid=second.iccid or "")).async_status == "PENDING"
        entries = [entry async for entry in sdk.iter_statement()]
        assert [entry.entry_type for entry in entries] == ["REFUND", "ORDER_PAY", "ADJUST"]


async def test_the_command_refunds_cancels_and_shows_the_wallet(dealer: ApiClient):
    one, two = (await dealer.order()).data["orderNo"], (await dealer.order()).data["orderNo"]
    await dealer.delivered(one)
    iccid = (await dealer.delivered(two))["items"][0]["profiles"][0]["iccid"]
    status, out, err = await command(dealer, "refund", one, "--wait")
    assert status == 0 and "1.80 USD credited" in out and "--refund-transaction-id" in err, err
    for name, suspended in (("suspend", True), ("unsuspend", False)):
        status, out, _ = await command(dealer, name, iccid, "--json")
        assert status == 0 and json.loads(out)["suspended"] is suspended
    status, out, _ = await command(dealer, "cancel", iccid, "--json")
    assert json.loads(out)["cancelled"] is True
    status, out, _ = await command(dealer, "statement")
    assert status == 0 and out.count("ORDER_PAY") == 2 and "REFUND" in out
    status, out, _ = await command(dealer, "topup", "25", "--method", "CARD", "--json")
    topup = json.loads(out)
    assert topup["status"] == "PENDING"
    status, out, _ = await command(dealer, "topup", "--query", topup["topupNo"])
    assert status == 0 and "25.00" in out
    status, out, _ = await command(dealer, "topup", "cancel", topup["topupNo"], "--json")
    assert status == 0 and json.loads(out)["status"] == "CANCELLED"
    status, out, _ = await command(dealer, "topup", "cancel", "--transaction-id", topup["transactionId"], "--json")
    assert status == 0 and json.loads(out)["duplicate"] is True
    assert (await command(dealer, "topup", "cancel"))[0] == (await command(dealer, "topup", "25", "T1"))[0] == 2
    status, _, err = await command(dealer, "refund", one, "--refund-transaction-id", "again")
    assert status == 1 and "200003" in err
    assert (await command(dealer, "topup"))[0] == 2
