"""Suppliers: their health, open purchases, and purchases whose outcome is unknown."""

from decimal import Decimal

from dealer_server.console.operator.queues import parked_purchases
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATOR_SUPPORT, OPERATORS
from dealer_server.console.shared.request_context import Html, NotFound, Redirect, RequestContext
from dealer_server.operations.suppliers.configure import set_supplier_status
from dealer_server.operations.suppliers.describe import check_health, show_suppliers
from dealer_server.operations.suppliers.resolve import list_parked, resolve_applied, resolve_bought, resolve_not_bought
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.suppliers.supplier import free_iccids
from dealer_server.suppliers.contract import Health

SUPPLIERS, SUPPLIER = "/console/suppliers", "/console/suppliers/{code}"
TEMPLATE = "operator/supplier.html"
MENU = MenuEntry("Suppliers", "truck-delivery", 110, parked_purchases)


@page(SUPPLIERS, OPERATORS, "operator/suppliers.html", MENU)
async def suppliers(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        rows = await console_suppliers.list_suppliers(connection)
        open_purchases = await console_suppliers.open_purchases(connection)
        stock = await console_suppliers.stock(connection)
    return Html(
        suppliers=[(row, [some for some in open_purchases if some.supplier == row.code]) for row in rows],
        balance_text=_balance_text,
        stock=stock,
        parked=await list_parked(context.parts.database),
    )


@page(SUPPLIER, OPERATORS, TEMPLATE)
async def show_supplier(context: RequestContext) -> Html:
    return await _supplier(context)


@action(f"{SUPPLIER}/check", OPERATOR_SUPPORT, TEMPLATE)
async def check(context: RequestContext) -> Html:
    """Asks the supplier for its health now."""
    parts = context.parts
    return await _supplier(context, await check_health(parts.database, parts.data_keys, context.path["code"]))


async def _supplier(context: RequestContext, health: Health | None = None) -> Html:
    code, parts = context.path["code"], context.parts
    async with parts.database.connection() as connection:
        row = next((row for row in await console_suppliers.list_suppliers(connection) if row.code == code), None)
        if row is None:
            raise NotFound
        open_purchases = await console_suppliers.open_purchases(connection, code)
        free = await free_iccids(connection, code)
    totals = None
    if "totals" in context.query:
        [totals] = await show_suppliers(parts.database, parts.data_keys, code)
    return Html(
        supplier=row,
        open_purchases=open_purchases,
        free=free,
        health=health,
        balance_text=_balance_text,
        totals=totals,
        parked=await list_parked(parts.database, code),
    )


def _balance_text(balance: int) -> str:
    """Our balance with a supplier, in major units with 2 or 4 decimals: its currency may be one that we do not know."""
    return f"{Decimal(balance).scaleb(-4):.4f}".removesuffix("00")


@action(f"{SUPPLIER}/status", OPERATOR_ADMINS)
async def set_status(context: RequestContext) -> Redirect:
    code, status = context.path["code"], "PAUSED" if context.form.get("status") == "PAUSED" else "ACTIVE"
    await set_supplier_status(context.parts.database, code, status, context.author)
    return Redirect(f"{SUPPLIERS}/{code}", f"{code} is {status}")


@action(f"{SUPPLIERS}/resolve", OPERATOR_ADMINS)
async def resolve(context: RequestContext) -> Redirect:
    """What an operator found out about a parked purchase."""
    form, parts = context.form, context.parts
    unit_key = form.get("unit", "")
    if form.get("outcome") == "bought":
        await resolve_bought(
            *(parts.database, parts.data_keys, unit_key, form.get("iccid", "").strip()),
            *(form.get("code", "").strip(), context.author, lambda: context.now),
            ref=form.get("ref", "").strip() or None,
        )
    elif form.get("outcome") == "applied":
        await resolve_applied(parts.database, parts.data_keys, unit_key, context.author, lambda: context.now)
    else:
        await resolve_not_bought(parts.database, parts.data_keys, unit_key, context.author, lambda: context.now)
    return Redirect(SUPPLIERS, f"{unit_key} is resolved: {form.get('outcome', 'not bought')}")
