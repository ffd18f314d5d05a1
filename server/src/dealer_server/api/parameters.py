"""What is wrong with a body that does not decode? (specification 7.1: 000104 to 000108)

Decoding validates. This file turns the decoder's message into a refusal that names the parameter, what was wrong and
what is accepted.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import msgspec

from dealer_server.rules import refusal
from esim_dealer.wire import calls

_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`(?: - at `(?P<path>[^`]+)`)?")
_AT = re.compile(r"(?P<what>.*?) - at `(?P<path>[^`]+)`\Z", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(?P<type>[^`]+)`(?: (?P<bound>.+))?\Z")
_GOT = re.compile(r"Expected `(?P<type>[^`]+)`, got `(?P<got>[^`]+)`\Z")
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


_WORDS = {
    field.encode_name: words
    for request in vars(calls).values()
    if isinstance(request, type) and issubclass(request, calls.Request)
    for field in msgspec.structs.fields(request)
    if (words := _words_of(field.type))
}
"""The accepted words by parameter."""


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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise refusal.NotJson from None
    raise why if _is_json(body) else refusal.NotJson


def _is_json(body: bytes) -> bool:
    """Whether it is JSON to its end: the decoder stops at the first parameter that is wrong."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


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
    words = _WORDS.get(name.rpartition(".")[2].partition("[")[0])
    if words and what.startswith("Invalid enum value"):
        return refusal.ParameterInvalid(f"{name}: {what}; accepted: {', '.join(words)}")
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


def _out_of_bounds(name: str, kind: str, bound: str) -> refusal.Refusal:
    if bound == "of length >= 1":
        return refusal.ParameterEmpty(
            f"{name} is empty; accepted: at least one {'item' if kind == 'array' else 'character'}"
        )
    if bound.startswith("of length"):
        unit = "items" if kind == "array" else "characters"
        return refusal.ParameterLength(
            f"{name} has the wrong length; accepted: {bound.removeprefix('of length ')} {unit}"
        )
    if bound.startswith("matching regex"):
        accepted = _PATTERNS.get(name.rpartition(".")[2], bound)
        return refusal.ParameterInvalid(f"{name} is malformed; accepted: {accepted}")
    return refusal.ParameterInvalid(f"{name} is out of range; accepted: {_type(kind)} {bound}")


def _name(path: str | None, field: str = "") -> str:
    """`$.items[0]` and `price` as `items[0].price`."""
    parts = [part for part in ((path or "").removeprefix("$").removeprefix("."), field) if part]
    return ".".join(parts)


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
