"""A dealer's orders: the list, one order with its eSIMs, and refunds."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from dealer_server.console.dealer import order_summary, resale, search, timeline
from dealer_server.console.dealer.buying.buyer import mail_of
from dealer_server.console.dealer.buying.catalogue import CATALOGUE
from dealer_server.console.dealer.buying.instead import instead_of
from dealer_server.console.find import orders as find_orders
from dealer_server.console.find.orders import ORDERS
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.permissions import DEALER_DEVELOPERS, DEALER_FINANCE, DEALERS, permissions
from dealer_server.console.shared.recharges import recharged_by
from dealer_server.console.shared.refunds import refund_by_form
from dealer_server.console.shared.request_context import Answer, Download, Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import by_name
from dealer_server.console.shared.words import LANGUAGE_NAMES
from dealer_server.db.connection import Connection
from dealer_server.operations.profiles.mail_install_page import mail_install_pages
from dealer_server.operations.recharges.offers import rechargeable
from dealer_server.rules.install.stage import use_by
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, snapshot
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.refunds import refund
from dealer_server.rules.refunds.refund import Reason
from dealer_server.store.console import dealer, queues
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import profiles as console_profiles
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.orders import OrderRow
from dealer_server.store.notices import buyer_mails
from dealer_server.store.orders import order as store_order
from esim_dealer.wire import snapshot as wire

PROFILES = 50
PRINTED = 20
RECENT = timedelta(minutes=10)
COLUMNS = ("orderNo", "createTime", "transactionId", "currency", "amount", "refundAmount", "payStatus",
           "deliveryStatus", "orderStatus", "orderType", "remark")  # fmt: skip


class ProfileView(NamedTuple):
    """A profile on a page: as the rules see it, as the dealer gets it, and what can still be done with it."""

    profile: Profile
    wire: wire.Profile
    package_code: str
    item_no: str
    refundable: bool
    voidable: bool


class ItemView(NamedTuple):
    """An item of an order; amounts in major units."""

    item: Item
    item_no: str
    price: str
    amount: str


@page(ORDERS, DEALERS, "dealer/orders.html", MenuEntry("Orders", "shopping-cart", 20), listing=True)
async def orders(context: RequestContext) -> Answer:
    if found := await search.sought(context):
        return found

    async def more(connection: Connection, rows: Sequence[OrderRow]) -> dict[str, Any]:
        found = await buyer_mails.newest_of_orders(connection, context.tenant_id, [row.order_id for row in rows])
        profits = {row.order_id: resale.profit_of_row(context.parts.catalogue(), row) for row in rows}
        return {"mailed": found, "unmailed": await unmailed(context, connection, rows), "profits": profits}

    return await find_orders.page(context, find_orders.filters(context.query, context.tenant_id), more)


async def unmailed(context: RequestContext, connection: Connection, rows: Sequence[OrderRow]) -> set[int] | None:
    """Those with an eSIM that waits to be mailed; None of a dealer who does not mail from here."""
    if not await buyer_mails.has_any(connection, context.tenant_id):
        return None
    return await console_profiles.unmailed_orders(connection, context.tenant_id, [row.order_id for row in rows])


@download(f"{ORDERS}.csv", DEALERS, listing=True)
async def export(context: RequestContext) -> Download:
    return await find_orders.export(context, find_orders.filters(context.query, context.tenant_id), COLUMNS)


@page("/console/orders/{order_no}", DEALERS, "dealer/order.html")
async def show_order(context: RequestContext) -> Html:
    """Renews itself while the order is recent or something is pending."""
    order = await load(context, _order_id(context))
    async with context.parts.database.connection() as connection:
        key = (connection, context.tenant_id, order.order_id)
        blocked = await dealer.not_refundable(*key)
        history = await timeline.load(connection, order)
        remark = await console_orders.remark(*key)
        in_review = await queues.reviewed_profiles(
            connection, [(context.tenant_id, one.profile_id) for one in order.profiles]
        )
        suppliers = {row.code: row for row in await console_suppliers.list_suppliers(connection)}
        shown = [profile.profile_id for profile in order.profiles[:PROFILES]]
        mails = await buyer_mails.newest_of_profiles(connection, context.tenant_id, shown)
        mailing = await buyer_mails.has_any(connection, context.tenant_id)
        money_mover = permissions(context.user).money and order.recharges is None
        fit = (connection, context.parts.catalogue(), context.tenant_id, shown)
        can_recharge = await rechargeable(*fit) if money_mover else set()
    profiles = profile_views(context, order, blocked)
    return Html(
        order=order,
        profit=resale.profit_of_order(context.parts.catalogue(), order),
        **await _again(context, order, history if money_mover else None),
        concerns=order_summary.concerns(history, suppliers, context.now, developer=permissions(context.user).secrets),
        settled=order_summary.settled_text(history),
        lines=[_item_view(order, item) for item in order.items],
        profiles=profiles[:PROFILES],
        profile_count=len(profiles),
        in_review=in_review,
        rechargeable=can_recharge,
        use_by=_use_by(context, order),
        buyer_mail=mail_of(remark, mails.values()),
        recharged=await recharged_by(context, order),
        refunds=[(row, timeline.refusal_text(history.refusals.get(row.refund_id, ()))) for row in history.refunds],
        events=by_name(timeline.events(history, kept=context.parts.settings.mails == "kept"), order),
        remark=remark,
        credited_on=_credited_on(history),
        refundable=money.text(_refundable(order, blocked), order.currency),
        moving=is_moving(context, order),
        mailed=mails,
        newest_mail=max(mails.values(), key=lambda mail: mail.mail_id, default=None),
        mails=context.parts.settings.mails != "none",
        mailing=mailing,
        languages=LANGUAGE_NAMES,
        links="\n".join(_pages(profiles[:PROFILES])) if permissions(context.user).secrets else "",
    )


async def _again(context: RequestContext, order: Order, history: timeline.History | None) -> dict[str, Any]:
    """How to buy what could not be delivered, as far as it is one package. `again`: the form that buys it once more, ""
    where it may still be out of stock. `others`: what can be sold in its place where it was. `history`: None for who
    may not buy."""
    failed = [item for item in order.items if any(profile.failed for profile in item.profiles)]
    code = failed[0].package_code if len({item.package_code for item in failed}) == 1 else ""
    package = context.parts.catalogue().package(code)
    if history is None or package is None:
        return {"again": "", "others": ()}
    filled = {"quantity": sum(profile.failed for profile in order.profiles), "order": order.order_no}
    found = await instead_of(context, package, failed[0].price, filled)
    again = found.again and (found.stocked or not order_summary.out_of_stock(history))
    return {
        "again": params.address(f"{CATALOGUE}/{code}", filled) if again else "",
        "others": () if again else found.others,
    }


def _use_by(context: RequestContext, order: Order) -> dict[int, datetime]:
    """When its eSIMs that are delivered expire unless they are used, by profileId."""
    packages = context.parts.catalogue()
    return {
        profile.profile_id: at
        for item in order.items
        for profile in item.profiles
        if (at := use_by(profile, order.order_id, packages.package(item.package_code)))
    }


def _credited_on(history: timeline.History) -> str:
    """The day of the last entry of the wallet that returned money of the order; "" without one."""
    credits = [entry.created_at for entry in history.movements if entry.entry_type == "REFUND"]
    return max(credits).date().isoformat() if credits else ""


def _pages(views: Sequence[ProfileView]) -> list[str]:
    """The addresses of the install pages of those that can be sent to a buyer."""
    return [view.wire.install_page_url or "" for view in views if _can_be_sent(view)]


def _can_be_sent(view: ProfileView) -> bool:
    return view.profile.iccid is not None and not view.profile.cancelled


@action("/console/orders/{order_no}/mail", DEALER_DEVELOPERS)
async def mail_pages(context: RequestContext) -> Redirect:
    """The install pages of all its eSIMs, by one mail each to the buyer."""
    order = await load(context, _order_id(context))
    here, mail = f"{ORDERS}/{order.order_no}", params.text(context.form, "mail") or ""
    sent = [view for view in profile_views(context, order, refund.NOTHING) if _can_be_sent(view)][:PROFILES]
    if not sent:
        return Redirect(here, "No eSIM of this order has a page: nothing was sent", failed=True)
    named = context.tenant_id, order.order_id, [view.profile.profile_id for view in sent]
    await mail_install_pages(
        context.parts.database, *named, mail, context.form.get("language", ""), context.author, context.now
    )
    what = "The page of its eSIM is" if len(sent) == 1 else f"The pages of {len(sent)} eSIMs are"
    return Redirect(here, f"{what} on the way to {mail}")


@page("/console/orders/{order_no}/print", DEALER_DEVELOPERS, "dealer/print.html")
async def print_codes(context: RequestContext) -> Html:
    """The QR codes of an order on paper, a few to a page."""
    order = await load(context, _order_id(context))
    first = params.number(context.query, "first") or 0
    views = profile_views(context, order, refund.NOTHING)
    ready = [view for view in views if _can_be_sent(view)]
    return Html(
        order=order,
        profiles=ready[first : first + PRINTED],
        first=first,
        count=len(ready),
        following=first + PRINTED if first + PRINTED < len(ready) else None,
    )


@action("/console/orders/{order_no}/refund", DEALER_FINANCE)
async def refund_order(context: RequestContext) -> Redirect:
    """Refunds what can be refunded of the order, of one item, or one profile, as /esim/refund does."""
    return await refund_by_form(context, context.tenant_id, identity.order_no(_order_id(context)))


async def load(context: RequestContext, order_id: int) -> Order:
    """The dealer's own order. Raises NotFound."""
    key = (context.tenant_id, order_id)
    async with context.parts.database.connection() as connection:
        orders = await store_order.load(connection, [key], context.parts.data_keys)
    if key not in orders:
        raise NotFound
    return orders[key]


