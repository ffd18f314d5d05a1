"""Who may sign in to the console, where are they signed in, and how often was it tried?"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection


class Account(NamedTuple):
    """What signing in needs. `password`: argon2id, encoded; `must_change`: it was issued by somebody else.
    `dealer_disabled`: its users cannot sign in."""

    user_id: int
    tenant_id: int | None
    name: str
    role: str
    password: str
    status: str
    sealed_totp: bytes | None
    totp_on: bool
    totp_step: int
    must_change: bool
    dealer_disabled: bool


class Listed(NamedTuple):
    """A user as admins see it. `mail`: where notices go, "" where the user has given none. `seen_at`: in a session that
    may go on, None where there is none."""

    user_id: int
    tenant_id: int | None
    tenant_name: str | None
    name: str
    role: str
    status: str
    totp_on: bool
    created_at: datetime
    signed_in_at: datetime | None
    seen_at: datetime | None
    mail: str


class Session(NamedTuple):
    """A signed-in browser with its user. `sealed_made`: a password issued to another user, shown once and not after
    `made_until`. `kept`: forms that were not sent are kept for this user."""

    session_id: int
    complete: bool
    created_at: datetime
    seen_at: datetime
    sure_at: datetime
    said: str
    said_failed: bool
    sealed_made: bytes | None
    made_until: datetime | None
    kept: bool
    must_change: bool
    totp_on: bool
    user_id: int
    tenant_id: int | None
    name: str
    role: str


class Place(NamedTuple):
    """A browser in which a user is signed in, as the user sees it."""

    session_id: int
    created_at: datetime
    seen_at: datetime
    address: str
    agent: str


_ACCOUNT = (
    "user_id, tenant_id, name, role, password, status, sealed_totp, totp_on, totp_step, must_change, EXISTS"
    " (SELECT FROM tenant t WHERE t.tenant_id = console_user.tenant_id AND t.status = 'DISABLED') AS dealer_disabled"
)


async def named(connection: Connection, name: str) -> Account | None:
    row = await connection.fetchrow(f"SELECT {_ACCOUNT} FROM console_user WHERE lower(name) = lower($1)", name)
    return Account(**row) if row else None


async def account(connection: Connection, user_id: int, *, lock: bool = True) -> Account | None:
    """Locked until the transaction ends, unless it is only looked at."""
    sql = f"SELECT {_ACCOUNT} FROM console_user WHERE user_id = $1{' FOR UPDATE' if lock else ''}"
    row = await connection.fetchrow(sql, user_id)
    return Account(**row) if row else None


async def create(
    connection: Connection, tenant_id: int | None, name: str, role: str, password: str, must_change: bool
) -> int | None:
    """None where the name is taken."""
    return await connection.fetchval(
        "INSERT INTO console_user (tenant_id, name, role, password, must_change) VALUES ($1, $2, $3, $4, $5)"
        " ON CONFLICT DO NOTHING RETURNING user_id",
        tenant_id,
        name,
        role,
        password,
        must_change,
    )


_SEEN = "(SELECT max(s.seen_at) FROM console_session s WHERE s.user_id = u.user_id AND s.complete)"
ORDERS = {
    "": "coalesce(u.tenant_id, 0)",
    "name": "lower(u.name)",
    "role": "u.role",
    "seen": f"coalesce({_SEEN}, u.signed_in_at, '-infinity')",
}
"""What the list can be ordered by, and then by userId."""


_LISTED = (
    "SELECT u.user_id, u.tenant_id, t.name AS tenant_name, u.name, u.role, u.status, u.totp_on, u.created_at,"
    f" u.signed_in_at, {_SEEN} AS seen_at, coalesce(n.mail, '') AS mail"
    " FROM console_user u LEFT JOIN tenant t USING (tenant_id) LEFT JOIN notice_setting n USING (user_id)"
)


async def one(connection: Connection, user_id: int) -> Listed | None:
    row = await connection.fetchrow(f"{_LISTED} WHERE u.user_id = $1", user_id)
    return Listed(**row) if row else None


async def listed(
    connection: Connection,
    tenant_id: int | None = None,
    after: int | None = None,
    limit: int | None = None,
    order: str = "",
    *,
    descending: bool = False,
    kind: str | None = None,
    text: str | None = None,
) -> list[Listed]:
    """The users of a dealer, or all users, or those of a `kind` (operators, dealers), in one of ORDERS ("": operators
    first); those that come `after` this userId. `text`: a part of the name or of the address."""
    direction, key = "DESC" if descending else "ASC", ORDERS[order]
    rows = await connection.fetch(
        f"{_LISTED} WHERE ($1::bigint IS NULL OR u.tenant_id = $1)"
        " AND ($4::text IS NULL OR (u.tenant_id IS NULL) = ($4 = 'operators'))"
        " AND ($5::text IS NULL OR position(lower($5) IN lower(u.name || ' ' || coalesce(n.mail, ''))) > 0)"
        f" AND ($2::bigint IS NULL OR ({key}, u.user_id) {'<' if descending else '>'}"
        f"  (SELECT {key}, u.user_id FROM console_user u WHERE u.user_id = $2))"
        f" ORDER BY {key} {direction}, u.user_id {direction} LIMIT $3",
        tenant_id,
        after,
        limit,
        kind,
        text,
    )
    return [Listed(**row) for row in rows]


async def count_kinds(connection: Connection) -> dict[str, int]:
    """How many users are operators, and how many are of dealers."""
    row = await connection.fetchrow(
        "SELECT count(*) FILTER (WHERE tenant_id IS NULL) AS operators, count(tenant_id) AS dealers FROM console_user"
    )
    assert row is not None, "a count has a row"
    return dict(row)


async def set_password(connection: Connection, user_id: int, password: str, *, must_change: bool) -> None:
    """A link to choose another one ends."""
    await connection.execute("DELETE FROM password_reset WHERE user_id = $1", user_id)
    await connection.execute(
        "UPDATE console_user SET password = $2, must_change = $3 WHERE user_id = $1", user_id, password, must_change
    )


async def set_role(connection: Connection, user_id: int, role: str, status: str) -> None:
    await connection.execute("UPDATE console_user SET role = $2, status = $3 WHERE user_id = $1", user_id, role, status)


async def lock_admins(connection: Connection, tenant_id: int | None) -> list[int]:
    """The active admins of a dealer, or of the operator, locked until the transaction ends."""
    rows = await connection.fetch(
        "SELECT user_id FROM console_user WHERE tenant_id IS NOT DISTINCT FROM $1 AND role = 'admin'"
        " AND status = 'ACTIVE' ORDER BY user_id FOR UPDATE",
        tenant_id,
    )
    return [row["user_id"] for row in rows]


async def set_totp(connection: Connection, user_id: int, sealed: bytes | None, on: bool) -> None:
    await connection.execute(
        "UPDATE console_user SET sealed_totp = $2, totp_on = $3, totp_step = 0 WHERE user_id = $1", user_id, sealed, on
    )


async def use_totp_step(connection: Connection, user_id: int, step: int) -> bool:
    """False where this step's code, or a later one, was used before."""
    done = await connection.execute(
        "UPDATE console_user SET totp_step = $2 WHERE user_id = $1 AND totp_step < $2", user_id, step
    )
    return done == "UPDATE 1"


