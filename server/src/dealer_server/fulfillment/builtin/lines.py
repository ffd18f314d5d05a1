"""Fulfills the order lines of a builtin supplier, which answers at once and gives the same answer however often it is
asked: nothing has to be written down before it is asked, and an answer that is lost is asked for again.

Lines that no other transaction holds are fulfilled in one transaction. What does not succeed there is claimed, so that
one order that fails does not keep the others back, and tried again later and later. Codes from stock are taken in the
transaction that records them.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import perf_counter
from typing import NamedTuple

import structlog

from dealer_server import failpoints, store, traces
from dealer_server.db.errors import DatabaseLost
from dealer_server.fulfillment.builtin import line_schedule
from dealer_server.fulfillment.call_pool import Answered
from dealer_server.fulfillment.engine import Context, Decision, OrderKey, RowKey
from dealer_server.fulfillment.faults import fault_text
from dealer_server.fulfillment.line_engine import LINES_PER_BATCH, PROFILES_PER_BATCH, LineEngine, OrderLines, by_order
from dealer_server.fulfillment.recharges import recharges_void
from dealer_server.fulfillment.results import codes_of, result_of, void_of
from dealer_server.fulfillment.supplier_calls import ask, ask_for_each, at_once, units
from dealer_server.rules.delivery.delivery import Codes, Failed
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order, Profile
from dealer_server.store.orders import fulfillment as lines
from dealer_server.store.orders.fulfillment import Claimed, Scheduled
from dealer_server.store.orders.save import waits
from dealer_server.store.refunds.void import Void
from dealer_server.suppliers.contract import Builtin, Done, FromStock, Outcome, Unit

log = structlog.get_logger()

ASK_SECONDS = 45.0  # leaves enough of the lease to record in


class LineAnswers(NamedTuple):
    """The units a supplier was asked for, and its answers, by profileId. A unit that was not asked for has none."""

    units: Mapping[int, Unit]
    outcomes: Mapping[int, Outcome]


@dataclass
class LineDecision(Decision):
    """lines: those that are still claimed, with their claim_id and what was answered."""

    lines: list[tuple[int | None, Claimed, LineAnswers]] = field(default_factory=list)


class BuiltinLines(LineEngine[LineAnswers, LineDecision]):
    interval_seconds = 0.04
    grace_seconds = 0.0  # what was not answered yet is asked for again

    def __init__(self, supplier: Builtin, context: Context):
        super().__init__(supplier, "lines", 1, context)
        self._supplier = supplier
        self._placed = False

    def lines_placed(self) -> None:
        """An order with lines of this supplier was placed."""
        self._placed = True
        self.wake.set()

    async def begin(self, room: int) -> int:
        placed, self._placed = self._placed, False  # then looking for due lines first would be a statement more
        if not room or not (placed or await lines.any_due(self._session, self.code, self._clock())):
            return 0
        free = None if self._caps.parallel > 1 else await self._fulfill_free()
        if free is None or not (free or placed):
            return await self._claim_and_ask()
        return free

    async def _fulfill_free(self) -> int | None:
        """Fulfills what is free and answered without waiting, in one transaction: all of a batch, or nothing (None)."""
        session, now, began = self._session, self._clock(), perf_counter()
        try:
            async with session.transaction():
                taken = await lines.take(session, self.code, now, LINES_PER_BATCH, PROFILES_PER_BATCH)
                if not taken:
                    return 0
                failpoints.hit("fulfillment.claimed")
                esims = {line.recharged_order for line in taken if line.recharged_order}
                if esims and len(await store.order.lock(session, list(esims), wait=False)) < len(esims):
                    return None
                answers = self._answers_at_once(taken, now)
                if answers is None:
                    return None
                failpoints.hit("fulfillment.answered")
                answered = [(claim, answers) for claim in by_order(None, taken)]
                written = await self._write_answers(answered, {line.key for line in taken}, now)
        except DatabaseLost:
            raise
        except Exception as error:
            log.info("batch_not_fulfilled_at_once", supplier=self.code, error=fault_text(error))
            return None
        await self._committed(*written)
        traces.batch(f"fulfil {self.name}", (line.order_id for line in taken), began)
        return len(taken)

    def _answers_at_once(self, taken: Sequence[Claimed], now: datetime) -> LineAnswers | None:
        """None where an answer would have to be waited for."""
        wanted = {unit.profile_id: unit for line in taken for unit in self._units(line)}
        outcomes: dict[int, Outcome] = {}
        for profile_id, unit in wanted.items():
            outcome = at_once(ask(self._supplier, unit, now))
            if outcome is None:
                return None
            outcomes[profile_id] = outcome
        return LineAnswers(wanted, outcomes)

    async def _claim_and_ask(self) -> int:
        claims = await self._claim()
        if claims:
            failpoints.hit("fulfillment.claimed")
            self._pool.start(claims, self._ask(claims))
        return sum([len(claim.lines) for claim in claims])

    def unanswered(self, claim: OrderLines, fault: str) -> LineAnswers:
        return LineAnswers({}, {})

    async def _ask(self, claims: Sequence[OrderLines]) -> Answered[OrderLines, LineAnswers]:
        """Cancelled, it gives the answers that have come."""
        began = perf_counter()
        wanted = [unit for claim in claims for line in claim.lines for unit in self._units(line)]
        outcomes: dict[int, Outcome] = {}
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(ASK_SECONDS):
                await ask_for_each(self._supplier, wanted, self._clock, outcomes)
        failpoints.hit("fulfillment.answered")
        traces.batch(f"ask {self.code}", (claim.order[1] for claim in claims), began)
        asked = LineAnswers({unit.profile_id: unit for unit in wanted}, outcomes)
        return [(claim, asked) for claim in claims]

    def _units(self, line: Claimed) -> Sequence[Unit]:
        package = self._context.package(line.package_code)
        if package is None:
            log.warning("package_unknown", package_code=line.package_code, order_no=identity.order_no(line.order_id))
            return ()
        return units(line, package)

    async def _decide(
        self,
        answered: Answered[OrderLines, LineAnswers],
        held: Collection[RowKey],
        orders: Mapping[OrderKey, Order],
        now: datetime,
    ) -> LineDecision:
        decided, from_stock = LineDecision(), dict[str, list[_InStock]]()
        for claim, asked in answered:
            order = orders[claim.order]
            still = [line for line in claim.lines if line.key in held]
            decided.lines += [(claim.claim_id, line, asked) for line in still]
            decided.begun[claim.order] = frozenset(
                line.line for line in still if any(profile_id in asked.outcomes for profile_id in line.pending)
            )
            for line, profile, outcome in _answers(claim, asked, order):
                unit = asked.units[profile.profile_id]
                if line.key not in held or not profile.waiting:
                    decided.voids += self._unwanted(order, line, profile, unit, outcome, now)
                elif isinstance(outcome, FromStock):
                    from_stock.setdefault(line.package_code, []).append(_InStock(order.tenant_id, unit))
                elif line.recharges is not None and recharges_void(orders, line):
                    decided.results[profile.profile_id] = Failed()
                elif (result := result_of(outcome, unit)) is not None:
                    decided.results[profile.profile_id] = result
        for package_code, waiting in sorted(from_stock.items()):
            decided.results |= await self._from_stock(package_code, waiting, now)
        return decided

    def _unwanted(
        self, order: Order, line: Claimed, profile: Profile, unit: Unit, outcome: Outcome, now: datetime
    ) -> list[Void]:
        """The profile was cancelled while its supplier worked, or another worker has claimed its line since. An eSIM
        that was made for a cancelled profile is voided at its supplier, not handed out."""
        if result_of(outcome, unit) is not None:
            log.warning("answer_unwanted", supplier=self.code, unit_key=unit.unit_key)
        if profile.cancelled and isinstance(outcome, Done):
            return [void_of(order, line.line, profile.profile_id, self.code, outcome.iccid, now)]
        return []

    async def _from_stock(self, package_code: str, waiting: Sequence["_InStock"], now: datetime) -> dict[int, Codes]:
        owners = [(sold.tenant_id, sold.unit.profile_id) for sold in waiting]
        taken = await store.stock.take(self._session, package_code, owners, self._data_keys, now)
        if len(taken) < len(waiting):  # sold ones are set aside: another worker holds them, or there are too few
            log.error("stock_short", package_code=package_code, wanted=len(waiting), found=len(taken))
        data_bytes = {sold.unit.profile_id: sold.unit.data_bytes for sold in waiting}
        return {
            code.profile_id: codes_of(Done(code.iccid, code.activation_code, None, None), data_bytes[code.profile_id])
            for code in taken
        }

    async def _write(
        self, decided: LineDecision, before: Mapping[OrderKey, Order], after: Mapping[OrderKey, Order], now: datetime
    ) -> None:
        scheduled: dict[int | None, list[Scheduled]] = {}
        for claim_id, line, asked in decided.lines:
            read, written = [orders[line.tenant_id, line.order_id].items[line.line] for orders in (before, after)]
            if waits(written) or written.item_status == read.item_status:  # else it was finished as it was written
                scheduled.setdefault(claim_id, []).append(line_schedule.schedule(line, written, asked.outcomes, now))
        await self._reschedule(scheduled)


class _InStock(NamedTuple):
    """A unit whose code is in stock."""

    tenant_id: int
    unit: Unit


def _answers(claim: OrderLines, asked: LineAnswers, order: Order) -> Iterator[tuple[Claimed, Profile, Outcome]]:
    for line in claim.lines:
        for profile in order.items[line.line].profiles:
            outcome = asked.outcomes.get(profile.profile_id)
            if outcome is not None:
                yield line, profile, outcome
