"""Takes every page of the console for docs/console.md, small and side by side: python scripts/console_sheets.py.

The pages are those that server/tests/support/console_pages.py lists. Needs playwright and a Chromium.
"""

import asyncio
import base64
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import asyncpg
from playwright.async_api import Browser, Page

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "server/tests"))

from dealer_server.dev import embedded  # noqa: E402
from dealer_server.store import schema  # noqa: E402
from support.chromium import opened  # noqa: E402
from support.console_pages import PAGES, PEOPLE, Seen, World, world  # noqa: E402
from support.databases import database_named  # noqa: E402

IMAGES = ROOT / "docs/images"
SHEET = 1280  # pixels across
QUALITY = 72
Theme = Literal["light", "dark"]


class View(NamedTuple):
    """How pages are looked at, and how many stand beside each other on a sheet."""

    size: tuple[int, int]
    themes: Sequence[Theme]
    columns: int


VIEWS = {
    "light": View((1280, 860), ("light",), 4),
    "dark": View((1280, 860), ("dark",), 4),
    "phone": View((390, 844), ("light", "dark"), 8),
}


def sheets() -> Iterator[tuple[str, View, list[Seen]]]:
    """Of either kind of people, each page of theirs as one of them sees it."""
    for kind, name in (("op", "operators"), ("dealer", "dealers")):
        pages = [page for page in PAGES if PEOPLE[page.who][0] == kind or (kind == "dealer" and page.who == "nobody")]
        for view, how in VIEWS.items():
            yield f"console-pages-{name}-{view}", how, pages


async def taken(browser: Browser, town: World, view: View, pages: Sequence[Seen]) -> list[bytes]:
    shots: list[bytes] = []
    for page in pages:
        for theme in view.themes:
            window = await _window(browser, town, page.who, view, theme)
            await window.goto(town.address(page))
            await window.evaluate("document.fonts.ready")
            shots.append(await window.screenshot(type="jpeg", quality=90))
            await window.context.close()
    return shots


async def _window(browser: Browser, town: World, who: str, view: View, theme: Theme) -> Page:
    width, height = view.size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme, locale="en-GB", timezone_id="UTC"
    )
    if who in town.tokens:
        url = f"{town.service.url}/console"
        await context.add_cookies([{"name": "dealer_console", "value": town.tokens[who], "url": url}])
    return await context.new_page()


async def laid_out(browser: Browser, view: View, shots: Sequence[bytes]) -> bytes:
    images = "".join(f'<img src="data:image/jpeg;base64,{base64.b64encode(shot).decode()}">' for shot in shots)
    grid = f"display: grid; gap: 8px; grid-template-columns: repeat({view.columns}, 1fr)"
    style = f"body {{ margin: 8px; background: #8b93a0; {grid} }}"
    page = await browser.new_page(viewport={"width": SHEET, "height": 100})
    await page.set_content(f"<style>{style} img {{ width: 100% }}</style>{images}")
    sheet = await page.screenshot(type="jpeg", quality=QUALITY, full_page=True)
    await page.close()
    return sheet


async def main(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE DATABASE sheets")
    await connection.close()
    url = database_named(dsn, "sheets")
    connection = await asyncpg.connect(url)
    await schema.migrate(connection)
    await connection.close()
    async with world(url) as town, opened() as browser:
        for name, view, pages in sheets():
            sheet = await laid_out(browser, view, await taken(browser, town, view, pages))
            (IMAGES / f"{name}.jpg").write_bytes(sheet)
            print(f"docs/images/{name}.jpg, {len(sheet) // 1024} kB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)  # PostgreSQL may run as somebody else
        server = embedded.start(Path(made) / "data", fast_and_unsafe=True)
        try:
            asyncio.run(main(server.dsn))
        finally:
            server.stop()
