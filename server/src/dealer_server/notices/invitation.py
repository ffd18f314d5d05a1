"""How does an invitation reach somebody? By a mail that is sent at once: the link is kept nowhere to send it later."""

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.notices.mailer import Mailer, NotSent, mailer
from dealer_server.notices.message import Sender, sender_of, with_link
from dealer_server.operations.users import invitations
from dealer_server.operations.users.invitations import Invited
from dealer_server.rules import dates
from dealer_server.rules.notices.texts import Text, isolated
from dealer_server.settings import Settings

SEND_SECONDS = 10.0  # somebody waits for the page


class InvitationMailer:
    """`by_mail` None: no mails are sent, and the link is to be copied."""

    def __init__(self, database: Database, by_mail: Mailer | None, sender: Sender, clock: Clock):
        self._database = database
        self._by_mail = by_mail
        self._sender = sender
        self._clock = clock

    @classmethod
    def open(cls, settings: Settings, database: Database, clock: Clock) -> "InvitationMailer":
        """Raises OSError, ssl.SSLError for a CA that cannot be read."""
        return cls(database, mailer(settings, database, clock, SEND_SECONDS), sender_of(settings), clock)

    def link(self, invited: Invited) -> str:
        """The whole address."""
        return f"{self._sender.base_url}{invited.path}"

    async def send(self, invited: Invited) -> str:
        """What became of the mail, in words for whoever invites; "" where no mails are sent."""
        if self._by_mail is None:
            return ""
        text = _text(self._sender, invited)
        message = with_link(self._sender, "invitation", invited.address, text, invited.token, self._clock())
        problem = None
        try:
            await self._by_mail.send(invited.address, message)
        except NotSent as why:
            problem = str(why)
        await invitations.record_mail(self._database, invited, problem, self._clock())
        return f"The mail was not taken: {problem}" if problem else f"It was mailed to {invited.address}"


def _text(sender: Sender, invited: Invited) -> Text:
    whose = isolated(invited.tenant_name) if invited.tenant_name else f"the operator of {isolated(sender.platform)}"
    return Text(
        f"You are invited to {whose}",
        "Choose a password, and you are signed in to the console. The link works once. If you expect no invitation,"
        " ignore this mail.",
        [
            ("Your name in the console", invited.address),
            ("Role", invited.role),
            ("Link valid until", f"{dates.minute(invited.expires_at)} UTC"),
        ],
        invited.path,
        "Choose your password",
    )
