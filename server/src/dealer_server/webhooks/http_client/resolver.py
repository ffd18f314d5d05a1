"""Which addresses does a name have? getaddrinfo in threads, and its results for ten seconds."""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

DNS_SECONDS = 2.0
DNS_KEPT_SECONDS = 10.0
MOST_LOOKUPS = 256
MOST_KEPT = 1_000

Address = tuple[int, int, int, str, Any]  # an entry of getaddrinfo: family, type, protocol, canonical name, address


class AddressResolver(Protocol):
    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of a name, the one to try first at the front. Raises OSError."""
        ...


class Resolver:
    """2 s at most for each caller, one lookup at a time per name. Each caller of a name begins at its next address.

    A lookup cannot be cancelled. One that hangs keeps its thread and delays neither other names nor the exit.
    """

    def __init__(
        self,
        getaddrinfo: Callable[..., list[Any]] = socket.getaddrinfo,
        seconds: float = DNS_SECONDS,
        kept_seconds: float = DNS_KEPT_SECONDS,
    ):
        self._getaddrinfo = getaddrinfo
        self._seconds = seconds
        self._kept_seconds = kept_seconds
        self._running: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}
        self._kept: dict[tuple[str, int], tuple[float, list[Address]]] = {}  # until when; the oldest first

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        kept_until, addresses = self._kept.get((host, port), (0.0, []))
        if kept_until <= asyncio.get_running_loop().time():
            addresses = await self._look_up(host, port)
        if not addresses:
            raise OSError(f"{host} has no address")
        found = addresses[:]
        addresses.append(addresses.pop(0))
        return found

    async def _look_up(self, host: str, port: int) -> list[Address]:
        lookup = self._running.get((host, port)) or self._begin(host, port)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.shield(lookup)
        except TimeoutError:
            raise OSError(f"looking up {host} took longer than {self._seconds:g} s") from None
        except UnicodeError:
            raise OSError(f"{host} cannot be looked up") from None

    def _begin(self, host: str, port: int) -> asyncio.Future[list[Address]]:
        if len(self._running) >= MOST_LOOKUPS:
            raise OSError("too many lookups are under way")
        loop = asyncio.get_running_loop()
        lookup: asyncio.Future[list[Address]] = loop.create_future()

        def ended(addresses: list[Address], error: Exception | None) -> None:
            del self._running[host, port]
            if error is None:
                self._keep(host, port, addresses, loop.time() + self._kept_seconds)
                lookup.set_result(addresses)
            else:
                lookup.set_exception(error)
                lookup.exception()  # marks it as retrieved: the caller may have timed out

        def resolve() -> None:
            addresses: list[Address] = []
            error: Exception | None = None
            try:
                addresses = self._getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop may have closed meanwhile
                loop.call_soon_threadsafe(ended, addresses, error)

        threading.Thread(target=resolve, name="webhook-dns", daemon=True).start()
        self._running[host, port] = lookup
        return lookup

    def _keep(self, host: str, port: int, addresses: list[Address], until: float) -> None:
        self._kept.pop((host, port), None)
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[host, port] = until, addresses
