"""`esim-dealer webhook | events`: the callback URL, single webhooks, and the events sent."""

import argparse
import itertools
import json
import sys
import time
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

import httpx2

from esim_dealer.cli.arguments import Commands, add_limit, filters, page_size
from esim_dealer.cli.session import Session
from esim_dealer.client import APP_KEY, APP_SECRET
from esim_dealer.diagnosis import diagnose
from esim_dealer.errors import ConnectionFailed
from esim_dealer.sample import signed_sample
from esim_dealer.wire.calls import Delivery
from esim_dealer.wire.vocabulary import DeliveryState, EventType

ANSWER_SECONDS = 10.0  # how long the service waits for a receiver


def add_commands(commands: Commands) -> None:
    actions = commands.group("webhook", "the callback URL, and single webhooks")
    actions.add("show", show, "show the callback URL and the state of its deliveries")

    command = actions.add("set", set_url, "set the callback URL")
    command.add_argument("url", nargs="?", metavar="URL")
    command.add_argument("--none", action="store_true", help="stop sending events")
    command.add_argument(
        "--standard-headers",
        action=argparse.BooleanOptionalAction,
        help="whether events carry the headers of standard-webhooks too (default: as it is)",
    )

    actions.add("test", test, "have the service send a sample event to the callback URL")

    command = actions.add("verify", verify, "check a received webhook, and say what is wrong with it")
    command.add_argument("body", type=Path, metavar="BODYFILE", help="the body as received; - for standard input")
    command.add_argument(
        "--headers", type=Path, required=True, metavar="FILE", help="lines `Name: value`, or a JSON object"
    )
    command.add_argument("--any-age", action="store_true", help="accept an old RT-Timestamp")

    command = actions.add("send", send, "send one sample event from here, signed as the service does")
    command.add_argument("url", metavar="URL", help="your receiver")
    command.add_argument("--event", choices=get_args(EventType), default="ORDER_PAID")
    command.add_argument("--order", metavar="ORDER_NO", help="its orderNo (default: TEST and the time)")
    command.add_argument("--delivery-id", metavar="ID", help="send the same id again to repeat an event (default: new)")

    actions = commands.group("events", "the events sent to your callback URL")
    command = actions.add("list", deliveries, "list events and how they were delivered, newest first")
    command.add_argument("--status", choices=get_args(DeliveryState))
    command.add_argument("--order", metavar="ORDER_NO")
    command.add_argument("--event", choices=get_args(EventType))
    add_limit(command)

    command = actions.add("resend", resend, "have events sent once more")
    command.add_argument("delivery_ids", nargs="*", metavar="ID", help="its RT-Delivery-ID; several may be given")
    command.add_argument("--order", metavar="ORDER_NO", help="all events of this order")
    command.add_argument("--failed", action="store_true", help="all events that no receiver took")
    add_limit(command)


def show(session: Session, _: argparse.Namespace) -> None:
    session.show(session.dealer.webhook())


def set_url(session: Session, options: argparse.Namespace) -> None:
    if bool(options.url) == options.none:
        raise ValueError("webhook set takes a URL, or --none to send no events")
    session.show(session.dealer.set_webhook(options.url, standard_headers=options.standard_headers))


def test(session: Session, _: argparse.Namespace) -> int:
    """Exit status 1 where the receiver did not answer 2xx."""
    result = session.dealer.test_webhook()
    session.show(result)
    return 0 if result.delivered else 1


def deliveries(session: Session, options: argparse.Namespace) -> None:
    chosen = filters(order_no=options.order, event_type=options.event, status=options.status)
    deliveries = session.dealer.iter_deliveries(page_size(options.limit), **chosen)
    _show_deliveries(session, itertools.islice(deliveries, options.limit))


def resend(session: Session, options: argparse.Namespace) -> None:
    ids = options.delivery_ids
    if bool(ids) == bool(options.order or options.failed):
        raise ValueError("events resend takes IDs, or --order ORDER_NO and --failed")
    if not ids:
        chosen = filters(order_no=options.order, status="FAILED" if options.failed else None)
        found = session.dealer.iter_deliveries(page_size(options.limit), **chosen)
        newest = itertools.islice((each for each in found if each.trigger != "TEST"), options.limit)
        ids = [delivery.delivery_id for delivery in newest][::-1]  # oldest first
    _show_deliveries(session, [session.dealer.resend(delivery_id) for delivery_id in ids])


def verify(session: Session, options: argparse.Namespace) -> int:
    """Exit status 1 where anything is wrong."""
    headers = read_headers(options.headers.read_text(encoding="latin-1"))
    body = sys.stdin.buffer.read() if str(options.body) == "-" else options.body.read_bytes()
    secret, app_key = session.setting(APP_SECRET), session.environment.get(APP_KEY)
    findings = diagnose(headers, body, secret, app_key=app_key, now=time.time(), any_age=options.any_age)
    session.table(
        ("PART", "", ""),
        findings,
        lambda finding: (finding.part, "ok" if finding.right else "WRONG", finding.words),
    )
    return 0 if all(finding.right for finding in findings) else 1


def send(session: Session, options: argparse.Namespace) -> int:
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


def read_headers(text: str) -> list[tuple[str, str]]:
    """Headers as a JSON object, or as lines `Name: value`; other lines, such as the request line, are skipped."""
    if text.lstrip().startswith("{"):
        return [(str(name), str(value)) for name, value in json.loads(text).items()]
    pairs = (line.partition(":") for line in text.splitlines())
    return [(name.strip(), value.strip()) for name, colon, value in pairs if colon and " " not in name.strip()]


def _show_deliveries(session: Session, deliveries: Iterable[Delivery]) -> None:
    session.table(
        ("DELIVERY", "CREATED", "ORDER", "EVENT", "STATUS", "ATTEMPTS", "NEXT", "LAST ANSWER", "HINTS"),
        deliveries,
        lambda delivery: (
            delivery.delivery_id,
            delivery.create_time,
            delivery.order_no,
            delivery.event_type,
            delivery.status,
            delivery.attempt_count,
            delivery.next_attempt_time,
            last_answer(delivery),
            ",".join(delivery.change_hints) or None,
        ),
    )


def last_answer(delivery: Delivery) -> str | None:
    if not delivery.attempts:
        return None
    last = max(delivery.attempts, key=lambda attempt: attempt.number)
    parts = (last.http_status, last.error, f"{last.duration_ms} ms")
    return " ".join(str(part) for part in parts if part)
