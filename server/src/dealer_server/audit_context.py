"""From where does somebody act? Said once per command or request, like a trace id; the audit log keeps it."""

from contextvars import ContextVar
from typing import NamedTuple

source: ContextVar[str | None] = ContextVar("source", default=None)
"""`cli alice@host pid 12`, or the address a request came from; None where nobody said."""


class Actor(NamedTuple):
    """What a person does that is carried out in a batch, beside what others do: who, from where, and why."""

    author: str
    source: str | None
    reason: str | None

    @classmethod
    def here(cls, author: str, reason: str | None) -> "Actor":
        return cls(author, source.get(), reason)
