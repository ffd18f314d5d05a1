"""What is an amount of money? Ten-thousandths of the major unit as an integer; decimal text at the edge, no float."""

import re
from functools import lru_cache

SCALE = 10_000
"""Ten-thousandths in one major unit: enough for every ISO 4217 exponent."""

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
"""Decimals of every active ISO 4217 currency (metals and test codes have none and are no currency here)."""

_LITERAL = {
    exponent: re.compile(r"(0|[1-9][0-9]{0,11})" + (rf"(?:\.([0-9]{{1,{exponent}}}))?" if exponent else "()?"))
    for exponent in _BY_EXPONENT
}


def exponent_of(currency: str) -> int:
    """How many decimals the currency has; ValueError when it is none of ISO 4217."""
    exponent = EXPONENTS.get(currency)
    if exponent is None:
        raise ValueError("must be an ISO 4217 currency code such as USD")
    return exponent


def parse(text: str, currency: str) -> int:
    """Read a decimal such as "1.80" by its literal text; ValueError says what is accepted.

    Neither float nor Decimal sees the text: they take "1e1000000", "1_0", "NaN" and Arabic digits.
    """
    exponent = exponent_of(currency)
    literal = _LITERAL[exponent].fullmatch(text)
    if literal is None:
        raise ValueError(f"must be {_accepted(exponent, currency)}")
    whole, fraction = literal.groups()
    return int(whole) * SCALE + int((fraction or "").ljust(4, "0"))


@lru_cache(8192)
def text(amount: int, currency: str) -> str:
    """Write an amount at the currency's exponent: 18000 USD is "1.80". A sub-cent amount is our own mistake."""
    exponent = exponent_of(currency)
    assert amount % unit(currency) == 0, f"{amount} ten-thousandths are no {currency} amount"
    whole, rest = divmod(abs(amount), SCALE)
    sign = "-" if amount < 0 else ""
    return f"{sign}{whole}.{rest:04}"[: -(4 - exponent) or None].removesuffix(".")


def unit(currency: str) -> int:
    """The smallest amount of the currency in ten-thousandths: 100 for USD, 10 000 for JPY."""
    return 10 ** (4 - exponent_of(currency))


def marked_up(price: int, basis_points: int, currency: str) -> int:
    """The price raised (below zero: lowered) by hundredths of a percent, rounded half-up to the currency's exponent."""
    assert price >= 0, "a price is never negative"
    assert basis_points >= -10_000, "a price is lowered by 100 % at most"
    step = unit(currency)
    return (2 * price * (10_000 + basis_points) + 10_000 * step) // (2 * 10_000 * step) * step


def _accepted(exponent: int, currency: str) -> str:
    """The form of an amount in words, for the one who wrote it otherwise."""
    if exponent == 0:
        return f"a whole amount such as 180 ({currency} has no decimals), at most 12 digits"
    return f"a decimal such as 1.{'80'.ljust(exponent, '0')}, at most 12 digits and {exponent} decimals ({currency})"
