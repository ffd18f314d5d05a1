"""How is a page of the console declared? Path, roles, template and menu entry stand in one decorator on the view.

Routes, the permission check, the menu and the list of pages that tests open follow from it (console/routing.py).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from starlette.routing import compile_path

from dealer_server.console.shared.request_context import Count, User, View

GROUPS = ((0, ""), (12, "Sales"), (60, "Money"), (70, "Catalogue"), (100, "Integration"), (150, "Settings"))
"""Headings of the menu, each with the first position below it."""


class MenuEntry(NamedTuple):
    """A line of the menu. `icon` names a file of static/vendor/icons. The smallest `position` stands first, under the
    heading of GROUPS that it falls to. `waiting` counts what waits on the page."""

    label: str
    icon: str
    position: int
    waiting: Count | None = None

    @property
    def group(self) -> str:
        return [heading for first, heading in GROUPS if first <= self.position][-1]


@dataclass(frozen=True)
class Page:
    """A view at a path. Only `roles` may open it. `template` is "" for a view that renders nothing. `listing`: it may
    be read from a replica, so its view changes nothing at all and what it shows decides nothing. `within`: the path of
    the menu entry it belongs to, where its own path is not below that."""

    method: Literal["GET", "POST"]
    path: str
    roles: tuple[str, ...]
    view: View
    template: str = ""
    menu: MenuEntry | None = None
    listing: bool = False
    within: str = ""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Whom it is for: "op", "dealer" or both. For the others there is no such page."""
        return frozenset(role.partition(":")[0] for role in self.roles)

    def opens_for(self, user: User) -> bool:
        return user.full_role in self.roles


Declaration = Callable[[View], Page]


def page(
    path: str,
    roles: tuple[str, ...],
    template: str,
    menu: MenuEntry | None = None,
    *,
    listing: bool = False,
    within: str = "",
) -> Declaration:
    """A page to read. Its view changes nothing, except that a look at a secret is recorded in the audit log, and that
    a notice which was opened is read."""
    return lambda view: Page("GET", path, roles, view, template, menu, listing, within)


def download(path: str, roles: tuple[str, ...], *, listing: bool = False) -> Declaration:
    """A file."""
    return lambda view: Page("GET", path, roles, view, listing=listing)


def action(path: str, roles: tuple[str, ...], template: str = "") -> Declaration:
    """A form. Its view runs once per form, after the CSRF token was checked. It lets a refusal of an operation pass:
    the user returns to the page of the form with the reason. `template` is for a view that renders its result."""
    return lambda view: Page("POST", path, roles, view, template)
