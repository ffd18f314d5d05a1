"""Who tells clients of the RT family that a plan has one day left? Time does not change an order: this looks for it.

Ends of plans are gone through once, in the order of time. A plan whose end moves on is told of again.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.rules.rt import esim, events
from dealer_server.store.webhooks import changes, order_queue, rt_validity
from dealer_server.store.webhooks.rt_validity import Ending

log = structlog.get_logger()

LOOK_SECONDS = 30.0
AHEAD = timedelta(days=1)


class RtValidity:
    """Any number of workers may run it on one database. `wake` is set when events are enqueued."""

    def __init__(self, database: Database, data_keys: DataKeys, clock: Clock, wake: asyncio.Event):
        self._session = database.session()
        self._data_keys = data_keys
        self._clock = clock
        self._wake = wake

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            while True:
                await self._look_or_log()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._session.close()

    async def look(self) -> int:
        """Enqueues VALIDITY_USAGE of the plans that came within a day of their end; how many. Raises DatabaseLost."""
        now = self._clock()
        async with self._session.transaction() as session:
            since = await rt_validity.lock(session)
            if since is None or since >= now + AHEAD:
                return 0
            ending = await rt_validity.ending(session, max(since, now), now + AHEAD)
            await self._tell(session, ending, now)
            full = len(ending) >= rt_validity.AT_ONCE
            await rt_validity.move(session, ending[-1].ends_at if full else now + AHEAD)
        if ending:
            self._wake.set()
        return len(ending)

    async def _tell(self, session: Session, ending: Sequence[Ending], now: datetime) -> None:
        if not ending:
            return
        keys = sorted({(plan.tenant_id, plan.order_id) for plan in ending})
        await order_queue.lock_unfinished(session, keys)
        orders = await store.order.load(session, keys, self._data_keys)
        codes = {item.package_code for order in orders.values() for item in order.items}
        added = {plan.package_code for order in orders.values() for of in order.profiles for plan in of.plans}
        packages = {package.package_code: package for package in await store.package.some(session, codes | added)}
        told = []
        for plan in ending:
            order = orders[plan.tenant_id, plan.order_id]
            item, profile = order.find_profile(plan.profile_id)
            totals = esim.totals(order, item, profile, packages.get)
            told.append((order, events.ends_tomorrow(order, profile, totals, now)))
        await changes.add_rt_events(session, told, self._data_keys, now)

    async def _look_or_log(self) -> None:
        try:
            while await self.look() >= rt_validity.AT_ONCE:
                pass
        except DatabaseLost:
            pass
        except Exception:
            log.exception("rt_validity_failed")
