"""A run of the tests names a test that fails when it fails, not at its end, and does not begin where a module cannot
be imported."""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE, Process
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
RUNS = """
from pathlib import Path

def test_runs():
    Path(r"{ran}").touch()
"""


async def started(folder: Path) -> Process:
    """A run of the tests of this folder."""
    shutil.copy(ROOT / "conftest.py", folder)
    arguments = ("-q", "-p", "xdist", "-n", "1", "-c", "/dev/null", "--rootdir", folder, folder)
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": os.environ["PATH"]}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", *arguments, env=environment, stdout=PIPE
    )


async def test_a_failing_test_is_named_while_the_run_goes_on(tmp_path: Path):
    go_on = tmp_path / "go on"
    (tmp_path / "test_it.py").write_text(TESTS.format(go_on=go_on))
    run = await started(tmp_path)
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


async def test_modules_that_cannot_be_imported_are_named_and_no_test_is_run(tmp_path: Path):
    ran = tmp_path / "ran"
    (tmp_path / "test_it.py").write_text(RUNS.format(ran=ran))
    for number in (1, 2):
        (tmp_path / f"test_bad_{number}.py").write_text(f"from json import nothing_{number}")
    run = await started(tmp_path)
    async with asyncio.timeout(PATIENCE):
        printed = (await run.communicate())[0].decode()
    assert run.returncode == 1 and not ran.exists()
    assert "cannot import name 'nothing_1'" in printed and "cannot import name 'nothing_2'" in printed
