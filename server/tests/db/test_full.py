"""A statement for which the disk has no room says so in the log, and that nothing was done."""

import pytest
from structlog.testing import capture_logs

from dealer_server.db.errors import DatabaseLost
from support.api_client import Service

# Sorts more than fits into the memory, and no byte of a temporary file is allowed.
SETTINGS = {"temp_file_limit": "0", "work_mem": "64kB"}
SORTED = "SELECT n FROM generate_series(1, 50000) AS n ORDER BY n % 7, n"


async def test_no_room_is_logged_once_and_the_session_goes_on(service: Service):
    session = service.database.session(**SETTINGS)
    try:
        with capture_logs() as lines:
            for _ in range(3):
                with pytest.raises(DatabaseLost) as lost:
                    await session.fetch(SORTED)
                assert not lost.value.sent
        assert [(line["event"], line["log_level"]) for line in lines] == [("database_full", "error")]
        assert "temporary file" in lines[0]["reason"]
        assert [row["n"] for row in await session.fetch("SELECT 1 AS n")] == [1]
    finally:
        await session.close()
