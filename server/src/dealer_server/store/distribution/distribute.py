"""How does a database become a distributed one? In steps, each of which may be repeated: an interrupted run goes on.

`distribution` is the mark that it was begun; while `finished_at` is missing no process of the service starts.
"""

from collections.abc import AsyncIterator
from typing import NamedTuple

from dealer_server.db.connection import KEEPALIVE_SETTINGS, Connection
from dealer_server.store.distribution.placement import APART, BY_TENANT, IDENTITIES, ON_EVERY_NODE, UNIQUE_OVER_ALL


class Step(NamedTuple):
    """What is done next, in words."""

    text: str


class NotACluster(Exception):
    """The database is not the coordinator's of a cluster of Citus with workers."""


class NodeRefused(Exception):
    """A worker node did not take a setting."""


# A wait for a lock ends, and so does a session whose coordinator is gone. One that is idle in a transaction stays, as
# the move of a shard has one all the time.
_OF_NODE_SESSIONS = {"lock_timeout": "2s", **KEEPALIVE_SETTINGS}
# A worker node refuses what Citus would pass on to the others.
_SET = """
DO $$ BEGIN
    SET LOCAL citus.enable_ddl_propagation = off;
    EXECUTE format($set$ALTER DATABASE %I SET {}$set$, current_database());
END $$
"""
# Foreign keys with one end at a table that is distributed. Those between two such tables come back at the end.
_FOREIGN_KEYS = """
SELECT c.conrelid::regclass::text AS child, c.conname AS name, pg_get_constraintdef(c.oid) AS definition,
    c.conrelid::regclass::text = ANY($1::text[]) AND c.confrelid::regclass::text = ANY($1::text[]) AS stays
FROM pg_constraint c WHERE c.contype = 'f'
    AND (c.conrelid::regclass::text = ANY($1::text[] || $2::text[])
        OR c.confrelid::regclass::text = ANY($1::text[] || $2::text[]))
ORDER BY 1, 2
"""


_WITHOUT_LIMITS = "SELECT bool_or(result = '0') FROM run_command_on_workers('SHOW lock_timeout')"
_SHARD_TABLES = "SELECT table_name::text || '_' || shardid AS name FROM citus_shards"


async def require_cluster(connection: Connection) -> None:
    """Raises NotACluster."""
    if not await connection.fetchval("SELECT to_regclass('pg_catalog.pg_dist_node') IS NOT NULL"):
        raise NotACluster("this PostgreSQL has no Citus: CREATE EXTENSION citus in this database, on every node")
    nodes = await connection.fetch("SELECT groupid FROM pg_dist_node WHERE isactive AND noderole = 'primary'")
    groups = {row["groupid"] for row in nodes}
    if 0 not in groups:
        raise NotACluster("the coordinator does not know its own address: SELECT citus_set_coordinator_host(...)")
    if groups == {0}:
        raise NotACluster("the coordinator knows no worker node: SELECT citus_add_node(...) for each")


