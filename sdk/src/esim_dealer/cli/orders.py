"""`esim-dealer order | recharge | query | orders | refund`: buying, and giving money back."""

import argparse
import itertools
import uuid
from collections.abc import Callable
from typing import get_args

from esim_dealer.cli.arguments import Commands, add_limit, amount, filters, page_size
from esim_dealer.cli.output import print_json, print_table
from esim_dealer.cli.session import Session
from esim_dealer.operations import profile_name
from esim_dealer.order import Line, money
from esim_dealer.wire.calls import OrderCheck, Refund
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import OrderStatus

WAIT_SECONDS = 300.0


def add_commands(commands: Commands) -> None:
    command = commands.add("order", order, "buy a package, paid from the wallet")
    command.add_argument("package", metavar="PACKAGE", help="its packageCode")
    command.add_argument("--quantity", type=int, default=1, metavar="N")
    command.add_argument("--period", type=int, metavar="N", help="days of a DAILY_* package (default: its minimum)")
    command.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")
    command.add_argument("--price", type=amount, metavar="P", help="unit price (default: looked up)")
    then = command.add_mutually_exclusive_group()
    then.add_argument("--check", action="store_true", help="buy nothing: show what would become of the order now")
    _add_wait(then.add_argument, "wait for delivery (default: 300 s)")

    command = commands.add("recharge", recharge, "add a plan to an eSIM, paid from the wallet")
    command.add_argument("profile", metavar="ID", help="its iccid or profileId")
    command.add_argument("package", metavar="PACKAGE", help="a TOPUP package that fits it")
    command.add_argument("--period", type=int, metavar="N", help="days, where the package is sold by the day")
    command.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")
    command.add_argument("--price", type=amount, metavar="P", help="unit price (default: looked up)")
    _add_wait(command.add_argument, "wait until it is applied (default: 300 s)")

    command = commands.add("query", query, "show an order")
    command.add_argument("order_no", nargs="?", metavar="ORDER_NO")
    command.add_argument("--transaction-id", metavar="ID")

    command = commands.add("orders", orders, "list your orders, newest first")
    command.add_argument("--status", choices=get_args(OrderStatus))
    add_limit(command)

    command = commands.add("refund", refund, "refund an order, a line of it, or profiles of a line, to the wallet")
    command.add_argument("order_no", metavar="ORDER_NO")
    command.add_argument("--item", metavar="ITEM_NO", help="this line only")
    command.add_argument("--profile", action="append", metavar="ID", help="iccid or profileId in --item; repeatable")
    command.add_argument(
        "--refund-transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)"
    )
    command.add_argument("--remark")
    _add_wait(command.add_argument, "wait for the credit (default: 300 s)")


def order(session: Session, options: argparse.Namespace) -> int | None:
    dealer = session.dealer
    if options.price is None:
        line = Line.of(dealer.package(options.package), options.quantity, options.period)
    else:
        line = Line(options.package, options.quantity, options.price, options.period)
    if options.check:
        checked = dealer.check_order([line], options.transaction_id)
        _show_check(session, checked)
        return 1 if checked.would_refuse else 0
    transaction_id = options.transaction_id or f"cli-{uuid.uuid4()}"
    session.note(f"ordering for {line.amount}, --transaction-id {transaction_id}", transactionId=transaction_id)
    placed = dealer.order(transaction_id, [line])
    if options.wait is not None:
        placed = dealer.wait_for_delivery(placed.order_no, timeout=options.wait)
    _show_order(session, placed)
    return None


def recharge(session: Session, options: argparse.Namespace) -> None:
    dealer = session.dealer
    transaction_id = options.transaction_id or f"cli-{uuid.uuid4()}"
    price = options.price if options.price is not None else money(dealer.package(options.package).price)
    costs = price * (options.period or 1)
    session.note(f"recharging for {costs}, --transaction-id {transaction_id}", transactionId=transaction_id)
    placed = dealer.recharge(
        transaction_id, options.package, price, **profile_name(options.profile), period_num=options.period
    )
    if options.wait is not None:
        placed = dealer.wait_for_delivery(placed.order_no, timeout=options.wait)
    _show_order(session, placed)


def query(session: Session, options: argparse.Namespace) -> None:
    if not (options.order_no or options.transaction_id):
        raise ValueError("give ORDER_NO or --transaction-id ID")
    _show_order(session, session.dealer.query(options.order_no, options.transaction_id))


