"""What does an order or a recharge of the RT face ask for, and what does it cost?

Packages are named by code or slug. A price or an amount may be left out: then it is the dealer's own of now, and a
repeat is known by what was sent, whatever the price is by then.
"""

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from dealer_server.rules.orders import priced_lines
from dealer_server.rules.orders.priced_lines import Offer, PricedLines
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Priced
from esim_dealer.wire import calls

OfferOf = Callable[[str], Offer | None]
_UNREAD = msgspec.Raw(b"0")  # amounts of a call that were read already


class Line(msgspec.Struct, frozen=True):
    """`price`: of a unit, of one day for DAILY_* packages, in ten-thousandths."""

    package: str
    count: int
    price: int | None
    period_num: int | None


class Content(msgspec.Struct, frozen=True):
    """What an order asks for, as it was sent."""

    lines: tuple[Line, ...]
    amount: int | None


class Order(msgspec.Struct, frozen=True):
    transaction_id: str
    content: Content


class Recharge(msgspec.Struct, frozen=True):
    """`named`: the eSIM, as the call names it: a profileId or an ICCID."""

    transaction_id: str
    named: int | str
    package: str
    amount: int | None
    period_num: int | None


def priced(call: Order, currency: str, offer: OfferOf) -> PricedLines:
    """Raises 000105."""
    content = call.content
    offers = [offer(line.package) for line in content.lines]
    prices = [_own(line.price, offered) for line, offered in zip(content.lines, offers, strict=True)]
    amount = _total(content.lines, prices) if content.amount is None else content.amount
    placed = calls.PlaceOrder(
        transaction_id=call.transaction_id,
        amount=_UNREAD,
        items=tuple(
            [
                calls.OrderLine(
                    package_code=offered.package.package_code if offered else line.package,
                    quantity=line.count,
                    price=_UNREAD,
                    period_num=line.period_num,
                )
                for line, offered in zip(content.lines, offers, strict=True)
            ]
        ),
    )
    found = priced_lines.price_offers(placed, currency, offers, prices, amount)
    whole = content.amount is not None and all(line.price is not None for line in content.lines)
    return found if whole else msgspec.structs.replace(found, digest=_digest(content))


def priced_recharge(call: Recharge, currency: str, offer: OfferOf) -> Priced:
    """A recharge at the dealer's price; an amount that was sent must be it."""
    offered = offer(call.package)
    price = _own(None, offered)
    amount = price * (call.period_num or 1) if call.amount is None else call.amount
    wanted = calls.RechargeProfile(
        transaction_id=call.transaction_id,
        package_code=offered.package.package_code if offered else call.package,
        price=_UNREAD,
        amount=_UNREAD,
        period_num=call.period_num,
    )
    return recharge.price_offer(wanted, currency, offered, price, amount)


def recharge_digest(call: Recharge) -> bytes:
    """16 bytes that two calls share when they ask for the same."""
    return _digest((call.named, call.package, call.amount, call.period_num))


def _own(price: int | None, offer: Offer | None) -> int:
    """The price as sent, else the dealer's own; 0 where there is none, which is refused."""
    return price if price is not None else (offer.price or 0) if offer else 0


def _total(lines: Sequence[Line], prices: Sequence[int]) -> int:
    return sum([line.count * (line.period_num or 1) * price for line, price in zip(lines, prices, strict=True)])


def _digest(content: object) -> bytes:
    return hashlib.sha256(b"rt\0" + msgspec.json.encode(content)).digest()[:16]
