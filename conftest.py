"""A failing test is named as soon as it fails; the dots of `-q` and of several processes say it only at the end."""

import pytest


class FailuresAtOnce:
    def __init__(self, config: pytest.Config):
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line(f"\n{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid}", red=True)
            terminal.flush()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the processes of pytest-xdist report to the one that started them
        config.pluginmanager.register(FailuresAtOnce(config))