async def open_session(
    connection: Connection, token_hash: bytes, user_id: int, complete: bool, address: str, agent: str, now: datetime
) -> None:
    await connection.execute(
        "INSERT INTO console_session (token_hash, user_id, complete, created_at, seen_at, sure_at, address, agent)"
        " VALUES ($1, $2, $3, $4, $4, $4, $5, $6)",
        token_hash,
        user_id,
        complete,
        now,
        address,
        agent,
    )
    if complete:
        await connection.execute("UPDATE console_user SET signed_in_at = $2 WHERE user_id = $1", user_id, now)


async def session(connection: Connection, token_hash: bytes) -> Session | None:
    """The session of an active user of an active dealer, however old."""
    row = await connection.fetchrow(
        "SELECT s.session_id, s.complete, s.created_at, s.seen_at, s.sure_at, s.said, s.said_failed, s.sealed_made,"
        " s.made_until, EXISTS (SELECT FROM console_unsent_form f WHERE f.user_id = u.user_id) AS kept, u.must_change,"
        " u.totp_on, u.user_id, u.tenant_id, u.name, u.role"
        " FROM console_session s JOIN console_user u USING (user_id)"
        " LEFT JOIN tenant t USING (tenant_id)"
        " WHERE s.token_hash = $1 AND u.status = 'ACTIVE' AND t.status IS DISTINCT FROM 'DISABLED'",
        token_hash,
    )
    return Session(**row) if row else None


