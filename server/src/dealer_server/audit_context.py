"""Who acts, and from where? Set once per command or request, like a trace id, and written to the audit log."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import NamedTuple

source: ContextVar[str | None] = ContextVar("source", default=None)
"""`cli alice@host pid 12`, or the client address of a request; None where it was not set."""


at: ContextVar[datetime | None] = ContextVar("at", default=None)
"""The time of acts of a made-up past; None: the database's, when they are recorded."""


@contextmanager
def acting_at(moment: datetime | None) -> Iterator[None]:
    token = at.set(moment)
    try:
        yield
    finally:
        at.reset(token)


@contextmanager
def acting_from(address: str) -> Iterator[None]:
    token = source.set(address)
    try:
        yield
    finally:
        source.reset(token)


class Actor(NamedTuple):
    """Who acts, from where, and why: carried with a request that is executed in a batch with others."""

    author: str
    source: str | None
    reason: str | None

    @classmethod
    def current(cls, author: str, reason: str | None) -> "Actor":
        return cls(author, source.get(), reason)
