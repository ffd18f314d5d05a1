"""`esim-dealer trigger` and `logs tail` against the real service: every scenario, side by side."""

import asyncio
import os
import signal
import sys

from esim_dealer.cli.trigger import SCENARIOS
from support.api_client import ApiClient

# What the last state of each story says.
ENDS = {
    "ok": "COMPLETED, delivery DELIVERED",
    "delay": "COMPLETED, delivery DELIVERED",
    "partial": "COMPLETED, delivery DELIVERED",
    "fail": "REFUNDED, delivery FAILED",
    "stockout": "refused, as it should be",
    "lifecycle": "ACTIVATED/ENDED",
    "refund": "REFUNDED, delivery DELIVERED",
    "refund-async": "REFUNDED, delivery DELIVERED",
    "refund-rejected": "COMPLETED, delivery DELIVERED",
    "refund-review": "stays REFUNDING",
    "cancel-async": "CANCELLED/",
    "recharge": "COMPLETED, delivery DELIVERED",
    "failing-receiver": "the callback URL is as it was",
}


def environment(dealer: ApiClient) -> dict[str, str]:
    return {
        "ESIM_DEALER_URL": dealer.url,
        "ESIM_DEALER_APP_KEY": dealer.app_key,
        "ESIM_DEALER_APP_SECRET": dealer.app_secret,
        "NO_PROXY": "*",
        "PATH": os.environ["PATH"],
    }


async def played(dealer: ApiClient, scenario: str) -> tuple[int | None, list[str]]:
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esim_dealer.cli",
        "trigger",
        scenario,
        env=environment(dealer),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await running.communicate()
    return running.returncode, out.decode().splitlines()


async def test_every_scenario_plays_to_its_end_and_the_log_shows_it(dealer: ApiClient):
    assert list(ENDS) == list(SCENARIOS)
    log = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "esim_dealer.cli",
        "logs",
        "tail",
        "--every",
        "0.2",
        env=environment(dealer),
        stdout=asyncio.subprocess.PIPE,
    )
    assert log.stdout is not None
    first = asyncio.create_task(log.stdout.readline())
    while not first.done():  # what changed before it began it does not show
        assert (await dealer.order()).code == "000000"
        await asyncio.wait([first], timeout=0.5)
    stories = await asyncio.gather(*(played(dealer, scenario) for scenario in SCENARIOS))
    for scenario, (status, lines) in zip(SCENARIOS, stories, strict=True):
        assert status == 0 and ENDS[scenario] in lines[-1], (scenario, lines)
    assert (await dealer.post("/webhook/query", {})).data["callbackUrl"] == ""
    seen: set[str] = set()
    while not {"REFUNDED", "RETRY", "REFUNDING"} <= seen:
        seen.add((await log.stdout.readline()).decode().split()[3])
    log.send_signal(signal.SIGINT)
    assert await log.wait() == 0
