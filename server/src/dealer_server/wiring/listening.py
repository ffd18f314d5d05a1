"""Which sockets does a process listen on? It binds them itself, or inherits those that its parent has bound."""

import socket
from typing import NamedTuple

import structlog

from dealer_server import sockets
from dealer_server.settings import Settings, SettingsError

METRICS, SERVE_METRICS = "127.0.0.1:9464", "127.0.0.1:9474"
log = structlog.get_logger(__name__)


class Listening(NamedTuple):
    """Bound sockets; None where nothing is served. `console`: None also where it is on the API's port."""

    api: socket.socket | None = None
    console: socket.socket | None = None
    metrics: socket.socket | None = None
    supplier_events: socket.socket | None = None

    def log_addresses(self) -> None:
        """Of what `ready` does not tell."""
        served = {
            "console_served": self.console,
            "metrics_served": self.metrics,
            "supplier_events_served": self.supplier_events,
        }
        for event, bound in served.items():
            if bound is not None:
                log.info(event, address=sockets.address_text(bound))


def of_serve(settings: Settings) -> list[Listening]:
    """Of each process: one socket for all, or with `port_per_process` the API's port and those above it; metrics on the
    port that is set and those above it. The console's is shared. Raises SettingsError where the host has no address,
    OSError where an address is in use."""
    ports = settings.processes if settings.port_per_process else 1
    apis = [_api(settings.host, _port(settings.port, number)) for number in range(ports)]
    shared = console(settings)
    return [
        Listening(
            api=apis[number % ports],
            console=shared,
            metrics=_metrics("DEALER_SERVE_METRICS", settings.serve_metrics, SERVE_METRICS, number),
        )
        for number in range(settings.processes)
    ]


def of_work(settings: Settings) -> list[Listening]:
    """Of each process: metrics on the port that is set and those above it. Suppliers' events are shared. Raises OSError
    where an address is in use."""
    shared = supplier_events(settings)
    return [
        Listening(
            metrics=_metrics("DEALER_METRICS", settings.metrics, METRICS, number),
            supplier_events=shared,
        )
        for number in range(settings.processes)
    ]


def console(settings: Settings) -> socket.socket | None:
    """Raises OSError."""
    return sockets.bind_address(settings.console) if settings.console else None


def supplier_events(settings: Settings) -> socket.socket | None:
    """Raises OSError."""
    return sockets.bind_address(settings.supplier_events) if settings.supplier_events else None


def _api(host: str, port: int) -> socket.socket:
    try:
        return sockets.bind(host, port)
    except socket.gaierror as error:
        raise SettingsError(f"cannot listen on {host}: {error.strerror}") from None


def _metrics(setting: str, wanted: str | None, default: str, number: int) -> socket.socket | None:
    """None where the default port is in use: the first process of a machine has it."""
    if wanted == "":
        return None
    host, _, port = (wanted or default).rpartition(":")
    address = f"{host}:{_port(int(port), number)}"
    try:
        return sockets.bind_address(address)
    except OSError:
        if wanted:
            raise
        log.warning("metrics_not_served", address=address, reason=f"in use; set {setting} for each process")
        return None


def _port(first: int, number: int) -> int:
    """Of a process, counted from 0. Port 0 takes a free one for each."""
    return first and first + number
