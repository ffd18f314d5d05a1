"""Which notices has a user of the console read?"""

from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.store.notices import listing
from dealer_server.store.notices.outbox import Notice

LOOKED_AT = 100
"""Older notices are not counted."""
_KEPT = 500
"""Of the notices that were opened one by one; with more of them the oldest count as unread again."""


class Mark(NamedTuple):
    """`read_to`: up to this notice all are read. `opened`: those after it that are read too."""

    read_to: int
    opened: Sequence[int]

    def is_unread(self, notice_id: int) -> bool:
        return notice_id > self.read_to and notice_id not in self.opened


# Of a user without a row: what was told before the user was made is read.
_READ_TO = """
coalesce(m.read_to, (SELECT max(n.notice_id) FROM notice n WHERE n.tenant_id = coalesce(u.tenant_id, 0)
    AND n.created_at < u.created_at), 0)
"""


async def of_user(connection: Connection, user_id: int) -> Mark:
    row = await connection.fetchrow(
        f"SELECT {_READ_TO} AS read_to, coalesce(m.opened, '{{}}') AS opened"
        " FROM console_user u LEFT JOIN notice_mark m USING (user_id) WHERE user_id = $1",
        user_id,
    )
    return Mark(row["read_to"], row["opened"]) if row else Mark(0, ())


async def open_one(connection: Connection, user_id: int, notice_id: int) -> None:
    """This one is read."""
    await connection.execute(
        "INSERT INTO notice_mark AS old (user_id, read_to, opened)"
        f" SELECT user_id, {_READ_TO}, ARRAY[$2::bigint] FROM console_user u LEFT JOIN notice_mark m USING (user_id)"
        "  WHERE user_id = $1"
        " ON CONFLICT (user_id) DO UPDATE"
        f"  SET opened = (array_remove(old.opened, $2) || $2)[greatest(1, cardinality(old.opened) - {_KEPT} + 2):]"
        "  WHERE $2 > old.read_to AND $2 <> ALL(old.opened)",
        user_id,
        notice_id,
    )


async def read_to(connection: Connection, user_id: int, notice_id: int) -> None:
    """All are read up to this one."""
    await connection.execute(
        "INSERT INTO notice_mark AS old (user_id, read_to) VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE"
        " SET read_to = greatest(old.read_to, $2),"
        "  opened = (SELECT coalesce(array_agg(one), '{}') FROM unnest(old.opened) one WHERE one > $2)",
        user_id,
        notice_id,
    )


async def unread(connection: Connection, tenant_id: int, types: Sequence[str], mark: Mark) -> list[Notice]:
    """Those of these types that are not read, among the newest LOOKED_AT."""
    found = await listing.newest(connection, tenant_id, types, None, LOOKED_AT, mark.read_to)
    return [one for one in found if mark.is_unread(one.notice_id)]
