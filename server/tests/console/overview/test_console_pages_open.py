"""Does every page of the console open, with data of several dealers? How they look is in test_console_looks.py."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from support.console_pages import PAGES, World, world
from support.patience import PATIENCE


@pytest.fixture
async def seen(database_url: str) -> AsyncIterator[World]:
    async with world(database_url) as made:
        yield made


async def test_every_page_opens(seen: World):
    refused = []
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE, follow_redirects=True) as client:
        for page in PAGES:
            token = seen.tokens.get(page.who)
            cookies = f"dealer_console={token}" if token else ""
            response = await client.get(seen.address(page), headers={"Cookie": cookies} if cookies else {})
            if response.status_code != page.status:
                refused.append(f"{response.status_code} instead of {page.status}: {page.who} {page.path}?{page.query}")
    assert refused == [], "\n".join(refused)
