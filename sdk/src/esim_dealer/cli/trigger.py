"""`esim-dealer trigger`: plays a story of the test environment."""

import argparse
import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from esim_dealer.cli.arguments import Commands
from esim_dealer.cli.output import print_json
from esim_dealer.cli.session import Session
from esim_dealer.client import Dealer
from esim_dealer.errors import DeliveryTimedOut, OutOfStock
from esim_dealer.order import Line
from esim_dealer.wire.snapshot import Snapshot

WAIT_SECONDS = 60.0
POLL_SECONDS = 0.2


class Story:
    """What a scenario works with. Each state that an order takes is printed once."""

    def __init__(self, session: Session, wait: float) -> None:
        self.session = session
        self.dealer: Dealer = session.dealer
        self._wait = wait

    def buy(self, package_code: str, quantity: int = 1) -> Snapshot:
        placed = self.dealer.order(_new_id(), [Line.of(self.dealer.package(package_code), quantity)])
        self.show(placed)
        return placed

    def follow(self, order: Snapshot, until: Callable[[Snapshot], bool]) -> Snapshot:
        """Print each change until it is so. Raises DeliveryTimedOut."""
        deadline = time.monotonic() + self._wait
        while not until(order):
            if time.monotonic() > deadline:
                raise DeliveryTimedOut(f"{order.order_no} did not come so far within {self._wait:g} s")
            time.sleep(POLL_SECONDS)
            latest = self.dealer.query(order.order_no)
            if latest != order:
                self.show(latest)
            order = latest
        return order

    def delivered(self, package_code: str, quantity: int = 1) -> Snapshot:
        return self.follow(self.buy(package_code, quantity), lambda order: order.delivery_status == "DELIVERED")

    def refund(self, order: Snapshot) -> None:
        refund = self.dealer.refund(order.order_no, refund_transaction_id=_new_id())
        self.say(f"refund {refund.refund_no}: {refund.status}, {refund.refund_amount} {refund.currency}")

    def show(self, order: Snapshot) -> None:
        if self.session.as_json:
            print_json(order)
            return
        esims = [profile for item in order.items for profile in item.profiles or ()]
        lives = ", ".join(f"{esim.lifecycle_status}/{esim.plan_use_status}" for esim in esims) or "-"
        self.say(f"order {order.order_no}: {order.order_status}, delivery {order.delivery_status}, eSIMs {lives}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr if self.session.as_json else sys.stdout, flush=True)


def _ok(story: Story) -> None:
    """an order that is delivered at once"""
    story.delivered("TEST-OK")


def _delay(story: Story) -> None:
    """an order that is delivered after 5 s"""
    story.delivered("TEST-DELAY")


def _partial(story: Story) -> None:
    """half of an order at once, the rest after 10 s"""
    story.delivered("TEST-PARTIAL", 2)


def _fail(story: Story) -> None:
    """an order that fails for good and is refunded by itself"""
    story.follow(story.buy("TEST-FAIL"), lambda order: order.order_status == "REFUNDED")


def _stockout(story: Story) -> None:
    """an order that is refused for want of stock"""
    try:
        story.buy("TEST-STOCKOUT")
    except OutOfStock as refused:
        story.say(f"refused, as it should be: {refused}")


def _lifecycle(story: Story) -> None:
    """an eSIM that is installed, used up and ends, within 10 s"""
    story.follow(story.buy("TEST-LIFECYCLE"), _plan_ended)


def _refund(story: Story) -> None:
    """a refund that is credited at once"""
    order = story.delivered("TEST-OK")
    story.refund(order)
    story.follow(order, lambda order: order.order_status == "REFUNDED")


def _refund_async(story: Story) -> None:
    """a refund that is credited after 3 s"""
    order = story.delivered("TEST-ASYNC")
    story.refund(order)
    story.follow(order, lambda order: order.order_status == "REFUNDED")


def _refund_rejected(story: Story) -> None:
    """a refund that the supplier rejects after 3 s"""
    order = story.delivered("TEST-REJECT")
    story.refund(order)
    asked = story.dealer.query(order.order_no)  # REFUNDING, or rejected already
    story.show(asked)
    story.follow(asked, lambda order: order.order_status != "REFUNDING")


def _refund_review(story: Story) -> None:
    """a refund that waits for an operator"""
    order = story.delivered("TEST-REVIEW")
    story.refund(order)
    story.follow(order, lambda order: order.order_status == "REFUNDING")
    story.say("it stays REFUNDING until an operator decides, in the console or by dealer-server refund")


def _cancel_async(story: Story) -> None:
    """an eSIM that is void 3 s after its cancellation"""
    order = story.delivered("TEST-ASYNC")
    [esim] = [profile for item in order.items for profile in item.profiles or ()]
    story.say(f"cancel of {esim.iccid}: {story.dealer.cancel(esim.profile_id).async_status}")
    story.follow(order, lambda order: all(each.cancelled for item in order.items for each in item.profiles or ()))


def _recharge(story: Story) -> None:
    """an eSIM that is recharged"""
    order = story.delivered("TEST-OK")
    [esim] = [profile for item in order.items for profile in item.profiles or ()]
    package = story.dealer.package("TEST-TOPUP-OK")
    placed = story.dealer.recharge(_new_id(), package.package_code, package.price, profile_id=esim.profile_id)
    story.show(placed)
    story.follow(placed, lambda order: order.delivery_status == "DELIVERED")


def _failing_receiver(story: Story) -> None:
    """a receiver that answers 500: its webhooks wait for another try"""
    former = story.dealer.webhook().callback_url
    with _answers_500() as url:
        story.dealer.set_webhook(url)
        try:
            order = story.delivered("TEST-OK")
            deadline = time.monotonic() + WAIT_SECONDS
            failed = []
            while not failed and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
                failed = story.dealer.deliveries(order_no=order.order_no, status="RETRY").deliveries
        finally:
            story.dealer.set_webhook(former or None)
    for delivery in failed:
        story.say(
            f"webhook {delivery.delivery_id}: {delivery.event_type} is in RETRY, next {delivery.next_attempt_time}"
        )
    story.say("esim-dealer events resend sends them again; the callback URL is as it was")


SCENARIOS: dict[str, Callable[[Story], None]] = {
    "ok": _ok,
    "delay": _delay,
    "partial": _partial,
    "fail": _fail,
    "stockout": _stockout,
    "lifecycle": _lifecycle,
    "refund": _refund,
    "refund-async": _refund_async,
    "refund-rejected": _refund_rejected,
    "refund-review": _refund_review,
    "cancel-async": _cancel_async,
    "recharge": _recharge,
    "failing-receiver": _failing_receiver,
}


def add_commands(commands: Commands) -> None:
    command = commands.add("trigger", trigger, "play a story of the test environment, with real orders and webhooks")
    command.add_argument("scenario", choices=SCENARIOS, metavar="SCENARIO", help="one of those below")
    command.add_argument("--wait", type=float, default=WAIT_SECONDS, metavar="SECONDS", help="at most (default: 60)")
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = "\n".join(["scenarios:", *(f"  {name:<16}  {play.__doc__}" for name, play in SCENARIOS.items())])


def trigger(session: Session, options: argparse.Namespace) -> None:
    SCENARIOS[options.scenario](Story(session, options.wait))


def _plan_ended(order: Snapshot) -> bool:
    return all(profile.plan_use_status == "ENDED" for item in order.items for profile in item.profiles or ())


def _new_id() -> str:
    return f"trigger-{uuid.uuid4()}"


@contextlib.contextmanager
def _answers_500() -> Iterator[str]:
    """The address of a receiver on this machine that takes nothing."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Failing) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        host, port = server.server_address[:2]
        try:
            yield f"http://{host}:{port}/"
        finally:
            server.shutdown()


class _Failing(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.send_error(500)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the deliveries say it all."""
