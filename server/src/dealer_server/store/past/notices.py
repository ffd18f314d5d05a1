"""Notices of days that are over: a new `dealer-server dev` begins with them."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from dealer_server.db.connection import Connection
from dealer_server.rules.notices.notice import NewNotice

_ADD = (
    "INSERT INTO notice (tenant_id, notice_type, fact, data, created_at, addressed_at, ended_at)"
    " VALUES ($1, $2, $3, $4::json, $5, $5, $6)"
)


class PastNotice(NamedTuple):
    """`at`: when it was told; `ended_at`: when what it tells operators of was over."""

    at: datetime
    notice: NewNotice
    ended_at: datetime | None = None


async def write(connection: Connection, told: Sequence[PastNotice]) -> None:
    """Nobody is mailed of them any more. In the order of time, as their ids grow with it."""
    for at, notice, ended_at in sorted(told, key=lambda one: one.at):
        data = msgspec.json.encode(notice.data).decode()
        await connection.execute(_ADD, notice.tenant_id, notice.notice_type, notice.fact, data, at, ended_at)
