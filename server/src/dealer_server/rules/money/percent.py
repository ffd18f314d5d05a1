"""What percentage is one amount of another, and how is it written?

Percentages are hundredths of a percent (basis points), rounded half-up: a half goes away from zero.
"""

from dealer_server.rules.money import money

_MINUS = "−"


def share(part: int, whole: int) -> int:
    """Which part of the whole it is, in hundredths of a percent: 151754 of 1000000 is 1518. `whole` is above 0."""
    return _rounded(part, whole, 10_000)


def tenths(part: int, whole: int) -> str:
    """The same for people, to a tenth of a percent: 15.2 %; 0 % of nothing and 100 % of all. "" where the whole is not
    above 0."""
    if whole <= 0:
        return ""
    if part in (0, whole):
        return "100 %" if part else "0 %"
    count = _rounded(part, whole, 1_000)
    return f"{_MINUS if count < 0 else ''}{abs(count) // 10:,}.{abs(count) % 10} %"


def number(basis_points: int) -> str:
    """As forms, files and commands have it: 1250 is 12.5, -500 is -5."""
    whole, rest = divmod(abs(basis_points), 100)
    return f"{'-' if basis_points < 0 else ''}{whole}" + (f".{rest:02}".rstrip("0") if rest else "")


def shown(basis_points: int) -> str:
    """For people, as it was set: 1250 is 12.5 %, -500 is −5 %."""
    return f"{money.grouped(number(basis_points))} %"


def fixed(basis_points: int) -> str:
    """For people, where hundredths decide, as at a floor: 1250 is 12.50 %, -500 is −5.00 %."""
    return f"{_MINUS if basis_points < 0 else ''}{abs(basis_points) // 100:,}.{abs(basis_points) % 100:02} %"


def one_decimal(basis_points: int) -> str:
    """For people, to a tenth of a percent, where margins stand beside each other: 3926 is 39.3 %."""
    return tenths(basis_points, 10_000)


def _rounded(part: int, whole: int, parts: int) -> int:
    count = (2 * abs(part) * parts + whole) // (2 * whole)
    return -count if part < 0 else count
