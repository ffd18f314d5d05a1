"""`esim-dealer webhook` and `esim-dealer listen`: webhooks received, sent, checked and asked for again."""

import argparse
import contextlib
import itertools
import json
import re
import sys
import time
import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import httpx2

from esim_dealer.client import APP_KEY, APP_SECRET, Dealer
from esim_dealer.diagnosis import diagnose
from esim_dealer.errors import ConnectionFailed, DealerError
from esim_dealer.inbox import Inbox
from esim_dealer.receiver import Receiver, Report, serve
from esim_dealer.sample import signed_sample
from esim_dealer.terminal import Session, cell, given
from esim_dealer.wire.calls import Delivery
from esim_dealer.wire.envelope import encoder
from esim_dealer.wire.snapshot import Snapshot
from esim_dealer.wire.vocabulary import DeliveryState

ANSWER_SECONDS = 10.0  # how long the service waits for a receiver
NOT_RECEIVED: tuple[DeliveryState, ...] = ("RETRY", "FAILED", "SKIPPED")
WHOLE_SCHEDULE = timedelta(days=2)  # from the first attempt of a delivery to the last are 31 hours


def webhook_show(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.webhook())


def webhook_set(session: Session, options: argparse.Namespace) -> None:
    if bool(options.url) == options.none:
        raise ValueError("webhook set takes a URL, or --none to send no events")
    session.show(session.dealer.set_webhook(options.url))


def webhook_test(session: Session, _: argparse.Namespace) -> int:
    told = session.dealer.test_webhook()
    session.show(told)
    return 0 if told.delivered else 1


def webhook_deliveries(session: Session, options: argparse.Namespace) -> None:
    filters = given(order_no=options.order, event_type=options.event, status=options.status)
    found = session.dealer.iter_deliveries(page_size=min(options.limit, 500), **filters)
    _show_deliveries(session, itertools.islice(found, options.limit))


def webhook_resend(session: Session, options: argparse.Namespace) -> None:
    _show_deliveries(session, [session.dealer.resend(options.delivery_id)])


def webhook_verify(session: Session, options: argparse.Namespace) -> int:
    """Exit status 1 where anything is wrong."""
    headers = read_headers(options.headers.read_text(encoding="latin-1"))
    body = sys.stdin.buffer.read() if str(options.body) == "-" else options.body.read_bytes()
    credentials = session.setting(APP_SECRET), session.environment.get(APP_KEY)
    findings = diagnose(headers, body, credentials[0], app_key=credentials[1], now=time.time(), any_age=options.any_age)
    session.table(("PART", "", ""), findings, lambda found: (found.part, "ok" if found.right else "WRONG", found.words))
    return 0 if all(found.right for found in findings) else 1


def webhook_send(session: Session, options: argparse.Namespace) -> int:
    """Exit status 1 where the receiver did not answer 2xx."""
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{options.url} is no http(s) URL")
    now_ms = int(time.time() * 1000)
    request = signed_sample(
        options.url,
        options.event,
        session.credentials,
        order_no=options.order or f"TEST{now_ms}",
        delivery_id=options.delivery_id or f"sample-{uuid.uuid4()}",
        now_ms=now_ms,
        request_id=str(uuid.uuid4()),
        timeout_seconds=ANSWER_SECONDS,
    )
    with httpx2.Client(transport=session.transport) as http:
        started = time.monotonic()
        try:
            answer = http.post(request.url, content=request.body, headers=request.headers, timeout=ANSWER_SECONDS)
        except httpx2.RequestError as error:
            reason = str(error) or type(error).__name__
            raise ConnectionFailed(f"no answer from {request.url}: {reason}", request_id=request.request_id) from error
    took_ms = round((time.monotonic() - started) * 1000)
    if session.as_json:
        print(json.dumps({"httpStatus": answer.status_code, "durationMs": took_ms, "body": request.body.decode()}))
    else:
        print(f"{options.event} sent: answered {answer.status_code} in {took_ms} ms")
    return 0 if answer.is_success else 1


