"""`esim-dealer mcp` with the MCP client, over stdio and HTTP, against the real service."""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from support.api_client import ApiClient, Service, http_client
from support.webhook_fixture import eventually

TOKEN = "a-token-for-tests"
LINE = {"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}
READING = {"get_balance", "list_regions", "list_packages", "get_package", "list_orders", "get_order", "list_esims"}
READING |= {"get_usage", "list_plans", "list_deliveries"}
TRADING = {"preview_order", "preview_recharge", "preview_refund", "confirm"}
LONGEST = timedelta(minutes=1)  # that one of these tests takes on a busy machine


@pytest.fixture(autouse=True)
async def within_a_day():
    """The limits begin again at midnight UTC: a test that would run over it begins after it."""
    now = datetime.now(UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if midnight - now < LONGEST:
        await asyncio.sleep((midnight - now).total_seconds())


def environment(dealer: ApiClient, folder: Path) -> dict[str, str]:
    return {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
        "ESIM_DEALER_MCP_TOKEN": TOKEN,
        "XDG_STATE_HOME": str(folder),
        "NO_PROXY": "*",
        "PATH": os.environ["PATH"],
    }


class Agent:
    """Calls tools; `failed` gives the words of a tool that fails."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def names(self) -> set[str]:
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def read_only(self) -> set[str]:
        tools = (await self._client.list_tools()).tools
        return {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}

    async def use(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = await self._client.call_tool(name, arguments)
        assert not result.is_error, result.content
        assert isinstance(result.structured_content, dict)
        return result.structured_content

    async def failed(self, name: str, **arguments: Any) -> str:
        result = await self._client.call_tool(name, arguments)
        assert result.is_error, result
        return "".join(getattr(part, "text", "") for part in result.content)


@asynccontextmanager
async def over_stdio(dealer: ApiClient, folder: Path, *options: str) -> AsyncIterator[Agent]:
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "esim_dealer.cli", "mcp", *options], env=environment(dealer, folder)
    )
    async with Client(stdio_client(started)) as client:
        yield Agent(client)


@asynccontextmanager
async def http_server(
    dealer: ApiClient, folder: Path, *options: str, ends_at: signal.Signals = signal.SIGINT, token: str = TOKEN
) -> AsyncIterator[str]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esim_dealer.cli",
        "mcp",
        "--http",
        "--port",
        "0",
        *options,
        env=environment(dealer, folder) | {"ESIM_DEALER_MCP_TOKEN": token},
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stderr is not None
    said = (await running.stderr.readline()).decode()
    try:
        assert said.startswith("listening on http://127.0.0.1:"), said
        yield said.split()[-1]
    finally:
        running.send_signal(ends_at)
        await running.communicate()
    assert running.returncode == 0


async def test_an_agent_reads_and_cannot_buy_unless_told_otherwise(dealer: ApiClient, tmp_path: Path):
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    iccid = order["items"][0]["profiles"][0]["iccid"]
    async with over_stdio(dealer, tmp_path) as agent:
        assert await agent.names() == await agent.read_only() == READING
        assert (await agent.use("get_balance"))["currency"] == "USD"
        packages = await agent.use("list_packages", keyword="TEST-OK", limit=5)
        assert {"packageCode", "price", "currency"} <= packages["packages"][0].keys()
        assert (await agent.use("get_package", package_code="TEST-OK"))["price"] == "1.80"
        [listed] = (await agent.use("list_orders"))["orders"]
        assert listed["orderNo"] == order["orderNo"] and "items" not in listed
        shown = (await agent.use("get_order", order_no=order["orderNo"]))["items"][0]["profiles"][0]
        assert shown["iccid"] == iccid and "activationCode" not in shown
        [esim] = (await agent.use("list_esims", iccid=iccid, include_codes=True))["esims"]
        assert esim["profile"]["activationCode"].startswith("LPA:1$")
        assert (await agent.use("get_usage", esim=iccid))["dataUsageBytes"] == 0
        assert len((await agent.use("list_plans", esim=iccid))["plans"]) == 1
        assert "deliveries" in await agent.use("list_deliveries", order_no=order["orderNo"])
        assert "310272" in await agent.failed("get_order", order_no="D260101000000000001")
        assert "limit 1000" in await agent.failed("list_orders", limit=1000)
        assert "preview_order" in await agent.failed("preview_order", package_code="TEST-OK")
    assert list(tmp_path.iterdir()) == []


async def test_buying_takes_a_preview_and_its_confirmation_and_keeps_the_limits(dealer: ApiClient, tmp_path: Path):
    before = (await dealer.post("/account/balance", {})).data["balance"]
    limits = ("--allow-writes", "--daily-count", "2", "--daily-amount", "5")
    async with over_stdio(dealer, tmp_path, *limits) as agent:
        assert await agent.names() == READING | TRADING
        assert "confirm" not in await agent.read_only()
        preview = await agent.use("preview_order", package_code="TEST-OK", quantity=2)
        assert (preview["amount"], preview["price"], preview["balance"]) == ("3.60", "1.80", before)
        assert float(preview["balanceAfter"]) == float(before) - 3.6
        assert (await dealer.post("/account/balance", {})).data["balance"] == before
        unknown = await agent.failed("confirm", preview_id="mine")
        assert (
            "no preview mine" in unknown and "look with list_orders or list_esims before you preview again" in unknown
        )
        assert len(await agent.failed("confirm", preview_id="m" * 100_000)) < 300

        done, again = [await agent.use("confirm", preview_id=preview["previewId"]) for _ in range(2)]
        assert done["result"]["orderNo"] == again["result"]["orderNo"] and again["result"]["duplicate"]
        assert again["today"] == {"amount": "3.60", "amountLimit": "5", "count": 1, "countLimit": 2}
        assert "3.60 of 5 of today" in await agent.failed("preview_order", package_code="TEST-OK")
        assert "would be refused: 200011" in await agent.failed("preview_order", package_code="TEST-STOCKOUT")
    async with over_stdio(dealer, tmp_path, *limits[:3], "--daily-amount", "100") as agent:  # kept over a restart
        await dealer.delivered(done["result"]["orderNo"])
        refund = await agent.use("preview_refund", order_no=done["result"]["orderNo"])
        assert (refund["atMost"], refund["today"]["count"]) == ("3.60", 1)
        late = await agent.use("preview_order", package_code="TEST-OK")
        refunded = await agent.use("confirm", preview_id=refund["previewId"])
        assert (refunded["result"]["status"], refunded["result"]["refundAmount"]) == ("REFUNDED", "3.60")
        assert "2 of 2 actions of today" in await agent.failed("confirm", preview_id=late["previewId"])
        assert (await dealer.post("/account/balance", {})).data["balance"] == before
        assert "refunded already" in await agent.failed("preview_refund", order_no=done["result"]["orderNo"])
    [file] = (tmp_path / "esim-dealer").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


async def test_over_http_with_its_token_only(dealer: ApiClient, tmp_path: Path):
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    iccid = order["items"][0]["profiles"][0]["iccid"]
    async with http_server(dealer, tmp_path, "--allow-writes") as url:
        async with http_client() as http:
            for headers in ({}, {"Authorization": "Bearer another"}):
                refused = await http.post(url, json={}, headers=headers)
                assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
            rebound = {"Authorization": f"Bearer {TOKEN}", "Host": "attacker.example", "Accept": "application/json"}
            assert (await http.post(url, json={}, headers=rebound)).status_code == 421
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            agent = Agent(client)
            assert (await agent.use("get_order", order_no=order["orderNo"]))["orderStatus"] == "COMPLETED"
            fitting = await agent.use("list_packages", for_esim=iccid, type="TOPUP")
            code = fitting["packages"][0]["packageCode"]
            recharge = await agent.use("preview_recharge", esim=iccid, package_code=code)
            done = await agent.use("confirm", preview_id=recharge["previewId"])
            assert done["result"]["orderType"] == "TOPUP" and done["today"]["count"] == 1
            ordered = await agent.use("preview_order", package_code="TEST-OK")
            bought = await agent.use("confirm", preview_id=ordered["previewId"])
            assert bought["result"]["payStatus"] == "PAID"


async def test_a_refund_preview_says_what_cannot_be_refunded(dealer: ApiClient, tmp_path: Path):
    order = await dealer.delivered((await dealer.order(items=[{**LINE, "quantity": 3}], amount="5.40")).data["orderNo"])
    number, [item] = order["orderNo"], order["items"]
    used, recharged, fresh = [profile["iccid"] for profile in item["profiles"]]
    await dealer.post("/test/profile/advance", {"iccid": used, "step": "START"})
    async with over_stdio(dealer, tmp_path, "--allow-writes") as agent:
        package = (await agent.use("list_packages", for_esim=recharged, keyword="TEST-TOPUP-OK"))["packages"][0]
        preview = await agent.use("preview_recharge", esim=recharged, package_code=package["packageCode"])
        recharge = (await agent.use("confirm", preview_id=preview["previewId"]))["result"]
        await dealer.delivered(recharge["orderNo"])
        whole = await agent.use("preview_refund", order_no=number)
        assert whole["atMost"] == whole["amount"] == "1.80"
        assert [(each["iccid"], each["reason"]) for each in whole["notRefundable"]] == [
            (used, "USED"), (recharged, "TOPPED_UP")
        ]  # fmt: skip
        named = {"order_no": number, "item_no": item["itemNo"]}
        assert "TOPPED_UP" in await agent.failed("preview_refund", **named, esims=[fresh, recharged])
        assert "has no eSIM 12345" in await agent.failed("preview_refund", **named, esims=["12345"])
        alone = await agent.use("preview_refund", **named, esims=[fresh])
        assert alone["atMost"] == "1.80" and "notRefundable" not in alone
        refunded = await agent.use("confirm", preview_id=whole["previewId"])
        assert (refunded["result"]["status"], refunded["result"]["refundAmount"]) == ("REFUNDED", "1.80")
        assert "CANCELLED or REFUNDED" in await agent.failed("preview_refund", **named, esims=[fresh])
        assert "cannot be refunded" in await agent.failed("preview_refund", order_no=number)


async def test_a_preview_is_refused_for_what_a_confirmation_could_not_do(dealer: ApiClient, tmp_path: Path):
    order = await dealer.delivered((await dealer.order()).data["orderNo"])
    [item] = order["items"]
    iccid = item["profiles"][0]["iccid"]
    async with over_stdio(dealer, tmp_path, "--allow-writes") as agent:
        recharge = {"esim": iccid, "package_code": "TEST-TOPUP-OK"}
        for days in (-1000, 0, True, 10_001):
            assert "period_num" in await agent.failed("preview_recharge", **recharge, period_num=days)
        assert "not sold by the day" in await agent.failed("preview_recharge", **recharge, period_num=3)
        assert "does not recharge" in await agent.failed("preview_recharge", esim=iccid, package_code="TEST-OK")
        unknown = recharge | {"esim": "89000000000000000000"}
        assert "310404" in await agent.failed("preview_recharge", **unknown)
        for name in ("", "x"):
            assert "names no eSIM" in await agent.failed("preview_recharge", **recharge | {"esim": name})
            assert "names no eSIM" in await agent.failed("list_packages", for_esim=name)
        assert "quantity" in await agent.failed("preview_order", package_code="TEST-OK", quantity=True)
        named = {"order_no": order["orderNo"], "item_no": item["itemNo"]}
        assert "itemNo" in await agent.failed("preview_refund", order_no=order["orderNo"], itemNo=item["itemNo"])
        assert (await agent.use("preview_refund", **named, esims=[iccid, iccid]))["atMost"] == "1.80"
        assert (await agent.use("preview_order", package_code="TEST-OK"))["today"]["count"] == 0


async def test_a_profile_id_can_be_handed_back_as_it_came(dealer: ApiClient, tmp_path: Path):
    await dealer.delivered((await dealer.order()).data["orderNo"])
    async with over_stdio(dealer, tmp_path) as agent:
        profile_id = (await agent.use("list_esims"))["esims"][0]["profile"]["profileId"]
        assert (await agent.use("get_usage", esim=profile_id))["profileId"] == profile_id
        assert (await agent.use("list_plans", esim=profile_id))["profileId"] == profile_id


async def test_what_was_done_stays_counted_when_its_repeat_is_refused(
    service: Service, dealer: ApiClient, tmp_path: Path
):
    async with over_stdio(dealer, tmp_path, "--allow-writes") as agent:
        bought, other = [(await agent.use("preview_order", package_code="TEST-OK"))["previewId"] for _ in range(2)]
        assert (await agent.use("confirm", preview_id=bought))["today"]["count"] == 1
        await service.change(dealer.tenant_id, ip_allow=["198.51.100.7"])
        await eventually(lambda: answered(dealer, "101002"))
        for preview_id in (bought, other):
            assert "101002" in await agent.failed("confirm", preview_id=preview_id)
        await service.change(dealer.tenant_id, ip_allow=[])
        await eventually(lambda: answered(dealer, "000000"))
        assert (await agent.use("preview_order", package_code="TEST-OK"))["today"]["count"] == 1


async def test_limits_that_cannot_be_kept_stop_what_moves_money_alone(dealer: ApiClient, tmp_path: Path):
    file = tmp_path / "limits.sqlite"
    async with over_stdio(dealer, tmp_path, "--allow-writes", "--limits-file", str(file)) as agent:
        preview = await agent.use("preview_order", package_code="TEST-OK")
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            confirming = asyncio.create_task(agent.failed("confirm", preview_id=preview["previewId"]))
            assert (await agent.use("get_balance"))["currency"] == "USD"
            assert not confirming.done()
            assert f"{file}, cannot be used: database is locked" in await confirming
            other.execute("ROLLBACK")
        assert (await agent.use("confirm", preview_id=preview["previewId"]))["today"]["count"] == 1
    status, said = await refused_at_start(dealer, tmp_path, "--allow-writes", "--limits-file", str(tmp_path))
    assert status == 1 and f"{tmp_path}, cannot be used" in said and "--limits-file" in said


async def test_limits_that_are_lost_or_unreadable_do_not_begin_anew(dealer: ApiClient, tmp_path: Path):
    file, before = tmp_path / "limits.sqlite", (await dealer.post("/account/balance", {})).data["balance"]
    options = ("--allow-writes", "--limits-file", str(file))
    async with over_stdio(dealer, tmp_path, *options) as agent, over_stdio(dealer, tmp_path, *options) as other:
        preview, others = [await each.use("preview_order", package_code="TEST-OK") for each in (agent, other)]
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("INSERT INTO action VALUES ('x', date('now'), 'x')")
        said = await agent.failed("confirm", preview_id=preview["previewId"])
        assert f"{file}, cannot be used: 'x' is not an amount" in said
        with closing(sqlite3.connect(file, isolation_level=None)) as database:
            database.execute("DROP TABLE action")
        said = await agent.failed("confirm", preview_id=preview["previewId"])
        assert f"{file}, cannot be used: no such table" in said
        file.unlink()
        for each, kept in ((agent, preview), (other, others)):
            for tool, arguments in (
                ("confirm", {"preview_id": kept["previewId"]}),
                ("preview_order", {"package_code": "TEST-OK"}),
            ):
                assert f"{file}, cannot be used: unable to open" in await each.failed(tool, **arguments)
            assert (await each.use("get_balance"))["balance"] == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("token", [" ", "a token", "tökén"])
async def test_a_token_that_no_client_can_send_is_refused_at_the_start(dealer: ApiClient, tmp_path: Path, token: str):
    status, said = await refused_at_start(dealer, tmp_path, "--http", "--port", "0", ESIM_DEALER_MCP_TOKEN=token)
    assert status == 1 and "ESIM_DEALER_MCP_TOKEN" in said and "ASCII" in said and "Traceback" not in said


async def test_spaces_around_the_token_do_not_belong_to_it(dealer: ApiClient, tmp_path: Path):
    async with http_server(dealer, tmp_path, token=f" {TOKEN}\n") as url, http_client() as http:
        sent = {"Authorization": f"Bearer {TOKEN}", "Host": "attacker.example", "Accept": "application/json"}
        assert (await http.post(url, json={}, headers=sent)).status_code == 421  # its token was taken


@pytest.mark.parametrize("ends_at", [signal.SIGINT, signal.SIGTERM])
async def test_being_told_to_stop_is_no_failure(dealer: ApiClient, tmp_path: Path, ends_at: signal.Signals):
    async with http_server(dealer, tmp_path, ends_at=ends_at) as url, http_client() as http:
        assert (await http.post(url, json={})).status_code == 401


async def test_without_the_extra_it_says_what_to_install(dealer: ApiClient, tmp_path: Path):
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'mcp'\", name='mcp')")
    status, said = await refused_at_start(dealer, tmp_path, PYTHONPATH=str(tmp_path))
    assert status == 1 and "pip install './sdk[mcp]'" in said


@pytest.mark.parametrize(
    "options",
    [
        ("--daily-amount", "much"),
        ("--daily-count", "much"),
        ("--daily-count", "-3"),
        ("--port", "99999"),
        ("--port", "-1"),
    ],
)
async def test_a_number_that_is_none_is_wrong_usage(dealer: ApiClient, tmp_path: Path, options: tuple[str, str]):
    status, said = await refused_at_start(dealer, tmp_path, *options)
    assert status == 2 and options[0] in said and "Traceback" not in said


async def answered(dealer: ApiClient, code: str) -> bool:
    return (await dealer.post("/account/balance", {})).code == code


async def refused_at_start(dealer: ApiClient, folder: Path, *options: str, **variables: str) -> tuple[int | None, str]:
    """Its exit status and what it wrote."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esim_dealer.cli",
        "mcp",
        *options,
        env=environment(dealer, folder) | variables,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, err = await asyncio.wait_for(running.communicate(), 60)
    finally:
        if running.returncode is None:  # it was not refused
            running.kill()
            await running.wait()
    return running.returncode, err.decode()
