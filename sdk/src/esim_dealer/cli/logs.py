"""`esim-dealer logs`: what happens to the orders and to their webhooks, as it happens."""

import argparse
import time

import msgspec

from esim_dealer.cli.arguments import Commands, filters
from esim_dealer.cli.output import print_json
from esim_dealer.cli.session import Session, until_stopped
from esim_dealer.cli.webhooks import last_answer
from esim_dealer.wire.calls import Delivery
from esim_dealer.wire.snapshot import Snapshot

ROWS = 100  # looked at in each round, the newest of each kind


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """What changed. `subject` is ORDER or WEBHOOK."""

    time: str
    subject: str
    order_no: str
    what: str
    detail: str


def add_commands(commands: Commands) -> None:
    actions = commands.group("logs", "what happens to your orders and their webhooks")
    command = actions.add("tail", tail, "print each change of an order and each attempt of a webhook, as it happens")
    command.add_argument("--order", metavar="ORDER_NO", help="of this order only")
    command.add_argument("--every", type=float, default=2.0, metavar="SECONDS", help="how often to look (default: 2)")
    command.add_argument("--past", action="store_true", help="print what there is, and end")


def tail(session: Session, options: argparse.Namespace) -> None:
    """Until Ctrl-C or SIGTERM."""
    seen: set[Line] = set()
    first = True
    with until_stopped():
        while True:
            for line in _now(session, options.order):
                if line not in seen and (options.past or not first):
                    _print(session, line)
                seen.add(line)
            if options.past:
                return
            first = False
            time.sleep(options.every)


def _now(session: Session, order_no: str | None) -> list[Line]:
    """The newest states, oldest first."""
    dealer = session.dealer
    orders = [dealer.query(order_no)] if order_no else dealer.orders(page_size=ROWS).orders
    deliveries = dealer.deliveries(page_size=ROWS, **filters(order_no=order_no)).deliveries
    lines = [*map(_order, orders), *map(_delivery, deliveries)]
    return sorted(lines, key=lambda line: line.time)


def _order(order: Snapshot) -> Line:
    refunded = f", refunded {order.refund_amount}" if order.refund_amount else ""
    states = f"pay {order.pay_status}, delivery {order.delivery_status}"
    detail = f"{states}, {order.amount} {order.currency}{refunded}"
    return Line(_text(order.update_time), "ORDER", order.order_no, order.order_status, detail)


def _delivery(delivery: Delivery) -> Line:
    """Its present state; the time is that of its last attempt."""
    attempts = [attempt.time for attempt in delivery.attempts]
    at = max(attempts, default=delivery.create_time)
    answer = last_answer(delivery) or "no attempt yet"
    detail = f"{delivery.event_type} {delivery.delivery_id}, attempt {delivery.attempt_count}: {answer}"
    return Line(_text(at), "WEBHOOK", delivery.order_no, delivery.status, detail)


def _text(at: object) -> str:
    return str(msgspec.to_builtins(at))


def _print(session: Session, line: Line) -> None:
    if session.as_json:
        print_json(line)
    else:
        print(f"{line.time}  {line.subject:<7}  {line.order_no}  {line.what:<10}  {line.detail}", flush=True)
