"""What do the terms of a price list come to, for one package as an example and for all together?"""

from collections.abc import Iterable
from typing import NamedTuple

from dealer_server.rules.price_lists.list_file import Line


class Effect(NamedTuple):
    """Of the packages that are on sale. `example`: one of them, whose cost is known if any is. `costed`: of so many the
    cost is known; `losses`: so many cost more than their price. `lowest`, `highest`: margins, in hundredths of a
    percent of the price, None where no cost is known."""

    example: Line | None
    total: int
    costed: int
    losses: int
    lowest: int | None
    highest: int | None


def effect(lines: Iterable[Line]) -> Effect:
    """The example is the first one by name that follows the markup."""
    sold = sorted(
        (line for line in lines if line.price is not None and line.package.status == "ON_SALE"),
        key=lambda line: (line.margin is None, line.excepted, line.package.package_name, line.package.package_code),
    )
    margins = [line.margin for line in sold if line.margin is not None]
    return Effect(
        example=sold[0] if sold else None,
        total=len(sold),
        costed=len(margins),
        losses=sum(margin < 0 for margin in margins),
        lowest=min(margins, default=None),
        highest=max(margins, default=None),
    )
