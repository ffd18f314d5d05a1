"""What does a dealer see of an order? (specification 2.3 to 2.5, 6.2)"""

from datetime import UTC, datetime
from decimal import Decimal

import msgspec
from msgspec import UNSET

from dealer_server.rules.esim import activation_code
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, install_token, plans
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile
from dealer_server.rules.orders.order import NextPlan, Placed
from esim_dealer.wire import snapshot as wire
from esim_dealer.wire.events import EVENTS
from esim_dealer.wire.vocabulary import OrderType


class Links(msgspec.Struct, frozen=True):
    """Where QR codes and install pages are served, and the phone makers' universal links (`{carddata}`: the code)."""

    base_url: str
    ios: str = "https://esimsetup.apple.com/esim_qrcode_provisioning?carddata={carddata}"
    android: str = "https://esimsetup.android.com/esim_qrcode_provisioning?carddata={carddata}"


def of(order: Order, links: Links, *, duplicate: bool | None = None) -> wire.Snapshot:
    """The order as /esim/order, /esim/query and /esim/order/list answer it."""
    return wire.Snapshot(
        order_type=_type(order),
        transaction_id=order.transaction_id,
        order_no=order.order_no,
        order_id=order.order_id,
        pay_status=order.pay_status,
        delivery_status=order.delivery_status,
        order_status=order.order_status,
        currency=order.currency,
        amount=money.text(order.amount, order.currency),
        refund_amount=Decimal(money.text(order.refund_amount, order.currency)) if order.refund_amount else _NOTHING,
        items=tuple([_item(order, item, links) for item in order.items]),
        duplicate=UNSET if duplicate is None else duplicate,
        create_time=identity.created_at(order.order_id),
        update_time=whole_seconds(order.updated_at),
    )


def placed(order: Placed) -> wire.Snapshot:
    """What `of` makes of an order that was just placed, which is its payment's (specification 3.2)."""
    request, profile_id, items = order.request, order.first_profile_id, []
    added = request.recharge
    for number, line in enumerate(request.lines):
        items.append(
            wire.OrderItem(
                item_no=identity.item_no(order.order_id, number),
                package_code=line.package_code,
                quantity=line.quantity,
                period_num=UNSET if line.period_num == 1 else line.period_num,
                item_status="PAID",
                profiles=_paid(profile_id, line.quantity) if added is None else UNSET,
                top_up=UNSET if added is None else _added(added),
            )
        )
        profile_id += line.quantity
    return wire.Snapshot(
        order_type="BASE" if added is None else "TOPUP",
        transaction_id=request.transaction_id,
        order_no=identity.order_no(order.order_id),
        order_id=order.order_id,
        pay_status="PAID",
        delivery_status="PENDING",
        order_status="PAID",
        currency=request.currency,
        amount=money.text(request.amount, request.currency),
        refund_amount=_NOTHING,
        items=tuple(items),
        duplicate=False,
        create_time=identity.created_at(order.order_id),
        update_time=whole_seconds(order.at),
    )


def _added(plan: NextPlan) -> wire.AddedPlan:
    return wire.AddedPlan(
        profile_id=str(plan.profile_id), iccid=plan.iccid or UNSET, plan_no=plan.plan_no, status="PENDING"
    )


def _paid(first_profile_id: int, quantity: int) -> tuple[wire.Profile, ...]:
    """Profiles that are paid, of which no more is known yet."""
    return tuple(
        [
            wire.Profile(
                profile_id=str(first_profile_id + number),
                lifecycle_status="PENDING",
                plan_use_status="NOT_STARTED",
                activated=False,
                cancelled=False,
            )
            for number in range(quantity)
        ]
    )


def order_paid(order: Order) -> wire.Snapshot:
    """The ORDER_PAID event: the order as its payment left it, whatever happened since (specification 6.2)."""
    paid_at = identity.created_at(order.order_id)
    return wire.Snapshot(
        event_type="ORDER_PAID",
        order_type=_type(order),
        transaction_id=order.transaction_id,
        order_no=order.order_no,
        order_id=order.order_id,
        pay_status="PAID",
        delivery_status="PENDING",
        order_status="PAID",
        currency=order.currency,
        amount=money.text(order.amount, order.currency),
        change_hints=EVENTS["ORDER_PAID"].hints,
        items=tuple(
            wire.OrderItem(
                item_no=identity.item_no(order.order_id, item.line),
                package_code=item.package_code,
                quantity=item.quantity,
                period_num=UNSET if item.period_num == 1 else item.period_num,
                item_status="PAID",
            )
            for item in order.items
        ),
        create_time=paid_at,
        update_time=paid_at,
    )


def delivery_updated(order: Order, links: Links) -> wire.Snapshot:
    """The DELIVERY_UPDATED event without its hints: the order as it stands."""
    whole = of(order, links)
    refund_amount = whole.refund_amount if order.refund_amount else UNSET
    return msgspec.structs.replace(whole, event_type="DELIVERY_UPDATED", refund_amount=refund_amount)


REFUND_HINTS = EVENTS["REFUND_COMPLETED"].hints


