"""Who may use the console? Admins create, change and reset users; everybody changes their own password.

Passwords are hashed outside of transactions.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import attempts, sessions
from dealer_server.operations.users import password as passwords
from dealer_server.operations.users.password import Passwords
from dealer_server.operations.users.sessions import Visitor
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.console.user import Account, Listed, Session

OPERATOR_ROLES = ("admin", "finance", "support", "readonly")
DEALER_ROLES = ("admin", "developer", "finance")
PASSWORDS_PER_ISSUER = 20  # in attempts.WINDOW
ISSUED_PASSWORD_LIFETIME = timedelta(minutes=10)


class IssuedPassword(msgspec.Struct, frozen=True, tag=True):
    """A user and the generated password, which is shown once."""

    user_id: int
    name: str
    role: str
    password: str


class IssuedLink(msgspec.Struct, frozen=True, tag=True):
    """Who was invited, and the path of the link, which is shown once. `mail`: what became of the mail."""

    name: str
    role: str
    path: str
    expires_at: datetime
    mail: str


class Issuer(NamedTuple):
    """The user of the console who issues a password, and when. Hashing is expensive, so it is limited per issuer."""

    user_id: int
    at: datetime


async def create(
    database: Database,
    hasher: Passwords,
    tenant_id: int | None,
    name: str,
    role: str,
    author: str,
    password: str | None = None,
    issuer: Issuer | None = None,
) -> IssuedPassword:
    """A new user of a dealer; `tenant_id` None: of the operator. Without a password one is generated, which must be
    changed at the first sign-in. Raises OperatorError, TooManyTries, password.Busy."""
    require_role(tenant_id, role)
    if not name.isprintable():  # invisible characters make two names look the same
        raise OperatorError("a name consists of visible characters")
    if not 1 <= len(name) <= 100 or any(map(str.isspace, name)):
        raise OperatorError("a name has 1 to 100 characters and no spaces, such as an email address")
    await count_issued(database, issuer)
    must_change, password = password is None, password or passwords.generate()
    encoded = await hasher.hash(password)

    async def work(connection: Connection) -> int:
        if tenant_id is not None and not await store.tenant.listed(connection, tenant_id):
            raise OperatorError(f"no tenant {tenant_id}")
        user_id = await user_store.create(connection, tenant_id, name, role, encoded, must_change)
        if user_id is None:
            raise OperatorError(f"there is a user {name} already")
        await record_act(connection, author, "user.create", tenant_id, {"user": name, "role": role})
        return user_id

    return IssuedPassword(await database.run(work), name, role, password)


async def reset(
    database: Database, hasher: Passwords, user_id: int, within: int | None, author: str, issuer: Issuer | None = None
) -> IssuedPassword:
    """Generates a new password, which must be changed, switches one-time codes off and ends every session. `within`:
    the dealer that the user must belong to, None for any. Raises OperatorError, TooManyTries, password.Busy."""
    if issuer is not None and issuer.user_id == user_id:  # the session that would show the password ends
        raise OperatorError("change your own password on the page Account")
    await count_issued(database, issuer)
    password = passwords.generate()
    encoded = await hasher.hash(password)

    async def work(connection: Connection) -> IssuedPassword:
        account = await _account(connection, user_id, within)
        await user_store.set_password(connection, user_id, encoded, must_change=True)
        await user_store.set_totp(connection, user_id, None, on=False)
        await user_store.end_sessions(connection, user_id)
        await user_store.forgive(connection, attempts.subject("name", account.name.lower()))
        await record_act(connection, author, "user.reset", account.tenant_id, {"user": account.name})
        return IssuedPassword(user_id, account.name, account.role, password)

    return await database.run(work)


async def change(database: Database, user_id: int, within: int | None, role: str, status: str, author: str) -> None:
    """Sets role and status (ACTIVE or DISABLED); every session of the user ends. The last admin stays one. Raises
    OperatorError."""
    if status not in ("ACTIVE", "DISABLED"):
        raise OperatorError(f"status is {status!r}; accepted: ACTIVE, DISABLED")

    async def work(connection: Connection) -> None:
        tenant_id = (await _account(connection, user_id, within, lock=False)).tenant_id
        admins = await user_store.lock_admins(connection, tenant_id)
        account = await _account(connection, user_id, within)
        require_role(account.tenant_id, role)
        if admins == [user_id] and (role, status) != ("admin", "ACTIVE"):
            raise OperatorError(f"{account.name} is the last admin")
        await user_store.set_role(connection, user_id, role, status)
        await user_store.end_sessions(connection, user_id)
        detail = {
            "user": account.name,
            "before": {"role": account.role, "status": account.status},
            "after": {"role": role, "status": status},
        }
        await record_act(connection, author, "user.set", account.tenant_id, detail)

    await database.run(work)


async def change_password(
    database: Database, hasher: Passwords, session: Session, old: str, new: str, visitor: Visitor, now: datetime
) -> None:
    """Changes one's own password; one's other sessions end. Raises OperatorError, NotSignedIn, TooManyTries,
    password.Busy."""
    passwords.require_good(new, session.name)
    if new == old:
        raise OperatorError("the new password is the one you have now")
    await sessions.check_password(database, hasher, session.user_id, old, visitor, now)
    encoded = await hasher.hash(new)

    async def work(connection: Connection) -> None:
        await user_store.set_password(connection, session.user_id, encoded, must_change=False)
        await user_store.end_sessions(connection, session.user_id, but=session.session_id)
        detail = {"user": session.name}
        await record_act(connection, f"console:{session.name}", "user.password", session.tenant_id, detail)

    await database.run(work)


async def keep_issued(
    database: Database, keys: DataKeys, session: Session, issued: IssuedPassword | IssuedLink, now: datetime
) -> None:
    """Keeps a generated password or link, sealed, in the issuer's session for ten minutes, to be shown once."""
    sealed = keys.seal(msgspec.json.encode(issued), _issued_context(session))
    async with database.connection() as connection:
        await user_store.keep_made(connection, session.session_id, sealed, now + ISSUED_PASSWORD_LIFETIME)


