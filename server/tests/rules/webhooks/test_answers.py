"""What an endpoint answered in a period, and which answers a filter means."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import pytest

from dealer_server.rules.period import period
from dealer_server.rules.webhooks import answers

NOW = datetime(2026, 11, 12, 14, 3, tzinfo=UTC)


class Row(NamedTuple):
    hour: datetime
    http_status: int
    error: str
    attempts: int
    took_ms: int


def test_a_history_adds_up_hours_by_bar_and_by_answer() -> None:
    this = NOW.replace(minute=0)
    rows = [
        Row(this, 200, "", 7, 700),
        Row(this - timedelta(hours=1), 200, "", 1, 50),
        Row(this - timedelta(hours=1), 500, "STATUS", 2, 250),
        Row(this - timedelta(hours=23), 0, "TIMEOUT", 1, 10_000),
        Row(this - timedelta(hours=24), 200, "", 99, 0),
    ]
    history = answers.history(rows, period("24h", None, None, NOW))
    assert [one[1:] for one in history.attempts.bars] == [(0, 1), *[(0, 0)] * 21, (1, 2), (7, 0)]
    assert history.answers == [("200", True, 8), ("500", False, 2), ("TIMEOUT", False, 1)]
    counted = history.attempts
    assert (counted.total, counted.share, counted.bad_share) == (11, "72.7 %", "27.3 %")
    days = answers.history(rows, period("30d", None, None, NOW))
    assert len(days.attempts.bars) == 30 and [one[1:] for one in days.attempts.bars[-2:]] == [(99, 1), (8, 2)]


def test_a_rate_is_rounded_down() -> None:
    rows = [Row(NOW.replace(minute=0), 200, "", 9_999, 0), Row(NOW.replace(minute=0), 500, "STATUS", 1, 0)]
    assert answers.history(rows, period("24h", None, None, NOW)).attempts.share == "99.9 %"
    assert answers.history(rows[:1], period("24h", None, None, NOW)).attempts.share == "100 %"


@pytest.mark.parametrize(
    ("answer", "http_status", "error", "matches"),
    [
        ("500", 500, "STATUS", True),
        ("500", 503, "STATUS", False),
        ("5xx", 503, "STATUS", True),
        ("5xx", None, "TIMEOUT", False),
        ("2xx", 200, None, True),
        ("NONE", None, "TIMEOUT", True),
        ("NONE", 200, None, False),
        ("NONE", None, None, False),  # no attempt yet
        ("TIMEOUT", None, "TIMEOUT", True),
        ("TIMEOUT", None, "RESET", False),
    ],
)
def test_a_filter_finds_its_answers(answer: str, http_status: int | None, error: str | None, matches: bool) -> None:
    assert answers.known(answer) and answers.matches(answer, http_status, error) is matches


@pytest.mark.parametrize("answer", ["", "6xx", "50", "5000", "timeout", "xx", "500 "])
def test_other_words_are_no_answers(answer: str) -> None:
    assert not answers.known(answer)
