"""What does a dealer learn of an order before placing it? (specification 4.2.1)

`order.check` decides what would become of the order. Here that, the prices and the stock become the answer.
"""

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import identity
from dealer_server.rules.orders.model import STOCK
from dealer_server.rules.orders.order import ExistingOrder, Repeated
from dealer_server.rules.orders.priced_lines import Offer
from esim_dealer.wire.calls import MAX_PROFILES_PER_ORDER, CheckedItem, CheckLine, CheckOrder, OrderCheck, WouldRefuse
from esim_dealer.wire.vocabulary import Availability

STOCK_COUNTED = MAX_PROFILES_PER_ORDER  # more cannot be ordered at once


def answer(
    call: CheckOrder,
    offers: Sequence[Offer | None],
    outcome: Repeated | refusal.Refusal | None,
    before: ExistingOrder | None,
    wallet: Wallet,
    stock: Mapping[str, int],
) -> OrderCheck:
    """`offers`: the package of each line. `outcome`: what would become of the order. `before`: the order that has its
    transactionId. `stock`: the free codes of each stock package, at most STOCK_COUNTED."""
    currency, amounts = wallet.currency, [*map(_amount, call.items, offers)]
    total = sum([amount for amount in amounts if amount is not None])
    return OrderCheck(
        currency=currency,
        amount=UNSET if None in amounts else money.text(total, currency),
        items=_items(call.items, offers, amounts, currency, stock),
        would_refuse=_refused(outcome),
        duplicate=isinstance(outcome, Repeated),
        order_no=UNSET if before is None else identity.order_no(before.order_id),
        balance=money.text(wallet.balance, currency),
        credit_limit=money.text(wallet.credit_limit, currency),
        available_balance=money.text(wallet.available, currency),
        balance_after=_balance_after(outcome, wallet, total),
    )


def _amount(line: CheckLine, offer: Offer | None) -> int | None:
    """price × quantity × periodNum at the dealer's price; None where there is none."""
    if offer is None or offer.price is None:
        return None
    return offer.price * line.quantity * (line.period_num or 1)


def _items(
    lines: Sequence[CheckLine],
    offers: Sequence[Offer | None],
    amounts: Sequence[int | None],
    currency: str,
    stock: Mapping[str, int],
) -> tuple[CheckedItem, ...]:
    wanted: dict[str, int] = {}
    for line in lines:
        wanted[line.package_code] = wanted.get(line.package_code, 0) + line.quantity
    return tuple(
        CheckedItem(
            package_code=line.package_code,
            quantity=line.quantity,
            period_num=line.period_num or UNSET,
            price=_text(offer.price if offer else None, currency),
            amount=_text(amount, currency),
            availability=_availability(offer, wanted[line.package_code], stock),
            stock=stock.get(line.package_code, 0) if _limited(offer) else UNSET,
        )
        for line, offer, amount in zip(lines, offers, amounts, strict=True)
    )


def _availability(offer: Offer | None, wanted: int, stock: Mapping[str, int]) -> Availability:
    if offer is None:
        return "NOT_FOUND"
    if offer.price is None:
        return "NOT_ON_SALE"
    short = _limited(offer) and wanted > stock.get(offer.package.package_code, 0)
    return "OUT_OF_STOCK" if short else "AVAILABLE"


def _limited(offer: Offer | None) -> bool:
    """Whether the stock is all there is of it: nobody supplies it where the stock is short."""
    return offer is not None and offer.package.supplier == STOCK and not offer.package.fallback


def _refused(outcome: Repeated | refusal.Refusal | None) -> WouldRefuse | UnsetType:
    if not isinstance(outcome, refusal.Refusal):
        return UNSET
    return WouldRefuse(code=outcome.code, message=outcome.message, data=dict(outcome.data))


def _balance_after(outcome: Repeated | refusal.Refusal | None, wallet: Wallet, total: int) -> str | UnsetType:
    """A repeat is not debited again; an order that is refused leaves nothing to tell."""
    if isinstance(outcome, refusal.Refusal):
        return UNSET
    debit = 0 if isinstance(outcome, Repeated) else total
    return money.text(wallet.balance - debit, wallet.currency)


def _text(amount: int | None, currency: str) -> str | UnsetType:
    return UNSET if amount is None else money.text(amount, currency)
