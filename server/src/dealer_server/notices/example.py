"""How does a user see what a notice looks like? A made-up one is mailed at once, and counts as no notice."""

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.notices.invitation import SEND_SECONDS
from dealer_server.notices.mailer import NotSent, mailer
from dealer_server.notices.message import sender_of, with_link
from dealer_server.operations.users import attempts
from dealer_server.rules.notices.notice import AnyNoticeType
from dealer_server.rules.notices.samples import sample
from dealer_server.settings import Settings

MAILS_IN_A_WINDOW = 10
"""Of one user: each is sent while the page waits."""


async def send(
    settings: Settings, database: Database, user_id: int, to: str, notice_type: AnyNoticeType, clock: Clock
) -> str:
    """Why it was not sent; "" where it was. Raises TooManyTries; OSError, ssl.SSLError for a CA that cannot be read."""
    by_mail = mailer(settings, database, clock, SEND_SECONDS)
    if by_mail is None:
        return "no mail server is set up"
    await attempts.count(database, attempts.subject("test notice", str(user_id)), None, clock(), MAILS_IN_A_WINDOW)
    now, text = clock(), sample(notice_type)
    text = text._replace(subject=f"Test: {text.subject}", sentence=f"A test with made-up values. {text.sentence}")
    try:
        await by_mail.send(to, with_link(sender_of(settings), "test", to, text, now.isoformat(), now))
    except NotSent as why:
        return str(why)
    return ""
