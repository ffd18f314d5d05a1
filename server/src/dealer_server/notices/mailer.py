"""How does a mail leave? By SMTP, or in `dev` to a mailbox that the console shows."""

import ssl
from email.message import EmailMessage
from typing import NamedTuple, Protocol

import aiosmtplib
from aiosmtplib import SMTPRecipientsRefused, SMTPResponseException

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.settings import Settings
from dealer_server.store.notices import listing

SEND_SECONDS = 30.0
MOST_KEPT = 500
_DEFAULT_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_SERVER_REFUSES_US = 530, 534, 535, 538  # authentication: an operator repairs that, so the mail is tried again


class NotSent(Exception):
    """A mail was not taken. The message holds no secret. `final`: it never will be."""

    def __init__(self, problem: str, *, final: bool = False):
        super().__init__(problem)
        self.final = final


class Mailer(Protocol):
    async def send(self, to: str, message: EmailMessage) -> None:
        """Raises NotSent."""
        ...


class SmtpServer(NamedTuple):
    """`password` is sent over TLS alone. `trust`: for the server's certificate."""

    host: str
    port: int
    encryption: str
    user: str
    password: str
    sender: str
    trust: ssl.SSLContext

    def __repr__(self) -> str:
        return f"SmtpServer({self.host}:{self.port}, {self.encryption})"


class SmtpMailer:
    """A connection for each mail: they are few. With starttls nothing is sent to a server that does not offer it."""

    def __init__(self, server: SmtpServer, seconds: float = SEND_SECONDS):
        self._server = server
        self._seconds = seconds

    async def send(self, to: str, message: EmailMessage) -> None:
        server = self._server
        try:
            await aiosmtplib.send(
                message.as_bytes(),
                sender=server.sender,
                recipients=[to],
                hostname=server.host,
                port=server.port,
                username=server.user or None,
                password=server.password or None,
                timeout=self._seconds,
                use_tls=server.encryption == "tls",
                start_tls=server.encryption == "starttls",
                tls_context=None if server.encryption == "none" else server.trust,
            )
        except SMTPRecipientsRefused as refused:
            code, text = refused.recipients[0].code, refused.recipients[0].message
            raise NotSent(_line(code, text), final=code >= 500) from None
        except SMTPResponseException as refused:
            if refused.code in _SERVER_REFUSES_US:
                raise NotSent(f"{refused.code} the mail server refuses user or password") from None
            final = refused.code >= 500 and isinstance(refused, aiosmtplib.SMTPDataError)  # else it is our setting
            raise NotSent(_line(refused.code, refused.message), final=final) from None
        except ssl.SSLError as error:
            raise NotSent(f"TLS: {error.reason or 'failed'}") from None
        except (aiosmtplib.SMTPException, OSError) as error:
            raise NotSent(f"{type(error).__name__}: the mail server cannot be reached, or does not offer TLS") from None


class Mailbox:
    """Keeps mails for /console/mails."""

    def __init__(self, database: Database, clock: Clock):
        self._database = database
        self._clock = clock

    async def send(self, to: str, message: EmailMessage) -> None:
        async with self._database.transaction() as connection:
            await listing.keep_mail(connection, message.as_bytes(), MOST_KEPT, self._clock())


def mailer(settings: Settings, database: Database, clock: Clock, seconds: float = SEND_SECONDS) -> Mailer | None:
    """None where no mails are made. Raises OSError, ssl.SSLError for a CA that cannot be read."""
    if settings.mails == "sent":
        return SmtpMailer(smtp_server(settings), seconds)
    return Mailbox(database, clock) if settings.mails == "kept" else None


def smtp_server(settings: Settings) -> SmtpServer:
    """Raises OSError, ssl.SSLError for a CA that cannot be read."""
    return SmtpServer(
        host=settings.smtp_host,
        port=settings.smtp_port or _DEFAULT_PORTS[settings.smtp_tls],
        encryption=settings.smtp_tls,
        user=settings.smtp_user,
        password=settings.smtp_password.get_secret_value(),
        sender=settings.smtp_from,
        trust=ssl.create_default_context(cafile=str(settings.smtp_ca) if settings.smtp_ca else None),
    )


def _line(code: int, text: str) -> str:
    return f"{code} {' '.join(text.split())}"[:300]
