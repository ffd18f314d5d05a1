"""How does an event reach its dealer? prepare → post → record (docs/decisions/0006-webhook-lanes.md).

Prepare claims due deliveries, freezes what each says and counts the attempt, in one transaction. Post holds no
connection. Record writes what came of it, in batches. What is lost on the way comes due again when its lease runs out,
with the same bytes.
"""

import asyncio
import random
import secrets
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg
import msgspec
import structlog

from dealer_server import failpoints, metrics
from dealer_server.clock import Clock
from dealer_server.db.batcher import Batcher
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import CannotOpen, DataKeys, MasterKeys, delivery_context
from dealer_server.rules.delivery import backoff
from dealer_server.rules.delivery.change_hints import change_hints
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.orders import order as orders
from dealer_server.store.webhooks import webhook as rows
from dealer_server.store.webhooks.webhook import Baseline, Claimed, Finished, Frozen, Health, Lapsed, Signer
from dealer_server.webhooks import signature
from dealer_server.webhooks.outbound import GONE, Answer, Outbound
from esim_dealer.wire import signing
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import AttemptError, DeliveryState

log = structlog.get_logger()

LEASE_SECONDS = 60.0  # far longer than an attempt may take, 10 s
IN_FLIGHT = 256  # posts begun less than a second ago
MOST_IN_FLIGHT = 2_048  # all posts: slow receivers hold no more than memory and sockets
SLOW_SECONDS = 1.0
PROFILES_PER_BATCH = 1_000  # what is prepared in one go, some 30 ms
TENANTS_PER_LOOK = 500
ROWS_PER_CLAIM = 200  # small enough that one batch is prepared while the last one is posted
POSTS_PER_TURN = 16
ROWS_PER_RECORD = 500
ROWS_PER_UPKEEP = 5_000
POLL_SECONDS = 0.05
BREATH_SECONDS = 0.004  # between two claims, so that batches form
UPKEEP_SECONDS = 1.0
FORGET_SECONDS = 3600.0
ATTEMPTS_KEPT = timedelta(days=30)
STOP_SECONDS = 5.0
TROUBLE_SECONDS = 0.25
ASIDE = timedelta(minutes=1)  # how long a delivery that we cannot prepare is set aside

LOST: AttemptError = "LOST"  # the worker did not come back
STOPPED: AttemptError = "STOPPED"  # the worker was stopped in the middle
INTERNAL: AttemptError = "INTERNAL"
OURS = frozenset((LOST, STOPPED, INTERNAL))  # failures that say nothing of the receiver

UNREADABLE = (CannotOpen, ValueError, LookupError)  # what stands in an order's rows is not what was written there
_snapshots = msgspec.json.Decoder(Snapshot)


class Post(NamedTuple):
    """One attempt about to be made. `abandon_at` (loop time): too late to begin, another worker may have it by then."""

    delivery: Claimed
    claim: int
    number: int
    order_version: int
    body: bytes
    signer: Signer
    abandon_at: float


class Outcome(NamedTuple):
    """What came of a claim: the row to write, and what it says of the endpoint."""

    finished: Finished
    url: str = ""  # '' where nothing was posted
    seconds_left: float = 0.0


class Batch:
    """Posts begun together: how many of them are still under way."""

    __slots__ = ("begun", "left")

    def __init__(self, begun: float, left: int):
        self.begun = begun
        self.left = left


