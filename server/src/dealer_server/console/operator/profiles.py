"""eSIMs of all dealers: the list, and one profile with its timeline; for those who may see them its code and the texts
of its SMS."""

from base64 import b64encode
from collections.abc import Sequence
from typing import NamedTuple

from dealer_server.console.find import choice
from dealer_server.console.find import profiles as find_profiles
from dealer_server.console.find.choice import Choice
from dealer_server.console.find.files import Columns
from dealer_server.console.find.profiles import PROFILES
from dealer_server.console.find.usage import refresh_usage
from dealer_server.console.operator import timeline
from dealer_server.console.operator.timeline import History
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.permissions import CODE_VIEWERS, OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.recharges import plans_of
from dealer_server.console.shared.request_context import Download, Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import Event, on_its_page
from dealer_server.db.connection import Connection
from dealer_server.operations.profiles.read_sms import SmsText, reveal_sms
from dealer_server.operations.profiles.reveal_activation_code import reveal_activation_code
from dealer_server.operations.profiles.suspend import Offer
from dealer_server.rules.esim import activation_code, qr
from dealer_server.rules.lifecycle.daily_usage import DayUsage, by_day
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Item, Profile
from dealer_server.rules.refunds.refund import refuse
from dealer_server.store.console import orders
from dealer_server.store.console import profiles as console_profiles
from dealer_server.store.console import recharges as console_recharges
from dealer_server.store.console.dealer import not_refundable
from dealer_server.store.console.orders import Purchase
from dealer_server.store.console.profiles import Lifecycle, ProfileFilter, ProfileOwner, ProfileRow
from dealer_server.store.orders import order as store_order
from dealer_server.store.profiles import sms as sms_store
from dealer_server.store.refunds import refund

COLUMNS: Columns[ProfileRow] = {
    **find_profiles.COLUMNS,
    "tenantId": lambda row: str(row.tenant_id),
    "dealer": lambda row: row.dealer,
    "supplier": lambda row: row.supplier,
}
PROFILE, TEMPLATE = f"{PROFILES}/{{number}}", "operator/profile.html"
EVENTS = 200
LATEST_SMS = 20


class ProfileView(NamedTuple):
    """A profile with all that is known of it. `bought`: the purchase that made it, or the latest; `voiding`:
    its supplier is asked to void it; `review`: the refund that an operator decides, "" for none."""

    owner: ProfileOwner
    item: Item
    profile: Profile
    life: Lifecycle | None
    bought: Purchase | None
    voiding: bool
    refundable: bool
    suspension: Offer
    in_review: bool
    review: str
    events: list[Event]
    sms: list[SmsText]

    @property
    def reported(self) -> bool:
        return self.item.supplier != STOCK

    @property
    def days(self) -> list[DayUsage]:
        return by_day(self.life.daily_usage) if self.life else []

    @property
    def voidable(self) -> bool:
        return not (self.profile.cancelled or self.profile.held or self.voiding)


class Code(NamedTuple):
    """An activation code as people need it; `picture` is the QR code as SVG in a data: address."""

    text: str
    smdp_address: str
    matching_id: str
    picture: str


@page(PROFILES, OPERATORS, "operator/profiles.html", MenuEntry("eSIMs", "device-mobile", 30), listing=True)
async def profiles(context: RequestContext) -> Html:
    dealer, filters = await _wanted(context)
    file = params.address(f"{PROFILES}.csv", params.filters(context))
    return await find_profiles.page(context, filters, "state", dealer=dealer, export=file)


async def _wanted(context: RequestContext) -> tuple[Choice, ProfileFilter]:
    """The dealer that is named, and all filters."""
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
    return dealer, find_profiles.filters(context.query, dealer.tenant_id)


