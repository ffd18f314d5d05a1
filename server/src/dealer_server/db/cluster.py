"""Which host of several leads? For a DSN that names several hosts and asks for one that takes writes.

A host that freezes keeps its connections open and answers nothing: its kernel goes on acknowledging, so keepalives do
not notice. Whoever notices the silence calls `look`, which asks every host and drops this process's connections to all
that do not lead (docs/decisions/0047-a-leader-that-freezes.md). A DSN with one host has no Cluster.
"""

import asyncio
import re
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakKeyDictionary

import asyncpg

from dealer_server.db import pooler
from dealer_server.db.errors import LOGIN_REJECTED, SHUT, UNREACHABLE, logins

CONNECT_SECONDS = 2.0  # for each host
ASK_SECONDS = 1.0
_HOST = re.compile(r"(\[(?P<v6>[^\]]*)\]|(?P<name>[^:]*))(:(?P<port>[0-9]+))?")
# The timeline that is written now: that of the last checkpoint lags behind a promotion.
_ROLE = """
    SELECT current_setting('transaction_read_only')::bool AS read_only,
           (SELECT system_identifier FROM pg_control_system()) AS system,
           CASE WHEN pg_is_in_recovery() THEN 0
                ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int END AS timeline
"""


class Host(NamedTuple):
    """A name, an address or the folder of a socket; and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Role(NamedTuple):
    """`system`: the database cluster. `timeline`: each promotion begins a higher one; 0 for a standby."""

    read_only: bool
    system: int
    timeline: int


@cache
def cluster_of(dsn: str) -> "Cluster | None":
    """The same for all connections of this process; None where the DSN names one host, or does not ask for a leader."""
    wanted = parse_qs(urlsplit(dsn).query).get("target_session_attrs", [""])[-1]
    hosts = hosts_of(dsn)
    return Cluster(dsn, hosts) if len(hosts) > 1 and wanted in ("read-write", "primary") else None


def hosts_of(dsn: str) -> list[Host]:
    """As asyncpg reads them: from the address, or else from the parameters host and port."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    named = unquote(parts.netloc.rpartition("@")[2]) or query.get("host", [""])[-1]
    ports = query.get("port", [""])[-1].split(",")
    hosts = []
    for at, text in enumerate(named.split(",")):
        found = _HOST.fullmatch(text)
        assert found is not None, "settings.py has checked it"
        port = found["port"] or ports[at if at < len(ports) else 0] or 5432
        hosts.append(Host(found["v6"] or found["name"], int(port)))
    return hosts


async def open_connection(dsn: str, **options: Any) -> asyncpg.Connection:
    """As asyncpg.connect, but to the host that leads where the DSN names several, and also through a pooler. Counts
    logins that the server rejects."""
    try:
        return await _open(dsn, **options)
    except LOGIN_REJECTED:
        logins.rejected += 1
        raise


async def _open(dsn: str, **options: Any) -> asyncpg.Connection:
    cluster = cluster_of(dsn)
    if cluster is not None:
        return await cluster.connect(**options)
    try:
        return await asyncpg.connect(dsn, **options)
    except asyncpg.ProtocolViolationError as error:
        if not pooler.is_refusal(error):
            raise
        return await pooler.open_pooled(dsn, **options)


class Cluster:
    """`leader`: the host that leads, as far as this process knows. `watched`: somebody calls `look` all the time;
    until that finds a leader connections are refused at once."""

    def __init__(self, dsn: str, hosts: list[Host]):
        self._dsn = dsn
        self._hosts = hosts
        self._timelines: dict[int, int] = {}
        self._connections: WeakKeyDictionary[asyncpg.Connection, Host] = WeakKeyDictionary()
        self.leader: Host | None = None
        self.watched = False

    async def connect(self, **options: Any) -> asyncpg.Connection:
        """A connection to the host that leads. Each is tried for CONNECT_SECONDS, the one that led last before others.
        A process that knows no leader asks all first: one that was frozen may believe that it still leads."""
        if self.leader is None and not self.watched:
            await self.look()
        failed: BaseException = asyncpg.TargetServerAttributeNotMatched("no host leads")
        for host in sorted(self._hosts, key=lambda host: host != self.leader) if self.leader else ():
            try:
                return await self._connect_to_leader(host, options)
            except UNREACHABLE as error:
                failed = error
        raise failed

    async def look(self) -> None:
        """Asks every host whether it leads and drops the connections to the others; all of them where none leads.

        A dropped connection ends nothing at the server: a COMMIT that is under way there goes on, and whoever sent it
        looks for its outcome. Nothing is dropped while a host that is up does not say what it is; its error is raised
        where no leader is known.
        """
        answers = await asyncio.gather(*map(self._ask, self._hosts))
        leading = [
            (answer.timeline, host)
            for host, answer in zip(self._hosts, answers, strict=True)
            if isinstance(answer, Role) and self._leads(answer)
        ]
        refused = [answer for answer in answers if isinstance(answer, Exception)]
        if refused and not leading:
            if self.leader is None:
                raise refused[0]
            return
        self.leader = max(leading)[1] if leading else None
        for connection, host in list(self._connections.items()):
            if host != self.leader:
                connection.terminate()

    async def _ask(self, host: Host) -> Role | Exception | None:
        """None: it is silent or out of reach. An error: it is up and refuses to tell."""
        try:
            connection = await self._connect_to(host, ASK_SECONDS, {})
        except (*SHUT, OSError, EOFError, TimeoutError):
            return None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            return error
        try:
            role = await _role(connection, ASK_SECONDS)
        except UNREACHABLE:
            return None
        finally:
            connection.terminate()
        return role

    async def _connect_to_leader(self, host: Host, options: dict[str, Any]) -> asyncpg.Connection:
        connection = await self._connect_to(host, CONNECT_SECONDS, options)
        try:
            leads = self._leads(await _role(connection, CONNECT_SECONDS))
        except BaseException:
            connection.terminate()
            raise
        if not leads:
            connection.terminate()
            raise asyncpg.TargetServerAttributeNotMatched(f"{host} does not lead")
        self.leader = host
        self._connections[connection] = host
        return connection

    async def _connect_to(self, host: Host, seconds: float, options: dict[str, Any]) -> asyncpg.Connection:
        there = {"host": host.host, "port": host.port, "target_session_attrs": "any", "timeout": seconds}
        return await asyncpg.connect(self._dsn, **{**options, **there})

    def _leads(self, role: Role) -> bool:
        """A host on an older timeline than was seen led once, and does not know yet that another was promoted."""
        if role.read_only or role.timeline < self._timelines.get(role.system, 0):
            return False
        self._timelines[role.system] = role.timeline
        return True


async def _role(connection: asyncpg.Connection, seconds: float) -> Role:
    # Not a timeout of the statement: asyncpg would wait for the host to cancel it.
    timer = asyncio.get_running_loop().call_later(seconds, connection.terminate)
    try:
        row = await connection.fetchrow(_ROLE)
    finally:
        timer.cancel()
    assert row is not None
    return Role(*row)
