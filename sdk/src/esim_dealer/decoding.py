"""What if the service uses a word that this version of the SDK does not know yet?

Then it is handed on as it is: a new change hint or raw status must not make a dealer lose an event or a paid order.
The contract's closed vocabularies bind what is sent; what is received is read strictly first, and with every
vocabulary widened to any text where that fails.
"""

import threading
import types
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_making = threading.Lock()


def decode(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    """The bytes as `shape`. Raises msgspec.DecodeError where not even the widened shape fits."""
    try:
        return decoder(shape).decode(body)
    except msgspec.ValidationError:
        return decoder(shape, widened=True).decode(body)


def decoder(shape: type[T], *, widened: bool = False) -> msgspec.json.Decoder[T]:
    """The decoder of a type. It is made by one thread at a time: msgspec looks into a type when it is used first, and
    crashes the process where two threads do so at once."""
    with _making:
        return _decoder(_open(shape) if widened else shape)


@cache
def _decoder(shape: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(shape)


@cache
def _open(shape: type[T]) -> type[T]:
    """A subclass of `shape` that takes any text where `shape` takes certain words."""
    hints = get_type_hints(shape, include_extras=True)
    fields = [(field.name, _widen(hints[field.name]), _declaration(field)) for field in msgspec.structs.fields(shape)]
    return msgspec.defstruct(shape.__name__, fields, bases=(shape,), frozen=True, kw_only=True)  # type: ignore[return-value]


def _declaration(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return msgspec.field(name=field.encode_name)
    return msgspec.field(default=field.default, name=field.encode_name)


def _widen(annotation: Any) -> Any:
    origin = get_origin(annotation)
    if origin is Literal:
        return str
    if origin is tuple:
        return tuple[tuple(part if part is Ellipsis else _widen(part) for part in get_args(annotation))]
    if origin in (Union, types.UnionType):
        return Union[tuple(_widen(part) for part in get_args(annotation))]  # noqa: UP007  (built at run time)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _open(annotation)
    return annotation
