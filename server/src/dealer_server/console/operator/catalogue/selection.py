"""Packages that were chosen in the list: put on sale, taken off it, or set on a price list, all together."""

from collections.abc import Mapping
from typing import Literal, get_args

from dealer_server import store
from dealer_server.console.operator.catalogue.package import PACKAGES
from dealer_server.console.shared import params
from dealer_server.console.shared.forms.confirmation import confirmed
from dealer_server.console.shared.page import action
from dealer_server.console.shared.permissions import OPERATOR_ADMINS
from dealer_server.console.shared.rendering import many
from dealer_server.console.shared.request_context import Answer, Html, Redirect, RequestContext
from dealer_server.operations.catalogue.set_status import set_package_status
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.price_lists import change
from dealer_server.operations.tenants import parsing
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money
from dealer_server.rules.price_lists import list_file
from dealer_server.rules.price_lists.price_list import HIGHEST_MARKUP, LOWEST_MARKUP
from dealer_server.store.console import packages as console_packages

SELECTED, DECIDE = f"{PACKAGES}/selected", f"{PACKAGES}/decide"
PICK = "pick-"
"""What the boxes of packages are named, before their packageCode."""
Verdict = Literal["ON_SALE", "OFF_SALE", "LIST"]


@action(SELECTED, OPERATOR_ADMINS, "operator/catalogue/selection.html")
async def select(context: RequestContext) -> Html:
    """What would be changed together, before anything is."""
    async with context.parts.database.connection() as connection:
        found = await console_packages.by_code(connection, params.picked(context.form, PICK, "package"))
        lists = await store.price_list.listed(connection)
    packages = [found[code] for code in sorted(found)]
    return Html(200 if packages else 400, packages=packages, lists=lists, verdict=_verdict(context.form), pick=PICK)


@action(DECIDE, OPERATOR_ADMINS)
async def decide(context: RequestContext) -> Answer:
    """All of them, or none. Raises OperatorError."""
    codes, verdict = params.picked(context.form, PICK, "package"), _verdict(context.form)
    if verdict == "LIST":
        return await _set_on_list(context, codes)
    changed = await set_package_status(context.parts.database, codes, verdict, context.author, lambda: context.now)
    told = (
        f"{many(changed, 'package')} put on sale"
        if verdict == "ON_SALE"
        else f"{many(changed, 'package')} taken off sale"
    )
    return Redirect(PACKAGES, told)


async def _set_on_list(context: RequestContext, codes: list[str]) -> Answer:
    price_list_id = params.number(context.form, "list")
    if price_list_id is None:
        raise OperatorError("choose a price list", "list")
    async with context.parts.database.connection() as connection:
        packages = await console_packages.by_code(connection, codes)
    prices = _prices(context.form, packages)

    async def write(allowed: bool) -> Answer:
        await change.set_exceptions(
            context.parts.database,
            price_list_id,
            prices,
            context.author,
            lambda: context.now,
            allow_below_cost=allowed,
        )
        return Redirect(f"/console/price-lists/{price_list_id}", f"{many(len(prices), 'exception')} set")

    return await confirmed(context, DECIDE, PACKAGES, write)


def _prices(form: Mapping[str, str], packages: Mapping[str, Package]) -> dict[str, str]:
    """What each costs on the list: its dealer price with a markup, or `off`."""
    if form.get("terms") == "OFF":
        return dict.fromkeys(packages, list_file.OFF)
    markup = parsing.basis_points(params.text(form, "markup") or "0")
    parsing.require_range("markup in hundredths of a percent", markup, LOWEST_MARKUP, HIGHEST_MARKUP, "markup")
    return {
        code: money.text(max(money.marked_up(one.price, markup, one.currency), money.unit(one.currency)), one.currency)
        for code, one in packages.items()
    }


def _verdict(form: Mapping[str, str]) -> Verdict:
    verdict = params.one_of(form, "verdict", get_args(Verdict))
    if verdict is None:
        raise OperatorError("choose what becomes of the packages")
    return verdict
