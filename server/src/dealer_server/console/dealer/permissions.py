"""Who of a dealer may do what, and what every page of a dealer's is written with. Shared by the views beside it."""

from typing import NamedTuple, TypeVar

import msgspec

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Page, Redirect, RequestContext
from dealer_server.rules.orders import identity
from dealer_server.rules.refusal import ParameterInvalid
from dealer_server.store.console import dealer

EVERYONE = ("dealer:admin", "dealer:developer", "dealer:finance")
SECRETS = ("dealer:admin", "dealer:developer")
MONEY = ("dealer:admin", "dealer:finance")
PAGE = 50
T = TypeVar("T")


class Permissions(NamedTuple):
    """Which parts of a page this person sees; the routes say the same."""

    money: bool
    secrets: bool


def permissions(context: RequestContext) -> Permissions:
    role = f"dealer:{context.user.role}"
    return Permissions(role in MONEY, role in SECRETS)


def page(context: RequestContext, template: str, *, status: int = 200, **fields: object) -> Page:
    return Page(f"dealer/{template}.html", {"may": permissions(context), **params.WRITTEN, **fields}, status)


def call(kind: type[T], **fields: object) -> T:
    """A call as the interface takes it; what is None is left out. Raises ParameterInvalid."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as why:
        raise ParameterInvalid(str(why)) from None


async def meant(context: RequestContext, word: str) -> Redirect | None:
    """Straight to the one order or profile of the dealer's that a word stands for."""
    async with context.parts.database.connection() as connection:
        order_id, profile_id = await dealer.locate(connection, context.tenant_id, word)
    if profile_id is not None:
        return Redirect(f"/console/profiles/{profile_id}")
    return None if order_id is None else Redirect(f"/console/orders/{identity.order_no(order_id)}")
