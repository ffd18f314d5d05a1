"""Which packages does a dealer find who looks for something to sell?"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from dealer_server.rules.catalogue.countries import COUNTRIES
from dealer_server.rules.catalogue.package import Package, sold_by_day

Kind = Literal["FIXED", "DAILY", "RECHARGE"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class OnSale(NamedTuple):
    """A package at the dealer's price, in ten-thousandths; that of a day for DAILY_*. `search_text`: casefolded."""

    package: Package
    price: int
    search_text: str

    @property
    def kind(self) -> Kind:
        """RECHARGE is bought for an eSIM that there is; the others are eSIMs with a fixed plan, or by the day."""
        if self.package.type == "TOPUP":
            return "RECHARGE"
        return "DAILY" if sold_by_day(self.package.data_type) else "FIXED"

    def days_fit(self, days: int) -> bool:
        """Whether it lasts so many days at least."""
        package = self.package
        return days <= (package.max_period_num if sold_by_day(package.data_type) else package.duration)

    def data_fits(self, data_bytes: int) -> bool:
        """Whether it has that much at least; of a day for DAILY_*."""
        return self.package.data_bytes is None or self.package.data_bytes >= data_bytes

    def covers(self, place: str) -> bool:
        """A country's code, or that of a bundle, which is then its own place."""
        return place == self.package.location_code or place in self.package.locations


class Choice(NamedTuple):
    """What is looked for; None or "" asks for nothing. `most`: the highest price, in ten-thousandths."""

    words: str = ""
    place: str = ""
    kind: Kind | None = None
    data_bytes: int | None = None
    days: int | None = None
    most: int | None = None


def position(one: OnSale) -> tuple[str, str, int, bool, int, int, str]:
    """Where it stands in a list that is not sorted by price."""
    package, kind = one.package, KINDS.index(one.kind)
    volume = package.data_bytes or 0
    place = (package.location_name, package.location_code)
    return (*place, kind, package.data_bytes is None, volume, package.duration, package.package_code)


def choose(on_sale: Iterable[OnSale], wanted: Choice, *, by_price: bool = False) -> list[OnSale]:
    """What fits, in the order it came, or the cheapest first. Each word must be found."""
    words = wanted.words.casefold().split()
    found = [
        one
        for one in on_sale
        if (not wanted.place or one.covers(wanted.place))
        and wanted.kind in (None, one.kind)
        and (wanted.data_bytes is None or one.data_fits(wanted.data_bytes))
        and (wanted.days is None or one.days_fit(wanted.days))
        and (wanted.most is None or one.price <= wanted.most)
        and all(word in one.search_text for word in words)
    ]
    return sorted(found, key=lambda one: one.price) if by_price else found


def nearest(on_sale: Iterable[OnSale], package: Package) -> list[OnSale]:
    """What may be sold in its place, the nearest first: it works in all its countries and is sold as it is. The same
    place comes before a wider one, what lasts as long before what is over earlier, then what comes nearest in volume,
    more before less, and in days."""

    def distance(one: OnSale) -> tuple[bool, bool, float, bool, int, int]:
        volume, wanted = one.package.data_bytes or 0, package.data_bytes or 0
        ratio = max(volume, wanted) / max(min(volume, wanted), 1)
        days = abs(one.package.duration - package.duration)
        elsewhere, shorter = one.package.location_code != package.location_code, one.package.duration < package.duration
        return elsewhere, shorter, ratio, volume < wanted, days, one.price

    return sorted(
        (
            one
            for one in on_sale
            if one.package.package_code != package.package_code
            and (one.package.type, one.package.data_type) == (package.type, package.data_type)
            and set(package.locations) <= set(one.package.locations)
        ),
        key=distance,
    )


def country_name(code: str) -> str:
    return COUNTRIES[code].name if code in COUNTRIES else code
