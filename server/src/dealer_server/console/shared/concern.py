"""One sentence about what an order waits for, or what went wrong with it, at the head of its page."""

from datetime import datetime
from typing import Generic, NamedTuple, TypeVar

from dealer_server.rules.incidents.incident import Level

Acts = TypeVar("Acts")


class Link(NamedTuple):
    label: str
    address: str


class Concern(NamedTuple, Generic[Acts]):
    """`about`: what the sentence is about. `since`: since when its supplier has been `ailing` ("down", "paused").
    `next_at`: when the next attempt is made by itself. `acts`: what the reader can do."""

    level: Level
    text: str
    about: str = ""
    ailing: str = ""
    since: datetime | None = None
    next_at: datetime | None = None
    link: Link | None = None
    acts: Acts | None = None
