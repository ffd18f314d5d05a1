"""Mails that bring a buyer the page of an eSIM."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.arrays import batch
from dealer_server.db.by_tenant import OF_ALL
from dealer_server.db.connection import Connection
from dealer_server.db.rows import as_values, columns_of
from dealer_server.db.session import Session
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.install.languages import Language
from dealer_server.store.distribution.due import fetch_due
from dealer_server.store.tenants import brand

_LOCK = 5_382_031  # one mail of a dealer is counted at a time


class Claimed(NamedTuple):
    """A mail to be sent. `attempt_count`: with this attempt."""

    tenant_id: int
    mail_id: int
    order_id: int
    profile_id: int
    mail: str
    language: Language
    attempt_count: int
    created_at: datetime


class BuyerMail(NamedTuple):
    """What became of a mail. `mail`: None of one that was sent by an earlier release."""

    mail_id: int
    mail: str | None
    language: Language
    state: str
    problem: str | None
    created_at: datetime


async def count_since(connection: Connection, tenant_id: int, since: datetime) -> int:
    """How many mails of a dealer were asked for by hand; no other is counted until the transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock($1, hashint8($2))", _LOCK, tenant_id)
    return (
        await connection.fetchval(
            "SELECT count(*) FROM buyer_mail WHERE tenant_id = $1 AND created_at > $2 AND NOT purchase",
            tenant_id,
            since,
        )
        or 0
    )


async def add(
    connection: Connection,
    tenant_id: int,
    order_id: int,
    profile_id: int,
    mail: str,
    language: Language,
    now: datetime,
) -> int:
    """Its number."""
    mail_id: int | None = await connection.fetchval(
        "INSERT INTO buyer_mail (tenant_id, order_id, profile_id, mail, language, due_at, created_at)"
        " VALUES ($1, $2, $3, $4, $5, $6, $6) RETURNING mail_id",
        tenant_id,
        order_id,
        profile_id,
        mail,
        language,
        now,
    )
    assert mail_id is not None, "a row is inserted"
    return mail_id


class NewMail(NamedTuple):
    """The install page of an eSIM, to be mailed once it is ready. The fields are the columns of _ADD_WITH_ORDERS."""

    tenant_id: int
    order_id: int
    profile_id: int
    mail: str
    language: Language
    at: datetime


_NEW_MAILS = batch(
    "new", tenant_id="bigint", order_id="bigint", profile_id="bigint", mail="text", language="text", at="timestamptz"
)
_ADD_WITH_ORDERS = f"""
INSERT INTO buyer_mail (tenant_id, order_id, profile_id, mail, language, due_at, created_at, purchase)
SELECT tenant_id, order_id, profile_id, mail, language, at, at, true FROM {_NEW_MAILS} RETURNING 1
"""


async def add_with_orders(session: Session, mails: Sequence[NewMail]) -> None:
    """In the transaction that places their orders."""
    await session.fetch(_ADD_WITH_ORDERS, *[list(column) for column in zip(*mails, strict=True)])


async def of_profile(connection: Connection, tenant_id: int, profile_id: int, limit: int) -> Sequence[BuyerMail]:
    """The newest first."""
    return await _of(connection, "profile_id", tenant_id, profile_id, limit)


async def of_order(connection: Connection, tenant_id: int, order_id: int, limit: int) -> Sequence[BuyerMail]:
    """The newest first."""
    return await _of(connection, "order_id", tenant_id, order_id, limit)


async def _of(connection: Connection, key: str, tenant_id: int, id: int, limit: int) -> list[BuyerMail]:
    rows = await connection.fetch(
        f"SELECT {columns_of(BuyerMail)} FROM buyer_mail WHERE tenant_id = $1 AND {key} = $2"
        " ORDER BY mail_id DESC LIMIT $3",
        tenant_id,
        id,
        limit,
    )
    return as_values(BuyerMail, rows)


async def orders_to(connection: Connection, tenant_id: int, mail: str, limit: int) -> list[int]:
    """The newest orders of which an eSIM was mailed to this address."""
    rows = await connection.fetch(
        "SELECT DISTINCT order_id FROM buyer_mail WHERE tenant_id = $1 AND lower(mail) = lower($2)"
        " ORDER BY order_id DESC LIMIT $3",
        tenant_id,
        mail,
        limit,
    )
    return [row["order_id"] for row in rows]


