"""Receives traces as a collector does and draws one of an order: docs/images/trace.svg.

python scripts/trace_picture.py FILE.svg --port 4318    # and OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318

It ends once it has an order whose DELIVERY_UPDATED was delivered, and draws that.
"""

import argparse
import gzip
import threading
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

LAST = "webhook DELIVERY_UPDATED"
WIDTH, LEFT, ROW, BAR = 960, 300, 30, 16
COLOURS = {"dealer-serve": "#3b6fb6", "dealer-work": "#4f9d69"}


class Seen(NamedTuple):
    service: str
    span: Span


def received(body: bytes) -> list[Seen]:
    raw = gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
    found = []
    for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
        [name] = [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"]
        found += [Seen(name, span) for scope in resource.scope_spans for span in scope.spans]
    return found


def is_whole(trace: Sequence[Seen]) -> bool:
    """Whether it has the call, and the last webhook."""
    names = {one.span.name for one in trace}
    return LAST in names and any(name.endswith("/esim/order") for name in names)


def drawn(trace: Sequence[Seen]) -> str:
    """An SVG: one row for each span, by its begin."""
    spans = sorted(trace, key=lambda one: (one.span.start_time_unix_nano, -one.span.end_time_unix_nano))
    first = spans[0].span.start_time_unix_nano
    whole = max(one.span.end_time_unix_nano for one in spans) - first
    scale = (WIDTH - LEFT - 90) / whole
    height = ROW * len(spans) + 50
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
        f'font-size="13" role="img" aria-label="One trace of one order">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for number, (service, span) in enumerate(spans):
        begin, took = span.start_time_unix_nano - first, span.end_time_unix_nano - span.start_time_unix_nano
        x, y, width = LEFT + begin * scale, 12 + ROW * number, max(took * scale, 2)
        links = f", {len(span.links)} links" if span.links else ""
        rows += [
            f'<text x="12" y="{y + 13}" fill="#222">{escape(span.name.removeprefix("POST /open-api"))}</text>',
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{COLOURS[service]}"/>',
            f'<text x="{x + width + 5:.1f}" y="{y + 13}" fill="#555">{took / 1e6:.1f} ms{links}</text>',
        ]
    y = ROW * len(spans) + 32
    for at, (service, colour) in enumerate(COLOURS.items()):
        rows.append(f'<rect x="{12 + 130 * at}" y="{y - 11}" width="12" height="12" fill="{colour}"/>')
        rows.append(f'<text x="{30 + 130 * at}" y="{y}" fill="#222">{service}</text>')
    rows.append(f'<text x="{LEFT}" y="{y}" fill="#555">{whole / 1e6:.0f} ms from the call to the last webhook</text>')
    return "\n".join([*rows, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--port", type=int, default=4318)
    given = parser.parse_args()
    traces: dict[bytes, list[Seen]] = defaultdict(list)

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            for one in received(self.rfile.read(int(self.headers["Content-Length"]))):
                traces[one.span.trace_id].append(one)
            self.send_response(200)
            self.end_headers()
            # What ends together comes together or a moment later.
            if any(is_whole(trace) for trace in traces.values()):
                threading.Timer(6, server.shutdown).start()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", given.port), Collector)
    server.serve_forever()
    given.file.write_text(drawn(max(filter(is_whole, traces.values()), key=len)))


if __name__ == "__main__":
    main()
