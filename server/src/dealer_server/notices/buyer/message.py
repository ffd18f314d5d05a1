"""How does the mail look that brings a buyer an eSIM? In the dealer's brand, the buyer's language, plain and HTML."""

import functools
import hashlib
import json
from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from dealer_server.notices.message import Sender
from dealer_server.rules.brand.brand import Brand
from dealer_server.rules.brand.colour import shades
from dealer_server.rules.install.languages import LANGUAGES, Language
from dealer_server.rules.notices.texts import plain
from dealer_server.store.notices.buyer_mails import Claimed

COLOUR = "#1f5fd0"
_HERE = Path(__file__).parent


class Texts(NamedTuple):
    """Of one language."""

    subject: str
    title: str
    text: str
    button: str
    once: str
    secret: str
    help: str


def message(sender: Sender, brand: Brand, mail: Claimed, url: str) -> EmailMessage:
    """A mail to one buyer. The Message-ID is the same whenever it is sent again."""
    name, texts = plain(brand.name or sender.platform), texts_of()[mail.language]
    support = [text for text in (brand.support_email, brand.support_phone, brand.support_url) if text]
    fields = {
        "name": name,
        "language": mail.language,
        "texts": texts,
        "url": f"{url}?lang={mail.language}",
        "support": support,
        "shop": brand.sales_url,
        "shades": shades(brand.colour or COLOUR),
    }
    made = EmailMessage(SMTP.clone(cte_type="7bit"))
    made["From"] = Address(name, addr_spec=sender.address)
    made["To"] = Address(addr_spec=mail.mail)
    if brand.support_email:
        made["Reply-To"] = Address(addr_spec=brand.support_email)
    made["Subject"] = f"{texts.subject} – {name}"
    made["Date"] = format_datetime(mail.created_at)
    made["Message-ID"] = _message_id(sender, mail)
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(_environment().get_template("mail.txt").render(fields))
    made.add_alternative(_environment().get_template("mail.html").render(fields), subtype="html")
    return made


@functools.cache
def texts_of() -> Mapping[Language, Texts]:
    """Every language of the install page. Raises TypeError for a text that is missing."""
    read = json.loads((_HERE / "texts.json").read_text(encoding="utf-8"))
    return {language: Texts(**read[language]) for language in LANGUAGES}


def _message_id(sender: Sender, mail: Claimed) -> str:
    digest = hashlib.sha256(f"{sender.base_url} buyer {mail.tenant_id} {mail.mail_id}".encode()).hexdigest()[:32]
    return f"<esim-{digest}@{sender.address.rpartition('@')[2]}>"


@functools.cache
def _environment() -> Environment:
    """Everything is escaped in HTML."""
    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
