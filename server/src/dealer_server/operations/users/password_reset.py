"""How does a user who forgot the password get in again? By a mailed link that works once, for 30 minutes.

The link is written when the mail is sent, by any worker: what it holds is derived from the deployment's keys and a
nonce, and kept nowhere but as a hash.
"""

import base64
import hmac
import secrets
from datetime import datetime, timedelta

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.users import attempts, sessions
from dealer_server.operations.users import password as passwords
from dealer_server.operations.users.password import Passwords
from dealer_server.operations.users.sessions import Visitor
from dealer_server.rules.notices.notice import OPERATORS, RESET_LINK, NewNotice
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.console import user as user_store
from dealer_server.store.console.user import Account
from dealer_server.store.notices import outbox
from dealer_server.store.tenants import password_reset
from dealer_server.store.tenants.password_reset import PasswordReset

LIFETIME = timedelta(minutes=30)
MAILS_IN_A_WINDOW = 3
"""Nobody has mails sent to somebody else again and again."""
PATH = "/console/password-reset/"


class LinkEnded(Exception):
    """The link was used, is older than half an hour, is replaced by a newer one, or its user cannot sign in."""


async def count_request(database: Database, name: str, address: str, now: datetime) -> None:
    """Of any name, whether or not there is such a user. Raises TooManyTries."""
    await attempts.count(database, attempts.subject("forgot", name.lower()), address, now, MAILS_IN_A_WINDOW)


async def send_link(database: Database, keys: DataKeys, name: str, now: datetime) -> None:
    """Has a link mailed to the user of this name, where there is one; the link before ends."""

    async def work(connection: Connection) -> None:
        account = await user_store.named(connection, name)
        if account is None or not _may_sign_in(account):
            return
        new = PasswordReset(account.user_id, secrets.token_bytes(16), now + LIFETIME)
        await password_reset.put(connection, new, sessions.token_hash(token(keys, new)))
        fact, data = f"{account.user_id} {new.nonce.hex()}", {"userId": account.user_id}
        await outbox.add(connection, [NewNotice(account.tenant_id or OPERATORS, RESET_LINK, fact, data)], now)

    await database.run(work)


async def find(database: Database, text: str, now: datetime) -> str:
    """The name of the user; `text`: what the link holds. Changes nothing: programs that look at mails open links.
    Raises LinkEnded."""
    async with database.connection() as connection:
        return (await _open(connection, text, now, lock=False)).name


async def reset(database: Database, hasher: Passwords, text: str, new: str, visitor: Visitor, now: datetime) -> None:
    """The password is another one, and every session ends; one-time codes stay as they are. Raises LinkEnded,
    OperatorError, TooManyTries, password.Busy."""
    name = await find(database, text, now)
    passwords.require_good(new, name)
    await attempts.count(database, attempts.subject("reset", name.lower()), visitor.address, now)
    encoded = await hasher.hash(new)

    async def work(connection: Connection) -> None:
        account = await _open(connection, text, now)
        await user_store.set_password(connection, account.user_id, encoded, must_change=False)
        await user_store.end_sessions(connection, account.user_id)
        await user_store.forgive(connection, attempts.subject("name", account.name.lower()))
        author, detail = f"console:{account.name}", {"user": account.name}
        await record_act(connection, author, "user.password.reset", account.tenant_id, detail)

    await database.run(work)


def token(keys: DataKeys, of: PasswordReset) -> str:
    """What its link holds."""
    key = keys.derive(b"password reset")
    text = f"{of.user_id}|{of.nonce.hex()}".encode()
    return base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")).decode().rstrip("=")


async def _open(connection: Connection, text: str, now: datetime, *, lock: bool = True) -> Account:
    """The user, locked until the transaction ends unless it is only looked at: of two who use a link at once, one is
    the first. Raises LinkEnded."""
    found = await password_reset.by_token(connection, sessions.token_hash(text))
    if found is None or found.expires_at <= now:
        raise LinkEnded
    account = await user_store.account(connection, found.user_id, lock=lock)
    if account is None or not _may_sign_in(account) or await password_reset.of_user(connection, found.user_id) != found:
        raise LinkEnded
    return account


def _may_sign_in(account: Account) -> bool:
    return account.status == "ACTIVE" and not account.dealer_disabled
