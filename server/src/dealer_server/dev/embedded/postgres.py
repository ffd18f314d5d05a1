"""How is a cluster created, launched and stopped?"""

import os
import shlex
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from dealer_server.dev.embedded.data_folder import MARK
from dealer_server.dev.embedded.errors import EmbeddedError
from dealer_server.dev.embedded.programs import MAJOR, Programs, last_error, sync

PORT = 5432  # names the socket; nothing listens on TCP
_SOCKET = f".s.PGSQL.{PORT}"
_SOCKET_PATH_LIMIT = 103  # bytes on macOS; Linux allows 107
_LOG_LIMIT = 16 * 2**20  # bytes; a longer log becomes log.old at the next start
_START_SECONDS = 300  # recovery after a crash may replay max_wal_size
_STOP_SECONDS = 60

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "cluster_name": MARK,
    "shared_buffers": "512MB",
    "max_wal_size": "4GB",
    "min_wal_size": "1GB",
    "io_method": "sync",
    "jit": "off",
}
UNSAFE_SETTINGS = {
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "min_wal_size": "32MB",
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


def require_version(cluster: Path) -> None:
    version = (cluster / "PG_VERSION").read_text().strip()
    if version != MAJOR:
        raise EmbeddedError(f"data folder {cluster.parent} is of PostgreSQL {version}; this release brings {MAJOR}")


def create(programs: Programs, cluster: Path, *, survive_crash: bool) -> None:
    """initdb in a folder beside it, then renamed, so that an interrupted one is not taken for a cluster."""
    data = cluster.parent
    for unfinished in data.glob("postgres-unfinished-*"):
        shutil.rmtree(unfinished, ignore_errors=True)  # its initdb may still be writing; the next start tries again
    fresh = Path(tempfile.mkdtemp(prefix="postgres-unfinished-", dir=data))
    programs.hand_over(fresh)
    programs.must_run(
        "initdb",
        "-D",
        fresh.name,
        "--username=esim",
        "--data-checksums",
        "--no-sync",
        "--no-instructions",
        "--encoding=UTF8",
        "--locale-provider=builtin",
        "--locale=C.UTF-8",
        # The socket is open to its owner and root alone, so no password is asked for.
        "--auth-local=trust",
        "--auth-host=reject",
        folder=data,
    )
    # Renaming the empty database that initdb made is quicker than copying a template: 25 against 50 to 250 ms.
    programs.must_run(
        "postgres",
        "--single",
        "-D",
        fresh.name,
        "-c",
        "fsync=off",
        "-c",
        "exit_on_error=on",
        "template1",
        folder=data,
        statement="ALTER DATABASE postgres RENAME TO esim\n",
    )
    if survive_crash:
        programs.must_run("initdb", "--sync-only", "-D", fresh.name, folder=data)
    fresh.rename(cluster)
    sync(data)


def launch(programs: Programs, data: Path, socket_dir: Path, settings: dict[str, str]) -> None:
    quoted = str(socket_dir).replace('"', '""')  # the setting is a list of names
    settings = settings | {"unix_socket_directories": f'"{quoted}"'}
    options = shlex.join(part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    with _open_log(data) as log:
        begin = log.seek(0, os.SEEK_END)
        # Relative to the folder, because pg_ctl puts the name into a shell command.
        arguments = ("start", "-s", "-w", "-t", str(_START_SECONDS), "-D", "postgres", "-o", options)
        if not programs.run("pg_ctl", *arguments, folder=data, output=log):
            log.seek(begin)
            raise EmbeddedError(f"PostgreSQL did not start: {last_error(log.read())} (see {data / 'log'})")


def _open_log(data: Path) -> IO[bytes]:
    path = data / "log"
    if path.exists() and path.stat().st_size > _LOG_LIMIT:
        path.rename(data / "log.old")
    return os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+b")


def stop(programs: Programs, cluster: Path) -> None:
    """Stops the server of this cluster, if one runs. Raises EmbeddedError where it does not stop."""
    for mode in ("fast", "immediate"):
        if not is_running(cluster):
            return
        arguments = ("stop", "-s", "-w", "-t", str(_STOP_SECONDS), "-m", mode, "-D", cluster.name)
        programs.run("pg_ctl", *arguments, folder=cluster.parent, output=subprocess.DEVNULL)
    if is_running(cluster):
        raise EmbeddedError(f"the PostgreSQL that runs in {cluster} does not stop")


def remove_pid_files(cluster: Path) -> None:
    """Removes the files of a server that was killed: the next one would not start where their pid is in use again.

    That is common in a restarted container, where pids begin at 1 again.
    """
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    (cluster / f"{_SOCKET}.lock").unlink(missing_ok=True)


def is_running(cluster: Path) -> bool:
    """Whether a server runs on this cluster. Its pid file alone does not say: the pid may be another process by now."""
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
    """Also finds a server whose pid is not visible here: on macOS, and in another container on the same volume."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(socket_path)
        except OSError:
            return False
    return True


def socket_folder(programs: Programs, cluster: Path) -> Path:
    """The cluster, which is private; or, where that path is too long, a private folder with a short one."""
    # asyncpg would take a comma for the end of a host name.
    if len(os.fsencode(cluster / _SOCKET)) <= _SOCKET_PATH_LIMIT and "," not in str(cluster):
        return cluster
    folder = Path(tempfile.mkdtemp(prefix="esim-dealer-"))
    programs.hand_over(folder)
    return folder


def remove_socket_folder(data: Path, socket_dir: Path) -> None:
    if socket_dir.parent != data:
        shutil.rmtree(socket_dir, ignore_errors=True)
