"""What does a user want to be told by mail, and where does a dealer receive notices?"""

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.notices import confirm
from dealer_server.rules.notices.notice import is_mail_address, types_of
from dealer_server.rules.refusal import CallbackUrlRefused
from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.store.notices import confirmations, recipients
from dealer_server.store.notices.recipients import Setting


class Listener(NamedTuple):
    """A user of the console; tenant_id None: an operator."""

    user_id: int
    tenant_id: int | None
    name: str
    full_role: str


async def set_setting(
    database: Database,
    keys: DataKeys,
    user: Listener,
    mail: str,
    now: datetime,
    *,
    digest: bool,
    wanted: Collection[str],
) -> bool:
    """`mail`: '' for the user's name, where that is an address. Another address is told of nothing before it is
    confirmed; True: a link is mailed to it. `wanted`: types of notices; what is off and of another role stays off.
    Raises OperatorError, TooManyTries."""
    mail = "" if mail == user.name else mail
    if mail and not is_mail_address(mail):
        raise OperatorError(
            f"mail address is {mail[:60]!r}; accepted: one plain address such as ada@example.com", "mail"
        )
    own = types_of(user.full_role)
    if linked := await _needs_link(database, user.user_id, mail):
        await confirm.count_mail(database, user.user_id, now)

    async def work(connection: Connection) -> None:
        before = await recipients.setting(connection, user.user_id)
        kept = [name for name in before.off if name not in own]
        off = [*kept, *(name for name in own if name not in wanted)]
        confirmed = mail in ("", before.mail)
        await recipients.put_setting(connection, user.user_id, Setting(mail if confirmed else before.mail, digest, off))
        if confirmed:
            await confirmations.remove(connection, user.user_id)
        elif linked:
            await confirm.ask(connection, keys, user.user_id, user.tenant_id, mail, now)

    await database.run(work)
    return linked


async def _needs_link(database: Database, user_id: int, mail: str) -> bool:
    async with database.connection() as connection:
        confirmed = (await recipients.setting(connection, user_id)).mail
        asked = await confirmations.of_user(connection, user_id)
    return mail not in ("", confirmed) and (asked is None or asked.mail != mail)


async def set_url(database: Database, policy: Policy, tenant_id: int, url: str, now: datetime, author: str) -> None:
    """Sets a dealer's notice URL; '' removes it. The rules are those of the callback URL. Raises 310501."""
    if url and (fault := endpoint.fault(url, policy)):
        raise CallbackUrlRefused(f"notice URL: {fault}")

    async def work(connection: Connection) -> None:
        before = await recipients.url(connection, tenant_id)
        await recipients.put_url(connection, tenant_id, url, now)
        if url != before:
            detail = {"before": {"noticeUrl": before}, "after": {"noticeUrl": url}}
            await store.audit_log.record_act(connection, author, "notice.url", tenant_id, detail)

    await database.run(work)
