"""One supplier's due lines: claim a batch, ask for its units, record the answers.

A line is claimed for a minute. Should the worker die, the line comes due again, and the supplier is asked with the same
unit keys, so that nothing is bought twice; should the worker only be slow, what it brings after another one's claim is
dropped. What a supplier answered is written in one transaction with the event that tells the dealer.
"""

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

import structlog

from dealer_server import failpoints, store
from dealer_server.clock import Clock
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.sealing import DataKeys
from dealer_server.db.session import Session
from dealer_server.fulfillment import record, scheduling
from dealer_server.fulfillment.supplier_calls import ask, fault_text, order_no, units
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.orders.model import Order
from dealer_server.store.orders import fulfillment as rows
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.store.refunds.void import Void
from dealer_server.suppliers.builtin.simulated import Simulated
from dealer_server.suppliers.contract import Done, FromStock, Outcome, Supplier, Unit

log = structlog.get_logger()

LINES_PER_BATCH, PROFILES_PER_BATCH = 200, 1_000
LEASE_SECONDS = 60.0
ASK_SECONDS = 45.0  # leaves enough of the lease to record in
POLL_SECONDS = 0.05
LOST_SECONDS = 1.0

OrderKey = tuple[int, int]


class Batch(NamedTuple):
    """Lines claimed together, what is to be made for them, and what was answered, both by profileId."""

    claim_id: int
    lines: Sequence[Claimed]
    units: Mapping[int, Unit]
    outcomes: dict[int, Outcome]

    def by_order(self) -> dict[OrderKey, list[Claimed]]:
        grouped: dict[OrderKey, list[Claimed]] = {}
        for line in self.lines:
            grouped.setdefault((line.tenant_id, line.order_id), []).append(line)
        return grouped

    def only(self, lines: Sequence[Claimed]) -> "Batch":
        mine = {profile_id for line in lines for profile_id in line.pending}
        outcomes = {profile_id: outcome for profile_id, outcome in self.outcomes.items() if profile_id in mine}
        return self._replace(lines=lines, outcomes=outcomes)


