"""What is a call about? The number in its body that names an order, an eSIM, a top-up or a delivery."""

from typing import Any

import msgspec

MOST = 100
"""Characters of such a number."""


class _Body(msgspec.Struct, rename="camel"):
    """The parameters that name something, that of the order first."""

    order_no: Any = None
    transaction_id: Any = None
    refund_transaction_id: Any = None
    iccid: Any = None
    esim_tran_no: Any = None
    profile_id: Any = None
    topup_no: Any = None
    delivery_id: Any = None


_decoder = msgspec.json.Decoder(_Body)
_fields = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(_Body))


def of_body(body: bytes) -> tuple[str, str]:
    """The parameter and its value; both are "" where the body names nothing, or is not what a call has."""
    try:
        named = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "", ""
    for name, kind in _fields:
        value = getattr(named, name)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return kind, str(value)[:MOST].replace("\0", "")
    return "", ""
