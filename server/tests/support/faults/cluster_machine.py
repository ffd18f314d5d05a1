"""A cluster whose nodes a test kills and starts again."""

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import psutil

from dealer_server.dev import cluster, embedded
from dealer_server.dev.cluster import Cluster
from dealer_server.dev.cluster.nodes import SETTINGS
from dealer_server.dev.embedded import Embedded
from dealer_server.store import schema
from dealer_server.store.distribution import nodes
from dealer_server.store.distribution.distribute import distribute
from support.patience import PATIENCE

SHARDS = 8


class ClusterMachine:
    """A coordinator and two workers that lose nothing when they are killed."""

    def __init__(self, started: Cluster):
        self._nodes: list[Embedded] = list(started.nodes)

    @property
    def dsn(self) -> str:
        return self._nodes[0].dsn

    def kill(self, node: int) -> None:
        """kill -9 of a postmaster, 0 being the coordinator's; its children see it and end."""
        pid = int((self._nodes[node].data / "postgres/postmaster.pid").read_text().split()[0])
        children = psutil.Process(pid).children(recursive=True)
        os.kill(pid, signal.SIGKILL)
        psutil.wait_procs(children, timeout=PATIENCE)

    def start(self, node: int) -> None:
        self._nodes[node].stop()  # lets the folder go
        folder = self._nodes[node].data
        self._nodes[node] = embedded.start(folder, installed=cluster.installation(), settings=SETTINGS)

    def stop(self) -> None:
        for node in self._nodes:
            node.stop()

    async def node_of(self, tenant_id: int) -> int:
        """The node that has a dealer's rows, 1 or 2."""
        connection = await asyncpg.connect(self.dsn)
        try:
            place = await nodes.place_of(connection, tenant_id)
        finally:
            await connection.close()
        assert place is not None
        return next(n for n, node in enumerate(self._nodes) if place.node == f"{node.socket_dir}:5432")


@asynccontextmanager
async def cluster_machine() -> AsyncIterator[ClusterMachine]:
    with tempfile.TemporaryDirectory(prefix="esim-cluster-") as folder:
        Path(folder).chmod(0o755)
        machine = ClusterMachine(await cluster.start(Path(folder) / "data"))
        try:
            connection = await asyncpg.connect(machine.dsn)
            await schema.migrate(connection)
            async for _ in distribute(connection, SHARDS):
                pass
            await connection.close()
            yield machine
        finally:
            await asyncio.to_thread(machine.stop)