def orders(session: Session, options: argparse.Namespace) -> None:
    snapshots = session.dealer.iter_orders(page_size(options.limit), **filters(order_status=options.status))
    session.table(
        ("ORDER", "CREATED", "PAY", "DELIVERY", "STATUS", "AMOUNT", "", "TRANSACTION ID"),
        itertools.islice(snapshots, options.limit),
        lambda snapshot: (
            snapshot.order_no,
            snapshot.create_time,
            snapshot.pay_status,
            snapshot.delivery_status,
            snapshot.order_status,
            snapshot.amount,
            snapshot.currency,
            snapshot.transaction_id,
        ),
    )


def refund(session: Session, options: argparse.Namespace) -> None:
    if not options.order_no:
        raise ValueError("give ORDER_NO")
    refund_transaction_id = options.refund_transaction_id or f"cli-{uuid.uuid4()}"
    items = _refunded_items(options.item, options.profile or ())
    session.note(
        f"refunding, --refund-transaction-id {refund_transaction_id}", refundTransactionId=refund_transaction_id
    )

    def request(remark: str | None = None) -> Refund:
        return session.dealer.refund(
            options.order_no, items=items, refund_transaction_id=refund_transaction_id, remark=remark
        )

    refunded = request(options.remark)
    if options.wait is not None and refunded.status == "REFUNDING":
        session.dealer.wait_for_refund(options.order_no, timeout=options.wait)
        refunded = request()
    _show_refund(session, refunded)


def _add_wait(add_argument: Callable[..., object], text: str) -> None:
    add_argument("--wait", nargs="?", type=float, const=WAIT_SECONDS, metavar="SECONDS", help=text)


def _refunded_items(item_no: str | None, profiles: list[str] | tuple[()]) -> dict[str, list[str] | None] | None:
    """The profiles of an item by iccid or profileId, the whole item, or (None) the whole order. Raises ValueError."""
    if item_no is None:
        if profiles:
            raise ValueError("--profile needs the --item it belongs to")
        return None
    return {item_no: list(profiles) or None}


def _show_refund(session: Session, refund: Refund) -> None:
    if session.as_json:
        session.show(refund)
        return
    status = "credited" if refund.status == "REFUNDED" else refund.status.lower()
    amounts = f"{refund.refund_amount} {refund.currency} {status}  ({refund.total_refund_amount} in all)"
    print(f"{refund.refund_no}  {amounts}")
    for item in refund.items:
        names = ", ".join(item.iccids or map(str, item.profile_ids))
        print(f"  item {item.item_no}: {item.refund_status}  {names}")


def _show_check(session: Session, check: OrderCheck) -> None:
    if session.as_json:
        print_json(check)
        return
    print_table(
        ("PACKAGE", "QUANTITY", "DAYS", "PRICE", "AMOUNT", "", "AVAILABILITY", "STOCK"),
        [
            (
                item.package_code,
                item.quantity,
                item.period_num,
                item.price,
                item.amount,
                check.currency,
                item.availability,
                item.stock,
            )
            for item in check.items
        ],
    )
    print()
    if check.duplicate:
        print(f"would repeat order {check.order_no}: nothing would be charged")
    elif check.would_refuse:
        print(f"would be refused: {check.would_refuse.code} {check.would_refuse.message}")
    else:
        print(f"would be placed for {check.amount} {check.currency}")
    after = f", {check.balance_after} after it" if check.balance_after else ""
    print(f"balance {check.balance} {check.currency}, {check.available_balance} available{after}")


def _show_order(session: Session, snapshot: Snapshot) -> None:
    if session.as_json:
        print_json(snapshot)
        return
    heads = ("ORDER", "PAY", "DELIVERY", "STATUS", "AMOUNT", "", "TRANSACTION ID", "")
    repeated = "repetition: nothing was charged" if snapshot.duplicate else ""
    states = (snapshot.pay_status, snapshot.delivery_status, snapshot.order_status)
    print_table(
        heads, [(snapshot.order_no, *states, snapshot.amount, snapshot.currency, snapshot.transaction_id, repeated)]
    )
    print()
    for item in snapshot.items:
        print(f"item {item.item_no}: {item.quantity} × {item.package_code}, {item.item_status}")
        if added := item.top_up:
            print(f"  plan {added.plan_no} of eSIM {added.iccid or added.profile_id}: {added.status}")
        for profile in item.profiles or ():
            _show_profile(profile)


def _show_profile(profile: Profile) -> None:
    print(f"  profile {profile.profile_id}: {profile.lifecycle_status}, plan {profile.plan_use_status}")
    links = profile.install_urls or None
    fields = {
        "ICCID": profile.iccid,
        "activation code": profile.activation_code,
        "QR code": profile.qr_code_url,
        "install page": profile.install_page_url,
        "iPhone": links and links.ios,
        "Android": links and links.android,
    }
    for name, value in fields.items():
        if value:
            print(f"    {name:<15}  {value}")
