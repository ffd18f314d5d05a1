"""Over real sockets: the client, the command and the examples, against the double listening on loopback."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from esim_dealer import AsyncDealer, ConnectionFailed, Dealer, Line, OutcomeUnknown, RetryPolicy

from .conftest import APP_KEY, APP_SECRET, FakeClock, Service, package, packages, snapshot, success

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE_TRY = RetryPolicy(retries=0)
HEALTH = {"status": "UP", "tenantId": "1", "clientName": "Acme"}
BALANCE = {
    "accountType": "BALANCE",
    "currency": "USD",
    "balance": "10.00",
    "creditLimit": "0.00",
    "availableBalance": "10.00",
    "lowBalanceThreshold": "5.00",
    "lowBalance": False,
    "updateTime": "2025-12-31T12:00:00Z",
}


@pytest.fixture
def clock() -> FakeClock:
    """Processes of their own run by the real clock."""
    clock = FakeClock()
    clock.seconds = time.time()
    return clock


@pytest.fixture
def run_example(address: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    environment = {
        **os.environ,
        "ESIM_DEALER_URL": address,
        "ESIM_DEALER_APP_KEY": APP_KEY,
        "ESIM_DEALER_APP_SECRET": APP_SECRET,
    }

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, EXAMPLES / name, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)

    return run


async def test_both_clients_speak_to_a_real_socket(address: str, service: Service):
    service.answers("/health", success(HEALTH))
    with Dealer(address, APP_KEY, APP_SECRET) as dealer:
        assert dealer.health().status == "UP"
    async with AsyncDealer(address, APP_KEY, APP_SECRET) as dealer:
        assert (await dealer.health()).status == "UP"


def test_a_port_where_nobody_listens_leaves_no_doubt_about_an_order():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        Dealer(f"http://127.0.0.1:{port}", APP_KEY, APP_SECRET, retry=ONE_TRY) as dealer,
        pytest.raises(ConnectionFailed) as failed,
    ):
        dealer.order("T1", [Line("TEST-OK", 1, "1.80")])
    assert not failed.value.sent


def test_a_connection_cut_after_the_order_was_sent_leaves_doubt():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take_and_cut() -> None:
            connection, _ = server.accept()
            connection.recv(1)
            connection.close()

        threading.Thread(target=take_and_cut, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with Dealer(url, APP_KEY, APP_SECRET, retry=ONE_TRY) as dealer, pytest.raises(OutcomeUnknown) as unknown:
            dealer.order("T1", [Line("TEST-OK", 1, "1.80")])
    assert unknown.value.transaction_id == "T1"


@pytest.mark.parametrize("name", ["buy.py", "buy_async.py"])
def test_the_examples_buy_and_print(name: str, service: Service, run_example: Callable):
    service.answers("/health", success(HEALTH))
    service.answers("/account/balance", success(BALANCE))
    service.answers("/package/list", success(packages(package("TEST-OK"), package("DEMO-STOCK", price="2.00"))))
    service.answers("/esim/order", success(snapshot(deliveryStatus="PENDING", orderStatus="PAID")))
    service.answers("/esim/query", success(snapshot()))
    done = run_example(name, "TEST-OK", "DEMO-STOCK")
    assert done.returncode == 0, done.stderr
    assert sum(Decimal(body["amount"]) for body in service.bodies("/esim/order")) == Decimal("3.80")
    for shown in (
        "8910300000000000017",
        "LPA:1$smdp.test$MATCH",
        "https://api.dealer.test/qr/abc",
        "https://ios.test/abc",
    ):
        assert shown in done.stdout


def test_the_example_ends_with_one_line_when_refused(service: Service, run_example: Callable):
    service.answers("/health", success(HEALTH))
    service.answers("/account/balance", success(BALANCE))
    service.answers("/package/list", success(packages()))
    done = run_example("buy.py", "NOWHERE")
    assert done.returncode == 1
    assert re.fullmatch(r"[0-9a-f-]{36}: 310241 no package NOWHERE on sale for this dealer\n", done.stderr)
