"""Which connections may stay open when there are too many?"""

from collections import OrderedDict
from collections.abc import Sized
from typing import Protocol

from dealer_server.api.client_network import client_network
from dealer_server.api.listener.limits import Limits


class Connection(Protocol):
    """`exempt`: it counts for no client. `connections` holds all that are open."""

    peer: str
    exempt: bool
    authenticated: bool
    client_connections: "ClientConnections | None"

    @property
    def connections(self) -> Sized: ...

    def close_for_another(self) -> None: ...

    def __hash__(self) -> int: ...


class ClientConnections:
    """The connections of one client: how many, and which of them are idle, the longest first."""

    __slots__ = ("count", "idle")

    def __init__(self) -> None:
        self.count = 0
        self.idle: OrderedDict[Connection, None] = OrderedDict()


class Connections:
    """Which connections may stay. When there are too many, the one that has been idle longest is closed: of the same
    client, or of all; those without an authenticated call go first."""

    def __init__(self) -> None:
        self.retiring = False
        """Whether each is closed after its next answer."""
        self._clients: dict[str | bytes, ClientConnections] = {}
        self._idle_unauthenticated: OrderedDict[Connection, None] = OrderedDict()
        self._idle_authenticated: OrderedDict[Connection, None] = OrderedDict()

    def admit(self, connection: Connection, limits: Limits) -> bool:
        """Counts a new connection. False where there are too many and none is idle."""
        if not connection.exempt:
            network = client_network(connection.peer)
            client = connection.client_connections = self._clients.setdefault(network, ClientConnections())
            client.count += 1
            if client.count > limits.per_client and not self._close_longest_idle(client.idle):
                return False
        if len(connection.connections) > limits.connections:
            idle = self._idle_unauthenticated or self._idle_authenticated
            if not self._close_longest_idle(idle):
                return False
        self.mark_idle(connection)
        return True

    def remove(self, connection: Connection) -> None:
        self.mark_busy(connection)
        if connection.client_connections is not None:
            connection.client_connections.count -= 1
            if not connection.client_connections.count:
                self._clients.pop(client_network(connection.peer), None)
            connection.client_connections = None

    def mark_idle(self, connection: Connection) -> None:
        """No request is under way on it."""
        (self._idle_authenticated if connection.authenticated else self._idle_unauthenticated)[connection] = None
        if connection.client_connections is not None:
            connection.client_connections.idle[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        self._idle_authenticated.pop(connection, None)
        self._idle_unauthenticated.pop(connection, None)
        if connection.client_connections is not None:
            connection.client_connections.idle.pop(connection, None)

    def _close_longest_idle(self, idle: OrderedDict[Connection, None]) -> bool:
        if not idle:
            return False
        connection = next(iter(idle))
        self.mark_busy(connection)
        connection.close_for_another()
        return True
