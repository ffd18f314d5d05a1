"""What do the lines of an order call cost, and may they be bought? (specification 4.2)

This needs no wallet: the call is priced on its own, against the dealer's own prices.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET, UnsetType

from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from esim_dealer.wire.calls import MAX_PROFILES_PER_ORDER, CheckOrder, Money, PlaceOrder

Call = PlaceOrder | CheckOrder


class Offer(msgspec.Struct, frozen=True):
    """A package as this dealer may buy it. `price` is None where it is not on sale for this dealer."""

    package: Package
    price: int | None


class OrderLine(msgspec.Struct, frozen=True):
    """One line to be bought. `period_num` is 1 for a TOTAL package; `price` is that of a unit, in ten-thousandths (of
    one day for DAILY_* packages)."""

    package_code: str
    quantity: int
    period_num: int
    price: int
    supplier: str
    fallback: str = ""  # the supplier where the stock is short


class PricedLines(msgspec.Struct, frozen=True):
    """The lines of a call with their prices. `refused`: why they cannot be bought now. `digest`: 16 bytes that two
    calls share when they ask for the same."""

    digest: bytes
    currency: str
    amount: int
    lines: tuple[OrderLine, ...]
    refused: refusal.Refusal | None


def price_lines(call: PlaceOrder, currency: str, offer: Callable[[str], Offer | None]) -> PricedLines:
    """Prices the lines of a call. `currency`: the wallet's; `offer`: a package as the dealer may buy it.

    Malformed amounts raise 000105, 000106, 000108. Any other refusal is kept in `refused`: a repeat of an earlier order
    is answered with that order, whatever the catalogue says today."""
    prices, amount = _amounts(call, _parsed_in(call, currency))
    return price_offers(call, currency, [offer(line.package_code) for line in call.items], prices, amount)


def price_check(call: CheckOrder, currency: str, offers: Sequence[Offer | None]) -> PricedLines:
    """The same of a check. What it leaves out is as an order would have it now: the dealer's price of a line (0 where
    it has none, and is refused), and the sum of the lines as the amount. `offers`: one per line."""
    parsed_in = _parsed_in(call, currency)
    prices = []
    for index, (line, offered) in enumerate(zip(call.items, offers, strict=True)):
        price, own = _given(f"items[{index}].price", line.price, parsed_in), offered.price if offered else None
        prices.append((own or 0) if price is None else price)
    amount = _given("amount", call.amount, parsed_in)
    if amount is None:
        literal = f'"{money.text(_sum(call, prices), parsed_in)}"'
        amount = read_amount("amount", msgspec.Raw(literal.encode()), parsed_in)
    return price_offers(call, currency, offers, prices, amount)


def _given(name: str, literal: Money | UnsetType, currency: str) -> int | None:
    """An amount that may be left out, as null too; None where it is. Raises 000106, 000108."""
    return None if literal is UNSET or bytes(literal) == b"null" else read_amount(name, literal, currency)


def _parsed_in(call: Call, currency: str) -> str:
    """An amount may have as many decimals as either currency: the refusal is about the currency, not about decimals."""
    return max(currency, call.currency or currency, key=lambda code: money.EXPONENTS.get(code, -1))


def price_offers(
    call: Call, currency: str, offers: Sequence[Offer | None], prices: Sequence[int], amount: int
) -> PricedLines:
    """The same of amounts that were read already; those of `call` are not looked at. Raises 000105."""
    for index, (line, offered) in enumerate(zip(call.items, offers, strict=True)):
        if offered is not None and offered.package.data_type != "TOTAL" and line.period_num is None:
            raise refusal.ParameterMissing(
                f"items[{index}].periodNum is required: {line.package_code} is sold by the day; "
                f"accepted: {offered.package.min_period_num} to {offered.package.max_period_num}"
            )
    lines = [
        OrderLine(
            package_code=line.package_code,
            quantity=line.quantity,
            period_num=line.period_num or 1,
            price=unit_price,
            supplier=offered.package.supplier if offered else "",
            fallback=offered.package.fallback if offered else "",
        )
        for line, unit_price, offered in zip(call.items, prices, offers, strict=True)
    ]
    return PricedLines(
        digest=digest(call.currency or currency, amount, call, prices),
        currency=currency,
        amount=amount,
        lines=tuple(lines),
        refused=_refuse_lines(call, currency, offers, prices, amount),
    )


def digest(currency: str, amount: int, call: Call, prices: Sequence[int]) -> bytes:
    """16 bytes over currency, amount and lines, whatever the order and spelling of the lines."""
    lines = sorted(
        [
            f"{line.package_code}\0{line.quantity}\0{line.period_num or 1}\0{price}"
            for line, price in zip(call.items, prices, strict=True)
        ]
    )
    return hashlib.sha256("\1".join((currency, str(amount), *lines)).encode()).digest()[:16]


def _refuse_lines(
    call: Call, currency: str, offers: Sequence[Offer | None], prices: Sequence[int], amount: int
) -> refusal.Refusal | None:
    """The first refusal that needs no wallet, in the order of specification 4.2."""
    existing = [offer for offer in offers if offer is not None]
    if len(existing) < len(offers):
        index = offers.index(None)
        return refusal.PackageUnknown(f"items[{index}].packageCode {call.items[index].package_code!r} does not exist")
    expected = [offer.price for offer in existing]
    if None in expected:
        index = expected.index(None)
        return refusal.NotOnSale(f"items[{index}].packageCode {call.items[index].package_code} is not on sale")
    inconsistent = _inconsistency(call, existing)
    if inconsistent:
        return refusal.LinesInconsistent(inconsistent)
    if call.currency not in (None, currency):
        return refusal.CurrencyDiffers(f"currency {call.currency!r} is not the wallet's; accepted: {currency}")
    if expected != list(prices):
        return _refuse_prices(currency, existing, prices)
    return _refuse_amount(call, currency, prices, amount)


def _inconsistency(call: Call, offers: Sequence[Offer]) -> str:
    """How the lines do not fit their packages (200008), or ""."""
    seen: dict[tuple[str, int], int] = {}
    for index, (line, offer) in enumerate(zip(call.items, offers, strict=True)):
        package, name = offer.package, f"items[{index}]"
        first = seen.setdefault((line.package_code, line.period_num or 1), index)
        if first != index:
            return f"{name} repeats the packageCode and periodNum of items[{first}]; add the quantities up in one line"
        if package.type == "TOPUP":
            return f"{name}.packageCode {line.package_code} recharges eSIMs: buy it by /esim/topup"
        if package.data_type == "TOTAL":
            if line.period_num not in (None, 1):
                return f"{name}.periodNum is {line.period_num}; {line.package_code} is a fixed package: leave it out"
        elif not package.min_period_num <= (line.period_num or 0) <= package.max_period_num:
            return (
                f"{name}.periodNum is {line.period_num}; {line.package_code} takes "
                f"{package.min_period_num} to {package.max_period_num}"
            )
        if line.quantity > package.max_quantity:
            return f"{name}.quantity is {line.quantity}; {line.package_code} takes at most {package.max_quantity}"
    profiles = sum([line.quantity for line in call.items])
    if profiles > MAX_PROFILES_PER_ORDER:
        return f"items ask for {profiles} profiles; an order takes at most {MAX_PROFILES_PER_ORDER}"
    return ""


def _refuse_prices(currency: str, offers: Sequence[Offer], prices: Sequence[int]) -> refusal.Refusal:
    wrong = [
        {
            "index": index,
            "packageCode": offer.package.package_code,
            "expectedPrice": money.text(offer.price or 0, currency),
            "currency": currency,
        }
        for index, (offer, price) in enumerate(zip(offers, prices, strict=True))
        if price != offer.price
    ]
    first = wrong[0]
    return refusal.PriceDiffers(
        f"items[{first['index']}].price is not your price of {first['packageCode']}; "
        f"accepted: {first['expectedPrice']} {currency}",
        {"lines": wrong},
    )


def _refuse_amount(call: Call, currency: str, prices: Sequence[int], amount: int) -> refusal.Refusal | None:
    expected = _sum(call, prices)
    if amount == expected:
        return None
    text = money.text(expected, currency)
    return refusal.AmountDiffers(
        f"amount is not the sum of price x quantity x periodNum; accepted: {text} {currency}", {"expectedAmount": text}
    )


def _sum(call: Call, prices: Sequence[int]) -> int:
    return sum([price * line.quantity * (line.period_num or 1) for price, line in zip(prices, call.items, strict=True)])


def _amounts(call: PlaceOrder, currency: str) -> tuple[tuple[int, ...], int]:
    """The prices of the lines, and the amount. Raises 000106, 000108 for the first that is malformed."""
    try:
        prices = tuple([_amount(bytes(line.price), currency) for line in call.items])
        return prices, _amount(bytes(call.amount), currency)
    except ValueError:
        named = {f"items[{index}].price": line.price for index, line in enumerate(call.items)} | {"amount": call.amount}
        raise next(
            refused for name, literal in named.items() if (refused := _refuse_literal(name, literal, currency))
        ) from None


@lru_cache(8192)
def _amount(literal: bytes, currency: str) -> int:
    """A JSON number or string as ten-thousandths, read as written and not as a float (specification 10). Raises
    ValueError."""
    return money.parse(literal.decode().strip('"'), currency)


def read_amount(name: str, literal: msgspec.Raw, currency: str) -> int:
    """An amount as sent, in ten-thousandths. Raises 000106, 000108."""
    if refused := _refuse_literal(name, literal, currency):
        raise refused
    return _amount(bytes(literal), currency)


def _refuse_literal(name: str, literal: msgspec.Raw, currency: str) -> refusal.Refusal | None:
    if bytes(literal) in (b"null", b'""'):
        return refusal.ParameterEmpty(f"{name} is empty; accepted: a decimal number or string such as 1.80")
    try:
        _amount(bytes(literal), currency)
    except ValueError as error:
        return refusal.ParameterInvalid(f"{name} {error}")
    return None
