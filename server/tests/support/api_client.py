"""The public API, for tests: the whole service on a loopback port, and signed HTTP calls to it."""

import asyncio
import base64
import json
import secrets
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from dealer_server import clock, settings, sockets
from dealer_server.db.database import Database
from dealer_server.operations.audit.check_invariants import Scope, check_invariants
from dealer_server.operations.catalogue.import_packages import put_packages
from dealer_server.operations.tenants.create import Created, create_tenant
from dealer_server.operations.tenants.set_terms import Terms, set_tenant
from dealer_server.settings import Settings
from dealer_server.store.audit import checkpoint
from dealer_server.store.tenants import data_key
from dealer_server.wiring import listening, process
from dealer_server.wiring.listening import Listening
from esim_dealer.wire.signing import signature
from support.patience import found
from support.store_fixture import PACKAGES

PREFIX = "/open-api/v1"
SEALING_KEYS = f"test:{base64.b64encode(bytes(range(32))).decode()}"
_TRUSTS_NOBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def http_client(timeout: float = 30, base_url: str = "") -> httpx2.AsyncClient:
    """For plain HTTP: to read whom the machine trusts takes longer than most tests."""
    return httpx2.AsyncClient(base_url=base_url, trust_env=False, timeout=timeout, verify=_TRUSTS_NOBODY)


async def _nothing() -> None:
    pass


@dataclass(frozen=True)
class Reply:
    """An answer, taken apart."""

    status: int
    code: str
    message: str
    data: dict[str, Any]
    headers: Mapping[str, str]


@dataclass
class ApiClient:
    """One dealer's signed calls. `post` signs truly; what a test spoils it names."""

    url: str
    tenant_id: int
    app_key: str
    app_secret: str
    http: httpx2.AsyncClient = field(repr=False)
    before_look: Callable[[], Awaitable[None]] = field(default=_nothing, repr=False)  # while `delivered` waits

    def headers(self, body: bytes, **spoiled: str | None) -> dict[str, str]:
        """The five headers of a good call; a spoiled one is replaced, or left out where it is None."""
        good = {
            "Content-Type": "application/json",
            "RT-AccessCode": self.app_key,
            "RT-RequestID": str(uuid.uuid4()),
            "RT-Timestamp": str(int(time.time() * 1000)),
        }
        good |= {name: value for name, value in spoiled.items() if value is not None and name in good}
        signed = [good[name].encode() for name in ("RT-Timestamp", "RT-RequestID", "RT-AccessCode")]
        good["X-Signature"] = signature(self.app_secret.encode(), *signed, body)
        return {name: value for name, value in (good | spoiled).items() if value is not None}

    async def post(self, path: str, body: Mapping[str, Any] | bytes | None = None, **spoiled: str | None) -> Reply:
        """A signed call to `path` below /open-api/v1."""
        raw = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        return await self.send(f"{PREFIX}{path}", raw, self.headers(raw, **spoiled))

    async def send(self, path: str, raw: bytes, headers: Mapping[str, str], method: str = "POST") -> Reply:
        """Any call at all."""
        answer = await self.http.request(method, f"{self.url}{path}", content=raw, headers=dict(headers))
        assert answer.headers["Content-Type"].startswith("application/json"), f"{answer.status_code}: {answer.text}"
        envelope = answer.json()
        assert set(envelope) == {"code", "message", "data"} and isinstance(envelope["data"], dict)
        assert answer.headers["X-Trace-Id"]
        return Reply(answer.status_code, envelope["code"], envelope["message"], envelope["data"], answer.headers)

    async def order(self, package: str = "TEST-OK", **changed: Any) -> Reply:
        """An order for one TEST-OK; `changed` replaces or adds fields."""
        line = {"packageCode": package, "quantity": 1, "price": "1.80"}
        call = {"transactionId": f"t-{secrets.token_hex(8)}", "amount": "1.80", "items": [line]}
        return await self.post("/esim/order", call | changed)

    async def delivered(self, order_no: str) -> dict[str, Any]:
        """The order once it is delivered; asks again until then."""

        async def look() -> dict[str, Any] | None:
            await self.before_look()
            data = (await self.post("/esim/query", {"orderNo": order_no})).data
            return data if data["deliveryStatus"] in ("DELIVERED", "FAILED") else None

        return await found(look)


@dataclass
class Service:
    """A running service and its database."""

    url: str
    database: Database
    settings: Settings

    async def tenant(self, currency: str = "USD", **terms: Any) -> Created:
        given = Terms(**{"name": "Test dealer", **terms})
        keys = self.settings.master_keys
        return await create_tenant(
            self.database, keys, "test", currency, given, "test", clock.now, allow_below_cost=True
        )

    async def change(self, tenant_id: int, **terms: Any) -> None:
        await set_tenant(self.database, tenant_id, Terms(**terms), "test", clock.now, allow_below_cost=True)

    @asynccontextmanager
    async def client(self, created: Created) -> AsyncIterator[ApiClient]:
        async with http_client() as http:
            yield ApiClient(self.url, int(created.tenant_id), created.app_key, created.app_secret, http)

    async def audit(self) -> list[str]:
        """The invariants that are violated. What changed since the last clean audit is also audited alone."""
        keys = self.settings.master_keys
        async with self.database.connection() as connection:
            data_keys = await data_key.load(connection, keys)
            scopes = [Scope(incremental=True)] if await checkpoint.last(connection) else []
        reports = [
            await check_invariants(self.database, keys, data_keys, clock.now(), scope)
            for scope in (*scopes, Scope(keep=True))
        ]
        return sorted({code for report in reports for code in report.violated})


def test_settings(database_url: str, **changed: object) -> Settings:
    return settings.read(
        **{
            "DATABASE_URL": database_url,
            "environment": "test",
            "sealing_keys": SEALING_KEYS,
            "port": 0,
            "webhook_allow_loopback": True,
            "supplier_speed": 200.0,
            **changed,
        }
    )


test_settings.__test__ = False  # type: ignore[attr-defined]


async def put_catalogue(database: Database) -> None:
    """Puts the test catalogue on sale where nothing is; databases copied from the template have it."""
    if not await database.run(lambda connection: connection.fetchval("SELECT EXISTS (SELECT FROM package)")):
        await put_packages(database, list(PACKAGES.values()), "test", clock.now)


@asynccontextmanager
async def running_service(database_url: str, *, worker: bool = True, **changed: object) -> AsyncIterator[Service]:
    opened = test_settings(database_url, **changed)
    database = await Database.open(opened.database_url)
    await put_catalogue(database)
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    bound = Listening(
        sockets.bind("127.0.0.1", opened.port),
        listening.console(opened),
        supplier_events=listening.supplier_events(opened) if worker else None,
    )
    running = asyncio.create_task(
        process.run(opened, listening=bound, worker=worker, ready=address.set_result, stop=stop)
    )
    try:
        await asyncio.wait([running, address], return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        yield Service(address.result(), database, opened)
    finally:
        stop.set()
        await running
        await database.close()
