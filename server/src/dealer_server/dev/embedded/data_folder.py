"""Which folder holds the data? One that is this user's alone, marked as ours, and locked while it is in use."""

import fcntl
import os
import stat
from pathlib import Path
from typing import IO

from dealer_server.dev.embedded.accounts import user_name
from dealer_server.dev.embedded.errors import EmbeddedError
from dealer_server.store.tenants.serve_lock import EMBEDDED_CLUSTER

MARK = EMBEDDED_CLUSTER


def default_folder() -> Path:
    """Where the data lives unless the operator chooses: the XDG data home, or /var/lib as root."""
    if os.geteuid() == 0:
        return Path("/var/lib/esim-dealer")
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (data_home if data_home.is_absolute() else Path.home() / ".local/share") / "esim-dealer"


def claim(data: Path) -> IO[str]:
    """Locks the folder, once it is known to be ours and private. Raises EmbeddedError, OSError."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_ours(data)
    descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    lock = os.fdopen(descriptor, "r+", errors="replace")  # it may be somebody else's file
    try:
        _lock(lock, data)
        # As root the server's user must pass through to its cluster, but sees nothing else.
        data.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except BaseException:
        lock.close()
        raise
    return lock


def _require_ours(data: Path) -> None:
    """Raises EmbeddedError, before anything changes, for a folder that is not marked and not empty, or not private."""
    info = data.stat()
    if info.st_uid != os.geteuid():
        raise EmbeddedError(f"data folder {data} belongs to {user_name(info.st_uid)}, not to {user_name(os.geteuid())}")
    if info.st_mode & stat.S_IWOTH:
        raise EmbeddedError(f"anyone may write in {data}; choose a data folder that is yours alone")
    names = {path.name for path in data.iterdir()} - {"lost+found"}
    if names and "lock" not in names:
        raise _not_ours(data)


def _not_ours(data: Path) -> EmbeddedError:
    return EmbeddedError(f"{data} holds files that are not ours; choose an empty or a new folder")


def _lock(lock: IO[str], data: Path) -> None:
    """Locks the file and writes who holds it: "esim-dealer 1234"."""
    mark, _, holder = lock.read(100).strip().partition(" ")
    if mark not in ("", MARK):
        raise _not_ours(data)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        user = f"data folder {data} is in use by process {holder or '(unknown)'}"
        raise EmbeddedError(f"{user}; stop it, or name another folder with --data") from None
    lock.seek(0)
    lock.truncate()
    lock.write(f"{MARK} {os.getpid()}\n")
    lock.flush()


def release(lock: IO[str]) -> None:
    # Closing is not enough: a forked child still has the file open.
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()