def profile_views(context: RequestContext, order: Order, blocked: Mapping[int, Reason]) -> Sequence[ProfileView]:
    return [
        ProfileView(
            profile=profile,
            wire=snapshot.profile(profile, item, order.tenant_id, context.parts.links),
            package_code=item.package_code,
            item_no=identity.item_no(order.order_id, item.line),
            refundable=refund.refuse(profile, blocked) is None,
            voidable=not (profile.cancelled or profile.held or blocked.get(profile.profile_id) == "CANCELLED"),
        )
        for item in order.items
        for profile in item.profiles
    ]


def _order_id(context: RequestContext) -> int:
    """Raises NotFound."""
    order_id = identity.order_id(context.path["order_no"])
    if order_id is None:
        raise NotFound
    return order_id


def _item_view(order: Order, item: Item) -> ItemView:
    amount = item.price * item.quantity * item.period_num
    return ItemView(
        item=item,
        item_no=identity.item_no(order.order_id, item.line),
        price=money.text(item.price, order.currency),
        amount=money.text(amount, order.currency),
    )


def _refundable(order: Order, blocked: Mapping[int, Reason]) -> int:
    """The amount that a refund of the whole order would credit."""
    return sum(
        item.price * item.period_num
        for item in order.items
        for profile in item.profiles
        if refund.refuse(profile, blocked) is None
    )


def is_moving(context: RequestContext, order: Order) -> bool:
    """Whether changes are to be expected."""
    pending = order.order_status in ("PAID", "FULFILLING", "REFUNDING")
    return pending or context.now - order.updated_at < RECENT
