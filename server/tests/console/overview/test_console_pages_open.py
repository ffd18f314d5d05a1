"""Does every page of the console open, with data of several dealers? Also on a cluster (make cluster-test)."""

from collections.abc import AsyncIterator

import httpx
import pytest

from support.console_pages import PAGES, World, world


@pytest.fixture
async def seen(database_url: str) -> AsyncIterator[World]:
    async with world(database_url) as made:
        yield made


async def test_every_page_opens(seen: World):
    refused = []
    async with httpx.AsyncClient(follow_redirects=True) as client:
        for page in PAGES:
            token = seen.tokens.get(page.who)
            cookies = f"dealer_console={token}" if token else ""
            response = await client.get(seen.address(page), headers={"Cookie": cookies} if cookies else {})
            if response.status_code != page.status:
                refused.append(f"{response.status_code} instead of {page.status}: {page.who} {page.path}?{page.query}")
    assert refused == [], "\n".join(refused)
