"""Where does `dealer-server dev` run? Written down while it runs, so that commands reach it without settings."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DATABASE = ("DATABASE_URL", "DATABASE_URL_FILE", "DEALER_DATABASE_URL", "DEALER_DATABASE_URL_FILE")


def _file(environment: Mapping[str, str]) -> Path:
    state = Path(environment.get("XDG_STATE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (state if state.is_absolute() else Path.home() / ".local/state") / "esim-dealer" / "dev.json"


@contextlib.contextmanager
def announced(base_url: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Written for its owner only: the settings hold the sealing key. Of several instances the last one is found."""
    file = _file(os.environ)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump({"pid": os.getpid(), "baseUrl": base_url, "env": dict(settings)}, opened)
    fresh.replace(file)
    try:
        yield
    finally:
        if _read(file).get("pid") == os.getpid():
            file.unlink(missing_ok=True)


def found(environment: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """The base URL and the settings of the instance that runs; None where there is none, or a database is named."""
    if any(environment.get(name) for name in DATABASE):
        return None
    kept = _read(_file(environment))
    return (kept["baseUrl"], kept["env"]) if kept and _lives(kept["pid"]) else None


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return {}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
