"""Takes the pictures of docs/console.md anew: python scripts/console_pictures.py. Needs playwright and a Chromium.

A `dealer-server dev` of its own is started with an empty folder; a dealer buys in it, calls amiss and asks for money.
"""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright, expect

from esim_dealer import AsyncDealer, Line
from esim_dealer.errors import DeliveryFailed
from esim_dealer.wire.signing import signature

IMAGES = Path(__file__).parents[1] / "docs/images"
SERVER = [sys.executable, "-m", "dealer_server"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
WIDE, PHONE = (1280, 860), (390, 844)
OTHERS = {
    "Meridian Travel SIM": ("EUR", "18250.40"),
    "Nippon Connect": ("JPY", "2400000"),
    "Roamly": ("USD", "310.00"),
    "Société Générale des Voyages": ("EUR", "96.10"),
}

Demo = dict[str, Any]


@contextmanager
def dev(folder: str) -> Iterator[Demo]:
    """A running `dealer-server dev`, and what it says of itself."""
    Path(folder).chmod(0o755)  # PostgreSQL may run as somebody else
    command = [*SERVER, "dev", "--json", "--fresh", "--port", "0", "--data", f"{folder}/data", "--speed", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        try:
            yield json.loads(next(line for line in running.stdout if line.startswith("{")))
        finally:
            running.terminate()


def other_dealers(demo: Demo) -> None:
    """By the operator's command, each in its own currency."""
    for name, (currency, balance) in OTHERS.items():
        command = [*SERVER, "tenant", "create", "--name", name, "--currency", currency, "--balance", balance]
        subprocess.run(command, env={**os.environ, **demo["env"]}, check=True, stdout=subprocess.DEVNULL)


async def buys(dealer: AsyncDealer, package: str, price: str, quantity: int = 1) -> str:
    placed = await dealer.order(f"web-{secrets.token_hex(4)}", [Line(package, quantity, price)])
    with suppress(DeliveryFailed):
        await dealer.wait_for_delivery(placed.order_no)
    return placed.order_no


async def business(dealer: AsyncDealer, hook: str) -> str:
    """What happens on a day; the order to be looked at."""
    await dealer.set_webhook(hook)
    for package in ("TEST-OK", "DEMO-STOCK", "TEST-FAIL", "TEST-OK"):
        await buys(dealer, package, "2.50" if package == "DEMO-STOCK" else "1.80")
    review = await buys(dealer, "TEST-REVIEW", "1.80")
    await dealer.refund(review, remark="the trip was cancelled")
    await dealer.topup("topup-1", "250", pay_method="BANK_TRANSFER", pay_reference="SEPA 2026-4711")
    shown = await buys(dealer, "TEST-OK", "1.80", 2)
    await dealer.refund(shown, remark="two too many")
    await dealer.wait_for_refund(shown)
    return shown


def calls_amiss(demo: Demo) -> None:
    """Signs a body and sends another one: the usual mistake."""
    signed, sent = b'{"orderNo":"D261121000000000000"}', b'{"orderNo": "D261121000000000000"}'
    head = [str(int(time.time() * 1000)), str(uuid.uuid4()), demo["appKey"]]
    names = ("RT-Timestamp", "RT-RequestID", "RT-AccessCode")
    headers = dict(zip(names, head, strict=True)) | {"Content-Type": "application/json"}
    headers["X-Signature"] = signature(
        demo["appSecret"].encode(), head[0].encode(), head[1].encode(), head[2].encode(), signed
    )
    request = urllib.request.Request(f"{demo['baseUrl']}/open-api/v1/esim/query", sent, headers)  # noqa: S310
    try:
        urllib.request.urlopen(request)  # noqa: S310
    except urllib.error.HTTPError as refused:
        refused.close()


async def window(browser: Browser, demo: Demo, who: str, size: tuple[int, int], theme: Any = "light") -> Page:
    page = await browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=theme, locale="en-GB")
    await page.goto(demo["consoleUrl"])
    await page.get_by_label("Name").fill(demo[who]["name"])
    await page.get_by_label("Password").fill(demo[who]["password"])
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(demo["consoleUrl"])
    return page


async def take(page: Page, demo: Demo, path: str, name: str) -> None:
    await page.goto(f"{demo['consoleUrl']}{path}")
    await page.evaluate("document.fonts.ready")
    await page.screenshot(path=IMAGES / f"console-{name}.png")
    print(f"docs/images/console-{name}.png")


async def pictures(browser: Browser, demo: Demo) -> None:
    person = await window(browser, demo, "dealer", WIDE)
    async with AsyncDealer(demo["baseUrl"], demo["appKey"], demo["appSecret"]) as dealer:
        await dealer.health()
        await dealer.balance()
        await asyncio.to_thread(calls_amiss, demo)
        await refused(person, demo)
        await take(person, demo, "", "home")
        async with receiver() as hook:
            order_no = await business(dealer, hook)
            operator = await window(browser, demo, "operator", WIDE)
            await expect(operator.locator("#main").get_by_text("still being counted")).to_have_count(0)
            await take(operator, demo, "", "overview")
            await take(operator, demo, f"/orders/{order_no}", "order")
            await operator.emulate_media(color_scheme="dark")
            await take(operator, demo, "/dealers", "dealers-dark")
            await take(await window(browser, demo, "dealer", PHONE, "dark"), demo, "/orders", "phone")


@asynccontextmanager
async def receiver() -> AsyncIterator[str]:
    """The address of a fixture that takes every webhook."""

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    listening = await asyncio.start_server(answers, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/webhooks"
    finally:
        listening.close()


async def refused(page: Page, demo: Demo) -> None:
    """Why a call was refused; the log knows a second later."""
    rows = page.locator("#main tr[data-href]:not([data-href*=succeeded])")
    while not await rows.count():
        await page.goto(f"{demo['consoleUrl']}/api-log")
    path = await rows.first.get_attribute("data-href")
    await take(page, demo, str(path).removeprefix("/console"), "refused")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, dev(folder) as demo:
        other_dealers(demo)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            await pictures(browser, demo)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
