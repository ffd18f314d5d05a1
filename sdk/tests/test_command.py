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
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from esim_dealer import Inbox, verify
from esim_dealer.cli.__main__ import main
from esim_dealer.wire.operations import OPERATIONS

from .conftest import (
    APP_KEY,
    APP_SECRET,
    URL,
    FakeClock,
    Service,
    deliveries,
    delivery,
    event_body,
    event_headers,
    package,
    packages,
    refusal,
    snapshot,
    success,
)

ENVIRONMENT = {"ESIM_DEALER_URL": URL, "ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}
BODY = event_body()


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


@pytest.mark.parametrize(("option", "name"), [("--iccid", "iccid"), ("--profile", "profileId")])
def test_packages_that_recharge_an_esim(service: Service, run: Callable, option: str, name: str):
    service.answers("/package/list", success(packages(package("TOPUP"))))
    status, out, _ = run("packages", option, "8910300000000000017")
    assert status == 0 and "TOPUP" in out
    assert service.bodies("/package/list") == [{name: "8910300000000000017", "pager": {}}]


def test_packages_stop_at_the_limit(service: Service, run: Callable):
    service.answers("/package/list", success(packages(*[package(f"P{n}") for n in range(3)], next="more")))
    _, out, _ = run("packages", "--limit", "2", "--json")
    assert [json.loads(line)["packageCode"] for line in out.splitlines()] == ["P0", "P1"]


def test_packages_say_how_many_are_not_shown(service: Service, run: Callable):
    service.answers("/package/list", success(packages(*[package(f"P{n}") for n in range(2)], next="more", total=9)))
    _, out, err = run("packages", "--limit", "2")
    assert len(out.splitlines()) == 3
    assert err == "2 of 9; --limit shows more, --location and --keyword narrow it\n"
    assert run("packages", "--limit", "2", "--json")[2] == ""


def test_packages_read_on_up_to_the_limit(service: Service, run: Callable):
    pages = [packages(*[package(f"P{n}") for n in range(500)], next="n1", total=502), packages(package("P500"))]
    service.answers("/package/list", *map(success, pages))
    _, out, err = run("packages", "--limit", "501")
    assert len(out.splitlines()) == 502 and err.startswith("501 of 502;")
    assert service.bodies("/package/list")[1] == {"pager": {"pageSize": 500, "after": "n1"}}


@pytest.mark.parametrize(("given", "sent"), [("jp", "JP"), ("Japan", "Japan")])
def test_a_location_without_packages_leads_to_the_codes(service: Service, run: Callable, given: str, sent: str):
    service.answers("/package/list", success(packages()))
    status, out, err = run("packages", "--location", given)
    assert (status, out) == (0, "") and err == "no packages; codes are listed by esim-dealer regions\n"
    assert service.bodies("/package/list")[0]["locationCode"] == sent


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


CHECKED = {
    "currency": "USD",
    "amount": "3.60",
    "items": [
        {"packageCode": "TEST-OK", "quantity": 2, "price": "1.80", "amount": "3.60", "availability": "AVAILABLE"}
    ],
    "duplicate": False,
    "balance": "10.00",
    "creditLimit": "0.00",
    "availableBalance": "10.00",
}


def test_order_check_buys_nothing_and_shows_what_would_become_of_it(service: Service, run: Callable):
    service.answers("/package/list", success(packages(package())))
    service.answers("/esim/order/check", success(CHECKED | {"balanceAfter": "6.40"}))
    status, out, err = run("order", "TEST-OK", "--quantity", "2", "--check")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "PACKAGE  QUANTITY  DAYS  PRICE  AMOUNT       AVAILABILITY  STOCK",
        "TEST-OK         2  -      1.80    3.60  USD  AVAILABLE     -",
        "",
        "would be placed for 3.60 USD",
        "balance 10.00 USD, 10.00 available, 6.40 after it",
    ]
    [sent] = service.bodies("/esim/order/check")
    assert sent == {"items": [{"packageCode": "TEST-OK", "quantity": 2, "price": "1.80"}]}
    assert service.bodies("/esim/order") == []


