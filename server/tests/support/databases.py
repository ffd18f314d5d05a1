"""Databases of a test run: the data of a server, addresses, copies of the template, on each node of a cluster."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil

from dealer_server.dev import cluster
from dealer_server.dev.cluster import Cluster
from dealer_server.store.distribution.distribute import set_node_sessions

MEMORY = Path("/dev/shm")  # every database is a copy of 700 files: 20 ms in memory, 400 ms on a disk
ROOM = 4 * 2**30
PREFIX = "esim-dealer-test-"
_clusters: list[Cluster] = []


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """A temporary folder where PostgreSQL's user may go, too: in memory where there is room."""
    parent = _memory()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=parent) as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def _memory() -> Path | None:
    """None where a temporary folder is better on the disk."""
    if not MEMORY.is_mount():
        return None
    for left in MEMORY.glob(f"{PREFIX}*-*"):  # by a run that was killed
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(left, ignore_errors=True)
    return MEMORY if shutil.disk_usage(MEMORY).free > ROOM else None


def database_named(dsn: str, name: str) -> str:
    return urlunsplit(urlsplit(dsn)._replace(path=f"/{name}"))


def use_cluster(started: Cluster) -> None:
    """The cluster that this process tests on."""
    _clusters[:] = [started]


def on_a_cluster() -> bool:
    return bool(_clusters)


def lock_waiters() -> str:
    """SQL: the sessions of this database that wait for a lock, as pg_stat_activity has them; on a cluster at any node.
    Citus gives what a session does at the nodes the session's own process."""
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    if on_a_cluster():
        waiting = "SELECT citus_pid_for_gpid(global_pid) FROM citus_stat_activity WHERE wait_event_type = 'Lock'"
    return f"(SELECT * FROM pg_stat_activity WHERE datname = current_database() AND pid IN ({waiting})) AS waiting"


def _servers(postgres: str) -> list[str]:
    return [postgres, *(worker.dsn for started in _clusters for worker in started.workers)]


async def new(postgres: str, name: str) -> str:
    """Makes an empty database, whose nodes know each other on a cluster; gives its address."""
    for node in _servers(postgres):
        await _run(node, f"CREATE DATABASE {name}")
    for started in _clusters:
        await cluster.introduce(started, name)
    return database_named(postgres, name)


async def copy(postgres: str, name: str, template: str) -> str:
    """Makes a database that is a copy of another one; gives its address."""
    for node in _servers(postgres):
        await _run(node, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
    url = database_named(postgres, name)
    if on_a_cluster():
        connection = await asyncpg.connect(url)
        await set_node_sessions(connection)
        await connection.close()
    return url


async def drop(postgres: str, name: str) -> None:
    for node in _servers(postgres):
        await _run(node, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def close(postgres: str, name: str) -> None:
    """Nobody connects to this database any more, so that it can be copied: Citus has a process of its own in each."""
    for node in _servers(postgres):
        await _run(node, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await _run(node, f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'")


async def _run(dsn: str, sql: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(sql)
    finally:
        await connection.close()
