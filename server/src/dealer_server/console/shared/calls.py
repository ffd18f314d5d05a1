"""A form as the call of the interface that does the same."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from dealer_server.console.shared import words
from dealer_server.console.shared.rendering import many
from dealer_server.operations.errors import OperatorError
from dealer_server.rules.refusal import ParameterInvalid, Refusal

T = TypeVar("T")
_LENGTH = re.compile(r"Expected `str` of length (>=|<=) ([0-9]+) - at `\$\.([A-Za-z]+)`").fullmatch


def call(kind: type[T], /, renamed: Mapping[str, str] | None = None, **fields: object) -> T:
    """Fields that are None are left out. `renamed`: parameters that the form has under another name. Raises
    OperatorError for a text that is too long or missing, ParameterInvalid."""
    present = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as why:
        if (limit := _LENGTH(str(why))) is None:
            raise ParameterInvalid(str(why)) from None
        name = (renamed or {}).get(limit[3], limit[3])
        text, most = str(fields[limit[3]]), "at most" if limit[1] == "<=" else "at least"
        told = f"{words.label(name)} has {many(len(text), 'character')}; accepted: {int(limit[2]):,} {most}."
        raise OperatorError(told, re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()) from None


@contextmanager
def blaming(field: str, *kinds: type[Refusal]) -> Iterator[None]:
    """Refusals of these kinds are of this field of the form."""
    try:
        yield
    except kinds as why:
        raise OperatorError(str(why), field) from None
