"""The command, in this process over a service that verifies, and `listen` for real on a loopback port."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator

import httpx2
import pytest

from esim_dealer.command import main
from esim_dealer.wire.signing import signed_headers

from .conftest import APP_KEY, APP_SECRET, URL, FakeClock, Service, package, packages, refusal, snapshot, success

ENVIRONMENT = {"ESIM_DEALER_URL": URL, "ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}


@pytest.fixture
def clock() -> FakeClock:
    """The command runs by the real clock."""
    clock = FakeClock()
    clock.seconds = time.time()
    return clock


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str, environment: dict[str, str] = ENVIRONMENT) -> tuple[int, str, str]:
        status = main(arguments, environment=environment, transport=httpx2.MockTransport(service))
        return status, *capsys.readouterr()

    return run


def test_health_is_one_aligned_line_a_field(service: Service, run: Callable):
    service.answers("/health", success({"status": "UP", "tenantId": "1", "clientName": "Acme"}))
    assert run("health") == (0, "status      UP\ntenantId    1\nclientName  Acme\n", "")


def test_json_may_stand_before_or_after_the_command(service: Service, run: Callable):
    service.answers("/health", success({"status": "UP", "tenantId": "1", "clientName": "Acme"}))
    line = '{"status":"UP","tenantId":"1","clientName":"Acme"}\n'
    assert run("--json", "health") == run("health", "--json") == (0, line, "")


def test_packages_are_a_table_even_with_wide_characters(service: Service, run: Callable):
    daily = package("DAILY", packageName="Daily", dataType="DAILY_UNLIMITED", dataBytes=None, price="12.00")
    service.answers("/package/list", success(packages(package(), daily)))
    _, out, _ = run("packages", "--keyword", "te", "--location", "JP", "--data-type", "TOTAL", "--limit", "5")
    assert out.splitlines() == [
        "PACKAGE  NAME       LOCATION  DATA TYPE        DATA       DURATION  PRICE",
        "TEST-OK  Test 日本  JP        TOTAL            1 GB          7 DAY   1.80  USD",
        "DAILY    Daily      JP        DAILY_UNLIMITED  unlimited     7 DAY  12.00  USD",
    ]
    wanted = {"keyword": "te", "locationCode": "JP", "dataType": "TOTAL", "pager": {"pageSize": 5}}
    assert service.bodies("/package/list") == [wanted]


def test_packages_stop_at_the_limit(service: Service, run: Callable):
    service.answers("/package/list", success(packages(*[package(f"P{n}") for n in range(3)], next="more")))
    _, out, _ = run("packages", "--limit", "2", "--json")
    assert [json.loads(line)["packageCode"] for line in out.splitlines()] == ["P0", "P1"]


def test_order_looks_the_price_up_and_shows_how_to_install(service: Service, run: Callable):
    service.answers("/package/list", success(packages(package())))
    service.answers("/esim/order", success(snapshot(deliveryStatus="PENDING", orderStatus="PAID")))
    service.answers("/esim/query", success(snapshot()))
    status, out, err = run("order", "TEST-OK", "--quantity", "2", "--transaction-id", "T1", "--wait")
    assert status == 0
    assert "ordering for 3.60, --transaction-id T1" in err
    assert service.bodies("/esim/order")[0]["amount"] == "3.60"
    for shown in ("8910300000000000017", "LPA:1$smdp.test$MATCH", "https://ios.test/abc", "DELIVERED"):
        assert shown in out


def test_order_takes_a_price_and_days(service: Service, run: Callable):
    service.answers("/esim/order", success(snapshot()))
    run("order", "DAILY", "--price", "2.50", "--period", "3")
    [body] = service.bodies("/esim/order")
    assert body["amount"] == "7.50"
    assert body["items"] == [{"packageCode": "DAILY", "quantity": 1, "price": "2.50", "periodNum": 3}]
    assert body["transactionId"].startswith("cli-")


def test_query_in_json_keeps_the_refund_a_number(service: Service, run: Callable):
    service.answers("/esim/query", success(snapshot(refundAmount=1.80)))
    _, out, _ = run("query", "D1", "--json")
    assert json.loads(out)["refundAmount"] == 1.8


def test_orders_and_profiles_are_tables_without_activation_codes(service: Service, run: Callable):
    pager = {"pageNum": 1, "pageSize": 50, "total": 1}
    profile = snapshot()["items"][0]["profiles"][0]
    record = {"orderNo": "D1", "transactionId": "T1", "itemNo": "11", "packageCode": "P", "profile": profile}
    service.answers("/esim/order/list", success({"orders": [snapshot()], "pager": pager}))
    service.answers("/esim/profile/list", success({"records": [record], "pager": pager}))
    _, orders, _ = run("orders")
    _, profiles, _ = run("profiles", "--lifecycle", "DELIVERED")
    assert "D251231120000000001  2025-12-31T12:00:00Z  PAID  DELIVERED  COMPLETED" in orders
    assert "8910300000000000017" in profiles
    assert "LPA:" not in orders + profiles


def test_the_other_reads_print(service: Service, run: Callable):
    region = {"regionCode": "JP", "regionName": "Japan", "type": "COUNTRY", "continent": "Asia", "packageCount": 2}
    service.answers("/region/list", success({"regions": [region]}))
    state = {"callbackUrl": "https://a.test/", "enabled": True, "state": "ACTIVE", "consecutiveFailures": 0}
    service.answers("/webhook/query", success(state))
    assert "JP      Japan  COUNTRY  Asia              2" in run("regions")[1]
    assert "enabled              yes" in run("webhook", "show")[1]


def test_webhook_set_takes_a_url_or_none_but_not_both(service: Service, run: Callable):
    service.answers("/webhook/set", success({"callbackUrl": "", "enabled": False}))
    assert run("webhook", "set", "https://a.test/")[0] == run("webhook", "set", "--none")[0] == 0
    assert service.bodies("/webhook/set") == [{"callbackUrl": "https://a.test/"}, {"callbackUrl": None}]
    assert run("webhook", "set")[0] == run("webhook", "set", "https://a.test/", "--none")[0] == 2


def test_a_refusal_is_one_line_with_the_request_id_first(service: Service, run: Callable):
    service.answers("/esim/query", refusal("310272", 404))
    status, out, err = run("query", "D1")
    assert (status, out) == (1, "")
    assert err == f"{service.requests[0].headers['RT-RequestID']} (trace trace-1): 310272 refused with 310272\n"


def test_what_is_not_configured_is_named(run: Callable):
    assert run("health", environment={})[::2] == (1, "set ESIM_DEALER_URL in the environment [NotConfigured]\n")


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["order"], ["order", "P", "--price", "1.8O"], ["packages", "--limit", "0"]]
)
def test_wrong_usage_exits_with_two(run: Callable, arguments: list[str]):
    with pytest.raises(SystemExit) as refused:
        run(*arguments)
    assert refused.value.code == 2


def test_query_without_a_name_is_wrong_usage(run: Callable):
    assert run("query")[0] == 2


# listen, as a process of its own


class Listening:
    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "esim_dealer.command", "listen", "--port", "0", *arguments]
        environment = {**os.environ, "ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}
        self.process = subprocess.Popen(
            command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        first = self.process.stderr.readline()
        self.url = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+/)\n", first)[1]

    def line(self) -> str:
        return self.process.stdout.readline()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(10)


@pytest.fixture
def listening() -> Iterator[Callable[..., Listening]]:
    started: list[Listening] = []

    def start(*arguments: str) -> Listening:
        started.append(Listening(*arguments))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def signed(body: bytes, secret: str = APP_SECRET) -> dict[str, str]:
    headers = signed_headers(
        APP_KEY, secret.encode(), body, timestamp_ms=int(time.time() * 1000), request_id=str(uuid.uuid4())
    )
    return headers | {"RT-Delivery-ID": "w-1", "RT-Delivery-Attempt": "1", "RT-Order-Version": "3"}


def announced(url: str, length: int) -> int:
    """The answer to a body of that length before any of it is sent."""
    connection = http.client.HTTPConnection(url.removeprefix("http://").strip("/"), timeout=10)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        return connection.getresponse().status


BODY = json.dumps(
    snapshot(eventType="DELIVERY_UPDATED", changeHints=["ICCID_READY", "DELIVERY_STATUS_CHANGED"])
).encode()


def test_listen_prints_a_true_event(listening: Callable[..., Listening]):
    receiver = listening()
    assert httpx2.post(receiver.url, content=BODY, headers=signed(BODY)).status_code == 200
    line = receiver.line()
    for part in (
        "DELIVERY_UPDATED  D251231120000000001  ICCID_READY,DELIVERY_STATUS_CHANGED",
        "pay=PAID delivery=DELIVERED order=COMPLETED",
        "iccid=8910300000000000017",
        "delivery-id=w-1 attempt=1  verified",
    ):
        assert part in line


def test_listen_answers_401_to_a_forged_event_and_goes_on(listening: Callable[..., Listening]):
    receiver = listening("--json")
    with httpx2.Client() as sender:
        assert sender.post(receiver.url, content=BODY, headers=signed(BODY, "sk_test_forged")).status_code == 401
        assert sender.post(receiver.url, content=BODY, headers=signed(BODY)).status_code == 200
    forged, true = json.loads(receiver.line()), json.loads(receiver.line())
    assert not forged["verified"]
    assert "SignatureMismatch" in forged["verdict"]
    assert true["verified"]
    assert true["snapshot"]["items"][0]["profiles"][0]["iccid"] == "8910300000000000017"


def test_listen_refuses_what_is_no_event(listening: Callable[..., Listening]):
    receiver = listening()
    assert httpx2.post(receiver.url, content=BODY).status_code == 400
    assert httpx2.get(receiver.url).status_code == 405
    assert httpx2.post(receiver.url, content=iter([BODY])).status_code == 411
    assert announced(receiver.url, 9_000_000) == 413
    assert ["answered " + status in receiver.line() for status in ("400", "405", "411", "413")] == [True] * 4


def test_listen_ends_cleanly_at_ctrl_c(listening: Callable[..., Listening]):
    receiver = listening()
    assert httpx2.post(receiver.url, content=BODY, headers=signed(BODY)).status_code == 200
    assert receiver.stop() == 0
    assert receiver.process.stderr.read() == ""


def test_listen_on_a_taken_port_is_one_line(listening: Callable[..., Listening], run: Callable):
    port = listening().url.rsplit(":", 1)[1].strip("/")
    status, _, err = run("listen", "--port", port)
    assert status == 1
    assert err.startswith("esim-dealer: ")
    assert len(err.splitlines()) == 1


def test_listen_registers_itself_when_told(service: Service, run: Callable):
    service.answers("/webhook/set", refusal("310501", 422))
    status, _, err = run("listen", "--port", "0", "--set")
    [body] = service.bodies("/webhook/set")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", body["callbackUrl"])
    assert (status, "310501" in err) == (1, True)
