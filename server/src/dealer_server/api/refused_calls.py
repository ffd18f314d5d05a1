"""Why was a dealer's call refused? What is kept of it for the dealer's developers, off the path of calls.

The gateway hands over what it refused; a task writes it about once a second, in one statement. What comes faster than
it can be written is counted and not kept, each dealer for itself: nobody's flood hides the refusals of others. Calls
that nobody need have signed have places of their own: with them anybody who knows an AppKey could flood a dealer.
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
from dealer_server.rules.refusal import AppKeyUnknown, Refusal
from dealer_server.store.console import api_log as rows
from dealer_server.store.console.api_log import UNSIGNED, RefusedCall, Step

PER_KEY = 50  # of calls that were signed, and as many of others
MOST_WAITING = 1_000  # likewise
MOST_STRANGERS = 20  # calls with an AppKey that has to be looked up first
FLUSH_SECONDS = 1.0
HEAD_BYTES = 8_192
TEXT_LENGTH = 1_000
HEADER_LENGTH = 300

_KEPT_HEADERS = frozenset((b"content-type", b"content-encoding", b"content-length", b"host", b"user-agent",
                           b"rt-accesscode", b"rt-requestid", b"rt-timestamp", b"x-signature", b"rt-signature",
                           b"x-forwarded-for"))  # fmt: skip
_MOST_HEADERS = 20
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
    "000104": "JSON",
}
log = structlog.get_logger(__name__)


def check_of(why: Refusal, *, query: bool) -> str:
    """Which of the checks of decisions 1 refused it. `query`: the call has a query string, which is refused early."""
    if why.code == "101013":
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
        body_head=None if body is None else _hidden(body[:HEAD_BYTES]),
        body_bytes=None if body is None else len(body),
        body_sha256=None if body is None else hashlib.sha256(body).hexdigest(),
    )


class CallLog:
    """One per process. `refused` and `record_step` only put into memory; `running` writes."""

    def __init__(self, database: Database, memory: Cache, clock: Clock, trusted: Sequence[access.Network]):
        self._database = database
        self._cache = memory
        self._clock = clock
        self._trusted = trusted
        self._bell = asyncio.Event()
        self._known: set[tuple[int, Step]] = set()
        self._empty()

    def _empty(self) -> None:
        self._waiting: dict[str, list[RefusedCall]] = {}
        self._dropped: dict[str, int] = {}
        self._places: Counter[tuple[str, bool]] = Counter()  # by AppKey and whether nobody need have signed them
        self._count: Counter[bool] = Counter()
        self._strangers = 0
        self._steps: set[tuple[int, Step]] = set()

    def refused(
        self, why: Refusal, scope: MutableMapping[str, Any], head: Head, body: bytes | None, trace: bytes
    ) -> None:
        """Keeps a refused call, or counts it. One that names no AppKey, or none of ours, is nobody's."""
        key = head.values[authenticate.ACCESS_CODE]
        if key is None or isinstance(why, AppKeyUnknown) or not access.APP_KEY(key):
            return
        app_key = key.decode()
        known = self._cache.caller(app_key) is not None
        unsigned = check_of(why, query=bool(scope["query_string"])) in UNSIGNED
        if not self._has_room(app_key, known, unsigned):
            if known:
                self._dropped[app_key] = self._dropped.get(app_key, 0) + 1
            return
        self._places[app_key, unsigned] += 1
        self._count[unsigned] += 1
        call = described(why, scope, head, body, trace, app_key, self._clock(), self._trusted)
        self._waiting.setdefault(app_key, []).append(call)
        self._bell.set()

    def record_step(self, tenant_id: int, step: Step) -> None:
        """A dealer has reached this step of its integration, perhaps not for the first time."""
        if (tenant_id, step) not in self._known:
            self._known.add((tenant_id, step))
            self._steps.add((tenant_id, step))
            self._bell.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes while it is open, and what is left at the end."""
        async with background_flush(self._run(), self._flush):
            yield

    def _has_room(self, app_key: str, known: bool, unsigned: bool) -> bool:
        if self._places[app_key, unsigned] >= PER_KEY or self._count[unsigned] >= MOST_WAITING:
            return False
        self._strangers += not known
        return known or self._strangers <= MOST_STRANGERS

    async def _run(self) -> None:
        while True:
            await self._bell.wait()
            self._bell.clear()
            await asyncio.shield(asyncio.ensure_future(self._flush()))
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Writes what waits. A log of what was refused is no reason to keep it for ever: what a lost database could not
        take is gone."""
        waiting, dropped, steps = self._waiting, self._dropped, self._steps
        self._empty()
        try:
            tenants = {app_key: await self._tenant(app_key) for app_key in {**waiting, **dropped}}
            await self._write(waiting, dropped, tenants, steps)
        except DatabaseLost:
            self._known -= steps
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
            await rows.hurry(connection)
            if calls or lost:
                await rows.write(connection, calls, lost)
            if steps:
                await rows.record_steps(connection, steps, self._clock())

    async def _tenant(self, app_key: str) -> int | None:
        caller = self._cache.caller(app_key) or await self._cache.load_caller(app_key)
        return None if caller is None else caller.tenant_id


def _headers(received: Sequence[tuple[bytes, bytes]]) -> str:
    """Those that matter, in the order they came, as JSON pairs."""
    kept = [(name.decode("latin-1"), _text(value, HEADER_LENGTH)) for name, value in received if name in _KEPT_HEADERS]
    return msgspec.json.encode(kept[:_MOST_HEADERS]).decode()


def _text(value: bytes, length: int) -> str:
    """As text that PostgreSQL can hold, and without a secret that stands where none belongs."""
    return _hidden(value)[:length].decode("utf-8", "backslashreplace").replace("\0", "\\0")


def _hidden(value: bytes) -> bytes:
    return _SECRET.sub(rb"\1(hidden)", value)
