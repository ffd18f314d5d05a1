"""Emails to users of the console: what became of each; and those that `dev` keeps instead of sending them."""

import re
from collections.abc import Mapping
from datetime import datetime
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from typing import NamedTuple
from urllib.parse import unquote

from dealer_server.console.auth.notices import NOTICES, OPERATOR_READERS
from dealer_server.console.find import tabs
from dealer_server.console.operator.notices import inbox
from dealer_server.console.operator.notices.tabs import EMAILS, MAILS
from dealer_server.console.operator.notices.tabs import tabs as notice_tabs
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, download, page
from dealer_server.console.shared.params import PAGE_SIZE
from dealer_server.console.shared.permissions import OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.request_context import Embedded, Html, NotFound, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.notices import resend
from dealer_server.rules.notices.notice import CONFIRM_ADDRESS, RESET_LINK, address
from dealer_server.rules.notices.notice import OPERATORS as OPERATORS_TENANT
from dealer_server.rules.notices.texts import LABELS, digest_subject, text_of
from dealer_server.store.console import search
from dealer_server.store.notices import listing
from dealer_server.store.notices.listing import DevMail, Mailed
from dealer_server.store.notices.outbox import Notice

MOST_LISTED = 200
TABS = (
    ("Failed", {"status": "FAILED"}),
    ("Waiting", {"status": "WAITING"}),
    ("Sent", {"status": "DELIVERED"}),
)
KINDS: Mapping[str, str] = {name: label for name, (label, _) in LABELS.items()}
"""What emails may be listed by, as people say it."""
_NOTICE_NO = re.compile("N([0-9]{1,18})")
_LINKS = {CONFIRM_ADDRESS: "Confirm your address", RESET_LINK: "Choose a new password"}

_SECTIONS = {"topups": "Top-ups", "profiles": "eSIMs"}


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


class About(NamedTuple):
    """What an email tells of: the kind of its newest notice, and the page about that, with what the link says."""

    kind: str = ""
    path: str = ""
    link: str = ""


class Row(NamedTuple):
    """An email of the list."""

    mail: Mailed
    to: str
    title: str
    about: About


class Kept(NamedTuple):
    """One that `dev` keeps."""

    mail: Mail
    about: About


@page(MAILS, OPERATORS, "operator/notices/mails.html", within=NOTICES, listing=True)
async def mails(context: RequestContext) -> Html:
    """Where mails are kept, those; else what became of each."""
    to, before = params.text(context.query, "to"), params.number(context.query, "before")
    state = params.one_of(context.query, "status", tuple(listing.STATES))
    kind = params.one_of(context.query, "type", tuple(KINDS))
    kept, found, failed = list[Kept](), list[Mailed](), 0
    reads = context.user.full_role in OPERATOR_READERS
    in_mailbox = context.parts.settings.mails == "kept"
    async with context.parts.database.connection() as connection:
        if in_mailbox:
            kept = await _kept(connection)
        else:
            found = await listing.mailed(connection, state, to, kind, before, PAGE_SIZE + 1)
            failed = await listing.failed_mails(connection)
        names = await search.names(connection, [dealer for one in found if (dealer := _dealer(one.notice))])
        open_now = await inbox.count_open(connection, context) if reads else 0
    shown = [
        one
        for one in kept
        if (to is None or to.lower() in one.mail.headers["To"].lower())
        and (kind is None or one.about.kind == KINDS[kind])
    ]
    following = found[PAGE_SIZE - 1].delivery_id if len(found) > PAGE_SIZE else None
    rows = [
        Row(one, address(one.mail, one.name), _title(one), _about(one.notice, one.notices, names))
        for one in found[:PAGE_SIZE]
    ]
    return Html(
        in_mailbox=in_mailbox,
        sends=context.parts.settings.mails == "sent",
        mails=shown,
        most=MOST_LISTED,
        rows=rows,
        tabs=await tabs.of(context, MAILS, [] if in_mailbox else TABS, {"Failed": failed}, listing.COUNTED),
        notice_tabs=notice_tabs() if reads else (),
        notice_counts={"open": open_now},
        emails=EMAILS,
        filtered=to is not None or state is not None or kind is not None,
        kinds=list(KINDS.items()),
        pages=params.pager(context, MAILS, following, shown=len(rows), word="email"),
    )


async def _kept(connection: Connection) -> list[Kept]:
    mails = [_read(one) for one in await listing.mails(connection, MOST_LISTED)]
    ids = [_NOTICE_NO.findall(one.headers["X-Notice-ID"]) for one in mails]
    told = await listing.told(connection, [int(number) for of in ids for number in of])
    notices = [[told[int(number)] for number in of if int(number) in told] for of in ids]
    names = await search.names(connection, [dealer for one in told.values() if (dealer := _dealer(one))])
    return [Kept(one, _about(next(iter(of), None), len(of), names)) for one, of in zip(mails, notices, strict=True)]


def _dealer(notice: Notice | None) -> int | None:
    """Whom it tells of; None where it is of no dealer."""
    if notice is None or notice.tenant_id != OPERATORS_TENANT:
        return None if notice is None else notice.tenant_id
    named = str(notice.data.get("tenantId", ""))
    return int(named) if named.isdecimal() else None


def _about(notice: Notice | None, notices: int, names: Mapping[int, str]) -> About:
    """Of several notices, that they are several. `names`: of dealers."""
    if notices > 1:
        return About("Daily summary", NOTICES, "Notices")
    if notice is None or notice.notice_type in _LINKS:
        return About("Account" if notice is not None else "")
    text = text_of(notice.notice_type, notice.data)
    kind = KINDS.get(notice.notice_type, "")
    dealer = _dealer(notice)
    path = text.path if notice.tenant_id == OPERATORS_TENANT else f"/console/dealers/{dealer}"
    return About(kind, path, _subject(path) if dealer is None else names.get(dealer, f"Dealer {dealer}"))


def _subject(path: str) -> str:
    """What a page is about: Refunds, globecell."""
    section, _, rest = path.removeprefix("/console/").partition("/")
    return unquote(rest.partition("/")[0]) or _SECTIONS.get(section, section.capitalize())


def _title(one: Mailed) -> str:
    if one.notices > 1:
        return digest_subject(one.notices)
    if one.notice is None:
        return "Notice, no longer kept"
    return _LINKS.get(one.notice.notice_type) or text_of(one.notice.notice_type, one.notice.data).subject


@action(f"{MAILS}/{{tenant_id}}/{{delivery_id}}/resend", OPERATOR_SUPPORT)
async def resend_mail(context: RequestContext) -> Redirect:
    tenant_id, delivery_id = params.path_number(context, "tenant_id"), params.path_number(context, "delivery_id")
    name = await resend.resend(context.parts.database, tenant_id, delivery_id, context.author, context.now)
    return Redirect(MAILS, f"The email to {name} is sent again")


@page(f"{MAILS}/{{mail_id}}", OPERATORS, "operator/notices/mail.html", within=NOTICES)
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
