"""How do the nodes of a cluster come to know each other?"""

from collections.abc import Sequence

from dealer_server.db.connection import Connection

Address = tuple[str, int]
"""A host, or the folder of a socket, and a port."""


async def prepare(connection: Connection, itself: str) -> None:
    """On each node: Citus in this database, and how the node reaches itself. May be repeated."""
    await connection.execute("CREATE EXTENSION IF NOT EXISTS citus")
    setting = await connection.fetchval("SELECT quote_literal($1)", itself)
    await connection.execute(f"ALTER SYSTEM SET citus.local_hostname = {setting}")
    await connection.execute("SELECT pg_reload_conf()")


async def introduce(connection: Connection, coordinator: Address, workers: Sequence[Address]) -> None:
    """On the coordinator. May be repeated."""
    known = {row["nodename"] for row in await connection.fetch("SELECT nodename FROM pg_dist_node")}
    if coordinator[0] not in known:
        await connection.fetch("SELECT citus_set_coordinator_host($1, $2)", *coordinator)
    for worker in workers:
        if worker[0] not in known:
            await connection.fetch("SELECT citus_add_node($1, $2)", *worker)
