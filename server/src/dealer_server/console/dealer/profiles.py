"""A dealer's eSIMs: the list, one profile with its QR code, usage and SMS, cancelling and suspending it."""

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any

from dealer_server.audit_context import Actor
from dealer_server.console.dealer import recharges, resale, search, timeline
from dealer_server.console.dealer.buying.buyer import mail_of
from dealer_server.console.dealer.orders import ProfileView, is_moving, load, profile_views
from dealer_server.console.find import profiles as find_profiles
from dealer_server.console.find.profiles import PROFILES
from dealer_server.console.find.usage import refresh_usage
from dealer_server.console.shared import params
from dealer_server.console.shared.calls import call
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS, DEALER_FINANCE, DEALERS
from dealer_server.console.shared.recharges import plans_of
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import Event, on_its_page
from dealer_server.console.shared.words import LANGUAGE_NAMES
from dealer_server.db.connection import Connection
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.profiles.mail_install_page import mail_install_pages
from dealer_server.operations.profiles.read_sms import read_sms
from dealer_server.rules.esim import qr
from dealer_server.rules.install.stage import use_by
from dealer_server.rules.lifecycle.daily_usage import by_day
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK, Item, Order
from dealer_server.rules.refusal import SmsTooSoon
from dealer_server.store.console import dealer, queues
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import profiles as console_profiles
from dealer_server.store.console.profiles import ProfileFilter, ProfileRow
from dealer_server.store.notices import buyer_mails
from dealer_server.store.orders import listing
from esim_dealer.wire import calls

LATEST_SMS = 10
LATEST_MAILS = 5


@page(PROFILES, DEALERS, "dealer/profiles.html", MenuEntry("eSIMs", "device-mobile", 30), listing=True)
async def profiles(context: RequestContext) -> Answer:
    if found := await search.sought(context):
        return found
    file = params.address(f"{PROFILES}.csv", params.filters(context))
    return await find_profiles.page(context, await _wanted(context), "status", _buyers(context), export=file)


def _buyers(context: RequestContext) -> find_profiles.More:
    """Who got these eSIMs, as far as it is known. `addressed`: orders whose mail went to an address that is known."""

    async def read(connection: Connection, rows: Sequence[ProfileRow]) -> dict[str, Any]:
        profile_ids, order_ids = [row.profile_id for row in rows], [row.order_id for row in rows]
        of_orders = await buyer_mails.newest_of_orders(connection, context.tenant_id, order_ids)
        return {
            "mailed": await buyer_mails.newest_of_profiles(connection, context.tenant_id, profile_ids),
            "addressed": {order_id for order_id, mail in of_orders.items() if mail.mail},
            "references": await console_orders.references(connection, context.tenant_id, order_ids),
        }

    return read


@download(f"{PROFILES}.csv", DEALERS, listing=True)
async def export(context: RequestContext) -> Download:
    return await find_profiles.export(context, await _wanted(context))


async def _wanted(context: RequestContext) -> ProfileFilter:
    """Those between the days of the filter, or those of the order that is given."""
    filters, order_no = find_profiles.filters(context.query, context.tenant_id), params.text(context.query, "order")
    if context.query.get("ends") == find_profiles.SOON:
        filters = filters._replace(ending=find_profiles.ending_soon(context.now))
    if order_no is None:
        return filters
    order_id = identity.order_id(order_no)
    async with context.parts.database.connection() as connection:
        ids = None if order_id is None else await listing.profile_span(connection, context.tenant_id, order_id)
    first, end = ids or (0, 0)
    return filters._replace(first=first, end=end)


@page("/console/profiles/{profile_id}", DEALERS, "dealer/profile.html")
async def show_profile(context: RequestContext) -> Html:
    order, view = await _load(context)
    item = next(item for item in order.items if view.profile in item.profiles)
    parts, named = context.parts, (context.tenant_id, view.profile.profile_id)
    package = parts.catalogue().package(item.package_code)
    async with parts.database.connection() as connection:
        suspension = await parts.suspender.offer(connection, order, view.profile.profile_id)
        possible = await parts.sms.possible(connection, *named)
        sent = await read_sms(connection, parts.data_keys, *named, LATEST_SMS)
        in_review = await queues.reviewed_profiles(connection, [named])
        mailed = await buyer_mails.of_profile(connection, *named, LATEST_MAILS)
        of_order = await buyer_mails.of_order(connection, context.tenant_id, order.order_id, 1)
        mailing = await buyer_mails.has_any(connection, context.tenant_id)
        history = await timeline.load_esim(connection, order, view.profile.profile_id)
        remark = await console_orders.remark(connection, context.tenant_id, order.order_id)
        life = await console_profiles.lifecycle(connection, *named)
    plans = await plans_of(context, *named)
    waits = suspension.asked is not None or any(plan.status == "PENDING" for plan, _ in plans)
    return Html(
        order=order,
        view=view,
        moving=waits or is_moving(context, order),
        in_review=bool(in_review),
        reported=item.supplier != STOCK,
        reported_at=life.reported_at if life else None,
        days=by_day(life.daily_usage if life else ()),
        package=package,
        package_code=item.package_code,
        price=item.price * item.period_num,
        profit=resale.profit_of_esim(parts.catalogue(), order, item, view.profile),
        use_by=use_by(view.profile, order.order_id, package),
        plans=plans,
        offered=await recharges.offered(context, view.profile),
        suspension=suspension,
        sms=sent,
        sms_possible=possible,
        transaction_id=f"console-{secrets.token_hex(8)}",
        mailed=mailed,
        mailing=mailing,
        remark=remark,
        buyer_mail=mail_of(remark, of_order),
        mails=parts.settings.mails != "none",
        languages=LANGUAGE_NAMES,
        events=on_its_page(
            [_bought(order, item), *timeline.events(history, kept=parts.settings.mails == "kept")],
            view.profile.profile_id,
        ),
        language=params.one_of(context.query, "lang", tuple(LANGUAGE_NAMES)) or "en",
    )


