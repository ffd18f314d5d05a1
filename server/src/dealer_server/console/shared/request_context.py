"""What does a view know of a request, and what may it answer?

A view gathers and decides nothing. A write calls the operation that the command line and the API call, with
`context.author` as its author.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from dealer_server.db.database import Database
from dealer_server.db.reads import Reads
from dealer_server.db.sealing import DataKeys, MasterKeys
from dealer_server.notices.invitation import InvitationMailer
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.orders.place import OrderBatcher
from dealer_server.operations.profiles.send_sms import SmsSender
from dealer_server.operations.profiles.suspend import Suspender
from dealer_server.operations.profiles.void import VoidBatcher
from dealer_server.operations.recharges.place import RechargeBatcher
from dealer_server.operations.refunds.request import RefundBatcher
from dealer_server.operations.users.password import Passwords
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.settings import Settings
from dealer_server.store.console.user import Session
from dealer_server.webhooks.outbound import Outbound


class User(msgspec.Struct, frozen=True):
    """Who signed in. tenant_id None: an operator; else a user of that dealer, who sees only what is the dealer's."""

    user_id: int
    name: str
    role: str
    tenant_id: int | None

    @property
    def kind(self) -> str:
        return "op" if self.tenant_id is None else "dealer"

    @property
    def full_role(self) -> str:
        """With its kind, such as dealer:admin."""
        return f"{self.kind}:{self.role}"


class Parts(NamedTuple):
    """What views work with."""

    database: Database
    reads: Reads
    data_keys: DataKeys
    master_keys: MasterKeys
    links: Links
    settings: Settings
    catalogue: Callable[[], Catalogue]
    orders: OrderBatcher
    recharges: RechargeBatcher
    refunds: RefundBatcher
    voids: VoidBatcher
    suspender: Suspender
    sms: SmsSender
    outbound: Outbound
    callbacks: Policy
    passwords: Passwords
    invitations: InvitationMailer


class RequestContext(NamedTuple):
    """One request of a user who is signed in.

    `url`: path and query. `path`: the parameters of the path. `form`: what the user filled in; `files`: uploads by
    field. `csrf` is the token that every form carries,
    `who` the name of its user, sealed. `recently_authenticated`: the password was given in the last
    5 minutes. `partial`: a page renews a part of itself.
    """

    user: User
    parts: Parts
    now: datetime
    url: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    files: Mapping[str, bytes]
    csrf: str
    who: str
    recently_authenticated: bool
    partial: bool
    address: str
    session: Session

    @property
    def tenant_id(self) -> int:
        """The dealer this user belongs to."""
        assert self.user.tenant_id is not None, "an operator belongs to no dealer"
        return self.user.tenant_id

    @property
    def author(self) -> str:
        """For the audit log."""
        return f"console:{self.user.name}"

    def require_recent_authentication(self) -> None:
        """Raises ReauthenticationRequired."""
        if not self.recently_authenticated:
            raise ReauthenticationRequired


class Html:
    """The page's template with these fields. `template` replaces the declared one."""

    def __init__(self, status: int = 200, /, *, template: str = "", **fields: Any):
        self.status = status
        self.template = template
        self.fields = fields


class Redirect(msgspec.Struct, frozen=True):
    """To another page, after a write. `flash` is shown there once; `failed` shows it as an error. `filled`: its form
    shows again what was entered, which then needs no place in the address; of a write that `failed`."""

    to: str
    flash: str = ""
    failed: bool = False
    filled: bool = False


class Download(msgspec.Struct, frozen=True):
    """A file, streamed as it is made."""

    name: str
    media_type: str
    chunks: AsyncIterator[bytes]


class Embedded(msgspec.Struct, frozen=True):
    """HTML that others have written, shown in a frame of ours: no script runs in it and nothing is loaded."""

    html: str


class NotFound(Exception):
    """There is no such thing, or it is not this user's: the same page for both."""


class Forbidden(Exception):
    """The page exists, but not for this role."""


class ReauthenticationRequired(Exception):
    """The password is asked for again before the request goes on. The message says what was wrong with the last one."""


Answer = Html | Redirect | Download | Embedded
View = Callable[[RequestContext], Awaitable[Answer]]
Count = Callable[[RequestContext], Awaitable[int]]
