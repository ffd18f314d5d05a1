"""Wakes the worker's loops when work of theirs is due: one statement looks for all of them, so that an idle worker asks
its database little.

It wakes a loop again at each look for as long as its work is due, so a loop may miss it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from dealer_server.clock import Clock
from dealer_server.db import polling
from dealer_server.db.database import Database
from dealer_server.fulfillment.supervisor import SupplierLoop
from dealer_server.store import due_work
from dealer_server.store.due_work import Kind

POLL_SECONDS = 0.15


class DueWorkPoller:
    """`loops`: those that work for one supplier each, as they run now. `events`: what wakes the others."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        loops: Callable[[], Sequence[SupplierLoop]],
        events: Mapping[Kind, asyncio.Event],
    ):
        self._session = database.session()
        self._clock = clock
        self._loops = loops
        self._events = events

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await polling.work("due work", self.poll, POLL_SECONDS)
        finally:
            await self._session.close()

    async def poll(self) -> int:
        """Wakes whose work is due now. 0: the next look is after a pause. Raises DatabaseLost."""
        loops = self._loops()
        due = await due_work.find(self._session, {loop.code for loop in loops}, self._clock())
        for loop in loops:
            if loop.code in due.suppliers:
                loop.wake.set()
        for kind, event in self._events.items():
            if kind in due.kinds:
                event.set()
        return 0
