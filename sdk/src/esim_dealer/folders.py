"""Where do the commands keep files? In the user's folders (XDG Base Directory Specification)."""

import re
from collections.abc import Mapping
from pathlib import Path

PROGRAM = "esim-dealer"


def state_file(environment: Mapping[str, str], name: str) -> Path:
    """What may be lost: events received, what was moved today."""
    return _folder(environment, "XDG_STATE_HOME", ".local/state") / re.sub("[^A-Za-z0-9_.-]", "_", name)


def config_file(environment: Mapping[str, str], name: str) -> Path:
    return _folder(environment, "XDG_CONFIG_HOME", ".config") / name


def _folder(environment: Mapping[str, str], variable: str, usual: str) -> Path:
    given = Path(environment.get(variable, ""))
    return (given if given.is_absolute() else Path.home() / usual) / PROGRAM
