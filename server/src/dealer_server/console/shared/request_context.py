"""What is a context to the console, and what may a page answer?

A view gathers and answers one of these; it decides nothing. A write calls the operation that the command line and the
API call, with `context.author` as its author.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys, MasterKeys
from dealer_server.operations.profiles.void import VoidBatcher
from dealer_server.operations.refunds.request import RefundBatcher
from dealer_server.operations.users.password import Passwords
from dealer_server.rules.delivery.endpoint import Policy
from dealer_server.rules.orders.snapshot import Links
from dealer_server.settings import Settings
from dealer_server.store.console.user import Session
from dealer_server.webhooks.outbound import Outbound


class User(msgspec.Struct, frozen=True):
    """Who signed in. tenant_id None: an operator; else a person of that dealer, who sees only what is the dealer's."""

    user_id: int
    name: str
    role: str
    tenant_id: int | None


class Parts(NamedTuple):
    """What views work with."""

    database: Database
    data_keys: DataKeys
    master_keys: MasterKeys
    links: Links
    settings: Settings
    refunds: RefundBatcher
    voids: VoidBatcher
    outbound: Outbound
    callbacks: Policy
    passwords: Passwords


class RequestContext(NamedTuple):
    """One request of somebody who is signed in. `form`: the fields of a write, texts only; files apart by name.
    `csrf` stands in every form. `sure`: signed in or re-authenticated within the last 5 minutes."""

    user: User
    parts: Parts
    now: datetime
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    files: Mapping[str, bytes]
    csrf: str
    sure: bool
    address: str
    session: Session

    @property
    def tenant_id(self) -> int:
        """The dealer this person belongs to."""
        assert self.user.tenant_id is not None, "an operator belongs to no dealer"
        return self.user.tenant_id

    @property
    def author(self) -> str:
        """For the audit log."""
        return f"console:{self.user.name}"


class Page(msgspec.Struct, frozen=True):
    """A template of console/templates with its fields."""

    template: str
    fields: Mapping[str, Any] = {}
    status: int = 200


class Redirect(msgspec.Struct, frozen=True):
    """To another page, after a write. `said` is shown there once; `failed` shows it as an error."""

    to: str
    said: str = ""
    failed: bool = False


class Download(msgspec.Struct, frozen=True):
    """A file, streamed as it is made."""

    name: str
    media_type: str
    chunks: AsyncIterator[bytes]


class NotFound(Exception):
    """There is no such thing, or it is not this person's: the same page for both."""


class ReauthenticationRequired(Exception):
    """The password is asked for again; then the page is shown."""


Answer = Page | Redirect | Download
View = Callable[[RequestContext], Awaitable[Answer]]
Count = Callable[[RequestContext], Awaitable[int]]


class Route(NamedTuple):
    """A page. `roles`: who may open it. A GET changes nothing, save that looking at secrets is written down; a POST
    carries the CSRF token and a value of its form's own: the view is called for a form of ours, and once. What an
    operation refuses the view lets pass: the door leads back. `menu`: where it stands in the menu, if it does."""

    method: Literal["GET", "POST"]
    path: str
    roles: tuple[str, ...]
    view: View
    menu: str = ""
