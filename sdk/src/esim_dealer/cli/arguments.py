"""How are the commands and their arguments declared, and handed to a Dealer?"""

import argparse
from collections.abc import Callable
from typing import Any

from esim_dealer.cli.parsing import Parser
from esim_dealer.cli.session import Session
from esim_dealer.operations import ICCID_DIGITS

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
    command.add_argument("--limit", type=_positive, default=50, metavar="N", help="at most this many (default: 50)")


def page_size(limit: int) -> int:
    return min(limit, LONGEST_PAGE)


def filters(**values: object) -> dict[str, Any]:
    """The filters that were given."""
    return {name: value for name, value in values.items() if value is not None}


def profile_name(text: str) -> dict[str, Any]:
    """A profile by its iccid, which is longer than any profileId, or by its profileId."""
    return {"iccid": text} if len(text) >= ICCID_DIGITS else {"profile_id": text}


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number
