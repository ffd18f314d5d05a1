"""To which profiles an SMS may be sent, how often, and what becomes of one that may have been sent."""

from datetime import UTC, datetime, timedelta

import pytest

from dealer_server.rules.lifecycle import sms
from dealer_server.rules.lifecycle.sms import Next, Recipient

NOW = datetime(2026, 11, 20, 8, 15, 30, tzinfo=UTC)
INSTALLED = Recipient(1, 1, "rt:near", "rt_upstream", "8900", "ACTIVATED", "STARTED", "ENABLED", False, False)
AGAIN = NOW + timedelta(seconds=5)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({}, None),
        ({"lifecycle_status": "ACTIVATING", "smdp_status": "INSTALLATION"}, None),
        ({"smdp_status": None}, None),
        ({"smdp_status": "DISABLED"}, None),
        ({"plan_use_status": "NOT_STARTED"}, None),
        ({"lifecycle_status": "ACTIVATING", "smdp_status": "DOWNLOAD"}, "200002"),
        ({"lifecycle_status": "DELIVERED", "smdp_status": "RELEASED"}, "200002"),
        ({"smdp_status": "DELETED"}, "200002"),
        ({"plan_use_status": "ENDED"}, "200002"),
        ({"cancelled": True, "lifecycle_status": "CANCELLED"}, "200002"),
        ({"cancelled": True, "iccid": None}, "200002"),
        ({"superseded": True}, "200002"),
        ({"iccid": None, "lifecycle_status": "PENDING"}, "200010"),
    ],
)
def test_an_sms_is_for_installed_profiles_that_are_not_over(changed: dict[str, object], code: str | None) -> None:
    refused = sms.refuse(INSTALLED._replace(**changed), True)  # type: ignore[arg-type]
    assert (None if refused is None else refused.code) == code
    unsupported = sms.refuse(INSTALLED._replace(**changed), False)  # type: ignore[arg-type]
    assert unsupported is not None and unsupported.code == "200022"


@pytest.mark.parametrize(
    ("seconds", "wait"), [(0, 60), (0.5, 60), (1, 59), (59.5, 1), (60, None), (90, None), (-5, 60)]
)
def test_the_next_sms_is_a_minute_after_the_last(seconds: float, wait: int | None) -> None:
    refused = sms.refuse_soon(NOW - timedelta(seconds=seconds), NOW)
    assert (None if refused is None else (refused.code, refused.retry_after)) == (wait and ("101013", wait))


def test_the_first_sms_waits_for_none() -> None:
    assert sms.refuse_soon(None, NOW) is None


@pytest.mark.parametrize(
    ("minutes", "in_doubt", "repeatable", "reason"),
    [
        (0, False, False, None),
        (60, False, False, None),
        (61, False, False, "NOT_SENT"),
        (0, True, False, "UNKNOWN"),
        (61, True, False, "UNKNOWN"),
        (0, True, True, None),
        (60, True, True, None),
        (61, True, True, "UNKNOWN"),
        (61, False, True, "NOT_SENT"),
    ],
)
def test_only_a_repeatable_sms_is_sent_while_it_is_in_doubt_and_none_after_an_hour(
    minutes: int, in_doubt: bool, repeatable: bool, reason: str | None
) -> None:
    over = sms.before_sending(NOW - timedelta(minutes=minutes), in_doubt, repeatable, NOW)
    assert (over and (over.status, over.fail_reason)) == (reason and ("FAILED", reason))


def test_a_call_without_an_answer_is_repeated_only_where_it_is_repeatable() -> None:
    assert sms.unanswered("lost", True, AGAIN) == Next("PENDING", None, "lost", AGAIN, in_doubt=True)
    assert sms.unanswered("lost", False, AGAIN) == Next("FAILED", "UNKNOWN", "lost", in_doubt=True)
