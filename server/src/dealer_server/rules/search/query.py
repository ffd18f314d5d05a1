"""What is looked for with a text that somebody typed? (docs/decisions/0041-search.md)"""

from typing import NamedTuple

SHORTEST = 3
FEWEST_DIGITS = 4
MOST_WORDS = 6
MAX_LENGTH = 200


class Query(NamedTuple):
    """`text`: as typed, without blanks around it. `words`: its words in small letters, the longest first, () where one
    is too short to be looked for as a part of something. `digits`: the text where it may be the end of an ICCID."""

    text: str
    words: tuple[str, ...]
    digits: str | None


def read(typed: str) -> Query:
    text = " ".join(typed.replace("\0", "").split())[:MAX_LENGTH]
    words = sorted(dict.fromkeys(text.lower().split()), key=len, reverse=True)[:MOST_WORDS]
    findable = bool(words) and len(words[-1]) >= SHORTEST
    digits = text.replace(" ", "")
    is_end = digits.isascii() and digits.isdigit() and FEWEST_DIGITS <= len(digits) <= 20
    return Query(text, tuple(words) if findable else (), digits if is_end else None)


def why(words: tuple[str, ...], transaction_id: str, remark: str) -> str:
    """Which of an order's texts hold the words; `remark` and `transaction_id` in small letters."""
    if all(word in transaction_id for word in words):
        return "transactionId"
    if all(word in remark for word in words):
        return "remark"
    return "transactionId and remark"
