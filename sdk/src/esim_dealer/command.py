"""`esim-dealer`: the service from a terminal, and `listen`, a local receiver that verifies and prints events.

The address and the credentials come from the environment, never from arguments that others on the machine can read.
"""

import argparse
import itertools
import os
import sys
import unicodedata
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import httpx2
import msgspec

from esim_dealer.client import APP_KEY, APP_SECRET, URL, Dealer
from esim_dealer.errors import DealerError, NotConfigured
from esim_dealer.order import Line, money
from esim_dealer.receiver import Receiver, Report, serve
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Profile, Snapshot
from esim_dealer.wire.vocabulary import DataType, LocationType, OrderStatus, PackageType


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    transport: httpx2.BaseTransport | None = None,
) -> int:
    """Run one command; its exit status: 0 done, 1 the service or the network said no, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        with _Session(environment, transport, options.json) as session:
            options.run(session, options)
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
    return 0


class _Session:
    """What a command works with: the environment, a Dealer made when first asked for, and the way to print."""

    def __init__(self, environment: Mapping[str, str], transport: httpx2.BaseTransport | None, as_json: bool) -> None:
        self.environment = environment
        self.as_json = as_json
        self._transport = transport
        self._dealer: Dealer | None = None

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self._dealer:
            self._dealer.close()

    @property
    def dealer(self) -> Dealer:
        if self._dealer is None:
            url, app_key, app_secret = (self.setting(name) for name in (URL, APP_KEY, APP_SECRET))
            self._dealer = Dealer(url, app_key, app_secret, transport=self._transport)
        return self._dealer

    def setting(self, name: str) -> str:
        value = self.environment.get(name)
        if not value:
            raise NotConfigured(f"set {name} in the environment")
        return value

    def show(self, struct: msgspec.Struct) -> None:
        """One object: a JSON line, or one aligned line for each field."""
        if self.as_json:
            _print_json(struct)
            return
        fields = msgspec.to_builtins(struct)
        width = max(len(name) for name in fields)
        for name, value in fields.items():
            print(f"{name:<{width}}  {_cell(value)}")

    def table(self, heads: Sequence[str], structs: Iterable[msgspec.Struct], cells: Any) -> None:
        """Many objects: a JSON line each, or an aligned table of what `cells` picks from each."""
        if self.as_json:
            for struct in structs:
                _print_json(struct)
        else:
            _print_table(heads, [cells(struct) for struct in structs])


# Commands


def health(session: _Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.health())


def balance(session: _Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.balance())


def regions(session: _Session, options: argparse.Namespace) -> None:
    found = session.dealer.regions(options.type, options.keyword).regions
    heads = ("REGION", "NAME", "TYPE", "CONTINENT", "PACKAGES")
    session.table(
        heads,
        found,
        lambda region: (region.region_code, region.region_name, region.type, region.continent, region.package_count),
    )


def packages(session: _Session, options: argparse.Namespace) -> None:
    filters: Any = _given(
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
            _bytes(package.data_bytes),
            f"{package.duration} {package.duration_unit}",
            package.price,
            package.currency,
        ),
    )


def order(session: _Session, options: argparse.Namespace) -> None:
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


def query(session: _Session, options: argparse.Namespace) -> None:
    _show_order(session, session.dealer.query(options.order_no, options.transaction_id))


def orders(session: _Session, options: argparse.Namespace) -> None:
    filters: Any = _given(order_status=options.status)
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


def profiles(session: _Session, options: argparse.Namespace) -> None:
    filters: Any = _given(
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
            _bytes(record.profile.data_usage_bytes),
            _bytes(record.profile.remain_data_bytes),
        ),
    )


def webhook_show(session: _Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.webhook())


def webhook_set(session: _Session, options: argparse.Namespace) -> None:
    if bool(options.url) == options.none:
        raise ValueError("webhook set takes a URL, or --none to send no events")
    session.show(session.dealer.set_webhook(options.url))


def listen(session: _Session, options: argparse.Namespace) -> None:
    """Receive webhooks until Ctrl-C."""
    secret, app_key = session.setting(APP_SECRET), session.environment.get(APP_KEY)

    def report(report: Report) -> None:
        print(_json_of(report) if session.as_json else _event_line(report), flush=True)

    with Receiver((options.host, options.port), secret, app_key, report) as receiver:
        print(f"listening on {receiver.url}", file=sys.stderr, flush=True)
        if options.set is not None:
            callback_url = options.set or receiver.url
            session.dealer.set_webhook(callback_url)
            print(f"events go to {callback_url} from now on", file=sys.stderr, flush=True)
        serve(receiver)


# Printing


def _show_order(session: _Session, snapshot: Snapshot) -> None:
    if session.as_json:
        _print_json(snapshot)
        return
    heads = ("ORDER", "PAY", "DELIVERY", "STATUS", "AMOUNT", "", "TRANSACTION ID", "")
    repeated = "repetition: nothing was charged" if snapshot.duplicate else ""
    states = (snapshot.pay_status, snapshot.delivery_status, snapshot.order_status)
    _print_table(
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


def _event_line(report: Report) -> str:
    if report.event is None:
        return f"{report.time}  {report.verdict}"
    event, snapshot = report.event, report.event.snapshot
    parts = (
        report.time,
        event.event_type,
        snapshot.order_no,
        ",".join(event.hints),
        f"pay={snapshot.pay_status} delivery={_cell(snapshot.delivery_status)} order={snapshot.order_status}",
        "iccid=" + (",".join(_iccids(snapshot)) or "-"),
        f"delivery-id={_cell(event.delivery_id)} attempt={_cell(event.attempt)}",
        report.verdict + (" (test)" if event.is_test else ""),
    )
    return "  ".join(parts)


def _json_of(report: Report) -> str:
    line: dict[str, Any] = {"time": report.time, "verified": report.event is not None, "verdict": report.verdict}
    if report.event:
        event = report.event
        line |= {
            "eventType": event.event_type,
            "orderNo": event.snapshot.order_no,
            "changeHints": event.hints,
            "iccids": _iccids(event.snapshot),
            "deliveryId": event.delivery_id,
            "attempt": event.attempt,
            "orderVersion": event.order_version,
            "test": event.is_test,
            "snapshot": event.snapshot,
        }
    return encoder.encode(line).decode()


def _iccids(snapshot: Snapshot) -> list[str]:
    return [profile.iccid for item in snapshot.items for profile in item.profiles or () if profile.iccid]


def _print_json(value: object) -> None:
    print(encoder.encode(value).decode(), flush=True)


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; a column of numbers stands to the right."""
    texts = [[_cell(cell) for cell in row] for row in rows]
    columns = list(zip(heads, *texts, strict=True))
    widths = [max(_width(cell) for cell in column) for column in columns]
    right = [bool(texts) and all(map(_is_number, column[1:])) for column in columns]
    for line in (heads, *texts):
        cells = [
            (" " * (width - _width(cell)) + cell) if to_right else (cell + " " * (width - _width(cell)))
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _is_number(cell: str) -> bool:
    """Whether it is an amount, a count or a volume; long ones are identifiers."""
    return len(cell) < 15 and cell.split(" ")[0].replace(".", "", 1).isdigit()


def _width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _cell(value: object) -> str:
    """A value for people: what is absent as "-", times as RFC 3339."""
    if value is None or value is msgspec.UNSET:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(msgspec.to_builtins(value))


def _bytes(volume: int | msgspec.UnsetType | None) -> str:
    """A data volume; a GB has 1 073 741 824 bytes (decisions 3)."""
    if volume is None:
        return "unlimited"
    if volume is msgspec.UNSET:
        return "-"
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if volume >= size:
            return f"{volume / size:.4g} {unit}"
    return f"{volume} B"


def _given(**filters: object) -> dict[str, object]:
    return {name: value for name, value in filters.items() if value is not None}


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

    webhook = commands.add_parser("webhook", help="show or set the callback URL")
    actions = webhook.add_subparsers(metavar="ACTION", required=True)
    command(actions, "show", webhook_show, "show the callback URL and how its deliveries fare")
    chosen = command(actions, "set", webhook_set, "set the callback URL")
    chosen.add_argument("url", nargs="?", metavar="URL")
    chosen.add_argument("--none", action="store_true", help="send no events any more")

    receiver = command(commands, "listen", listen, "receive webhooks here, verify and print them")
    receiver.add_argument("--port", type=int, default=9000, help="0: any free one")
    receiver.add_argument("--host", default="127.0.0.1")
    receiver.add_argument(
        "--set",
        nargs="?",
        const="",
        metavar="URL",
        help="register this receiver as callback URL (default URL: http://HOST:PORT/)",
    )
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
