"""Who makes a package's eSIMs: its suppliers in order, with their costs, and what of the price a purchase must leave.

The form is edited as a whole: adding, moving and removing a supplier shows it anew, and only Save writes it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dealer_server import store
from dealer_server.console.shared import params
from dealer_server.console.shared.page import action, page
from dealer_server.console.shared.permissions import OPERATOR_ADMINS, OPERATORS
from dealer_server.console.shared.request_context import Answer, Html, NotFound, Redirect, RequestContext
from dealer_server.operations.catalogue.below_cost import cost_text
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.suppliers.configure import MOST_HOPS, route_version, set_route
from dealer_server.operations.versions import ChangedMeanwhile, Field
from dealer_server.rules.catalogue import margin
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money, percent
from dealer_server.rules.orders.model import STOCK
from dealer_server.rules.price_lists import price_list
from dealer_server.store.console import packages as console_packages
from dealer_server.store.console import supplier_work
from dealer_server.store.console.supplier_work import DealerPrice
from dealer_server.store.suppliers.purchase import Hop

ROUTE = "/console/packages/{code}/route"
TEMPLATE = "operator/suppliers/route.html"
FIELDS = ("supplier", "sku", "cost", "currency")
DEALERS_NAMED = 5
LONGEST_SKU = 64
Row = Mapping[str, str]
"""A supplier of the route as the form has it, by FIELDS."""


class Stored(NamedTuple):
    """A package with its route. `floor`: its own margin floor in basis points, None: the platform's."""

    package: Package
    hops: Sequence[Hop]
    floor: int | None
    suppliers: Sequence[str]

    @property
    def version(self) -> str:
        return route_version(self.hops, self.floor)

    @property
    def rows(self) -> list[dict[str, str]]:
        return [
            {
                "supplier": hop.supplier,
                "sku": hop.sku,
                "cost": "" if hop.cost is None else money.fine_text(hop.cost),
                "currency": hop.cost_currency or self.package.currency,
            }
            for hop in self.hops
        ]

    @property
    def floor_text(self) -> str:
        return "" if self.floor is None else percent.number(self.floor)


class RouteFaults(OperatorError):
    """`faults`: what was wrong with a field of the form, by its name."""

    def __init__(self, faults: Mapping[str, str]):
        super().__init__("; ".join(faults.values()))
        self.faults = faults


class Judged(NamedTuple):
    """What a supplier's `cost` leaves of the price, in hundredths of a percent of it; None where that is not known.
    `skipped`: why a purchase at the dealer price would not be sent there. `losing`: the dealers that pay less than the
    cost."""

    cost: int = 0
    share: int | None = None
    skipped: str = ""
    losing: Sequence[DealerPrice] = ()


@page(ROUTE, OPERATORS, TEMPLATE)
async def show_route(context: RequestContext) -> Html:
    """The query may have fields of the form, for what they would come to as they are typed."""
    stored, query = await _stored(context), context.query
    rows = _rows(query)
    return await _form(context, stored, rows or stored.rows, query.get("floor", "") if rows else stored.floor_text)


@action(ROUTE, OPERATOR_ADMINS, TEMPLATE)
async def change_route(context: RequestContext) -> Answer:
    """`do`: save, add, or up, down or remove with the number of a row."""
    stored, rows, floor = await _stored(context), _rows(context.form), context.form.get("floor", "").strip()
    do, _, at = context.form.get("do", "save").partition(":")
    if do != "save":
        shown = _edited(rows, do, params.number({"at": at}, "at"), stored.package.currency)
        return await _form(context, stored, shown, floor)
    try:
        hops, basis_points = _read(rows, floor, stored)
        await set_route(
            context.parts.database,
            stored.package.package_code,
            hops,
            context.author,
            lambda: context.now,
            floor=basis_points,
            version=context.form.get("version"),
        )
    except ChangedMeanwhile as why:
        stored = await _stored(context)
        return await _form(context, stored, rows, floor, status=409, changed=why.fields, version=why.version)
    except RouteFaults as why:
        return await _form(context, stored, rows, floor, status=400, errors=why.faults)
    except OperatorError as why:
        return await _form(context, stored, rows, floor, status=400, fault=str(why))
    code = stored.package.package_code
    return Redirect(ROUTE.format(code=code), f"{code} is made by {', then '.join(hop.supplier for hop in hops)}")


def _rows(form: Mapping[str, str]) -> list[dict[str, str]]:
    """As many as the form has, in its order."""
    found = list[dict[str, str]]()
    for at in range(MOST_HOPS):
        if f"supplier-{at}" in form or f"sku-{at}" in form:
            found.append({name: form.get(f"{name}-{at}", "").strip() for name in FIELDS})
    return found


def _edited(rows: list[dict[str, str]], do: str, at: int | None, currency: str) -> list[dict[str, str]]:
    """The rows with one added, moved or removed; what makes no sense changes nothing."""
    if do == "add" and len(rows) < MOST_HOPS:
        return [*rows, {"supplier": "", "sku": "", "cost": "", "currency": currency}]
    if at is None or at >= len(rows):
        return rows
    if do == "remove":
        return [row for position, row in enumerate(rows) if position != at]
    to = at - 1 if do == "up" else at + 1
    if do in ("up", "down") and 0 <= to < len(rows):
        rows[at], rows[to] = rows[to], rows[at]
    return rows