async def distribute(connection: Connection, shards: int, *, dry_run: bool = False) -> AsyncIterator[Step]:
    """Gives each step before it is done; with `dry_run` none is done. On a connection of its own."""
    done = await _placed(connection)
    begun = bool(await connection.fetchval("SELECT to_regclass('distribution') IS NOT NULL"))
    if not begun:
        yield Step("note the foreign keys, and take out those that a distributed table cannot have")
        if not dry_run:
            async with connection.transaction():
                await _begin(connection)
    for table, column in IDENTITIES.items():
        if await _is_identity(connection, table, column):
            yield Step(f"{table}.{column}: a sequence instead of an identity")
            if not dry_run:
                async with connection.transaction():
                    await _use_sequence(connection, table, column)
    for index, definition in UNIQUE_OVER_ALL.items():
        if await connection.fetchval("SELECT indisunique FROM pg_index WHERE indexrelid = $1::text::regclass", index):
            yield Step(f"{index}: kept unique over all dealers by purchase_claim on the coordinator")
            if not dry_run:
                async with connection.transaction():
                    await connection.execute(f"DROP INDEX {index}; {definition}")
    for table in ON_EVERY_NODE:
        if table not in done:
            yield Step(f"{table}: a copy on every node")
            if not dry_run:
                await connection.fetch("SELECT create_reference_table($1::text::regclass)", table)
    for table in BY_TENANT:
        if table not in done:
            yield Step(f"{table}: distribute by tenant_id")
            if not dry_run:
                await _distribute_table(connection, table, shards)
    for table in (*ON_EVERY_NODE, *BY_TENANT):
        if table not in done or await connection.fetchval("SELECT pg_relation_size($1::text::regclass) > 0", table):
            yield Step(f"{table}: remove the rows that were copied from the coordinator")
            if not dry_run:
                await connection.fetch("SELECT truncate_local_data_after_distributing_table($1::text::regclass)", table)
    missing = await _missing_keys(connection) if begun or not dry_run else []
    for child, name, definition in missing:
        yield Step(f"{child}: foreign key {name}")
        if not dry_run:
            await connection.execute(f"ALTER TABLE {child} ADD CONSTRAINT {name} {definition}")
    async for step in _finish(connection, dry_run=dry_run):
        yield step


async def _finish(connection: Connection, *, dry_run: bool) -> AsyncIterator[Step]:
    for table in await _without_trigger(connection):
        yield Step(f"{table}: stays on the coordinator; what writes to it and to a node commits in two phases")
        if not dry_run:
            await connection.execute(
                f"CREATE TRIGGER commit_in_two_phases AFTER INSERT OR UPDATE OR DELETE ON {table}"
                " FOR EACH STATEMENT EXECUTE FUNCTION commit_in_two_phases()"
            )
    finished = not dry_run and await connection.fetchval("SELECT finished_at IS NOT NULL FROM distribution")
    if not finished or await connection.fetchval(_WITHOUT_LIMITS):
        yield Step("sessions of the worker nodes: waits for locks end by themselves")
        if not dry_run:
            await set_node_sessions(connection)
            await connection.execute("UPDATE distribution SET finished_at = now()")


async def _begin(connection: Connection) -> None:
    await connection.execute(
        "CREATE TABLE distribution (begun_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz,"
        " foreign_keys jsonb NOT NULL);"
        # A write to a table that Citus knows, and that is never there: the transaction then commits in two phases.
        "CREATE TABLE two_phases (never bigint);"
        "CREATE FUNCTION commit_in_two_phases() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN DELETE FROM two_phases WHERE never = 0; RETURN NULL; END $$;"
        # What is unique over all dealers: which purchase a supplier's reference or eSIM belongs to.
        "CREATE TABLE purchase_claim (supplier text NOT NULL, kind text NOT NULL CHECK (kind IN ('UNIT', 'ICCID')),"
        " value text NOT NULL, tenant_id bigint NOT NULL, profile_id bigint NOT NULL, position smallint NOT NULL,"
        " PRIMARY KEY (supplier, kind, value));"
        "CREATE INDEX purchase_claim_of ON purchase_claim (tenant_id, profile_id, position);"
    )
    await connection.fetch("SELECT citus_add_local_table_to_metadata('two_phases')")
    await connection.execute(
        "INSERT INTO purchase_claim SELECT supplier, 'UNIT', unit_ref, tenant_id, profile_id, position FROM purchase"
        " WHERE unit_ref IS NOT NULL;"
        "INSERT INTO purchase_claim SELECT supplier, 'ICCID', iccid, tenant_id, profile_id, position FROM purchase"
        " WHERE iccid IS NOT NULL AND unit_ref IS NULL AND supplier_ref IS NULL"
    )
    keys = await connection.fetch(_FOREIGN_KEYS, list(BY_TENANT), list(ON_EVERY_NODE))
    await connection.execute(
        "INSERT INTO distribution (foreign_keys) SELECT coalesce(jsonb_agg(jsonb_build_array(child, name, definition)),"
        " '[]') FROM unnest($1::text[], $2::text[], $3::text[]) AS key(child, name, definition)",
        *[[row[name] for row in keys if row["stays"]] for name in ("child", "name", "definition")],
    )
    for row in keys:
        await connection.execute(f"ALTER TABLE {row['child']} DROP CONSTRAINT {row['name']}")


