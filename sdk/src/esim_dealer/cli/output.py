"""How do commands print? Tables and lines for people, JSON lines for programs."""

import unicodedata
from collections.abc import Sequence

import msgspec

from esim_dealer.wire.envelope import encoder


def print_json(value: object) -> None:
    print(encoder.encode(value).decode(), flush=True)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; a column of numbers stands to the right."""
    texts = [[cell(value) for value in row] for row in rows]
    columns = list(zip(heads, *texts, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    right = [bool(texts) and all(map(_is_number, column[1:])) for column in columns]
    for line in (heads, *texts):
        padded = [
            (" " * (width - _width(text)) + text) if to_right else (text + " " * (width - _width(text)))
            for text, width, to_right in zip(line, widths, right, strict=True)
        ]
        print("  ".join(padded).rstrip())


def _is_number(text: str) -> bool:
    """Whether it is an amount, a count or a volume; long ones are identifiers."""
    return len(text) < 15 and text.split(" ")[0].replace(".", "", 1).isdigit()


def _width(text: str) -> int:
    """Columns on a terminal: wide East Asian characters take two."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def cell(value: object) -> str:
    """A value for people: what is absent as "-", times as RFC 3339."""
    if value is None or value is msgspec.UNSET:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(msgspec.to_builtins(value))


def volume(size: int | msgspec.UnsetType | None) -> str:
    """A data volume in bytes, for people; a GB has 1 073 741 824 of them (specification 10)."""
    if size is None:
        return "unlimited"
    if size is msgspec.UNSET:
        return "-"
    for unit, step in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size} B"
