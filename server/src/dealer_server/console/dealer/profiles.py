"""A dealer's eSIMs: the list, one profile with its QR code and usage, and voiding it."""

from collections.abc import AsyncIterator
from typing import get_args

from dealer_server.audit_context import Actor
from dealer_server.console.dealer import permissions
from dealer_server.console.dealer.orders import Shown, load, shown, span_of
from dealer_server.console.dealer.permissions import EVERYONE, MONEY, PAGE, SECRETS
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import (
    Answer,
    Download,
    NotFound,
    Page,
    Redirect,
    RequestContext,
    Route,
)
from dealer_server.db.connection import Connection
from dealer_server.operations.profiles.query_usage import query_usage
from dealer_server.rules.lifecycle import qr
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Order
from dealer_server.store.console import dealer
from dealer_server.store.console.dealer import Span
from dealer_server.store.orders import listing
from esim_dealer.wire import calls
from esim_dealer.wire.vocabulary import LifecycleStatus, PlanUseStatus

LIFECYCLE = get_args(LifecycleStatus)
PLAN_USE = get_args(PlanUseStatus)


async def profiles(context: RequestContext) -> Answer:
    if sought := params.text(context.query, "q"):
        return await _sought(context, sought)
    status, plan = params.one_of(context.query, "status", LIFECYCLE), params.one_of(context.query, "plan", PLAN_USE)
    async with context.parts.database.connection() as connection:
        span = await _span(connection, context)
        found, following = await dealer.profiles(connection, context.tenant_id, span, status, plan, PAGE)
    pages = params.pager(context, "/console/profiles", following)
    return permissions.page(
        context, "profiles", profiles=found, pages=pages, statuses=LIFECYCLE, plans=PLAN_USE, sought=""
    )


async def _span(connection: Connection, context: RequestContext) -> Span:
    """The ids of the days asked for, or of the one order that is named."""
    named = params.text(context.query, "order")
    if named is None:
        return span_of(context)
    order_id = identity.order_id(named)
    within = await listing.profile_span(connection, context.tenant_id, -1 if order_id is None else order_id)
    first, end = within or (0, 0)
    before = params.number(context.query, "before")
    return Span(first, end if before is None else min(before, end))


async def _sought(context: RequestContext, sought: str) -> Answer:
    if there := await permissions.meant(context, sought):
        return there
    pages = params.pager(context, "/console/profiles", None)
    return permissions.page(
        context, "profiles", profiles=(), pages=pages, statuses=LIFECYCLE, plans=PLAN_USE, sought=sought
    )


async def one(context: RequestContext) -> Page:
    order, found = await _load(context)
    reported = next(item.supplier != STOCK for item in order.items if found.profile in item.profiles)
    return permissions.page(context, "profile", order=order, one=found, reported=reported)


async def picture(context: RequestContext) -> Download:
    """The QR code as SVG; there is none without codes, and none of what is void."""
    _, found = await _load(context)
    code = found.profile.activation_code
    if code is None or found.profile.cancelled:
        raise NotFound
    return Download(f"{found.profile.iccid}.svg", "image/svg+xml", _once(qr.svg(code)))


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def cancel(context: RequestContext) -> Redirect:
    """Voids the eSIM without money back, as /esim/profile/cancel does."""
    wanted = permissions.call(calls.VoidProfile, profileId=context.path["profile_id"])
    act = Actor.current(context.author, params.text(context.form, "reason"))
    given = await context.parts.voids.void(context.tenant_id, wanted, act)
    done = given.async_status == "COMPLETED"
    return Redirect(_address(context), "The eSIM is cancelled" if done else "The supplier is asked to cancel it")


async def refresh(context: RequestContext) -> Redirect:
    """Has the supplier asked for the usage, as /esim/profile/usage does; the page renews itself when it answers."""
    wanted = permissions.call(calls.ProfileUsage, profileId=context.path["profile_id"], refresh=True)
    given = await query_usage(context.parts.database, lambda: context.now, _nobody_waits, context.tenant_id, wanted)
    return Redirect(_address(context), "The usage is as of now" if given.real_time else "The supplier is asked")


def _nobody_waits() -> None:
    """The worker finds what was asked when it looks next."""


def _address(context: RequestContext) -> str:
    return f"/console/profiles/{context.path['profile_id']}"


async def _load(context: RequestContext) -> tuple[Order, Shown]:
    """The dealer's own profile with its order. Raises NotHere."""
    profile_id = identity.profile_id(context.path["profile_id"])
    if profile_id is None:
        raise NotFound
    async with context.parts.database.connection() as connection:
        order_id = await dealer.order_of(connection, context.tenant_id, profile_id)
        if order_id is None:
            raise NotFound
        voiding = await dealer.voids_waiting(connection, context.tenant_id, order_id)
    order = await load(context, order_id)
    return order, next(one for one in shown(context, order, voiding) if one.profile.profile_id == profile_id)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/profiles", EVERYONE, profiles, "Profiles"),
    Route("GET", "/console/profiles/{profile_id}", EVERYONE, one),
    Route("GET", "/console/profiles/{profile_id}/qr.svg", SECRETS, picture),
    Route("POST", "/console/profiles/{profile_id}/cancel", MONEY, cancel),
    Route("POST", "/console/profiles/{profile_id}/usage", EVERYONE, refresh),
)
