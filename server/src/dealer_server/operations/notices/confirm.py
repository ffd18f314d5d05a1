"""Does an address that a user gives for notices belong to them? A link that is mailed to it says so, once.

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
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.users import attempts, sessions
from dealer_server.rules.notices.notice import CONFIRM_ADDRESS, OPERATORS, NewNotice
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import confirmations, outbox, recipients
from dealer_server.store.notices.confirmations import Unconfirmed

LIFETIME = timedelta(hours=24)
MAILS_IN_A_WINDOW = 5
"""Nobody has mails sent to an address of others again and again."""
PATH = "/console/confirm-address/"


class LinkEnded(Exception):
    """The link was used, is older than a day, or is replaced by a newer one."""


async def count_mail(database: Database, user_id: int, now: datetime) -> None:
    """Raises TooManyTries."""
    await attempts.count(database, attempts.subject("confirmation", str(user_id)), None, now, MAILS_IN_A_WINDOW)


async def ask(
    connection: Connection, keys: DataKeys, user_id: int, tenant_id: int | None, mail: str, now: datetime
) -> None:
    """Has a link mailed to an address, in the transaction that is open; the one before ends."""
    new = Unconfirmed(user_id, mail, secrets.token_bytes(16), now + LIFETIME)
    await confirmations.put(connection, new, sessions.token_hash(token(keys, new)))
    told = NewNotice(tenant_id or OPERATORS, CONFIRM_ADDRESS, f"{user_id} {new.nonce.hex()}", {"userId": user_id})
    await outbox.add(connection, [told], now)


async def resend(database: Database, keys: DataKeys, user_id: int, tenant_id: int | None, now: datetime) -> str:
    """Another link, for another day; gives the address. Raises OperatorError, TooManyTries."""
    await count_mail(database, user_id, now)

    async def work(connection: Connection) -> str:
        found = await confirmations.of_user(connection, user_id)
        if found is None:
            raise OperatorError("there is no address to confirm")
        await ask(connection, keys, user_id, tenant_id, found.mail, now)
        return found.mail

    return await database.run(work)


async def find(database: Database, text: str, now: datetime) -> Unconfirmed:
    """`text`: what the link holds. Changes nothing: programs that look at mails open links. Raises LinkEnded."""
    async with database.connection() as connection:
        return await _open(connection, text, now)


async def confirm(database: Database, text: str, now: datetime) -> str:
    """Notices go to the address from now on. Raises LinkEnded."""

    async def work(connection: Connection) -> str:
        found = await _open(connection, text, now)
        if not await confirmations.remove(connection, found.user_id, found.nonce):
            raise LinkEnded
        setting = await recipients.setting(connection, found.user_id)
        await recipients.put_setting(connection, found.user_id, setting._replace(mail=found.mail))
        await record_act(connection, f"user:{found.user_id}", "notice.address", None, {"userId": found.user_id})
        return found.mail

    return await database.run(work)


def token(keys: DataKeys, of: Unconfirmed) -> str:
    """What its link holds."""
    key = keys.derive(b"mail confirmation")
    text = f"{of.user_id}|{of.mail}|{of.nonce.hex()}".encode()
    return base64.urlsafe_b64encode(hmac.digest(key, text, "sha256")).decode().rstrip("=")


async def _open(connection: Connection, text: str, now: datetime) -> Unconfirmed:
    found = await confirmations.by_token(connection, sessions.token_hash(text))
    if found is None or found.expires_at <= now:
        raise LinkEnded
    return found
