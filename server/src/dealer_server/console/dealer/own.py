"""Who of a dealer may do what, and what every page of a dealer's is written with. Shared by the views beside it."""

from typing import NamedTuple, TypeVar

import msgspec

from dealer_server.console import asked
from dealer_server.console.visit import Go, Page, Visit
from dealer_server.rules import identity
from dealer_server.rules.refusal import ParameterInvalid
from dealer_server.store import console_dealer

EVERYONE = ("dealer:admin", "dealer:developer", "dealer:finance")
SECRETS = ("dealer:admin", "dealer:developer")
MONEY = ("dealer:admin", "dealer:finance")
PAGE = 50
T = TypeVar("T")


class May(NamedTuple):
    """Which parts of a page this person sees; the routes say the same."""

    money: bool
    secrets: bool


def may(visit: Visit) -> May:
    role = f"dealer:{visit.user.role}"
    return May(role in MONEY, role in SECRETS)


def page(visit: Visit, template: str, *, status: int = 200, **fields: object) -> Page:
    return Page(f"dealer/{template}.html", {"may": may(visit), **asked.WRITTEN, **fields}, status)


def call(kind: type[T], **fields: object) -> T:
    """A call as the interface takes it; what is None is left out. Raises ParameterInvalid."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as why:
        raise ParameterInvalid(str(why)) from None


async def meant(visit: Visit, word: str) -> Go | None:
    """Straight to the one order or profile of the dealer's that a word stands for."""
    async with visit.parts.database.connection() as connection:
        order_id, profile_id = await console_dealer.locate(connection, visit.tenant_id, word)
    if profile_id is not None:
        return Go(f"/console/profiles/{profile_id}")
    return None if order_id is None else Go(f"/console/orders/{identity.order_no(order_id)}")
