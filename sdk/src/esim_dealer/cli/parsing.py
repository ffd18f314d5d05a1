"""How is a command line read, and what is said of one that is wrong? One line, with what was probably meant."""

import argparse
import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from esim_dealer.cli.session import Session


class WrongUsage(Exception):
    """A command line that is not understood."""


class Parser(argparse.ArgumentParser):
    """Raises WrongUsage instead of ending the process; without the command it needs it shows its help."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named, allow_abbrev=False)
        self.set_defaults(parser=self, run=_show_help)

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{message}; see {self.prog} --help")

    def read(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The options, with `run`. Raises WrongUsage."""
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            parser: Parser = options.parser
            parser.error(f"{unknown[0]} is not understood{_meant(unknown[0], parser.option_names)}")
        return options

    @property
    def option_names(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    @property
    def commands(self) -> "dict[str, Parser]":
        """Its commands, by name."""
        groups = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return {name: command for group in groups for name, command in group.choices.items()}

    def walk(self, path: tuple[str, ...] = ()) -> "Iterator[tuple[tuple[str, ...], Parser]]":
        """This parser and all below it, each with the words that lead to it."""
        yield path, self
        for name, command in self.commands.items():
            yield from command.walk((*path, name))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            accepted = ", ".join(map(str, action.choices))
            raise argparse.ArgumentError(action, f"{value!r} is not one of {accepted}{_meant(value, action.choices)}")


def _show_help(_: Session, options: argparse.Namespace) -> None:
    options.parser.print_help()


def _meant(given: object, accepted: Iterable[object]) -> str:
    near = difflib.get_close_matches(str(given), [str(each) for each in accepted], n=1)
    return f". Did you mean {near[0]}?" if near else ""
