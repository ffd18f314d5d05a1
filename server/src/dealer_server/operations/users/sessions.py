"""How long is somebody signed in? A session is one browser of one user; its token is kept as a hash."""

import hashlib
import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import attempts
from dealer_server.operations.users.password import Passwords
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.console.user import Account, Listed, Place, Session

IDLE_TIMEOUT = timedelta(minutes=30)
LIFETIME = timedelta(hours=12)
CODE_TIMEOUT = timedelta(minutes=5)  # for the one-time code after the password
SEEN_INTERVAL = timedelta(minutes=1)  # how often the time of the last request is written


class NotSignedIn(Exception):
    """The name, the password or the code is not right. It is not said which."""


class Visitor(NamedTuple):
    """Where a request comes from: the client's address, the browser's user agent, and its device tokens."""

    address: str
    agent: str
    devices: tuple[str, ...] = ()


async def open_session(
    connection: Connection, account: Account, complete: bool, visitor: Visitor, now: datetime
) -> str:
    """The new session's token. Not `complete`: a one-time code is still missing."""
    token = secrets.token_urlsafe(32)
    await user_store.open_session(
        connection, token_hash(token), account.user_id, complete, visitor.address, visitor.agent[:200], now
    )
    return token


async def find(database: Database, token: str, now: datetime, *, by_hand: bool) -> Session | None:
    """The session of a token, unless it has expired. `by_hand`: the user sent the request; a page that renews itself
    does not keep the session alive."""
    async with database.connection() as connection:
        session = await user_store.session(connection, token_hash(token))
        if session is None or _expired(session, now):
            return None
        if by_hand and session.complete and now - session.seen_at > SEEN_INTERVAL:
            await user_store.touch(connection, session.session_id, now)
        return session


async def reauthenticate(
    database: Database, hasher: Passwords, session: Session, password: str, visitor: Visitor, now: datetime
) -> None:
    """Asks for the password again, before what only the user may see or do. Raises NotSignedIn, TooManyTries,
    password.Busy."""
    await check_password(database, hasher, session.user_id, password, visitor, now)
    async with database.connection() as connection:
        await user_store.set_sure(connection, session.session_id, now)


async def check_password(
    database: Database, hasher: Passwords, user_id: int, password: str, visitor: Visitor, now: datetime
) -> None:
    """Raises NotSignedIn, TooManyTries, password.Busy."""
    by_user = attempts.subject("sure", str(user_id))
    await attempts.count(database, by_user, visitor.address, now)
    async with database.connection() as connection:
        account = await user_store.account(connection, user_id)
    if not await hasher.fits(account.password if account else None, password):
        raise NotSignedIn
    async with database.transaction() as connection:
        await attempts.forgive(connection, by_user, visitor.address)


async def sign_out(database: Database, token: str) -> None:
    async with database.connection() as connection:
        await user_store.end_by_token(connection, token_hash(token))


async def set_flash(database: Database, session_id: int, message: str, failed: bool) -> None:
    """A message for the session's next page, shown once."""
    async with database.connection() as connection:
        await user_store.say(connection, session_id, message, failed)


async def list_sessions(database: Database, user_id: int, now: datetime) -> tuple[Listed, list[Place]]:
    """A user and the sessions that have not expired. Raises OperatorError."""
    async with database.connection() as connection:
        user = await user_store.one(connection, user_id)
        if user is None:
            raise OperatorError("there is no such user")
        return user, await user_store.places(connection, user_id, now - IDLE_TIMEOUT, now - LIFETIME)


async def end_session(database: Database, session: Session, session_id: int) -> bool:
    """Ends one of the user's own sessions; whether there was one."""

    async def work(connection: Connection) -> bool:
        ended = await user_store.end_session(connection, session.user_id, session_id)
        if ended:
            detail = {"user": session.name, "session": session_id}
            await record_act(connection, f"console:{session.name}", "user.session.end", session.tenant_id, detail)
        return ended

    return await database.run(work)


async def end_other_sessions(database: Database, session: Session) -> int:
    """Ends the user's sessions in all other browsers; how many."""

    async def work(connection: Connection) -> int:
        ended = await user_store.end_sessions(connection, session.user_id, but=session.session_id)
        if ended:
            detail = {"user": session.name, "sessions": ended}
            await record_act(connection, f"console:{session.name}", "user.session.end", session.tenant_id, detail)
        return ended

    return await database.run(work)


def token_hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def _expired(session: Session, now: datetime) -> bool:
    if not session.complete:
        return now - session.created_at >= CODE_TIMEOUT
    return now - session.seen_at >= IDLE_TIMEOUT or now - session.created_at >= LIFETIME