@pytest.mark.parametrize(
    ("changed", "status", "told"),
    [
        ({"wouldRefuse": {"code": "200020", "message": "frozen", "data": {}}}, 1, "would be refused: 200020 frozen"),
        ({"duplicate": True, "orderNo": "D1", "balanceAfter": "10.00"}, 0, "would repeat order D1: nothing"),
    ],
)
def test_order_check_exits_with_1_where_the_order_would_be_refused(
    service: Service, run: Callable, changed: dict[str, object], status: int, told: str
):
    service.answers("/esim/order/check", success(CHECKED | changed))
    found, out, _ = run("order", "TEST-OK", "--price", "1.80", "--check", "--transaction-id", "T1")
    assert found == status and told in out
    service.answers("/esim/order/check", success(CHECKED | changed))
    found, out, _ = run("--json", "order", "TEST-OK", "--price", "1.80", "--check", "--transaction-id", "T1")
    assert (found, json.loads(out)) == (status, CHECKED | changed)
    assert service.bodies("/esim/order/check")[0]["transactionId"] == "T1"


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


def test_plans_are_a_table_with_their_mode(service: Service, run: Callable):
    base = {"planNo": 1, "type": "BASE", "packageCode": "P", "orderNo": "D1", "status": "ACTIVE"}
    base |= {"dataTotalBytes": 1 << 30, "dataUsageBytes": 1 << 29}
    base |= {"startTime": "2026-11-20T08:15:30Z", "endTime": "2026-11-27T08:15:30Z"}
    added = base | {"planNo": 2, "type": "TOPUP", "mode": "QUEUE", "orderNo": "D2", "status": "QUEUED"}
    added |= {"dataTotalBytes": None, "dataUsageBytes": 0}
    del added["startTime"], added["endTime"]
    profile = {"profileId": 7, "iccid": "8910300000000000017"}
    service.answers("/esim/profile/plans", success(profile | {"plans": [base, added]}))
    status, out, err = run("plans", "8910300000000000017")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "PLAN  TYPE   MODE   PACKAGE  ORDER  STATUS    USED  OF         START                 END",
        "   1  BASE   -      P        D1     ACTIVE  512 MB  1 GB       2026-11-20T08:15:30Z  2026-11-27T08:15:30Z",
        "   2  TOPUP  QUEUE  P        D2     QUEUED     0 B  unlimited  -                     -",
    ]
    assert service.bodies("/esim/profile/plans") == [{"iccid": "8910300000000000017"}]


def test_recharge_looks_the_price_up_and_says_its_key(service: Service, run: Callable):
    service.answers("/package/list", success(packages(package("TOPUP", price="2.50"))))
    added = {"profileId": "7", "iccid": "8910300000000000017", "planNo": 2, "status": "PENDING"}
    item = {"itemNo": "11", "packageCode": "TOPUP", "quantity": 1, "itemStatus": "PAID", "topUp": added}
    service.answers("/esim/topup", success(snapshot(orderType="TOPUP", duplicate=False, items=[item])))
    status, out, err = run("recharge", "8910300000000000017", "TOPUP", "--period", "3", "--transaction-id", "T1")
    assert status == 0 and "  plan 2 of eSIM 8910300000000000017: PENDING\n" in out
    assert "recharging for 7.50, --transaction-id T1" in err
    [sent] = service.bodies("/esim/topup")
    assert sent == {
        "transactionId": "T1",
        "iccid": "8910300000000000017",
        "packageCode": "TOPUP",
        "price": "2.50",
        "amount": "7.50",
        "periodNum": 3,
    }


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
    assert run("health", environment={})[::2] == (
        1,
        "set ESIM_DEALER_URL in the environment, or run esim-dealer login [NotConfigured]\n",
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["dance"],
        ["order"],
        ["order", "P", "--price", "1.8O"],
        ["order", "P", "--check", "--wait"],
        ["packages", "--limit", "0"],
    ],
)
def test_wrong_usage_exits_with_two(run: Callable, arguments: list[str]):
    status, out, err = run(*arguments)
    assert (status, out) == (2, "") and err.startswith("esim-dealer: ") and len(err.splitlines()) == 1


