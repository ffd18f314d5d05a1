"""Is this an ICCID? (ITU-T E.118: 18 to 20 digits, the last a Luhn digit)"""

import re

_FORM = re.compile(r"[0-9]{18,20}\Z")
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # twice a digit, its digits added up


def parse(text: str) -> str:
    """The ICCID in digits; trailing F padding is taken off. Raises ValueError."""
    digits = text.rstrip("Ff")
    if not _FORM.match(digits):
        raise ValueError("must be an ICCID of 18 to 20 digits")
    return digits


def luhn_digit(digits: str) -> str:
    """The check digit to append."""
    doubled, plain = digits[::-2], digits[-2::-2]
    return str(-(sum([_DOUBLED[int(digit)] for digit in doubled]) + sum([int(digit) for digit in plain])) % 10)


def is_luhn(iccid: str) -> bool:
    return luhn_digit(iccid[:-1]) == iccid[-1]