def listen(session: Session, options: argparse.Namespace) -> None:
    """Receive webhooks until Ctrl-C."""
    secret, app_key = session.setting(APP_SECRET), session.environment.get(APP_KEY)
    catching_up = options.catch_up if options.catch_up is not None else options.set is not None
    path = None if options.no_inbox else options.inbox or default_inbox(session.environment)
    if not 0 <= options.port <= 65_535:
        raise ValueError(f"--port {options.port}: 0 to 65535 is expected")

    def report(report: Report) -> None:
        print(_json_of(report) if session.as_json else _event_line(report), flush=True)

    with contextlib.ExitStack() as open_until_the_end:
        inbox = open_until_the_end.enter_context(_open_inbox(path)) if path else None
        since = inbox.last_received() if inbox else None
        try:
            receiver = Receiver((options.host, options.port), secret, app_key, report, inbox)
        except OSError as error:
            raise OSError(f"cannot listen on {options.host} port {options.port}: {error.strerror}") from error
        open_until_the_end.enter_context(receiver)
        _say(f"listening on {receiver.url}")
        if path:
            _say(f"events are kept in {path}")
        if options.set is not None:
            callback_url = options.set or receiver.url
            session.dealer.set_webhook(callback_url)
            _say(f"events go to {callback_url} from now on")
        if catching_up and since:
            # Beside the receiving, which has to answer what is sent again.
            Thread(target=catch_up, args=(session.dealer, since - WHOLE_SCHEDULE), daemon=True).start()
        receiver.report_waiting()
        serve(receiver)


def catch_up(dealer: Dealer, since: datetime) -> None:
    """Have sent again, oldest first, what was to be delivered since then and was not."""
    try:
        missed = not_received(dealer, since)
        _say(f"missed since {since:%Y-%m-%dT%H:%M:%SZ}: {len(missed)}")
    except DealerError as error:
        _say(f"what was missed could not be asked for: {error}")
        return
    for delivery in missed:
        try:
            dealer.resend(delivery.delivery_id)
        except DealerError as error:
            _say(f"{delivery.event_type} of {delivery.order_no} was not sent again: {error}")


def not_received(dealer: Dealer, since: datetime) -> list[Delivery]:
    """The deliveries since then that no receiver took and that are not just about to come, oldest first; no samples."""
    found = [
        delivery
        for status in NOT_RECEIVED
        for delivery in dealer.iter_deliveries(start_time=since, status=status)
        if delivery.trigger != "TEST"
    ]
    return sorted(found, key=lambda delivery: (delivery.create_time, delivery.order_version))


def default_inbox(environment: Mapping[str, str]) -> Path:
    """A file for each AppKey in the user's state directory (XDG Base Directory Specification)."""
    state = Path(environment.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        state = Path.home() / ".local/state"
    name = re.sub("[^A-Za-z0-9_-]", "_", environment.get(APP_KEY) or "webhooks")
    return state / "esim-dealer" / f"{name}.sqlite"


def _open_inbox(path: Path) -> Inbox:
    """Raises OSError where the file cannot be kept there."""
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


def read_headers(text: str) -> list[tuple[str, str]]:
    """Headers as a JSON object, or as lines `Name: value`; lines without a colon, as a request line, are left out."""
    if text.lstrip().startswith("{"):
        return [(str(name), str(value)) for name, value in json.loads(text).items()]
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon and " " not in name.strip()]


# Printing


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show_deliveries(session: Session, found: Iterable[Delivery]) -> None:
    session.table(
        ("DELIVERY", "CREATED", "ORDER", "EVENT", "STATUS", "ATTEMPTS", "NEXT", "LAST ANSWER", "HINTS"),
        found,
        lambda delivery: (
            delivery.delivery_id,
            delivery.create_time,
            delivery.order_no,
            delivery.event_type,
            delivery.status,
            delivery.attempt_count,
            delivery.next_attempt_time,
            _last_answer(delivery),
            ",".join(delivery.change_hints) or None,
        ),
    )


def _last_answer(delivery: Delivery) -> str | None:
    if not delivery.attempts:
        return None
    last = max(delivery.attempts, key=lambda attempt: attempt.number)
    parts = (last.http_status, last.error, f"{last.duration_ms} ms")
    return " ".join(str(part) for part in parts if part)


def _event_line(report: Report) -> str:
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
            "repetition": report.repetition,
            "stale": event.stale,
            "test": event.is_test,
            "snapshot": event.snapshot,
        }
    return encoder.encode(line).decode()


def _iccids(snapshot: Snapshot) -> list[str]:
    return [profile.iccid for item in snapshot.items for profile in item.profiles or () if profile.iccid]
