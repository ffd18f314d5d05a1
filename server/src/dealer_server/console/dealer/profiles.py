"""A dealer's eSIMs: the list, one profile with its QR code and usage, and voiding it."""

from collections.abc import AsyncIterator
from typing import get_args

from dealer_server.acting import Act
from dealer_server.console import asked
from dealer_server.console.dealer import own
from dealer_server.console.dealer.orders import Shown, load, shown, span_of
from dealer_server.console.dealer.own import EVERYONE, MONEY, PAGE, SECRETS
from dealer_server.console.visit import Answer, Download, Go, NotHere, Page, Route, Visit
from dealer_server.operations.usage import usage
from dealer_server.rules import identity, qr
from dealer_server.rules.model import STOCK, Order
from dealer_server.store import console_dealer, listing
from dealer_server.store.console_dealer import Span
from dealer_server.store.database import Connection
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import LifecycleStatus, PlanUseStatus

LIFECYCLE = get_args(LifecycleStatus)
PLAN_USE = get_args(PlanUseStatus)


async def profiles(visit: Visit) -> Answer:
    if sought := asked.text(visit.query, "q"):
        return await _sought(visit, sought)
    status, plan = asked.one_of(visit.query, "status", LIFECYCLE), asked.one_of(visit.query, "plan", PLAN_USE)
    async with visit.parts.database.connection() as connection:
        span = await _span(connection, visit)
        found, following = await console_dealer.profiles(connection, visit.tenant_id, span, status, plan, PAGE)
    pages = asked.pager(visit, "/console/profiles", following)
    return own.page(visit, "profiles", profiles=found, pages=pages, statuses=LIFECYCLE, plans=PLAN_USE, sought="")


async def _span(connection: Connection, visit: Visit) -> Span:
    """The ids of the days asked for, or of the one order that is named."""
    named = asked.text(visit.query, "order")
    if named is None:
        return span_of(visit)
    order_id = identity.order_id(named)
    within = await listing.profile_span(connection, visit.tenant_id, -1 if order_id is None else order_id)
    first, end = within or (0, 0)
    before = asked.number(visit.query, "before")
    return Span(first, end if before is None else min(before, end))


async def _sought(visit: Visit, sought: str) -> Answer:
    if there := await own.meant(visit, sought):
        return there
    pages = asked.pager(visit, "/console/profiles", None)
    return own.page(visit, "profiles", profiles=(), pages=pages, statuses=LIFECYCLE, plans=PLAN_USE, sought=sought)


async def one(visit: Visit) -> Page:
    order, found = await _load(visit)
    reported = next(item.supplier != STOCK for item in order.items if found.profile in item.profiles)
    return own.page(visit, "profile", order=order, one=found, reported=reported)


async def picture(visit: Visit) -> Download:
    """The QR code as SVG; there is none without codes, and none of what is void."""
    _, found = await _load(visit)
    code = found.profile.activation_code
    if code is None or found.profile.cancelled:
        raise NotHere
    return Download(f"{found.profile.iccid}.svg", "image/svg+xml", _once(qr.svg(code)))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def cancel(visit: Visit) -> Go:
    """Voids the eSIM without money back, as /esim/profile/cancel does."""
    wanted = own.call(calls.VoidProfile, profileId=visit.path["profile_id"])
    act = Act.here(visit.author, asked.text(visit.form, "reason"))
    given = await visit.parts.voids.void(visit.tenant_id, wanted, act)
    done = given.async_status == "COMPLETED"
    return Go(_address(visit), "The eSIM is cancelled" if done else "The supplier is asked to cancel it")


async def refresh(visit: Visit) -> Go:
    """Has the supplier asked for the usage, as /esim/profile/usage does; the page renews itself when it answers."""
    wanted = own.call(calls.ProfileUsage, profileId=visit.path["profile_id"], refresh=True)
    given = await usage(visit.parts.database, lambda: visit.now, _nobody_waits, visit.tenant_id, wanted)
    return Go(_address(visit), "The usage is as of now" if given.real_time else "The supplier is asked")


def _nobody_waits() -> None:
    """The worker finds what was asked when it looks next."""


def _address(visit: Visit) -> str:
    return f"/console/profiles/{visit.path['profile_id']}"


async def _load(visit: Visit) -> tuple[Order, Shown]:
    """The dealer's own profile with its order. Raises NotHere."""
    profile_id = identity.profile_id(visit.path["profile_id"])
    if profile_id is None:
        raise NotHere
    async with visit.parts.database.connection() as connection:
        order_id = await console_dealer.order_of(connection, visit.tenant_id, profile_id)
        if order_id is None:
            raise NotHere
        voiding = await console_dealer.voids_waiting(connection, visit.tenant_id, order_id)
    order = await load(visit, order_id)
    return order, next(one for one in shown(visit, order, voiding) if one.profile.profile_id == profile_id)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/profiles", EVERYONE, profiles, "Profiles"),
    Route("GET", "/console/profiles/{profile_id}", EVERYONE, one),
    Route("GET", "/console/profiles/{profile_id}/qr.svg", SECRETS, picture),
    Route("POST", "/console/profiles/{profile_id}/cancel", MONEY, cancel),
    Route("POST", "/console/profiles/{profile_id}/usage", EVERYONE, refresh),
)
