"""Why was a dealer's call refused? What the log of refused calls keeps for the dealer's developers.

The gateway passes on what it refused; a task writes it about once a second, in one statement. What comes faster than it
can be written is counted and not kept, per AppKey: a flood of one dealer does not hide the refusals of others. Calls
refused before their signature is checked have limits of their own: anybody who knows an AppKey can send them.
"""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import structlog

from dealer_server.api import authenticate
from dealer_server.api.authenticate import Head, TooManyCalls
from dealer_server.api.background_flush import background_flush
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.operations.cache import Cache
from dealer_server.rules.access import access
from dealer_server.rules.refusal import AppKeyUnknown, RateExceeded, Refusal
from dealer_server.store.console import api_log
from dealer_server.store.console.api_log import UNSIGNED, RefusedCall, Step
from dealer_server.store.tenants import call_hour
from dealer_server.store.tenants.call_hour import CallHour
from esim_dealer.wire.operations import SMS

PER_KEY = 50  # calls whose signature was checked, and as many others
MAX_WAITING = 1_000  # likewise
MAX_UNKNOWN_KEYS = 20  # calls with an AppKey that is not in the cache
FLUSH_SECONDS = 1.0
HEAD_BYTES = 8_192
TEXT_LENGTH = 1_000
HEADER_LENGTH = 300

_KEPT_HEADERS = frozenset((b"content-type", b"content-encoding", b"content-length", b"host", b"user-agent",
                           b"rt-accesscode", b"rt-requestid", b"rt-timestamp", b"x-signature", b"rt-signature",
                           b"x-forwarded-for"))  # fmt: skip
_MAX_HEADERS = 20
_SECRET = re.compile(rb"(sk_(?:live|test)_)[0-9A-Za-z]+")
_CHECKS: Mapping[str, str] = {
    "000112": "path",
    "000103": "method",
    "000110": "size",
    "000109": "content type",
    "000101": "headers",
    "000102": "header form",
    "101006": "active",
    "101002": "address",
    "101001": "timestamp",
    "101003": "signature",
    "101004": "request id",
    "101007": "scope",
    "000104": "JSON",
}
log = structlog.get_logger(__name__)


def check_of(why: Refusal, *, query: bool) -> str:
    """Which check of specification 5.4 refused it. `query`: the call has a query string, which is refused early."""
    if isinstance(why, RateExceeded):
        return "QPS" if isinstance(why, TooManyCalls) else "failed authentications"
    if why.code == "000108" and query:
        return "query string"
    return _CHECKS.get(why.code) or ("parameters" if why.code.startswith("0001") else "operation")


def described(
    why: Refusal,
    scope: MutableMapping[str, Any],
    head: Head,
    body: bytes | None,
    trace: bytes,
    app_key: str,
    at: datetime,
    trusted: Sequence[access.Network],
) -> RefusedCall:
    """What is kept of a refused call; its tenant is found when it is written."""
    client = scope.get("client")
    request_id = head.values[authenticate.REQUEST_ID]
    return RefusedCall(
        tenant_id=0,
        at=at,
        address=access.client_address(client[0] if client else "", head.forwarded_for, trusted),
        method=_text(scope["method"].encode(), HEADER_LENGTH),
        path=_text(scope["raw_path"], HEADER_LENGTH),
        app_key=app_key,
        request_id=None if request_id is None else _text(request_id, HEADER_LENGTH),
        trace_id=trace.decode(),
        code=why.code,
        failed=check_of(why, query=bool(scope["query_string"])),
        message=_text(why.message.encode(), TEXT_LENGTH),
        data=_text(msgspec.json.encode(why.data), 4 * TEXT_LENGTH),
        headers=_headers(scope["headers"]),
        body_head=None if body is None else _body_head(scope["raw_path"], body),
        body_bytes=None if body is None else len(body),
        body_sha256=None if body is None else hashlib.sha256(body).hexdigest(),
    )