def test_query_without_a_name_is_wrong_usage(run: Callable):
    status, _, err = run("query")
    assert status == 2 and "give ORDER_NO or --transaction-id ID" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["refund", ""], "give ORDER_NO"),
        (["topup", "cancel"], "give the TOPUP_NO"),
        (["topup", "--query", ""], "give the TOPUP_NO"),
    ],
)
def test_what_is_not_named_is_asked_for_in_the_words_of_the_command(run: Callable, arguments: list[str], said: str):
    status, _, err = run(*arguments)
    assert status == 2 and said in err


# Single webhooks, and deliveries


def test_webhook_test_tells_what_the_receiver_said(service: Service, run: Callable):
    service.answers(
        "/webhook/test",
        success({"delivered": True, "httpStatus": 200, "durationMs": 12}),
        success({"delivered": False, "durationMs": 3000, "error": "CONNECT"}),
    )
    assert run("webhook", "test")[:2] == (0, "delivered   yes\nhttpStatus  200\ndurationMs  12\n")
    assert run("webhook", "test")[:2] == (1, "delivered   no\ndurationMs  3000\nerror       CONNECT\n")


def test_deliveries_are_a_table_with_the_last_answer(service: Service, run: Callable):
    service.answers("/webhook/delivery/list", success(deliveries(delivery(), delivery("w-2", attempts=[]))))
    _, out, _ = run("events", "list", "--status", "RETRY", "--order", "D1", "--limit", "2")
    heads, first, second = out.splitlines()
    assert " ".join(heads.split()) == "DELIVERY CREATED ORDER EVENT STATUS ATTEMPTS NEXT LAST ANSWER HINTS"
    assert "RETRY" in first
    assert "CONNECT 3000 ms  ICCID_READY" in first
    assert second.startswith("w-2")
    wanted = {"orderNo": "D1", "status": "RETRY", "pager": {"pageSize": 2}}
    assert service.bodies("/webhook/delivery/list") == [wanted]


def test_deliveries_in_json_have_their_attempts(service: Service, run: Callable):
    service.answers("/webhook/delivery/list", success(deliveries(delivery())))
    [line] = run("events", "list", "--json")[1].splitlines()
    assert [each["number"] for each in json.loads(line)["attempts"]] == [1, 2]


def test_resend_shows_the_delivery(service: Service, run: Callable):
    service.answers("/webhook/delivery/resend", success(delivery(status="READY")))
    status, out, _ = run("events", "resend", "w-1")
    assert (status, "READY" in out) == (0, True)
    assert service.bodies("/webhook/delivery/resend") == [{"deliveryId": "w-1"}]


@pytest.fixture
def received(tmp_path: Path) -> tuple[Path, Path]:
    """A webhook as it was written down: headers and body."""
    headers, body = tmp_path / "headers", tmp_path / "body"
    lines = [f"{name}: {value}" for name, value in event_headers(BODY).items()]
    headers.write_text("\r\n".join(["POST /webhooks HTTP/1.1", *lines, ""]))
    body.write_bytes(BODY)
    return headers, body


def test_verify_says_that_a_webhook_is_right(received: tuple[Path, Path], run: Callable):
    headers, body = received
    status, out, _ = run("webhook", "verify", "--headers", str(headers), str(body))
    assert status == 0
    assert "WRONG" not in out
    assert re.search(r"X-Signature +ok +fits \([0-9a-f]{8}…\)", out)
    assert re.search(r"string-to-sign +ok +\d+ bytes, SHA-256 [0-9a-f]{64}", out)


def test_verify_says_what_is_wrong_and_never_the_secret(received: tuple[Path, Path], run: Callable):
    headers, body = received
    body.write_bytes(BODY + b"\n")
    status, out, _ = run("webhook", "verify", "--headers", str(headers), str(body))
    assert status == 1
    assert re.search(r"X-Signature +WRONG +expected [0-9a-f]{8}…, given [0-9a-f]{8}…", out)
    assert "without the line break at its end" in out
    assert APP_SECRET not in out


def test_verify_takes_headers_as_json_and_an_old_webhook_if_told(tmp_path: Path, run: Callable):
    headers, body = tmp_path / "headers.json", tmp_path / "body"
    headers.write_text(json.dumps(event_headers(BODY, now=time.time() - 3600)))
    body.write_bytes(BODY)
    assert run("webhook", "verify", "--headers", str(headers), str(body))[0] == 1
    assert run("webhook", "verify", "--any-age", "--headers", str(headers), str(body))[0] == 0


