"""Admission shared by several processes through Valkey."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import structlog
from valkey.asyncio import Valkey
from valkey.asyncio.retry import Retry
from valkey.backoff import NoBackoff
from valkey.exceptions import ValkeyError

from dealer_server.api.admission.local import REUSED, UNLIMITED, Admission, LocalAdmission
from dealer_server.api.admission.request_ids import REQUEST_ID_SECONDS
from dealer_server.api.admission.script import ADMIT_SCRIPT, ANSWER, admission_of
from dealer_server.api.admission.written_ids import OwnIds, WrittenIds
from dealer_server.db.errors import DatabaseLost

OTHERS_BACK_SECONDS = 10.0  # within which all processes have found a Valkey that is back

log = structlog.get_logger(__name__)


class Call(NamedTuple):
    """One call that waits for Valkey's answer."""

    app_key: str
    request_id: str
    tenant_id: int
    qps: int
    now: float
    admission: asyncio.Future[Admission]


class SharedAdmission:
    """Admission shared by several processes through Valkey, by one script and at most one round trip a call.

    Calls that arrive during a round trip share the next one. While Valkey is lost, this process decides by its own
    memory of request ids and with its share of each tenant's QPS, until a probe succeeds. It records every id at all
    times, so that the loss of Valkey admits no id twice.

    Writing calls are admitted once by all processes also then: their ids go to PostgreSQL (`written`), those of the
    last eleven minutes first, and from there into Valkey before it is used again.
    """

    shared = True
    CALLS_PER_ROUND_TRIP = 256

    def __init__(
        self,
        url: str,
        *,
        share: float,
        key_prefix: str = "dealer:",
        timeout_seconds: float = 0.2,
        probe_seconds: float = 1.0,
        failures_per_second: float = 50,
        failures_burst: int = 200,
        written: WrittenIds | None = None,
    ) -> None:
        self._written = written
        self._own_ids = OwnIds()
        self._settling: asyncio.Task[None] | None = None
        self._valkey: Any = Valkey.from_url(
            url,
            socket_timeout=timeout_seconds,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
        )
        self._timeout_seconds = timeout_seconds
        self._probe_seconds = probe_seconds
        self._request_keys = key_prefix + "request:"
        self._bucket_keys = key_prefix + "qps:"
        self._local = LocalAdmission(
            share=share, failures_per_second=failures_per_second, failures_burst=failures_burst
        )
        self._waiting: list[Call] = []
        self._sender: asyncio.Task[None] | None = None
        self._probe: asyncio.Task[None] | None = None
        self.degraded = False
        self.failed_authentication = self._local.failed_authentication
        self.authentication_blocked = self._local.authentication_blocked

    async def admit(
        self,
        app_key: str,
        request_id: str,
        tenant_id: int,
        qps: int,
        now: float,
        wall: float | None = None,
        writes: bool = False,
    ) -> Admission:
        """The request id first, and only when it is fresh a token of the tenant. The id stays used either way. Raises
        DatabaseLost for a call that `writes` while Valkey is away."""
        aging = now if wall is None else wall
        if not self._local.use_request_id(app_key, request_id, aging):
            return REUSED
        if self.degraded:
            admitted = self._decide_locally(tenant_id, qps, now)
        else:
            admission = asyncio.get_running_loop().create_future()
            self._waiting.append(Call(app_key, request_id, tenant_id, qps, now, admission))
            if self._sender is None:
                self._sender = asyncio.create_task(self._round_trips())
            admitted = await admission
        if not (writes and admitted.fresh and self._written):
            return admitted
        if self.degraded or self._settling:  # recorded there now, and not once more with this process's older ids
            return admitted if await self._written.use(app_key, request_id) else REUSED
        self._own_ids.add(app_key, request_id, aging)
        return admitted

    async def close(self) -> None:
        """Answers the calls that wait, then closes the connection."""
        if self._sender is not None:
            await self._sender
        for task in (self._probe, self._settling):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._valkey.aclose()

    async def _round_trips(self) -> None:
        """Decides the calls that wait, in batches, until none waits."""
        try:
            while self._waiting:
                calls = self._waiting[: self.CALLS_PER_ROUND_TRIP]
                del self._waiting[: self.CALLS_PER_ROUND_TRIP]
                for call, admission in zip(calls, await self._decide(calls), strict=True):
                    if not call.admission.done():  # its caller may have gone
                        call.admission.set_result(admission)
        finally:
            self._sender = None

    async def _decide(self, calls: list[Call]) -> list[Admission]:
        if not self.degraded:
            try:
                return await self._ask(calls)
            except Exception as error:  # no call fails because of Valkey
                self._lose(error)
        return [self._decide_locally(call.tenant_id, call.qps, call.now) for call in calls]

    def _decide_locally(self, tenant_id: int, qps: int, now: float) -> Admission:
        """For an id that is fresh in this process."""
        return Admission(True, self._local.take(tenant_id, qps, now)) if qps else UNLIMITED

    async def _ask(self, calls: Sequence[Call]) -> list[Admission]:
        """One round trip. Raises whatever the client raises, and TimeoutError."""
        keys: list[str] = []
        for call in calls:
            keys.append(f"{self._request_keys}{call.app_key}:{call.request_id}")
            keys.append(f"{self._bucket_keys}{call.tenant_id}")
        async with asyncio.timeout(self._timeout_seconds):
            answers = await self._valkey.eval(ADMIT_SCRIPT, len(keys), *keys, *[call.qps for call in calls])
        return [
            admission_of(decision, debt, call.qps)
            for call, (decision, debt) in zip(calls, ANSWER.iter_unpack(answers), strict=True)
        ]

    def _lose(self, error: Exception) -> None:
        self.degraded = True
        log.warning("shared_admission_lost", error=repr(error))
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None
        self._probe = asyncio.create_task(self._probe_until_found())

    async def _probe_until_found(self) -> None:
        """Runs the script on a call without a tenant: a server that answers but cannot write is not back."""
        probe = Call("", "", 0, 0, 0.0, asyncio.get_running_loop().create_future())
        kept = self._written is None
        while self.degraded:
            try:
                if not kept and self._written:
                    await self._written.keep(self._own_ids)
                    kept = True
                await asyncio.sleep(self._probe_seconds)
                await self._ask([probe])
                if self._written:
                    await self._fill(self._written, REQUEST_ID_SECONDS)
                    self._settling = asyncio.create_task(self._settle(self._written))
                self.degraded = False
            except (ValkeyError, OSError, TimeoutError, DatabaseLost):
                if not kept:
                    await asyncio.sleep(self._probe_seconds)
            except Exception as unexpected:
                log.error("shared_admission_probe_failed", error=repr(unexpected))
                await asyncio.sleep(self._probe_seconds)
        log.info("shared_admission_found")

    async def _fill(self, written: WrittenIds, seconds: float) -> None:
        """Puts the ids of the last `seconds` into Valkey. Raises whatever the client raises, and DatabaseLost."""
        async for ids in written.recent(seconds):
            pipeline = self._valkey.pipeline(transaction=False)
            for app_key, request_id in ids:
                pipeline.set(f"{self._request_keys}{app_key}:{request_id}", "", nx=True, px=REQUEST_ID_SECONDS * 1000)
            await pipeline.execute()

    async def _settle(self, written: WrittenIds) -> None:
        """Other processes may find Valkey a little later and use PostgreSQL until then: writing calls ask both, and ids
        recorded meanwhile are put into Valkey at the end."""
        while True:
            await asyncio.sleep(OTHERS_BACK_SECONDS)
            try:
                await self._fill(written, 6 * OTHERS_BACK_SECONDS)
                break
            except Exception as error:  # tried again; until then PostgreSQL decides too
                log.warning("request_ids_not_shared", error=repr(error))
        self._settling = None