@download(f"{PROFILES}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    """All eSIMs of the list without their codes."""
    return await find_profiles.export(context, (await _wanted(context))[1], COLUMNS)


@page(PROFILE, OPERATORS, TEMPLATE)
async def show_profile(context: RequestContext) -> Html:
    return await _profile(context)


@page(f"{PROFILE}/code", CODE_VIEWERS, TEMPLATE)
async def show_code(context: RequestContext) -> Html:
    """The same with its code; the audit log records who saw it."""
    parts, (owner, profile_id) = context.parts, await _owner(context)
    text = await reveal_activation_code(parts.database, parts.data_keys, owner.tenant_id, profile_id, context.author)
    if text is None:
        raise NotFound
    picture = f"data:image/svg+xml;base64,{b64encode(qr.svg(text)).decode()}"
    return await _profile(context, Code(text, *activation_code.fields(text), picture))


@page(f"{PROFILE}/sms", CODE_VIEWERS, TEMPLATE)
async def show_sms(context: RequestContext) -> Html:
    """The same with the texts of its SMS; the audit log records who saw them."""
    parts, (owner, profile_id) = context.parts, await _owner(context)
    named = (owner.tenant_id, profile_id, LATEST_SMS)
    sms = await reveal_sms(parts.database, parts.data_keys, *named, context.author)
    return await _profile(context, sms=sms)


async def _profile(context: RequestContext, code: Code | None = None, sms: Sequence[SmsText] | None = None) -> Html:
    """With its code, with the texts of its SMS, or without."""
    owner, profile_id = await _owner(context)
    async with context.parts.database.connection() as connection:
        view = await _view(connection, context, owner, profile_id)
    package = context.parts.catalogue().package(view.item.package_code)
    return Html(
        view=view,
        in_review=view.in_review,
        profile=view.profile,
        code=code,
        apn=package.apn if package else "",
        name=package.package_name if package else "",
        plans=await plans_of(context, owner.tenant_id, profile_id),
        sms=view.sms if sms is None else sms,
        texts=sms is not None,
    )


async def _owner(context: RequestContext) -> tuple[ProfileOwner, int]:
    """Raises NotFound."""
    profile_id = identity.profile_id(context.path["number"])
    async with context.parts.database.connection() as connection:
        owner = None if profile_id is None else await console_profiles.owner(connection, profile_id)
    if profile_id is None or owner is None:
        raise NotFound
    return owner, profile_id


async def _view(connection: Connection, context: RequestContext, owner: ProfileOwner, profile_id: int) -> ProfileView:
    tenant_id, key, span = owner.tenant_id, (owner.tenant_id, owner.order_id), range(profile_id, profile_id + 1)
    order = (await store_order.load(connection, [key], context.parts.data_keys))[key]
    item, profile = next(
        (item, profile) for item in order.items for profile in item.profiles if profile.profile_id == profile_id
    )
    purchases = await orders.purchases(connection, tenant_id, span, EVENTS)
    void = await console_profiles.void(connection, tenant_id, profile_id)
    refunds = await refund.of_orders(connection, [key])
    history = History(
        order=order,
        movements=(),
        purchases=purchases,
        calls=await orders.calls(connection, tenant_id, span, EVENTS),
        recharges=await console_recharges.of_profiles(connection, tenant_id, span, EVENTS),
        lives=await orders.lives(connection, order, span, EVENTS),
        failed_at=await orders.failed_at(connection, order, span),
        voids=[void] if void else (),
        suspensions=await orders.suspensions(connection, tenant_id, span, EVENTS),
        refunds=[row for row in refunds if any(line.profile_id == profile_id for line in row.lines)],
        deliveries=(),
        attempts={},
        bodies={},
    )
    return ProfileView(
        owner=owner,
        item=item,
        profile=profile,
        life=await console_profiles.lifecycle(connection, tenant_id, profile_id),
        bought=history.purchase(profile),
        voiding=void is not None and void.outcome is None,
        refundable=refuse(profile, await not_refundable(connection, *key)) is None,
        suspension=await context.parts.suspender.offer(connection, order, profile_id),
        in_review=profile_id in history.in_review,
        review=next((identity.refund_no(row.refund_id) for row in history.refunds if row.waits_for_review), ""),
        sms=[SmsText(sms, None) for sms in await sms_store.of_profile(connection, tenant_id, profile_id, LATEST_SMS)],
        events=on_its_page(timeline.events(history), profile_id),
    )


@action(f"{PROFILE}/usage", OPERATOR_SUPPORT)
async def refresh(context: RequestContext) -> Redirect:
    """As its dealer could."""
    owner, profile_id = await _owner(context)
    return await refresh_usage(context, owner.tenant_id, str(profile_id))


@action(f"{PROFILE}/cancel", OPERATOR_SUPPORT)
async def cancel(context: RequestContext) -> Redirect:
    """Voids the profile without a refund, as its dealer could."""
    owner, profile_id = await _owner(context)
    reason = context.form.get("reason", "")
    result = await context.parts.voids.void_by_operator(owner.tenant_id, profile_id, context.author, reason)
    done = result.async_status == "COMPLETED"
    flash = "The eSIM is cancelled" if done else "Its supplier is asked to cancel it"
    return Redirect(f"{PROFILES}/{profile_id}", flash)
