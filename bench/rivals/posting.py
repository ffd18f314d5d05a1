"""How is a post sent? By aiohttp, with nothing set that slows it down, and the limits of our own worker."""

import functools
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
from yarl import URL


class Post(NamedTuple):
    lock: str
    head: str
    body: str


def read(file: str) -> Iterator[Post]:
    for line in Path(file).read_text().splitlines():
        post = json.loads(line)
        yield Post(post["lock"], post["head"], post["body"])


@asynccontextmanager
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
        headers={"User-Agent": "esim-dealer-webhook/1", "Accept-Encoding": "identity"},
        timeout=aiohttp.ClientTimeout(total=10.0, sock_connect=3.0),
        auto_decompress=False,
        trust_env=False,
    ) as session:
        yield session


async def send(session: aiohttp.ClientSession, head: str | bytes, body: bytes) -> None:
    """Raises where the answer is not 200."""
    url, headers = json.loads(head)
    async with session.post(_target(url), data=body, headers=headers, allow_redirects=False) as answer:
        await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"answered {answer.status}")


def wait_for(file: str) -> None:
    """Says that the program is ready, and waits for the file: the loop has nothing else to do."""
    print("ready:", flush=True)
    while not Path(file).exists():
        time.sleep(0.005)


@functools.cache
def _target(url: str) -> URL:
    return URL(url, encoded=True)
