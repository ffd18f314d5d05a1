"""`esim-dealer listen`: webhooks received, verified, kept and printed on this machine."""

import argparse
import contextlib
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

from esim_dealer.cli.arguments import Commands, port
from esim_dealer.cli.output import cell
from esim_dealer.cli.receiver import Receiver, Report, serve
from esim_dealer.cli.session import Session
from esim_dealer.client import APP_KEY, APP_SECRET, Dealer
from esim_dealer.errors import DealerError
from esim_dealer.folders import state_file
from esim_dealer.inbox import Inbox
from esim_dealer.wire.calls import Delivery
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import DeliveryState

NOT_RECEIVED: tuple[DeliveryState, ...] = ("RETRY", "FAILED", "SKIPPED")
WHOLE_SCHEDULE = timedelta(days=2)  # from the first attempt of a delivery to the last are 31 hours


def add_commands(commands: Commands) -> None:
    command = commands.add("listen", listen, "receive webhooks here, verify, keep and print them")
    command.add_argument("--port", type=port, default=9000, help="0: any free one")
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument(
        "--set",
        nargs="?",
        const="",
        metavar="URL",
        help="register this receiver as callback URL (default URL: http://HOST:PORT/)",
    )
    inbox = command.add_mutually_exclusive_group()
    inbox.add_argument(
        "--inbox", type=Path, metavar="FILE", help="keep the events there (default: one for each AppKey, see below)"
    )
    inbox.add_argument("--no-inbox", action="store_true", help="keep nothing: repetitions are not recognized")
    command.add_argument(
        "--catch-up",
        action=argparse.BooleanOptionalAction,
        help="have sent again what was not received since the last event kept (default: with --set)",
    )
    command.epilog = "Events are kept in $XDG_STATE_HOME/esim-dealer, or ~/.local/state/esim-dealer."


def listen(session: Session, options: argparse.Namespace) -> None:
    """Receive webhooks until Ctrl-C or SIGTERM."""
    secret, app_key = session.setting(APP_SECRET), session.environment.get(APP_KEY)
    catches_up = options.catch_up if options.catch_up is not None else options.set is not None
    path = None if options.no_inbox else options.inbox or default_inbox(session.environment)

    def report(report: Report) -> None:
        print(_json(report) if session.as_json else _line(report), flush=True)

    with contextlib.ExitStack() as stack:
        inbox = stack.enter_context(_open_inbox(path)) if path else None
        since = inbox.last_received() if inbox else None
        try:
            receiver = Receiver((options.host, options.port), secret, app_key, report, inbox)
        except OSError as error:
            raise OSError(f"cannot listen on {options.host} port {options.port}: {error.strerror}") from error
        stack.enter_context(receiver)
        _print(f"listening on {receiver.url}")
        if path:
            _print(f"events are kept in {path}")
        if options.set is not None:
            callback_url = options.set or receiver.url
            session.dealer.set_webhook(callback_url)
            _print(f"events go to {callback_url} from now on")
        if catches_up and since:
            # In a thread of its own: the receiver has to answer what is sent again.
            Thread(target=catch_up, args=(session.dealer, since - WHOLE_SCHEDULE), daemon=True).start()
        receiver.report_waiting()
        serve(receiver)


def catch_up(dealer: Dealer, since: datetime) -> None:
    """Have the deliveries since then that were not received sent again, oldest first."""
    try:
        missed = not_received(dealer, since)
        _print(f"missed events that are asked for again: {len(missed)}")
    except DealerError as error:
        _print(f"missed events could not be listed: {error}")
        return
    for delivery in missed:
        try:
            dealer.resend(delivery.delivery_id)
        except DealerError as error:
            _print(f"{delivery.event_type} of {delivery.order_no} was not sent again: {error}")


def not_received(dealer: Dealer, since: datetime) -> list[Delivery]:
    """The deliveries since then that no receiver accepted and that are not in flight, oldest first; no samples."""
    deliveries = [
        delivery
        for status in NOT_RECEIVED
        for delivery in dealer.iter_deliveries(start_time=since, status=status)
        if delivery.trigger != "TEST"
    ]
    return sorted(deliveries, key=lambda delivery: (delivery.create_time, delivery.order_version))


def default_inbox(environment: Mapping[str, str]) -> Path:
    """A file for each AppKey."""
    return state_file(environment, f"{environment.get(APP_KEY) or 'webhooks'}.sqlite")


def _open_inbox(path: Path) -> Inbox:
    """Raises OSError where the file cannot be created or read."""
    inbox = Inbox(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)  # activation codes are as good as the eSIM itself
        inbox.last_received()
    except Exception as error:
        raise OSError(
            f"events cannot be kept in {path}: {error}; choose another file by --inbox, or --no-inbox"
        ) from error
    return inbox


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _line(report: Report) -> str:
    if report.event is None:
        return f"{report.time}  {report.verdict}"
    event, snapshot = report.event, report.event.snapshot
    parts = (
        report.time,
        event.event_type,
        snapshot.order_no,
        ",".join(event.hints),
        f"pay={snapshot.pay_status} delivery={cell(snapshot.delivery_status)} order={snapshot.order_status}",
        "iccid=" + (",".join(_iccids(snapshot)) or "-"),
        f"delivery-id={cell(event.delivery_id)} attempt={cell(event.attempt)}",
        report.verdict + (" (older than the newest)" if event.stale else "") + (" (test)" if event.is_test else ""),
    )
    return "  ".join(parts)


def _json(report: Report) -> str:
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
            "repetition": report.repetition,
            "stale": event.stale,
            "test": event.is_test,
            "snapshot": event.snapshot,
        }
    return encoder.encode(line).decode()


def _iccids(snapshot: Snapshot) -> list[str]:
    named = [one for item in snapshot.items for one in (*(item.profiles or ()), item.top_up) if one]
    return [one.iccid for one in named if one.iccid]
