"""How does somebody get a password? By a link that works once, for 72 hours, known to us by its hash alone."""

import secrets
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import accounts, attempts, sessions, sign_in
from dealer_server.operations.users import password as passwords
from dealer_server.operations.users.accounts import Issuer
from dealer_server.operations.users.password import Passwords
from dealer_server.operations.users.sessions import Visitor
from dealer_server.operations.users.sign_in import SignInResult
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.tenants import invitation as invitations
from dealer_server.store.tenants.invitation import Invitation

LIFETIME = timedelta(hours=72)
MOST_ADDRESS_CHARACTERS = 100
MOST_LISTED = 200
PATH = "/console/invitation/"
State = Literal["OPEN", "USED", "WITHDRAWN", "EXPIRED", "DISABLED"]


class Invited(NamedTuple):
    """A new link; `token` is shown and mailed this once. `tenant_name` None: of the operator."""

    invitation_id: int
    tenant_id: int | None
    tenant_name: str | None
    address: str
    role: str
    token: str
    expires_at: datetime

    @property
    def path(self) -> str:
        return f"{PATH}{self.token}"


class InvitationEnded(Exception):
    """The link is of no use: `state` says why; None where there is no such link."""

    def __init__(self, state: State | None):
        self.state = state
        super().__init__(state)


def state(found: Invitation, now: datetime) -> State:
    if found.used_at is not None:
        return "USED"
    if found.withdrawn_at is not None:
        return "WITHDRAWN"
    if found.expires_at <= now:
        return "EXPIRED"
    return "DISABLED" if found.dealer_disabled else "OPEN"


async def invite(
    database: Database,
    tenant_id: int | None,
    address: str,
    role: str,
    author: str,
    now: datetime,
    issuer: Issuer | None = None,
) -> Invited:
    """Invites somebody to a dealer; `tenant_id` None: to the operator. Raises OperatorError, TooManyTries."""
    check(tenant_id, address, role)
    await accounts.count_issued(database, issuer)
    return await database.run(lambda connection: invite_within(connection, tenant_id, address, role, author, now))


def check(tenant_id: int | None, address: str, role: str) -> None:
    """Raises OperatorError, which names the field."""
    accounts.require_role(tenant_id, role)
    if not is_mail_address(address) or len(address) > MOST_ADDRESS_CHARACTERS:
        raise OperatorError(
            f"mail address {address[:200]!r}: an address such as ann@example.com is expected", "address"
        )


async def invite_within(
    connection: Connection, tenant_id: int | None, address: str, role: str, author: str, now: datetime
) -> Invited:
    """The same, in a transaction that is open. Raises OperatorError."""
    check(tenant_id, address, role)
    tenant_name = None
    if tenant_id is not None:
        tenants = await store.tenant.listed(connection, tenant_id)
        if not tenants:
            raise OperatorError(f"no tenant {tenant_id}", "tenant")
        tenant_name = tenants[0].name
    if await user_store.named(connection, address) is not None:
        raise OperatorError(f"there is a user {address} already", "address")
    token, until = _new_token(), now + LIFETIME
    invitation_id = await invitations.create(
        connection, tenant_id, address, role, sessions.token_hash(token), author, now, until
    )
    if invitation_id is None:
        raise OperatorError(f"{address} is invited already: resend the invitation, or withdraw it", "address")
    await record_act(connection, author, "user.invite", tenant_id, {"user": address, "role": role})
    return Invited(invitation_id, tenant_id, tenant_name, address, role, token, until)


