"""The request ids of writing calls in PostgreSQL, where processes see each other's while Valkey is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice

import structlog

from dealer_server.db.batcher import Batcher
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.session import Session
from dealer_server.store.tenants import request_id as stored

AT_ONCE = 500
SWEEP_SECONDS = 60.0
log = structlog.get_logger(__name__)

Id = tuple[str, str]


class OwnIds:
    """The ids of a process's writing calls of the last eleven minutes, 16 bytes each, until PostgreSQL has them."""

    TICK_SECONDS = 10
    LIFE_TICKS = 66

    def __init__(self) -> None:
        self._ticks: dict[int, dict[str, bytearray]] = {}

    def add(self, app_key: str, request_id: str, now: float) -> None:
        tick = int(now) // self.TICK_SECONDS
        of_tick = self._ticks.get(tick)
        if of_tick is None:
            self._ticks = {older: ids for older, ids in self._ticks.items() if older >= tick - self.LIFE_TICKS}
            of_tick = self._ticks[tick] = {}
        of_tick.setdefault(app_key, bytearray()).extend(bytes.fromhex(request_id))

    def aged(self) -> Iterator[tuple[str, str, float]]:
        """(app_key, request id, seconds ago), counted from the newest."""
        newest = max(self._ticks, default=0)
        for tick, of_tick in list(self._ticks.items()):
            for app_key, packed in list(of_tick.items()):
                ago = float((newest - tick) * self.TICK_SECONDS)
                yield from ((app_key, packed[at : at + 16].hex(), ago) for at in range(0, len(packed), 16))


class WrittenIds:
    """The ids of all processes. Recording goes through one session in batches, everything else through another."""

    def __init__(self, recording: Session, session: Session):
        self._recording = recording
        self._session = session
        self._lock = asyncio.Lock()
        self._batcher: Batcher[Id, bool] = Batcher(self._use, bound=AT_ONCE)

    async def use(self, app_key: str, request_id: str) -> bool:
        """Records the id; False when any process has within eleven minutes. Raises DatabaseLost."""
        return await self._batcher.submit((app_key, request_id))

    async def keep(self, own: OwnIds) -> None:
        """Records what a process has taken before. Raises DatabaseLost."""
        ids = own.aged()
        while chunk := list(islice(ids, AT_ONCE)):
            async with self._lock:
                await stored.keep(self._session, chunk)

    async def recent(self, seconds: float) -> AsyncIterator[list[Id]]:
        """The ids of the last `seconds`, in chunks. Raises DatabaseLost."""
        after: Id | None = None
        while True:
            async with self._lock:
                chunk = await stored.recent(self._session, seconds, after, AT_ONCE)
            if not chunk:
                return
            yield chunk
            after = chunk[-1]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweeps what is older than eleven minutes; at the end the sessions are closed."""
        sweeping = asyncio.create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.wait([sweeping])
            await self._batcher.drain()
            await self._recording.close()
            await self._session.close()

    async def _sweep(self) -> None:
        while True:
            try:
                async with self._lock:
                    await stored.sweep(self._session)
            except DatabaseLost:
                pass
            except Exception as error:
                log.error("request_ids_not_swept", error=repr(error))
            await asyncio.sleep(SWEEP_SECONDS)

    async def _use(self, batch: Sequence[Id]) -> list[bool | Exception]:
        fresh = await stored.use(self._recording, batch)
        return [request in fresh for request in batch]
