"""What was each call about? The number that it named, and where that leads to."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.rules.access import call_subject
from dealer_server.rules.orders import identity
from dealer_server.store.console import api_log
from dealer_server.store.console import orders as console_orders
from dealer_server.store.console.api_log import CallRow
from dealer_server.store.console.orders import Reference

OWN = ("transactionId", "refundTransactionId")
"""What the dealer calls its orders and refunds."""
_OTHERS = ("iccid", "profileId", "esimTranNo", "deliveryId")
_TOPUPS = "/account/topup"


class Subject(NamedTuple):
    """`kind`: the parameter that named it. `href`: "" where it leads nowhere."""

    kind: str
    text: str
    href: str


NOTHING = Subject("", "", "")


def named(row: CallRow) -> tuple[str, str]:
    """The parameter and its value; both are "" where a call named nothing."""
    return (row.subject_kind, row.subject) if row.body_head is None else call_subject.of_body(row.body_head)


async def of_calls(
    connection: Connection, tenant_id: int, calls: Iterable[tuple[str, tuple[str, str]]], *, by_reference: bool = False
) -> list[Subject]:
    """Of calls of these paths, which named these. `by_reference`: orders go by their dealer's own references."""
    calls = list(calls)
    numbers = {identity.order_id(text) for _, (kind, text) in calls if by_reference and kind == "orderNo"} - {None}
    references = await console_orders.references(connection, tenant_id, numbers) if numbers else {}
    own = {text for path, (kind, text) in calls if kind == "transactionId" and _TOPUPS not in path}
    orders = await api_log.orders_named(connection, tenant_id, own) if own else {}
    return [_subject(path, kind, text, orders, references) for path, (kind, text) in calls]


def _subject(
    path: str, kind: str, text: str, orders: Mapping[str, int], references: Mapping[int, Reference]
) -> Subject:
    """`references`: of the orders that go by them."""
    href, found = _href(path, kind, text, orders), references.get(identity.order_id(text) or 0)
    if kind == "orderNo" and found and found.own:
        return Subject("transactionId", found.own, href)
    return Subject(kind, text, href)


def _href(path: str, kind: str, text: str, orders: Mapping[str, int]) -> str:
    if kind == "orderNo" and identity.order_id(text) is not None:
        return f"/console/orders/{text}"
    if kind == "transactionId" and _TOPUPS not in path and text in orders:
        return f"/console/orders/{identity.order_no(orders[text])}"
    return f"/console/search?q={text}" if kind in _OTHERS and text.isalnum() else ""