async def resend(
    database: Database,
    invitation_id: int,
    within: int | None,
    author: str,
    now: datetime,
    issuer: Issuer | None = None,
) -> Invited:
    """Another link, for another 72 hours; the one before ends. `within`: as in `withdraw`. Raises OperatorError,
    TooManyTries."""
    await accounts.count_issued(database, issuer)
    token, until = _new_token(), now + LIFETIME

    async def work(connection: Connection) -> Invited:
        found = await _waiting(connection, invitation_id, within)
        await invitations.renew(connection, invitation_id, sessions.token_hash(token), until)
        detail = {"user": found.address, "role": found.role}
        await record_act(connection, author, "user.invite.resend", found.tenant_id, detail)
        return Invited(invitation_id, found.tenant_id, found.tenant_name, found.address, found.role, token, until)

    return await database.run(work)


async def withdraw(database: Database, invitation_id: int, within: int | None, author: str, now: datetime) -> str:
    """Ends a link; gives the address. `within`: the dealer that it must invite to, None for any. Raises
    OperatorError."""

    async def work(connection: Connection) -> str:
        found = await _waiting(connection, invitation_id, within)
        await invitations.end(connection, invitation_id, used=False, now=now)
        detail = {"user": found.address, "role": found.role}
        await record_act(connection, author, "user.invite.withdraw", found.tenant_id, detail)
        return found.address

    return await database.run(work)


async def record_mail(database: Database, invited: Invited, problem: str | None, now: datetime) -> None:
    async with database.connection() as connection:
        await invitations.record_mail(connection, invited.invitation_id, problem, now)


async def list_waiting(database: Database, within: int | None = None) -> list[Invitation]:
    """Neither used nor withdrawn, the newest first."""
    async with database.connection() as connection:
        return list(await invitations.waiting(connection, within, MOST_LISTED))


async def find(database: Database, token: str, now: datetime) -> Invitation:
    """Raises InvitationEnded. Changes nothing: programs that look at mails open links."""
    async with database.connection() as connection:
        return _open(await invitations.by_token(connection, sessions.token_hash(token)), now)


async def accept(
    database: Database,
    hasher: Passwords,
    keys: DataKeys | None,
    token: str,
    password: str,
    visitor: Visitor,
    now: datetime,
) -> SignInResult:
    """The invited becomes a user with this password, and is signed in. Raises InvitationEnded, OperatorError,
    TooManyTries, password.Busy."""
    found = await find(database, token, now)
    passwords.require_good(password, found.address)
    await attempts.count(database, attempts.subject("invited", str(found.invitation_id)), visitor.address, now)
    encoded = await hasher.hash(password)

    async def work(connection: Connection) -> SignInResult:
        locked = _open(await invitations.lock_by_token(connection, sessions.token_hash(token)), now)
        user_id = await user_store.create(
            connection, locked.tenant_id, locked.address, locked.role, encoded, must_change=False
        )
        if user_id is None:
            raise OperatorError(f"there is a user {locked.address} already; sign in, or ask who invited you")
        await invitations.end(connection, locked.invitation_id, used=True, now=now)
        detail = {"user": locked.address, "role": locked.role}
        await record_act(connection, f"console:{locked.address}", "user.accept", locked.tenant_id, detail)
        account = await user_store.account(connection, user_id)
        assert account is not None, "it was just created"
        return await sign_in.open_session(connection, account, True, visitor, now, keys)

    return await database.run(work)


async def _waiting(connection: Connection, invitation_id: int, within: int | None) -> Invitation:
    """Locked. Raises OperatorError."""
    found = await invitations.lock(connection, invitation_id)
    if found is None or within not in (None, found.tenant_id):
        raise OperatorError("there is no such invitation")
    if found.used_at is not None:
        raise OperatorError(f"the invitation of {found.address} was used")
    if found.withdrawn_at is not None:
        raise OperatorError(f"the invitation of {found.address} was withdrawn; invite them again")
    return found


def _open(found: Invitation | None, now: datetime) -> Invitation:
    """Raises InvitationEnded."""
    if found is None:
        raise InvitationEnded(None)
    if (why := state(found, now)) != "OPEN":
        raise InvitationEnded(why)
    return found


def _new_token() -> str:
    return secrets.token_urlsafe(32)
