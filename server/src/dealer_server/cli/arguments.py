"""How are times, prices and files on the command line read?"""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from dealer_server.settings import SettingsError

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(option: str, text: str | None, now: datetime) -> datetime | None:
    """`24h` or `7d` ago, an RFC 3339 time, or a date, which is its beginning in UTC. Raises SettingsError."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        at = datetime.fromisoformat(text)
        if len(text) == len("2026-11-20"):
            at = at.replace(tzinfo=UTC)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise SettingsError(
            f"{option} {text!r}: a time such as 2026-11-20T08:15:30Z, a date, or 30m, 24h, 7d for so long ago"
        )
    return at.astimezone(UTC)


def prices(texts: Sequence[str] | None) -> dict[str, str]:
    """PACKAGE=PRICE, PACKAGE=off or PACKAGE=list, by package. Raises SettingsError."""
    return _pairs("--price", texts, "PACKAGE=PRICE, PACKAGE=off or PACKAGE=list")


def columns(texts: Sequence[str] | None) -> dict[str, str]:
    """COLUMN=TEXT, by column. Raises SettingsError."""
    return _pairs("--set", texts, "COLUMN=TEXT, such as price=1.80")


def _pairs(option: str, texts: Sequence[str] | None, accepted: str) -> dict[str, str]:
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise SettingsError(f"{option} {text!r}: {accepted}")
        pairs[name] = value
    return pairs


def read_file(file: Path) -> bytes:
    """The file's content; - reads standard input. Raises SettingsError."""
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None


def read_text(file: Path) -> str:
    """A file of UTF-8 text. Raises SettingsError."""
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SettingsError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8 text: byte {error.start} cannot be read") from None
