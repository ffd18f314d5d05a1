"""How do commands print? Tables and lines for people, JSON for programs."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

_WIDEST = 10_000


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
    """As wide as it needs to be: nothing is cut or wrapped that is to be copied."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*heads, box=None)
    for row in rows:
        table.add_row(*row)
    Console(width=Console(width=_WIDEST).measure(table).maximum or 1).print(table)


def print_faults(file: Path, faults: Iterable[Fault], kind: str = "") -> None:
    """On standard error, as compilers do: `file:line: column: message`."""
    for fault in faults:
        place = [str(file), str(fault.line) if fault.line else "", f" {fault.column}" if fault.column else ""]
        print(f"{':'.join(filter(None, place))}: {kind}{fault.message}", file=sys.stderr)


def for_programs(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields for --json, with names as on the wire: `credit_limit` as `creditLimit`, `created_at` as `createTime`,
    `expires_at` as `expiresTime`. A tenantId is a text, as everywhere."""
    return {_wire_name(name): _tenant_id(value) if name == "tenant_id" else value for name, value in fields.items()}


def _wire_name(name: str) -> str:
    if name.endswith("_at"):
        name = f"{name.removesuffix('_at').replace('created', 'create')}_time"
    head, *rest = name.split("_")
    return head + "".join(map(str.capitalize, rest))


def _tenant_id(value: object) -> str | None:
    return None if value is None else str(value)
