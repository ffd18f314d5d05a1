"""What type-ahead fields offer, as one types. Without scripts it is a page of its own, which leads back to the list."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl

from dealer_server.console.find import places
from dealer_server.console.shared import params
from dealer_server.console.shared.page import page
from dealer_server.console.shared.permissions import DEALERS, OPERATORS
from dealer_server.console.shared.request_context import Html, RequestContext
from dealer_server.store.console import packages as console_packages
from dealer_server.store.search import lookup
from dealer_server.store.tenants import tenant

MOST, MOST_ON_PAGE = 12, 50
TEMPLATE = "find/lookup.html"


class Option(NamedTuple):
    """`value`: what the field takes; `href`: where the choice leads on the page."""

    value: str
    name: str
    about: str
    href: str


@page("/console/lookup/dealers", OPERATORS, TEMPLATE)
async def dealers(context: RequestContext) -> Html:
    """By a part of the name, or by how the number begins."""
    text = (params.text(context.query, "q") or "").rpartition("· ")[2]
    async with context.parts.database.connection() as connection:
        found = await lookup.dealers(connection, text, _most(context))
    options = [(one.label, one.name, str(one.tenant_id), f"/console/dealers/{one.tenant_id}") for one in found]
    return _html(context, "dealer", text, options)


@page("/console/lookup/packages", OPERATORS, TEMPLATE)
async def packages(context: RequestContext) -> Html:
    """By a part of the code or the name."""
    text = params.text(context.query, "q") or ""
    async with context.parts.database.connection() as connection:
        found = await lookup.packages(connection, text, _most(context))
    return _html(context, "package", text, [(code, code, name, f"/console/packages/{code}") for code, name in found])


@page("/console/lookup/packages", DEALERS, TEMPLATE)
async def packages_on_sale(context: RequestContext) -> Html:
    """The same, of what the dealer can buy."""
    text = (params.text(context.query, "q") or "").casefold()
    async with context.parts.database.connection() as connection:
        prices = await tenant.load_prices(connection, context.tenant_id)
    on_sale = [
        (one.package.package_code, one.package.package_name) for one in context.parts.catalogue().on_sale(prices)
    ]
    found = [(code, name) for code, name in on_sale if text in code.casefold() or text in name.casefold()]
    options = [(code, code, name, f"/console/catalogue/{code}") for code, name in found[: _most(context)]]
    return _html(context, "package", text, options)


@page("/console/lookup/places", OPERATORS, TEMPLATE)
async def places_found(context: RequestContext) -> Html:
    """By a part of the name, or by how the code begins."""
    text = (params.text(context.query, "q") or "").rpartition("· ")[2]
    async with context.parts.database.connection() as connection:
        own = await console_packages.places(connection)
    found = places.found(text, own, _most(context))
    options = [
        (one.label, one.name, " ".join((one.code, one.about)), f"/console/packages?region={one.code}") for one in found
    ]
    return _html(context, "place", text, options)


def _most(context: RequestContext) -> int:
    return MOST if context.partial else MOST_ON_PAGE


def _html(context: RequestContext, kind: str, text: str, found: Sequence[tuple[str, str, str, str]]) -> Html:
    """`back`: the list whose filter asks; it is shown again with the choice in place of its `kind`."""
    back, _, query = context.query.get("back", "").partition("?")
    kept = {name: value for name, value in parse_qsl(query) if name not in ("before", "trail")}
    known = back.startswith("/console/")
    return Html(
        options=[
            Option(value, name, about, params.address(back, kept | {kind: value}) if known else href)
            for value, name, about, href in found
        ],
        text=text,
        kind=kind,
        most=MOST_ON_PAGE,
        back=context.query.get("back", "") if known else "",
    )
