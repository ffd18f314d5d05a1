"""Top-ups that dealers request: each is reviewed once and credited at most once."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_value, as_values, columns_of
from esim_dealer.wire.vocabulary import PayMethod, TopupStatus


class Topup(NamedTuple):
    tenant_id: int
    topup_id: int
    transaction_id: str
    digest: bytes
    amount: int
    currency: str
    status: TopupStatus
    pay_method: PayMethod | None
    pay_reference: str | None
    remark: str | None
    reject_reason: str | None
    reviewer: str | None
    created_at: datetime
    reviewed_at: datetime | None


_COLUMNS = columns_of(Topup)


async def add(connection: Connection, new: Topup) -> bool:
    """Writes a request; False if its transactionId was used before."""
    return bool(
        await connection.fetch(
            f"INSERT INTO topup ({_COLUMNS}) VALUES ({', '.join(f'${at}' for at in range(1, len(new) + 1))})"
            " ON CONFLICT (tenant_id, transaction_id) DO NOTHING RETURNING 1",
            *new,
        )
    )


async def find(
    connection: Connection, tenant_id: int, topup_id: int | None, transaction_id: str | None
) -> Topup | None:
    """The top-up with this id and this transactionId; None matches any."""
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS} FROM topup WHERE tenant_id = $1 AND ($2::bigint IS NULL OR topup_id = $2)"
        " AND ($3::text IS NULL OR transaction_id = $3)",
        tenant_id,
        topup_id,
        transaction_id,
    )
    return as_value(Topup, row) if row else None


async def pending(connection: Connection, tenant_id: int) -> int:
    """The number of requests that wait for review. Lock the wallet first, so that none is added meanwhile."""
    count: int | None = await connection.fetchval(
        "SELECT count(*) FROM topup WHERE tenant_id = $1 AND status = 'PENDING'", tenant_id
    )
    return count or 0


async def listed(connection: Connection, tenant_id: int | None, status: str | None, limit: int) -> Sequence[Topup]:
    rows = await connection.fetch(
        f"SELECT {_COLUMNS} FROM topup WHERE ($1::bigint IS NULL OR tenant_id = $1)"
        " AND ($2::text IS NULL OR status = $2) ORDER BY topup_id DESC LIMIT $3",
        tenant_id,
        status,
        limit,
    )
    return as_values(Topup, rows)


async def by_id(connection: Connection, topup_id: int) -> Topup | None:
    """A top-up of any tenant: topup_ids are unique over all."""
    row = await connection.fetchrow(f"SELECT {_COLUMNS} FROM topup WHERE topup_id = $1", topup_id)
    return as_value(Topup, row) if row else None


async def review(
    connection: Connection,
    tenant_id: int,
    topup_id: int,
    status: TopupStatus,
    reason: str | None,
    reviewer: str,
    now: datetime,
) -> bool:
    """Ends a PENDING request; False if it was reviewed before."""
    return bool(
        await connection.fetch(
            "UPDATE topup SET status = $3, reject_reason = $4, reviewer = $5, reviewed_at = $6"
            " WHERE tenant_id = $1 AND topup_id = $2 AND status = 'PENDING' RETURNING 1",
            tenant_id,
            topup_id,
            status,
            reason,
            reviewer,
            now,
        )
    )
