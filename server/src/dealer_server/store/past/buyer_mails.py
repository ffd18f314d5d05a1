"""Mails to buyers of days that are over: a new `dealer-server dev` begins with them."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import columns
from dealer_server.db.connection import Connection

_ADD = """
INSERT INTO buyer_mail (tenant_id, order_id, profile_id, mail, language, state, attempt_count, created_at)
SELECT $1, order_id, profile_id, mail, 'en', 'DELIVERED', 1, at
FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::timestamptz[]) m (order_id, profile_id, mail, at) ORDER BY at
"""


class PastMail(NamedTuple):
    """It brought its buyer the page of an eSIM."""

    order_id: int
    profile_id: int
    mail: str
    at: datetime


async def write(connection: Connection, tenant_id: int, mails: Sequence[PastMail]) -> None:
    await connection.execute(_ADD, tenant_id, *columns(mails, len(PastMail._fields)))
