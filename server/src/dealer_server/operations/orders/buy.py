"""Buying at the console: what a person asks for becomes the order that /esim/order would place (specification 4.2)."""

from collections.abc import Mapping

import msgspec

from dealer_server.audit_context import Actor
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.orders.place import MailedOrder, PersonalOrder
from dealer_server.rules import refusal
from dealer_server.rules.install.languages import Language
from dealer_server.rules.money import money
from dealer_server.rules.orders.order import OrderRequest, order_request
from dealer_server.rules.orders.pricing import PriceList
from esim_dealer.wire import calls


def bought_line(
    tenant_id: int,
    catalogue: Catalogue,
    prices: PriceList,
    *,
    transaction_id: str,
    package_code: str,
    quantity: int,
    period_num: int | None,
    price: int,
    remark: str | None,
) -> OrderRequest:
    """An order of one line at the price that the person has seen, in ten-thousandths; another price of now refuses it.
    Raises 000105, 000106, 000108."""
    line = {"packageCode": package_code, "quantity": quantity, "price": _money(price, prices.currency)}
    if period_num is not None:
        line["periodNum"] = period_num
    fields: Mapping[str, object] = {
        "transactionId": transaction_id,
        "amount": _money(price * quantity * (period_num or 1), prices.currency),
        "items": [line],
        **({"remark": remark} if remark else {}),
    }
    try:
        call = msgspec.convert(fields, calls.PlaceOrder)
    except msgspec.ValidationError as why:
        raise refusal.ParameterInvalid(str(why)) from None
    return order_request(tenant_id, call, catalogue.price_lines(call, prices))


def personal(order: OrderRequest, act: Actor) -> PersonalOrder:
    """The order with the person who places it, for the audit log."""
    fields = {name: getattr(order, name) for name in OrderRequest.__struct_fields__}
    return PersonalOrder(**fields, act=act)


def mailed(order: OrderRequest, mail: str, language: Language) -> MailedOrder:
    """The order with whom its install pages are mailed to."""
    fields = {name: getattr(order, name) for name in OrderRequest.__struct_fields__}
    return MailedOrder(**fields, mail=mail, language=language)


def _money(amount: int, currency: str) -> msgspec.Raw:
    """As a call writes it."""
    return msgspec.Raw(msgspec.json.encode(money.text(amount, currency)))
