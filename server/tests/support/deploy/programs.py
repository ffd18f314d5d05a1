"""Programs beside the service that tests start: proxies, poolers, Prometheus."""

import shutil

import pytest


def needs(program: str, package: str) -> str:
    """Its path; the test is skipped where it is not installed."""
    found = shutil.which(program, path="/usr/sbin:/usr/local/sbin") or shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian: {package})")
    return found
