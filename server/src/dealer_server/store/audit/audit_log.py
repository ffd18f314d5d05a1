"""The audit log: one row for each act of an operator, a dealer's user or the system, chained by hashes.

An act's hash covers the hash of the act before it, so that nothing can be changed or taken out unseen.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from dealer_server import audit_context
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, columns_of
from dealer_server.db.session import Session

# The bytes of an act that its hash covers, after the hash of the act before it.
ACT = (
    "convert_to(jsonb_build_array((extract(epoch FROM act.at) * 1000000)::bigint, act.author, act.source, act.action,"
    " act.tenant_id, act.detail)::text, 'UTF8')"
)


class Head(NamedTuple):
    """The end of the audit log: the number of acts, and the last hash, which covers all of them."""

    acts: int
    hash: bytes


async def record_act(
    connection: Connection | Session, author: str, action: str, tenant_id: int | None, detail: Mapping[str, object]
) -> None:
    """Adds an act to the audit log; `detail` becomes JSON and holds no secret.

    Call it last in a transaction: it locks the head of the log, and other acts wait for the commit.
    """
    await connection.fetch(
        "WITH act AS ("
        " SELECT coalesce($6::timestamptz, now()) AS at, $1::text AS author, $2::text AS source, $3::text AS action,"
        "  $4::bigint AS tenant_id, $5::jsonb AS detail"
        "), chained AS ("
        f" UPDATE audit_head SET acts = acts + 1, hash = sha256(hash || {ACT}) FROM act RETURNING hash"
        ") INSERT INTO audit_log (at, author, source, action, tenant_id, detail, hash)"
        " SELECT at, author, source, action, tenant_id, detail, hash FROM act, chained",
        author,
        audit_context.source.get(),
        action,
        tenant_id,
        msgspec.json.encode(detail).decode(),
        audit_context.at.get(),
    )


async def head(connection: Connection) -> Head:
    row = await connection.fetchrow(f"SELECT {columns_of(Head)} FROM audit_head")
    return as_value(Head, row) if row else Head(0, b"")


async def has_act(connection: Connection, digest: bytes) -> bool:
    """Whether the log holds the act with this hash; where its chain is whole, it then holds all before it unchanged."""
    return await connection.fetchval("SELECT EXISTS (SELECT FROM audit_log WHERE hash = $1)", digest) or False
