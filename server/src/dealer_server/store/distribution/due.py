"""Who has work that is due? On a cluster it is looked for on every node, without locks, and claimed dealer by dealer.

The truth stands in the rows themselves: there is no second table of what is due, which would have to be written in two
phases with every order. While a node is away the others are asked one by one, and its dealers are left out.
"""

import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from dealer_server.db.by_tenant import of_one_tenant, of_some_tenants
from dealer_server.db.connection import Connection
from dealer_server.db.distributed import is_distributed
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session

AWAY = (DatabaseLost, asyncpg.PostgresConnectionError)
"""What a session, or a connection of the pool, raises for a node that does not answer."""
AWAY_SECONDS = 2.0  # how long a node, or a dealer of it, is left out after it did not answer
_away: dict[object, float] = {}

_NODES = """
SELECT p.groupid, array_agg(t.tenant_id) AS tenants FROM tenant t
    JOIN pg_dist_placement p ON p.shardid = get_shard_id_for_distribution_column('wallet', t.tenant_id)
GROUP BY p.groupid
"""


async def fetch_due(
    session: Connection | Session, sql: str, args: Sequence[Any], look: str, look_args: Sequence[Any], limit: int
) -> list[asyncpg.Record]:
    """The rows of a statement that claims what is due, of all dealers. On a cluster: of the dealers whose ids `look`
    gives, one after the other, until there are `limit`; in a transaction of the first that has any. Both texts say
    OF_ALL where a dealer is compared."""
    if not is_distributed(session):
        return await session.fetch(sql, *args)
    rows: list[asyncpg.Record] = []
    for tenant_id in dict.fromkeys([row["tenant_id"] for row in await fetch_all(session, look, *look_args)]):
        if _is_away(tenant_id):
            continue
        try:
            rows += await session.fetch(of_one_tenant(sql, len(args) + 1), *args, tenant_id)
        except AWAY:
            _away[tenant_id] = time.monotonic() + AWAY_SECONDS
            if _in_transaction(session):
                raise
        if len(rows) >= limit or (rows and _in_transaction(session)):
            break
    return rows


async def fetch_all(session: Session | Connection, sql: str, *args: Any) -> list[asyncpg.Record]:
    """The rows of a SELECT over all dealers; on a cluster without those of a node that is away. Order them again where
    it matters: they come node by node then."""
    if not is_distributed(session):
        return await session.fetch(sql, *args)
    if not _is_away("any node"):
        try:
            return await session.fetch(sql, *args)
        except AWAY:
            if _in_transaction(session):
                raise
            _away["any node"] = time.monotonic() + AWAY_SECONDS
    text = of_some_tenants(sql, len(args) + 1)
    rows: list[asyncpg.Record] = []
    for node in await session.fetch(_NODES):
        if not _is_away(("node", node["groupid"])):
            try:
                rows += await session.fetch(text, *args, node["tenants"])
            except AWAY:
                _away["node", node["groupid"]] = time.monotonic() + AWAY_SECONDS
                if _in_transaction(session):
                    raise
    return rows


def _in_transaction(session: Connection | Session) -> bool:
    return session.in_transaction if isinstance(session, Session) else session.is_in_transaction()


def _is_away(what: object) -> bool:
    until = _away.get(what)
    if until is None:
        return False
    if time.monotonic() < until:
        return True
    del _away[what]
    return False
