from collections.abc import AsyncIterator

import pytest

from support.api_client import Service, running_service
from support.notices.smtp_server import SmtpServer, mail_server


@pytest.fixture(scope="module")
async def service(database_url: str) -> AsyncIterator[Service]:
    """Without a worker: notices are driven by hand."""
    async with running_service(database_url, worker=False) as service:
        yield service


@pytest.fixture
async def mails() -> AsyncIterator[SmtpServer]:
    async with mail_server() as server:
        yield server
