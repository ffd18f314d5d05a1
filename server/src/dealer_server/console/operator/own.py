"""Who of the operators may do what, and what every page of theirs is written with. Shared by the views beside it."""

from typing import Any, NamedTuple

from dealer_server.console import asked
from dealer_server.console.asked import Pager
from dealer_server.console.visit import Page, Visit
from dealer_server.rules import identity
from dealer_server.store.console_spans import Page as Found

LOOK = ("op:admin", "op:finance", "op:support", "op:readonly")
MONEY = ("op:admin", "op:finance")
PUSH = ("op:admin", "op:support")
TERMS = ("op:admin",)
CODES = ("op:admin", "op:support")
PAGE = 50


class May(NamedTuple):
    """Which buttons this operator sees; the routes say the same. `codes`: who may see activation codes, and so the
    bodies of webhooks."""

    money: bool
    push: bool
    terms: bool
    codes: bool


def may(visit: Visit) -> May:
    role = f"op:{visit.user.role}"
    return May(role in MONEY, role in PUSH, role in TERMS, role in CODES)


def page(visit: Visit, template: str, *, status: int = 200, **fields: object) -> Page:
    """A page of the operator's, with what every one of them writes with."""
    return Page(f"operator/{template}.html", {"may": may(visit), **asked.WRITTEN, **fields}, status)


def pager(visit: Visit, path: str, found: Found[Any]) -> Pager:
    """Of a list that looks back in time: says how far, where a page came out short."""
    short = found.next is not None and len(found.rows) < PAGE
    words = f"Looked back to {identity.created_at(found.next or 0):%Y-%m-%d %H:%M} UTC" if short else ""
    return asked.pager(visit, path, found.next, words)
