"""How do notices reach people and programs? looks → address → claim → send → record.

Any number of workers may run on one database: of each notice it is decided once who is told, and each mail and POST is
claimed with a lease. A worker that dies between sending and recording leaves a lease that expires: the same noticeId is
sent again.
"""

import asyncio
import random
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.message import EmailMessage
from typing import NamedTuple

import structlog

from dealer_server import failpoints
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost, StatementTimeout
from dealer_server.db.polling import attempt, wait_for
from dealer_server.db.sealing import DataKeys, MasterKeys
from dealer_server.db.session import Session
from dealer_server.notices import url
from dealer_server.notices.looks import WALLETS_AT_ONCE, Limits, Looks
from dealer_server.notices.mailer import Mailer, NotSent
from dealer_server.notices.message import Sender, message, with_link
from dealer_server.operations.notices import confirm
from dealer_server.operations.users import password_reset
from dealer_server.rules.notices import texts
from dealer_server.rules.notices.notice import (
    CONFIRM_ADDRESS,
    RESET_LINK,
    address,
    is_mail_address,
    next_digest,
    notice_no,
    recipients,
)
from dealer_server.rules.webhooks import backoff
from dealer_server.store.notices import confirmations, deliveries, outbox
from dealer_server.store.notices import recipients as recipient_store
from dealer_server.store.notices.deliveries import Claimed
from dealer_server.store.notices.outbox import Notice
from dealer_server.store.tenants import password_reset as password_resets
from dealer_server.store.webhooks import signer as webhook_signer
from dealer_server.webhooks.outbound import GONE, Outbound
from dealer_server.webhooks.tasks import BackgroundTasks

log = structlog.get_logger()

NOTICES_AT_ONCE = 100
LOST = "the worker ended before it recorded this attempt"


class Options(NamedTuple):
    """They are constant in production, except for the schedule and the hour of digests; tests shorten them."""

    schedule: Sequence[float] = backoff.SCHEDULE_SECONDS
    digest_hour: int = 7
    poll_seconds: float = 1.0
    balance_seconds: float = 5.0
    condition_seconds: float = 60.0
    lease_seconds: float = 120.0  # an attempt ends long before
    at_once: int = 8
    stop_seconds: float = 5.0


class Outcome(NamedTuple):
    """Of an attempt. `problem` None: it was taken; `final`: it is not tried again."""

    problem: str | None = None
    final: bool = False
    skipped: bool = False
    retry_after: float | None = None


TAKEN, SKIPPED = Outcome(), Outcome(skipped=True)


