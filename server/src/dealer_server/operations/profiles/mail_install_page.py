"""The pages of eSIMs are mailed to their buyer. Rows are written here; the worker sends them, each as soon as its eSIM
has a page (notices/buyer/worker.py)."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.install.languages import LANGUAGES, Language
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import buyer_mails

MAILS_AN_HOUR = 60
"""Of one dealer."""


async def mail_install_pages(
    database: Database,
    tenant_id: int,
    order_id: int,
    profile_ids: Sequence[int],
    mail: str,
    language: str,
    author: str,
    now: datetime,
    *,
    first: bool = False,
) -> None:
    """All or none of them, each by a mail of its own. `language`: one of LANGUAGES. `first`: nothing is done where a
    page of the order was mailed before. The audit log says that it was mailed, not to whom. Raises OperatorError."""
    chosen = checked(mail, language)
    async with database.transaction() as connection:
        left = await _left(connection, tenant_id, now)
        if first and await buyer_mails.of_order(connection, tenant_id, order_id, 1):
            return
        _spare(left, len(profile_ids))
        for profile_id in profile_ids:
            mail_id = await buyer_mails.add(connection, tenant_id, order_id, profile_id, mail, chosen, now)
            detail = {"profileId": profile_id, "mail": mail_id, "language": chosen}
            await record_act(connection, author, "profile.mail", tenant_id, detail)


async def check_mail(database: Database, tenant_id: int, count: int, mail: str, language: str, now: datetime) -> None:
    """Whether so many could be mailed now. Raises OperatorError."""
    checked(mail, language)
    async with database.transaction() as connection:
        _spare(await _left(connection, tenant_id, now), count)


def checked(mail: str, language: str) -> Language:
    """Raises OperatorError."""
    chosen: Language | None = next((one for one in LANGUAGES if one == language), None)
    if chosen is None:
        raise OperatorError(f"language is {language[:20]!r}; accepted: {', '.join(LANGUAGES)}", "language")
    if not is_mail_address(mail):
        raise OperatorError("Email must be one plain address, such as ann@example.com", "mail")
    return chosen


async def _left(connection: Connection, tenant_id: int, now: datetime) -> int:
    """How many more are allowed; no other is counted until the transaction ends."""
    return MAILS_AN_HOUR - await buyer_mails.count_since(connection, tenant_id, now - timedelta(hours=1))


def _spare(left: int, count: int) -> None:
    if left <= 0:
        raise OperatorError(f"{MAILS_AN_HOUR} mails were sent in the last hour, no more are allowed: try again later")
    if count > left:
        raise OperatorError(f"{count} mails are too many: {left} more are allowed this hour", "mail")
