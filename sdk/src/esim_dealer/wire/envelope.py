"""What surrounds every answer? (specification 1 rule 5)"""

from typing import Generic, TypeVar

import msgspec

from esim_dealer.wire.vocabulary import SUCCESS, SUCCESS_MESSAGE, ResultCode

T = TypeVar("T")


class Envelope(msgspec.Struct, Generic[T], frozen=True):
    """`{"code", "message", "data"}`: errors too; `data` is always an object."""

    code: ResultCode
    message: str
    data: T


class OpenEnvelope(msgspec.Struct, frozen=True):
    """An answer whose code is not yet looked at: `data` stays raw until it is known what it holds."""

    code: str
    message: str
    data: msgspec.Raw = msgspec.Raw(b"{}")


# refundAmount is a JSON number, every other amount a string: only Decimal fields are numbers on the wire.
encoder = msgspec.json.Encoder(decimal_format="number")

_BEFORE_DATA = f'{{"code":"{SUCCESS}","message":"{SUCCESS_MESSAGE}","data":'.encode()


def success(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The envelope of success around an already encoded object, in parts: a large one need not be copied."""
    return _BEFORE_DATA, data, b"}"
