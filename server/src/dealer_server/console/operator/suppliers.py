"""Suppliers: how they are, what is under way with them, and what became of purchases that nobody knows about."""

from decimal import Decimal

from dealer_server.console.operator import permissions
from dealer_server.console.operator.permissions import LOOK, PUSH, TERMS
from dealer_server.console.shared.request_context import Answer, NotFound, Page, Redirect, RequestContext, Route
from dealer_server.operations.suppliers.configure import set_supplier_status
from dealer_server.operations.suppliers.describe import check_health, show_suppliers
from dealer_server.operations.suppliers.resolve import list_parked, resolve_bought, resolve_not_bought
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.suppliers.supplier import free_iccids
from dealer_server.suppliers.contract import Health


async def suppliers(context: RequestContext) -> Page:
    async with context.parts.database.connection() as connection:
        found = await console_suppliers.listed(connection)
        unfinished = await console_suppliers.unfinished(connection)
        stock = await console_suppliers.stock(connection)
    return permissions.page(
        context,
        "suppliers",
        suppliers=[(one, [open for open in unfinished if open.supplier == one.code]) for one in found],
        left=_left,
        stock=stock,
        parked=await list_parked(context.parts.database),
    )


async def one_supplier(context: RequestContext) -> Page:
    return await _shown(context, None)


async def _shown(context: RequestContext, health: Health | None) -> Page:
    """A supplier's page, with how it answered just now."""
    code, parts = context.path["code"], context.parts
    async with parts.database.connection() as connection:
        found = next((one for one in await console_suppliers.listed(connection) if one.code == code), None)
        if found is None:
            raise NotFound
        unfinished = await console_suppliers.unfinished(connection, code)
        free = await free_iccids(connection, code)
    totals = None
    if "totals" in context.query:
        [totals] = await show_suppliers(parts.database, parts.data_keys, code)
    return permissions.page(
        context,
        "supplier",
        supplier=found,
        unfinished=unfinished,
        free=free,
        health=health,
        left=_left,
        totals=totals,
        parked=await list_parked(parts.database, code),
    )


def _left(balance: int) -> str:
    """What we have with a supplier, in major units; its currency and its small change are no bank's."""
    text = f"{Decimal(balance).scaleb(-4):.4f}"
    return text.removesuffix("00")


async def check(context: RequestContext) -> Answer:
    """Asks the supplier now."""
    code, parts = context.path["code"], context.parts
    return await _shown(context, await check_health(parts.database, parts.data_keys, code))


async def set_status(context: RequestContext) -> Answer:
    code, status = context.path["code"], "PAUSED" if context.form.get("status") == "PAUSED" else "ACTIVE"
    await set_supplier_status(context.parts.database, code, status, context.author)
    return Redirect(f"/console/suppliers/{code}", f"{code} is {status}")


async def resolve(context: RequestContext) -> Answer:
    """What an operator found out about a parked purchase."""
    form, parts = context.form, context.parts
    unit_key = form.get("unit", "")
    if form.get("outcome") == "bought":
        await resolve_bought(
            *(parts.database, parts.data_keys, unit_key, form.get("iccid", "").strip()),
            *(form.get("code", "").strip(), context.author, lambda: context.now),
            ref=form.get("ref", "").strip() or None,
        )
    else:
        await resolve_not_bought(parts.database, parts.data_keys, unit_key, context.author, lambda: context.now)
    return Redirect("/console/suppliers", f"{unit_key} goes on: {form.get('outcome', 'not bought')}")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/suppliers", LOOK, suppliers, "Suppliers"),
    Route("POST", "/console/suppliers/resolve", TERMS, resolve),
    Route("GET", "/console/suppliers/{code}", LOOK, one_supplier),
    Route("POST", "/console/suppliers/{code}/check", PUSH, check),
    Route("POST", "/console/suppliers/{code}/status", TERMS, set_status),
)
