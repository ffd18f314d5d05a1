"""The file of the daily limits of `esim-dealer mcp`: made at the start alone, and never begun anew unnoticed."""

import sqlite3
from contextlib import closing
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from esim_dealer.mcp.limits import DailyLimits, LimitReached, LimitsUnavailable

TODAY = date(2026, 1, 1)


def daily_limits(file: Path) -> DailyLimits:
    return DailyLimits(file, Decimal(5), 20)


@pytest.fixture
def limits(tmp_path: Path) -> DailyLimits:
    """Of a server that has started, and whose day has room for 1.40 more."""
    made = daily_limits(tmp_path / "folder" / "limits #1?mode=memory%20.sqlite")
    made.check()
    assert made.reserve("a", Decimal("3.60"), TODAY)
    return made


def require_unavailable(limits: DailyLimits, said: str) -> None:
    for use in (
        lambda: limits.moved(TODAY),
        lambda: limits.require_room(Decimal("1.80"), TODAY),
        lambda: limits.reserve("b", Decimal("1.80"), TODAY),
    ):
        with pytest.raises(LimitsUnavailable) as raised:
            use()
        assert f"{limits.file}, cannot be used" in str(raised.value) and said in str(raised.value)


def test_another_process_that_starts_keeps_what_was_counted(limits: DailyLimits):
    other = daily_limits(limits.file)
    other.check()
    with pytest.raises(LimitReached, match=r"3\.60 of 5"):
        other.reserve("b", Decimal("1.80"), TODAY)
    assert other.moved(TODAY) == limits.moved(TODAY)
    assert limits.file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("folder_too", [False, True])
def test_a_file_that_is_gone_is_not_made_again(limits: DailyLimits, folder_too: bool):
    limits.file.unlink()
    if folder_too:
        limits.file.parent.rmdir()
    require_unavailable(limits, "unable to open")
    with pytest.raises(LimitsUnavailable):
        limits.release("a")
    assert not limits.file.exists()
    limits.check()
    assert limits.moved(TODAY).count == 0


def test_a_table_that_is_gone_is_not_made_again(limits: DailyLimits):
    limits.file.write_bytes(b"")
    for _ in range(2):
        require_unavailable(limits, "no such table")


@pytest.mark.parametrize("amount", ["x", "NaN", "-100", "Infinity", "1E+999999", "", b"1", "1\x00"])
def test_an_amount_that_cannot_be_read_leaves_no_room(limits: DailyLimits, amount: str | bytes):
    with closing(sqlite3.connect(limits.file, isolation_level=None)) as database:
        database.execute("INSERT INTO action VALUES ('x', ?, ?)", (TODAY.isoformat(), amount))
    require_unavailable(limits, "is not an amount" if isinstance(amount, str) else "must be")
    assert limits.moved(date(2026, 1, 2)).count == 0
    assert not limits.reserve("a", Decimal("3.60"), TODAY)  # it was counted before
