"""The order of the tests, where their files lie, and what is said of those that fail."""

import gc
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

MEMORY = Path("/dev/shm")  # noqa: S108
ROOM = 4 * 2**30  # bytes: more than all processes of a run need there


def _in_memory() -> bool:
    """Whether temporary files may lie there: containers have little of it, and programs are started from there too."""
    return (
        os.access(MEMORY, os.W_OK)
        and shutil.disk_usage(MEMORY).free >= ROOM
        and not os.statvfs(MEMORY).f_flag & getattr(os, "ST_NOEXEC", 0)
    )


# Databases are copied and dropped by the hundred, each of a thousand files, which takes a disk several times as long.
if "TMPDIR" not in os.environ and _in_memory():
    os.environ["TMPDIR"] = str(MEMORY)

# Files that take long are begun first, the longest before the others, so that the run does not end with one process
# at work on them.
LONG = (
    *("server/tests/faults/", "server/tests/console/test_console_days", "server/tests/fulfillment/"),
    *("server/tests/docs_site/test_docs_browser", "server/tests/cli/"),
    *("server/tests/store/test_audit", "server/tests/wiring/", "server/tests/suppliers/test_chain"),
    *("server/tests/webhooks/test_webhook_machine", "server/tests/console/", "server/tests/operations/"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--cluster"):
        for item in items:
            if reason := next((mark.args[0] for mark in item.iter_markers("one_server")), None):
                item.add_marker(pytest.mark.skip(reason=f"on a cluster: {reason}"))

    def rank(item: pytest.Item) -> int:
        return next((number for number, long in enumerate(LONG) if item.nodeid.startswith(long)), len(LONG))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Thousands of tests stay until the end: going through them took a quarter of all the time of a run. As in the
    service, what tests leave is collected rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


# How long examples take says nothing on a busy machine.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


class FailuresAtOnce:
    """A failing test is named as soon as it fails; the dots of `-q` and of several processes say it only at the end."""

    def __init__(self, config: pytest.Config):
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = f" - {crash.message.splitlines()[0]}" if crash and crash.message else ""
            terminal.write_line(f"\n{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid}{reason}", red=True)
            terminal.flush()


class CannotBeCollected:
    """A module that cannot be imported ends the run before its first test; pytest-xdist would say it at the end."""

    def __init__(self) -> None:
        self._failed = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self) -> None:
        if self._failed:
            pytest.exit("no test was run, as some cannot be collected", returncode=pytest.ExitCode.TESTS_FAILED)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", action="store_true", help="test on a cluster of Citus (make cluster-test)")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist report to the one that started them
        config.pluginmanager.register(FailuresAtOnce(config))
        config.pluginmanager.register(CannotBeCollected())
