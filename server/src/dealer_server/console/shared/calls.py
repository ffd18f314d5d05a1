"""A form as the call of the interface that does the same."""

from typing import TypeVar

import msgspec

from dealer_server.rules.refusal import ParameterInvalid

T = TypeVar("T")
REMARK_LENGTH = 255
"""Characters of a `remark` (esim_dealer.wire.calls)."""


def call(kind: type[T], **fields: object) -> T:
    """Fields that are None are left out. Raises ParameterInvalid."""
    present = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as why:
        raise ParameterInvalid(str(why)) from None
