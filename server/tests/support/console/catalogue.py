"""The catalogue through the console's forms, and as a dealer sees it."""

import asyncio
import re
from html import unescape

import httpx2

from support.api_client import ApiClient
from support.browser import Browser
from support.console.operator_pages import fill
from support.patience import PATIENCE

_FIELD = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)"')


def hidden(page: httpx2.Response) -> dict[str, str]:
    """The hidden fields of the forms in a page's main part, without those that protect every form."""
    main = page.text.partition("<main")[2]
    found = {name: unescape(value) for name, value in _FIELD.findall(main)}
    return {name: value for name, value in found.items() if name not in ("csrf", "once")}


async def preview(browser: Browser, text: str, path: str = "/console/packages/preview") -> httpx2.Response:
    return await fill(browser, path, files={"file": text.encode()})


async def paid(dealer: ApiClient, package_code: str, price: str | None) -> None:
    """Waits until the dealer's catalogue has the package at this price, None: not on sale. Processes look for changes a
    few times a second."""
    async with asyncio.timeout(PATIENCE):
        while True:
            packages = (await dealer.post("/package/list", {"packageCode": package_code})).data["packages"]
            if next((one["price"] for one in packages if one["status"] == "ON_SALE"), None) == price:
                return
            await asyncio.sleep(0.05)
