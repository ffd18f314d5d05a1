"""eSIMs of all dealers: the list, one of them with all that is known of it, its code for those who may see it."""

from base64 import b64encode
from typing import NamedTuple

from dealer_server.console.operator import permissions, timeline
from dealer_server.console.operator.permissions import CODES, LOOK, PAGE, PUSH
from dealer_server.console.operator.timeline import Known
from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.db.connection import Connection
from dealer_server.operations.profiles.reveal_activation_code import reveal_activation_code
from dealer_server.rules.lifecycle import activation_code, qr
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Item, Profile
from dealer_server.store.console import dealers as console_dealers
from dealer_server.store.console import orders
from dealer_server.store.console import profiles as console_profiles
from dealer_server.store.console.orders import Bought
from dealer_server.store.console.profiles import Life, Owner, Wanted
from dealer_server.store.orders import order
from dealer_server.store.refunds import refund

STATES = ("PENDING", "DELIVERED", "ACTIVATING", "ACTIVATED", "CANCELLED", "FAILED", "REFUNDED")
EVENTS = 200


class Shown(NamedTuple):
    """A profile with all that is known of it. `bought`: the latest of its purchases, where it was bought from somebody
    who is called; `voiding`: its supplier is asked to void it."""

    owner: Owner
    item: Item
    profile: Profile
    life: Life | None
    bought: Bought | None
    voiding: bool
    events: list[timeline.Event]

    @property
    def reported(self) -> bool:
        return self.item.supplier != STOCK

    @property
    def voidable(self) -> bool:
        return not (self.profile.cancelled or self.profile.held or self.voiding)


class Code(NamedTuple):
    """An activation code as people need it; `picture` is the QR code as SVG in a data: address."""

    text: str
    smdp_address: str
    matching_id: str
    picture: str


async def profiles(context: RequestContext) -> Page:
    query = context.query
    wanted = Wanted(params.number(query, "dealer"), params.one_of(query, "state", STATES), params.text(query, "iccid"))
    async with context.parts.database.connection() as connection:
        found = await console_profiles.page(connection, wanted, params.number(query, "before"), PAGE)
        dealers = await console_dealers.names(connection, wanted.tenant_id)
    return permissions.page(
        context,
        "profiles",
        profiles=found.rows,
        wanted=wanted,
        filtered=wanted != Wanted(),
        dealers=dealers,
        states=STATES,
        pager=permissions.pager(context, "/console/profiles", found),
    )


async def one(context: RequestContext) -> Page:
    return await _page(context, None)


async def code(context: RequestContext) -> Page:
    """The same with its code; who looked is in the audit log."""
    parts, owner, profile_id = context.parts, *await _owner(context)
    text = await reveal_activation_code(parts.database, parts.data_keys, owner.tenant_id, profile_id, context.author)
    if text is None:
        raise NotFound
    picture = f"data:image/svg+xml;base64,{b64encode(qr.svg(text)).decode()}"
    return await _page(context, Code(text, *activation_code.fields(text), picture))


async def _page(context: RequestContext, shown: Code | None) -> Page:
    owner, profile_id = await _owner(context)
    async with context.parts.database.connection() as connection:
        found = await _shown(connection, context, owner, profile_id)
    return permissions.page(context, "profile", one=found, profile=found.profile, code=shown)


async def _owner(context: RequestContext) -> tuple[Owner, int]:
    """Raises NotHere."""
    profile_id = identity.profile_id(context.path["number"])
    async with context.parts.database.connection() as connection:
        owner = None if profile_id is None else await console_profiles.whose(connection, profile_id)
    if profile_id is None or owner is None:
        raise NotFound
    return owner, profile_id


async def _shown(connection: Connection, context: RequestContext, owner: Owner, profile_id: int) -> Shown:
    tenant_id, key, span = owner.tenant_id, (owner.tenant_id, owner.order_id), range(profile_id, profile_id + 1)
    found = (await order.load(connection, [key], context.parts.data_keys))[key]
    item, profile = next((item, one) for item in found.items for one in item.profiles if one.profile_id == profile_id)
    purchases = await orders.purchases(connection, tenant_id, span, EVENTS)
    void = await console_profiles.void(connection, tenant_id, profile_id)
    refunds = await refund.of_orders(connection, [key])
    known = Known(
        order=found,
        movements=(),
        purchases=purchases,
        calls=await orders.calls(connection, tenant_id, span, EVENTS),
        lives=await orders.lives(connection, tenant_id, span, EVENTS),
        voids=[void] if void else (),
        refunds=[one for one in refunds if any(line.profile_id == profile_id for line in one.lines)],
        deliveries=(),
        attempts={},
        bodies={},
    )
    return Shown(
        owner,
        item,
        profile,
        await console_profiles.life(connection, tenant_id, profile_id),
        purchases[-1] if purchases else None,
        void is not None and void.outcome is None,
        [event._replace(title=_alone(event.title, profile_id)) for event in timeline.tell(known)],
    )


def _alone(title: str, profile_id: int) -> str:
    """What happened, on a page of this profile alone."""
    head, _, said = title.partition(f"Profile {profile_id}: ")
    if head:
        return title.replace(f" profile {profile_id}", " it")
    return said if said.startswith("eSIM") else said[:1].upper() + said[1:]


async def cancel(context: RequestContext) -> Answer:
    """Voids the profile without money back, as its dealer could."""
    owner, profile_id = await _owner(context)
    to, reason = f"/console/profiles/{profile_id}", context.form.get("reason", "")
    given = await context.parts.voids.void_by_operator(owner.tenant_id, profile_id, context.author, reason)
    return Redirect(
        to, "The eSIM is cancelled" if given.async_status == "COMPLETED" else "Its supplier is asked to void it"
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/profiles", LOOK, profiles, "Profiles"),
    Route("GET", "/console/profiles/{number}", LOOK, one),
    Route("GET", "/console/profiles/{number}/code", CODES, code),
    Route("POST", "/console/profiles/{number}/cancel", PUSH, cancel),
)