def _read(rows: Sequence[Row], floor: str, stored: Stored) -> tuple[list[Hop], int | None]:
    """Raises RouteFaults with all that was wrong, OperatorError."""
    faults: dict[str, str] = {}
    hops = list[Hop]()
    for at, row in enumerate(rows):
        hops.append(_hop(at, row, stored, [hop.supplier for hop in hops], faults))
    basis_points = None
    if floor:
        try:
            basis_points = margin.read_percent(floor)
        except ValueError as error:
            faults["floor"] = f"“{floor[:40]}” is not accepted: it {error}, or empty."
    if not rows:
        raise OperatorError("A route names at least one supplier. To stop selling the package, take it off sale")
    if faults:
        raise RouteFaults(faults)
    return hops, basis_points


def _hop(at: int, row: Row, stored: Stored, before: Sequence[str], faults: dict[str, str]) -> Hop:
    """One supplier of the route; adds to `faults` what is wrong with it."""
    supplier, sku, currency = row["supplier"], row["sku"], row["currency"].upper() or stored.package.currency
    if supplier not in stored.suppliers:
        given = f"“{supplier[:64]}” is no supplier" if supplier else "Missing"
        faults[f"supplier-{at}"] = f"{given}: choose one of {', '.join(stored.suppliers)}."
    elif supplier in before:
        faults[f"supplier-{at}"] = f"{supplier} stands on the route already: each supplier stands there once."
    elif supplier == STOCK and before:
        faults[f"supplier-{at}"] = "stock can only be the first of a route."
    if not 0 < len(sku) <= LONGEST_SKU:
        problem = "Too long" if sku else "Missing"
        faults[f"sku-{at}"] = f"{problem}: what the supplier calls the package, 1 to {LONGEST_SKU} characters."
    if currency not in money.EXPONENTS:
        faults[f"currency-{at}"] = f"“{currency[:8]}” is not accepted: it must be an ISO 4217 currency such as USD."
        return Hop(supplier, sku, None, None)
    if not row["cost"]:
        return Hop(supplier, sku, None, None)
    try:
        return Hop(supplier, sku, money.parse_fine(row["cost"]), currency)
    except ValueError as error:
        faults[f"cost-{at}"] = f"“{row['cost'][:40]}” is not accepted: it {error}, or empty where none is agreed."
        return Hop(supplier, sku, None, None)


async def _stored(context: RequestContext) -> Stored:
    """Raises NotFound."""
    code = context.path["code"]
    async with context.parts.database.connection() as connection:
        package = (await console_packages.by_code(connection, [code])).get(code)
        if package is None:
            raise NotFound
        hops = (await store.purchase.routes(connection, [code])).get(code, [])
        floor = (await store.purchase.margin_floors(connection, [code])).get(code)
        suppliers = [*await store.supplier.codes(connection), STOCK]
    return Stored(package, hops, floor, suppliers)


async def _form(
    context: RequestContext,
    stored: Stored,
    rows: Sequence[Row],
    floor: str,
    *,
    status: int = 200,
    errors: Mapping[str, str] | None = None,
    fault: str = "",
    changed: Sequence[Field] = (),
    version: str = "",
) -> Html:
    """`changed`, `version`: what somebody else has changed, and as what. Rows can be added in the form, so it is shown
    again here, and not by console/endpoint.py."""
    platform = context.parts.settings.margin_floor_basis_points
    saved = list(rows) == stored.rows and floor == stored.floor_text
    return Html(
        status,
        package=stored.package,
        stored=stored,
        rows=[(row, judged) for row, judged in zip(rows, await _judge(context, stored, rows, floor), strict=True)],
        floor=floor,
        platform_floor="" if platform is None else percent.shown(platform),
        errors=errors or {},
        fault=fault,
        conflict=changed,
        version=version or context.form.get("version") or stored.version,
        unsaved=not saved and status == 200,
        most=MOST_HOPS,
        price=money.text(stored.package.price, stored.package.currency),
        cost_text=cost_text,
    )


async def _judge(context: RequestContext, stored: Stored, rows: Sequence[Row], floor: str) -> list[Judged]:
    package, platform = stored.package, context.parts.settings.margin_floor_basis_points
    try:
        basis_points = margin.read_percent(floor) if floor else platform
    except ValueError:
        basis_points = None
    judged = list[Judged]()
    async with context.parts.database.connection() as connection:
        for row in rows:
            try:
                cost = money.parse_fine(row["cost"]) if row["cost"] else None
            except ValueError:
                cost = None
            if cost is None or row["currency"] != package.currency:
                judged.append(Judged())
                continue
            skipped = basis_points is not None and margin.below_floor(
                package.price, cost, package.currency, basis_points
            )
            losing = await supplier_work.dealer_prices_below(connection, package, cost, DEALERS_NAMED + 1)
            judged.append(Judged(cost, price_list.margin(package.price, cost), skipped or "", losing))
    return judged
