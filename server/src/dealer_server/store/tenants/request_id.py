"""Which request ids were used while Valkey was not reachable? By the database's clock, for eleven minutes."""

from collections.abc import Sequence

from dealer_server.db.arrays import columns
from dealer_server.db.session import Session

_KEPT = "interval '660 seconds'"


async def use(session: Session, ids: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Stores (app_key, request id as 32 hex digits), each given once; returns those that were not used before."""
    rows = await session.fetch(
        "INSERT INTO used_request AS used (app_key, request_id, used_at)"
        " SELECT app_key, request_id, now() FROM unnest($1::text[], $2::text[]::uuid[]) AS new(app_key, request_id)"
        " ORDER BY app_key, request_id ON CONFLICT (app_key, request_id) DO UPDATE SET used_at = excluded.used_at"
        f" WHERE used.used_at < now() - {_KEPT} RETURNING app_key, request_id",
        *columns(ids, 2),
    )
    return {(row["app_key"], row["request_id"].hex) for row in rows}


async def keep(session: Session, ids: Sequence[tuple[str, str, float]]) -> None:
    """Stores ids that were used earlier: (app_key, request id, seconds ago)."""
    await session.fetch(
        "INSERT INTO used_request (app_key, request_id, used_at)"
        " SELECT app_key, request_id, now() - ago * interval '1 second'"
        " FROM unnest($1::text[], $2::text[]::uuid[], $3::float8[]) AS new(app_key, request_id, ago)"
        " ORDER BY app_key, request_id ON CONFLICT DO NOTHING",
        *columns(ids, 3),
    )


async def recent(session: Session, seconds: float, after: tuple[str, str] | None, limit: int) -> list[tuple[str, str]]:
    """Up to `limit` (app_key, request id) of the last `seconds`, in their order, after the one given."""
    rows = await session.fetch(
        "SELECT app_key, request_id FROM used_request WHERE used_at > now() - $1 * interval '1 second'"
        " AND ($2::text IS NULL OR (app_key, request_id) > ($2, $3::text::uuid))"
        " ORDER BY app_key, request_id LIMIT $4",
        seconds,
        *(after or (None, None)),
        limit,
    )
    return [(row["app_key"], row["request_id"].hex) for row in rows]


async def sweep(session: Session) -> None:
    await session.fetch(f"DELETE FROM used_request WHERE used_at < now() - {_KEPT}")