class SupplierQueue:
    """Works off the lines that wait for one supplier. One connection, one batch at a time."""

    def __init__(
        self,
        supplier: Supplier,
        session: Session,
        data_keys: DataKeys,
        package: Callable[[str], Package | None],
        clock: Clock,
        changed: Callable[[], None],
        refund_failed: bool = True,
    ):
        self.code = supplier.code
        self.wake = asyncio.Event()
        self._supplier = supplier
        self._session = session
        self._data_keys = data_keys
        self._package = package
        self._clock = clock
        self._changed = changed
        self._refund_failed = refund_failed
        self._speed = supplier.speed if isinstance(supplier, Simulated) else 1.0
        self._stopping = False
        self._asking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            pause = POLL_SECONDS
            try:
                while await self.run_once():
                    pass
            except DatabaseLost:
                pause = LOST_SECONDS
            except Exception as error:
                log.error("fulfillment_failed", supplier=self.code, error=fault_text(error))
                pause = LOST_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self.wake.wait()
            self.wake.clear()

    async def run_once(self) -> int:
        """One batch; says how many lines it had. Cancelled, it stops asking and still records what was answered."""
        self._stopping = False
        batch = asyncio.create_task(self._work())
        try:
            return await asyncio.shield(batch)
        except asyncio.CancelledError:
            self._stopping = True
            if self._asking is not None:
                self._asking.cancel()
            await asyncio.wait([batch])
            if error := batch.exception():
                log.error("fulfillment_failed", supplier=self.code, error=fault_text(error))
            raise

    async def close(self) -> None:
        await self._session.close()

    async def _work(self) -> int:
        until = asyncio.get_running_loop().time() + LEASE_SECONDS
        batch = await self._claim()
        if batch.lines:
            failpoints.hit("fulfillment.claimed")
            await self._ask(batch)
            failpoints.hit("fulfillment.answered")
            await self._record_while_held(batch, until)
            failpoints.hit("fulfillment.recorded")
        return len(batch.lines)

    async def _claim(self) -> Batch:
        claim_id, now = secrets.randbits(62), self._clock()
        lines = await rows.claim(
            self._session,
            self.code,
            claim_id,
            now,
            now + timedelta(seconds=LEASE_SECONDS),
            LINES_PER_BATCH,
            PROFILES_PER_BATCH,
        )
        wanted: dict[int, Unit] = {}
        for line in lines:
            package = self._package(line.package_code)
            if package is None:
                log.warning("package_unknown", package_code=line.package_code, order_no=order_no(line))
            else:
                wanted.update({unit.profile_id: unit for unit in units(line, package)})
        return Batch(claim_id, lines, wanted, {})

    async def _ask(self, batch: Batch) -> None:
        if self._stopping:
            return
        asking = self._asking = asyncio.create_task(
            ask(self._supplier, list(batch.units.values()), self._clock, batch.outcomes)
        )
        await asyncio.wait([asking], timeout=ASK_SECONDS)
        asking.cancel()
        await asyncio.wait([asking], timeout=1)
        self._asking = None
        if asking.done() and not asking.cancelled():
            asking.result()

    async def _record_while_held(self, batch: Batch, until: float) -> None:
        """Records, again and again while the database is away: the answers may have cost money."""
        while True:
            try:
                return await self._record(batch)
            except DatabaseLost:
                if self._stopping or asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(LOST_SECONDS / 4)

    async def _record(self, batch: Batch) -> None:
        """Records all orders together or, where that fails, one by one, so that a poisonous one fails alone."""
        orders = batch.by_order()
        try:
            await self._record_together(batch, orders)
        except DatabaseLost:
            raise
        except Exception as error:
            if len(orders) == 1:
                await self._push_back(batch, error)
            else:
                log.warning("batch_failed", orders=len(orders), error=fault_text(error))
                for lines in orders.values():
                    await self._record(batch.only(lines))

    async def _push_back(self, batch: Batch, error: Exception) -> None:
        now = self._clock()
        log.error("order_not_recorded", order_no=order_no(batch.lines[0]), claims=batch.lines[0].claims,
                  error=fault_text(error))  # fmt: skip
        again = [
            Scheduled(line.key, now + timedelta(seconds=scheduling.retry_seconds(line.claims)), False)
            for line in batch.lines
        ]
        await rows.reschedule(self._session, batch.claim_id, again)

    async def _record_together(self, batch: Batch, orders: Mapping[OrderKey, Sequence[Claimed]]) -> None:
        session, now, keys = self._session, self._clock(), list(orders)
        async with session.transaction():
            await store.order.lock(session, keys)
            held = await rows.held(session, batch.claim_id, [line.key for line in batch.lines])
            if len(held) < len(batch.lines):
                log.warning("claim_lost", supplier=self.code, lines=len(batch.lines) - len(held))
            before = await store.order.load(session, keys, self._data_keys)
            lines = {key: [line for line in orders[key] if line.key in held] for key in keys}
            settled = await self._settled(batch, [(before[key], lines[key]) for key in keys])
            begun = {key: _begun(lines[key], batch.outcomes) for key in keys}
            after = await record.put(
                session,
                before,
                settled,
                begun,
                self._data_keys,
                refund_failed=self._refund_failed,
                now=now,
                speed=self._speed,
            )
            await rows.reschedule(
                session,
                batch.claim_id,
                [
                    scheduling.schedule(line, after[key].items[line.line], batch.outcomes, now)
                    for key in keys
                    for line in lines[key]
                ],
            )
            failpoints.hit("fulfillment.written")
        if any(after[key] is not before[key] for key in keys):
            self._changed()

    async def _settled(
        self, batch: Batch, held: Sequence[tuple[Order, Sequence[Claimed]]]
    ) -> dict[int, Codes | Failed]:
        """What the profiles of held lines that still wait get, by profileId; stock is taken for them here."""
        waiting = {
            profile.profile_id: (order.tenant_id, line.package_code)
            for order, lines in held
            for line in lines
            for profile in order.items[line.line].profiles
            if profile.lifecycle_status == "PENDING"
            and not profile.failed
            and not profile.held
            and profile.profile_id in batch.outcomes
        }
        settled = scheduling.found(batch.outcomes, batch.units, _qr_token)
        unwanted = settled.keys() - waiting.keys()
        if unwanted:  # cancelled while its supplier worked, or another worker's by now
            log.warning("answers_unwanted", supplier=self.code,
                        unit_keys=[batch.units[profile_id].unit_key for profile_id in sorted(unwanted)])  # fmt: skip
            await self._void_unwanted(batch, [order for order, _ in held], unwanted)
        from_stock: dict[str, list[tuple[int, int]]] = {}
        for profile_id, (tenant_id, package_code) in waiting.items():
            if isinstance(batch.outcomes[profile_id], FromStock):
                from_stock.setdefault(package_code, []).append((tenant_id, profile_id))
        for package_code, wanted in sorted(from_stock.items()):
            settled |= await self._take(package_code, wanted, batch.units)
        return {profile_id: answer for profile_id, answer in settled.items() if profile_id in waiting}

    async def _void_unwanted(self, batch: Batch, orders: Sequence[Order], unwanted: Collection[int]) -> None:
        """What was made for a profile that was cancelled meanwhile is voided at its supplier, not handed out."""
        voids = []
        for order in orders:
            for item in order.items:
                for profile in item.profiles:
                    outcome = batch.outcomes.get(profile.profile_id)
                    if profile.profile_id in unwanted and profile.cancelled and isinstance(outcome, Done):
                        voids.append(
                            Void(
                                *(order.tenant_id, profile.profile_id, order.order_id, item.line, None, item.supplier),
                                *(item.package_code, outcome.iccid, self._clock(), 0),
                            )
                        )
        if voids:
            await store.void.add_voids(self._session, voids)

    async def _take(self, package_code: str, wanted: Sequence[OrderKey], units: Mapping[int, Unit]) -> dict[int, Codes]:
        taken = await store.stock.take(self._session, package_code, wanted, self._data_keys, self._clock())
        if len(taken) < len(wanted):  # sold ones are set aside, so another worker holds them, or the level is wrong
            log.error("stock_short", package_code=package_code, wanted=len(wanted), found=len(taken))
        return {
            one.profile_id: Codes(
                one.iccid, one.activation_code, _qr_token(), None, None, units[one.profile_id].data_bytes
            )
            for one in taken
        }


def _qr_token() -> str:
    return secrets.token_urlsafe(16)


def _begun(lines: Sequence[Claimed], outcomes: Mapping[int, Outcome]) -> frozenset[int]:
    """The lines a supplier has been asked for."""
    return frozenset(line.line for line in lines if any(profile_id in outcomes for profile_id in line.pending))
