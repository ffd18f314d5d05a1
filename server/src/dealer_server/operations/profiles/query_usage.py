"""How much of a profile's plan is used? /esim/profile/usage (specification 4.11)

The API process does not call suppliers: a refresh makes the profile due, and the worker asks its supplier. The call
waits a moment for the report; what the report changes is an event like any other.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from msgspec import UNSET

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import STOCK
from dealer_server.store.profiles import lifecycle
from dealer_server.store.profiles.lifecycle import Seen
from esim_dealer.wire import calls

REFRESH_INTERVAL = timedelta(minutes=1)
WAIT_SECONDS = 3.0
POLL_SECONDS = 0.1


async def query_usage(
    database: Database, clock: Clock, refresh_requested: Callable[[], None], tenant_id: int, call: calls.ProfileUsage
) -> calls.Usage:
    """`refresh_requested` is called when a supplier is to be asked. Raises 000105, 000111, 310404, 200022, 200010."""
    profile_id, iccid = profile_key(call.profile_id, call.iccid)
    usage = await _read(database, tenant_id, profile_id, iccid)
    if call.refresh:
        usage = await _refresh(database, clock, refresh_requested, usage)
    return _answer(usage, real_time=bool(call.refresh) and usage.answered)


async def _read(database: Database, tenant_id: int, profile_id: int | None, iccid: str | None) -> Seen:
    async with database.connection() as connection:
        usage = await lifecycle.look(connection, tenant_id, profile_id, iccid)
    if usage is None:
        raise refusal.ProfileNotFound
    if usage.supplier == STOCK:
        raise refusal.NotSupported("profiles from stock have no usage reports")
    if usage.profile.iccid is None:
        raise refusal.NotAllocated
    return usage


async def _refresh(database: Database, clock: Clock, refresh_requested: Callable[[], None], usage: Seen) -> Seen:
    """The usage once its supplier has answered, or after WAIT_SECONDS."""
    now, key = clock(), (usage.tenant_id, usage.profile_id)
    if await database.run(lambda connection: lifecycle.ask(connection, key, now, now - REFRESH_INTERVAL)):
        refresh_requested()
    until = asyncio.get_running_loop().time() + WAIT_SECONDS
    while True:
        usage = await _read(database, usage.tenant_id, usage.profile_id, None)
        if not usage.waiting or asyncio.get_running_loop().time() >= until:
            return usage
        await asyncio.sleep(POLL_SECONDS)


def _answer(usage: Seen, *, real_time: bool) -> calls.Usage:
    profile = usage.profile
    assert profile.iccid is not None
    total, used = profile.data_total_bytes, profile.data_usage_bytes
    return calls.Usage(
        profile_id=profile.profile_id,
        iccid=profile.iccid,
        lifecycle_status=profile.lifecycle_status,
        plan_use_status=profile.plan_use_status,
        plan_use_start_time=snapshot.whole_seconds(profile.plan_use_start_at) if profile.plan_use_start_at else UNSET,
        plan_use_end_time=snapshot.whole_seconds(profile.plan_use_end_at) if profile.plan_use_end_at else UNSET,
        data_total_bytes=total,
        data_usage_bytes=used,
        remain_data_bytes=UNSET if total is None else max(total - used, 0),
        usage_percent=UNSET if not total else round(min(used / total, 1) * 100, 2),
        real_time=real_time,
        last_update_time=snapshot.whole_seconds(usage.told_at),
    )
