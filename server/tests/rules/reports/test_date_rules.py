"""Times as people read them."""

from datetime import UTC, datetime

import pytest

from dealer_server.rules import dates

NOW = datetime(2026, 11, 29, 20, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime(2026, 11, 29, 18, 48, tzinfo=UTC), "18:48"),
        (datetime(2026, 11, 29, 23, 0, tzinfo=UTC), "23:00"),
        (datetime(2026, 11, 28, 23, 53, tzinfo=UTC), "28 Nov, 23:53"),
        (datetime(2025, 12, 31, 9, 5, tzinfo=UTC), "31 Dec 2025, 09:05"),
    ],
)
def test_a_time_in_a_list_has_no_more_of_its_date_than_it_needs(at: datetime, text: str) -> None:
    assert dates.listed(at, NOW) == text
