"""The test environment's hand: /test/profile/advance moves a simulated profile through its life (decisions 4).

A step is a report of the simulated network, made now; all else follows as from any report.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.db.sealing import DataKeys
from dealer_server.operations.profiles.usage import named
from dealer_server.rules import refusal
from dealer_server.rules.lifecycle.lifecycle import Report
from dealer_server.rules.orders import snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.orders.snapshot import Links
from dealer_server.store.profiles import iccid as iccids
from dealer_server.suppliers.builtin import simulated
from dealer_server.suppliers.contract import ProfileReport
from esim_dealer.wire import calls
from esim_dealer.wire import snapshot as wire
from esim_dealer.wire.vocabulary import AdvanceStep

Reporting = Callable[[Connection, str, Sequence[ProfileReport], DataKeys, datetime], Awaitable[object]]
"""fulfillment.follow.report: takes in what a supplier said, in the caller's transaction."""

_SMDP: Mapping[AdvanceStep, str] = {
    "DOWNLOAD": "DOWNLOAD",
    "INSTALL": "INSTALLATION",
    "ENABLE": "ENABLED",
    "DELETE": "DELETED",
}


async def advance(
    database: Database,
    data_keys: DataKeys,
    links: Links,
    report: Reporting,
    clock: Clock,
    advanced: Callable[[], None],
    tenant_id: int,
    call: calls.AdvanceProfile,
) -> wire.Profile:
    """The profile after the step. `advanced` is rung when that is committed. Raises 000105, 000111, 310404, 200022,
    200010, 200002, 200004."""
    profile_id, iccid = named(call.profile_id, call.iccid)
    if call.data_usage_bytes is not None and call.step != "USE":
        raise refusal.ParameterNotAccepted("dataUsageBytes is accepted with step USE only")
    now = clock()

    async def work(connection: Connection) -> wire.Profile:
        [found] = await iccids.locate(connection, [(tenant_id, profile_id, iccid)])
        if found is None:
            raise refusal.ProfileNotFound
        key, wanted = found[:2], found[2]
        await store.order.lock(connection, [key])
        item, before = _profile((await store.order.load(connection, [key], data_keys))[key], wanted)
        said = ProfileReport(_report(item, before, call, now), iccid=before.iccid)
        await report(connection, item.supplier, [said], data_keys, now)
        item, after = _profile((await store.order.load(connection, [key], data_keys))[key], wanted)
        return snapshot.profile(after, item, tenant_id, links)

    moved = await database.run(work)
    advanced()
    return moved


def _report(item: Item, profile: Profile, call: calls.AdvanceProfile, now: datetime) -> Report:
    """What the network would say. Raises 200022, 200010, 200002, 200004, 000105."""
    if item.supplier != simulated.CODE:
        raise refusal.NotSupported("only profiles of simulated packages can be moved by hand")
    if profile.cancelled:
        raise refusal.StatusForbids("the profile is void")
    if profile.iccid is None:
        raise refusal.NotAllocated
    if profile.held:
        raise refusal.RefundInProgress("a refund of this profile is in progress")
    if call.step == "START":
        return Report(now, esim_status="IN_USE")
    if call.step == "EXPIRE":
        unused = profile.plan_use_status == "NOT_STARTED"
        return Report(now, esim_status="UNUSED_EXPIRED" if unused else "USED_EXPIRED")
    if call.step == "USE":
        return _use(profile.data_total_bytes, call.data_usage_bytes, now)
    return Report(now, smdp_status=_SMDP[call.step])


def _use(total: int | None, used: int | None, now: datetime) -> Report:
    used = total if used is None else used
    if used is None:
        raise refusal.ParameterMissing("dataUsageBytes is required: this plan is unlimited, it has no everything")
    over = total is not None and used >= total
    return Report(now, esim_status="USED_UP" if over else "IN_USE" if used else None, data_usage_bytes=used)


def _profile(order: Order, profile_id: int) -> tuple[Item, Profile]:
    return next(
        (item, profile) for item in order.items for profile in item.profiles if profile.profile_id == profile_id
    )
