"""A uvicorn server with deadlines and limits, and its TLS."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import structlog
import uvicorn

from dealer_server.api.listener.limits import Counts, Deadlines, Limits
from dealer_server.api.listener.protocol import GuardedProtocol, Terms, no_address
from dealer_server.sockets import BACKLOG, bind

log = structlog.get_logger(__name__)

CONNECTIONS_AT_A_TIME = 500  # swept without a pause; each takes a microsecond, and requests should not wait for all


class Listener(uvicorn.Server):
    """A uvicorn server that enforces deadlines on its connections, and leaves signals to its caller.

    Run it with `await listener.serve(sockets=[bind(...)])`; set `should_exit` to stop it.
    """

    def __init__(self, config: uvicorn.Config, terms: Terms) -> None:
        super().__init__(config)
        self.terms = terms
        self._sweeper: asyncio.Task[None] | None = None
        self._listening: list[socket.socket] = []
        self._tls: dict[str, Any] = {}

    @property
    def counts(self) -> Counts:
        return self.terms.counts

    @property
    def open_connections(self) -> int:
        return len(self.server_state.connections)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn's, for given sockets, with deadlines for the TLS handshake and shutdown."""
        await self.lifespan.startup()
        if self.config.ssl is not None:
            seconds = self.terms.deadlines.headers
            self._tls = {"ssl": self.config.ssl, "ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": seconds}
        self._listening = list(sockets or [bind(self.config.host, self.config.port)])
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(self._connection, sock=listening, backlog=BACKLOG, **self._tls)
            for listening in self._listening
        ]
        self._sweeper = loop.create_task(self._sweep())
        self.started = True

    async def retire(self) -> None:
        """Where another process has taken over: accepts no more connections, and closes each after its next answer,
        which says so. Returns when none is left, or after `retire` seconds: shutdown then closes those that are idle.

        A client that sends a request at the moment when an idle connection is closed would lose it.
        """
        for server in self.servers:
            server.close()
        self._listening.clear()
        self.terms.connections.retiring = True
        for connection in self._connections():
            connection.close_after_answer()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.terms.deadlines.retire):
                while True:
                    await asyncio.sleep(self.terms.deadlines.sweep)  # also for TLS handshakes that are under way
                    if not self.server_state.connections:
                        return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is in flight, within the deadline; then nothing stays open."""
        self.terms.connections.retiring = True
        await self._stop_listening()
        await super().shutdown(sockets)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._connections():
            connection.transport.abort()

    async def _stop_listening(self) -> None:
        """Accept the connections that wait, and close the sockets at once: closing resets those that still wait, and a
        proxy sends no call again that it has sent on one."""
        kept = [listening.dup() for listening in self._listening]
        for server in self.servers:
            server.close()
        waiting: list[socket.socket] = []
        for listening in kept:
            listening.setblocking(False)
            with listening, contextlib.suppress(OSError):  # none waits
                while True:
                    waiting.append(listening.accept()[0])
        accept = asyncio.get_running_loop().connect_accepted_socket
        await asyncio.gather(
            *[accept(self._connection, connection, **self._tls) for connection in waiting], return_exceptions=True
        )

    def _connection(self) -> asyncio.Protocol:
        return GuardedProtocol(
            self.terms, config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _connections(self) -> list[GuardedProtocol]:
        """All that are open now; closing one changes the set they are taken from."""
        return cast(list[GuardedProtocol], list(self.server_state.connections))

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.terms.deadlines.sweep)
            now = loop.time()
            for number, connection in enumerate(self._connections(), 1):
                if number % CONNECTIONS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
                try:
                    connection.sweep(now)
                except Exception:  # an error of one connection must not end the sweep of the others
                    log.exception("connection_sweep_failed")
                    connection.transport.abort()


def server(
    app: Callable[..., Awaitable[None]],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    deadlines: Deadlines | None = None,
    limits: Limits | None = None,
    tls: tuple[Path, Path] | None = None,
    client_ca: Path | None = None,
    log_level: str = "warning",
    new_trace_id: Callable[[], str] | None = None,
    exempt: Callable[[str], bool] = no_address,
) -> Listener:
    """A listener for `app`, not started. `tls` names the certificate's file and the key's; see `tls_context`.

    `host` and `port` count only when `serve` is given no sockets. `new_trace_id` gives the listener's own refusals an
    X-Trace-Id. `exempt`: see Terms.
    """
    terms = Terms(deadlines or Deadlines(), limits or Limits(), new_trace_id, exempt)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        loop="auto",  # uvloop where there is one
        http=GuardedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,  # the process configures logging
        log_level=log_level,
        access_log=False,
        proxy_headers=False,  # it would believe X-Forwarded-For from 127.0.0.1
        server_header=False,
        ssl_context_factory=None if tls is None else lambda _config, _default: tls_context(*tls, client_ca),
    )
    config.timeout_graceful_shutdown = terms.deadlines.shutdown  # type: ignore[assignment]
    return Listener(config, terms)


def tls_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 and later, HTTP/1.1 only. `client_ca`: callers show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    return context
