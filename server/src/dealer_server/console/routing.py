"""Which page is at a path, and for whom? All rows of all view modules, and the menu they make."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from starlette.routing import compile_path

from dealer_server.console import dealer, operator
from dealer_server.console.shared.request_context import Count, RequestContext, Route, User

FIRST = "/console"

# The menu from top to bottom: its words, and their icons. Words that are not here come last.
MENU = {
    "Overview": "layout-dashboard",
    "Home": "home",
    "Orders": "shopping-cart",
    "Profiles": "device-mobile",
    "Refunds": "receipt-refund",
    "Top-ups": "cash",
    "Wallet": "wallet",
    "Dealers": "building-store",
    "Packages": "package",
    "Regions": "world",
    "Stock": "stack-2",
    "Webhooks": "webhook",
    "Suppliers": "truck-delivery",
    "Developers": "code",
    "Credentials": "key",
    "API log": "list-search",
    "Users": "users",
    "Audit log": "history",
}


class Forbidden(Exception):
    """The page is there, but not for this role."""


class PageNotFound(Exception):
    """No page at this path for this kind of person."""


class MenuEntry(NamedTuple):
    """One line of the menu. `waiting`: how many things wait there."""

    label: str
    path: str
    icon: str
    current: bool
    waiting: int


class RouteRow(NamedTuple):
    pattern: re.Pattern[str]
    route: Route


def role_of(user: User) -> str:
    return f"{'op' if user.tenant_id is None else 'dealer'}:{user.role}"


class Table:
    """`counts`: by the menu's words, how many things wait; asked for on each page."""

    def __init__(self, routes: Iterable[Route], counts: Mapping[str, Count]):
        ordered = sorted(routes, key=_literal_first)
        self.rows = [RouteRow(compile_path(route.path)[0], route) for route in ordered]
        self._counts = counts

    def find(self, method: str, path: str, user: User) -> tuple[Route, dict[str, str]]:
        """The page of a path and what its braces stand for. Here and nowhere else it is decided who may open it; the
        most literal path decides, so that none is opened by way of a wider one. Raises MayNot, Absent."""
        role = role_of(user)
        for row in self.rows:
            found = row.pattern.match(path) if row.route.method == method else None
            if found and _same_kind(role, row.route.roles):
                if role not in row.route.roles:
                    raise Forbidden
                return row.route, found.groupdict()
        raise PageNotFound

    def is_page(self, path: str, user: User) -> bool:
        """Whether this person can open a path; the most literal one decides, also where it only takes forms."""
        role = role_of(user)
        routes = [row.route for row in self.rows if row.pattern.match(path) and _same_kind(role, row.route.roles)]
        return any((one.method, one.path) == ("GET", routes[0].path) and role in one.roles for one in routes)

    async def menu(self, context: RequestContext, path: str) -> list[MenuEntry]:
        """What this person's menu shows; the entry furthest down the path is the current one."""
        role = role_of(context.user)
        routes = [row.route for row in self.rows if row.route.menu and role in row.route.roles]
        above = [route.path for route in routes if path == route.path or path.startswith(route.path + "/")]
        above = [one for one in above if one != FIRST or path == FIRST]  # the first page is above all of them
        current = max(above, key=len, default="")
        places = {word: at for at, word in enumerate(MENU)}
        routes.sort(key=lambda route: (places.get(route.menu, len(places)), route.menu))
        return [
            MenuEntry(
                route.menu,
                route.path,
                MENU.get(route.menu, "point"),
                route.path == current,
                await self._count(route.menu, context),
            )
            for route in routes
        ]

    async def _count(self, label: str, context: RequestContext) -> int:
        """Only operators have queues."""
        count = self._counts.get(label) if context.user.tenant_id is None else None
        return await count(context) if count else 0


def table(*others: ModuleType) -> Table:
    """Every ROUTES of the view modules, and every COUNTS: {"Refunds": async (context) -> int}."""
    modules = [*others, *_modules(operator), *_modules(dealer)]
    routes: list[Route] = [route for module in modules for route in getattr(module, "ROUTES", ())]
    counts = [getattr(module, "COUNTS", {}) for module in modules]
    return Table(routes, {label: count for some in counts for label, count in some.items()})


def _modules(package: ModuleType) -> list[ModuleType]:
    names: Sequence[str] = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]


def _same_kind(role: str, roles: Iterable[str]) -> bool:
    kind = role.partition(":")[0]
    return any(one.partition(":")[0] == kind for one in roles)


def _literal_first(route: Route) -> list[bool]:
    """/orders/export before /orders/{order_no}."""
    return [segment.startswith("{") for segment in route.path.split("/")]
