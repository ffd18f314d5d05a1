"""Does every page of the console look as it should? Each is opened wide and on a phone, light and dark: nothing
complains, nobody is kept out, nothing jumps, and it is what tests/support/looks/ shows. Part of `make looks`. After a
change that is meant:

    NEW_LOOKS=1 pytest -m looks server/tests/console/test_console_looks.py

writes anew the pictures that differ; those of pages that are gone are to be removed by hand. Skipped where there is no
Chromium; pictures are compared with those of chromium-headless-shell, which spaces letters in its own way."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from jinja2 import DictLoader, Environment
from playwright.async_api import Browser as Chromium
from playwright.async_api import Error as BrowserError
from playwright.async_api import Page, ViewportSize

from dealer_server.console import routing
from dealer_server.console.shared.rendering import CompiledTemplates
from support import screenshots
from support.chromium import AXE, CROSSED, SHELL, barriers, needs_chromium, opened, page_faults
from support.console_pages import PAGES, PEOPLE, Seen, World, world
from support.screenshots import FOLDER, PHONE, THEMES, VIEWS, WIDE, Picture

NEW = bool(os.environ.get("NEW_LOOKS"))
AT_ONCE = 3  # pages under way
WRITTEN_DOWN = ("/{app_key}", "/secret", "/code", "/sms")  # pages of secrets: who opens them stands in the audit log
NARROW = (
    "target-size",
    "scrollable-region-focusable",
    "aria-required-children",
    "aria-required-parent",
)
SHIFT = 0.001  # of the web's own measure of how much jumps; 0.1 is called good
WIRE = 200_000  # bytes that a page takes with all it loads, to a browser that has kept nothing

# All pages are walked through before the first test of one.
pytestmark = [needs_chromium, pytest.mark.timeout(1_800)]

# Shifts are written down from the first moment on.
_WATCH = """window.shifts = [];
const shifted = (list) => { for (const one of list.getEntries()) if (!one.hadRecentInput) shifts.push(one.value); };
new PerformanceObserver(shifted).observe({ type: "layout-shift", buffered: true });"""
_SHIFTED = """async () => {
  await document.fonts.ready;
  await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
  return shifts.reduce((sum, one) => sum + one, 0);
}"""
_WEIGHT = """() => ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
  .filter((one) => one.initiatorType !== "fetch")  // parts that renew themselves
  .reduce((sum, one) => sum + one.encodedBodySize + 300, 0)"""  # 300: the head of each answer, which the cache forgets
_CUT = """[...document.querySelectorAll(".table-responsive")].filter((box) => box.scrollWidth > box.clientWidth)
  .map((box) => `a table is cut off: ${box.innerText.slice(0, 60)}`)"""
# What is another one each time, and what grows with the hour.
_STILL = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`.qr, .chart > *, .spark, progress::-webkit-progress-value { visibility: hidden !important }
    *, *::before { animation: none !important; transition: none !important; caret-color: transparent !important }`);
  document.adoptedStyleSheets = [sheet];
  for (const one of document.querySelectorAll("time"))
    if (/^\\d\\d:\\d\\d$/.test(one.textContent.trim())) one.textContent = "12:00";
  for (const one of document.querySelectorAll("time[data-moment]")) one.textContent = "12:00:00";
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    text.data = text.data.replace(/\\b(under )?\\d+(\\.\\d+)? (ms|s|min)\\b/g, "1 min");
  }
}"""
# Everything that can be used: reached by Tab, and drawn otherwise when it is.
_UNREACHABLE = """() => {
  const drawn = (one) => ["outline", "boxShadow", "borderColor"].map((name) => getComputedStyle(one)[name]).join();
  const usable = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const found = [];
  const shown = (one) =>
    one.checkVisibility({ visibilityProperty: true }) && !one.disabled && !one.closest(".visually-hidden");
  for (const one of document.querySelectorAll(usable)) {
    if (!shown(one)) continue;
    if (one.tabIndex < 0) { found.push(`not reached: ${one.outerHTML.slice(0, 120)}`); continue; }
    one.blur();
    const before = drawn(one);
    one.focus({ focusVisible: true, preventScroll: true });
    if (document.activeElement !== one || drawn(one) === before) found.push(`no ring: ${one.outerHTML.slice(0, 120)}`);
  }
  document.activeElement?.blur();
  for (const row of document.querySelectorAll("tr[data-href]"))
    if (![...row.querySelectorAll("a")].some((link) => link.getAttribute("href") === row.dataset.href))
      found.push(`a row without its link: ${row.dataset.href}`);
  return found;
}"""


class Sight(NamedTuple):
    """What was seen of one page: what is wrong with it, and how it looks."""

    faults: Sequence[str]
    picture: Picture | None


