"""How are one-time codes set up? A user scans a secret, proves it with a code, and is asked for codes from then on."""

import secrets
from datetime import datetime

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import attempts
from dealer_server.rules.access import totp
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.console.user import Account, Session


async def begin(database: Database, keys: DataKeys, session: Session) -> bytes:
    """The secret for an authenticator app; until a code of it was given, the same one each time. Raises OperatorError
    where codes are on."""

    async def work(connection: Connection) -> bytes:
        account = await _account_without_codes(connection, session.user_id)
        if account.sealed_totp is not None:
            return keys.open(account.sealed_totp, _sealing_context(session.user_id))
        secret = secrets.token_bytes(totp.SECRET_BYTES)
        sealed = keys.seal(secret, _sealing_context(session.user_id))
        await user_store.set_totp(connection, session.user_id, sealed, on=False)
        return secret

    return await database.run(work)


async def switch_on(database: Database, keys: DataKeys, session: Session, code: str, now: datetime) -> None:
    """Needs a code, which shows that the app has the secret. The user's other sessions end. Raises OperatorError,
    TooManyTries."""
    by_user = attempts.subject("code", str(session.user_id))
    await attempts.count(database, by_user, None, now)

    async def work(connection: Connection) -> None:
        account = await _account_without_codes(connection, session.user_id)
        sealed = account.sealed_totp
        await user_store.set_totp(connection, session.user_id, sealed, on=sealed is not None)
        if not await use_code(connection, keys, account._replace(totp_on=True), code, now):
            raise OperatorError(
                "this code is not right: take the newest one of your app, and check the app's clock", "code"
            )
        await user_store.forgive(connection, by_user)
        await user_store.end_sessions(connection, session.user_id, but=session.session_id)
        await _record(connection, session, "user.totp.on")

    await database.run(work)


async def switch_off(database: Database, session: Session) -> None:
    """Call it after sessions.reauthenticate."""

    async def work(connection: Connection) -> None:
        await user_store.set_totp(connection, session.user_id, None, on=False)
        await _record(connection, session, "user.totp.off")

    await database.run(work)


async def use_code(connection: Connection, keys: DataKeys, account: Account, code: str, now: datetime) -> bool:
    """Whether a code is right and unused; it is used from then on."""
    if not account.totp_on or account.sealed_totp is None:
        return False
    secret = keys.open(account.sealed_totp, _sealing_context(account.user_id))
    step = totp.step_matched(secret, "".join(code.split()), now)
    return step is not None and await user_store.use_totp_step(connection, account.user_id, step)


async def _account_without_codes(connection: Connection, user_id: int) -> Account:
    """The account, locked. Raises OperatorError where codes are on."""
    account = await user_store.account(connection, user_id)
    if account is None:
        raise OperatorError("there is no such user")
    if account.totp_on:
        raise OperatorError("one-time codes are on already")
    return account


async def _record(connection: Connection, session: Session, action: str) -> None:
    await record_act(connection, f"console:{session.name}", action, session.tenant_id, {"user": session.name})


def _sealing_context(user_id: int) -> bytes:
    return f"totp|{user_id}".encode()