class Deliverer:
    """The webhook worker: any number of them may run on one database, one per process.

    `schedule` holds the waits before each attempt in seconds; its length is the number of attempts.
    """

    def __init__(
        self,
        database: Database,
        data_keys: DataKeys,
        master_keys: MasterKeys,
        links: Links,
        clock: Clock,
        outbound: Outbound,
        *,
        schedule: Sequence[float] = backoff.SCHEDULE_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
        in_flight: int = IN_FLIGHT,
        most_in_flight: int = MOST_IN_FLIGHT,
        stop_seconds: float = STOP_SECONDS,
    ):
        # A worker that is stopped inside a transaction must not hold its locks for ever.
        patience = {"idle_in_transaction_session_timeout": "30s"}
        self._claims = database.session(**patience)
        self._records = database.session(**patience)
        self._care = database.session(**patience)
        self._data_keys = data_keys
        self._master_keys = master_keys
        self._links = links
        self._clock = clock
        self._outbound = outbound
        self._schedule = schedule
        self._lease_seconds = lease_seconds
        self._in_flight = in_flight
        self._most_in_flight = most_in_flight
        self._stop_seconds = stop_seconds
        self._desk: Batcher[Outcome, None] = Batcher(self._record, bound=ROWS_PER_RECORD)
        self._posts: set[asyncio.Task[None]] = set()
        self._batches: deque[Batch] = deque()
        self._claiming: asyncio.Task[int] | None = None
        self._after_tenant = 0
        self._recovered: set[int] = set()
        self._care_wanted = asyncio.Event()
        self._wake = asyncio.Event()

    # The loop

    async def run(self, wake: asyncio.Event) -> None:
        """Delivers until cancelled; then lets attempts in flight end for a few seconds, and records them."""
        self._wake = wake
        care = asyncio.create_task(self._take_care())
        try:
            while True:
                wake.clear()
                started = await self._run_whatever_comes()
                if not started:
                    await _first_of(wake, POLL_SECONDS)
                await asyncio.sleep(BREATH_SECONDS)
        finally:
            care.cancel()
            await self.stop()

    async def run_once(self) -> int:
        """Claims a batch and begins to post it; how many. Raises DatabaseLost."""
        room = self._room()
        if room < max(self._in_flight // 8, 1):
            return 0
        # A task of its own: whoever is cancelled while it commits must not cancel the commit.
        self._claiming = asyncio.create_task(self._claim_and_begin(room))
        return await asyncio.shield(self._claiming)

    async def upkeep(self) -> None:
        """Takes back what workers lost, gives up what nobody wants, closes breakers. Raises DatabaseLost."""
        for one in await rows.lapsed(self._care, self._clock(), ROWS_PER_RECORD):
            log.warning("webhook_lease_ran_out", delivery_id=one.delivery_id, tenant_id=one.tenant_id)
            metrics.webhook_leases_lost.inc()
            self._submit(self._lapsed(one))
        while await rows.skip_unfinished(self._care, self._clock(), ROWS_PER_UPKEEP) >= ROWS_PER_UPKEEP:
            pass
        while self._recovered:
            tenant_id, at = self._recovered.pop(), self._clock()
            while await rows.bring_forward(self._care, tenant_id, at, ROWS_PER_UPKEEP) >= ROWS_PER_UPKEEP:
                pass
            await rows.close_breaker(self._care, tenant_id)
            log.info("webhook_breaker_closed", tenant_id=tenant_id)
            self._wake.set()

    async def forget(self) -> None:
        """Deletes attempts older than 30 days. Raises DatabaseLost."""
        before = self._clock() - ATTEMPTS_KEPT
        while await rows.forget_attempts(self._care, before, ROWS_PER_UPKEEP) >= ROWS_PER_UPKEEP:
            pass

    async def settle(self) -> None:
        """Returns once every attempt begun has ended and is recorded."""
        while self._posts:
            await asyncio.wait(self._posts)
        await self._desk.drain()

    async def stop(self) -> None:
        """Ends what is under way: attempts get a few seconds, then they are broken off and will be made again."""
        if self._claiming is not None:
            await asyncio.wait([self._claiming])
        if self._posts:
            await asyncio.wait(self._posts, timeout=self._stop_seconds)
        for post in self._posts:
            post.cancel()
        await self.settle()
        for session in (self._claims, self._records, self._care):
            await session.close()

    async def _run_whatever_comes(self) -> int:
        """`run_once`, whose failures are waited out: nothing is lost, since nothing was promised."""
        try:
            return await self.run_once()
        except DatabaseLost:
            pass
        except (asyncpg.UniqueViolationError, asyncpg.DeadlockDetectedError):
            log.info("webhook_claim_raced")  # another worker had the same order
            return 0
        except Exception:
            log.exception("webhook_claim_failed")
        await asyncio.sleep(TROUBLE_SECONDS)
        return 0

    async def _take_care(self) -> None:
        forget_at = 0.0
        while True:
            try:
                await self.upkeep()
                if (now := asyncio.get_running_loop().time()) >= forget_at:
                    await self.forget()
                    forget_at = now + FORGET_SECONDS
            except DatabaseLost:
                pass
            except Exception:
                log.exception("webhook_upkeep_failed")
            await _first_of(self._care_wanted, UPKEEP_SECONDS)
            self._care_wanted.clear()

    def _room(self) -> int:
        """How many posts may be begun.

        Those that take long count against a far wider limit, so that a few receivers that hang do not hold up the rest.
        """
        since = asyncio.get_running_loop().time() - SLOW_SECONDS
        while self._batches and (self._batches[0].begun < since or not self._batches[0].left):
            self._batches.popleft()
        fresh = sum([batch.left for batch in self._batches])
        return min(self._in_flight - fresh, self._most_in_flight - len(self._posts), ROWS_PER_CLAIM)

    # Prepare

    async def _claim_and_begin(self, room: int) -> int:
        posts = await self._prepare(room)
        if posts:
            batch = Batch(asyncio.get_running_loop().time(), len(posts))
            self._batches.append(batch)
            self._keep(self._begin(posts, batch))
        return len(posts)

    async def _begin(self, posts: Sequence[Post], batch: Batch) -> None:
        """Begins posts a few at a time, so that the next batch is claimed while this one is being sent."""
        for count, post in enumerate(posts):
            if count % POSTS_PER_TURN == 0:
                await asyncio.sleep(0)
            self._keep(self._attempt(post, batch))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _prepare(self, room: int) -> list[Post]:
        """Claims and freezes a batch: after the commit these attempts are counted and their bytes will never change."""
        now = self._clock()
        shares = await self._shares(room, now)
        if not shares:
            return []
        begun = asyncio.get_running_loop().time()
        claim = secrets.randbits(62)
        session = self._claims
        async with session.transaction():
            claimed = await self._allowed(_bounded(await rows.claim(session, shares, now)), now)
            if not claimed:
                return []
            failpoints.hit("webhook.claimed")
            signers = await rows.signers(session, list({one.tenant_id for one in claimed}))
            bodies, frozen = await self._freeze([one for one in claimed if one.tenant_id in signers])
            known = {(one.tenant_id, one.delivery_id) for one in frozen}
            if aside := [key for one in claimed if (key := (one.tenant_id, one.delivery_id)) not in known]:
                await rows.postpone(session, aside, now + ASIDE)
            if frozen:
                await rows.freeze(session, frozen, claim, now + timedelta(seconds=self._lease_seconds))
        failpoints.hit("webhook.frozen")
        abandon_at = begun + self._lease_seconds / 2
        posts = []
        by_key = {(one.tenant_id, one.delivery_id): one for one in claimed}
        for one, body in zip(frozen, bodies, strict=True):
            delivery = by_key[one.tenant_id, one.delivery_id]
            if body is None:
                self._submit(self._nothing_to_say(delivery, claim))
            else:
                number, signer = delivery.attempt_count + 1, signers[one.tenant_id]
                posts.append(Post(delivery, claim, number, one.order_version, body, signer, abandon_at))
        return posts

    async def _shares(self, room: int, now: datetime) -> list[tuple[int, int]]:
        """Tenants that may have deliveries now, in turn, and how many each: alike, whatever others have waiting."""
        wrapped = self._after_tenant == 0
        while True:
            visited = await rows.tenants_waiting(self._claims, self._after_tenant, TENANTS_PER_LOOK, now)
            waiting = [one for one in visited if one[1] > 0]
            if len(waiting) > room:
                waiting = waiting[:room]
                self._after_tenant = waiting[-1][0]
            else:
                self._after_tenant = visited[-1][0] if len(visited) == TENANTS_PER_LOOK else 0
            if waiting:
                share = -(-room // len(waiting))
                return [(tenant_id, min(quota, share)) for tenant_id, quota in waiting]
            if self._after_tenant == 0:
                if wrapped:
                    return []
                wrapped = True

    async def _allowed(self, claimed: list[Claimed], now: datetime) -> list[Claimed]:
        """Without those whose endpoint's breaker is open, save for a probe and for what is sent again by hand."""
        behind = {one.tenant_id for one in claimed if one.breaker_open and one.trigger != "RESEND"}
        if not behind:
            return claimed
        probes = await rows.take_probe(self._claims, list(behind), now)
        return [
            one for one in claimed if one.tenant_id not in behind or one.tenant_id in probes or one.trigger == "RESEND"
        ]

    async def _freeze(self, claimed: Sequence[Claimed]) -> tuple[list[bytes | None], list[Frozen]]:
        """What each delivery says, in the open and as it is stored; those that we cannot prepare are left out."""
        fresh = [one for one in claimed if one.body is None]
        loaded = await self._load({(one.tenant_id, one.order_id) for one in fresh})
        updates = [(one.tenant_id, one.order_id) for one in fresh if one.event_type == "DELIVERY_UPDATED"]
        delivered = await rows.baselines(self._claims, updates) if updates else {}
        bodies: list[bytes | None] = []
        frozen: list[Frozen] = []
        for one in claimed:
            key = (one.tenant_id, one.order_id)
            try:
                body, row = self._said(one, loaded.get(key), delivered.get(key))
            except Exception:
                log.exception("webhook_cannot_be_prepared", tenant_id=one.tenant_id, delivery_id=one.delivery_id)
                continue
            bodies.append(body)
            frozen.append(row)
        return bodies, frozen

    async def _load(self, keys: set[tuple[int, int]]) -> Mapping[tuple[int, int], Order]:
        """The orders, one by one where one of them cannot be read: it alone is left out."""
        if not keys:
            return {}
        try:
            return await orders.load(self._claims, list(keys), self._data_keys)
        except UNREADABLE:
            found: dict[tuple[int, int], Order] = {}
            for key in keys:
                try:
                    found |= await orders.load(self._claims, [key], self._data_keys)
                except UNREADABLE:
                    log.exception("webhook_order_unreadable", tenant_id=key[0], order_id=key[1])
            return found

    def _said(self, one: Claimed, order: Order | None, baseline: Baseline | None) -> tuple[bytes | None, Frozen]:
        """The body and its row; no body where the dealer has been told exactly this already."""
        tenant_id, delivery_id = one.tenant_id, one.delivery_id
        if one.body is not None:
            body = self._data_keys.open(one.body, delivery_context(tenant_id, delivery_id))
            return body, Frozen(tenant_id, delivery_id, one.order_version, None, None)
        assert order is not None, "a delivery without a readable order"
        if one.event_type == "ORDER_PAID":
            event, version = snapshot.order_paid(order), one.order_version
        else:
            assert one.event_type == "DELIVERY_UPDATED", "a REFUND_COMPLETED is frozen where the refund is credited"
            before = self._open_snapshot(tenant_id, baseline) if baseline else None
            event, version = snapshot.delivery_updated(order, self._links), order.version
            hints = change_hints(before, event)
            if not hints and one.trigger == "AUTO" and not (baseline and baseline.in_doubt):
                return None, Frozen(tenant_id, delivery_id, version, "", None)
            event = msgspec.structs.replace(event, change_hints=hints or ("ORDER_SNAPSHOT_SYNC",))
        body = encoder.encode(event)
        sealed = self._data_keys.seal(body, delivery_context(tenant_id, delivery_id))
        return body, Frozen(tenant_id, delivery_id, version, ",".join(event.change_hints or ()), sealed)

    def _open_snapshot(self, tenant_id: int, baseline: Baseline) -> Snapshot | None:
        if baseline.delivery_id is None or baseline.body is None:
            return None
        return _snapshots.decode(self._data_keys.open(baseline.body, delivery_context(tenant_id, baseline.delivery_id)))

    # Post

    async def _attempt(self, post: Post, batch: Batch) -> None:
        """One attempt, and its record. A process that stood still for longer than its lease keeps its hands off."""
        loop = asyncio.get_running_loop()
        begun, started_at = loop.time(), self._clock()
        if begun > post.abandon_at:
            batch.left -= 1
            return
        if post.number == 1:
            metrics.webhook_wait.observe((started_at - post.delivery.since).total_seconds())
        try:
            headers = self._headers(post, started_at)
            answer = await self._outbound.post(post.delivery.url, post.body, headers, started_at)
            failpoints.hit("webhook.posted")
        except asyncio.CancelledError:
            answer = Answer(STOPPED)
        except Exception:
            log.exception("webhook_attempt_failed", delivery_id=post.delivery.delivery_id)
            answer = Answer(INTERNAL)
        batch.left -= 1
        metrics.webhook_attempt(answer.error)
        finished = self._finished(post, answer, started_at, round((loop.time() - begun) * 1000))
        await self._submitted(Outcome(finished, post.delivery.url, post.abandon_at - loop.time()))

    def _headers(self, post: Post, now: datetime) -> dict[str, str]:
        headers = signature.headers(post.signer, self._master_keys, post.body, now)
        headers[signing.DELIVERY_ID] = str(post.delivery.delivery_id)
        headers[signing.DELIVERY_ATTEMPT] = str(post.number)
        headers[signing.ORDER_VERSION] = str(post.order_version)
        return headers

    # Record

    def _finished(self, post: Post, answer: Answer, started_at: datetime, duration_ms: int) -> Finished:
        one = post.delivery
        state, due_at = self._next(one, post.number, answer)
        return Finished(
            tenant_id=one.tenant_id,
            order_id=one.order_id,
            delivery_id=one.delivery_id,
            claim=post.claim,
            state=state,
            due_at=due_at,
            number=post.number,
            started_at=started_at,
            duration_ms=duration_ms,
            remote_address=answer.remote_address,
            http_status=answer.status,
            error=answer.error,
            answer_head=answer.head or None,
        )

    def _next(self, one: Claimed | Lapsed, attempts: int, answer: Answer) -> tuple[DeliveryState, datetime | None]:
        """What a delivery is after this many attempts, and when it goes again; one sent again by hand goes once."""
        if answer.error is None:
            return "DELIVERED", None
        if one.trigger == "RESEND":
            return "DELIVERED" if one.delivered else "FAILED", None
        wait = backoff.delay_seconds(attempts, random.random(), answer.retry_after_seconds, self._schedule)
        if wait is None or answer.status == GONE:
            return "FAILED", None
        if answer.error in (LOST, STOPPED):
            wait = 0.0
        return "RETRY", self._clock() + timedelta(seconds=wait)

    def _nothing_to_say(self, one: Claimed, claim: int) -> Outcome:
        return Outcome(
            Finished(
                *(one.tenant_id, one.order_id, one.delivery_id, claim, "SUPERSEDED", None, None),
                *(self._clock(), 0, None, None, None, None),
            )
        )

    def _lapsed(self, one: Lapsed) -> Outcome:
        """The attempt of a worker that did not come back: counted, its answer unknown, so it is made again at once."""
        state, due_at = self._next(one, one.attempt_count, Answer(LOST)) if one.attempt_count else ("SUPERSEDED", None)
        return Outcome(
            Finished(
                *(one.tenant_id, one.order_id, one.delivery_id, one.claim, state, due_at, one.attempt_count or None),
                *(one.lease_until - timedelta(seconds=self._lease_seconds), 0, None, None, LOST, None),
            )
        )

    def _submit(self, outcome: Outcome) -> None:
        """Records without waiting; a record that fails leaves the lease to run out."""
        self._keep(self._submitted(outcome))

    async def _submitted(self, outcome: Outcome) -> None:
        """Records, again and again while the database is lost and the lease lasts."""
        give_up_at = asyncio.get_running_loop().time() + outcome.seconds_left
        while True:
            try:
                return await self._desk.submit(outcome)
            except DatabaseLost:
                if asyncio.get_running_loop().time() > give_up_at:
                    log.warning("webhook_result_not_recorded", delivery_id=outcome.finished.delivery_id)
                    return None
                await asyncio.sleep(TROUBLE_SECONDS)
            except Exception:
                log.exception("webhook_result_not_recorded", delivery_id=outcome.finished.delivery_id)
                return None

    async def _record(self, outcomes: Sequence[Outcome]) -> list[None]:
        """Writes a batch: deliveries and attempts, the next of each order, and how the endpoints fare."""
        now, session = self._clock(), self._records
        results = [outcome.finished for outcome in outcomes]
        turned: list[rows.Turned] = []
        ended: list[DeliveryState] = []
        async with session.transaction():
            await rows.lock_unfinished(session, [(result.tenant_id, result.order_id) for result in results])
            recorded, behind = await rows.finish(session, results, now)
            if behind:
                await rows.promote(session, behind, now)
            ended = [one.state for one in results if (one.tenant_id, one.delivery_id) in recorded]
            health = health_of([one for one in outcomes if (one.finished[0], one.finished[2]) in recorded])
            if health:
                turned = await rows.note_health(session, health, now)
        failpoints.hit("webhook.recorded")
        metrics.webhook_ended(ended)
        self._take_note(turned)
        self._wake.set()
        return [None] * len(outcomes)

    def _take_note(self, turned: Sequence[rows.Turned]) -> None:
        for one in turned:
            if one.breaker_opened:
                log.warning("webhook_breaker_opened", tenant_id=one.tenant_id, failures=one.failures)
            if one.state == "DISABLED":
                log.warning("webhook_endpoint_gone", tenant_id=one.tenant_id)
                self._care_wanted.set()
            elif one.recovered:
                self._recovered.add(one.tenant_id)
                self._care_wanted.set()


def health_of(outcomes: Sequence[Outcome]) -> list[Health]:
    """What attempts, in the order in which they ended, say of each endpoint."""
    found: dict[tuple[int, str], tuple[bool, int, bool]] = {}
    for outcome in outcomes:
        finished = outcome.finished
        if not outcome.url or finished.error in OURS:
            continue
        key = (finished.tenant_id, outcome.url)
        succeeded, failures, gone = found.get(key, (False, 0, False))
        if finished.error is None:
            found[key] = (True, 0, gone)
        else:
            found[key] = (succeeded, failures + 1, gone or finished.http_status == GONE)
    return [Health(*key, *value) for key, value in sorted(found.items())]


def _bounded(claimed: list[Claimed]) -> list[Claimed]:
    """The first of them, so that no batch loads more profiles than memory and a pause may cost."""
    total = 0
    for count, one in enumerate(claimed):
        total += one.profiles if one.body is None else 0
        if total > PROFILES_PER_BATCH and count:
            return claimed[:count]
    return claimed


async def _first_of(event: asyncio.Event, seconds: float) -> None:
    """Returns when the event is set, after so many seconds at the latest."""
    timer = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        timer.cancel()
