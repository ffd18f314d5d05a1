"""The mails that `dev` keeps instead of sending them. Elsewhere there is no such page."""

import re
from collections.abc import Mapping
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import NamedTuple

from dealer_server.console.auth.notices import NOTICES
from dealer_server.console.shared import params
from dealer_server.console.shared.page import download, page
from dealer_server.console.shared.permissions import OPERATORS
from dealer_server.console.shared.request_context import Embedded, Html, NotFound, RequestContext
from dealer_server.store.notices import listing
from dealer_server.store.notices.listing import DevMail

MAILS = "/console/mails"
MOST_LISTED = 200


class Mail(NamedTuple):
    """A mail, taken apart."""

    mail_id: int
    at: datetime
    headers: Mapping[str, str]
    plain: str
    html: str

    @property
    def title(self) -> str:
        """Its subject without the name of the platform before it."""
        return re.sub(r"^\[[^]]*\] ", "", self.headers["Subject"])


@page(MAILS, OPERATORS, "operator/mails.html", within=NOTICES)
async def mails(context: RequestContext) -> Html:
    _require_mailbox(context)
    async with context.parts.database.connection() as connection:
        kept = await listing.mails(connection, MOST_LISTED)
    return Html(mails=[_read(one) for one in kept], most=MOST_LISTED)


@page(f"{MAILS}/{{mail_id}}", OPERATORS, "operator/mail.html", within=NOTICES)
async def mail(context: RequestContext) -> Html:
    return Html(mail=await _mail(context))


@download(f"{MAILS}/{{mail_id}}/html", OPERATORS)
async def mail_html(context: RequestContext) -> Embedded:
    """Its HTML, as a mail program would show it: no script runs, nothing is loaded."""
    return Embedded((await _mail(context)).html)


def _require_mailbox(context: RequestContext) -> None:
    """Raises NotFound."""
    if context.parts.settings.mails != "kept":
        raise NotFound


async def _mail(context: RequestContext) -> Mail:
    """Raises NotFound."""
    _require_mailbox(context)
    mail_id = params.path_number(context, "mail_id")
    async with context.parts.database.connection() as connection:
        found = await listing.mail(connection, mail_id)
    if found is None:
        raise NotFound
    return _read(found)


def _read(kept: DevMail) -> Mail:
    message = message_from_bytes(kept.message, _class=EmailMessage, policy=default)
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    headers = {name: str(message.get(name, "")) for name in ("From", "To", "Subject", "Message-ID", "X-Notice-ID")}
    return Mail(
        kept.mail_id, kept.at, headers, plain.get_content() if plain else "", html.get_content() if html else ""
    )
