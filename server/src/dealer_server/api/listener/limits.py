"""How long may a client take, and how much may it hold?"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds. A connection that outlives one is closed at one of the next two sweeps, never before its time."""

    headers: float = 5.0  # from a request's first byte, or from connecting, to the end of its headers
    body: float = 10.0  # from the end of the headers to the end of the body
    idle: float = 75.0  # between two requests
    unauthenticated_idle: float = 75.0  # the same, on a connection without an authenticated call yet
    stalled: float = 30.0  # for 64 KiB of an answer, or the rest of it, to be taken by the client
    linger: float = 2.0  # for a refused client to read the answer and hang up
    retire: float = 10.0  # for idle connections to be used once more, when another process has taken over
    shutdown: float = 10.0  # for requests in flight when the server stops
    first: float = 1.0  # for the first request of a connection, when the server stops
    sweep: float = 0.5  # how often connections are looked at


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server, and one connection of it, may hold."""

    connections: int = 10_000
    per_client: int = 10_000  # connections of one IPv4 address or one IPv6 /64
    head_bytes: int = 32 * 1024
    request_line_bytes: int = 8 * 1024
    headers: int = 100
    pipelined: int = 64  # requests received before the first of them is answered


@dataclass(slots=True)
class Counts:
    """What the listener has refused or closed since it started, for the metrics."""

    malformed: int = 0
    overdue: int = 0
    over_connections: int = 0
    closed_for_others: int = 0