def test_verify_needs_files_that_exist(tmp_path: Path, run: Callable):
    missing = str(tmp_path / "missing")
    assert run("webhook", "verify", "--headers", missing, missing)[0] == 1


def test_send_posts_one_truly_signed_sample(capsys: pytest.CaptureFixture[str]):
    posted: list[httpx2.Request] = []

    def receiver(request: httpx2.Request) -> httpx2.Response:
        posted.append(request)
        return httpx2.Response(204)

    arguments = ["webhook", "send", "https://shop.test/webhooks", "--event", "REFUND_COMPLETED"]
    assert main(arguments, environment=ENVIRONMENT, transport=httpx2.MockTransport(receiver)) == 0
    [request] = posted
    event = verify(request.headers, request.content, APP_SECRET, app_key=APP_KEY)
    assert (event.event_type, event.is_test, event.attempt) == ("REFUND_COMPLETED", True, 1)
    assert re.fullmatch(r"REFUND_COMPLETED sent: answered 204 in \d+ ms\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("answer", "told"),
    [(httpx2.Response(500), "answered 500"), (httpx2.Response(302, headers={"Location": "/"}), "answered 302")],
)
def test_send_to_a_receiver_that_does_not_take_it_ends_with_one(
    answer: httpx2.Response, told: str, capsys: pytest.CaptureFixture[str]
):
    arguments = ["webhook", "send", "https://shop.test/"]
    assert main(arguments, environment=ENVIRONMENT, transport=httpx2.MockTransport(lambda _: answer)) == 1
    assert told in capsys.readouterr().out


def test_send_to_nobody_is_one_line(run: Callable, listening: Callable[..., "Listening"]):
    receiver = listening()
    receiver.stop()
    status, _, err = run_for_real("webhook", "send", receiver.url)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "no answer from" in err
    assert run("webhook", "send", "ftp://shop.test/")[0] == 2


