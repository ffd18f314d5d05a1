"""What is wrong with a body that does not decode? (specification 7.1: 000104 to 000108)

Decoding validates. This file turns the decoder's message into a refusal that names the parameter, what was wrong and
what is accepted.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from dealer_server.rules import refusal
from esim_dealer.wire import calls

_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `(?P<path>[^`]+)`)?")
_AT = re.compile(r"(?P<what>.*?) - at `(?P<path>[^`]+)`\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<type>[^`]+)`(?: (?P<bound>.+))?\Z")
_GOT = re.compile(r"Expected `(?P<type>[^`]+)`, got `(?P<got>[^`]+)`\Z")
_WORD = re.compile(r"Invalid enum value (?P<quote>['\"])(?P<word>.*)(?P=quote)\Z", re.DOTALL)
_NO_OFFSET = "with a timezone component"
_SHOWN = 40  # characters of a wrong word
_PATTERNS = {
    "transactionId": "letters, digits and . _ : @ -, at most 64",
    "iccid": "18 to 20 digits",
}
_TIME = "an RFC 3339 time such as 2026-11-20T08:15:30Z"


def _words_of(hint: Any) -> tuple[str, ...]:
    """The words of a type that is, or contains, a Literal."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return next(filter(None, map(_words_of, get_args(hint))), ())


def _metas_of(hint: Any) -> Iterator[Meta]:
    """The bounds that a type carries."""
    for part in get_args(hint):
        if isinstance(part, Meta):
            yield part
        else:
            yield from _metas_of(part)


_FIELDS = [
    field
    for request in vars(calls).values()
    if isinstance(request, type) and issubclass(request, calls.Request)
    for field in msgspec.structs.fields(request)
]
_WORDS = {field.encode_name: words for field in _FIELDS if (words := _words_of(field.type))}
"""The accepted words by parameter."""
_RANGES = {
    field.encode_name: f"from {meta.ge} to {meta.le}"
    for field in _FIELDS
    for meta in _metas_of(field.type)
    if meta.ge is not None and meta.le is not None
}
"""The accepted numbers by parameter."""


def decode(decoder: Callable[[bytes], Any], body: bytes) -> Any:
    """The request in `body`; an empty body is `{}`. Raises the refusal a malformed one deserves."""
    body = body or b"{}"
    try:
        if not body.isascii():
            body.decode()  # the decoder does not look into what it ignores
        request = decoder(body)
        if b"\\u0000" in body:
            _refuse_nul(json.loads(body, parse_int=str), "")
        return request
    except msgspec.ValidationError as error:
        why = explain(str(error))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(error) from None
    raise _unless_json(body) or why


def _unless_json(body: bytes) -> refusal.NotJson | None:
    """The refusal of what is not JSON to its end: the decoder stops at the first parameter that is wrong."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        return _not_json(error)
    return None


def _not_json(error: Exception) -> refusal.NotJson:
    """Says what is wrong with it, and where."""
    match error:
        case UnicodeDecodeError():
            what = f"no UTF-8 (byte {error.start})"
        case RecursionError():
            what = "it is too deep"
        case _:
            what = str(error).removeprefix("JSON is malformed: ").replace("Input data was truncated", "it is cut short")
    return refusal.NotJson(f"the body is not a JSON object in UTF-8: {what}")


def explain(message: str) -> refusal.Refusal:
    """The refusal for a message of the decoder."""
    missing = _MISSING.match(message)
    if missing:
        name = _name(missing["path"], missing["field"])
        return refusal.ParameterMissing(f"{name} is required")
    at = _AT.match(message)
    if at is None:
        return refusal.NotJson("the body is not a JSON object")
    name, what = _name(at["path"]), at["what"]
    if (word := _WORD.match(what)) and (words := _WORDS.get(_field(name))):
        return _unknown_word(name, word["word"], words)
    if what == "Number out of range":
        return refusal.ParameterInvalid(f"{name} is a number out of range")
    if what.startswith("Invalid RFC3339"):
        return refusal.ParameterInvalid(f"{name} is malformed; accepted: {_TIME}")
    got = _GOT.match(what)
    if got:
        accepted = _type(got["type"])
        if got["got"] == "null":
            return refusal.ParameterEmpty(f"{name} is null; accepted: {accepted}")
        return refusal.ParameterInvalid(f"{name} is {_type(got['got'])}; accepted: {accepted}")
    expected = _EXPECTED.match(what)
    if expected is None or not expected["bound"]:
        return refusal.ParameterInvalid(f"{name}: {what}")
    return _out_of_bounds(name, expected["type"], expected["bound"])


def _unknown_word(name: str, word: str, words: tuple[str, ...]) -> refusal.Refusal:
    accepted = ", ".join(words)
    if not word:
        return refusal.ParameterEmpty(f"{name} is empty; accepted: {accepted}")
    shown = word if len(word) <= _SHOWN else f"{word[:_SHOWN]}…"
    return refusal.ParameterInvalid(f"{name} is '{shown}'; accepted: {accepted}")


def _out_of_bounds(name: str, kind: str, bound: str) -> refusal.Refusal:
    if bound == "of length >= 1":
        return refusal.ParameterEmpty(
            f"{name} is empty; accepted: at least one {'item' if kind == 'array' else 'character'}"
        )
    if bound.startswith("of length"):
        unit = "items" if kind == "array" else "characters"
        return refusal.ParameterLength(f"{name} is too long; accepted: at most {bound.rpartition(' ')[2]} {unit}")
    if bound == _NO_OFFSET:
        return refusal.ParameterInvalid(f"{name} has no offset from UTC; accepted: {_TIME}")
    if bound.startswith("matching regex"):
        accepted = _PATTERNS.get(_field(name), bound)
        return refusal.ParameterInvalid(f"{name} is malformed; accepted: {accepted}")
    return refusal.ParameterInvalid(
        f"{name} is out of range; accepted: {_type(kind)} {_RANGES.get(_field(name), bound)}"
    )


def _name(path: str | None, field: str = "") -> str:
    """`$.items[0]` and `price` as `items[0].price`."""
    path = (path or "").removeprefix("$").removeprefix(".").replace("[...]", "a value")
    parts = [part for part in (path, field) if part]
    return ".".join(parts)


def _field(name: str) -> str:
    """`itemStatus` of `items[0].itemStatus[1]`."""
    return name.rpartition(".")[2].partition("[")[0]


_TYPES = {"str": "a string", "int": "an integer", "bool": "true or false", "array": "an array", "object": "an object",
          "float": "a number", "datetime": _TIME}  # fmt: skip


def _type(kind: str) -> str:
    """The decoder's word for a type as JSON's."""
    return " or ".join(_TYPES.get(part, part) for part in kind.split(" | ") if part != "null")


def _refuse_nul(value: Any, name: str) -> None:
    """Raises for text with a NUL character, wherever it stands (specification 10)."""
    if isinstance(value, str):
        if "\0" in value:
            raise refusal.ParameterInvalid(f"{name or 'a value'} contains a NUL character")
    elif isinstance(value, dict):
        for key, inner in value.items():
            _refuse_nul(key, name)
            _refuse_nul(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_nul(inner, f"{name}[{index}]")
