"""Which of a dealer's profiles does an ICCID name? The live one, else the newest: suppliers sell ICCIDs again
(docs/decisions/0015-reused-iccids.md)."""

from collections.abc import Sequence

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection
from dealer_server.db.session import Session

OVER = "(p.cancelled OR p.plan_use_status = 'ENDED' OR p.superseded)"

# Descending, the profile that the ICCID names comes first. The index profile_iccid is ordered by it.
RANK = f"(CASE WHEN {OVER} THEN p.profile_id ELSE 9223372036854775807 END)"

# The delivered eSIM of a supplier ($1) that key.iccid names.
OF_SUPPLIER = (
    "SELECT l.tenant_id, l.order_id, l.profile_id, l.iccid FROM profile_life l"
    " JOIN profile p USING (tenant_id, profile_id) WHERE l.supplier = $1 AND l.iccid = key.iccid"
    f" ORDER BY {OVER}, l.created_at DESC, l.profile_id DESC LIMIT 1"
)

# The same for all keys at once, where tables are distributed by tenant; key.number says which key it is.
OF_SUPPLIER_BY_NUMBER = (
    "SELECT DISTINCT ON (key.number) key.number, l.tenant_id, l.order_id, l.profile_id, l.iccid FROM key"
    " JOIN profile_life l ON l.supplier = $1 AND l.iccid = key.iccid"
    " JOIN profile p ON p.tenant_id = l.tenant_id AND p.profile_id = l.profile_id"
    f" ORDER BY key.number, {OVER}, l.created_at DESC, l.profile_id DESC"
)


async def supersede(session: Connection | Session, delivered: Sequence[tuple[int, int, str]]) -> None:
    """Marks as superseded the live profiles that have the dealer and the ICCID of these (tenant_id, profile_id, iccid),
    which are about to get their codes. A superseded profile shows what it showed before, but is not live any more."""
    await session.fetch(
        "UPDATE profile p SET superseded = true FROM unnest($1::bigint[], $2::bigint[], $3::text[])"
        " AS new(tenant_id, profile_id, iccid)"
        " WHERE p.tenant_id = new.tenant_id AND p.iccid = new.iccid AND p.profile_id <> new.profile_id"
        f" AND NOT {OVER}",
        *columns(delivered, 3),
    )


async def locate(
    session: Connection | Session, profiles: Sequence[tuple[int, int | None, str | None]]
) -> list[tuple[int, int, int] | None]:
    """(tenant_id, order_id, profile_id) of each of these (tenant_id, profile_id, iccid), which name a profile by one of
    the two; None where there is none."""
    rows = await session.fetch(
        "SELECT number, p.tenant_id, p.order_id, p.profile_id"
        " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS key(tenant_id, profile_id, number)"
        " JOIN profile p ON p.tenant_id = key.tenant_id AND p.profile_id = key.profile_id AND p.recharges IS NULL"
        " UNION ALL SELECT number, p.tenant_id, p.order_id, p.profile_id"
        " FROM unnest($1::bigint[], $3::text[]) WITH ORDINALITY AS key(tenant_id, iccid, number)"
        " JOIN LATERAL (SELECT * FROM profile p WHERE p.tenant_id = key.tenant_id AND p.iccid = key.iccid"
        f"  ORDER BY {RANK} DESC LIMIT 1) p ON true",
        *columns(profiles, 3),
    )
    located = {row["number"]: (row["tenant_id"], row["order_id"], row["profile_id"]) for row in rows}
    return [located.get(number) for number in range(1, len(profiles) + 1)]