@pytest.fixture(scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with opened() as browser:
        yield browser


@pytest.fixture(scope="module")
async def town(database_url: str) -> AsyncIterator[World]:
    async with world(database_url) as made:
        yield made


@pytest.fixture(scope="module")
async def blank(chromium: Chromium) -> AsyncIterator[Page]:
    """Draws pictures of pictures."""
    page = await chromium.new_page()
    yield page
    await page.close()


@pytest.fixture(scope="module")
async def sights(chromium: Chromium, town: World, blank: Page) -> dict[str, Sight]:
    """Every page, walked through once by each of the people; what adds to the audit log waits until that was seen."""
    gate, read, found = asyncio.Semaphore(AT_ONCE), asyncio.Event(), {}

    async def walk(who: str) -> None:
        async with inside(chromium, town, who, WIDE) as wide, inside(chromium, town, who, PHONE) as phone:
            for page in (one for one in PAGES if one.who == who):
                if page.path.endswith(WRITTEN_DOWN):
                    await read.wait()
                async with gate:
                    found[page.name] = await _sight(town, page, (wide, phone), blank)
                if page.path == "/console/audit" and not page.query:
                    read.set()

    await asyncio.gather(*(walk(who) for who in PEOPLE))
    return found


class Window(NamedTuple):
    """Where somebody sits who is signed in, and what is heard there that nobody wants to hear."""

    page: Page
    width: int
    heard: list[str]


@asynccontextmanager
async def inside(chromium: Chromium, town: World, who: str, size: tuple[int, int]) -> AsyncIterator[Window]:
    viewport: ViewportSize = {"width": size[0], "height": size[1]}
    context = await chromium.new_context(
        viewport=viewport, timezone_id="UTC", locale="en-GB", color_scheme=THEMES[0], reduced_motion="reduce"
    )
    await context.add_init_script(_WATCH + AXE)
    if who in town.tokens:
        url = f"{town.service.url}/console"
        await context.add_cookies([{"name": "dealer_console", "value": town.tokens[who], "url": url}])
    page = await context.new_page()
    yield Window(page, size[0], page_faults(page))
    await context.close()


async def _sight(town: World, seen: Seen, windows: Sequence[Window], blank: Page) -> Sight:
    faults: list[str] = []
    shots: list[bytes] = []
    for page, width, heard in windows:
        heard.clear()
        wrong: list[str] = []
        await _just_signed_in(town)
        try:
            await page.goto(town.address(seen))
            wrong += await _jumps(page)
            weight = await page.evaluate(_WEIGHT)
            wrong += [f"it takes {weight:,} bytes"] * (weight > WIRE)
            shots += await _shots(page)
            wrong += await _keeps_out(page, wide=width == WIDE[0], menu=seen.path == "/console")
        except BrowserError as why:
            wrong.append(str(why))
        wrong += [one for one in heard if seen.status == 200 or str(seen.status) not in one]
        faults += [f"{width}: {one}" for one in wrong]
    return Sight(faults, await screenshots.picture(blank, shots) if len(shots) == len(VIEWS) else None)


async def _just_signed_in(town: World) -> None:
    """On a busy machine the walk takes longer than the five minutes after which pages ask for the password again;
    somebody is asked for it on purpose."""
    async with town.service.database.connection() as connection:
        await connection.execute(
            "UPDATE console_session SET sure_at = now() WHERE sure_at > now() - interval '50 minutes'"
        )


async def _jumps(page: Page) -> list[str]:
    shift = await page.evaluate(_SHIFTED)
    wide = await page.evaluate("document.scrollingElement.scrollWidth > innerWidth")
    cut = await page.evaluate(_CUT) + await page.evaluate(CROSSED)
    return [f"it jumps by {shift:.3f}"] * (shift >= SHIFT) + ["it is wider than its window"] * wide + cut


async def _shots(page: Page) -> list[bytes]:
    """Of a page in each theme; it ends in the first."""
    await page.evaluate(_STILL)
    shots: list[bytes] = []
    for theme in THEMES:
        await page.emulate_media(color_scheme=theme)
        shots.append(await page.screenshot(type="jpeg", quality=90))
    await page.emulate_media(color_scheme=THEMES[0])
    return shots


async def _keeps_out(page: Page, *, wide: bool, menu: bool) -> list[str]:
    """What axe finds, and what no key reaches. Of its rules only contrast depends on the theme, few on the width. On a
    phone only the menu has other colours, which is the same on each page: `menu` is one where it is looked at."""
    found = [f"light: {one}" for one in await barriers(page, *(() if wide or menu else NARROW))]
    if wide or menu:
        await page.emulate_media(color_scheme="dark")
        found += [f"dark: {one}" for one in await barriers(page, "color-contrast")]
        await page.emulate_media(color_scheme=THEMES[0])
    await page.keyboard.press("Tab")
    return found + await page.evaluate(_UNREACHABLE)


def test_every_declared_page_is_looked_at() -> None:
    """What stands in braces of a declared path may be a word of the path of a page."""
    looked = [(PEOPLE[page.who][0], page.path) for page in PAGES]
    missing = [
        (kind, page.path)
        for page in routing.declared_pages()
        if page.method == "GET" and page.template
        for kind in sorted(page.kinds)
        if not any(one == kind and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", page.path), path) for one, path in looked)
    ]
    assert missing == [], "add them to PAGES in support/console_pages.py"


def test_no_two_pages_have_one_name_and_no_picture_has_no_page() -> None:
    names = [page.name for page in PAGES]
    assert len(set(names)) == len(names)
    assert {path.stem for path in FOLDER.glob("*.png")} <= set(names)


@pytest.mark.looks
@pytest.mark.parametrize("name", [page.name for page in PAGES])
async def test_nothing_is_wrong_with_a_page(sights: Mapping[str, Sight], name: str) -> None:
    assert list(sights[name].faults) == []


@pytest.mark.looks
@pytest.mark.skipif(SHELL is None, reason="no chromium-headless-shell here")
@pytest.mark.parametrize("name", [page.name for page in PAGES if page.pictured])
async def test_a_page_looks_as_it_did(sights: Mapping[str, Sight], name: str) -> None:
    stored, now = FOLDER / f"{name}.png", sights[name].picture
    assert now is not None
    if NEW and not (stored.exists() and screenshots.apart(screenshots.read(stored), now) == {}):
        screenshots.write(stored, now)
    assert screenshots.apart(screenshots.read(stored), now) == {}, "if it is meant, see the head of this file"


# The comparison itself: it can fail


async def _spoilt(chromium: Chromium, town: World, blank: Page, script: str, blocked: str) -> Mapping[str, float]:
    """In which views the orders of an operator differ from their picture, after something was done to them."""
    shots: list[bytes] = []
    for size in (WIDE, PHONE):
        async with inside(chromium, town, "operator", size) as window:
            if blocked:
                await window.page.route(blocked, lambda route: route.abort())
            await window.page.goto(f"{town.service.url}/console/orders")
            await window.page.evaluate(script)
            shots += await _shots(window.page)
    return screenshots.apart(screenshots.read(FOLDER / "operator-orders.png"), await screenshots.picture(blank, shots))


EVERYWHERE, WIDE_ONLY, LIGHT_ONLY = 4, 2, 2
SPOILT = {
    "unstyled": ("0", "**/console.*.css", EVERYWHERE),
    "without Tabler": ("0", "**/tabler.min.*.css", EVERYWHERE),
    "the wrong theme": ("localStorage.theme = document.documentElement.dataset.bsTheme = 'dark'", "", LIGHT_ONLY),
    "without its menu": ("document.querySelector('.side').remove()", "", WIDE_ONLY),
    "without its table": ("document.querySelector('#main .card').remove()", "", EVERYWHERE),
    "a column less": ("for (const row of document.querySelectorAll('tr')) row.cells[0].remove()", "", EVERYWHERE),
    "shifted": ("document.querySelector('#main .card').style.translate = '24px'", "", EVERYWHERE),
    "as it is": ("0", "", 0),
}


@pytest.mark.looks
@pytest.mark.parametrize("how", SPOILT)
async def test_what_is_spoilt_is_seen(chromium: Chromium, town: World, blank: Page, how: str) -> None:
    script, blocked, views = SPOILT[how]
    assert len(await _spoilt(chromium, town, blank, script, blocked)) == views


def test_a_stored_picture_is_read_as_it_was_written(tmp_path: Path) -> None:
    stored = screenshots.read(FOLDER / "nobody-sign-in.png")
    screenshots.write(tmp_path / "again.png", stored)
    assert screenshots.read(tmp_path / "again.png") == stored


def test_the_pictures_are_small() -> None:
    sizes = [path.stat().st_size for path in FOLDER.glob("*.png")]
    assert sum(sizes) < 9_000 * len(sizes)


def test_pages_need_no_folder_of_compiled_templates(tmp_path: Path) -> None:
    """It is gone, or the disk is full."""
    kept = CompiledTemplates(str(tmp_path / "gone"))
    made = Environment(loader=DictLoader({"page": "{{ 6 * 7 }}"}), bytecode_cache=kept)
    assert made.get_template("page").render() == "42"
