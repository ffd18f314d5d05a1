"""Where does `dealer-server dev` run? Written down while it runs, so that commands reach it without settings. Each
instance has a file of its own: several may run."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

DATABASE = ("DATABASE_URL", "DATABASE_URL_FILE", "DEALER_DATABASE_URL", "DEALER_DATABASE_URL_FILE")


def _folder(environment: Mapping[str, str]) -> Path:
    state = Path(environment.get("XDG_STATE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (state if state.is_absolute() else Path.home() / ".local/state") / "esim-dealer"


@contextlib.contextmanager
def announced(base_url: str, settings: Mapping[str, str]) -> Iterator[None]:
    """Written for its owner only: the settings hold the sealing key."""
    file = _folder(os.environ) / f"dev-{os.getpid()}.json"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in file.parent.glob("dev-*.json"):  # of instances that were killed
        if not _lives(_read(other).get("pid", 0)):
            other.unlink(missing_ok=True)
    fresh = file.with_suffix(".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        json.dump({"pid": os.getpid(), "baseUrl": base_url, "env": dict(settings)}, opened)
    fresh.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def found(environment: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """The base URL and the settings of the instance that runs. Of several the one that ESIM_DEALER_URL names, else the
    one that was started last. None where there is none, or a database is named."""
    if any(environment.get(name) for name in DATABASE):
        return None
    files = sorted(_folder(environment).glob("dev-*.json"), key=_written_at, reverse=True)
    running = [kept for file in files if (kept := _read(file)) and _lives(kept["pid"])]
    named = [kept for kept in running if kept["baseUrl"] == environment.get("ESIM_DEALER_URL", "").rstrip("/")]
    kept = next(iter(named + running), None)
    return (kept["baseUrl"], kept["env"]) if kept else None


def _written_at(file: Path) -> int:
    """0 where it is gone by now."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


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
