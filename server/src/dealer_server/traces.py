"""Where does an order spend its time? Spans of calls, batches, fulfilment, suppliers and webhooks, for OpenTelemetry.

The ids of an order's trace and of its first span follow from its orderId, and so does whether it is sampled: every
process knows them without a word in a row (docs/decisions/0058-traces.md). A span is made when it has ended, of sampled
orders only. As with a logger, any module may record; while nothing is exported each function returns at once.
"""

import asyncio
import hashlib
import os
import random
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from dealer_server.rules.orders import identity

EXTRA = "pip install 'esim-dealer-server[traces]'"
FLUSH_SECONDS = 2.0
CLOCK_MOVED_NANOSECONDS = 10**8
PLACING = ("esim/order", "esim/topup")
FAILED = ("000001", "900001")

_MASK = 2**64 - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, near 2**64 divided by the golden ratio: numbers in a row are spread evenly
_recorder: "Recorder | None" = None


class NotInstalled(Exception):
    """The extra that exports traces is missing; the message is one line for the operator."""


def call(path: str, code: str, answer: Any, trace_id: bytes, began: float) -> None:
    """A call that was answered now. `began`, here and below, is of perf_counter. `answer`: of a call that writes; None
    where it was refused. A call that only reads belongs to no order's trace."""
    if _recorder is not None:
        _recorder.call(path, code, answer, trace_id, began)


def batch(name: str, order_ids: Iterable[int], began: float) -> None:
    """What took these orders together, and has ended now. Each sampled one of them has the span in its own trace, with
    a link to the next of them: links to all would cost as much as the spans."""
    if _recorder is not None:
        _recorder.batch(name, order_ids, began)


def request(name: str, order_id: int, outcome: str, failed: bool, began: float) -> None:
    """A request to somebody else for one order, which has ended now."""
    if _recorder is not None:
        _recorder.request(name, order_id, outcome, failed, began)


@asynccontextmanager
async def exported(share: float, key: bytes, service: str) -> AsyncIterator[None]:
    """Exports the traces of this share of orders and calls; of none where it is 0. `key`: the same in every process of
    a deployment. Raises NotInstalled."""
    global _recorder
    if not share:
        yield
        return
    _recorder = recorder = Recorder(share, key, service)
    try:
        yield
    finally:
        _recorder = None
        await asyncio.to_thread(recorder.close)


class Recorder:
    """Makes spans and hands them to OpenTelemetry's exporter, which has a thread of its own. Where they go says
    OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, share: float, key: bytes, service: str):
        try:
            from opentelemetry import trace
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import ReadableSpan
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        except ImportError:
            raise NotInstalled(EXTRA) from None
        self._trace, self._kinds = trace, trace.SpanKind
        self._span = ReadableSpan
        name = os.environ.get("OTEL_SERVICE_NAME", service)
        self._resource = Resource.create({"service.name": name, "process.pid": os.getpid()})
        self._scope = InstrumentationScope("esim-dealer", version("esim-dealer-server"))
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        self._bound = round(share * 2**64)
        self._share = share
        self._key = key[:64]
        self._set_clock()

    def sampled(self, order_id: int) -> bool:
        return (order_id * _SPREAD & _MASK) < self._bound

    def close(self) -> None:
        self._processor.force_flush(round(FLUSH_SECONDS * 1000))
        self._processor.shutdown()

    def call(self, path: str, code: str, answer: Any, trace_id: bytes, began: float) -> None:
        order_no: str = getattr(answer, "order_no", None) or ""
        order_id = identity.order_id(order_no)
        if not (random.random() < self._share if order_id is None else self.sampled(order_id)):
            return
        attributes = {"dealer.code": code, "dealer.trace_id": trace_id.decode()}
        parent = None
        if order_id is None:
            span = self._new(random.getrandbits(128))
        else:
            span = self._first(order_id)
            attributes["dealer.order_no"] = order_no
            if getattr(answer, "duplicate", False) or not path.endswith(PLACING):
                parent, span = span, self._new(span.trace_id)
        self._end(f"POST {path}", span, parent, began, self._kinds.SERVER, attributes, failed=code in FAILED)

    def batch(self, name: str, order_ids: Iterable[int], began: float) -> None:
        taken = dict.fromkeys(order_ids)
        firsts = [self._first(order_id) for order_id in taken if self.sampled(order_id)]
        spans = [self._new(first.trace_id) for first in firsts]
        others = [*spans[1:], *spans[:1]]
        for first, span, other in zip(firsts, spans, others, strict=True):
            links = [] if other is span else [self._trace.Link(other)]
            self._end(name, span, first, began, self._kinds.INTERNAL, {"dealer.orders": len(taken)}, links=links)

    def request(self, name: str, order_id: int, outcome: str, failed: bool, began: float) -> None:
        if self.sampled(order_id):
            first = self._first(order_id)
            span, attributes = self._new(first.trace_id), {"dealer.outcome": outcome}
            self._end(name, span, first, began, self._kinds.CLIENT, attributes, failed=failed)

    def _first(self, order_id: int) -> Any:
        """The context of the span that an order's trace begins with."""
        ids = hashlib.blake2b(order_id.to_bytes(8, "big"), digest_size=24, key=self._key).digest()
        return self._context(int.from_bytes(ids[:16], "big"), int.from_bytes(ids[16:], "big"))

    def _new(self, trace: int) -> Any:
        return self._context(trace, random.getrandbits(64) or 1)

    def _context(self, trace: int, span: int) -> Any:
        sampled = self._trace.TraceFlags(self._trace.TraceFlags.SAMPLED)
        return self._trace.SpanContext(trace, span, is_remote=False, trace_flags=sampled)

    def _set_clock(self) -> None:
        self._zero = time.time_ns() - time.perf_counter_ns()

    def _time(self, counted: int) -> int:
        """The time of a moment of perf_counter, both in nanoseconds. The moment, not how long it is ago: that is known
        a little later, on a busy machine much later, and a part would begin before the whole."""
        return self._zero + counted

    def _end(
        self,
        name: str,
        span: Any,
        parent: Any,
        began: float,
        kind: Any,
        attributes: Mapping[str, str | int],
        *,
        failed: bool = False,
        links: Sequence[Any] = (),
    ) -> None:
        if abs(time.time_ns() - self._time(time.perf_counter_ns())) > CLOCK_MOVED_NANOSECONDS:
            self._set_clock()
        codes = self._trace.StatusCode
        ended = self._span(
            name,
            span,
            parent,
            self._resource,
            attributes,
            links=links,
            kind=kind,
            status=self._trace.Status(codes.ERROR if failed else codes.UNSET),
            start_time=self._time(round(began * 1e9)),
            end_time=self._time(time.perf_counter_ns()),
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(ended)
