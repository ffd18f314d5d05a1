"""What does the page say? One file per language, all with the same keys."""

import functools
import json
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path

from dealer_server.rules.install.languages import Language

FOLDER = Path(__file__).parent / "texts"
_UNITS = ("B", "KB", "MB", "GB", "TB")


class Texts:
    """The words of one language, and how it writes volumes, times and numbers of days."""

    def __init__(self, language: Language, words: Mapping[str, str]):
        self.language = language
        self._words = words

    def __call__(self, key: str, **values: object) -> str:
        """Raises KeyError: every key is in every file."""
        return self._words[key].format(**values) if values else self._words[key]

    def volume(self, size_bytes: int) -> str:
        """1.5 GB: at most two decimals, 1 GB is 2^30 bytes."""
        size, unit = float(size_bytes), 0
        while size >= 1000 and unit + 1 < len(_UNITS):  # 1023 MB are 1 GB
            size, unit = size / 1024, unit + 1
        digits = f"{size:.2f}".rstrip("0").rstrip(".").replace(".", self("decimal"))
        return f"{digits}\N{NO-BREAK SPACE}{self(f'unit_{_UNITS[unit]}')}"

    def time(self, at: datetime) -> str:
        """28 May 2027, 14:03 UTC."""
        return f"{self.day(at)}, {at:%H:%M}\N{NO-BREAK SPACE}UTC"

    def days(self, count: int) -> str:
        return self("day_one" if count == 1 else "day_other", count=count)

    def days_left(self, count: int) -> str:
        return self(("days_left_none", "days_left_one")[count] if count < 2 else "days_left_other", count=count)

    def day(self, at: date) -> str:
        """28 May 2027."""
        return self("date", day=at.day, month=self._month(at), year=at.year)

    def short_day(self, at: date) -> str:
        """28 May."""
        return self("date_short", day=at.day, month=self._month(at))

    def _month(self, at: date) -> str:
        return self("months").split()[at.month - 1]


@functools.cache
def texts(language: Language) -> Texts:
    return Texts(language, json.loads((FOLDER / f"{language}.json").read_text("utf-8")))
