"""What do traces cost? Whole lives of orders without them and with a tenth sampled, in turns; and what the functions
that are called anyway take where there are none."""

import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.cases import life
from bench.cases.suite import Bench
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Reading
from bench.support.slices import in_turns
from dealer_server import traces

SHARE = 0.1
SECONDS = 10  # spans leave every five seconds: a slice holds more than one export
_CALLS = 100_000
_NAMES = ("traces.off", "no traces"), ("traces.on", "a tenth of the orders sampled")


def run(bench: Bench) -> None:
    """Slices take turns, and each with traces is compared with the two around it, which have none."""
    database, slices = bench.instance.fresh(), list[Reading]()
    with _collector() as (address, received):
        settings = {"DEALER_TRACES": str(SHARE), "OTEL_EXPORTER_OTLP_ENDPOINT": address}
        for number in range(2 * bench.options.runs + 1):
            sampled = number % 2
            key, how = _NAMES[sampled]
            slices.append(_slice(bench.instance, database, settings if sampled else {}))
            bench.note(key, f"life, {life.MANY_DEALERS} dealers, {how}", slices[-1])
    bench.instance.drop(database)
    ratios = in_turns(slices, ("cpu_us", "server_us", "worker_us"))
    bench.note("traces.ratio", "life with a tenth sampled ÷ without traces", ratios)
    spans = _spans(received) / (SHARE * sum(one["orders"] for one in slices[1::2]))
    bench.note("traces.unsampled", "functions of traces while there are none, an order", _unsampled(spans, slices[::2]))


def _slice(instance: Instance, database: str, settings: Mapping[str, str]) -> Reading:
    """Lives as fast as they go. cpu_us: what serve, work and PostgreSQL take together, an order."""
    instance.checkpoint()
    reading, _ = life.burst(instance, database, life.MANY_DEALERS, SECONDS, settings=settings)
    return reading | {"cpu_us": reading["server_us"] + reading["worker_us"] + reading["postgres_us"]}


def _unsampled(spans: float, off: Sequence[Reading]) -> Reading:
    """A function is called at most as often as an order has `spans`."""
    began = time.perf_counter()
    for _ in range(_CALLS):
        traces.batch("nothing", (), began)
    a_call = (time.perf_counter() - began) / _CALLS * 1e6
    spent = statistics.median(reading["server_us"] + reading["worker_us"] for reading in off)
    return {"spans": spans, "call_us": a_call, "share_percent": 100 * spans * a_call / spent}


def _spans(bodies: Sequence[bytes]) -> int:
    """Raises Failed where none has come."""
    exported = [ExportTraceServiceRequest.FromString(body) for body in bodies]
    found = sum(
        len(scope.spans) for one in exported for resource in one.resource_spans for scope in resource.scope_spans
    )
    if not found:
        raise Failed("no span was exported")
    return found


@contextmanager
def _collector() -> Iterator[tuple[str, list[bytes]]]:
    """It keeps what is exported to it, and reads it later: that would disturb the figures."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
