"""Which work is due? A worker asks for all its loops at once; each part of the statement is one look into an index."""

from collections.abc import Collection
from datetime import datetime
from typing import Literal, NamedTuple

from dealer_server.db.distributed import is_distributed
from dealer_server.db.session import Session

Kind = Literal["refunds", "webhooks", "resends", "buyer_mails", "notices"]


class DueWork(NamedTuple):
    """suppliers: those for which something is to be done. kinds: what else is due; of webhooks it is enough that some
    wait, as their dealers are looked for one by one (webhooks/claim.py)."""

    suppliers: Collection[str]
    kinds: Collection[Kind]


# What is done for a supplier: each of these tables has an index of (supplier, due_at).
_OF_SUPPLIER = ("order_item", "purchase", "void_request", "profile_life", "suspension", "sms")
_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "refunds": ("FROM refund WHERE due_at <= $1 ORDER BY due_at",),
    "webhooks": (
        "FROM webhook_delivery WHERE state IN ('READY', 'RETRY') AND tenant_id > 0 ORDER BY tenant_id, due_at",
    ),
    "resends": ("FROM webhook_job WHERE finished_at IS NULL ORDER BY job_id",),
    "buyer_mails": ("FROM buyer_mail WHERE due_at <= $1 ORDER BY due_at",),
    "notices": (
        "FROM notice WHERE addressed_at IS NULL ORDER BY notice_id",
        "FROM notice_delivery WHERE due_at <= $1 ORDER BY due_at",
    ),
}


def _any(*looks: str) -> str:
    """With its order and OFFSET 0 each look stays one into the index of that order: no join, and no other index."""
    return " OR ".join(f"EXISTS (SELECT {look} OFFSET 0)" for look in looks)


_KINDS = ", ".join(f"{_any(*looks)} AS {kind}" for kind, looks in _OF_KIND.items())
_ANY_OF_SUPPLIER = _any(
    *(f"FROM {table} d WHERE d.supplier = asked.code AND d.due_at <= $1 ORDER BY d.due_at" for table in _OF_SUPPLIER)
)
FIND = f"""
SELECT ARRAY(SELECT code FROM unnest($2::text[]) AS asked(code) WHERE {_ANY_OF_SUPPLIER}) AS suppliers, {_KINDS}
"""


async def find(session: Session, suppliers: Collection[str], now: datetime) -> DueWork:
    """What is due now, of these suppliers and of all dealers. On a cluster all of it may be: whoever works it off looks
    for it on the nodes, and can do without one that is away."""
    if is_distributed(session):
        return DueWork(suppliers, _OF_KIND)
    [row] = await session.fetch(FIND, now, sorted(suppliers))
    return DueWork(row["suppliers"], [kind for kind in _OF_KIND if row[kind]])
