"""Logs never hold a secret."""

import json
import subprocess
import sys

import pytest

FAILS_WITH_A_SECRET = """
import structlog
from dealer_server import logs
logs.configure({as_json})
def sign(app_secret):
    raise ValueError("cannot sign")
try:
    sign("sk_test_" + "canary")
except ValueError:
    structlog.get_logger().exception("unexpected", trace_id="t-1")
"""


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_local_variable(as_json: bool):
    ran = subprocess.run(
        [sys.executable, "-c", FAILS_WITH_A_SECRET.format(as_json=as_json)], capture_output=True, text=True, check=True
    )
    assert "cannot sign" in ran.stderr and "t-1" in ran.stderr
    assert "sk_test_canary" not in ran.stderr


A_LIBRARY_COMPLAINS = """
import logging
from dealer_server import logs
logs.configure(True)
logging.getLogger("asyncpg").warning("oh %s", "no")
logging.getLogger("uvicorn.error").info("nobody asked")
try:
    raise ValueError("cannot")
except ValueError:
    logging.getLogger("asyncio").exception("went wrong")
"""


def test_warnings_of_libraries_are_logged_as_json_lines():
    ran = subprocess.run([sys.executable, "-c", A_LIBRARY_COMPLAINS], capture_output=True, text=True, check=True)
    first, second = [json.loads(line) for line in ran.stderr.splitlines()]
    assert (first["event"], first["level"], first["logger"]) == ("oh no", "warning", "asyncpg")
    assert second["event"] == "went wrong" and "cannot" in second["exception"]
