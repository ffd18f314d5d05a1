"""How are orders, lines, profiles, refunds, top-ups and SMS numbered? (specification 10)

An orderId is seconds since 2020 x 10^6 + a sequence, handed out in blocks by the database, so it is unique over all
tenants by construction, grows with time, and holds the order's createTime. orderNo and itemNo are computed from it.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

EPOCH_SECONDS = 1_577_836_800  # 2020-01-01T00:00:00Z
SEQUENCE = 1_000_000
LINES = 100


def first_id_at(epoch_seconds: int) -> int:
    """The smallest orderId (or profileId) of a second."""
    return (epoch_seconds - EPOCH_SECONDS) * SEQUENCE


def ids_between(start: datetime | None, end: datetime | None) -> tuple[int, int]:
    """The range of ids given at `start` or later and before `end`: the first one, and the first one after it."""
    first = first_id_at(_seconds_up(start)) if start else 0
    last = first_id_at(_seconds_up(end)) if end else 2**53
    return max(first, 0), max(min(last, 2**53), 0)


def _seconds_up(at: datetime) -> int:
    return int(-(-at.timestamp() // 1))


def created_at(order_id: int) -> datetime:
    """When the order was placed, in whole seconds."""
    return _second(order_id // SEQUENCE)


def order_no(order_id: int) -> str:
    """`D` + yyMMddHHmmss + 6 digits."""
    second, sequence = divmod(order_id, SEQUENCE)
    return f"{_prefix(second)}{sequence:06d}"


@lru_cache(4096)
def _second(since_epoch: int) -> datetime:
    return datetime.fromtimestamp(since_epoch + EPOCH_SECONDS, UTC)


@lru_cache(4096)
def _prefix(since_epoch: int) -> str:
    return f"D{_second(since_epoch):%y%m%d%H%M%S}"


def order_id(order_no: str) -> int | None:
    """The orderId of an orderNo; None where it cannot be one of this service."""
    if len(order_no) != 19 or order_no[0] != "D" or not (order_no.isascii() and order_no[1:].isdigit()):
        return None
    first = _first_id(order_no[1:13])
    return None if first is None else first + int(order_no[13:])


@lru_cache(4096)
def _first_id(digits: str) -> int | None:
    """The smallest orderId of a second written yyMMddHHmmss."""
    year, month, day, hour, minute, second = (int(digits[at : at + 2]) for at in range(0, 12, 2))
    try:
        at = datetime(2000 + year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return first_id_at(int(at.timestamp()))


def refund_no(refund_id: int) -> str:
    """`R` + yyMMddHHmmss + 6 digits."""
    return f"R{order_no(refund_id)[1:]}"


def refund_id(refund_no: str) -> int | None:
    return order_id(f"D{refund_no[1:]}") if refund_no[:1] == "R" else None


def topup_no(topup_id: int) -> str:
    """`T` + yyMMddHHmmss + 6 digits."""
    return f"T{order_no(topup_id)[1:]}"


def topup_id(topup_no: str) -> int | None:
    return order_id(f"D{topup_no[1:]}") if topup_no[:1] == "T" else None


def sms_no(sms_id: int) -> str:
    """`M` + yyMMddHHmmss + 6 digits."""
    return f"M{order_no(sms_id)[1:]}"


def item_no(order_id: int, line: int) -> str:
    return str(order_id * LINES + line)


def order_and_line(item_no: str) -> tuple[int, int] | None:
    """The orderId and line of an itemNo in its current or older form (`{orderNo}-I-{id}`), or None."""
    order, legacy, number = item_no.partition("-I-")
    if legacy:
        named = order_and_line(number)
        return named if named is not None and order == order_no(named[0]) else None
    if not (item_no.isascii() and item_no.isdigit() and len(item_no) <= 18):
        return None
    return divmod(int(item_no), LINES)


def profile_id(text: int | str) -> int | None:
    """A profileId as sent (integer or decimal text); None where it cannot be one."""
    if isinstance(text, str):
        if not (text.isascii() and text.isdigit() and len(text) <= 16):
            return None
        text = int(text)
    return text if 0 < text < 2**53 else None


_made_here = re.compile(r"console-.*|bulk-[0-9a-f]{16}-[0-9]+").fullmatch


def own_reference(transaction_id: str) -> str:
    """What its dealer calls an order by; "" of one that was bought in the console or with a CSV file, which made its
    transactionId."""
    return "" if _made_here(transaction_id) else transaction_id
