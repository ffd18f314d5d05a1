"""A fault is reported to Sentry once, with its ids and without any value."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from support.api_client import SEALING_KEYS, ApiClient, running_service
from support.patience import PATIENCE
from support.processes import environment, run, running


class Sentry:
    """Events as a real receiver gets them, and all bytes that came."""

    def __init__(self) -> None:
        self.dsn = ""
        self.raw = b""
        self.events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        for unpack in (gzip.decompress, zlib.decompress):
            try:
                body = unpack(body)
                break
            except (OSError, zlib.error):
                continue
        self.raw += body + str(dict(request.headers)).encode()
        lines = body.split(b"\n")
        assert json.loads(lines[1])["type"] == "event"
        self.events.put_nowait(json.loads(lines[2]))
        return web.json_response({"id": "0" * 32})


@asynccontextmanager
async def receiving() -> AsyncIterator[Sentry]:
    sentry, app = Sentry(), web.Application()
    app.router.add_post("/api/7/envelope/", sentry.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
        port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        sentry.dsn = f"http://publickey@127.0.0.1:{port}/7"
        yield sentry
    finally:
        await runner.cleanup()


async def test_a_fault_is_reported_with_its_trace_id_and_no_secret(database_url: str):
    async with receiving() as sentry:
        env = environment(database_url, DEALER_CONSOLE="", DEALER_SENTRY_DSN=sentry.dsn)
        async with (
            running_service(database_url, worker=False) as service,
            service.client(await service.tenant()) as made,
            running("serve", "--port", "0", "--share-nothing", env=env) as serve,
        ):
            dealer = ApiClient(await serve.ready(), made.tenant_id, made.app_key, made.app_secret, made.http)
            assert (await dealer.order(packageCode="canary-of-the-body")).code != "000000", "a refusal is no fault"
            async with service.database.connection() as connection:
                await connection.execute("ALTER TABLE webhook_endpoint RENAME TO webhook_endpoint_away")
                try:
                    answer = await dealer.post("/webhook/query", {"remark": "canary-of-the-body"})
                    answer = await dealer.post("/webhook/query") if answer.code != "000001" else answer
                finally:
                    await connection.execute("ALTER TABLE webhook_endpoint_away RENAME TO webhook_endpoint")
            assert answer.code == "000001"
            async with asyncio.timeout(PATIENCE):
                event = await sentry.events.get()
    assert (event["logentry"]["message"], event["level"], event["environment"]) == ("unexpected", "error", "test")
    assert event["tags"]["trace_id"] == answer.data["traceId"]
    assert event["tags"]["path"].endswith("/webhook/query")
    raised = event["exception"]["values"][-1]
    assert raised["type"] == "UndefinedTableError" and raised["value"] == ""
    frames = raised["stacktrace"]["frames"]
    assert any(frame["function"] == "__call__" and "gateway" in frame["module"] for frame in frames)
    assert not any({"vars", "context_line", "pre_context"} & set(frame) for frame in frames)
    assert sentry.events.empty(), "one fault was reported twice"
    for secret in (made.app_secret, made.app_key, SEALING_KEYS, database_url, "canary-of-the-body", "webhook_endpoint"):
        assert secret.encode() not in sentry.raw, secret


async def test_an_address_that_is_none_is_refused_without_being_shown():
    env = environment("postgresql://nobody@127.0.0.1:1/nothing", DEALER_SENTRY_DSN="canary-and-no-address")
    for command in (("serve", "--port", "0"), ("work",)):
        done = await run(*command, env=env)
        assert done.status != 0 and len(done.err.splitlines()) == 1 and "DEALER_SENTRY_DSN" in done.err
        assert "canary" not in done.err
