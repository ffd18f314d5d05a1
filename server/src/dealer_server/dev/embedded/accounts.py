"""Which user runs PostgreSQL? The user of this process; for root, which PostgreSQL refuses, another one."""

import contextlib
import os
import pwd
from pathlib import Path

from dealer_server.dev.embedded.errors import EmbeddedError


def server_account(cluster: Path) -> pwd.struct_passwd | None:
    """The user that the server runs as: None for the user of this process, which must not be root."""
    if os.geteuid() != 0:
        _require_account(os.geteuid())
        return None
    if cluster.exists():
        owner = cluster.stat().st_uid
        if owner == 0:
            raise EmbeddedError(f"{cluster} belongs to root, as whom PostgreSQL does not run; chown -R it to its user")
        return _require_account(owner)
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedError("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as")


def _require_account(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL needs a user name, and user id {uid} has none in the passwd database"
        ) from None


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def require_entry(folder: Path, account: pwd.struct_passwd) -> None:
    """Below a folder that the account may not enter, initdb would fail with a message that does not name it."""
    for step in (*reversed(folder.parents), folder):
        if not permits(step, account, 0o1):
            raise EmbeddedError(
                f"PostgreSQL runs as user {account.pw_name}, who may not enter {step}; choose a data folder outside it"
            )


def permits(path: Path, account: pwd.struct_passwd, bits: int) -> bool:
    """Whether the mode bits grant these (read 4, execute or enter 1); access lists are not considered."""
    info = path.stat()
    shift = 6 if info.st_uid == account.pw_uid else 3 if info.st_gid == account.pw_gid else 0
    return info.st_mode >> shift & bits == bits
