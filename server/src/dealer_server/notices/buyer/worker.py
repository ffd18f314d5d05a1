"""How does a buyer get the page of an eSIM by mail? claim → write → send → record.

Any number of workers may run on one database. A worker that dies between sending and recording leaves a lease that
expires: the same Message-ID is sent again.
"""

import asyncio
import random
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.message import EmailMessage

import structlog

from dealer_server.clock import Clock
from dealer_server.db import polling
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.notices.buyer.message import message
from dealer_server.notices.mailer import Mailer, NotSent
from dealer_server.notices.message import Sender
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.webhooks import backoff
from dealer_server.store.notices import buyer_mails
from dealer_server.store.notices.buyer_mails import Claimed
from dealer_server.store.orders import order as store_order

AT_ONCE = 3  # one after the other, within the lease
POLL_SECONDS = 1.0
LEASE = timedelta(minutes=2)  # an attempt ends long before
LOOKED_AT = timedelta(seconds=1), timedelta(minutes=5)
"""How soon a mail whose eSIM has no page yet is looked at again: the older it is, the later, within these."""
WAITS = timedelta(days=7)
"""For the page of its eSIM; after it nothing is mailed."""
LOST = "the worker ended before it recorded this attempt"
log = structlog.get_logger()


class BuyerMailWorker:
    """One per worker process. `mailer` None: what waits is skipped. Tests drive it by hand with `run_once`."""

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        links: Links,
        mailer: Mailer | None,
        sender: Sender,
        clock: Clock,
        schedule: Sequence[float] = backoff.SCHEDULE_SECONDS,
    ):
        self.wake = asyncio.Event()
        self._session = database.session()
        self._data_keys = data_keys
        self._links = links
        self._mailer = mailer
        self._sender = sender
        self._clock = clock
        self._schedule = schedule

    async def run(self) -> None:
        """Until cancelled; what is under way then is sent again later."""
        try:
            await polling.work("mails to buyers", self.run_once, POLL_SECONDS, self.wake)
        finally:
            await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def run_once(self) -> int:
        """Sends what is due, a few at a time; how many there were. Raises DatabaseLost."""
        claim_id, now = secrets.randbits(62), self._clock()
        claimed = await buyer_mails.claim(self._session, claim_id, AT_ONCE, now, now + LEASE)
        for one in claimed:
            profile = await self._profile(one)
            if profile is not None and profile.iccid is None and now - one.created_at < WAITS:
                await buyer_mails.wait(self._session, one, claim_id, self._look_again(one))
            else:
                await self._deliver(one, claim_id, await self._written(one, profile))
        return len(claimed)

    async def _profile(self, one: Claimed) -> Profile | None:
        """None where it is void: it was refunded or cancelled, or its order is no more kept."""
        key = (one.tenant_id, one.order_id)
        order = (await store_order.load(self._session, [key], self._data_keys)).get(key)
        if order is None:
            return None
        _, profile = order.find_profile(one.profile_id)
        return None if profile.cancelled or profile.refunded else profile

    def _look_again(self, one: Claimed) -> datetime:
        now = self._clock()
        return now + min(max((now - one.created_at) / 4, LOOKED_AT[0]), LOOKED_AT[1])

    async def _written(self, one: Claimed, profile: Profile | None) -> EmailMessage | None:
        """None where there is nothing to be told: there is no page, or its dealer is not active."""
        brand, active = await buyer_mails.sender(self._session, one.tenant_id)
        if profile is None or profile.iccid is None or not active:
            return None
        return message(self._sender, brand, one, snapshot.install_page_url(profile, one.tenant_id, self._links))

    async def _deliver(self, one: Claimed, claim_id: int, written: EmailMessage | None) -> None:
        if self._mailer is None or written is None:
            await self._record(one, claim_id, "SKIPPED", None)
            return
        if one.attempt_count > len(self._schedule):
            await self._record(one, claim_id, "FAILED", LOST)
            return
        try:
            await self._mailer.send(one.mail, written)
        except NotSent as why:
            # What a server says may hold the address: its code alone is kept.
            reason = str(why).partition(" ")[0]
            wait = backoff.delay_seconds(one.attempt_count, random.random(), None, self._schedule)
            log.warning("buyer_mail_not_sent", tenant_id=one.tenant_id, mail_id=one.mail_id, reason=reason)
            final = why.final or wait is None
            await self._record(one, claim_id, "FAILED" if final else "RETRY", reason, None if final else wait)
        else:
            await self._record(one, claim_id, "DELIVERED", None)

    async def _record(
        self, one: Claimed, claim_id: int, state: str, problem: str | None, wait: float | None = None
    ) -> None:
        due_at = None if wait is None else self._clock() + timedelta(seconds=wait)
        await buyer_mails.record(self._session, one, claim_id, state, problem, due_at)
