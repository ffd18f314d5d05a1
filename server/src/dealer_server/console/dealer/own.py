"""Who of a dealer may do what, and what every page of a dealer's is written with. Shared by the views beside it."""

from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from dealer_server.console.visit import Go, Page, Visit
from dealer_server.operations.tenant import OperatorError
from dealer_server.rules import identity, money
from dealer_server.rules.refusal import ParameterInvalid, Refusal
from dealer_server.store import tenant as rows

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
    written = {"major": money.text, "order_no": identity.order_no, "topup_no": identity.topup_no,
               "refund_no": identity.refund_no, "created_at": identity.created_at, "choices": choices}  # fmt: skip
    return Page(f"dealer/{template}.html", {"may": may(visit), **written, **fields}, status)


def choices(anything: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """What a filter can be set to; `anything` is its word where it is not."""
    return [("", anything), *((word, word) for word in words)]


def call(kind: type[T], **fields: object) -> T:
    """A call as the interface takes it; what is None is left out. Raises ParameterInvalid."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as why:
        raise ParameterInvalid(str(why)) from None


async def done(work: Awaitable[str], to: str) -> Go:
    """On to a page, with what was done or why it was not."""
    try:
        return Go(to, await work)
    except (OperatorError, Refusal) as why:
        return Go(to, str(why), failed=True)


async def record(visit: Visit, action: str, detail: Mapping[str, object]) -> None:
    text = msgspec.json.encode({name: value for name, value in detail.items() if value is not None}).decode()
    await visit.parts.database.run(
        lambda connection: rows.record_act(connection, visit.author, action, visit.tenant_id, text)
    )
