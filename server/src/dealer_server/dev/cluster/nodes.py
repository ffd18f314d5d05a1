"""Starts and stops the nodes of a development cluster."""

import asyncio
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from dealer_server.dev import embedded
from dealer_server.dev.embedded import Embedded, EmbeddedError
from dealer_server.dev.embedded.postgres import PORT
from dealer_server.store.distribution import introduce as steps

INSTALLATION = "DEALER_CITUS"
WORKERS = 2
SETTINGS = {
    "shared_preload_libraries": "citus",
    "shared_buffers": "128MB",
    "wal_level": "logical",
    "max_connections": "300",
    "max_prepared_transactions": "300",
    "max_worker_processes": "64",
    "max_wal_senders": "32",
    "max_replication_slots": "32",
    "autovacuum_naptime": "5s",
    "citus.node_connection_timeout": "10s",
    "citus.recover_2pc_interval": "2s",
    "citus.enable_statistics_collection": "off",
    "citus.max_adaptive_executor_pool_size": "4",
}


@dataclass(frozen=True)
class Cluster:
    """`dsn`: the coordinator's database `esim`, in which the workers are known."""

    coordinator: Embedded
    workers: tuple[Embedded, ...]

    @property
    def dsn(self) -> str:
        return self.coordinator.dsn

    @property
    def nodes(self) -> tuple[Embedded, ...]:
        return self.coordinator, *self.workers

    def stop(self) -> None:
        """Stops the coordinator first, so that nothing is under way at a worker."""
        for node in self.nodes:
            node.stop()


def installation() -> Path:
    """The PostgreSQL that has Citus. Raises EmbeddedError where there is none."""
    named = os.environ.get(INSTALLATION)
    if not named:
        raise EmbeddedError(
            "a cluster needs PostgreSQL 18 with Citus: build one with deploy/citus/build.sh, or install the packages of"
            f" Citus, and set {INSTALLATION} to its folder, the one that has bin/postgres"
        )
    folder = Path(named)
    if not any(folder.glob("lib*/**/citus.so")):
        raise EmbeddedError(f"{INSTALLATION}={named}: there is no Citus in that PostgreSQL (citus.so)")
    return folder


async def start(data: Path, *, fresh: bool = False, fast_and_unsafe: bool = False, workers: int = WORKERS) -> Cluster:
    """Starts a coordinator and workers in this folder, creating what is missing; `fresh`: with empty data folders.
    Raises EmbeddedError."""
    installed = installation()
    data = data.expanduser().resolve()
    data.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    with ExitStack() as started:
        nodes = []
        for name in ("coordinator", *(f"worker-{number}" for number in range(1, workers + 1))):
            if fresh:
                embedded.erase(data / name)
            node = await asyncio.to_thread(_start, data / name, installed, fast_and_unsafe)
            started.callback(node.stop)
            nodes.append(node)
        cluster = Cluster(nodes[0], tuple(nodes[1:]))
        await introduce(cluster, "esim")
        started.pop_all()
    return cluster


def _start(data: Path, installed: Path, fast_and_unsafe: bool) -> Embedded:
    node = embedded.start(data, fast_and_unsafe=fast_and_unsafe, installed=installed, settings=SETTINGS)
    if not node.socket_dir.is_relative_to(data):  # the other nodes know a node by its socket
        node.stop()
        raise EmbeddedError(f"the path of {data} is too long for a cluster; choose a data folder with a shorter one")
    return node


async def introduce(cluster: Cluster, database: str) -> None:
    """Makes the nodes known to each other in this database, which each of them has. May be repeated."""
    for node in cluster.nodes:
        connection = await asyncpg.connect(node.dsn, database=database)
        try:
            await steps.prepare(connection, str(node.socket_dir))
        finally:
            await connection.close()
    connection = await asyncpg.connect(cluster.dsn, database=database)
    try:
        await steps.introduce(connection, _address(cluster.coordinator), [_address(node) for node in cluster.workers])
    finally:
        await connection.close()


def _address(node: Embedded) -> tuple[str, int]:
    return str(node.socket_dir), PORT


__all__ = ["INSTALLATION", "Cluster", "EmbeddedError", "installation", "introduce", "start"]
