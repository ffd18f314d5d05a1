"""One order is followed through serve, work, its supplier and its webhooks, as a collector receives it."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from dealer_server import traces
from support.api_client import ApiClient, running_service
from support.patience import PATIENCE
from support.processes import environment, run, running
from support.rt_family import CODE, SECRET, running_upstream
from support.supplier_setup import Source, fresh, hop, set_up
from support.webhook_fixture import Receiver

SERVER, CLIENT = Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT


class Collector:
    """What was exported: the service of each span, and the span."""

    def __init__(self) -> None:
        self.url = ""
        self.raw = b""
        self.spans: list[tuple[str, Span]] = []
        self._more = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        raw = await request.read()
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
        self.raw += raw
        for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
            [name] = [one.value.string_value for one in resource.resource.attributes if one.key == "service.name"]
            self.spans += [(name, span) for scope in resource.scope_spans for span in scope.spans]
        self._more.set()
        return web.Response(body=b"", content_type="application/x-protobuf")

    async def until(self, *names: str, times: int = 1) -> None:
        """Returns once there are so many spans of each of these names."""
        async with asyncio.timeout(PATIENCE):
            while min([sum(span.name == name for _, span in self.spans) for name in names]) < times:
                self._more.clear()
                await self._more.wait()


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    collector, app = Collector(), web.Application(client_max_size=2**26)
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        assert site._server is not None
        collector.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[attr-defined]
        yield collector
    finally:
        await runner.cleanup()


async def test_one_order_is_one_trace_through_serve_supplier_and_webhooks(postgres: str, template: str):
    async with (
        fresh(postgres, template) as url,
        running_upstream() as near,
        collecting() as collector,
    ):
        await set_up(url, [Source("rt:near", "rt_upstream", near.settings)], {"TEST-OK": [hop("rt:near", "JC016")]})
        env = environment(
            url,
            DEALER_CONSOLE="",
            DEALER_TRACES="1",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_BSP_SCHEDULE_DELAY="50",
        )
        receiver = await Receiver().start()
        async with (
            running_service(url, worker=False) as service,
            service.client(await service.tenant(balance="1000", qps=0)) as made,
            running("serve", "--port", "0", "--share-nothing", env=env) as serve,
            running("work", env=env),
        ):
            dealer = ApiClient(await serve.ready(), made.tenant_id, made.app_key, made.app_secret, made.http)
            assert (await dealer.post("/webhook/set", {"callbackUrl": receiver.url})).code == "000000"
            several = await asyncio.gather(*[dealer.order() for _ in range(12)])
            assert {answer.code for answer in several} == {"000000"}
            assert (await dealer.order(amount="9.99")).code != "000000"
            again = await dealer.post("/esim/query", {"orderNo": several[0].data["orderNo"]})
            assert again.code == "000000"
            for answer in several:
                await dealer.delivered(answer.data["orderNo"])
            await collector.until("webhook ORDER_PAID", "webhook DELIVERY_UPDATED", times=12)
            await collector.until("place orders", "record purchases at rt:near", times=12)
        await receiver.close()
    first = several[0]
    calls = {
        one.value.string_value: span
        for _, span in collector.spans
        for one in span.attributes
        if span.name.endswith("/esim/order") and one.key == "dealer.order_no"
    }
    assert set(calls) == {answer.data["orderNo"] for answer in several}
    call = calls[first.data["orderNo"]]
    of_order = [(service, span) for service, span in collector.spans if span.trace_id == call.trace_id]
    names = {(service, span.name) for service, span in of_order}
    path = call.name.removeprefix("POST ")
    assert names >= {
        ("dealer-serve", f"POST {path}"),
        ("dealer-serve", "place orders"),
        ("dealer-work", "record planning at rt:near"),
        ("dealer-work", "buy rt:near"),
        ("dealer-work", "record purchases at rt:near"),
        ("dealer-work", "prepare webhooks"),
        ("dealer-work", "webhook ORDER_PAID"),
        ("dealer-work", "webhook DELIVERY_UPDATED"),
    }
    assert not call.parent_span_id and call.kind == SERVER
    assert not any(name.endswith("/esim/query") for _, name in names), "who only looks belongs to no order's trace"
    for _, span in of_order:
        assert span is call or span.parent_span_id == call.span_id, span.name
        assert call.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano, span.name
        assert (span.kind == CLIENT) == span.name.startswith(("webhook ", "buy ", "probe ")), span.name
    joined = [span for _, span in collector.spans if span.name == "place orders" and span.links]
    batches = {span.span_id: span.trace_id for _, span in collector.spans if span.name == "place orders"}
    assert joined, "twelve orders at once were in twelve batches"
    linked = [link for span in joined for link in span.links]
    assert {link.span_id for link in linked} == {span.span_id for span in joined}, "each is the next one of another"
    assert len(linked) == len(joined)
    for span in joined:
        assert all(batches[link.span_id] == link.trace_id != span.trace_id for link in span.links)
    assert len({span.span_id for _, span in collector.spans}) == len(collector.spans)
    [refused] = [span for _, span in collector.spans if span.name == call.name and span not in calls.values()]
    assert "dealer.order_no" not in {one.key for one in refused.attributes}
    for secret in (made.app_secret, made.app_key, CODE, SECRET, "LPA:1$"):
        assert secret.encode() not in collector.raw


def test_the_share_is_kept_and_every_process_samples_the_same_orders():
    one, two = [traces.Recorder(0.1, b"k" * 32, name) for name in ("dealer-serve", "dealer-work")]
    other = traces.Recorder(0.1, b"o" * 32, "dealer-work")
    orders = range(217_426_526_000_001, 217_426_526_100_001)
    taken = [order_id for order_id in orders if one.sampled(order_id)]
    assert 0.099 < len(taken) / len(orders) < 0.101
    assert taken == [order_id for order_id in orders if two.sampled(order_id)]
    for order_id in taken[:10]:
        assert one._first(order_id) == two._first(order_id) != other._first(order_id)
    for recorder in (one, two, other):
        recorder._processor.shutdown()


@pytest.mark.parametrize("share", ["-0.1", "1.1", "ten"])
async def test_a_share_that_is_none_is_refused_in_one_line(share: str):
    done = await run("work", env=environment("postgresql://nobody@127.0.0.1:1/nothing", DEALER_TRACES=share))
    assert done.status != 0 and len(done.err.splitlines()) == 1 and "DEALER_TRACES" in done.err, json.dumps(done.err)