async def touch(connection: Connection, session_id: int, now: datetime) -> None:
    await connection.execute("UPDATE console_session SET seen_at = $2 WHERE session_id = $1", session_id, now)


async def set_sure(connection: Connection, session_id: int, now: datetime) -> None:
    await connection.execute("UPDATE console_session SET sure_at = $2 WHERE session_id = $1", session_id, now)


async def say(connection: Connection, session_id: int, said: str, failed: bool) -> None:
    """What the next page shows; "" where it was shown."""
    await connection.execute(
        "UPDATE console_session SET said = $2, said_failed = $3 WHERE session_id = $1", session_id, said, failed
    )


async def keep_made(connection: Connection, session_id: int, sealed: bytes, until: datetime) -> None:
    await connection.execute(
        "UPDATE console_session SET sealed_made = $2, made_until = $3 WHERE session_id = $1", session_id, sealed, until
    )


async def take_made(connection: Connection, session_id: int, sealed: bytes) -> bool:
    """Takes it away; False where another page has."""
    done = await connection.execute(
        "UPDATE console_session SET sealed_made = NULL, made_until = NULL WHERE session_id = $1 AND sealed_made = $2",
        session_id,
        sealed,
    )
    return done == "UPDATE 1"


async def places(connection: Connection, user_id: int, seen_after: datetime, since: datetime) -> list[Place]:
    rows = await connection.fetch(
        "SELECT session_id, created_at, seen_at, address, agent FROM console_session"
        " WHERE user_id = $1 AND complete AND seen_at > $2 AND created_at > $3 ORDER BY seen_at DESC",
        user_id,
        seen_after,
        since,
    )
    return [Place(**row) for row in rows]


async def end_session(connection: Connection, user_id: int, session_id: int) -> bool:
    done = await connection.execute(
        "DELETE FROM console_session WHERE user_id = $1 AND session_id = $2", user_id, session_id
    )
    return done == "DELETE 1"


async def end_sessions(connection: Connection, user_id: int, but: int | None = None) -> int:
    """All sessions of a user, except `but`; how many."""
    done = await connection.execute(
        "DELETE FROM console_session WHERE user_id = $1 AND session_id IS DISTINCT FROM $2", user_id, but
    )
    return int(done.removeprefix("DELETE "))


async def end_by_token(connection: Connection, token_hash: bytes) -> bool:
    """Whether the session existed."""
    ended = await connection.fetchval("DELETE FROM console_session WHERE token_hash = $1 RETURNING 1", token_hash)
    return ended is not None


async def sweep(
    connection: Connection, created_before: datetime, tried_before: datetime, made_before: datetime
) -> None:
    """Deletes what is no longer needed; the forms of a session go with it."""
    await connection.execute("DELETE FROM console_session WHERE created_at < $1", created_before)
    await connection.execute(
        "UPDATE console_session SET sealed_made = NULL, made_until = NULL WHERE made_until < $1", made_before
    )
    await connection.execute("DELETE FROM console_try WHERE since < $1", tried_before)


async def count_tries(
    connection: Connection, subjects: Sequence[bytes], window: timedelta, now: datetime
) -> dict[bytes, tuple[int, datetime]]:
    """Counts one try of each subject: how many there were in this window, and since when. In sorted order, so that
    no two wait for each other."""
    rows = await connection.fetch(
        "INSERT INTO console_try AS t (subject, tries, since)"
        " SELECT subject, 1, $2 FROM unnest($1::bytea[]) subject ORDER BY subject"
        " ON CONFLICT (subject) DO UPDATE SET tries = CASE WHEN t.since <= $2 - $3::interval THEN 1"
        "  ELSE least(t.tries, 1000000) + 1 END,"
        " since = CASE WHEN t.since <= $2 - $3::interval THEN $2 ELSE t.since END RETURNING subject, tries, since",
        sorted(subjects),
        now,
        window,
    )
    return {row["subject"]: (row["tries"], row["since"]) for row in rows}


async def forgive(connection: Connection, subject: bytes) -> None:
    """The user proved who they are: earlier attempts no longer count."""
    await connection.execute("DELETE FROM console_try WHERE subject = $1", subject)


async def take_back(connection: Connection, subject: bytes) -> None:
    """Takes back the count of an attempt that succeeded."""
    await connection.execute("UPDATE console_try SET tries = tries - 1 WHERE subject = $1 AND tries > 0", subject)
