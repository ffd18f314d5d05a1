"""Credits refunds that were pending, once suppliers and operators have decided on each profile (specification 4.3).

Void and credit happen in one transaction; what was rejected is released. A refund is taken under its lock and only
while it is REFUNDING, and the ledger takes a refund's credit once: two workers, or a worker twice, credit it once.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.distributed import one_transaction_each
from dealer_server.db.errors import DatabaseLost, LockTimeout
from dealer_server.db.sealing import DataKeys
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.retry import retry_seconds
from dealer_server.fulfillment.worker_loop import keep_working
from dealer_server.rules.lifecycle import generations
from dealer_server.rules.money import wallet
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import Links
from dealer_server.rules.recharges import recharge
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Part
from dealer_server.store.profiles import lifecycle
from dealer_server.store.recharges import recharge as recharges
from dealer_server.store.refunds import refund as rows
from dealer_server.store.refunds.refund import Credit, Due, Refund
from dealer_server.store.webhooks import resend

log = structlog.get_logger()

REFUNDS_PER_BATCH = 100
SWEEP_SECONDS = 60.0


class RefundSettler:
    """Settles what is due; any number of them may run on one database. `changed` is called after each commit."""

    def __init__(
        self, database: Database, data_keys: DataKeys, links: Links, clock: Clock, changed: Callable[[], None]
    ):
        self.wake = asyncio.Event()
        self._session = database.session()
        self._data_keys = data_keys
        self._links = links
        self._clock = clock
        self._changed = changed
        self._sweep_at: datetime | None = None

    async def run(self) -> None:
        """Until cancelled; a settlement that is begun is ended."""
        try:
            await keep_working("refunds", self.run_once, self.wake)
        finally:
            await self._session.close()

    async def run_once(self) -> int:
        """Settles a batch; how many refunds it had. One that cannot be settled is tried again later."""
        now = self._clock()
        if self._sweep_at is None or now >= self._sweep_at:
            await self._sweep(now)
        due = await rows.due(self._session, now, REFUNDS_PER_BATCH)
        if not due:
            return 0
        for together in one_transaction_each(self._session, due):
            await self._settle_together(together)
        self._changed()
        return len(due)

    async def _sweep(self, now: datetime) -> None:
        """Makes refunds due of which nothing is left to be decided and which nobody settles."""
        for tenant_id, refund_id in await rows.sweep(self._session, now):
            log.warning("refund_left_over", tenant_id=tenant_id, refund=identity.refund_no(refund_id))
        self._sweep_at = now + timedelta(seconds=SWEEP_SECONDS)

    async def _settle_together(self, due: Sequence[Due]) -> None:
        try:
            await self._settle(due)
        except DatabaseLost:
            raise
        except Exception as error:
            log.warning("batch_failed", refunds=len(due), error=fault_text(error))
            for refund_due in due:
                await self._settle_alone(refund_due)

    async def _settle_alone(self, refund_due: Due) -> None:
        try:
            await self._settle([refund_due])
        except DatabaseLost:
            raise
        except Exception as error:
            failures, now = refund_due.failures + 1, self._clock()
            until = now + timedelta(seconds=retry_seconds(failures))
            refund_no = identity.refund_no(refund_due.refund_id)
            log.error("refund_not_settled", tenant_id=refund_due.tenant_id, refund=refund_no,
                      failures=failures, again_at=until.isoformat(), error=fault_text(error))  # fmt: skip
            try:
                await rows.postpone(self._session, refund_due, until, now)
            except LockTimeout:  # it is still due, and those behind it are settled meanwhile
                log.warning("refund_not_postponed", tenant_id=refund_due.tenant_id, refund=refund_no)

    async def _settle(self, due: Sequence[Due]) -> None:
        session, now = self._session, self._clock()
        keys = sorted({(refund_due.tenant_id, refund_due.order_id) for refund_due in due})
        esims = await recharges.of_esims(session, keys)
        both = sorted({*keys, *esims.values()})
        async with session.transaction():
            wallets = await store.wallet.lock(session, sorted({tenant_id for tenant_id, _ in keys}))
            await store.order.lock(session, both)
            before = await store.order.load(session, both, self._data_keys)
            taken = await rows.lock_due(
                session, [(refund_due.tenant_id, refund_due.refund_id) for refund_due in due], now
            )
            failpoints.hit("refund.taken")
            orders, credits, credited, released = dict(before), [], [], []
            for row in taken:
                key = (row.tenant_id, row.order_id)
                parts = given(row)
                orders[key] = settled(orders[key], row, parts, now)
                if (esim := esims.get(key)) is not None:
                    orders[esim] = recharge.with_refund(orders[esim], orders[key], now)
                if parts:
                    wallets[row.tenant_id] = paid = wallet.credited(wallets[row.tenant_id], amount_of(parts))
                    credits.append(
                        Credit(
                            tenant_id=row.tenant_id,
                            refund_id=row.refund_id,
                            amount=amount_of(parts),
                            version=paid.version,
                            balance_after=paid.balance,
                        )
                    )
                    credited.append((row.refund_id, orders[key]))
                else:
                    released.append(key)
            changes = [(before[key], after) for key, after in orders.items() if after is not before[key]]
            await rows.settle(session, changes, credits, credited, self._data_keys, self._links, now)
            await lifecycle.follow_again(
                session, [esim for key in esims.values() for esim in _to_begin(orders[key])], now
            )
            await rows.mark_settled(
                session, [(row.tenant_id, row.refund_id, amount_of(given(row)), bool(given(row))) for row in taken], now
            )
            for tenant_id, order_id in dict.fromkeys(released):
                await resend.sync(session, tenant_id, [order_id], now)
            failpoints.hit("refund.settled")


def _to_begin(order: Order) -> list[tuple[int, int]]:
    """(tenant_id, profile_id) of the eSIMs of the order whose next plan a refund kept from beginning."""
    return [
        (order.tenant_id, profile.profile_id)
        for profile in order.profiles
        if profile.plan_use_status == "ENDED" and generations.following(profile)
    ]


def given(row: Refund) -> list[Part]:
    """The profiles of a refund that are given back."""
    return [
        Part(line.line, line.profile_id, None, line.amount, line.way) for line in row.lines if line.status == "READY"
    ]


def amount_of(parts: Sequence[Part]) -> int:
    return sum([part.amount for part in parts])


def settled(order: Order, row: Refund, parts: Sequence[Part], now: datetime) -> Order:
    """The order with what is given back credited, and the rest released."""
    rest = {line.profile_id for line in row.lines if line.status == "REJECTED"}
    after = refund.release(order, rest, now) if rest else order
    return refund.credit(after, parts, now) if parts else after
