"""Orders of all dealers: the list, its export, and the timeline of one."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from dealer_server.console.find import choice
from dealer_server.console.find import orders as find_orders
from dealer_server.console.find.choice import Choice
from dealer_server.console.find.orders import ORDERS
from dealer_server.console.operator import costs, decisions, failures, order_summary, timeline
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, download, page
from dealer_server.console.shared.permissions import OPERATOR_FINANCE, OPERATOR_SUPPORT, OPERATORS, permissions
from dealer_server.console.shared.recharges import recharged_by
from dealer_server.console.shared.refunds import refund_by_form
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Download, Html, NotFound, Redirect, RequestContext
from dealer_server.console.shared.timeline import on_its_page
from dealer_server.db.connection import Connection
from dealer_server.operations.orders.note import add_note
from dealer_server.operations.orders.retry import retry_order
from dealer_server.operations.webhooks import resend
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import Order
from dealer_server.rules.orders.snapshot import whole_seconds
from dealer_server.rules.refunds.refund import refuse
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console import recharges as console_recharges
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.dealer import not_refundable
from dealer_server.store.console.orders import OrderFilter, OrderRow, Owner
from dealer_server.store.orders import note
from dealer_server.store.orders import order as store_order
from dealer_server.store.orders.listing import Window
from dealer_server.store.refunds import refund
from dealer_server.store.suppliers import cost, purchase
from dealer_server.store.webhooks import endpoints, log
from dealer_server.store.webhooks.log import Filter

EVENTS = 200
DELIVERIES = 50
PROFILES = 100
RECENT = timedelta(minutes=10)
ORDER = f"{ORDERS}/{{order_no}}"
COLUMNS = ("orderNo", "createTime", "tenantId", "dealer", "transactionId", "packages", "currency", "amount",
           "refundAmount", "payStatus", "deliveryStatus", "orderStatus", "orderType")  # fmt: skip


@page(ORDERS, OPERATORS, "operator/orders.html", MenuEntry("Orders", "shopping-cart", 20), listing=True)
async def orders(context: RequestContext) -> Html:
    dealer, filters = await _wanted(context)

    return await find_orders.page(context, filters, _more, dealer=dealer, margins={})


async def _more(connection: Connection, rows: Sequence[OrderRow]) -> dict[str, Any]:
    """What operators alone see of orders in a list."""
    paid = await cost.of_orders(connection, [(row.tenant_id, row.order_id) for row in rows])
    return {"margins": costs.of_rows(rows, paid)}


@download(f"{ORDERS}.csv", OPERATORS, listing=True)
async def export(context: RequestContext) -> Download:
    return await find_orders.export(context, (await _wanted(context))[1], COLUMNS)


async def _wanted(context: RequestContext) -> tuple[Choice, OrderFilter]:
    """The dealer that is named, and all filters."""
    async with context.parts.database.connection() as connection:
        dealer = await choice.dealer(connection, context.query.get("dealer"))
    return dealer, find_orders.filters(context.query, dealer.tenant_id)


@page(ORDER, OPERATORS, "operator/order.html")
async def show_order(context: RequestContext) -> Html:
    """The order with everything that is known of it, on one timeline."""
    async with context.parts.database.connection() as connection:
        owner = await _owner(connection, context)
        history = await _history(connection, context, owner)
        remark = await console_orders.remark(connection, owner.tenant_id, owner.order_id)
        suppliers = {row.code: row for row in await console_suppliers.list_suppliers(connection)}
        routes = await purchase.routes(connection, [item.package_code for item in history.order.items])
        blocked = await not_refundable(connection, owner.tenant_id, owner.order_id)
        paid = await cost.of_lines(connection, owner.tenant_id, _span(history.order))
        endpoint = await endpoints.find(connection, owner.tenant_id)
        to_decide = await decisions.of_order(connection, history)
    order = history.order
    events, margins = timeline.events(history), costs.of_lines(order, paid)
    refundable = [item for item in order.items if any(refuse(profile, blocked) is None for profile in item.profiles)]
    return Html(
        order=order,
        failure=failures.of(history, routes),
        decisions=to_decide,
        hears=endpoint is not None and "ACTIVE" in (endpoint.state, endpoint.rt_state),
        margins=margins,
        margin=costs.of_order(margins, order),
        concerns=order_summary.concerns(history, suppliers, routes),
        settled=order_summary.settled_text(history),
        refundable=refundable,
        dealer=owner.dealer,
        remark=remark,
        events=events if order.profiles[1:] else on_its_page(events, order.recharges or order.profiles[0].profile_id),
        esims={str(profile.profile_id): profile.iccid for profile in order.profiles if profile.iccid},
        recharged=await recharged_by(context, order),
        profiles=[(item, profile) for item in order.items for profile in item.profiles][:PROFILES],
        profile_count=len(order.profiles),
        makers={item.line: history.makers(item) for item in order.items},
        in_review=history.in_review,
        moving=_is_moving(order, context),
    )


def _is_moving(order: Order, context: RequestContext) -> bool:
    """Whether changes are to be expected, so that the page renews itself."""
    settled = order.order_status in ("COMPLETED", "REFUNDED")
    return not settled or context.now - whole_seconds(order.updated_at) < RECENT


async def _owner(connection: Connection, context: RequestContext) -> Owner:
    """The dealer of the order in the path. Raises NotFound."""
    order_id = identity.order_id(context.path["order_no"])
    owner = None if order_id is None else await console_orders.owner(connection, order_id)
    if owner is None:
        raise NotFound
    return owner


def _span(order: Order) -> range:
    """The profileIds of the order."""
    return range(order.items[0].first_profile_id, order.items[-1].first_profile_id + order.items[-1].quantity)


async def _history(connection: Connection, context: RequestContext, owner: Owner) -> timeline.History:
    tenant_id, order_id, keys = owner.tenant_id, owner.order_id, context.parts.data_keys
    order = (await store_order.load(connection, [(tenant_id, order_id)], keys))[tenant_id, order_id]
    span = _span(order)
    deliveries = await log.page(connection, tenant_id, Filter(order_id), Window(DELIVERIES, 0, None))
    ids = [delivery.delivery_id for delivery in deliveries]
    readable = ids if permissions(context.user).codes else []
    return timeline.History(
        order=order,
        movements=await console_orders.movements(connection, tenant_id, order_id),
        purchases=await console_orders.purchases(connection, tenant_id, span, EVENTS),
        calls=await console_orders.calls(connection, tenant_id, span, EVENTS),
        recharges=await console_recharges.of_profiles(connection, tenant_id, span, EVENTS),
        lives=await console_orders.lives(connection, order, span, EVENTS),
        failed_at=await console_orders.failed_at(connection, order, span),
        voids=await console_orders.voids(connection, tenant_id, order_id, EVENTS),
        suspensions=await console_orders.suspensions(connection, tenant_id, span, EVENTS),
        refunds=await refund.of_orders(connection, [(tenant_id, order_id)]),
        deliveries=deliveries,
        attempts=await log.attempts(connection, tenant_id, ids),
        bodies=await console_orders.bodies(connection, tenant_id, readable, keys),
        refusals=await console_orders.refusals(connection, tenant_id, order_id),
        notes=await note.of_order(connection, tenant_id, order_id, EVENTS),
    )


@action(f"{ORDER}/sync", OPERATOR_SUPPORT)
async def send_snapshot(context: RequestContext) -> Redirect:
    """Sends the order as it stands, as a new event."""
    order_no = context.path["order_no"]
    async with context.parts.database.connection() as connection:
        owner = await _owner(connection, context)
    await resend.sync(context.parts.database, owner.tenant_id, [order_no], context.author, lambda: context.now)
    return Redirect(f"{ORDERS}/{order_no}", "The current state is sent")


@action(f"{ORDER}/retry", OPERATOR_SUPPORT)
async def retry(context: RequestContext) -> Redirect:
    """Makes what failed or waits of one line again, by another supplier where one is named."""
    order_no, parts = context.path["order_no"], context.parts
    line, supplier = params.number(context.form, "line"), params.text(context.form, "supplier")
    result = await retry_order(
        parts.database, parts.data_keys, order_no, line, supplier, context.author, lambda: context.now
    )
    done = [f"{many(result.retried, 'eSIM')} made again"] if result.retried else []
    done += [f"{many(result.waiting, 'eSIM')} tried now"] if result.waiting else []
    return Redirect(f"{ORDERS}/{order_no}", "; ".join([*done, *result.left]))


@action(f"{ORDER}/refund", OPERATOR_FINANCE)
async def refund_order(context: RequestContext) -> Redirect:
    """Refunds what can be refunded of the order, of one line or one profile, as /esim/refund does."""
    async with context.parts.database.connection() as connection:
        owner = await _owner(connection, context)
    return await refund_by_form(context, owner.tenant_id, context.path["order_no"])


@action(f"{ORDER}/note", OPERATOR_SUPPORT)
async def note_order(context: RequestContext) -> Redirect:
    order_no, text = context.path["order_no"], context.form.get("note", "")
    await add_note(context.parts.database, order_no, text, context.author, lambda: context.now)
    return Redirect(f"{ORDERS}/{order_no}", "The note is kept")
