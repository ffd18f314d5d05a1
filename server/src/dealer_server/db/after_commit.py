"""Callbacks that run once the current transaction is committed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_after_commit: ContextVar[list[Callable[[], None]] | None] = ContextVar("after_commit", default=None)


def after_commit(callback: Callable[[], None]) -> None:
    """Calls `callback` once the current transaction is committed, never if it is rolled back; at once outside of a
    transaction."""
    callbacks = _after_commit.get()
    if callbacks is None:
        callback()
    else:
        callbacks.append(callback)


@contextmanager
def committing() -> Iterator[None]:
    """Wraps a transaction: calls what was handed to `after_commit` inside, unless the transaction raised."""
    before, callbacks = _after_commit.get(), list[Callable[[], None]]()
    _after_commit.set(callbacks)
    try:
        yield
    finally:
        _after_commit.set(before)
    for callback in callbacks:
        callback()
