"""What does a sale leave its dealer? At the suggested prices of today: what its buyers paid is not known."""

from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.rules.catalogue.package import sold_by_day
from dealer_server.rules.orders.model import Order
from dealer_server.store.console.orders import OrderRow


def suggested_price(catalogue: Catalogue, package_code: str, currency: str) -> int | None:
    """In ten-thousandths; of a day for a package that is sold by the day. None where there is none in this currency."""
    package = catalogue.package(package_code)
    return package.retail_price or None if package and package.currency == currency else None


def profit_of_row(catalogue: Catalogue, row: OrderRow) -> int | None:
    """None where it is not known: of an order with a refund, and of one by the day, whose days no list knows."""
    total = 0
    for code, quantity in row.lines:
        package = catalogue.package(code)
        price = suggested_price(catalogue, code, row.currency)
        if price is None or package is None or sold_by_day(package.data_type):
            return None
        total += quantity * price
    return total - row.amount if row.pay_status == "PAID" and not row.refund_amount else None


def profit_of_order(catalogue: Catalogue, order: Order) -> int | None:
    """None where it is not known, and of an order with a refund."""
    total = 0
    for item in order.items:
        if (price := suggested_price(catalogue, item.package_code, order.currency)) is None:
            return None
        total += price * item.quantity * item.period_num
    return None if order.refund_amount or order.order_status == "REFUNDING" else total - order.amount