def refund_completed(order: Order, links: Links) -> wire.Snapshot:
    """The REFUND_COMPLETED event: the order as the credit left it; refundAmount is the sum of all its refunds."""
    return msgspec.structs.replace(
        delivery_updated(order, links),
        event_type="REFUND_COMPLETED",
        refund_amount=Decimal(money.text(order.refund_amount, order.currency)),
        change_hints=REFUND_HINTS,
    )


def profile(of: Profile, item: Item, tenant_id: int, links: Links) -> wire.Profile:
    """One profile of a line. A field that is unknown, or that the line's supplier does not report, is absent."""
    if of.iccid is None or of.activation_code is None:
        return wire.Profile(
            profile_id=str(of.profile_id),
            lifecycle_status=of.lifecycle_status,
            plan_use_status=of.plan_use_status,
            activated=of.activated,
            cancelled=of.cancelled,
        )
    smdp_address, matching_id = activation_code.fields(of.activation_code)
    carddata = activation_code.carddata(of.activation_code)
    reported = item.supplier != STOCK
    total, used = of.data_total_bytes if reported else None, of.data_usage_bytes
    return wire.Profile(
        profile_id=str(of.profile_id),
        iccid=of.iccid,
        qr_code_url=qr_code_url(of, tenant_id, links),
        install_page_url=install_page_url(of, tenant_id, links),
        activation_code=of.activation_code,
        smdp_address=smdp_address,
        matching_id=matching_id,
        install_urls=wire.InstallUrls(
            ios=links.ios.replace("{carddata}", carddata), android=links.android.replace("{carddata}", carddata)
        ),
        lifecycle_status=of.lifecycle_status,
        esim_status=of.esim_status or UNSET,
        smdp_status=of.smdp_status or UNSET,
        plan_use_status=of.plan_use_status,
        plan_use_start_time=whole_seconds(of.plan_use_start_at) if of.plan_use_start_at else UNSET,
        plan_use_end_time=whole_seconds(of.plan_use_end_at) if of.plan_use_end_at else UNSET,
        data_usage_bytes=used if reported else UNSET,
        remain_data_bytes=UNSET if total is None else max(total - used, 0),
        usage_percent=UNSET if not total else round(min(used / total, 1) * 100, 2),
        activated=of.activated,
        cancelled=of.cancelled,
        suspended=of.shows_suspended or UNSET,
        suspended_at=whole_seconds(of.suspended_at) if of.shows_suspended and of.suspended_at else UNSET,
        plans=tuple([plan(each) for each in plans.applied(of)]) if of.plans else UNSET,
    )


def qr_code_url(of: Profile, tenant_id: int, links: Links) -> str:
    """The QR code of an eSIM that has its codes."""
    return f"{links.base_url}/qr/{tenant_id}/{of.profile_id}/{of.qr_token}"


def install_page_url(of: Profile, tenant_id: int, links: Links) -> str:
    """The page for the buyer of an eSIM that has its codes."""
    return f"{links.base_url}/i/{install_token.written(tenant_id, of.profile_id, of.qr_token)}"


def plan(of: plans.Plan) -> wire.Plan:
    """One plan of an eSIM. Volume and times are absent while nothing is known of them."""
    made = of.status not in ("PENDING", "FAILED") and (of.plan_no == 1 or of.mode is not None)
    return wire.Plan(
        plan_no=of.plan_no,
        type="BASE" if of.plan_no == 1 else "TOPUP",
        mode=of.mode or UNSET,
        package_code=of.package_code,
        order_no=identity.order_no(of.order_id),
        status=of.status,
        data_total_bytes=of.total_bytes if made else UNSET,
        data_usage_bytes=of.used_bytes,
        start_time=whole_seconds(of.started_at) if of.started_at else UNSET,
        end_time=whole_seconds(of.ends_at) if of.ends_at else UNSET,
    )


def whole_seconds(at: datetime) -> datetime:
    """Times on the wire are UTC in whole seconds (specification 10)."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).replace(microsecond=0)


_NOTHING = Decimal(0)


def _type(order: Order) -> OrderType:
    return "BASE" if order.recharges is None else "TOPUP"


def _item(order: Order, item: Item, links: Links) -> wire.OrderItem:
    if order.recharges is not None:
        return _recharge(order, item, order.recharges)
    return wire.OrderItem(
        item_no=identity.item_no(order.order_id, item.line),
        package_code=item.package_code,
        quantity=item.quantity,
        period_num=UNSET if item.period_num == 1 else item.period_num,
        item_status=item.item_status,
        profiles=tuple([profile(each, item, order.tenant_id, links) for each in item.profiles]),
    )


def _recharge(order: Order, item: Item, profile_id: int) -> wire.OrderItem:
    [added] = item.profiles
    return wire.OrderItem(
        item_no=identity.item_no(order.order_id, item.line),
        package_code=item.package_code,
        quantity=item.quantity,
        period_num=UNSET if item.period_num == 1 else item.period_num,
        item_status=item.item_status,
        top_up=wire.AddedPlan(
            profile_id=str(profile_id),
            iccid=order.esim.iccid or UNSET if order.esim else UNSET,
            plan_no=added.plan_no,
            status=plans.added(order),
        ),
    )
