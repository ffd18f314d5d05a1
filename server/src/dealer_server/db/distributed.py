"""Connections and sessions to a database whose tables are distributed by tenant."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import asyncpg

from dealer_server.db.by_tenant import at_its_nodes, per_tenant, split
from dealer_server.db.connection import Connection, Fetching
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session

# Citus hides its shards from whoever reads the catalog, which makes asyncpg's look at types take seconds.
SETTINGS = {"citus.override_table_visibility": "off"}
# The planner has to see the tenant's id to find its node.
_PLANS = {"plan_cache_mode": "force_custom_plan"}


_LOST = (
    "failure on connection marked as essential",
    "could not commit transaction",
    "postmaster was shut down",
    "shard for the given value does not exist",
)
LOST = (asyncpg.InternalServerError, asyncpg.SerializationError)
"""Of these, `is_lost` says which ones mean that the database was lost."""


class HalfDistributed(Exception):
    """`dealer-server distribute` was interrupted, and nothing else may work on the database until it is done."""


async def was_distributed(connection: Connection) -> bool:
    """Whether `dealer-server distribute` was run on this database. Raises HalfDistributed."""
    if not await connection.fetchval("SELECT to_regclass('distribution') IS NOT NULL"):
        return False
    if not await connection.fetchval("SELECT finished_at IS NOT NULL FROM distribution"):
        raise HalfDistributed("the database is distributed in part: run `dealer-server distribute` again")
    return True


def is_distributed(connection: Connection | Fetching | Session) -> bool:
    """Whether the tables that this connection reads are distributed by tenant."""
    return getattr(connection, "distributed", False)


def is_lost(error: asyncpg.PostgresError) -> bool:
    """Whether this is how Citus says that it lost a node in the middle of a transaction, that its server ends, or that
    the shard was split meanwhile."""
    return str(error).startswith(_LOST)


def is_node_away(lost: DatabaseLost) -> bool:
    """Whether the coordinator answers and says that it cannot reach a node."""
    return isinstance(lost.__cause__, asyncpg.PostgresConnectionError) and "remote node" in str(lost.__cause__)


class OfTenant(Protocol):
    @property
    def tenant_id(self) -> int: ...


T = TypeVar("T", bound=OfTenant)


def one_transaction_each(session: Session, items: Sequence[T]) -> list[Sequence[T]]:
    """The items that one transaction of this session may write: all of them, or those of one dealer."""
    if not is_distributed(session):
        return [items]
    groups: dict[int, list[T]] = {}
    for item in items:
        groups.setdefault(item.tenant_id, []).append(item)
    return list(groups.values())


class DistributedConnection(asyncpg.Connection):
    """A connection of the pool, on which statements for rows of many tenants run once for each tenant."""

    distributed = True

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[Any]:
        statement = per_tenant(query)
        if statement is None:
            return await super().fetch(at_its_nodes(query, args), *args, **options)
        rows = []
        for mine in split(statement, args):
            rows += await super().fetch(statement.sql, *mine, **options)
        return rows

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        statement = per_tenant(query)
        if statement is None or not args:
            return await super().execute(query, *args, **options)
        status = ""
        for mine in split(statement, args):
            status = await super().execute(statement.sql, *mine, **options)
        return status

    async def fetchrow(self, query: str, *args: Any, **options: Any) -> Any:
        if per_tenant(query) is None:
            return await super().fetchrow(at_its_nodes(query, args), *args, **options)
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: Any, column: int = 0, **options: Any) -> Any:
        if per_tenant(query) is None:
            return await super().fetchval(at_its_nodes(query, args), *args, column=column, **options)
        rows = await self.fetch(query, *args)
        return rows[0][column] if rows else None


class DistributedSession(Session):
    """A session on which statements for rows of many tenants run once for each tenant."""

    distributed = True

    def __init__(self, dsn: str, settings: Mapping[str, str]):
        # A commit in two phases that the coordinator forgets would stay at the nodes alone.
        lasting = {name: value for name, value in settings.items() if name != "synchronous_commit"}
        super().__init__(dsn, {**lasting, **SETTINGS, **_PLANS})

    def _lost(self, error: BaseException) -> None:
        """The coordinator says that a node is away: its own connection stays, for the dealers of other nodes."""
        ours = self._connection
        if ours is None or ours.is_closed() or not isinstance(error, asyncpg.PostgresConnectionError):
            self.drop()

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        statement = per_tenant(sql)
        if statement is None:
            return await self._fetch(at_its_nodes(sql, args), *args)
        rows: list[asyncpg.Record] = []
        for mine in split(statement, args):
            rows += await self._fetch(statement.sql, *mine)
        return rows

    async def _fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        with self._may_be_lost():
            return await super().fetch(sql, *args)

    async def execute(self, sql: str) -> None:
        with self._may_be_lost():
            await super().execute(sql)

    @contextmanager
    def _may_be_lost(self) -> Iterator[None]:
        try:
            yield
        except LOST as error:
            if not is_lost(error):
                raise
            self.drop()
            raise DatabaseLost(sent=True) from error
