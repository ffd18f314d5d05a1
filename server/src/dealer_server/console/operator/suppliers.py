"""Suppliers: how they are, what is under way with them, and what became of purchases that nobody knows about."""

from decimal import Decimal

from dealer_server.console.operator import own
from dealer_server.console.operator.own import LOOK, PUSH, TERMS
from dealer_server.console.visit import Answer, Go, NotHere, Page, Route, Visit
from dealer_server.operations import supplier
from dealer_server.store import console_suppliers
from dealer_server.store.supplier import free_iccids
from dealer_server.suppliers.contract import Health


async def suppliers(visit: Visit) -> Page:
    async with visit.parts.database.connection() as connection:
        found = await console_suppliers.listed(connection)
        unfinished = await console_suppliers.unfinished(connection)
        stock = await console_suppliers.stock(connection)
    return own.page(
        visit,
        "suppliers",
        suppliers=[(one, [open for open in unfinished if open.supplier == one.code]) for one in found],
        left=_left,
        stock=stock,
        parked=await supplier.parked(visit.parts.database),
    )


async def one_supplier(visit: Visit) -> Page:
    return await _shown(visit, None)


async def _shown(visit: Visit, health: Health | None) -> Page:
    """A supplier's page, with how it answered just now."""
    code, parts = visit.path["code"], visit.parts
    async with parts.database.connection() as connection:
        found = next((one for one in await console_suppliers.listed(connection) if one.code == code), None)
        if found is None:
            raise NotHere
        unfinished = await console_suppliers.unfinished(connection, code)
        free = await free_iccids(connection, code)
    totals = None
    if "totals" in visit.query:
        [totals] = await supplier.show(parts.database, parts.data_keys, code)
    return own.page(
        visit,
        "supplier",
        supplier=found,
        unfinished=unfinished,
        free=free,
        health=health,
        left=_left,
        totals=totals,
        parked=await supplier.parked(parts.database, code),
    )


def _left(balance: int) -> str:
    """What we have with a supplier, in major units; its currency and its small change are no bank's."""
    text = f"{Decimal(balance).scaleb(-4):.4f}"
    return text.removesuffix("00")


async def check(visit: Visit) -> Answer:
    """Asks the supplier now."""
    code, parts = visit.path["code"], visit.parts
    return await _shown(visit, await supplier.check(parts.database, parts.data_keys, code))


async def set_status(visit: Visit) -> Answer:
    code, status = visit.path["code"], "PAUSED" if visit.form.get("status") == "PAUSED" else "ACTIVE"
    await supplier.set_status(visit.parts.database, code, status, visit.author)
    return Go(f"/console/suppliers/{code}", f"{code} is {status}")


async def resolve(visit: Visit) -> Answer:
    """What an operator found out about a parked purchase."""
    form, parts = visit.form, visit.parts
    unit_key = form.get("unit", "")
    if form.get("outcome") == "bought":
        await supplier.bought(
            *(parts.database, parts.data_keys, unit_key, form.get("iccid", "").strip()),
            *(form.get("code", "").strip(), visit.author, lambda: visit.now),
            ref=form.get("ref", "").strip() or None,
        )
    else:
        await supplier.not_bought(parts.database, parts.data_keys, unit_key, visit.author, lambda: visit.now)
    return Go("/console/suppliers", f"{unit_key} goes on: {form.get('outcome', 'not bought')}")


ROUTES: tuple[Route, ...] = (
    Route("GET", "/console/suppliers", LOOK, suppliers, "Suppliers"),
    Route("POST", "/console/suppliers/resolve", TERMS, resolve),
    Route("GET", "/console/suppliers/{code}", LOOK, one_supplier),
    Route("POST", "/console/suppliers/{code}/check", PUSH, check),
    Route("POST", "/console/suppliers/{code}/status", TERMS, set_status),
)
