"""How does a mail look? Plain and HTML, one notice or a digest of several."""

import functools
import hashlib
from collections.abc import Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import Literal, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dealer_server.rules import dates
from dealer_server.rules.notices.notice import notice_no
from dealer_server.rules.notices.texts import Text, digest_subject, isolated, plain, text_of
from dealer_server.settings import Settings
from dealer_server.store.notices.outbox import Notice

MOST_SHOWN = 50
_TEMPLATES = Path(__file__).parent / "templates"


class Sender(NamedTuple):
    """`platform`: the name that mails bear. `address`: whom they come from. `base_url`: where links lead."""

    platform: str
    address: str
    base_url: str


def sender_of(settings: Settings) -> Sender:
    return Sender(settings.platform_name, settings.smtp_from or "notices@esim-dealer.invalid", settings.base_url)


class Shown(NamedTuple):
    """A notice in a mail."""

    notice_no: str
    text: Text
    at: datetime


def message(
    sender: Sender, to: str, user: str, notices: Sequence[Notice], delivery_ids: Sequence[int], *, digest: bool
) -> EmailMessage:
    """A mail to one user. The Message-ID is the same whenever the same notices are sent to the same user."""
    shown = [Shown(notice_no(one.notice_id), text_of(one.notice_type, one.data), one.created_at) for one in notices]
    title = digest_subject(len(shown)) if digest else shown[0].text.subject
    made = _written(sender, to, user, title, shown, digest=digest, settings=True)
    made["Message-ID"] = _message_id(sender, "notice", sorted(delivery_ids))
    made["X-Notice-ID"] = ", ".join(one.notice_no for one in shown[:MOST_SHOWN])
    return made


def with_link(
    sender: Sender,
    kind: Literal["invitation", "confirmation", "password-reset", "test"],
    to: str,
    text: Text,
    token: str,
    at: datetime,
) -> EmailMessage:
    """A mail of one link, which holds the token; that its address is theirs is not known."""
    made = _written(sender, to, to, text.subject, [Shown("", text, at)], digest=False, settings=False)
    made["Message-ID"] = _message_id(sender, kind, token)
    return made


def _written(
    sender: Sender, to: str, user: str, title: str, shown: Sequence[Shown], *, digest: bool, settings: bool
) -> EmailMessage:
    """`settings`: it says where the user chooses what is mailed."""
    fields = {
        "platform": plain(sender.platform),
        "title": title,
        "user": plain(user),
        "isolated": isolated,
        "shown": shown[:MOST_SHOWN],
        "more": len(shown) - MOST_SHOWN,
        "digest": digest,
        "settings": settings,
        "base_url": sender.base_url,
    }
    made = EmailMessage(SMTP.clone(cte_type="7bit"))
    made["From"] = Address(plain(sender.platform), addr_spec=sender.address)
    made["To"] = Address(addr_spec=to)
    made["Subject"] = plain(f"[{sender.platform}] {title}", 200)
    made["Date"] = format_datetime(shown[-1].at)
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(_environment().get_template("notice.txt").render(fields))
    made.add_alternative(_environment().get_template("notice.html").render(fields), subtype="html")
    return made


def _message_id(sender: Sender, kind: str, of: object) -> str:
    digest = hashlib.sha256(f"{sender.base_url} {of}".encode()).hexdigest()[:32]
    return f"<{kind}-{digest}@{sender.address.rpartition('@')[2]}>"


@functools.cache
def _environment() -> Environment:
    """Everything is escaped in HTML."""
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["minute"] = dates.minute
    return made
