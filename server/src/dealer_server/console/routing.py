"""Which pages are there, who may open them, and what stands in the menu? From the declarations of all views."""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import NamedTuple

from dealer_server.console import auth, dealer, find, operator
from dealer_server.console.shared import rendering
from dealer_server.console.shared.page import Page
from dealer_server.console.shared.permissions import EVERYBODY
from dealer_server.console.shared.request_context import RequestContext, User

HOME = "/console"
PACKAGES = (auth, dealer, find, operator)


class MenuLine(NamedTuple):
    """One line of a user's menu. `waiting`: how many things wait there."""

    label: str
    path: str
    icon: str
    current: bool
    waiting: int
    heading: str
    """Of the group that begins with it; "" within a group."""


@cache
def declared_pages() -> Sequence[Page]:
    """Every page that a module of PACKAGES declares. The most literal path stands first, so that
    no page is opened by way of a wider path. Raises ValueError as `check` does."""
    modules = [module for package in PACKAGES for module in _modules(package)]
    declared = [value for module in modules for value in vars(module).values() if isinstance(value, Page)]
    pages = sorted(dict.fromkeys(declared), key=_literal_first)
    check(pages)
    return pages


def check(pages: Sequence[Page]) -> None:
    """Raises ValueError where a declaration is not complete."""
    if faults := [*_faults(pages)]:
        raise ValueError("; ".join(faults))


def is_page(pages: Iterable[Page], path: str, user: User) -> bool:
    """Whether this user can open a path. The most literal declaration decides, also where it only takes forms."""
    matching = [page for page in pages if user.kind in page.kinds and page.pattern.match(path)]
    return any(page.method == "GET" and page.path == matching[0].path and page.opens_for(user) for page in matching)


async def menu(pages: Sequence[Page], context: RequestContext) -> list[MenuLine]:
    """What this user's menu shows. The entry furthest down the path is the current one."""
    entries = [(page.menu, page.path) for page in pages if page.menu and page.opens_for(context.user)]
    here = context.url.partition("?")[0]
    here = next((page.within for page in pages if page.within and page.pattern.match(here)), here)
    current = max((path for _, path in entries if _is_below(here, path)), key=len, default="")
    lines, group = [], ""
    for entry, path in sorted(entries, key=lambda entry: entry[0].position):
        heading = entry.group if entry.group != group else ""
        group = entry.group
        waiting = await entry.waiting(context) if entry.waiting else 0
        lines.append(MenuLine(entry.label, path, entry.icon, path == current, waiting, heading))
    return lines


def _is_below(path: str, entry: str) -> bool:
    """Every path is below the first page, so that only itself counts there."""
    return path == entry or (entry != HOME and path.startswith(f"{entry}/"))


def _modules(package: ModuleType) -> list[ModuleType]:
    """Those of its sub-packages too."""
    found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(name) for name in sorted(module.name for module in found)]


def _literal_first(page: Page) -> list[bool]:
    """/orders/export before /orders/{order_no}."""
    return [segment.startswith("{") for segment in page.path.split("/")]


def _faults(pages: Sequence[Page]) -> Iterable[str]:
    """What is missing in the declarations."""
    templates = set(rendering.environment().list_templates())
    for page in pages:
        if page.template and page.template not in templates:
            yield f"{page.path}: there is no template {page.template}"
        if not page.roles or not set(page.roles) <= set(EVERYBODY):
            yield f"{page.path}: the roles are {page.roles}"
        if page.menu and f"vendor/icons/{page.menu.icon}.svg" not in rendering.assets():
            yield f"{page.path}: there is no icon {page.menu.icon}"
    places = Counter((page.method, page.path, kind) for page in pages for kind in page.kinds)
    yield from (
        f"{path}: declared {count} times for {method}" for (method, path, _), count in places.items() if count > 1
    )