async def _placed(connection: Connection) -> set[str]:
    rows = await connection.fetch(
        "SELECT logicalrelid::text AS name FROM pg_dist_partition WHERE partmethod = 'h' OR repmodel = 't'"
    )
    return {row["name"] for row in rows}


async def _is_identity(connection: Connection, table: str, column: str) -> bool:
    sql = "SELECT attidentity <> '' FROM pg_attribute WHERE attrelid = $1::text::regclass AND attname = $2"
    return bool(await connection.fetchval(sql, table, column))


async def _use_sequence(connection: Connection, table: str, column: str) -> None:
    sequence = f"{table}_{column}_seq"
    following = await connection.fetchval(f"SELECT nextval(pg_get_serial_sequence('{table}', '{column}'))")
    await connection.execute(
        f"ALTER TABLE {table} ALTER {column} DROP IDENTITY; CREATE SEQUENCE {sequence} START {following};"
        f"ALTER SEQUENCE {sequence} OWNED BY {table}.{column};"
        f"ALTER TABLE {table} ALTER {column} SET DEFAULT nextval('{sequence}')"
    )


async def _distribute_table(connection: Connection, table: str, shards: int) -> None:
    """One that an earlier release left on the coordinator has its trigger, which a distributed table cannot have."""
    await connection.execute(f"DROP TRIGGER IF EXISTS commit_in_two_phases ON {table}")
    if table == BY_TENANT[0]:
        await connection.fetch(
            "SELECT create_distributed_table($1::text::regclass, 'tenant_id', shard_count => $2,"
            " colocate_with => 'none')",
            table,
            shards,
        )
    else:
        await connection.fetch(
            "SELECT create_distributed_table($1::text::regclass, 'tenant_id', colocate_with => $2)", table, BY_TENANT[0]
        )


async def _missing_keys(connection: Connection) -> list[tuple[str, str, str]]:
    rows = await connection.fetch(
        "SELECT key ->> 0 AS child, key ->> 1 AS name, key ->> 2 AS definition"
        " FROM distribution, jsonb_array_elements(foreign_keys) key WHERE NOT EXISTS (SELECT FROM pg_constraint c"
        "  WHERE c.conname = key ->> 1 AND c.conrelid = (key ->> 0)::regclass) ORDER BY 1, 2"
    )
    return [(row["child"], row["name"], row["definition"]) for row in rows]


async def _without_trigger(connection: Connection) -> list[str]:
    rows = await connection.fetch(
        "SELECT relname::text AS name FROM pg_class c WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
        " AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'commit_in_two_phases')"
        " AND relname::text <> ALL($1::text[]) ORDER BY 1",
        [*BY_TENANT, *ON_EVERY_NODE, *APART, "two_phases"],
    )
    known = {row["name"] for row in await connection.fetch("SELECT logicalrelid::text AS name FROM pg_dist_partition")}
    shards = {row["name"] for row in await connection.fetch(_SHARD_TABLES)}
    return [row["name"] for row in rows if row["name"] not in known | shards]


async def set_node_sessions(connection: Connection) -> None:
    """The coordinator's settings do not reach the sessions of the nodes; a node that was added, or a copy of a
    database, has none. Raises NodeRefused."""
    for name, value in _OF_NODE_SESSIONS.items():
        sql = _SET.format(f"{name} = '{value}'")
        for row in await connection.fetch("SELECT * FROM run_command_on_workers($1)", sql):
            if not row["success"]:
                raise NodeRefused(f"{row['nodename']}:{row['nodeport']}: {row['result']}")
