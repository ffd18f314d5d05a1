"""What is bought, and what does it cost? Money is exact: text or Decimal, never a binary fraction."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import msgspec
from msgspec import UNSET

from esim_dealer.wire.calls import CheckedItem, CheckLine, CheckOrder, OrderLine, Package, PlaceOrder

Amount = Decimal | str | int

_LITERAL = re.compile(r"(0|[1-9][0-9]{0,11})(\.[0-9]{1,4})?")


def money(value: Amount) -> Decimal:
    """An amount in major units, such as "1.80". Raises TypeError for a float, ValueError for what is no amount."""
    if isinstance(value, float):
        raise TypeError(
            f"money must not be a float, which cannot hold most cents: write '{value}' or Decimal('{value}')"
        )
    if isinstance(value, bool) or not isinstance(value, Decimal | str | int):
        raise TypeError(f"money must be a Decimal, a str or an int, not {type(value).__name__}")
    text = literal(value) if isinstance(value, Decimal) else str(value)
    if not _LITERAL.fullmatch(text):
        raise ValueError(f"{text!r} is not an amount: digits, at most one point and four decimals, as in '1.80'")
    return Decimal(text)


def literal(value: Decimal) -> str:
    """The amount as text without an exponent."""
    return format(value, "f")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an order: `price` is the unit dealer price, of one day for DAILY_* packages.

    `period_num` is the number of days of a DAILY_* package and stays None for others (specification 4.2). A line to be
    checked needs no price.
    """

    package_code: str
    quantity: int
    price: Amount | None = None
    period_num: int | None = None

    def __post_init__(self) -> None:
        if self.price is not None:
            object.__setattr__(self, "price", money(self.price))

    @classmethod
    def of(cls, package: Package, quantity: int = 1, period_num: int | None = None) -> "Line":
        """A line at the package's present price; a DAILY_* package is bought for its fewest days if not told."""
        if period_num is None and package.data_type.startswith("DAILY"):
            period_num = package.min_period_num
        return cls(package.package_code, quantity, package.price, period_num)

    @classmethod
    def checked(cls, item: CheckedItem) -> "Line":
        """A line at the price that a check found."""
        return cls(item.package_code, item.quantity, item.price or None, item.period_num or None)

    @property
    def amount(self) -> Decimal:
        """price × quantity × periodNum. Raises ValueError where it has no price."""
        return self.unit_price * self.quantity * (self.period_num or 1)

    @property
    def unit_price(self) -> Decimal:
        """Its price. Raises ValueError where it has none."""
        if self.price is None:
            raise ValueError(f"the line of {self.package_code} has no price; check_order tells it")
        return money(self.price)


def place_order(
    transaction_id: str, lines: Sequence[Line], amount: Amount | None, currency: str | None, remark: str | None
) -> PlaceOrder:
    """The request of /esim/order; `amount` None is the sum of the lines."""
    lines = _checked(lines)
    total = sum((line.amount for line in lines), Decimal(0)) if amount is None else money(amount)
    return PlaceOrder(
        transaction_id=transaction_id,
        amount=on_the_wire(total),
        items=tuple(
            OrderLine(
                package_code=line.package_code,
                quantity=line.quantity,
                price=on_the_wire(line.unit_price),
                period_num=line.period_num,
            )
            for line in lines
        ),
        currency=currency,
        remark=remark,
    )


def check_order(
    lines: Sequence[Line], transaction_id: str | None, amount: Amount | None, currency: str | None
) -> CheckOrder:
    """The request of /esim/order/check. What is not given is left out, and the service fills it in."""
    lines = _checked(lines)
    return CheckOrder(
        transaction_id=transaction_id,
        amount=UNSET if amount is None else on_the_wire(money(amount)),
        items=tuple(
            CheckLine(
                package_code=line.package_code,
                quantity=line.quantity,
                price=UNSET if line.price is None else on_the_wire(line.unit_price),
                period_num=line.period_num,
            )
            for line in lines
        ),
        currency=currency,
    )


def _checked(lines: object) -> tuple[Line, ...]:
    """Raises TypeError for what is no list of lines, such as a single line, or packages."""
    found = tuple(lines) if isinstance(lines, Iterable) else (None,)
    checked = tuple(line for line in found if isinstance(line, Line))
    if len(checked) < len(found):
        raise TypeError("items is a list of Line, such as [Line.of(package, 2)]")
    return checked


def on_the_wire(value: Decimal) -> msgspec.Raw:
    return msgspec.Raw(f'"{literal(value)}"'.encode())
