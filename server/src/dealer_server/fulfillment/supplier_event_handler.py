"""Applies suppliers' messages, each in one transaction with the message itself: one that comes twice counts once."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import failpoints
from dealer_server.clock import Clock
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import lifecycle_tracker
from dealer_server.store.suppliers import purchase
from dealer_server.store.suppliers import supplier as suppliers
from dealer_server.suppliers.contract import Event, ProfileReport

log = structlog.get_logger()


class SupplierEventHandler:
    """Handles one message after the other. `changed` is called after orders changed, `due` when a supplier is to be
    asked now."""

    def __init__(
        self,
        session: Session,
        data_keys: DataKeys,
        clock: Clock,
        changed: Callable[[], None],
        due: Callable[[], None],
        usage_interval: timedelta,
    ):
        self._session = session
        self._data_keys = data_keys
        self._clock = clock
        self._changed = changed
        self._due = due
        self._usage_interval = usage_interval
        self._one_at_a_time = asyncio.Lock()

    async def handle(self, code: str, event: Event, body: bytes) -> None:
        """Raises DatabaseLost: the message is not stored, and the supplier may send it again. So it is while another
        transaction holds a row of it."""
        try:
            await asyncio.shield(asyncio.create_task(self._handle(code, event, body)))
        except LockTimeout as error:
            raise DatabaseLost(sent=False) from error

    async def close(self) -> None:
        async with self._one_at_a_time:
            await self._session.close()

    async def _handle(self, code: str, event: Event, body: bytes) -> None:
        """Goes on when its caller has gone, and holds the lock until it ends: there is one session."""
        session, now = self._session, self._clock()
        async with self._one_at_a_time, session.transaction():
            changed = await self._report(code, event.reports, now) if event.reports else []
            due = await purchase.make_due_by_name(session, code, event.about, now) if event.about else 0
            state = "ASKED" if due else "APPLIED" if event.reports else "UNKNOWN"
            new = await suppliers.add_event(session, self._data_keys, code, event.key, event.kind, state, body, now)
            failpoints.hit("event.written")
        if not new:
            return
        log.info("supplier_message", supplier=code, kind=event.kind, state=state)
        if changed:
            self._changed()
        if due:
            self._due()

    async def _report(
        self, code: str, reports: Sequence[ProfileReport], now: datetime
    ) -> list[lifecycle_tracker.Changed]:
        return await lifecycle_tracker.report(
            self._session, code, reports, self._data_keys, now, usage_interval=self._usage_interval
        )
