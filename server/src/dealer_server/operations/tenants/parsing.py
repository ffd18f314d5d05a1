"""What did an operator type? Amounts in major units and percentages, as the rules' integers. `field`: of the form."""

from dealer_server.operations.errors import OperatorError
from dealer_server.rules.money import money


def amount(text: str, currency: str, name: str, field: str = "") -> int:
    """Ten-thousandths of the major unit. Raises OperatorError."""
    try:
        return money.parse(text, currency)
    except ValueError as error:
        raise OperatorError(f"{name} {text!r}: {error}", field) from None


def optional_amount(text: str | None, currency: str, name: str, field: str = "") -> int | None:
    return None if text is None else amount(text, currency, name, field)


def signed_amount(text: str, currency: str, name: str) -> int:
    """The same, below zero where the text begins with a minus sign. The field has this name."""
    return -amount(text[1:], currency, name, name) if text.startswith("-") else amount(text, currency, name, name)


def basis_points(percent: str) -> int:
    """Hundredths of a percent: 12.5 is 1250. Raises OperatorError."""
    percent = percent.replace("−", "-")  # as the console writes it
    sign, digits = (-1, percent[1:]) if percent.startswith("-") else (1, percent)
    whole, _, fraction = digits.partition(".")
    is_number = percent.isascii() and whole.isdigit() and (fraction or "0").isdigit()
    if not (is_number and len(whole) <= 9 and len(fraction) <= 2):
        raise OperatorError(f"markup {percent!r}: a percentage with at most two decimals, such as 12.5", "markup")
    return sign * (int(whole) * 100 + int((fraction + "00")[:2]))


def require_range(name: str, value: int | None, lowest: int, highest: int, field: str) -> None:
    """Raises OperatorError."""
    if value is not None and not lowest <= value <= highest:
        raise OperatorError(f"{name} {value} is out of range; accepted: {lowest} to {highest}", field)
