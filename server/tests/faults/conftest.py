"""A PostgreSQL of each module's own, for tests that stop and kill it."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.faults.postgres_machine import Machine


@pytest.fixture(scope="module")
async def machine() -> AsyncIterator[Machine]:
    with tempfile.TemporaryDirectory(prefix="esim-dealer-test-") as parent:
        Path(parent).chmod(0o755)
        one = await asyncio.to_thread(Machine, Path(parent) / "data")
        try:
            yield one
        finally:
            await asyncio.to_thread(one.server.stop)
