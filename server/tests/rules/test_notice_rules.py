"""When is a balance low, who is told, and when is a digest sent?"""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from dealer_server.rules.notices import low_balance
from dealer_server.rules.notices.low_balance import Told, WalletState
from dealer_server.rules.notices.notice import ROLES, Recipient, next_digest, recipients, types_of
from dealer_server.rules.notices.samples import SAMPLES, sample
from dealer_server.rules.notices.texts import LABELS, text_of


def wallet(balance: int, version: int = 9, **changed: int) -> WalletState:
    """In whole units, of USD."""
    given = {"credit_limit": 0, "threshold": 0, "topup_version": 1, "topup_balance": 100} | changed
    money = {name: given[name] * 10_000 for name in ("credit_limit", "threshold", "topup_balance")}
    return WalletState(7, "USD", version, balance * 10_000, topup_version=given["topup_version"], **money)


@pytest.mark.parametrize(
    ("seen", "level"),
    [
        (wallet(25), 0),
        (wallet(24), 1),
        (wallet(10), 1),
        (wallet(9), 2),
        (wallet(0, topup_balance=0, topup_version=0), 0),
        (wallet(-5, credit_limit=50), 2),
        (wallet(-5, credit_limit=50, threshold=40), 0),
        (wallet(20, credit_limit=10, threshold=30), 0),
        (wallet(19, credit_limit=10, threshold=30), 1),
    ],
)
def test_how_low_a_balance_is(seen: WalletState, level: int):
    assert low_balance.level(seen) == level


def told(*states: WalletState) -> list[str]:
    """The facts that looks at these states tell."""
    facts, before = list[str](), Told()
    for state in states:
        notice = low_balance.notice(state, before)
        facts += [notice.fact] if notice else []
        before = low_balance.told_after(state, before)
    return facts


def test_shares_are_told_once_for_each_top_up():
    assert told(wallet(24), wallet(26), wallet(24), wallet(9), wallet(30), wallet(5)) == ["1:25", "1:10"]
    again = {"topup_version": 20}
    assert told(wallet(9), wallet(100, 20, **again), wallet(24, 30, **again)) == ["1:10", "20:25"]


def test_an_own_threshold_is_told_again_after_it_was_clearly_exceeded():
    low, above, clearly = [wallet(one, one, threshold=50, topup_version=0) for one in (49, 54, 55)]
    assert told(low, above, low) == ["0:own"]
    assert told(low, clearly, low) == ["0:own", "55:own"]


def test_every_type_has_a_text_for_people_and_an_unknown_one_is_named():
    assert ROLES.keys() == LABELS.keys() == SAMPLES.keys()
    assert all(sample(name).subject and sample(name).sentence for name in SAMPLES)
    assert text_of("FROM_TOMORROW", {}).subject == "FROM_TOMORROW"


def test_only_those_who_may_and_want_are_told():
    ada = Recipient(1, 7, "ada@example.com", "dealer:finance", "", False, ())
    others = [
        ada._replace(user_id=2, tenant_id=8),
        ada._replace(user_id=3, full_role="dealer:developer"),
        ada._replace(user_id=4, off=("LOW_BALANCE",)),
        ada._replace(user_id=5, name="bob"),
        ada._replace(user_id=6, mail="not an address"),
    ]
    assert recipients(7, "LOW_BALANCE", [ada, *others]) == [ada]
    assert recipients(7, "FROM_TOMORROW", [ada]) == []
    assert types_of("op:readonly") == []


def test_a_digest_is_sent_at_the_next_such_hour_of_utc():
    eight = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
    assert next_digest(eight, 8) == eight + timedelta(days=1)
    assert next_digest(eight - timedelta(seconds=1), 8) == eight
    assert next_digest(eight.astimezone(timezone(timedelta(hours=9))), 9) == eight + timedelta(hours=1)


def test_amounts_have_thousands_separators():
    low = {"currency": "USD", "balance": "-1234.50", "availableBalance": "1234567.80", "below": "2000000.00"}
    text = text_of("LOW_BALANCE", low)
    assert text.subject == "Low balance: 1,234,567.80 USD" and "below 2,000,000.00 USD" in text.sentence
    assert ("Balance", "−1,234.50 USD") in text.facts
    price = {"packageCode": "A", "packageName": "A", "before": "1234.00", "after": "12345.00"}
    changed = text_of("PRICE_CHANGED", {"count": 1, "currency": "JPY", "packages": [price]})
    assert "12,345.00 JPY" in changed.subject and changed.facts[0][1] == "1,234.00 JPY → 12,345.00 JPY"
