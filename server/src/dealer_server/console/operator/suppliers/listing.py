"""Suppliers: how each is doing, purchases whose outcome is unknown, and what is left in stock."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from dealer_server.console.operator.incidents import findings
from dealer_server.console.operator.queues import parked_purchases
from dealer_server.console.operator.suppliers.fields import kind_title
from dealer_server.console.operator.suppliers.spending import spending
from dealer_server.console.shared import params
from dealer_server.console.shared.page import MenuEntry, action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.request_context import Html, Redirect, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.operations.suppliers.resolve import list_parked, resolve_applied, resolve_bought, resolve_not_bought
from dealer_server.rules import dates
from dealer_server.rules.incidents.health import supplier_word
from dealer_server.rules.money.money import fine_text
from dealer_server.rules.reports.period import day_of
from dealer_server.store.console import supplier_work
from dealer_server.store.console import suppliers as console_suppliers
from dealer_server.store.console.supplier_work import CallCounts
from dealer_server.store.console.suppliers import SupplierRow
from dealer_server.store.suppliers import outage
from dealer_server.suppliers.builtin.simulated import Simulated

SUPPLIERS, SUPPLIER = "/console/suppliers", "/console/suppliers/{code}"
COLUMNS: Mapping[str, Callable[[SupplierRow], Any]] = {
    "code": lambda row: row.code,
    "-balance": lambda row: (row.balance is not None, row.balance or 0, row.code),
    "-packages": lambda row: (row.packages, row.code),
}
HEALTH = ("DOWN", "FAILING", "DEGRADED", "NOT ASKED", "UP")
"""The worst first."""
HOURS = 24
WINDOW = timedelta(hours=6)
"""Of so many hours the share of calls is told: in a single one a call that fails is much of it."""
FEW = 10
"""Fewer calls of a day than this draw no line."""
MENU = MenuEntry("Suppliers", "truck-delivery", 95, parked_purchases)


@page(SUPPLIERS, OPERATORS, "operator/suppliers/list.html", MENU)
async def suppliers(context: RequestContext) -> Html:
    async with context.parts.database.connection() as connection:
        rows = await console_suppliers.list_suppliers(connection)
        open_purchases = await console_suppliers.open_purchases(connection)
        stock = await console_suppliers.stock(connection)
        counts = await findings.call_counts(connection, rows, context.now)
        trends = {
            code: await _trend(connection, code, context.now) for code, count in counts.items() if count.total >= FEW
        }
        spent = await spending(connection, rows, day_of(context.now))
        outages = await outage.latest(connection)
        is_test = context.parts.settings.environment == "test"
        simulated = await console_suppliers.packages_of_builtin(connection, Simulated.code) if is_test else 0
        words = words_of(rows, counts)
        degraded = await findings.degraded_of(connection, rows, counts, context.now)
        incidents = await findings.of_suppliers(connection, context, rows, counts, degraded)
    columns = {**COLUMNS, "health": lambda row: (row.status != "ACTIVE", HEALTH.index(words[row.code]), row.code)}
    order = params.order(context, SUPPLIERS, tuple(columns), "health")
    found = order.sorted(rows, {name.removeprefix("-"): by for name, by in columns.items()})
    return Html(
        suppliers=[(row, [some for some in open_purchases if some.supplier == row.code]) for row in found],
        incidents=incidents,
        counts=counts,
        health=words,
        trends=trends,
        spending=spent,
        outages=outages,
        lasted=dates.lasted,
        order=order,
        kind_title=kind_title,
        balance_text=fine_text,
        stock=stock,
        simulated=simulated,
        parked=await list_parked(context.parts.database),
    )


async def _trend(connection: Connection, code: str, now: datetime) -> list[float]:
    """How many percent of the calls of each hour and the 5 before it went well, of hours with any."""
    first = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    hours = await supplier_work.call_hours(connection, code, first, now)
    tried = [hour for hour in hours if hour.good + hour.bad]
    windows = [[one for one in tried if last.start - WINDOW < one.start <= last.start] for last in tried]
    return [100 * sum(one.good for one in some) / sum(one.good + one.bad for one in some) for some in windows]


def words_of(rows: Sequence[SupplierRow], counts: Mapping[str, CallCounts]) -> dict[str, str]:
    """The health of each in a word, by its code."""
    asked = {code: (count.total - count.failed, count.total) for code, count in counts.items()}
    return {row.code: supplier_word(row.up, *asked.get(row.code, (0, 0))) for row in rows}


@action(f"{SUPPLIERS}/resolve", OPERATOR_ADMINS)
async def resolve(context: RequestContext) -> Redirect:
    """What an operator found out about a parked purchase. `of`: the supplier on whose page it was said."""
    form, parts = context.form, context.parts
    unit_key = form.get("unit", "")
    if form.get("outcome") == "bought":
        await resolve_bought(
            parts.database,
            parts.data_keys,
            unit_key,
            form.get("iccid", "").strip(),
            form.get("code", "").strip(),
            context.author,
            lambda: context.now,
            ref=form.get("ref", "").strip() or None,
        )
    elif form.get("outcome") == "applied":
        await resolve_applied(parts.database, parts.data_keys, unit_key, context.author, lambda: context.now)
    else:
        await resolve_not_bought(parts.database, parts.data_keys, unit_key, context.author, lambda: context.now)
    async with parts.database.connection() as connection:
        known = [row.code for row in await console_suppliers.list_suppliers(connection)]
    back = f"{SUPPLIERS}/{form['of']}" if form.get("of") in known else SUPPLIERS
    return Redirect(back, f"{unit_key} is resolved: {form.get('outcome', 'not bought')}")
