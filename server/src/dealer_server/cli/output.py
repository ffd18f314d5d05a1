"""How do commands print? Tables and lines for people, JSON for programs."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec


class Fault(Protocol):
    """What is wrong in a file; where a whole line or the whole file is wrong, `column` is empty, or `line` is 0."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> str: ...
    @property
    def message(self) -> str: ...


def print_json(value: Any) -> None:
    """One line."""
    print(msgspec.json.encode(value).decode())


def print_result(as_json: bool, fields: Any, line: str) -> None:
    """`fields` for programs, or `line` for people."""
    if as_json:
        print_json(fields)
    else:
        print(line)


def print_table(heads: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
    """As wide as the terminal; 200 columns wide in a file or a pipe."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def print_faults(file: Path, faults: Iterable[Fault], kind: str = "") -> None:
    """On standard error, as compilers do: `file:line: column: message`."""
    for fault in faults:
        place = [str(file), str(fault.line) if fault.line else "", f" {fault.column}" if fault.column else ""]
        print(f"{':'.join(filter(None, place))}: {kind}{fault.message}", file=sys.stderr)


def camel_case(name: str) -> str:
    """`credit_limit` as on the wire: `creditLimit`."""
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))
