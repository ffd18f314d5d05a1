"""The page of an eSIM is mailed to its buyer. A row is written here; the worker sends it (notices/buyer/worker.py)."""

from datetime import datetime, timedelta

from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.install.languages import LANGUAGES, Language
from dealer_server.rules.notices.notice import is_mail_address
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import buyer_mails

MAILS_AN_HOUR = 60
"""Of one dealer."""


async def mail_install_page(
    database: Database,
    tenant_id: int,
    order_id: int,
    profile_id: int,
    mail: str,
    language: str,
    author: str,
    now: datetime,
) -> None:
    """`language`: one of LANGUAGES. The audit log says that it was mailed, not to whom. Raises OperatorError."""
    chosen: Language | None = next((one for one in LANGUAGES if one == language), None)
    if chosen is None:
        raise OperatorError(f"language is {language[:20]!r}; accepted: {', '.join(LANGUAGES)}", "language")
    if not is_mail_address(mail):
        raise OperatorError("Email must be one plain address, such as ann@example.com", "mail")
    async with database.transaction() as connection:
        if await buyer_mails.count_since(connection, tenant_id, now - timedelta(hours=1)) >= MAILS_AN_HOUR:
            raise OperatorError(
                f"{MAILS_AN_HOUR} mails were sent in the last hour, no more are allowed: try again later"
            )
        mail_id = await buyer_mails.add(connection, tenant_id, order_id, profile_id, mail, chosen, now)
        detail = {"profileId": profile_id, "mail": mail_id, "language": chosen}
        await record_act(connection, author, "profile.mail", tenant_id, detail)
