"""Which calls of a dealer succeeded? A sample of them, for the dealer's developers.

Of each dealer the first few calls of a second are kept, and all are counted. A task writes them about once a second. No
body is kept but the number that names the order or eSIM, and no header but the AppKey and the request id.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import structlog

from dealer_server.api import authenticate
from dealer_server.api.authenticate import Head
from dealer_server.api.background_flush import background_flush
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.rules.access import access, call_subject
from dealer_server.store.tenants import call_hour, served_call
from dealer_server.store.tenants.call_hour import CallHour
from dealer_server.store.tenants.served_call import ServedCall

PER_DEALER = 5  # calls that are kept of a dealer until they are written
MAX_WAITING = 200  # of all dealers
FLUSH_SECONDS = 1.0
log = structlog.get_logger(__name__)


class CallSample:
    """One per process. `wants` and `keep` only put into memory; `running` writes."""

    def __init__(self, database: Database, clock: Clock, trusted: Sequence[access.Network]):
        self._database = database
        self._clock = clock
        self._trusted = trusted
        self._flush_needed = asyncio.Event()
        self._served: dict[int, int] = {}  # since the last flush, by tenant_id
        self._carried = Counter[int]()  # before that, of dealers of whom nothing was kept
        self._waiting: list[ServedCall] = []

    def wants(self, tenant_id: int) -> bool:
        """Counts a call that succeeded. Whether it is to be kept."""
        count = self._served[tenant_id] = self._served.get(tenant_id, 0) + 1
        return count <= PER_DEALER and len(self._waiting) < MAX_WAITING

    def keep(
        self,
        scope: MutableMapping[str, Any],
        head: Head,
        trace: bytes,
        began: float,
        tenant_id: int,
        body: bytes,
        answer_bytes: int,
    ) -> None:
        """`began`: when its last byte came, by perf_counter."""
        client, request_id = scope.get("client"), head.values[authenticate.REQUEST_ID]
        app_key, (subject_kind, subject) = head.values[authenticate.ACCESS_CODE], call_subject.of_body(body)
        self._waiting.append(
            ServedCall(
                tenant_id=tenant_id,
                at=self._clock(),
                path=scope["raw_path"].decode(),
                request_id="" if request_id is None else request_id.decode(),
                trace_id=trace.decode(),
                address=access.client_address(client[0] if client else "", head.forwarded_for, self._trusted),
                microseconds=min(int((perf_counter() - began) * 1_000_000), 2**31 - 1),
                body_bytes=len(body),
                answer_bytes=answer_bytes,
                app_key="" if app_key is None else app_key.decode(),
                subject_kind=subject_kind,
                subject=subject,
            )
        )
        self._flush_needed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Writes while it is open, and what is left at the end."""
        async with background_flush(self._run(), self._flush):
            yield

    async def _run(self) -> None:
        while True:
            await self._flush_needed.wait()
            self._flush_needed.clear()
            await asyncio.shield(asyncio.ensure_future(self._flush()))
            await asyncio.sleep(FLUSH_SECONDS)

    async def _flush(self) -> None:
        """Writes what waits. What a lost database cannot take is dropped."""
        kept, served = self._waiting, self._carried + Counter(self._served)
        self._waiting, self._served = [], {}
        tenants = {call.tenant_id for call in kept}
        self._carried = Counter({tenant_id: count for tenant_id, count in served.items() if tenant_id not in tenants})
        if not kept:
            return
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        try:
            async with self._database.transaction() as connection:
                await served_call.write(connection, kept, {tenant_id: served[tenant_id] for tenant_id in tenants})
                await call_hour.add(connection, [CallHour(one, hour, served[one]) for one in sorted(tenants)])
        except DatabaseLost:
            pass
        except Exception as error:
            log.error("served_calls_not_written", error=repr(error))
