"""How the command line is read, where logins are kept, and what a file of calls may say."""

import io
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

import esim_dealer
from esim_dealer.cli.__main__ import main, parser
from esim_dealer.cli.trigger import SCENARIOS

from .conftest import (
    APP_KEY,
    APP_SECRET,
    URL,
    FakeClock,
    Service,
    deliveries,
    delivery,
    package,
    packages,
    refusal,
    snapshot,
    success,
)

ENVIRONMENT = {"ESIM_DEALER_URL": URL, "ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}
HEALTH = {"status": "UP", "tenantId": "1", "clientName": "Acme"}


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


@pytest.mark.parametrize(
    ("arguments", "accepted"),
    [
        (["packages", "--limit", "0"], "'0': 1 or more is expected"),
        (["packages", "--limit", "many"], "'many': 1 or more is expected"),
        (["listen", "--port", "99999"], "'99999': 0 to 65535 is expected"),
        (["mcp", "--port", "-1"], "'-1': 0 to 65535 is expected"),
        (["mcp", "--daily-count", "-3"], "'-3': 0 or more is expected"),
    ],
)
def test_a_number_out_of_bounds_is_wrong_usage(run: Callable, arguments: list[str], accepted: str):
    status, _, err = run(*arguments)
    assert status == 2 and accepted in err


@pytest.mark.parametrize("arguments", [[], ["webhook"], ["events"], ["fixtures"], ["logs"]])
def test_a_bare_command_shows_its_help(run: Callable, arguments: list[str]):
    status, out, err = run(*arguments, environment={})
    assert (status, err) == (0, "") and out.startswith(" ".join(["usage: esim-dealer", *arguments]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["heatlh"], "Did you mean health?; see esim-dealer --help"),
        (["events", "lst"], "Did you mean list?; see esim-dealer events --help"),
        (
            ["packages", "--keywrd", "x"],
            "--keywrd is not understood. Did you mean --keyword?; see esim-dealer packages",
        ),
        (["trigger", "refund-rejectd"], "Did you mean refund-rejected?"),
        (["orders", "--limit", "none"], "argument --limit: invalid"),
        (["topup", "abc"], "'abc' is not an amount: digits, at most one point and four decimals, as in '1.80'"),
        (["order", "TEST-OK", "--price", "1,80"], "argument --price: '1,80' is not an amount"),
        (["call", "health", "[1]"], "the body of /health: Expected `object`, got `array`"),
        (["events", "resend"], "events resend takes IDs, or --order ORDER_NO and --failed"),
    ],
)
def test_wrong_usage_is_one_line_that_says_what_was_meant(run: Callable, arguments: list[str], said: str):
    status, out, err = run(*arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1) and said in err
    error = json.loads(run(*arguments, "--json")[2])["error"]
    assert said in error["message"] and error["type"] == "WrongUsage"


def test_errors_are_json_for_programs(service: Service, run: Callable):
    service.answers("/esim/query", refusal("310272", 404, {"orderNo": "D1"}))
    status, out, err = run("query", "D1", "--json")
    error = json.loads(err)["error"]
    assert (status, out, error["type"], error["code"], error["httpStatus"]) == (1, "", "NotFound", "310272", 404)
    assert error["data"] == {"orderNo": "D1"} and error["requestId"] and error["traceId"] == "trace-1"
    assert json.loads(run("--json", "health", environment={"NO": "settings"})[2])["error"]["type"] == "NotConfigured"


def test_with_json_the_error_of_a_failed_delivery_has_the_order(service: Service, run: Callable):
    service.answers("/esim/order", success(snapshot(deliveryStatus="PENDING", orderStatus="PAID")))
    service.answers("/esim/query", success(snapshot(deliveryStatus="FAILED", orderStatus="REFUNDED")))
    bought = ("order", "TEST-OK", "--price", "1.80", "--transaction-id", "T1", "--wait", "--json")
    status, out, err = run(*bought)
    noted, failed = map(json.loads, err.splitlines())
    assert (status, out, noted) == (1, "", {"transactionId": "T1"})
    error = failed["error"]
    assert (error["type"], error["order"]["orderNo"]) == ("DeliveryFailed", snapshot()["orderNo"])
    assert (error["order"]["deliveryStatus"], error["order"]["orderStatus"]) == ("FAILED", "REFUNDED")


def test_call_takes_a_path_as_an_address_has_it(service: Service, run: Callable):
    service.answers("/health", success({"status": "UP", "tenantId": "1", "clientName": "x"}))
    assert run("call", "/open-api/v1/health")[0] == 0


def test_the_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"esim-dealer {esim_dealer.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(run: Callable, shell: str):
    status, script, _ = run("completion", shell, environment={})
    assert status == 0
    words = {word for path, _ in parser().walk() for word in path}
    assert {"events", "resend", "trigger"} <= words
    assert [word for word in words if word not in script] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("typed", "offered"), [("eve", "events"), ("events re", "resend"), ("events resend --fa", "--failed")]
)
def test_bash_completes(run: Callable, typed: str, offered: str):
    script = run("completion", "bash", environment={})[1]
    words = ["esim-dealer", *typed.split()]
    typing = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _esim_dealer; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", script + typing], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [offered]


# Logins


