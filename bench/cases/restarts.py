"""Does a dealer notice that processes are restarted? HAProxy with the configuration of deploy/haproxy before two
`serve`, which are replaced one after the other while orders are placed at a steady rate."""

import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from bench.cases.suite import Bench, audit
from bench.load.buyer import Buyer
from bench.support import calls
from bench.support.failure import Failed
from bench.support.machine import ROOT
from bench.support.processes import Process

RATE = 1_000  # orders a second
RESTARTS = 20
CHUNK_SECONDS = 5  # orders are signed just before they are sent
DRAIN_SECONDS = 5
DEALERS = 100
_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 120


def run(bench: Bench) -> None:
    """Orders of many dealers through all restarts: how many calls failed. None may."""
    database = bench.instance.fresh()
    serves = _Serves(bench, database)
    with serves, _haproxy(bench, serves.ports) as port:
        serves.both_ready()
        load = _Load(bench, port)
        load.start()
        began = time.monotonic()
        for turn in range(RESTARTS):
            serves.restart(turn % 2)
        seconds = time.monotonic() - began
        load.end()
    reading = {
        "per_second": load.sent / load.seconds,
        "orders": load.sent,
        "failed": len(load.refused),
        "restarts": RESTARTS,
        "seconds": seconds,
    }
    bench.note("restarts", f"{RESTARTS} rolling restarts behind HAProxy", reading)
    if load.error or load.refused:
        raise Failed(f"calls failed over the restarts: {load.error or load.refused[:5]}")
    audit(bench, database, "restarts.audit", "audit after the restarts")
    bench.instance.drop(database)


class _Serves:
    """Two processes, each on a port that it keeps."""

    def __init__(self, bench: Bench, database: str):
        self._instance = bench.instance
        self._database = database
        self._made = 0
        self.ports = [_free_port() for _ in range(2)]
        self._running: list[Process] = []

    def __enter__(self) -> "_Serves":
        self._running = [self._start(port) for port in self.ports]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.stop()

    def restart(self, number: int) -> None:
        """Stops it as systemd does, starts it, and returns once the proxy may send it calls again."""
        self._running[number].stop()
        self._running[number] = self._start(self.ports[number])
        self.both_ready()

    def both_ready(self) -> None:
        for port in self.ports:
            _until_ready(port)
        time.sleep(2 * 1.0)  # the proxy looks once a second

    def _start(self, port: int) -> Process:
        self._made += 1
        env = self._instance.environment(self._database) | {
            "DEALER_PORT": str(port),
            "DEALER_DRAIN_SECONDS": str(DRAIN_SECONDS),
            "DEALER_TRUSTED_PROXIES": "127.0.0.1",
            "DEALER_SERVE_METRICS": "",
            "DEALER_CONSOLE": "",
        }
        log = self._instance.folder / f"serve-restarted-{self._made}.log"
        program = Path(shutil.which("dealer-server") or ROOT / ".venv/bin/dealer-server")
        process = Process("dealer-server serve", [str(program), "serve", "--share-nothing"], log, env)
        process.said("ready: ")
        return process


class _Load(threading.Thread):
    """Buys until `end`, in a thread of its own."""

    def __init__(self, bench: Bench, port: int):
        super().__init__(name="buyer")
        self._dealers = bench.instance.dealers[:DEALERS]
        self._port = port
        self._over = threading.Event()
        self.sent, self.seconds, self.error = 0, 0.0, ""
        self.refused: list[int] = []

    def run(self) -> None:
        try:
            uvloop.run(self._buy())
        except Exception as error:
            self.error = repr(error)

    def end(self) -> None:
        self._over.set()
        self.join()

    async def _buy(self) -> None:
        async with Buyer("127.0.0.1", self._port) as buyer:
            began = time.monotonic()
            while not self._over.is_set():
                await buyer.buy(calls.in_memory(calls.orders(self._dealers), RATE * CHUNK_SECONDS), RATE)
                self.sent, self.refused = len(buyer.sent), buyer.refused
            self.seconds = time.monotonic() - began


@contextmanager
def _haproxy(bench: Bench, ports: list[int]) -> Iterator[int]:
    """The port where it listens, without TLS: what it costs is not measured here."""
    program = shutil.which("haproxy")
    if program is None:
        raise Failed("haproxy is missing; on Debian and Ubuntu: apt-get install haproxy")
    port, metrics = _free_port(), _free_port()
    text = (ROOT / "deploy/haproxy/haproxy.cfg").read_text()
    for old, new in {
        "log /dev/log local0": "log stdout format raw local0 emerg",
        "    user haproxy\n    group haproxy\n": "",
        "    stats socket /run/haproxy/admin.sock mode 660 level admin\n": "",
        "bind :443 ssl crt /etc/haproxy/esim-dealer.pem alpn http/1.1": f"bind 127.0.0.1:{port}",
        "    bind :80\n": "",
        "    http-request redirect scheme https code 308 unless { ssl_fc }\n": "",
        "127.0.0.1:8405": f"127.0.0.1:{metrics}",
        "127.0.0.1:8080": f"127.0.0.1:{ports[0]}",
        "127.0.0.1:8081": f"127.0.0.1:{ports[1]}",
    }.items():
        if old not in text:
            raise Failed(f"deploy/haproxy/haproxy.cfg has no {old!r}")
        text = text.replace(old, new)
    file = bench.instance.folder / "haproxy.cfg"
    file.write_text(re.sub("maxconn 20000", "maxconn 1000", text))
    with Process("haproxy", [program, "-W", "-f", str(file)], bench.instance.folder / "haproxy.log"):
        _until_ready(port)
        yield port


def _until_ready(port: int) -> None:
    """Returns once /readyz there is 200. Raises Failed."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(_LOOK_SECONDS)
    raise Failed(f"nothing is ready on port {port}")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
