"""How does somebody sign in to the console? With name and password, then with a one-time code where it is on.

Attempts are counted before they are checked. Passwords are checked outside of transactions.
"""

import asyncio
from datetime import datetime
from typing import NamedTuple

import structlog

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.users import attempts, device_token, one_time_codes, sessions
from dealer_server.operations.users.password import Busy, Passwords
from dealer_server.operations.users.sessions import NotSignedIn, Visitor
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.console.user import Account, Session

log = structlog.get_logger(__name__)


class SignInResult(NamedTuple):
    """A new session. `token`: for this browser alone; `complete`: no one-time code is missing; `device`: the device
    token for the browser's next sign-in, "" while not complete."""

    token: str
    complete: bool
    user_id: int
    device: str = ""


async def with_password(
    database: Database,
    hasher: Passwords,
    name: str,
    password: str,
    visitor: Visitor,
    now: datetime,
    keys: DataKeys | None = None,
) -> SignInResult:
    """Opens a new session, whatever session the browser had before.

    An unknown user, a disabled user and a wrong password give the same answer after the same time. Attempts are counted
    by name and address, and by address. Many attempts of one name from many addresses delay unknown browsers, and lock
    nobody out; a browser where this user has signed in before is counted by itself.
    Raises NotSignedIn, TooManyTries, password.Busy."""
    async with database.connection() as connection:
        account = await user_store.named(connection, name)
    counted = _counted(account, name, visitor, now, keys)
    counts = await attempts.count_all(database, counted.subjects, counted.limits, visitor.address, now)
    await asyncio.sleep(attempts.delay_seconds(counts.get(counted.by_name, 0)))
    active = account if account is not None and _is_active(account) else None
    try:
        fits = await hasher.fits(active.password if active else None, password)
    except Busy:
        async with database.connection() as connection:
            for subject in counted.subjects:  # the password was not checked, so it does not count
                await user_store.take_back(connection, subject)
        raise
    if not fits or active is None:
        log.warning("console_sign_in_refused", address=visitor.address, user_id=account.user_id if account else None)
        raise NotSignedIn

    async def work(connection: Connection) -> SignInResult:
        if await user_store.account(connection, active.user_id) != active:  # changed since it was read
            raise NotSignedIn
        await user_store.sweep(connection, now - sessions.LIFETIME, now - attempts.WINDOW, now)
        await user_store.forgive(connection, counted.own)
        if not counted.known_device:
            await attempts.forgive(connection, counted.by_name, visitor.address)
        return await open_session(connection, active, not active.totp_on, visitor, now, keys)

    return await database.run(work)


class _Counted(NamedTuple):
    """What an attempt is counted by: `own` alone on a known device, else the name and the address too."""

    own: bytes
    by_name: bytes
    by_address: bytes
    known_device: bool

    @property
    def subjects(self) -> tuple[bytes, ...]:
        return (self.own,) if self.known_device else (self.own, self.by_name, self.by_address)

    @property
    def limits(self) -> dict[bytes, int]:
        """A name has none: its attempts only delay sign-ins."""
        limits = {self.own: attempts.ATTEMPTS_PER_NAME}
        return limits if self.known_device else limits | {self.by_address: attempts.ATTEMPTS_PER_ADDRESS}


def _counted(account: Account | None, name: str, visitor: Visitor, now: datetime, keys: DataKeys | None) -> _Counted:
    # The name as stored: the database folds more letters into one than lower() does.
    by_name = attempts.subject("name", (account.name if account else name).lower())
    by_address = attempts.address_subject(visitor.address)
    device = device_token.find(keys, account, visitor.devices, now) if keys and account else ""
    if device:
        own = attempts.subject("device", device)
    else:  # the password is part of it: a new password begins a new count
        password_hash = account and account.password
        own = attempts.subject("name and address", f"{by_name.hex()}|{password_hash}|{by_address}")
    return _Counted(own=own, by_name=by_name, by_address=by_address, known_device=bool(device))


async def with_code(
    database: Database, keys: DataKeys, pending: Session, token: str, code: str, visitor: Visitor, now: datetime
) -> SignInResult:
    """The second step: a one-time code, which works once. Raises NotSignedIn, TooManyTries."""
    by_user = attempts.subject("code", str(pending.user_id))
    await attempts.count(database, by_user, visitor.address, now)

    async def work(connection: Connection) -> SignInResult:
        account = await user_store.account(connection, pending.user_id)
        if (
            account is None
            or not _is_active(account)
            or not await one_time_codes.use_code(connection, keys, account, code, now)
        ):
            raise NotSignedIn
        if not await user_store.end_by_token(connection, sessions.token_hash(token)):  # its owner has ended it
            raise NotSignedIn
        await attempts.forgive(connection, by_user, visitor.address)
        return await open_session(connection, account, True, visitor, now, keys)

    return await database.run(work)


async def open_session(
    connection: Connection, account: Account, complete: bool, visitor: Visitor, now: datetime, keys: DataKeys | None
) -> SignInResult:
    """For somebody who has proved who they are."""
    token = await sessions.open_session(connection, account, complete, visitor, now)
    if complete:
        detail = {"user": account.name}
        await record_act(connection, f"console:{account.name}", "user.sign_in", account.tenant_id, detail)
    device = device_token.issue(keys, account, now) if complete and keys else ""
    return SignInResult(token, complete, account.user_id, device)


def _is_active(account: Account) -> bool:
    return account.status == "ACTIVE" and not account.dealer_disabled