def run_for_real(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "esim_dealer.cli", *arguments]
    done = subprocess.run(
        command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout, done.stderr


# listen, as a process of its own


class Listening:
    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "esim_dealer.cli", "listen", "--port", "0", *arguments]
        credentials = {"ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}
        self.process = subprocess.Popen(
            command,
            env={**os.environ, **credentials, **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.url = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+/)\n", self.said())[1]

    def line(self) -> str:
        return self.process.stdout.readline()

    def said(self) -> str:
        return self.process.stderr.readline()

    def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.process.wait(10)


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Callable[..., Listening]]:
    started: list[Listening] = []

    def start(*arguments: str, **environment: str) -> Listening:
        started.append(Listening(*arguments, **{"XDG_STATE_HOME": str(tmp_path)} | environment))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def announced(url: str, length: int) -> int:
    """The answer to a body of that length before any of it is sent."""
    connection = http.client.HTTPConnection(url.removeprefix("http://").strip("/"), timeout=10)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", str(length))
        connection.endheaders()
        return connection.getresponse().status


def post(url: str, body: bytes = BODY, **options: object) -> int:
    return httpx2.post(url, content=body, headers=event_headers(body, **options)).status_code


@pytest.mark.parametrize("kept", [[], ["--no-inbox"]])
def test_listen_prints_a_true_event(listening: Callable[..., Listening], kept: list[str]):
    receiver = listening(*kept)
    assert post(receiver.url) == 200
    line = receiver.line()
    for part in (
        "DELIVERY_UPDATED  D251231120000000001  ICCID_READY,DELIVERY_STATUS_CHANGED",
        "pay=PAID delivery=DELIVERED order=COMPLETED",
        "iccid=8910300000000000017",
        "delivery-id=w-1 attempt=1  verified\n",
    ):
        assert part in line


def test_listen_answers_401_to_a_forged_event_and_goes_on(listening: Callable[..., Listening]):
    receiver = listening("--json")
    with httpx2.Client() as sender:
        forged_headers = event_headers(BODY, secret="sk_test_forged")
        assert sender.post(receiver.url, content=BODY, headers=forged_headers).status_code == 401
        assert sender.post(receiver.url, content=BODY, headers=event_headers(BODY)).status_code == 200
    forged, true = json.loads(receiver.line()), json.loads(receiver.line())
    assert not forged["verified"]
    assert "SignatureMismatch" in forged["verdict"]
    assert (true["verified"], true["repetition"], true["stale"]) == (True, False, False)
    assert true["snapshot"]["items"][0]["profiles"][0]["iccid"] == "8910300000000000017"


def test_listen_refuses_what_is_no_event(listening: Callable[..., Listening]):
    receiver = listening()
    assert httpx2.post(receiver.url, content=BODY).status_code == 400
    assert httpx2.get(receiver.url).status_code == 405
    assert httpx2.post(receiver.url, content=iter([BODY])).status_code == 411
    assert announced(receiver.url, 9_000_000) == 413
    assert ["answered " + status in receiver.line() for status in ("400", "405", "411", "413")] == [True] * 4


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_listen_ends_cleanly_when_told_to(listening: Callable[..., Listening], how: signal.Signals):
    receiver = listening("--no-inbox")
    assert post(receiver.url) == 200
    assert receiver.stop(how) == 0
    assert receiver.process.stderr.read() == ""


def test_listen_on_a_taken_port_is_one_line(listening: Callable[..., Listening], run: Callable):
    port = listening().url.rsplit(":", 1)[1].strip("/")
    status, _, err = run("listen", "--port", port, "--no-inbox")
    assert status == 1
    assert err == f"esim-dealer: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize("port", ["65536", "99999", "-1"])
def test_listen_on_what_is_no_port_is_one_line(run: Callable, port: str):
    status, _, err = run("listen", f"--port={port}", "--no-inbox")
    said = f"argument --port: invalid value '{port}': 0 to 65535 is expected; see esim-dealer listen --help"
    assert (status, err) == (2, f"esim-dealer: {said}\n")


def test_listen_registers_itself_when_told(service: Service, run: Callable):
    service.answers("/webhook/set", refusal("310501", 422))
    status, _, err = run("listen", "--port", "0", "--set", "--no-inbox")
    [body] = service.bodies("/webhook/set")
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", body["callbackUrl"])
    assert (status, "310501" in err) == (1, True)


# listen keeps its place


def test_a_repetition_after_a_restart_is_shown_as_one(listening: Callable[..., Listening], tmp_path: Path):
    before = listening()
    assert before.said() == f"events are kept in {tmp_path}/esim-dealer/{APP_KEY}.sqlite\n"
    assert post(before.url) == 200
    assert before.line().endswith("verified\n")
    assert before.stop() == 0
    after = listening("--json")
    assert post(after.url, attempt=2) == 200
    repeated = json.loads(after.line())
    assert (repeated["verdict"], repeated["repetition"], repeated["attempt"]) == ("verified, a repetition", True, 2)


def test_without_an_inbox_nothing_is_known_as_a_repetition(listening: Callable[..., Listening], tmp_path: Path):
    receiver = listening("--no-inbox")
    for _ in range(2):
        assert post(receiver.url) == 200
        assert receiver.line().endswith("verified\n")
    assert list(tmp_path.iterdir()) == []


def test_an_older_event_is_marked(listening: Callable[..., Listening], tmp_path: Path):
    receiver = listening("--inbox", str(tmp_path / "mine.sqlite"))
    for version in (5, 4):
        assert post(receiver.url, version=version, delivery_id=f"w-{version}") == 200
    assert [receiver.line().endswith("verified (older than the newest)\n") for _ in range(2)] == [False, True]


def test_what_was_stored_but_not_shown_is_shown_at_the_next_start(listening: Callable[..., Listening], tmp_path: Path):
    with Inbox(tmp_path / "mine.sqlite") as inbox:  # as if killed between answering and printing
        inbox.receive(verify(event_headers(BODY), BODY, APP_SECRET))
    assert listening("--inbox", str(tmp_path / "mine.sqlite")).line().endswith("verified\n")


def test_the_file_is_for_its_owner_only(listening: Callable[..., Listening], tmp_path: Path):
    listening().said()
    folder = tmp_path / "esim-dealer"
    assert [oct(each.stat().st_mode & 0o777) for each in (folder, folder / f"{APP_KEY}.sqlite")] == ["0o700", "0o600"]


def test_a_file_that_cannot_be_kept_is_one_line_with_the_way_out(run: Callable, tmp_path: Path):
    (tmp_path / "file").touch()
    status, _, err = run("listen", "--port", "0", "--inbox", str(tmp_path / "file" / "inbox.sqlite"))
    assert status == 1
    assert "--no-inbox" in err
    assert len(err.splitlines()) == 1


def test_a_restart_asks_for_what_was_missed(
    listening: Callable[..., Listening], service: Service, address: str, tmp_path: Path
):
    with Inbox(tmp_path / "mine.sqlite") as inbox:
        inbox.receive(verify(event_headers(BODY), BODY, APP_SECRET))
        last = inbox.last_received()
    service.answers("/webhook/set", success({"callbackUrl": "", "enabled": True}))
    service.answers(
        "/webhook/delivery/list",
        success(deliveries(delivery("w-4", createTime="2025-12-31T12:00:04Z"), delivery("w-2"))),
        success(deliveries(delivery("w-3", status="FAILED", createTime="2025-12-31T12:00:03Z"))),
        success(deliveries(delivery("w-9", status="SKIPPED", trigger="TEST"))),
    )
    service.answers("/webhook/delivery/resend", success(delivery()), refusal("200002", 409), success(delivery()))
    receiver = listening("--set", "--inbox", str(tmp_path / "mine.sqlite"), ESIM_DEALER_URL=address)
    said = [receiver.said() for _ in range(4)]
    assert said[2] == "missed events that are asked for again: 3\n"
    assert "DELIVERY_UPDATED of D251231120000000001 was not sent again:" in said[3]
    wait_until(lambda: len(service.bodies("/webhook/delivery/resend")) == 3)
    assert [body["deliveryId"] for body in service.bodies("/webhook/delivery/resend")] == ["w-2", "w-3", "w-4"]
    asked = service.bodies("/webhook/delivery/list")
    assert [body["status"] for body in asked] == ["RETRY", "FAILED", "SKIPPED"]
    assert all(datetime.fromisoformat(body["startTime"]) == last - timedelta(days=2) for body in asked)


@pytest.mark.parametrize("arguments", [["--set"], ["--set", "--no-catch-up"], []])
def test_a_first_start_or_one_that_is_not_told_asks_for_nothing(
    listening: Callable[..., Listening], service: Service, address: str, tmp_path: Path, arguments: list[str]
):
    service.answers("/webhook/set", success({"callbackUrl": "", "enabled": True}))
    if arguments != ["--set"]:
        with Inbox(tmp_path / "mine.sqlite") as inbox:
            inbox.receive(verify(event_headers(BODY), BODY, APP_SECRET))
    receiver = listening(*arguments, "--inbox", str(tmp_path / "mine.sqlite"), ESIM_DEALER_URL=address)
    assert post(receiver.url, delivery_id="w-2") == 200
    assert any("delivery-id=w-2" in line for line in iter(receiver.line, ""))
    assert service.bodies("/webhook/delivery/list") == []


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)


