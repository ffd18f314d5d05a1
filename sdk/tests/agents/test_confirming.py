"""Confirmations of `esim-dealer mcp`, and what they count, when answers are lost, refused or not understood."""

import asyncio
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("mcp")

from esim_dealer import AsyncDealer, errors
from esim_dealer.mcp.limits import DailyLimits, LimitsUnavailable
from esim_dealer.mcp.trading import PREVIEW_SECONDS, TradingTools

from ..conftest import APP_KEY, APP_SECRET, URL, FakeClock, Service, package, packages, refusal, snapshot, success
from ..test_client import BALANCE, refunded

LOST = httpx2.ReadTimeout("no answer")
CHECK = {
    "currency": "USD",
    "amount": "1.80",
    "balance": "10.00",
    "balanceAfter": "8.20",
    "availableBalance": "10.00",
    "creditLimit": "0.00",
    "duplicate": False,
    "items": [],
}


class Trading:
    """The tools on a service that answers what is laid out, and the times they look at."""

    def __init__(self, dealer: AsyncDealer, service: Service, clock: FakeClock, folder: Path) -> None:
        self.service = service
        self.clock = clock
        self.limits = DailyLimits(folder / "limits.sqlite", Decimal(100), 20)
        self.limits.check()
        self.tools = TradingTools(dealer, self.limits, clock.now)
        self.meanwhile: Callable[[str], object] = lambda path: None

    async def previewed(self) -> str:
        """An order of 1.80."""
        return (await self.tools.preview_order("TEST-OK"))["previewId"]

    async def counted(self) -> tuple[str, int]:
        used = (await self.tools.preview_order("TEST-OK"))["today"]
        return used["amount"], used["count"]


@pytest.fixture
async def trading(service: Service, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Trading]:
    service.answers("/package/list", success(packages(package())))
    service.answers("/esim/order/check", success(CHECK))
    service.answers("/account/balance", success(BALANCE))
    made: list[Trading] = []

    def answered(request: httpx2.Request) -> httpx2.Response:
        made[0].meanwhile(request.url.path)
        return service(request)

    transport = httpx2.MockTransport(answered)
    timing = {"clock": clock.clock(), "sleep": clock.sleep_async}
    async with AsyncDealer(URL, APP_KEY, APP_SECRET, transport=transport, **timing) as dealer:
        made.append(Trading(dealer, service, clock, tmp_path))
        yield made[0]


async def test_what_is_not_known_can_be_confirmed_after_the_ten_minutes(trading: Trading):
    trading.service.answers("/esim/order", *[LOST] * 4, success(snapshot()))
    preview_id = await trading.previewed()
    with pytest.raises(ValueError, match="not known whether this was done; confirm it again"):
        await trading.tools.confirm(preview_id)
    assert await trading.counted() == ("1.80", 1)
    trading.clock.seconds += 2 * PREVIEW_SECONDS
    done = await trading.tools.confirm(preview_id)
    assert done["result"]["orderNo"] and done["today"]["count"] == 1
    assert len({body["transactionId"] for body in trading.service.bodies("/esim/order")}) == 1
    trading.clock.seconds += 2 * PREVIEW_SECONDS
    with pytest.raises(ValueError, match="older than 10 minutes; if you confirmed it before, look with list_orders"):
        await trading.tools.confirm(preview_id)


async def test_a_preview_that_there_is_not_is_named_in_short(trading: Trading):
    known = await trading.previewed()
    for name, shown in ((f"{known[:-1]}x", f"{known[:-1]}x,"), ("y" * 100_000, "y" * 40 + "…,")):
        with pytest.raises(ValueError, match=f"no preview {shown}") as refused:
            await trading.tools.confirm(name)
        assert len(str(refused.value)) < 250
    assert trading.service.bodies("/esim/order") == []


async def test_a_refund_whose_repeat_is_refused_stays_counted(trading: Trading):
    trading.service.answers("/esim/query", success(snapshot()))
    trading.service.answers("/esim/refund", LOST, refusal("101007", 403), success(refunded()))
    preview = await trading.tools.preview_refund("D251231120000000001")
    with pytest.raises(ValueError, match="not known"):
        await trading.tools.confirm(preview["previewId"])
    assert await trading.counted() == ("1.80", 1)


