"""Asks suppliers. Whatever goes wrong is an Unknown."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterator, MutableMapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from dealer_server.clock import Clock
from dealer_server.fulfillment.faults import fault_text
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.esim import activation_code, iccid
from dealer_server.store.orders.fulfillment import Claimed
from dealer_server.suppliers.contract import Builtin, Done, Outcome, RechargedEsim, Rejected, Unit, Unknown

log = structlog.get_logger()


def unit_key(order_id: int, line: int, position: int) -> str:
    """How suppliers know a unit, `position` counting from 1: the same however often it is asked for, at most 50
    characters."""
    return f"u-{order_id}-{line}-{position}"


def recharge_key(order_id: int, line: int) -> str:
    """How suppliers know a recharge."""
    return f"t-{order_id}-{line}-1"


def units(line: Claimed, package: Package) -> list[Unit]:
    """What is still to be made for a line."""
    if line.blocked:
        return []
    data_bytes = None if package.data_bytes is None else package.data_bytes * line.period_num
    positions = [profile_id - line.first_profile_id + 1 for profile_id in line.pending]
    return [
        Unit(
            unit_key=unit_key(line.order_id, line.line, position)
            if line.recharges is None
            else recharge_key(line.order_id, line.line),
            profile_id=line.first_profile_id + position - 1,
            package_code=line.package_code,
            position=position,
            quantity=line.quantity,
            period_num=line.period_num,
            data_bytes=data_bytes,
            paid_at=line.paid_at,
            plan_seconds=plan_seconds(package, line.period_num),
            recharges=None if line.recharges is None else RechargedEsim(line.recharges, line.recharged_iccid or ""),
        )
        for position in positions
    ]


def plan_seconds(package: Package, period_num: int) -> int:
    return package.duration * period_num * 86_400


async def ask_for_each(
    supplier: Builtin, units: Sequence[Unit], clock: Clock, outcomes: MutableMapping[int, Outcome]
) -> None:
    """Fills `outcomes` by profileId. When this is cancelled, a unit whose answer has not come stands there as Unknown,
    one not asked for is missing."""
    waiting = iter(units)
    async with asyncio.TaskGroup() as callers:
        for _ in range(min(supplier.caps.parallel, len(units))):
            callers.create_task(_ask_one_by_one(supplier, waiting, clock, outcomes))


async def _ask_one_by_one(
    supplier: Builtin, waiting: Iterator[Unit], clock: Clock, outcomes: MutableMapping[int, Outcome]
) -> None:
    for unit in waiting:
        outcomes[unit.profile_id] = _NO_ANSWER
        outcomes[unit.profile_id] = await ask(supplier, unit, clock())


async def ask(supplier: Builtin, unit: Unit, now: datetime) -> Outcome:
    """Asks for one unit; what is no success is logged."""
    outcome = await outcome_of(supplier.allocate(unit, now))
    if isinstance(outcome, Rejected):
        log.warning("unit_rejected", unit_key=unit.unit_key, supplier=supplier.code, code=outcome.code,
                    message=outcome.message)  # fmt: skip
    elif isinstance(outcome, Unknown):
        log.warning("outcome_unknown", unit_key=unit.unit_key, supplier=supplier.code, reason=outcome.reason)
    return outcome


def at_once(call: Coroutine[Any, Any, Outcome]) -> Outcome | None:
    """The outcome of a call that waits for nothing. A call that does wait is broken off: None."""
    try:
        call.send(None)
    except StopIteration as ended:
        return ended.value
    call.close()
    return None


async def outcome_of(call: Awaitable[Outcome]) -> Outcome:
    """What a call to a supplier brings. Codes that no phone could use are no success."""
    try:
        outcome = await call
    except Exception as error:
        return Unknown(fault_text(error))
    if not isinstance(outcome, Done):
        return outcome if isinstance(outcome, Outcome) else Unknown(f"answered with {type(outcome).__name__}")
    try:
        digits, code = iccid.parse(outcome.iccid), activation_code.parse(outcome.activation_code)
    except ValueError as error:
        return Unknown(f"unusable codes: {error}")
    return msgspec.structs.replace(outcome, iccid=digits, activation_code=code.text)


_NO_ANSWER = Unknown("no answer in time")