class CallLog:
    """One per process. `refused` and `record_step` only put into memory; `running` writes."""

    def __init__(self, database: Database, cache: Cache, clock: Clock, trusted: Sequence[access.Network]):
        self._database = database
        self._cache = cache
        self._clock = clock
        self._trusted = trusted
        self._flush_needed = asyncio.Event()
        self._recorded_steps: set[tuple[int, Step]] = set()
        self._empty()

    def _empty(self) -> None:
        self._waiting: dict[str, list[RefusedCall]] = {}
        self._dropped: dict[str, int] = {}
        self._kept_by_key: Counter[tuple[str, bool]] = Counter()  # by AppKey and whether the signature was not checked
        self._count: Counter[bool] = Counter()
        self._unknown_keys = 0
        self._steps: set[tuple[int, Step]] = set()

    def refused(
        self, why: Refusal, scope: MutableMapping[str, Any], head: Head, body: bytes | None, trace: bytes
    ) -> None:
        """Keeps a refused call, or counts it; not one without an AppKey, or with an unknown one."""
        key = head.values[authenticate.ACCESS_CODE]
        if key is None or isinstance(why, AppKeyUnknown) or not access.is_app_key(key):
            return
        app_key = key.decode()
        known = self._cache.caller(app_key) is not None
        unsigned = check_of(why, query=bool(scope["query_string"])) in UNSIGNED
        if not self._has_room(app_key, known, unsigned):
            if known:
                self._dropped[app_key] = self._dropped.get(app_key, 0) + 1
            return
        self._kept_by_key[app_key, unsigned] += 1
        self._count[unsigned] += 1
        call = described(why, scope, head, body, trace, app_key, self._clock(), self._trusted)
        self._waiting.setdefault(app_key, []).append(call)
        self._flush_needed.set()

    def record_step(self, tenant_id: int, step: Step) -> None:
        """A dealer has reached this step of its integration, perhaps not for the first time."""
        if (tenant_id, step) not in self._recorded_steps:
            self._recorded_steps.add((tenant_id, step))
            self._steps.add((tenant_id, step))
            self._flush_needed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes while it is open, and what is left at the end."""
        async with background_flush(self._run(), self._flush):
            yield

    def _has_room(self, app_key: str, known: bool, unsigned: bool) -> bool:
        if self._kept_by_key[app_key, unsigned] >= PER_KEY or self._count[unsigned] >= MAX_WAITING:
            return False
        self._unknown_keys += not known
        return known or self._unknown_keys <= MAX_UNKNOWN_KEYS

    async def _run(self) -> None:
        while True:
            await self._flush_needed.wait()
            self._flush_needed.clear()
            await asyncio.shield(asyncio.ensure_future(self._flush()))
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Writes what waits. Entries that a lost database cannot take are dropped."""
        waiting, dropped, steps = self._waiting, self._dropped, self._steps
        self._empty()
        try:
            tenants = {app_key: await self._tenant(app_key) for app_key in {**waiting, **dropped}}
            await self._write(waiting, dropped, tenants, steps)
        except DatabaseLost:
            self._recorded_steps -= steps
        except Exception as error:
            log.error("api_log_not_written", error=repr(error))

    async def _write(
        self,
        waiting: Mapping[str, Sequence[RefusedCall]],
        dropped: Mapping[str, int],
        tenants: Mapping[str, int | None],
        steps: set[tuple[int, Step]],
    ) -> None:
        calls = [
            call._replace(tenant_id=tenant_id)
            for app_key, kept in waiting.items()
            if (tenant_id := tenants[app_key]) is not None
            for call in kept
        ]
        lost: dict[int, int] = {}
        for app_key, count in dropped.items():
            if (tenant_id := tenants[app_key]) is not None:
                lost[tenant_id] = lost.get(tenant_id, 0) + count
        async with self._database.transaction() as connection:
            await api_log.hurry(connection)
            if calls or lost:
                await api_log.write(connection, calls, lost)
                await call_hour.add(connection, _hours(calls, lost, self._clock()))
            if steps:
                await api_log.record_steps(connection, steps, self._clock())

    async def _tenant(self, app_key: str) -> int | None:
        caller = self._cache.caller(app_key) or await self._cache.load_caller(app_key)
        return None if caller is None else caller.tenant_id


def _hours(calls: Sequence[RefusedCall], lost: Mapping[int, int], now: datetime) -> list[CallHour]:
    """How many calls of each dealer these are, those that are not kept too."""
    hour = now.replace(minute=0, second=0, microsecond=0)
    counts = Counter(call.tenant_id for call in calls) + Counter(lost)
    return [CallHour(tenant_id, hour, refused=count) for tenant_id, count in sorted(counts.items())]


def _headers(received: Sequence[tuple[bytes, bytes]]) -> str:
    """Those that matter, in the order they came, as JSON pairs."""
    kept = [(name.decode("latin-1"), _text(value, HEADER_LENGTH)) for name, value in received if name in _KEPT_HEADERS]
    return msgspec.json.encode(kept[:_MAX_HEADERS]).decode()


def _text(value: bytes, length: int) -> str:
    """As text that PostgreSQL can hold, and without a secret that stands where none belongs."""
    return _hidden(value)[:length].decode("utf-8", "backslashreplace").replace("\0", "\\0")


def _body_head(path: bytes, body: bytes) -> bytes:
    """Nothing of an SMS: its text stands in no log."""
    return b"" if path.endswith((SMS.path.encode(), b"/esim/sendSms")) else _hidden(body[:HEAD_BYTES])


def _hidden(value: bytes) -> bytes:
    return _SECRET.sub(rb"\1(hidden)", value)
