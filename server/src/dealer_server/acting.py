"""From where does somebody act? Said once per command or request, like a trace id; the audit log keeps it."""

from contextvars import ContextVar

source: ContextVar[str | None] = ContextVar("source", default=None)
"""`cli alice@host pid 12`, or the address a request came from; None where nobody said."""