@pytest.mark.parametrize("path", ["esim/order/list", "/esim/order/list"])
def test_call_sends_any_operation_and_prints_its_data(service: Service, run: Callable, path: str):
    service.answers("/esim/order/list", success({"orders": [], "pager": {"pageNum": 1, "pageSize": 5, "total": 0}}))
    status, out, err = run("call", path, '{"orderStatus": "COMPLETED", "pager": {"pageSize": 5}}')
    assert (status, err) == (0, "") and json.loads(out)["orders"] == []
    assert service.bodies("/esim/order/list") == [{"orderStatus": "COMPLETED", "pager": {"pageSize": 5}}]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"orderNum": "D1"}', "orderNum is no field of it; it takes orderNo, transactionId"),
        ('{"orderNo": 7}', "Expected `str"),
        ("orderNo=D1", "JSON is malformed"),
    ],
)
def test_call_names_a_field_that_is_wrong_and_sends_nothing(service: Service, run: Callable, body: str, said: str):
    status, out, err = run("call", "esim/query", body)
    assert (status, out) == (2, "") and err.startswith("esim-dealer: the body of /esim/query: ") and said in err


def test_call_knows_every_operation(run: Callable, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run("call", "--help")
    text = "".join(capsys.readouterr().out.split())
    assert all(operation.path.removeprefix("/") in text for operation in OPERATIONS)
