"""Usage and the test environment's hand, with both clients and the command."""

import json
import time
from collections.abc import Callable

import httpx2
import pytest
from msgspec import UNSET

from esim_dealer import errors
from esim_dealer.cli.__main__ import main
from esim_dealer.wire.calls import SendSms

from .conftest import APP_KEY, APP_SECRET, URL, Either, FakeClock, Service, refusal, success

ICCID = "8900000000000000009"
USAGE = {
    "profileId": 7,
    "iccid": ICCID,
    "lifecycleStatus": "ACTIVATED",
    "planUseStatus": "STARTED",
    "planUseStartTime": "2026-11-20T10:15:30Z",
    "dataTotalBytes": 1 << 30,
    "dataUsageBytes": 1 << 29,
    "remainDataBytes": 1 << 29,
    "usagePercent": 50.0,
    "realTime": True,
    "lastUpdateTime": "2026-11-20T10:15:30Z",
}
PROFILE = {
    "profileId": "7",
    "iccid": ICCID,
    "lifecycleStatus": "ACTIVATED",
    "smdpStatus": "ENABLED",
    "planUseStatus": "NOT_STARTED",
    "dataUsageBytes": 0,
    "activated": True,
    "cancelled": False,
}
ENVIRONMENT = {"ESIM_DEALER_URL": URL, "ESIM_DEALER_APP_KEY": APP_KEY, "ESIM_DEALER_APP_SECRET": APP_SECRET}


@pytest.fixture
def clock() -> FakeClock:
    """The command runs by the real clock."""
    clock = FakeClock()
    clock.seconds = time.time()
    return clock


@pytest.fixture
def run(service: Service, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments, environment=ENVIRONMENT, transport=httpx2.MockTransport(service))
        return status, *capsys.readouterr()

    return run


async def test_usage_is_asked_by_one_name(dealer: Either, service: Service):
    service.answers("/esim/profile/usage", success(USAGE))
    used = await dealer.usage(iccid=ICCID)
    assert (used.data_usage_bytes, used.real_time, used.plan_use_end_time) == (1 << 29, True, UNSET)
    await dealer.usage(7, refresh=True)
    assert service.bodies("/esim/profile/usage") == [{"iccid": ICCID}, {"profileId": 7, "refresh": True}]
    for wrong in ({}, {"profile_id": 7, "iccid": ICCID}):
        with pytest.raises(ValueError, match="by one of them"):
            await dealer.usage(**wrong)


async def test_an_unlimited_plan_has_no_total(dealer: Either, service: Service):
    unlimited = {name: value for name, value in USAGE.items() if name not in ("remainDataBytes", "usagePercent")}
    service.answers("/esim/profile/usage", success(unlimited | {"dataTotalBytes": None}))
    used = await dealer.usage(7)
    assert used.data_total_bytes is None and not used.remain_data_bytes


@pytest.mark.parametrize(
    ("code", "status", "raised"),
    [("200010", 409, errors.Conflict), ("200022", 501, errors.NotSupported), ("310404", 404, errors.NotFound)],
)
async def test_usage_that_there_is_not(dealer: Either, service: Service, code: str, status: int, raised: type):
    service.answers("/esim/profile/usage", refusal(code, status))
    with pytest.raises(raised):
        await dealer.usage(7)


async def test_a_profile_is_moved_step_by_step(dealer: Either, service: Service):
    service.answers("/test/profile/advance", success(PROFILE))
    assert (await dealer.advance("ENABLE", iccid=ICCID)).smdp_status == "ENABLED"
    await dealer.advance("USE", 7, data_usage_bytes=5)
    assert service.bodies("/test/profile/advance") == [
        {"iccid": ICCID, "step": "ENABLE"},
        {"profileId": 7, "step": "USE", "dataUsageBytes": 5},
    ]
    with pytest.raises(ValueError, match="by one of them"):
        await dealer.advance("ENABLE")


async def test_in_production_there_is_no_hand(dealer: Either, service: Service):
    service.answers("/test/profile/advance", refusal("000112", 404))
    with pytest.raises(errors.DealerError) as caught:
        await dealer.advance("ENABLE", 7)
    assert caught.value.code == "000112"


def test_the_command_shows_usage(service: Service, run: Callable):
    service.answers("/esim/profile/usage", success(USAGE))
    status, out, _ = run("usage", ICCID, "--refresh")
    assert status == 0 and "used 512 MB of 1 GB" in out and "realTime" in out
    status, out, _ = run("usage", "7", "--json")
    assert status == 0 and json.loads(out) == USAGE
    assert service.bodies("/esim/profile/usage") == [{"iccid": ICCID, "refresh": True}, {"profileId": "7"}]


def test_the_command_moves_a_profile(service: Service, run: Callable):
    service.answers("/test/profile/advance", success(PROFILE))
    status, out, _ = run("advance", ICCID, "USE", "--bytes", "5")
    assert status == 0 and out == f"{ICCID}  ACTIVATED  ENABLED  -  NOT_STARTED  used 0 B\n"
    status, out, _ = run("advance", "7", "ENABLE", "--json")
    assert status == 0 and json.loads(out)["smdpStatus"] == "ENABLED"
    assert service.bodies("/test/profile/advance")[0] == {"iccid": ICCID, "step": "USE", "dataUsageBytes": 5}
    assert run("advance", "7", "FLY")[0] == 2


SMS = {"smsNo": "M260101120000000001", "status": "PENDING", "duplicate": False}


async def test_an_sms_is_sent_and_asked_for_again(dealer: Either, service: Service):
    failed = SMS | {"status": "FAILED", "failReason": "UNKNOWN", "duplicate": True}
    service.answers("/esim/profile/sms", success(SMS), success(failed))
    first = await dealer.sms("s-1", "hello", iccid=ICCID)
    assert (first.sms_no, first.status, first.fail_reason, first.duplicate) == (SMS["smsNo"], "PENDING", UNSET, False)
    again = await dealer.sms("s-1", "hello", profile_id=7)
    assert (again.status, again.fail_reason, again.duplicate) == ("FAILED", "UNKNOWN", True)
    call = {"transactionId": "s-1", "message": "hello"}
    assert service.bodies("/esim/profile/sms") == [call | {"iccid": ICCID}, call | {"profileId": 7}]
    for wrong in ({}, {"profile_id": 7, "iccid": ICCID}):
        with pytest.raises(ValueError, match="one of them"):
            await dealer.sms("s-1", "hello", **wrong)


def test_the_command_sends_an_sms_and_prints_its_key(service: Service, run: Callable):
    service.answers("/esim/profile/sms", success(SMS))
    status, out, err = run("sms", ICCID, "--message", "hello")
    assert status == 0 and "PENDING" in out and "--transaction-id cli-" in err
    status, out, _ = run("sms", "7", "--message", "hello", "--transaction-id", "s-1", "--json")
    assert status == 0 and json.loads(out) == SMS
    assert service.bodies("/esim/profile/sms")[1] == {"transactionId": "s-1", "profileId": "7", "message": "hello"}
    assert run("sms", ICCID)[0] == 2


def test_a_text_stands_in_no_repr():
    assert "secret" not in repr(SendSms(transaction_id="s-1", iccid=ICCID, message="secret"))
