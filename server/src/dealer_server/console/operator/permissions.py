"""Who of the operators may do what, and what every page of theirs is written with. Shared by the views beside it."""

from typing import Any, NamedTuple

from dealer_server.console.shared import params
from dealer_server.console.shared.params import Pager
from dealer_server.console.shared.request_context import Page, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.store.console.pages import Page as Found

LOOK = ("op:admin", "op:finance", "op:support", "op:readonly")
MONEY = ("op:admin", "op:finance")
PUSH = ("op:admin", "op:support")
TERMS = ("op:admin",)
CODES = ("op:admin", "op:support")
PAGE = 50


class Permissions(NamedTuple):
    """Which buttons this operator sees; the routes say the same. `codes`: who may see activation codes, and so the
    bodies of webhooks."""

    money: bool
    push: bool
    terms: bool
    codes: bool


def permissions(context: RequestContext) -> Permissions:
    role = f"op:{context.user.role}"
    return Permissions(role in MONEY, role in PUSH, role in TERMS, role in CODES)


def page(context: RequestContext, template: str, *, status: int = 200, **fields: object) -> Page:
    """A page of the operator's, with what every one of them writes with."""
    return Page(f"operator/{template}.html", {"may": permissions(context), **params.WRITTEN, **fields}, status)


def pager(context: RequestContext, path: str, found: Found[Any]) -> Pager:
    """Of a list that looks back in time: says how far, where a page came out short."""
    short = found.next is not None and len(found.rows) < PAGE
    words = f"Looked back to {identity.created_at(found.next or 0):%Y-%m-%d %H:%M} UTC" if short else ""
    return params.pager(context, path, found.next, words)
