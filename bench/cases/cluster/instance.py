"""A cluster of Citus on this machine, measured on as one PostgreSQL is."""

import asyncio
from pathlib import Path

import asyncpg

from bench.support import processes
from bench.support.instance import Instance, filled, pid
from dealer_server.dev import cluster

SHARDS = 16
DATABASE = "esim"


class ClusterInstance(Instance):
    """A coordinator and so many workers, durable, with one database. Stop it in the end."""

    def __init__(self, folder: Path, workers: int, dealers: int):
        self._cluster = asyncio.run(cluster.start(folder / "data", workers=workers))
        super().__init__(folder, lambda _: self._cluster.coordinator)
        self.dealers = asyncio.run(filled(self.dsn(DATABASE), self.master_keys, dealers, SHARDS))

    def stop(self) -> None:
        self._cluster.stop()

    def checkpoint(self) -> None:
        """On each node, with what autovacuum does there within a minute: plans of nodes are made by statistics."""
        asyncio.run(self._checkpoint())

    async def _checkpoint(self) -> None:
        for node in self._cluster.nodes:
            connection = await asyncpg.connect(node.dsn)
            await connection.execute("ANALYZE")
            await connection.execute("CHECKPOINT")
            await connection.close()

    def database_cpu_seconds(self) -> dict[str, float]:
        names = ("coordinator", *(f"node{number}" for number, _ in enumerate(self._cluster.workers, 1)))
        return {
            name: processes.family_cpu_seconds(pid(node)) for name, node in zip(names, self._cluster.nodes, strict=True)
        }
