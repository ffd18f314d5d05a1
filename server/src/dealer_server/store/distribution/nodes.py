"""Which nodes does the cluster have, what do they hold, and where is a dealer?"""

from typing import NamedTuple

from dealer_server.db.connection import Connection


class Node(NamedTuple):
    """`group` 0 is the coordinator. `answers`: whether it can be reached now; `shards`, `size_bytes`: of dealers."""

    group: int
    name: str
    port: int
    takes_shards: bool
    answers: bool
    dealers: int
    shards: int
    size_bytes: int | None


class Place(NamedTuple):
    """The shard of a dealer. `alone`: it has no other dealer's rows."""

    shard_id: int
    node: str
    alone: bool


_NODES = """
SELECT n.groupid AS group, n.nodename AS name, n.nodeport AS port, n.shouldhaveshards AS takes_shards
FROM pg_dist_node n WHERE n.noderole = 'primary' ORDER BY n.groupid
"""
_DEALERS = """
SELECT p.groupid AS group, count(*) AS dealers FROM tenant t
    JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('wallet', t.tenant_id) GROUP BY 1
"""
_SHARDS = """
SELECT p.groupid AS group, count(*) AS shards FROM pg_dist_placement p JOIN pg_dist_shard s USING (shardid)
WHERE s.logicalrelid = 'wallet'::regclass GROUP BY 1
"""


async def nodes(connection: Connection) -> list[Node]:
    dealers = {row["group"]: row["dealers"] for row in await connection.fetch(_DEALERS)}
    shards = {row["group"]: row["shards"] for row in await connection.fetch(_SHARDS)}
    reached = {
        (row["nodename"], row["nodeport"]): row["result"] if row["success"] else None
        for row in await connection.fetch(
            "SELECT nodename, nodeport, success, result"
            " FROM run_command_on_workers('SELECT pg_database_size(current_database())')"
        )
    }
    found = []
    for row in await connection.fetch(_NODES):
        size = reached.get((row["name"], row["port"]))
        if row["group"] == 0:
            size = await connection.fetchval("SELECT pg_database_size(current_database())::text")
        found.append(
            Node(
                **row,
                answers=size is not None,
                dealers=dealers.get(row["group"], 0),
                shards=shards.get(row["group"], 0),
                size_bytes=None if size is None else int(size),
            )
        )
    return found


async def prepared_transactions(connection: Connection) -> int:
    """How many transactions of Citus wait at the nodes for their second phase, at nodes that answer. Seconds after load
    ends there are none."""
    rows = await connection.fetch(
        "SELECT success, result FROM run_command_on_workers("
        "$$SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'citus%' AND database = current_database()$$)"
    )
    return sum(int(row["result"]) for row in rows if row["success"])


async def place_of(connection: Connection, tenant_id: int) -> Place | None:
    """None for a dealer that is not there."""
    row = await connection.fetchrow(
        "SELECT s.shardid AS shard_id, n.nodename || ':' || n.nodeport AS node,"
        " s.shardminvalue = s.shardmaxvalue AS alone FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid)"
        " JOIN pg_dist_node n ON n.groupid = p.groupid AND n.noderole = 'primary'"
        " WHERE s.shardid = get_shard_id_for_distribution_column('wallet', $1::bigint)"
        " AND EXISTS (SELECT FROM tenant WHERE tenant_id = $1)",
        tenant_id,
    )
    return Place(**row) if row else None


async def isolate(connection: Connection, tenant_id: int) -> None:
    """Gives a dealer a shard of its own, of every table. Writes to the shard that is split wait until it is done.
    Outside of a transaction."""
    # Not 'auto': seen on PostgreSQL 18, it never ends while rows are changed, and the log says of the subscription that
    # follows them "publisher did not send replica identity column expected by the logical replication target relation".
    await connection.fetchval(
        "SELECT isolate_tenant_to_new_shard('wallet', $1::bigint, 'CASCADE', shard_transfer_mode => 'block_writes')",
        tenant_id,
    )
