"""How much of a profile's plan is used? /esim/profile/usage (decisions 4).

The API knows no suppliers: a refresh makes the profile's life due, and the worker asks. What comes of it is an event
like any other; whoever asked waits a moment for it.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from msgspec import UNSET

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.rules import refusal
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.profiles import lifecycle as rows
from dealer_server.store.profiles.lifecycle import Seen
from esim_dealer.wire import calls

ASK_AGAIN = timedelta(minutes=1)
WAIT_SECONDS = 3.0
LOOK_SECONDS = 0.1


async def usage(
    database: Database, clock: Clock, asked: Callable[[], None], tenant_id: int, call: calls.ProfileUsage
) -> calls.Usage:
    """`asked` is rung when a supplier is to be asked. Raises 000105, 000111, 310404, 200022, 200010."""
    profile_id, iccid = named(call.profile_id, call.iccid)
    seen = await _look(database, tenant_id, profile_id, iccid)
    if call.refresh:
        seen = await _refreshed(database, clock, asked, seen)
    return _answer(seen, real_time=bool(call.refresh) and seen.answered)


def named(profile_id: int | str | None, iccid: str | None) -> tuple[int | None, str | None]:
    """The profile a call names, by exactly one of the two. Raises 000105, 000111, 310404."""
    if profile_id is not None and iccid is not None:
        raise refusal.ParameterNotAccepted("profileId and iccid exclude each other; send exactly one of them")
    if profile_id is None and iccid is None:
        raise refusal.ParameterMissing("profileId is required; accepted: exactly one of profileId and iccid")
    number = None if profile_id is None else identity.profile_id(profile_id)
    if profile_id is not None and number is None:
        raise refusal.ProfileNotFound
    return number, iccid


async def _look(database: Database, tenant_id: int, profile_id: int | None, iccid: str | None) -> Seen:
    async with database.connection() as connection:
        seen = await rows.look(connection, tenant_id, profile_id, iccid)
    if seen is None:
        raise refusal.ProfileNotFound
    if seen.supplier == STOCK:
        raise refusal.NotSupported("nobody reports on profiles from stock")
    if seen.profile.iccid is None:
        raise refusal.NotAllocated
    return seen


async def _refreshed(database: Database, clock: Clock, asked: Callable[[], None], seen: Seen) -> Seen:
    """The profile once its supplier was heard, or after a moment."""
    now, key = clock(), (seen.tenant_id, seen.profile_id)
    if await database.run(lambda connection: rows.ask(connection, key, now, now - ASK_AGAIN)):
        asked()
    until = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        seen = await _look(database, seen.tenant_id, seen.profile_id, None)
        if not seen.waiting or asyncio.get_running_loop().time() >= until:
            return seen
        await asyncio.sleep(LOOK_SECONDS)


def _answer(seen: Seen, *, real_time: bool) -> calls.Usage:
    of = seen.profile
    assert of.iccid is not None
    total, used = of.data_total_bytes, of.data_usage_bytes
    return calls.Usage(
        profile_id=of.profile_id,
        iccid=of.iccid,
        lifecycle_status=of.lifecycle_status,
        plan_use_status=of.plan_use_status,
        plan_use_start_time=snapshot.whole_seconds(of.plan_use_start_at) if of.plan_use_start_at else UNSET,
        plan_use_end_time=snapshot.whole_seconds(of.plan_use_end_at) if of.plan_use_end_at else UNSET,
        data_total_bytes=total,
        data_usage_bytes=used,
        remain_data_bytes=UNSET if total is None else max(total - used, 0),
        usage_percent=UNSET if not total else round(min(used / total, 1) * 100, 2),
        real_time=real_time,
        last_update_time=snapshot.whole_seconds(seen.told_at),
    )
