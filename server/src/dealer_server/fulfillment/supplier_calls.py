"""What do the suppliers say? Asks for a batch of units, with no transaction open; whatever goes wrong is an Unknown."""

import asyncio
import traceback
from collections.abc import Iterator, MutableMapping, Sequence

import msgspec
import structlog

from dealer_server.clock import Clock
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.lifecycle import activation_code, iccid
from dealer_server.rules.orders import identity
from dealer_server.store.orders.fulfillment import Claimed
from dealer_server.suppliers.contract import Done, Outcome, Rejected, Supplier, Unit, Unknown

log = structlog.get_logger()


def unit_key(order_id: int, line: int, position: int) -> str:
    """How suppliers know a unit, `position` counting from 1: the same however often it is asked for, at most 50
    characters."""
    return f"u-{order_id}-{line}-{position}"


def units(line: Claimed, package: Package) -> list[Unit]:
    """What is still to be made for a line. The keys stay the same however often it is asked for."""
    data_bytes = None if package.data_bytes is None else package.data_bytes * line.period_num
    positions = [profile_id - line.first_profile_id + 1 for profile_id in line.pending]
    return [
        Unit(
            unit_key(line.order_id, line.line, position),
            line.first_profile_id + position - 1,
            line.package_code,
            position,
            line.quantity,
            line.period_num,
            data_bytes,
            line.paid_at,
        )
        for position in positions
    ]


async def ask(supplier: Supplier, wanted: Sequence[Unit], clock: Clock, outcomes: MutableMapping[int, Outcome]) -> None:
    """Fills `outcomes` by profileId. When this is cancelled, a unit whose answer has not come stands there as Unknown,
    one not asked for is missing."""
    waiting = iter(wanted)
    async with asyncio.TaskGroup() as callers:
        for _ in range(min(supplier.parallel, len(wanted))):
            callers.create_task(_ask_each(supplier, waiting, clock, outcomes))


async def _ask_each(
    supplier: Supplier, waiting: Iterator[Unit], clock: Clock, outcomes: MutableMapping[int, Outcome]
) -> None:
    for unit in waiting:
        outcomes[unit.profile_id] = _NO_ANSWER
        outcomes[unit.profile_id] = outcome = await _ask_one(supplier, unit, clock)
        if isinstance(outcome, Rejected):
            log.warning("unit_rejected", unit_key=unit.unit_key, supplier=supplier.code, code=outcome.code,
                        message=outcome.message)  # fmt: skip
        elif isinstance(outcome, Unknown):
            log.warning("outcome_unknown", unit_key=unit.unit_key, supplier=supplier.code, reason=outcome.reason)


async def _ask_one(supplier: Supplier, unit: Unit, clock: Clock) -> Outcome:
    try:
        return checked(await supplier.allocate(unit, clock()))
    except Exception as error:
        return Unknown(fault_text(error))


def checked(outcome: Outcome) -> Outcome:
    """The outcome; codes that no phone could use are no success."""
    if not isinstance(outcome, Done):
        return outcome if isinstance(outcome, Outcome) else Unknown(f"answered with {type(outcome).__name__}")
    try:
        digits, code = iccid.parse(outcome.iccid), activation_code.parse(outcome.activation_code)
    except ValueError as error:
        return Unknown(f"unusable codes: {error}")
    return msgspec.structs.replace(outcome, iccid=digits, activation_code=code.text)


def fault_text(error: BaseException) -> str:
    """An exception for the log: its kind and where in our code it arose, but not its words, which may hold a secret."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "dealer_server" in frame.filename] or frames
    constraint = getattr(error, "constraint_name", None)
    words = [type(error).__name__, f"({constraint})" if constraint else ""]
    words += [f"at {frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in ours[-1:]]
    return " ".join(filter(None, words))


def order_no(line: Claimed) -> str:
    return identity.order_no(line.order_id)


_NO_ANSWER = Unknown("no answer in time")