async def has_any(connection: Connection, tenant_id: int) -> bool:
    """Whether the dealer mails buyers from here."""
    found: bool | None = await connection.fetchval(
        "SELECT EXISTS (SELECT FROM buyer_mail WHERE tenant_id = $1)", tenant_id
    )
    return bool(found)


async def newest_of_orders(connection: Connection, tenant_id: int, order_ids: Sequence[int]) -> dict[int, BuyerMail]:
    """Of each of these orders the newest, by orderId."""
    return await _newest(connection, "order_id", tenant_id, order_ids)


async def newest_of_profiles(
    connection: Connection, tenant_id: int, profile_ids: Sequence[int]
) -> dict[int, BuyerMail]:
    """Of each of these eSIMs the newest, by profileId."""
    return await _newest(connection, "profile_id", tenant_id, profile_ids)


async def _newest(connection: Connection, key: str, tenant_id: int, ids: Sequence[int]) -> dict[int, BuyerMail]:
    rows = await connection.fetch(
        f"SELECT DISTINCT ON ({key}) {key}, {', '.join(BuyerMail._fields)} FROM buyer_mail"
        f" WHERE tenant_id = $1 AND {key} = ANY($2::bigint[]) ORDER BY {key}, mail_id DESC",
        tenant_id,
        ids,
    )
    return {row[key]: BuyerMail(**{name: row[name] for name in BuyerMail._fields}) for row in rows}


_DUE = f"SELECT tenant_id FROM buyer_mail WHERE {OF_ALL} due_at <= $1 ORDER BY due_at LIMIT $2"
_CLAIM = f"""
WITH due AS (
    SELECT tenant_id, mail_id FROM buyer_mail WHERE {OF_ALL} due_at <= $1 ORDER BY due_at, mail_id LIMIT $2
    FOR UPDATE SKIP LOCKED
)
UPDATE buyer_mail m SET state = 'IN_FLIGHT', claim = $3, due_at = $4, attempt_count = attempt_count + 1
FROM due WHERE m.tenant_id = due.tenant_id AND m.mail_id = due.mail_id
RETURNING {", ".join(f"m.{name}" for name in Claimed._fields)}
"""


async def claim(session: Session, claim_id: int, limit: int, now: datetime, until: datetime) -> list[Claimed]:
    """Takes due mails until the lease ends, those of expired leases among them, and counts the attempts."""
    args = now, limit, claim_id, until
    return as_values(Claimed, await fetch_due(session, _CLAIM, args, _DUE, (now, limit), limit))


async def sender(session: Session, tenant_id: int) -> tuple[Brand, bool]:
    """A dealer's brand, and whether the dealer is active."""
    [row] = await session.fetch(
        f"SELECT t.status = 'ACTIVE' AS active, {', '.join(f'b.{name}' for name in brand.COLUMNS)}"
        " FROM tenant t LEFT JOIN brand b USING (tenant_id) WHERE t.tenant_id = $1",
        tenant_id,
    )
    return brand.from_columns(dict(row)), row["active"]


async def wait(session: Session, sent: Claimed, claim_id: int, due_at: datetime) -> None:
    """Looks at a claimed mail again then; this was no attempt. Nothing changes where the claim no longer holds."""
    await session.fetch(
        "UPDATE buyer_mail SET state = 'READY', due_at = $4, claim = NULL, attempt_count = attempt_count - 1"
        " WHERE tenant_id = $1 AND mail_id = $2 AND claim = $3 RETURNING 1",
        sent.tenant_id,
        sent.mail_id,
        claim_id,
        due_at,
    )


async def record(
    session: Session, sent: Claimed, claim_id: int, state: str, problem: str | None, due_at: datetime | None
) -> None:
    """The outcome of a claimed mail. Nothing changes where the claim no longer holds."""
    await session.fetch(
        "UPDATE buyer_mail SET state = $4, problem = $5, due_at = $6, claim = NULL"
        " WHERE tenant_id = $1 AND mail_id = $2 AND claim = $3 RETURNING 1",
        sent.tenant_id,
        sent.mail_id,
        claim_id,
        state,
        problem,
        due_at,
    )
