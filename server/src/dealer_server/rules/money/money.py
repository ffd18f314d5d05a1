"""What is an amount of money? An integer of ten-thousandths of the major unit; decimal text on the wire, no floats."""

import re
from decimal import Decimal
from functools import lru_cache

SCALE = 10_000
"""Ten-thousandths in one major unit; ISO 4217 exponents are at most 4."""

_BY_EXPONENT = {
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE
        CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD
        HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK
        MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD
        RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH
        USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG
    """,
    3: "BHD IQD JOD KWD LYD OMR TND",
    4: "CLF UYW",
}
EXPONENTS = {code: exponent for exponent, codes in _BY_EXPONENT.items() for code in codes.split()}
"""Decimals of every active ISO 4217 currency. Metals and test codes have none and are not accepted."""

_FINEST = "CLF"

_LITERAL = {
    exponent: re.compile(r"(0|[1-9][0-9]{0,11})" + (rf"(?:\.([0-9]{{1,{exponent}}}))?" if exponent else "()?"))
    for exponent in _BY_EXPONENT
}


def exponent_of(currency: str) -> int:
    """How many decimals the currency has. Raises ValueError where ISO 4217 has no such currency."""
    exponent = EXPONENTS.get(currency)
    if exponent is None:
        raise ValueError("must be an ISO 4217 currency code such as USD")
    return exponent


def parse(text: str, currency: str) -> int:
    """Reads a decimal such as "1.80" as written, without float or Decimal, which accept "1e1000000", "1_0", "NaN" and
    Arabic digits. Raises ValueError, whose text says what is accepted."""
    exponent = exponent_of(currency)
    literal = _LITERAL[exponent].fullmatch(text)
    if literal is None:
        raise ValueError(f"must be {_accepted(exponent, currency)}")
    whole, fraction = literal.groups()
    return int(whole) * SCALE + int((fraction or "").ljust(4, "0"))


@lru_cache(8192)
def text(amount: int, currency: str) -> str:
    """An amount with the currency's decimals: 18000 USD is "1.80". One that is no multiple of `unit`, which only a
    change by hand leaves behind, has all four, so that an operator sees it."""
    exponent = exponent_of(currency) if amount % unit(currency) == 0 else 4
    whole, rest = divmod(abs(amount), SCALE)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{rest:04}"[: -(4 - exponent) or None].removesuffix(".")


def grouped(text: object) -> str:
    """For people: 1234.50 as 1,234.50, and a minus sign where it is below 0. Other texts stay as they are."""
    sign, digits = ("−", str(text)[1:]) if str(text).startswith("-") else ("", str(text))
    whole, point, fraction = digits.partition(".")
    return f"{sign}{int(whole):,}{point}{fraction}" if whole.isascii() and whole.isdigit() else str(text)


def shown(amount: int, currency: str) -> str:
    """For people: 1,234.50 USD."""
    return f"{grouped(text(amount, currency))} {currency}"


def fine_text(amount: int) -> str:
    """An amount with 2 or 4 decimals: what a supplier says may be finer than its currency, or in none that we know."""
    return f"{Decimal(amount).scaleb(-4):.4f}".removesuffix("00")


def parse_fine(text: str) -> int:
    """What `fine_text` writes: up to 4 decimals, whatever the currency. Raises ValueError, whose text says what is
    accepted."""
    try:
        return parse(text, _FINEST)
    except ValueError:
        raise ValueError("must be an amount such as 1.80, at most 12 digits and 4 decimals") from None


def unit(currency: str) -> int:
    """The smallest amount of the currency in ten-thousandths: 100 for USD, 10 000 for JPY."""
    return 10 ** (4 - exponent_of(currency))


def marked_up(price: int, basis_points: int, currency: str) -> int:
    """The price plus a markup in hundredths of a percent (also negative), rounded half-up to the currency's
    decimals."""
    assert price >= 0, "a price is never negative"
    assert basis_points >= -10_000, "a price is lowered by 100 % at most"
    step = unit(currency)
    return (2 * price * (10_000 + basis_points) + 10_000 * step) // (2 * 10_000 * step) * step


def _accepted(exponent: int, currency: str) -> str:
    """The accepted form of an amount, for an error message."""
    if exponent == 0:
        return f"a whole amount such as 180 ({currency} has no decimals), at most 12 digits"
    return f"a decimal such as 1.{'80'.ljust(exponent, '0')}, at most 12 digits and {exponent} decimals ({currency})"
