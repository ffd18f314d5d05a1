"""The order of the tests, and what is said of those that fail."""

import pytest

# Files whose few tests take long are begun first, so that the run does not end with one process at work on them.
LONG = ("server/tests/faults/", "server/tests/console/test_console_looks", "server/tests/cli/", "server/tests/wiring/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


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


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist report to the one that started them
        config.pluginmanager.register(FailuresAtOnce(config))
