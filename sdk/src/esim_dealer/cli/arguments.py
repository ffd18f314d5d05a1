"""How are the commands and their arguments declared, and handed to a Dealer?"""

import argparse
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from esim_dealer.cli.parsing import Parser
from esim_dealer.cli.session import Session
from esim_dealer.order import money

LONGEST_PAGE = 500
Run = Callable[[Session, argparse.Namespace], int | None]


class Commands:
    """The commands of a parser, as `add_subparsers` gives them; every one takes --json."""

    def __init__(self, subparsers: Any) -> None:
        self._subparsers = subparsers

    def add(self, name: str, run: Run, text: str) -> Parser:
        """Declare a command that `run` carries out; `run` returns its exit status, or None for 0."""
        command: Parser = self._subparsers.add_parser(name, help=text, description=text)
        command.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print machine-readable lines"
        )
        command.set_defaults(run=run)
        return command

    def group(self, name: str, text: str) -> "Commands":
        """Declare a command that has commands of its own."""
        command: Parser = self._subparsers.add_parser(name, help=text, description=text)
        return Commands(command.add_subparsers(title="actions", metavar="ACTION"))


def add_limit(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--limit", type=whole_number(1), default=50, metavar="N", help="at most this many (default: 50)"
    )


def page_size(limit: int) -> int:
    return min(limit, LONGEST_PAGE)


def filters(**values: object) -> dict[str, Any]:
    """The filters that were given."""
    return {name: value for name, value in values.items() if value is not None}


def amount(text: str) -> Decimal:
    """The type of an option. What it refuses is wrong usage, told with what is accepted."""
    try:
        return money(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def whole_number(lowest: int, highest: int | None = None) -> Callable[[str], int]:
    """The type of an option. What it refuses is wrong usage, told with what is accepted."""

    def parse(text: str) -> int:
        if text.isascii() and text.isdecimal() and lowest <= (number := int(text)) <= (highest or number):
            return number
        accepted = f"{lowest} or more" if highest is None else f"{lowest} to {highest}"
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: {accepted} is expected")

    return parse


port = whole_number(0, 65535)
