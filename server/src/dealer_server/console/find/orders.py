"""The list of orders, of all dealers or of one: its filters, its order, its pages, and its file."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dealer_server.console.find import dates, files, tabs
from dealer_server.console.shared import params, words
from dealer_server.console.shared.params import COUNTED, CREATED, NEWEST_FIRST, PAGE_SIZE
from dealer_server.console.shared.request_context import Download, Html, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.console import orders as store
from dealer_server.store.console import queues
from dealer_server.store.console.orders import OrderFilter, OrderRow
from dealer_server.store.console.pages import ListPage

ORDERS = "/console/orders"
More = Callable[[Connection, Sequence[OrderRow]], Awaitable[dict[str, Any]]]
STATUSES = ("PAID", "FULFILLING", "COMPLETED", "REVIEW", "REFUNDING", "REFUNDED", "PENDING", "PARTIAL", "DELIVERED",
            "FAILED")  # fmt: skip
FILTERS = ("dealer", "status", "package", "from", "to")
PRESETS: Mapping[str, str] = {
    "Waiting": "FULFILLING",
    "Delivered": "COMPLETED",
    "Failed": "FAILED",
    words.IN_REVIEW: "REVIEW",
    words.text("REFUNDING"): "REFUNDING",
    "Refunded": "REFUNDED",
}
"""Tabs and the state that each lists; each order is in one of them (store/console/orders.py)."""
SELDOM = words.text("REFUNDING")
"""A tab that is there only while it lists any, or is shown."""
CELLS: Mapping[str, Callable[[OrderRow], str]] = {
    "orderNo": lambda row: identity.order_no(row.order_id),
    "createTime": lambda row: f"{identity.created_at(row.order_id):%Y-%m-%dT%H:%M:%SZ}",
    "tenantId": lambda row: str(row.tenant_id),
    "dealer": lambda row: row.dealer,
    "transactionId": lambda row: row.transaction_id,
    "packages": lambda row: "; ".join(f"{code} x{quantity}" for code, quantity in row.lines),
    "currency": lambda row: row.currency,
    "amount": lambda row: money.text(row.amount, row.currency),
    "refundAmount": lambda row: money.text(row.refund_amount, row.currency),
    "payStatus": lambda row: row.pay_status,
    "deliveryStatus": lambda row: row.delivery_status,
    "orderStatus": lambda row: row.order_status,
    "orderType": lambda row: "TOPUP" if row.recharge else "BASE",
    "remark": lambda row: row.remark or "",
}
"""What a file has in each column, by its name."""


def filters(query: Mapping[str, str], tenant_id: int | None) -> OrderFilter:
    return OrderFilter(
        tenant_id=tenant_id,
        status=params.one_of(query, "status", STATUSES),
        package_code=params.text(query, "package"),
        start=params.day(query, "from"),
        end=params.day(query, "to", after=True),
    )


async def page(context: RequestContext, wanted: OrderFilter, more: More | None = None, **fields: Any) -> Html:
    """A page of the list; its template sees `fields` too, and what `more` reads of its rows."""
    order = params.order(context, ORDERS, CREATED, NEWEST_FIRST)
    oldest_first, seen = not order.descending, params.number(context.query, "before")
    faults = params.faults(context.query, status=STATUSES)
    found = ListPage[OrderRow]((), None)
    async with context.parts.database.connection() as connection:
        if not faults:
            found = await store.list_orders(connection, wanted, seen, PAGE_SIZE, oldest_first=oldest_first)
        fields |= await more(connection, found.rows) if more else {}
        reviewed = await in_review(connection, found.rows)
        counts = {} if faults else await _counts(connection, wanted)
    shown = next(
        (name for name, status in PRESETS.items() if status == wanted.status), None if wanted.status else "All"
    )
    presets = [
        (name, {"status": status}) for name, status in PRESETS.items() if name in (shown, *counts) or name != SELDOM
    ]
    return Html(
        orders=found.rows,
        in_review=reviewed,
        pager=params.list_pager(
            context,
            ORDERS,
            found.next,
            len(found.rows),
            "order",
            oldest_first=oldest_first,
            total=counts.get(shown or ""),
        ),
        order=order,
        tabs=await tabs.of(context, ORDERS, presets, counts, COUNTED),
        dates=dates.of(context, ORDERS),
        statuses=STATUSES,
        faults=faults,
        filtered=bool(faults) or wanted != OrderFilter(tenant_id=context.user.tenant_id),
        export=params.address(f"{ORDERS}.csv", params.filters(context)),
        **fields,
    )


async def _counts(connection: Connection, wanted: OrderFilter) -> dict[str, int]:
    """How many each tab lists; of more than COUNTED only that there are so many, and nothing of one package's."""
    if wanted.package_code:
        return {}
    found = await store.count_orders(connection, wanted, COUNTED)
    total = sum(found.values())
    if total >= COUNTED:
        return {"All": COUNTED}
    listed = {
        name: sum(count for states, count in found.items() if store.is_in(status, *states))
        for name, status in PRESETS.items()
    }
    return {"All": total, **{name: count for name, count in listed.items() if count or name != SELDOM}}


async def in_review(connection: Connection, rows: Sequence[OrderRow]) -> set[int]:
    """Those with a refund that an operator decides about."""
    refunding = [(row.tenant_id, row.order_id) for row in rows if row.order_status == "REFUNDING"]
    return await queues.reviewed_orders(connection, refunding)


async def export(context: RequestContext, wanted: OrderFilter, columns: tuple[str, ...]) -> Download:
    """All orders of the list, the newest first; who takes the file is in the audit log."""
    await params.record_export(context, "orders.export", wanted.tenant_id, FILTERS)
    return files.download(
        context,
        "orders",
        {name: CELLS[name] for name in columns},
        lambda connection, seen, size: store.list_orders(connection, wanted, seen, size),
    )
