"""How does a test profile move through its life? /test/profile/advance (specification 4.12)

A step is a report of the simulated network, made now; everything else follows as from any supplier's report.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.lifecycle.report import Report
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Item, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.profiles import iccid as iccids
from dealer_server.suppliers.builtin import simulated
from dealer_server.suppliers.contract import ProfileReport
from esim_dealer.wire import calls
from esim_dealer.wire import snapshot as wire
from esim_dealer.wire.vocabulary import AdvanceStep

ReportHandler = Callable[[Connection, str, Sequence[ProfileReport], DataKeys, datetime], Awaitable[object]]
"""fulfillment.lifecycle_tracker.report: records a supplier's reports, in the caller's transaction."""

_SMDP_STATUS: Mapping[AdvanceStep, str] = {
    "DOWNLOAD": "DOWNLOAD",
    "INSTALL": "INSTALLATION",
    "ENABLE": "ENABLED",
    "DELETE": "DELETED",
}


async def advance_profile(
    database: Database,
    data_keys: DataKeys,
    links: Links,
    report: ReportHandler,
    clock: Clock,
    advanced: Callable[[], None],
    tenant_id: int,
    call: calls.AdvanceProfile,
) -> wire.Profile:
    """The profile after the step. `advanced` is called after the commit. Raises 000105, 000111, 310404, 200022,
    200010, 200002, 200004."""
    named = profile_key(call.profile_id, call.iccid)
    if call.data_usage_bytes is not None and call.step != "USE":
        raise refusal.ParameterNotAccepted("dataUsageBytes is accepted with step USE only")
    now = clock()

    async def work(connection: Connection) -> wire.Profile:
        [located] = await iccids.locate(connection, [(tenant_id, *named)])
        if located is None:
            raise refusal.ProfileNotFound
        _, order_id, profile_id = located
        key = (tenant_id, order_id)
        await store.order.lock(connection, [key])
        order = (await store.order.load(connection, [key], data_keys))[key]
        item, profile = order.find_profile(profile_id)
        reported = ProfileReport(_report(item, profile, call, now), iccid=profile.iccid)
        await report(connection, item.supplier, [reported], data_keys, now)
        order = (await store.order.load(connection, [key], data_keys))[key]
        item, profile = order.find_profile(profile_id)
        return snapshot.profile(profile, item, tenant_id, links)

    profile = await database.run(work)
    advanced()
    return profile


def _report(item: Item, profile: Profile, call: calls.AdvanceProfile, now: datetime) -> Report:
    """The network's report of a step. Raises 200022, 200010, 200002, 200004, 000105."""
    if item.supplier != simulated.CODE:
        raise refusal.NotSupported("only profiles of simulated packages can be advanced")
    if profile.cancelled:
        raise refusal.StatusForbids("the profile is void")
    if profile.iccid is None:
        raise refusal.NotAllocated
    if profile.held:
        raise refusal.RefundInProgress("a refund of this profile is in progress")
    if call.step == "START":
        return Report(now, esim_status="IN_USE", generation=profile.generation)
    if call.step == "EXPIRE":
        unused = profile.plan_use_status == "NOT_STARTED"
        word = "UNUSED_EXPIRED" if unused else "USED_EXPIRED"
        return Report(now, esim_status=word, generation=profile.generation)
    if call.step == "USE":
        return _usage_report(profile, call.data_usage_bytes, now)
    return Report(now, smdp_status=_SMDP_STATUS[call.step])


def _usage_report(profile: Profile, used: int | None, now: datetime) -> Report:
    """`used` None: all of the plan's data."""
    total = profile.data_total_bytes
    used = total if used is None else used
    if used is None:
        raise refusal.ParameterMissing("dataUsageBytes is required: this plan is unlimited, so it cannot be used up")
    used_up = total is not None and used >= total
    return Report(
        now,
        esim_status="USED_UP" if used_up else "IN_USE" if used else None,
        data_usage_bytes=profile.used_before + used,
        generation=profile.generation,
    )