def test_a_login_is_checked_kept_for_its_owner_and_used(
    service: Service, run: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    service.answers("/health", success(HEALTH))
    nothing_set = {"XDG_CONFIG_HOME": str(tmp_path)}

    def login(secret: str, *options: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
        return run(*options, "login", "--url", URL, "--app-key", APP_KEY, environment=nothing_set)

    status, _, err = login("sk_test_wrong")
    assert status == 1 and "check AppSecret" in err and list(tmp_path.iterdir()) == []
    assert login(APP_SECRET)[0] == login(APP_SECRET, "--login", "shop")[0] == 0
    file = tmp_path / "esim-dealer" / "logins.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    for options in ([], ["--login", "shop"]):
        assert run(*options, "health", environment=nothing_set)[0] == 0
    assert run("health", environment=nothing_set | {"ESIM_DEALER_LOGIN": "shop"})[0] == 0
    status, _, err = run("--login", "none", "health", environment=nothing_set)
    assert status == 1 and "there is no login none" in err
    assert run("health", environment=nothing_set | {"ESIM_DEALER_URL": URL})[0] == 1  # settings of its own come first
    shown = run("logins", environment=nothing_set)[1]
    assert shown.split()[3:] == ["default", URL, APP_KEY, "shop", URL, APP_KEY] and APP_SECRET not in shown
    assert run("--login", "shop", "logout", environment=nothing_set)[0] == 0
    assert run("--login", "shop", "logout", environment=nothing_set)[0] == 1
    file.write_text("{")
    status, _, err = run("health", environment=nothing_set)
    assert status == 1 and "logins.json" in err


# Files of calls


def fixture(tmp_path: Path, *steps: dict) -> str:
    file = tmp_path / "fixture.json"
    file.write_text(json.dumps({"steps": steps}))
    return str(file)


def test_a_fixture_uses_answers_of_earlier_steps(service: Service, run: Callable, tmp_path: Path):
    pending = snapshot(orderStatus="PAID")
    service.answers("/package/list", success(packages(package())))
    service.answers("/esim/order", success(pending))
    service.answers("/esim/query", success(pending), success(snapshot()))
    service.answers("/esim/refund", refusal("200003", 409))
    line = {"packageCode": "${p.packages.0.packageCode}", "quantity": 1, "price": "${p.packages.0.price}"}
    order = {"transactionId": "f-${uuid}", "amount": "1.80", "items": [line]}
    file = fixture(
        tmp_path,
        {"name": "p", "call": "package/list", "body": {"keyword": "TEST"}},
        {"name": "o", "call": "/esim/order", "body": order},
        {"call": "esim/query", "body": {"orderNo": "${o.orderNo}"}, "until": {"orderStatus": "COMPLETED"}},
        {"call": "esim/refund", "body": {"orderNo": "${o.orderNo}"}, "code": "200003"},
    )
    status, out, err = run("fixtures", "run", file)
    assert (status, err) == (0, "")
    ran = [json.loads(line) for line in out.splitlines()]
    assert [(each["step"], each["code"]) for each in ran] == [
        ("p", "000000"),
        ("o", "000000"),
        ("3", "000000"),
        ("4", "200003"),
    ]
    [sent] = service.bodies("/esim/order")
    assert sent["items"] == [{"packageCode": "TEST-OK", "quantity": 1, "price": "1.80"}]
    assert len(sent["transactionId"]) == 38 and len(service.bodies("/esim/query")) == 2


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"call": "esim/ordr"}], "step 1: esim/ordr is no call"),
        ([{"call": "esim/query", "body": {"orderNo": "${o.orderNo}"}}], "${o.orderNo}: no earlier step has that"),
        ([{"call": "esim/query", "body": {"orderNum": "D1"}}], "orderNum is no field of it"),
        ([{"call": "health", "code": "101003"}], "101003 was expected, but the call succeeded"),
        ([{"call": "health", "until": {"status": "DOWN"}, "within": 0}], "not {'status': 'DOWN'} within 0 s"),
        ([{"kall": "health"}], "unknown field `kall`"),
    ],
)
def test_a_fixture_that_is_wrong_says_where(service: Service, run: Callable, tmp_path: Path, steps: list, said: str):
    service.answers("/health", success(HEALTH))
    status, _, err = run("fixtures", "run", fixture(tmp_path, *steps))
    assert status in (1, 2) and said in err


# Events


def test_all_failed_events_are_resent_oldest_first(service: Service, run: Callable):
    sample = delivery("w-3", trigger="TEST")
    service.answers("/webhook/delivery/list", success(deliveries(delivery("w-2"), sample, delivery("w-1"))))
    service.answers("/webhook/delivery/resend", success(delivery()))
    assert run("events", "resend", "--failed", "--order", "D1")[0] == 0
    assert [body["deliveryId"] for body in service.bodies("/webhook/delivery/resend")] == ["w-1", "w-2"]
    [asked] = service.bodies("/webhook/delivery/list")
    assert (asked["status"], asked["orderNo"]) == ("FAILED", "D1")


def test_logs_show_orders_and_webhooks_by_time(service: Service, run: Callable):
    pager = {"pageNum": 1, "pageSize": 100, "total": 1}
    service.answers("/esim/order/list", success({"orders": [snapshot()], "pager": pager}))
    service.answers("/webhook/delivery/list", success(deliveries(delivery())))
    status, out, _ = run("logs", "tail", "--past")
    assert status == 0 and [line.split()[1:4:2] for line in out.splitlines()] == [
        ["ORDER", "COMPLETED"],
        ["WEBHOOK", "RETRY"],
    ]
    assert "attempt 2: CONNECT 3000 ms" in out
    line = json.loads(run("--json", "logs", "tail", "--past")[1].splitlines()[0])
    assert (line["subject"], line["orderNo"]) == ("ORDER", "D251231120000000001")


def test_every_scenario_says_what_it_plays(run: Callable, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        run("trigger", "--help")
    out = capsys.readouterr().out
    assert all(f"  {name}" in out and str(play.__doc__) in out for name, play in SCENARIOS.items())
