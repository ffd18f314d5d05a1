"""How are passwords stored and checked? As argon2id hashes, one at a time, so that dealers' calls are not delayed."""

import asyncio
import functools
import secrets
from collections.abc import Callable
from typing import TypeVar

import argon2

from dealer_server.operations.errors import OperatorError
from dealer_server.operations.random_text import base62

T = TypeVar("T")
CONCURRENCY = 1
QUEUE_LENGTH = 50
MIN_LENGTH, MAX_LENGTH = 12, 200  # characters
HASHER = argon2.PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)
"""The second choice of RFC 9106 with less memory: 32 MiB and about 50 ms each."""


class Busy(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """Hashes and checks passwords in threads. `hasher` sets the cost of new hashes; a hash carries its own cost."""

    def __init__(self, hasher: argon2.PasswordHasher = HASHER) -> None:
        self._hasher = hasher
        self._running = asyncio.Semaphore(CONCURRENCY)
        self._queued = 0

    @functools.cached_property
    def _dummy(self) -> str:
        """The hash that a password is checked against where there is no such user. Computed at the first sign-in."""
        return self._hasher.hash(secrets.token_hex(16))

    async def hash(self, password: str) -> str:
        """The encoded hash. Raises Busy."""
        return await self._run(lambda: self._hasher.hash(password))

    async def fits(self, encoded: str | None, password: str) -> bool:
        """Whether a password fits an encoded hash. None (no such user) takes as long and is False. Raises Busy."""

        def verified() -> bool:
            dummy = self._dummy
            try:
                return self._hasher.verify(encoded or dummy, password)
            except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
                return False

        return len(password) <= MAX_LENGTH and await self._run(verified) and encoded is not None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._queued >= QUEUE_LENGTH:
            raise Busy
        self._queued += 1
        try:
            async with self._running:
                return await asyncio.to_thread(work)
        finally:
            self._queued -= 1


def generate() -> str:
    """A password for somebody else, 119 bits."""
    return base62(20)


def require_good(password: str, name: str) -> None:
    """Raises OperatorError."""
    if not MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise OperatorError(f"a password has {MIN_LENGTH} to {MAX_LENGTH} characters")
    if name.lower() in password.lower() or len(set(password)) < 5:
        raise OperatorError("this password is easily guessed: do not use your name, or a few characters repeated")