async def test_what_was_done_counts_although_its_answer_is_not_understood(trading: Trading):
    trading.service.answers("/esim/order", success({"orderNo": "D1"}))
    with pytest.raises(ValueError, match="it was done"):
        await trading.tools.confirm(await trading.previewed())
    assert await trading.counted() == ("1.80", 1)


@pytest.mark.parametrize("answer", [refusal("900001", 503), refusal("200007", 402), httpx2.ConnectError("no route")])
async def test_what_was_surely_not_done_does_not_count(trading: Trading, answer: httpx2.Response | Exception):
    trading.service.answers("/esim/order", answer)
    with pytest.raises(errors.DealerError):
        await trading.tools.confirm(await trading.previewed())
    assert await trading.counted() == ("0", 0)


async def test_a_refusal_that_settles_an_unknown_outcome_does_not_count(trading: Trading):
    trading.service.answers("/esim/order", *[LOST] * 4, refusal("200007", 402))
    preview_id = await trading.previewed()
    for failure in (ValueError, errors.InsufficientBalance):
        with pytest.raises(failure):
            await trading.tools.confirm(preview_id)
    assert await trading.counted() == ("0", 0)


async def test_an_agent_that_leaves_does_not_stop_what_it_confirmed(trading: Trading):
    trading.service.answers("/esim/order", success(snapshot()))
    preview_id = await trading.previewed()
    leaving = asyncio.create_task(trading.tools.confirm(preview_id))
    await asyncio.sleep(0)  # it has begun
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await trading.tools.confirm(preview_id))["today"]["count"] == 1
    assert len(trading.service.bodies("/esim/order")) == 2


async def test_nothing_is_confirmed_once_the_limits_are_lost(trading: Trading):
    trading.service.answers("/esim/order", success(snapshot()))
    preview_id, other = await trading.previewed(), await trading.previewed()
    await trading.tools.confirm(other)
    trading.limits.file.unlink()
    for use in (trading.tools.confirm(preview_id), trading.tools.confirm(other), trading.previewed()):
        with pytest.raises(LimitsUnavailable):
            await use
    assert len(trading.service.bodies("/esim/order")) == 1 and not trading.limits.file.exists()


async def test_what_was_done_is_told_although_the_limits_cannot_be_read(trading: Trading):
    preview_id = await trading.previewed()

    def lose_limits(path: str) -> None:
        if path.endswith("/esim/order"):
            trading.limits.file.unlink()
            trading.limits.file.mkdir()

    trading.meanwhile = lose_limits
    trading.service.answers("/esim/order", success(snapshot()))
    assert "today" not in await trading.tools.confirm(preview_id)


async def test_a_refund_names_the_esims_that_were_previewed_where_some_stay(trading: Trading):
    [item] = snapshot()["items"]
    [fresh] = item["profiles"]
    used = fresh | {"profileId": "112", "iccid": "8910300000000000025", "planUseStatus": "IN_USE"}
    two = snapshot(amount="3.60", items=[item | {"quantity": 2, "profiles": [fresh, used]}])
    trading.service.answers("/esim/query", success(two))
    trading.service.answers("/esim/refund", success(refunded()))
    askings: list[dict[str, Any]] = [{}, {"item_no": "11"}, {"item_no": "11", "esims": ["111", fresh["iccid"]]}]
    for asked in askings:
        preview = await trading.tools.preview_refund("D251231120000000001", **asked)
        assert preview["atMost"] == "1.80"
        await trading.tools.confirm(preview["previewId"])
        sent = trading.service.bodies("/esim/refund")[-1]
        assert sent["items"] == [{"itemNo": "11", "profiles": [{"profileId": "111"}]}]
    with pytest.raises(ValueError, match="esims is empty"):
        await trading.tools.preview_refund("D251231120000000001", "11", [])
