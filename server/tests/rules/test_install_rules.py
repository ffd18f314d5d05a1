"""In which language, for which device and at which stage is an install page? And what may stand in its address?"""

from typing import Any

import msgspec
import pytest

from dealer_server.rules.install.device import Device, device
from dealer_server.rules.install.languages import LANGUAGES, choose
from dealer_server.rules.install.stage import is_unused, stage
from dealer_server.rules.orders import install_token
from dealer_server.rules.orders.model import Profile

IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS {} like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148"
READY = Profile(profile_id=1, lifecycle_status="DELIVERED", iccid="8999", activation_code="LPA:1$a.b$C", qr_token="t")


@pytest.mark.parametrize(
    ("accepted", "asked", "chosen"),
    [
        ("", "", "en"),
        ("de-AT,de;q=0.9,en;q=0.8", "", "de"),
        ("ko,ja;q=0.5,fr;q=0.7", "", "fr"),
        ("zh-Hant-TW", "", "zh"),
        ("EN-gb", "", "en"),
        ("fr;q=0,es;q=0.1", "", "es"),
        ("fr;q=much,es;q=0.1", "", "es"),
        ("fr;q=nan,es;q=0.1", "", "es"),
        ("*", "", "en"),
        ("de", "ja", "ja"),
        ("de", "ja-JP", "ja"),
        ("de", "xx", "de"),
        (";;;,,,q=1;-", "", "en"),
        (",".join(["xx"] * 500 + ["de"]), "", "en"),
    ],
)
def test_the_language_is_the_one_asked_for_or_the_browsers_first_that_there_is(accepted: str, asked: str, chosen: str):
    assert choose(accepted, asked) == chosen and chosen in LANGUAGES


@pytest.mark.parametrize(
    ("user_agent", "found"),
    [
        (IPHONE.format("17_4"), Device("ios")),
        (IPHONE.format("18_6_2"), Device("ios")),
        (IPHONE.format("17_3_1"), Device("ios", too_old=True)),
        (IPHONE.format("9_0"), Device("ios", too_old=True)),
        ("Mozilla/5.0 (iPad; CPU OS 17_5 like Mac OS X) AppleWebKit/605.1.15", Device("ios")),
        ("something on an iPhone", Device("ios")),
        ("Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36", Device("android", manufacturer="pixel")),
        ("Mozilla/5.0 (Linux; Android 14; SM-S921B) AppleWebKit/537.36", Device("android", manufacturer="samsung")),
        ("Mozilla/5.0 (Linux; Android 10; K) SamsungBrowser/27.0", Device("android", manufacturer="samsung")),
        ("Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36", Device("android")),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15", Device("other")),
        ("curl/8.5.0", Device("other")),
        ("", Device("other")),
    ],
)
def test_the_device_is_guessed_from_the_user_agent(user_agent: str, found: Device):
    assert device(user_agent) == found


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "READY"),
        ({"smdp_status": "RELEASED"}, "READY"),
        ({"suspended": True}, "READY"),
        ({"held": True}, "REFUNDING"),
        ({"smdp_status": "DOWNLOAD"}, "INSTALLED"),
        ({"smdp_status": "ENABLED"}, "INSTALLED"),
        ({"smdp_status": "a word that we do not know"}, "INSTALLED"),
        ({"lifecycle_status": "ACTIVATING"}, "INSTALLED"),
        ({"activated": True}, "INSTALLED"),
        ({"data_usage_bytes": 1}, "INSTALLED"),
        ({"plan_use_status": "STARTED"}, "ACTIVE"),
        ({"smdp_status": "DELETED"}, "REMOVED"),
        ({"smdp_status": "DELETED", "plan_use_status": "STARTED"}, "REMOVED"),
        ({"plan_use_status": "ENDED", "smdp_status": "DELETED"}, "ENDED"),
        ({"cancelled": True, "plan_use_status": "STARTED"}, "VOID"),
        ({"refunded": True}, "VOID"),
    ],
)
def test_the_stage_says_how_far_an_esim_is(changed: dict[str, Any], expected: str):
    assert stage(msgspec.structs.replace(READY, **changed)) == expected


@pytest.mark.parametrize(
    ("changed", "unused"),
    [
        ({}, True),
        ({"smdp_status": "ENABLED", "lifecycle_status": "ACTIVATED"}, True),
        ({"plan_use_status": "STARTED"}, False),
        ({"smdp_status": "DELETED"}, False),
        ({"held": True}, False),
        ({"refunded": True}, False),
        ({"cancelled": True, "lifecycle_status": "CANCELLED"}, False),
        ({"iccid": None}, False),
    ],
)
def test_an_esim_is_unused_while_it_is_valid_and_its_plan_has_not_started(changed: dict[str, Any], unused: bool):
    assert is_unused(msgspec.structs.replace(READY, **changed)) is unused


def test_a_token_is_read_as_it_was_written():
    written = install_token.written(10001, 217325730000087, "q7-x2mVt9_bK4nRw-_")
    assert install_token.parse(written) == (10001, 217325730000087, "q7-x2mVt9_bK4nRw-_")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "1-2",
        "1-2-",
        "-1-2-x",
        "0-2-x",
        "1-02-x",
        "1-2-x.svg",
        "1-2-x/",
        "1-2-ü",
        "١-2-x",
        f"1-{2**53}-x",
        "1-2-" + "x" * 65,
        "9" * 5000 + "-2-x",
        "1-2-x\n",
        " 1-2-x",
    ],
)
def test_what_is_no_token_is_none(text: str):
    assert install_token.parse(text) is None
