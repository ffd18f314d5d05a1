"""The audit log in pages, newest first."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.store.console.pages import MAX_SCANNED, ListPage
from dealer_server.store.distribution.due import fetch_all


class Act(NamedTuple):
    """`detail` is JSON text. `dealer`, `currency`: the name and the wallet of the dealer whom it is about; on a cluster
    no currency while the dealer's node is away."""

    audit_id: int
    at: datetime
    author: str
    source: str | None
    action: str
    tenant_id: int | None
    detail: str
    dealer: str | None
    currency: str | None


class ActFilter(NamedTuple):
    """All that is given must match: a part of the author, a part of the action (all of it where it is `whole`), the
    dealer, the time."""

    author: str | None = None
    action: str | None = None
    tenant_id: int | None = None
    start: datetime | None = None
    end: datetime | None = None
    whole: bool = False
    actions: Sequence[str] | None = None  # one of these
    without: str | None = None  # none of this action


async def list_acts(connection: Connection, filters: ActFilter, before: int | None, size: int) -> ListPage[Act]:
    """Scans MAX_SCANNED acts at most: where few match, the page is short and the next one continues from there."""
    rows = await connection.fetch(
        "SELECT audit_id, at, author, source, action, tenant_id, detail::text AS detail,"
        " (SELECT name FROM tenant t WHERE t.tenant_id = scanned.tenant_id) AS dealer FROM ("
        " SELECT * FROM audit_log WHERE audit_id < coalesce($1, 9223372036854775807) ORDER BY audit_id DESC LIMIT $2"
        ") scanned WHERE ($3::text IS NULL OR position(lower($3) IN lower(author)) > 0)"
        " AND ($4::text IS NULL OR action = $4 OR NOT $8 AND position(lower($4) IN lower(action)) > 0)"
        " AND ($5::bigint IS NULL OR tenant_id = $5) AND ($6::timestamptz IS NULL OR at >= $6)"
        " AND ($7::timestamptz IS NULL OR at < $7) AND ($9::text[] IS NULL OR action = ANY($9))"
        " AND action IS DISTINCT FROM $10::text ORDER BY audit_id DESC LIMIT $11",
        before,
        MAX_SCANNED,
        *filters,
        size + 1,
    )
    currencies = await _currencies(connection, {row["tenant_id"] for row in rows} - {None})
    acts = [Act(**row, currency=currencies.get(row["tenant_id"])) for row in rows]
    if len(acts) > size:
        return ListPage(acts[:size], acts[size - 1].audit_id)
    return ListPage(acts, await _reached(connection, before))


async def _currencies(connection: Connection, tenant_ids: Set[int]) -> Mapping[int, str]:
    """By dealer; on a cluster, where wallets stand on the nodes, without those of a node that is away."""
    sql = f"SELECT tenant_id, currency FROM wallet WHERE {OF_ALL} tenant_id = ANY($1::bigint[])"
    return {row["tenant_id"]: row["currency"] for row in await fetch_all(connection, sql, tenant_ids)}


async def _reached(connection: Connection, before: int | None) -> int | None:
    """The last act that the page scanned, where there are more."""
    return await connection.fetchval(
        "SELECT audit_id FROM audit_log WHERE audit_id < coalesce($1, 9223372036854775807)"
        " ORDER BY audit_id DESC OFFSET $2 LIMIT 1",
        before,
        MAX_SCANNED - 1,
    )
