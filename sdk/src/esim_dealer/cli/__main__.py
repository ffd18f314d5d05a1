"""`esim-dealer`: the service from a terminal.

The address and the credentials come from the environment, never from arguments that others on the machine can read.
"""

import argparse
import itertools
import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import httpx2

from esim_dealer.client import APP_KEY, APP_SECRET, URL
from esim_dealer.errors import DealerError
from esim_dealer.life_command import advance, usage
from esim_dealer.money_command import amount_or_cancel, cancel, refund, statement, topup
from esim_dealer.order import Line, money
from esim_dealer.terminal import Session, given, print_json, print_table, volume
from esim_dealer.webhook_command import (
    listen,
    webhook_deliveries,
    webhook_resend,
    webhook_send,
    webhook_set,
    webhook_show,
    webhook_test,
    webhook_verify,
)
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import (
    AdvanceStep,
    DataType,
    DeliveryState,
    EntryType,
    EventType,
    LocationType,
    OrderStatus,
    PackageType,
    PayMethod,
)


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    transport: httpx2.BaseTransport | None = None,
) -> int:
    """Run one command; its exit status: 0 done, 1 the service, the receiver or the network said no, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        with Session(environment, transport, options.json) as session:
            return options.run(session, options) or 0
    except DealerError as error:
        print(f"{error} [{type(error).__name__}]" if error.code is None else error, file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"esim-dealer: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # as in `esim-dealer packages | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # as when the port of `listen` is taken
        print(f"esim-dealer: {error}", file=sys.stderr)
        return 1


# Commands


def health(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.health())


def balance(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.balance())


def regions(session: Session, options: argparse.Namespace) -> None:
    found = session.dealer.regions(options.type, options.keyword).regions
    heads = ("REGION", "NAME", "TYPE", "CONTINENT", "PACKAGES")
    session.table(
        heads,
        found,
        lambda region: (region.region_code, region.region_name, region.type, region.continent, region.package_count),
    )


def packages(session: Session, options: argparse.Namespace) -> None:
    filters = given(
        keyword=options.keyword, location_code=options.location, type=options.type, data_type=options.data_type
    )
    found = session.dealer.iter_packages(page_size=min(options.limit, 500), **filters)
    session.table(
        ("PACKAGE", "NAME", "LOCATION", "DATA TYPE", "DATA", "DURATION", "PRICE", ""),
        itertools.islice(found, options.limit),
        lambda package: (
            package.package_code,
            package.package_name,
            package.location_code,
            package.data_type,
            volume(package.data_bytes),
            f"{package.duration} {package.duration_unit}",
            package.price,
            package.currency,
        ),
    )


def order(session: Session, options: argparse.Namespace) -> None:
    dealer = session.dealer
    transaction_id = options.transaction_id or f"cli-{uuid.uuid4()}"
    if options.price is None:
        line = Line.of(dealer.package(options.package), options.quantity, options.period)
    else:
        line = Line(options.package, options.quantity, options.price, options.period)
    print(f"ordering for {line.amount}, --transaction-id {transaction_id}", file=sys.stderr)
    placed = dealer.order(transaction_id, [line])
    if options.wait is not None:
        placed = dealer.wait_for_delivery(placed.order_no, timeout=options.wait)
    _show_order(session, placed)


def query(session: Session, options: argparse.Namespace) -> None:
    _show_order(session, session.dealer.query(options.order_no, options.transaction_id))


def orders(session: Session, options: argparse.Namespace) -> None:
    filters = given(order_status=options.status)
    found = session.dealer.iter_orders(page_size=min(options.limit, 500), **filters)
    session.table(
        ("ORDER", "CREATED", "PAY", "DELIVERY", "STATUS", "AMOUNT", "", "TRANSACTION ID"),
        itertools.islice(found, options.limit),
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


def profiles(session: Session, options: argparse.Namespace) -> None:
    filters = given(
        order_no=options.order_no, iccid=options.iccid, package_code=options.package, lifecycle_status=options.lifecycle
    )
    found = session.dealer.iter_profiles(page_size=min(options.limit, 500), **filters)
    session.table(
        ("PROFILE", "ICCID", "ORDER", "PACKAGE", "LIFECYCLE", "PLAN USE", "USED", "REMAINING"),
        itertools.islice(found, options.limit),
        lambda record: (
            record.profile.profile_id,
            record.profile.iccid,
            record.order_no,
            record.package_code,
            record.profile.lifecycle_status,
            record.profile.plan_use_status,
            volume(record.profile.data_usage_bytes),
            volume(record.profile.remain_data_bytes),
        ),
    )


# Printing


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
        for profile in item.profiles or ():
            _show_profile(profile)


def _show_profile(profile: Profile) -> None:
    print(f"  profile {profile.profile_id}: {profile.lifecycle_status}, plan {profile.plan_use_status}")
    links = profile.install_urls or None
    rows = {
        "ICCID": profile.iccid,
        "activation code": profile.activation_code,
        "QR code": profile.qr_code_url,
        "iPhone": links and links.ios,
        "Android": links and links.android,
    }
    for name, value in rows.items():
        if value:
            print(f"    {name:<15}  {value}")


# Arguments


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print machine-readable lines")
    parser = argparse.ArgumentParser(
        prog="esim-dealer",
        description="Call the eSIM Dealer Open API.",
        epilog=f"The environment names the service and you: {URL}, {APP_KEY}, {APP_SECRET}.",
    )
    parser.add_argument("--json", action="store_true", help="print machine-readable lines")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(into: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
        added = into.add_parser(name, parents=[shared], help=text, description=text)
        added.set_defaults(run=run)
        return added

    command(commands, "health", health, "check signing and connectivity")
    command(commands, "balance", balance, "show the wallet")

    listed = command(commands, "regions", regions, "list countries and regions")
    listed.add_argument("--type", choices=get_args(LocationType))
    listed.add_argument("--keyword")

    listed = command(commands, "packages", packages, "list the packages on sale, with your prices")
    listed.add_argument("--keyword")
    listed.add_argument("--location", metavar="CODE", help="country (ISO 3166-1) or region code")
    listed.add_argument("--type", choices=get_args(PackageType))
    listed.add_argument("--data-type", choices=get_args(DataType))
    _add_limit(listed)

    placed = command(commands, "order", order, "buy a package, paid from the wallet")
    placed.add_argument("package", metavar="PACKAGE", help="its packageCode")
    placed.add_argument("--quantity", type=int, default=1, metavar="N")
    placed.add_argument("--period", type=int, metavar="N", help="days, of a DAILY_* package (default: its fewest)")
    placed.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")
    placed.add_argument("--price", type=money, metavar="P", help="unit price (default: looked up)")
    placed.add_argument(
        "--wait", nargs="?", type=float, const=300.0, metavar="SECONDS", help="wait for delivery (default: 300 s)"
    )

    asked = command(commands, "query", query, "show an order")
    asked.add_argument("order_no", nargs="?", metavar="ORDER_NO")
    asked.add_argument("--transaction-id", metavar="ID")

    listed = command(commands, "orders", orders, "list your orders, newest first")
    listed.add_argument("--status", choices=get_args(OrderStatus))
    _add_limit(listed)

    listed = command(commands, "profiles", profiles, "list your eSIMs, newest first")
    listed.add_argument("--order-no")
    listed.add_argument("--iccid")
    listed.add_argument("--package", metavar="PACKAGE")
    listed.add_argument("--lifecycle", metavar="STATUS", help="a lifecycleStatus, such as DELIVERED")
    _add_limit(listed)

    asked = command(commands, "refund", refund, "give money back into the wallet: an order, a line, or profiles of it")
    asked.add_argument("order_no", metavar="ORDER_NO")
    asked.add_argument("--item", metavar="ITEM_NO", help="this line only")
    asked.add_argument("--profile", action="append", metavar="ID", help="iccid or profileId within --item; repeatable")
    asked.add_argument(
        "--refund-transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)"
    )
    asked.add_argument("--remark")
    asked.add_argument(
        "--wait", nargs="?", type=float, const=300.0, metavar="SECONDS", help="wait for the credit (default: 300 s)"
    )

    asked = command(commands, "cancel", cancel, "void a profile; nothing is credited")
    asked.add_argument("profile", metavar="ID", help="its iccid or profileId")

    asked = command(commands, "usage", usage, "show what is used of an eSIM")
    asked.add_argument("profile", metavar="ID", help="its iccid or profileId")
    asked.add_argument("--refresh", action="store_true", help="ask its supplier first")

    moved = command(commands, "advance", advance, "move an eSIM through its life, in the test environment")
    moved.add_argument("profile", metavar="ID", help="its iccid or profileId")
    moved.add_argument("step", choices=get_args(AdvanceStep))
    moved.add_argument("--bytes", type=int, metavar="N", help="with USE: used in all (default: everything)")

    listed = command(commands, "statement", statement, "list what moved money in the wallet, newest first")
    listed.add_argument("--type", choices=get_args(EntryType))
    _add_limit(listed)

    asked = command(commands, "topup", topup, "ask for money in the wallet, how such a request stands, or withdraw it")
    asked.add_argument("amount", nargs="?", type=amount_or_cancel, metavar="AMOUNT|cancel")
    asked.add_argument("cancelled", nargs="?", metavar="TOPUP_NO", help="with cancel: the request to withdraw")
    asked.add_argument("--query", dest="topup_no", metavar="TOPUP_NO", help="show this one instead")
    asked.add_argument("--transaction-id", metavar="ID", help="your idempotency key (default: a new one, printed)")
    asked.add_argument("--method", choices=get_args(PayMethod))
    asked.add_argument("--reference", metavar="TEXT", help="by which the payment can be found")
    asked.add_argument("--remark")

    webhook = commands.add_parser("webhook", help="the callback URL, its deliveries, and single webhooks")
    actions = webhook.add_subparsers(metavar="ACTION", required=True)
    command(actions, "show", webhook_show, "show the callback URL and how its deliveries fare")
    chosen = command(actions, "set", webhook_set, "set the callback URL")
    chosen.add_argument("url", nargs="?", metavar="URL")
    chosen.add_argument("--none", action="store_true", help="send no events any more")
    command(actions, "test", webhook_test, "have the service send a sample event to the callback URL")
    listed = command(actions, "deliveries", webhook_deliveries, "list what was sent or is on its way, newest first")
    listed.add_argument("--status", choices=get_args(DeliveryState))
    listed.add_argument("--order", metavar="ORDER_NO")
    listed.add_argument("--event", choices=get_args(EventType))
    _add_limit(listed)
    again = command(actions, "resend", webhook_resend, "have a delivery sent once more")
    again.add_argument("delivery_id", metavar="ID", help="its RT-Delivery-ID")
    looked = command(actions, "verify", webhook_verify, "check a received webhook, and say what is wrong with it")
    looked.add_argument("body", type=Path, metavar="BODYFILE", help="the body as received; - for standard input")
    looked.add_argument(
        "--headers", type=Path, required=True, metavar="FILE", help="lines `Name: value`, or a JSON object"
    )
    looked.add_argument("--any-age", action="store_true", help="an old RT-Timestamp is fine")
    sent = command(actions, "send", webhook_send, "send one sample event from here, signed as the service does")
    sent.add_argument("url", metavar="URL", help="your receiver")
    sent.add_argument("--event", choices=get_args(EventType), default="ORDER_PAID")
    sent.add_argument("--order", metavar="ORDER_NO", help="its orderNo (default: TEST and the time)")
    sent.add_argument("--delivery-id", metavar="ID", help="the same one again is a repetition (default: a new one)")

    receiver = command(commands, "listen", listen, "receive webhooks here, verify, keep and print them")
    receiver.add_argument("--port", type=int, default=9000, help="0: any free one")
    receiver.add_argument("--host", default="127.0.0.1")
    receiver.add_argument(
        "--set",
        nargs="?",
        const="",
        metavar="URL",
        help="register this receiver as callback URL (default URL: http://HOST:PORT/)",
    )
    kept = receiver.add_mutually_exclusive_group()
    kept.add_argument(
        "--inbox", type=Path, metavar="FILE", help="keep the events there (default: one for each AppKey, see below)"
    )
    kept.add_argument("--no-inbox", action="store_true", help="keep nothing: repetitions are not known as such")
    receiver.add_argument(
        "--catch-up",
        action=argparse.BooleanOptionalAction,
        help="have sent again what was not received since the last event kept (default: with --set)",
    )
    receiver.epilog = "Events are kept in $XDG_STATE_HOME/esim-dealer, or ~/.local/state/esim-dealer."
    return parser


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most so many (default: 50)")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
