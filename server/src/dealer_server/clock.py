"""What time is it? Read here only; handed inward as a value."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def now() -> datetime:
    return datetime.now(UTC)