async def take_issued(
    database: Database, keys: DataKeys, session: Session, now: datetime
) -> IssuedPassword | IssuedLink | None:
    """Takes what is kept out of the session; None where nothing is."""
    sealed, until = session.sealed_made, session.made_until
    if sealed is None or until is None or until < now:
        return None
    async with database.connection() as connection:
        taken = await user_store.take_made(connection, session.session_id, sealed)
    issued = IssuedPassword | IssuedLink
    return msgspec.json.decode(keys.open(sealed, _issued_context(session)), type=issued) if taken else None


async def list_users(database: Database, within: int | None = None) -> list[Listed]:
    async with database.connection() as connection:
        return await user_store.listed(connection, within)


async def id_of(database: Database, name: str) -> int:
    """Raises OperatorError."""
    async with database.connection() as connection:
        account = await user_store.named(connection, name)
    if account is None:
        raise OperatorError(f"no user {name}")
    return account.user_id


async def _account(connection: Connection, user_id: int, within: int | None, *, lock: bool = True) -> Account:
    """Raises OperatorError."""
    account = await user_store.account(connection, user_id, lock=lock)
    if account is None or within not in (None, account.tenant_id):
        raise OperatorError("there is no such user")
    return account


def require_role(tenant_id: int | None, role: str) -> None:
    accepted = OPERATOR_ROLES if tenant_id is None else DEALER_ROLES
    if role not in accepted:
        raise OperatorError(f"role is {role!r}; accepted: {', '.join(accepted)}", "role")


async def count_issued(database: Database, issuer: Issuer | None) -> None:
    """Raises TooManyTries."""
    if issuer is not None:
        counted = attempts.subject("make", str(issuer.user_id))
        await attempts.count(database, counted, None, issuer.at, PASSWORDS_PER_ISSUER)


def _issued_context(session: Session) -> bytes:
    return f"made|{session.session_id}".encode()
