"""A run of the tests names a test that fails when it fails, not at its end."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

from support.paths import ROOT

PATIENCE = 120.0  # seconds; two starts of Python on a busy machine
TESTS = """
import time
from pathlib import Path

def test_fails():
    assert False

def test_goes_on():
    while not Path(r"{go_on}").exists():
        time.sleep(0.01)
"""


async def test_a_failing_test_is_named_while_the_run_goes_on(tmp_path: Path):
    go_on = tmp_path / "go on"
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS.format(go_on=go_on))
    arguments = ("-q", "-p", "xdist", "-n", "1", "-c", "/dev/null", "--rootdir", tmp_path, tmp_path)
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", *arguments),
        env={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
    )
    assert run.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            while line := (await run.stdout.readline()).decode():
                if line.startswith("FAILED test_it.py::test_fails"):
                    break
        assert run.returncode is None and line, "the run ended without a word"
    finally:
        go_on.touch()
        await run.communicate()
