"""A real browser for tests of the console, and what it is asked about a page. Tests are skipped where there is none."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser as Chromium
from playwright.async_api import Dialog, Page, Request, Response, async_playwright, expect

from support.patience import PATIENCE

# Debian's. The shell draws the same without the windows of a desktop: it takes half of the time.
SHELL = shutil.which("chromium-headless-shell")
PROGRAM = SHELL or shutil.which("chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
AXE = (Path(__file__).parent / "vendor/axe/axe.min.js").read_text()
_AXE_AT_REST = """async (asked) => {
  const moving = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime < Infinity);
  await Promise.allSettled(moving.map((one) => one.finished));  // a colour between two themes has no contrast
  const {violations} = await axe.run(asked);
  const sizes = violations.find((one) => one.id === "target-size");
  if (!sizes) return violations;
  const small = [];
  for (const node of sizes.nodes) {  // a bar that stays in sight may lie on a target as the page happens to be scrolled
    const target = document.querySelector(node.target[0]);
    target.scrollIntoView({block: "center", behavior: "instant"});
    const again = (await axe.run(target, {...asked, runOnly: ["target-size"]})).violations;
    if (again.length) small.push(node);
  }
  return violations.map((one) => (one === sizes ? {...one, nodes: small} : one));
}"""
# Text of a row that is drawn across the line above or below it, and of a button that is narrower than its words.
CROSSED = """() => [...document.querySelectorAll(".table-responsive tbody tr, .incidents > li")].flatMap((row) => {
  const {top, bottom} = row.getBoundingClientRect(), range = document.createRange();
  const texts = document.createTreeWalker(row, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, held = text.parentElement;
    if (!text.data.trim() || held.closest("dialog, [popover], .visually-hidden") || !held.checkVisibility()) continue;
    let clip = held;  // what of it is drawn at all
    while (clip !== row && getComputedStyle(clip).overflowY === "visible") clip = clip.parentElement;
    const drawn = clip === row ? {top: -Infinity, bottom: Infinity} : clip.getBoundingClientRect();
    range.selectNodeContents(text);
    const inside = [...range.getClientRects()].every((one) => Math.max(one.top, drawn.top) >= top - 1
      && Math.min(one.bottom, drawn.bottom) <= bottom + 1
      || one.bottom <= drawn.top + 1 || one.top >= drawn.bottom - 1);
    if (!inside) found.push(`text crosses its row at ${innerWidth}: ${text.data.trim().slice(0, 60)}`);
  }
  return found;
}).concat([...document.querySelectorAll("#main .btn")].flatMap((button) => {
  const {left, right} = button.getBoundingClientRect(), range = document.createRange();
  const texts = document.createTreeWalker(button, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    const text = texts.currentNode, held = text.parentElement;
    if (!text.data.trim() || held.offsetWidth <= 1 || !held.checkVisibility()) continue;  // hidden, or of no size
    range.selectNodeContents(text);
    const fits = [...range.getClientRects()].every((one) => one.left >= left - 1 && one.right <= right + 1);
    if (!fits) found.push(`a button is narrower than its words at ${innerWidth}: ${text.data.trim()}`);
  }
  return found;
}))"""
expect.set_options(timeout=1_000 * PATIENCE)
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no chromium here")


@asynccontextmanager
async def opened() -> AsyncIterator[Chromium]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=FLAGS)
        yield browser
        await browser.close()


def page_faults(page: Page) -> list[str]:
    """Collects a page's faults from now on: dialogs, console messages, failed requests."""
    faults: list[str] = []

    async def dialog(opened: Dialog) -> None:
        faults.append(f"{page.url}: a dialog says {opened.message}")
        await opened.dismiss()

    def answered(response: Response) -> None:
        if response.status >= 400:
            faults.append(f"{response.url}: {response.status}")

    def failed(request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # a page that renews itself was left
            faults.append(f"{request.url}: {request.failure}")

    page.on("dialog", dialog)

    page.on("console", lambda message: faults.append(f"{page.url}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    page.on("response", answered)
    page.on("requestfailed", failed)
    return faults


async def barriers(page: Page, *rules: str) -> list[str]:
    """The barriers to accessibility that axe-core finds, by all of its rules or by these. The page's context has AXE
    as a script of its own; the frame of a mail runs none."""
    asked = {
        "preload": False,
        "iframes": False,
        "resultTypes": ["violations"],
        "rules": {"target-size": {"enabled": True}},  # which axe-core leaves out unless it is asked for
        **({"runOnly": list(rules)} if rules else {}),
    }
    found = await page.evaluate(_AXE_AT_REST, asked)
    return [f"{one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]
