"""What does a sale leave its dealer? At the suggested prices of today: what its buyers paid is not known."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.catalogue.package import sold_by_day
from dealer_server.rules.orders.model import Item, Order, Profile
from dealer_server.rules.reports.sums import Sums
from dealer_server.store.console.orders import OrderRow


class OfPackage(Protocol):
    """What a dealer bought of one package in some days: a row of a report."""

    @property
    def keys(self) -> Mapping[str, Any]: ...
    @property
    def currency(self) -> str: ...
    @property
    def sums(self) -> Sums: ...


def suggested_price(catalogue: Catalogue, package_code: str, currency: str) -> int | None:
    """In ten-thousandths; of a day for a package that is sold by the day. None where there is none in this currency."""
    package = catalogue.package(package_code)
    return package.retail_price or None if package and package.currency == currency else None


def worth(catalogue: Catalogue, rows: Iterable[OfPackage]) -> Mapping[str, int]:
    """What packages bring at their suggested price of today, of what was not refunded, by packageCode. Those without
    such a price, and those sold by the day, whose days are not known here, are left out."""
    found = Counter[str]()
    for row in rows:
        package = catalogue.package(row.keys.get("package", ""))
        if package is None or sold_by_day(package.data_type) or "day" in row.keys:
            continue
        if price := suggested_price(catalogue, package.package_code, row.currency):
            found[package.package_code] += (row.sums.sold - row.sums.refunded) * price
    return found


def profit(catalogue: Catalogue, rows: Sequence[OfPackage], currency: str) -> int | None:
    """What they leave of all that `worth` knows, each package in one row; None where that is nothing."""
    own = [row for row in rows if row.currency == currency]
    brought = worth(catalogue, own)
    spent = sum(row.sums.net for row in own if brought.get(row.keys["package"]))
    return sum(brought.values()) - spent if any(brought.values()) else None


def profit_of_row(catalogue: Catalogue, row: OrderRow) -> int | None:
    """None where it is not known: of an order with a refund, done or asked for, and of one by the day, whose days no
    list knows."""
    total = 0
    for code, quantity in row.lines:
        package = catalogue.package(code)
        price = suggested_price(catalogue, code, row.currency)
        if price is None or package is None or sold_by_day(package.data_type):
            return None
        total += quantity * price
    kept = row.pay_status == "PAID" and row.order_status != "REFUNDING" and not row.refund_amount
    return total - row.amount if kept else None


def profit_of_esim(catalogue: Catalogue, order: Order, item: Item, profile: Profile) -> int | None:
    """None where it is not known, and of one that is refunded or is to be."""
    price = suggested_price(catalogue, item.package_code, order.currency)
    return None if price is None or profile.refunded or profile.held else (price - item.price) * item.period_num


def profit_of_order(catalogue: Catalogue, order: Order) -> int | None:
    """None where it is not known, and of an order with a refund."""
    total = 0
    for item in order.items:
        if (price := suggested_price(catalogue, item.package_code, order.currency)) is None:
            return None
        total += price * item.quantity * item.period_num
    return None if order.refund_amount or order.order_status == "REFUNDING" else total - order.amount
