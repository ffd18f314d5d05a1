"""What does a command work with, and how does it print? Tables and lines for people, JSON lines for programs."""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx2
import msgspec

from esim_dealer.client import APP_KEY, APP_SECRET, URL, Dealer
from esim_dealer.errors import NotConfigured
from esim_dealer.exchange import Credentials
from esim_dealer.wire.envelope import encoder


class Session:
    """What a command works with: the environment, a Dealer made when first asked for, and the way to print."""

    def __init__(self, environment: Mapping[str, str], transport: httpx2.BaseTransport | None, as_json: bool) -> None:
        self.environment = environment
        self.transport = transport
        self.as_json = as_json
        self._dealer: Dealer | None = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self._dealer:
            self._dealer.close()

    @property
    def dealer(self) -> Dealer:
        if self._dealer is None:
            url, app_key, app_secret = (self.setting(name) for name in (URL, APP_KEY, APP_SECRET))
            self._dealer = Dealer(url, app_key, app_secret, transport=self.transport)
        return self._dealer

    @property
    def credentials(self) -> Credentials:
        return Credentials(self.setting(APP_KEY), self.setting(APP_SECRET))

    def setting(self, name: str) -> str:
        value = self.environment.get(name)
        if not value:
            raise NotConfigured(f"set {name} in the environment")
        return value

    def show(self, struct: msgspec.Struct) -> None:
        """One object: a JSON line, or one aligned line for each field."""
        if self.as_json:
            print_json(struct)
            return
        fields = msgspec.to_builtins(struct)
        width = max(len(name) for name in fields)
        for name, value in fields.items():
            print(f"{name:<{width}}  {cell(value)}")

    def table(
        self, heads: Sequence[str], structs: Iterable[msgspec.Struct], cells: Callable[[Any], Sequence[object]]
    ) -> None:
        """Many objects: a JSON line each, or an aligned table of what `cells` picks from each."""
        if self.as_json:
            for struct in structs:
                print_json(struct)
        else:
            print_table(heads, [cells(struct) for struct in structs])


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
    """A data volume in bytes, for people; a GB has 1 073 741 824 of them (decisions 3)."""
    if size is None:
        return "unlimited"
    if size is msgspec.UNSET:
        return "-"
    for unit, step in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= step:
            return f"{size / step:.4g} {unit}"
    return f"{size} B"


def given(**filters: object) -> dict[str, Any]:
    """The filters that were given."""
    return {name: value for name, value in filters.items() if value is not None}
