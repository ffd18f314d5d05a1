"""How is a password kept, and does one fit? argon2id, one at a time, so that calls of dealers do not feel it."""

import asyncio
import functools
import secrets
from collections.abc import Callable
from typing import TypeVar

import argon2

from dealer_server.operations.tenants.tenant import BASE62, OperatorError

T = TypeVar("T")
AT_ONCE = 1
WAITING = 50
SHORTEST, LONGEST = 12, 200  # characters
DEAR = argon2.PasswordHasher(time_cost=3, memory_cost=32 * 1024, parallelism=1)
"""RFC 9106's second choice, less memory: 32 MiB and about 50 ms each."""


class Busy(Exception):
    """Too many passwords are being looked at."""


class Passwords:
    """In threads. How dear a password is to check stands in its encoded form; `hasher` says it for new ones."""

    def __init__(self, hasher: argon2.PasswordHasher = DEAR) -> None:
        self._hasher = hasher
        self._running = asyncio.Semaphore(AT_ONCE)
        self._wanted = 0

    @functools.cached_property
    def _nobodys(self) -> str:
        """What a password is compared with where there is no such user. Not made before somebody signs in."""
        return self._hasher.hash(secrets.token_hex(16))

    async def hash(self, password: str) -> str:
        """The encoded form. Raises Busy."""
        return await self._run(lambda: self._hasher.hash(password))

    async def fits(self, encoded: str | None, password: str) -> bool:
        """None, where there is no such user, takes as long as any other and is False. Raises Busy."""

        def verified() -> bool:
            nobodys = self._nobodys
            try:
                return self._hasher.verify(encoded or nobodys, password)
            except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
                return False

        return len(password) <= LONGEST and await self._run(verified) and encoded is not None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._wanted >= WAITING:
            raise Busy
        self._wanted += 1
        try:
            async with self._running:
                return await asyncio.to_thread(work)
        finally:
            self._wanted -= 1


def made() -> str:
    """A password for somebody else, 119 bits."""
    return "".join(secrets.choice(BASE62) for _ in range(20))


def require_good(password: str, name: str) -> None:
    """Raises OperatorError."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise OperatorError(f"a password has {SHORTEST} to {LONGEST} characters")
    if name.lower() in password.lower() or len(set(password)) < 5:
        raise OperatorError("this password is easily guessed: do not use your name, or a few characters repeated")
