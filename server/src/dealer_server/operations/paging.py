"""Which rows does a page of a list hold? `pager` of a call becomes a window, and the rows' last id the next cursor."""

from datetime import UTC, datetime
from typing import NamedTuple

from msgspec import UNSET

from dealer_server.rules import refusal
from dealer_server.rules.orders import identity
from dealer_server.store.orders.listing import Window
from esim_dealer.wire import calls


class Wanted(NamedTuple):
    """The page that a call wants."""

    page_num: int
    page_size: int
    after: str | None


def wanted(pager: calls.Pager | None) -> Wanted:
    """Null counts as left out (specification 4)."""
    given = pager or calls.Pager()
    return Wanted(given.page_num or 1, given.page_size or calls.DEFAULT_PAGE_SIZE, given.after)


def window(pager: Wanted) -> Window:
    """The rows to read: one more than the page, to know whether another page follows. Raises 000108."""
    if pager.after:
        after = identity.profile_id(pager.after)
        if after is None:
            raise refusal.ParameterInvalid("pager.after is malformed; accepted: pager.next of the previous answer")
        return Window(pager.page_size + 1, 0, after)
    return Window(pager.page_size + 1, (pager.page_num - 1) * pager.page_size, None)


def paged(pager: Wanted, total: int, after: int | None) -> calls.Page:
    """`pager` of the answer. `after`: the id of the page's last row where another page follows."""
    return calls.Page(
        page_num=pager.page_num,
        page_size=pager.page_size,
        total=total,
        next=UNSET if after is None else str(after),
    )


def utc(name: str, at: datetime | None) -> datetime | None:
    """A time filter in UTC. Raises 000108 where its offset carries it out of the years 1 to 9999, the range of the
    database."""
    try:
        return at and at.astimezone(UTC)
    except OverflowError:
        raise refusal.ParameterInvalid(f"{name} is out of range; accepted: the years 1 to 9999 in UTC") from None