class NoticeWorker:
    """One per worker process. Tests drive it by hand with `look`, `address`, `run_once` and `settle`."""

    def __init__(
        self,
        database: Database,
        limits: Limits,
        mailer: Mailer | None,
        sender: Sender,
        outbound: Outbound,
        master_keys: MasterKeys,
        data_keys: DataKeys,
        clock: Clock,
        options: Options,
    ):
        self.wake = asyncio.Event()
        self._database = database
        self._session = database.session()  # of the loop; outcomes are recorded beside it
        self._looks = Looks(self._session, clock, limits)
        self._mailer = mailer
        self._sender = sender
        self._outbound = outbound
        self._master_keys = master_keys
        self._data_keys = data_keys
        self._clock = clock
        self._options = options
        self._tasks = BackgroundTasks()
        self._ended = asyncio.Event()
        self._balances_at = self._conditions_at = 0.0

    async def run(self) -> None:
        """Until cancelled; what is under way then gets a few seconds, and else is sent again later."""
        try:
            while True:
                self._ended.clear()
                if not await attempt("notices", self._step):
                    await wait_for(self._ended, self._options.poll_seconds)
        finally:
            await self._tasks.wait(self._options.stop_seconds)
            self._tasks.cancel()
            await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def look(self) -> None:
        """Looks at balances, stock, queues and plans now. Raises DatabaseLost."""
        while await self._looks.balances() == WALLETS_AT_ONCE:
            pass
        await self._looks.conditions()

    async def address(self) -> int:
        """Decides who is told of the notices that are new; how many there were. Raises DatabaseLost."""
        async with self._session.transaction() as session:
            new = await outbox.take_new(session, NOTICES_AT_ONCE, self._clock())
            if new:
                await self._enqueue(session, new)
        return len(new)

    async def run_once(self) -> int:
        """Claims what is due, as far as there is room, and starts it; how much there was. Raises DatabaseLost."""
        room = self._options.at_once - len(self._tasks)
        if room <= 0:
            return 0
        claim_id, now = secrets.randbits(62), self._clock()
        async with self._session.transaction() as session:
            until = now + timedelta(seconds=self._options.lease_seconds)
            claimed = await deliveries.claim(session, claim_id, room, now, until)
        if claimed:
            failpoints.hit("notice.claimed")
        for delivery in claimed:
            self._tasks.start(self._deliver(delivery, claim_id))
        return len(claimed)

    async def settle(self) -> None:
        """Returns once what was started has ended and is recorded."""
        while self._tasks:
            await self._tasks.wait()

    async def _step(self) -> int:
        """How much there was to do. Raises DatabaseLost."""
        await self._look_when_due()
        if not self.wake.is_set():
            return 0
        self.wake.clear()
        if count := await self.address() or await self.run_once():
            self.wake.set()  # there may be more
        return count

    async def _look_when_due(self) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._balances_at:
            self._balances_at = now + self._options.balance_seconds
            await self._looks.balances()
        if now >= self._conditions_at:
            self._conditions_at = now + self._options.condition_seconds
            await self._looks.conditions()

    async def _enqueue(self, session: Session, new: Sequence[Notice]) -> None:
        now, tenant_ids = self._clock(), sorted({notice.tenant_id for notice in new})
        urls = await recipient_store.urls(session, tenant_ids)
        users = await recipient_store.users(session, tenant_ids) if self._mailer else []
        for notice in new:
            if notice.notice_type in (CONFIRM_ADDRESS, RESET_LINK):
                if self._mailer:  # at once, whatever the user wants to be told of
                    await deliveries.enqueue(session, notice, notice.data["userId"], now)
                continue
            if notice.tenant_id in urls:
                await deliveries.enqueue(session, notice, None, now)
            for user in recipients(notice.tenant_id, notice.notice_type, users):
                if user.digest:
                    due_at = next_digest(now, self._options.digest_hour)
                    await deliveries.collect(session, notice, user.user_id, due_at, now)
                else:
                    await deliveries.enqueue(session, notice, user.user_id, now)

    async def _deliver(self, delivery: Claimed, claim_id: int) -> None:
        try:
            outcome = await self._outcome(delivery)
            failpoints.hit("notice.sent")
            await self._record(delivery, claim_id, outcome)
        except (DatabaseLost, StatementTimeout):
            log.warning("notice_not_recorded", delivery_id=delivery.delivery_id)  # its lease expires
        except Exception:
            log.exception("notice_not_recorded", delivery_id=delivery.delivery_id)
        finally:
            self.wake.set()
            self._ended.set()

    async def _outcome(self, delivery: Claimed) -> Outcome:
        if delivery.attempt_count > len(self._options.schedule):
            return Outcome(LOST, final=True)
        async with self._database.connection() as connection:
            notices = await deliveries.contents(connection, delivery)
        try:
            if not delivery.active or not notices:
                return SKIPPED
            return await (
                self._post(delivery, notices[0]) if delivery.user_id is None else self._mail(delivery, notices)
            )
        except (DatabaseLost, StatementTimeout):
            raise
        except Exception:
            log.exception("notice_attempt_failed", delivery_id=delivery.delivery_id)
            return Outcome("INTERNAL")

    async def _mail(self, delivery: Claimed, notices: Sequence[Notice]) -> Outcome:
        if notices[0].notice_type == CONFIRM_ADDRESS:
            to, made = await self._confirmation(delivery.user_id, notices[0])
        elif notices[0].notice_type == RESET_LINK:
            to, made = await self._password_reset(delivery, notices[0])
        else:
            to = address(delivery.mail, delivery.name)
            made = (
                message(self._sender, to, delivery.name, notices, [delivery.delivery_id], digest=delivery.digest)
                if is_mail_address(to)
                else None
            )
        if self._mailer is None or made is None:
            return SKIPPED
        try:
            await self._mailer.send(to, made)
        except NotSent as why:
            return Outcome(str(why), final=why.final)
        return TAKEN

    async def _confirmation(self, user_id: int | None, notice: Notice) -> tuple[str, EmailMessage | None]:
        """An address, and the link that confirms it; None where there is nothing to confirm any more."""
        assert user_id is not None, "a notice URL needs no confirmation"
        async with self._database.connection() as connection:
            found = await confirmations.of_user(connection, user_id)
        if found is None or found.expires_at <= self._clock():
            return "", None
        token = confirm.token(self._data_keys, found)
        text = texts.confirmation(found.mail, found.expires_at, f"{confirm.PATH}{token}")
        return found.mail, with_link(self._sender, "confirmation", found.mail, text, token, notice.created_at)

    async def _password_reset(self, delivery: Claimed, notice: Notice) -> tuple[str, EmailMessage | None]:
        """To where the user's notices go; None where the link has ended, or the user has no address."""
        assert delivery.user_id is not None, "a notice URL has no password"
        async with self._database.connection() as connection:
            found = await password_resets.of_user(connection, delivery.user_id)
        to = address(delivery.mail, delivery.name)
        if found is None or found.expires_at <= self._clock() or not is_mail_address(to):
            return "", None
        token = password_reset.token(self._data_keys, found)
        text = texts.password_reset(delivery.name, found.expires_at, f"{password_reset.PATH}{token}")
        return to, with_link(self._sender, "password-reset", to, text, token, notice.created_at)

    async def _post(self, delivery: Claimed, notice: Notice) -> Outcome:
        async with self._database.connection() as connection:
            signer = await webhook_signer.load(connection, delivery.tenant_id)
        if not delivery.url or signer is None:
            return SKIPPED
        now, raw, no = self._clock(), url.body(notice), notice_no(notice.notice_id)
        signed = url.headers(signer, self._master_keys, no, delivery.attempt_count, raw, now)
        answer = await self._outbound.post(delivery.url, raw, signed, now)
        if answer.error is None:
            return TAKEN
        problem = f"HTTP {answer.status}" if answer.error in ("STATUS", "REDIRECT", "GONE") else answer.error
        return Outcome(problem, final=answer.status == GONE, retry_after=answer.retry_after_seconds)

    async def _record(self, delivery: Claimed, claim_id: int, outcome: Outcome) -> None:
        now = self._clock()
        state, due_at = self._next(delivery, outcome, now)
        async with self._database.transaction() as connection:
            await deliveries.record(connection, delivery, claim_id, state, outcome.problem, due_at, now)
        if outcome.problem is not None:
            reason = outcome.problem if delivery.user_id is None else outcome.problem.partition(" ")[0]  # no address
            log.warning("notice_not_delivered", delivery_id=delivery.delivery_id, tenant_id=delivery.tenant_id,
                        by="url" if delivery.user_id is None else "mail", state=state,
                        attempt=delivery.attempt_count, reason=reason)  # fmt: skip

    def _next(self, delivery: Claimed, outcome: Outcome, now: datetime) -> tuple[str, datetime | None]:
        """The state after an attempt, and when the next one is due."""
        if outcome.problem is None:
            return ("SKIPPED" if outcome.skipped else "DELIVERED"), None
        wait = backoff.delay_seconds(
            delivery.attempt_count, random.random(), outcome.retry_after, self._options.schedule
        )
        if outcome.final or wait is None:
            return "FAILED", None
        return "RETRY", now + timedelta(seconds=wait)
