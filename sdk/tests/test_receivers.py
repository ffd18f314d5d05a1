"""The receivers in examples/receivers, each as a real server on loopback: a true event, a repeated one, forged ones."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import httpx2
import pytest

from esim_dealer import EventType, Inbox

from .conftest import APP_KEY, APP_SECRET, event_body, event_headers

FOLDER = Path(__file__).parents[2] / "examples/receivers"
NEEDS = {"with_starlette.py": ("starlette", "uvicorn"), "with_flask.py": ("flask",), "with_django.py": ("django",)}
ORDER = "D251231120000000001"
BODY = event_body()


class Running:
    """One receiver, which writes down what it handled."""

    def __init__(self, program: str, folder: Path) -> None:
        # Bound, not listening: the receiver may listen there, and no other program is given the port.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = self._held.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/webhooks"
        self.inbox = folder / "inbox.sqlite"
        environment = {"ESIM_DEALER_APP_SECRET": APP_SECRET, "INBOX": str(self.inbox), "PORT": str(self.port)}
        self.process = subprocess.Popen(
            [sys.executable, FOLDER / program],
            env={**os.environ, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._wait()

    def post(self, body: bytes = BODY, **options: object) -> int:
        return httpx2.post(self.url, content=body, headers=event_headers(body, **options)).status_code

    def handled(self) -> str:
        """The next line that the handler printed."""
        return next(line for line in iter(self.process.stdout.readline, "") if _by_handler(line))

    def kill(self) -> list[str]:
        """What else the handler had printed."""
        self.process.kill()
        self._held.close()
        return [line for line in self.process.communicate()[0].splitlines() if _by_handler(line)]

    def _wait(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the receiver did not start: exit status {self.process.poll()}")


def _by_handler(line: str) -> bool:
    return line.startswith(get_args(EventType))


@pytest.fixture(params=sorted(NEEDS))
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Running]]:
    for name in NEEDS[request.param]:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    started: list[Running] = []

    def start() -> Running:
        started.append(Running(request.param, tmp_path))
        return started[-1]

    yield start
    for each in started:
        if each.process.returncode is None:
            each.kill()


def test_every_receiver_is_tested():
    assert {file.name for file in FOLDER.glob("*.py")} == set(NEEDS)
    assert all(len(file.read_text().splitlines()) <= 60 for file in FOLDER.glob("*.py"))


def test_a_receiver_takes_true_events_once_and_forged_ones_never(start: Callable[[], Running]):
    receiver = start()
    assert receiver.post() == 200
    assert receiver.handled() == f"DELIVERY_UPDATED {ORDER} ICCID_READY,DELIVERY_STATUS_CHANGED\n"
    assert receiver.post(attempt=2) == 200
    assert receiver.post(secret="sk_test_forged", delivery_id="w-forged") == 401
    assert receiver.post(now=time.time() - 3600, delivery_id="w-old") == 401
    assert httpx2.post(receiver.url, content=BODY, headers={"Content-Type": "application/json"}).status_code == 400
    changed = httpx2.post(receiver.url, content=BODY + b" ", headers=event_headers(BODY, delivery_id="w-changed"))
    assert changed.status_code == 401
    assert httpx2.get(receiver.url).status_code == 405
    refund = event_body("REFUND_COMPLETED", refundAmount=1.80)
    assert receiver.post(refund, delivery_id="w-2", version=4) == 200
    assert receiver.handled() == f"REFUND_COMPLETED {ORDER} REFUND_COMPLETED\n"
    assert receiver.kill() == []
    with Inbox(receiver.inbox) as inbox:
        assert str(inbox.order(ORDER).refund_amount) == "1.8"


def test_a_receiver_that_was_killed_goes_on_where_it_stopped(start: Callable[[], Running]):
    receiver = start()
    assert receiver.post() == 200
    assert receiver.handled()
    receiver.kill()
    again = start()
    assert again.post(attempt=2) == 200
    assert again.post(event_body(orderNo="D2"), delivery_id="w-2") == 200
    assert again.handled().startswith("DELIVERY_UPDATED D2 ")


def test_app_keys_are_no_secret_but_the_secret_never_leaves(start: Callable[[], Running]):
    receiver = start()
    answer = httpx2.post(receiver.url, content=BODY, headers=event_headers(BODY, secret="sk_test_forged"))
    assert APP_SECRET not in answer.text
    assert APP_KEY not in answer.text