def _bought(order: Order, item: Item) -> Event:
    """The first that happened to it."""
    price = money.shown(item.price * item.period_num, order.currency)
    return Event(identity.created_at(order.order_id), "shopping-cart", f"Bought for {price}")


@download("/console/profiles/{profile_id}/qr.svg", DEALER_DEVELOPERS)
async def qr_code(context: RequestContext) -> Download:
    """As SVG. Raises NotFound for a profile that has no code or is void."""
    _, view = await _load(context)
    code = view.profile.activation_code
    if code is None or view.profile.cancelled:
        raise NotFound
    return Download(f"{view.profile.iccid}.svg", "image/svg+xml", _chunk(qr.svg(code)))


async def _chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content


@action("/console/profiles/{profile_id}/cancel", DEALER_FINANCE)
async def cancel(context: RequestContext) -> Redirect:
    """Voids the eSIM without a refund, as /esim/profile/cancel does."""
    request = call(calls.VoidProfile, profileId=context.path["profile_id"])
    actor = Actor.current(context.author, params.text(context.form, "reason"))
    result = await context.parts.voids.void(context.tenant_id, request, actor)
    done = result.async_status == "COMPLETED"
    return Redirect(_address(context), "The eSIM is cancelled" if done else "The supplier is asked to cancel it")


@action("/console/profiles/{profile_id}/suspend", DEALER_FINANCE)
async def suspend(context: RequestContext) -> Redirect:
    """As /esim/profile/suspend does."""
    result = await context.parts.suspender.suspend(context.tenant_id, *_suspension(context))
    done = result.async_status == "COMPLETED"
    return Redirect(_address(context), "The eSIM is suspended" if done else "The supplier is asked to suspend it")


@action("/console/profiles/{profile_id}/unsuspend", DEALER_FINANCE)
async def unsuspend(context: RequestContext) -> Redirect:
    """As /esim/profile/unsuspend does."""
    result = await context.parts.suspender.unsuspend(context.tenant_id, *_suspension(context))
    done = result.async_status == "COMPLETED"
    return Redirect(_address(context), "The eSIM works again" if done else "The supplier is asked to unsuspend it")


def _suspension(context: RequestContext) -> tuple[calls.SuspendProfile, Actor]:
    request = call(calls.SuspendProfile, profileId=context.path["profile_id"])
    return request, Actor.current(context.author, params.text(context.form, "reason"))


@action("/console/profiles/{profile_id}/usage", DEALERS)
async def refresh(context: RequestContext) -> Redirect:
    return await refresh_usage(context, context.tenant_id, context.path["profile_id"])


@action("/console/profiles/{profile_id}/sms", DEALER_DEVELOPERS)
async def send_sms(context: RequestContext) -> Redirect:
    """As /esim/profile/sms does. The form holds its transactionId, so that sending it twice sends one SMS."""
    form = context.form
    message = form.get("message", "").replace("\r\n", "\n")
    request = call(
        calls.SendSms,
        transactionId=form.get("transaction_id", ""),
        profileId=context.path["profile_id"],
        message=message,
    )
    try:
        made = await context.parts.sms.send(context.tenant_id, request, context.author)
    except SmsTooSoon as why:
        raise OperatorError(f"One SMS a minute. Send it again in {why.retry_after} s.") from None
    return Redirect(_address(context), f"SMS {made.sms_no} is {'sent' if made.status == 'SENT' else 'on its way'}")


@action("/console/profiles/{profile_id}/mail", DEALER_DEVELOPERS)
async def mail_page(context: RequestContext) -> Redirect:
    """The install page, by mail to the buyer."""
    order, view = await _load(context)
    if view.profile.iccid is None or view.profile.cancelled:
        return Redirect(_address(context), "This eSIM has no page: nothing was sent", failed=True)
    mail = params.text(context.form, "mail") or ""
    named = context.tenant_id, order.order_id, [view.profile.profile_id]
    await mail_install_pages(
        context.parts.database, *named, mail, context.form.get("language", ""), context.author, context.now
    )
    return Redirect(_address(context), f"The page of this eSIM is on its way to {mail}")


def _address(context: RequestContext) -> str:
    return f"{PROFILES}/{context.path['profile_id']}"


async def _load(context: RequestContext) -> tuple[Order, ProfileView]:
    """The dealer's own profile with its order. Raises NotFound."""
    profile_id = identity.profile_id(context.path["profile_id"])
    if profile_id is None:
        raise NotFound
    async with context.parts.database.connection() as connection:
        order_id = await dealer.order_of(connection, context.tenant_id, profile_id)
        if order_id is None:
            raise NotFound
        blocked = await dealer.not_refundable(connection, context.tenant_id, order_id)
    order = await load(context, order_id)
    views = profile_views(context, order, blocked)
    return order, next(view for view in views if view.profile.profile_id == profile_id)
