"""How is a connection to a receiver opened, and to which of its addresses? (specification 6.7)

The address is checked when a socket is created for it. So a name that resolves to another address the second time
(DNS rebinding) cannot bypass the check, nor can a numeric host, which is never resolved.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cache
from ipaddress import ip_address
from itertools import zip_longest
from typing import NamedTuple

from dealer_server.rules.webhooks import endpoint
from dealer_server.rules.webhooks.endpoint import Policy
from dealer_server.webhooks.http_client.connection import Connection
from dealer_server.webhooks.http_client.resolver import Address, AddressResolver
from dealer_server.webhooks.http_client.target import Target

STAGGER_SECONDS = 0.25  # after which the next address is tried as well (RFC 8305)


class NameNotFound(Exception):
    """The host has no address, or looking it up failed."""


class AddressRefused(OSError):
    """Webhooks may not go to this address."""


class Connected(NamedTuple):
    sock: socket.socket
    address: Address
    deadline: float  # for TLS to be agreed upon


class Connector:
    """`trust` replaces the authorities of the system. An attempt at one address, with TLS, takes `connect_seconds`."""

    def __init__(self, policy: Policy, resolver: AddressResolver, trust: ssl.SSLContext | None, connect_seconds: float):
        self._policy = policy
        self._resolver = resolver
        self._tls = trust or verifying()
        self._connect_seconds = connect_seconds

    async def open(self, target: Target) -> Connection:
        """A new connection. Raises NameNotFound, AddressRefused, TimeoutError, ssl.SSLError or another OSError."""
        left = await self._addresses(target)
        failure: OSError | None = None
        while left:
            try:
                connected = await self._connect_to_one(left)
            except OSError as error:
                failure = failure or error  # that TLS failed says more than that no other address was left
                break
            left.remove(connected.address)
            try:
                async with asyncio.timeout_at(connected.deadline):
                    return await self._start(target, connected.sock)
            except OSError as error:
                failure = error
        assert failure is not None, "there is an address at least"
        raise failure

    async def _addresses(self, target: Target) -> list[Address]:
        if numeric := numeric_address(target.host, target.port):
            return [numeric]
        try:
            addresses = await self._resolver.resolve(target.host, target.port)
        except OSError as error:
            raise NameNotFound(target.host) from error
        if not addresses:
            raise NameNotFound(target.host)
        return interleaved(addresses)

    async def _start(self, target: Target, sock: socket.socket) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            sock=sock,
            ssl=self._tls if target.tls else None,
            server_hostname=target.server_hostname if target.tls else None,
        )
        return connection

    async def _connect_to_one(self, addresses: Sequence[Address]) -> Connected:
        """The first connection made. An address is tried once the one before it has failed or takes long."""
        if len(addresses) == 1:
            return await self._connect(addresses[0])
        waiting, failures = deque(addresses), list[BaseException]()
        running: set[asyncio.Task[Connected]] = set()
        try:
            while waiting or running:
                if waiting:
                    running.add(asyncio.create_task(self._connect(waiting.popleft())))
                patience = STAGGER_SECONDS if waiting else None
                done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    running.remove(task)
                    failure = task.exception()
                    if failure is None:
                        return task.result()
                    failures.append(failure)
        finally:
            for task in running:
                task.cancel()
                task.add_done_callback(_close_unused)
        raise next((one for one in reversed(failures) if not isinstance(one, AddressRefused)), failures[-1])

    async def _connect(self, address: Address) -> Connected:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._connect_seconds
        sock = checked_socket(self._policy, address)
        try:
            sock.setblocking(False)
            async with asyncio.timeout_at(deadline):
                await loop.sock_connect(sock, address[4])
        except BaseException:
            sock.close()
            raise
        return Connected(sock, address, deadline)


def _close_unused(task: asyncio.Task[Connected]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().sock.close()


def checked_socket(policy: Policy, address: Address) -> socket.socket:
    """A socket for this address. Raises AddressRefused."""
    family, kind, protocol, _, destination = address
    if not endpoint.address_allowed(destination[0], policy):
        raise AddressRefused
    return socket.socket(family, kind, protocol)


def numeric_address(host: str, port: int) -> Address | None:
    """The address of a host that is not a name."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    return family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port)


def interleaved(addresses: Iterable[Address]) -> list[Address]:
    """IPv6 and IPv4 in turn, the kind of the first address first: where one leads nowhere, little time is lost."""
    kinds: dict[int, list[Address]] = {}
    for address in addresses:
        kinds.setdefault(address[0], []).append(address)
    return [address for turn in zip_longest(*kinds.values()) for address in turn if address is not None]


@cache
def verifying() -> ssl.SSLContext:
    """One for the process: to read whom the machine trusts takes longer than most calls."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
