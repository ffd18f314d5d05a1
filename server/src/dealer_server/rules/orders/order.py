"""When does an order come about, and for how much? (specification 4.2, decisions 4 /esim/order)

A call is priced on its own (`price`), then decided together with the others of its batch (`decide`): each order becomes
a placement, a repeat of an earlier one, or a refusal, and no order's refusal harms its neighbours.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.catalogue.package import Package
from dealer_server.rules.money import money, wallet
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders.model import STOCK, Item, Order, Profile
from esim_dealer.wire.calls import MAX_PROFILES_PER_ORDER, PlaceOrder


class Offer(msgspec.Struct, frozen=True):
    """A package as this dealer may buy it. `price` is None where it is not on sale for this dealer."""

    package: Package
    price: int | None


class OrderLine(msgspec.Struct, frozen=True):
    """One line to be bought. `period_num` is 1 for a TOTAL package; `price` is a unit's (of one day for DAILY_*)."""

    package_code: str
    quantity: int
    period_num: int
    price: int
    supplier: str
    fallback: str = ""  # who makes it where the stock is short


class OrderRequest(msgspec.Struct, frozen=True):
    """An order a dealer asks for. `refused` is why its lines cannot be bought, should it not be a repeat."""

    tenant_id: int
    transaction_id: str
    digest: bytes
    amount: int
    lines: tuple[OrderLine, ...]
    remark: str | None = None
    refused: refusal.Refusal | None = None

    @property
    def profile_count(self) -> int:
        return sum([line.quantity for line in self.lines])

    @property
    def from_stock(self) -> dict[str, int]:
        """How many profiles it takes of each package that is sold from stock."""
        taken: dict[str, int] = {}
        for line in self.lines:
            if line.supplier == STOCK:
                taken[line.package_code] = taken.get(line.package_code, 0) + line.quantity
        return taken


class ExistingOrder(msgspec.Struct, frozen=True):
    """An order that already carries a transactionId."""

    order_id: int
    digest: bytes


class Placed(msgspec.Struct, frozen=True):
    """An order to be written: its debit is the wallet's entry number `version`, which leaves `balance_after`."""

    wanted: OrderRequest
    order_id: int
    first_profile_id: int
    version: int
    balance_after: int
    currency: str
    at: datetime


class Repeated(msgspec.Struct, frozen=True):
    """The transactionId was used before with the same content."""

    order_id: int


Decision = Placed | Repeated | refusal.Refusal


class PricedLines(msgspec.Struct, frozen=True):
    """What the lines of a call come to. `refused` is why they cannot be bought now."""

    digest: bytes
    amount: int
    lines: tuple[OrderLine, ...]
    refused: refusal.Refusal | None


def price(call: PlaceOrder, currency: str, offer: Callable[[str], Offer | None]) -> PricedLines:
    """The lines of a call, priced. Malformed amounts raise; what is only refused now is kept in `refused`, since a
    repeat of an earlier order is answered with that order whatever the catalogue says today."""
    wallet_currency = call.currency is None or call.currency == currency
    # Both currencies' decimals are well-formed: the wrong currency is the refusal to give, not its decimals.
    parsed_in = max(currency, call.currency or currency, key=lambda code: money.EXPONENTS.get(code, -1))
    prices, amount = _amounts(call, parsed_in)
    offers = [offer(line.package_code) for line in call.items]
    for index, (line, found) in enumerate(zip(call.items, offers, strict=True)):
        if found is not None and found.package.data_type != "TOTAL" and line.period_num is None:
            raise refusal.ParameterMissing(
                f"items[{index}].periodNum is required: {line.package_code} is sold by the day; "
                f"accepted: {found.package.min_period_num} to {found.package.max_period_num}"
            )
    lines = [
        OrderLine(
            line.package_code,
            line.quantity,
            line.period_num or 1,
            unit_price,
            found.package.supplier if found else "",
            found.package.fallback if found else "",
        )
        for line, unit_price, found in zip(call.items, prices, offers, strict=True)
    ]
    return PricedLines(
        digest=meaning(call.currency or currency, amount, call, prices),
        amount=amount,
        lines=tuple(lines),
        refused=_refuse_lines(call, currency, wallet_currency, offers, prices, amount),
    )


def order_request(tenant_id: int, call: PlaceOrder, basket: PricedLines) -> OrderRequest:
    """What a call asks for."""
    return OrderRequest(
        tenant_id, call.transaction_id, basket.digest, basket.amount, basket.lines, call.remark, basket.refused
    )


def meaning(currency: str, amount: int, call: PlaceOrder, prices: Sequence[int]) -> bytes:
    """16 bytes that two calls share when they ask for the same: currency, amount, lines, in any order and spelling."""
    lines = sorted(
        [
            f"{line.package_code}\0{line.quantity}\0{line.period_num or 1}\0{price}"
            for line, price in zip(call.items, prices, strict=True)
        ]
    )
    return hashlib.sha256("\1".join((currency, str(amount), *lines)).encode()).digest()[:16]


def decide(
    batch: Sequence[OrderRequest],
    wallets: Mapping[int, Wallet],
    existing: Mapping[tuple[int, str], ExistingOrder],
    stock: Mapping[str, int],
    number: Callable[[int], tuple[int, int]],
    now: datetime,
) -> list[Decision]:
    """One decision per order, in the order of the batch. `number(profiles)` gives an orderId and a first profileId.

    `stock` holds how many codes of each stock package are free, at least as far as the batch asks for them. Later
    orders of the batch see what earlier ones took: debits, transactionIds, stock.
    """
    seen = dict(existing)
    free = dict(stock)
    balances = {tenant_id: wallet.balance for tenant_id, wallet in wallets.items()}
    versions = {tenant_id: wallet.version for tenant_id, wallet in wallets.items()}
    decisions: list[Decision] = []
    for wanted in batch:
        key = (wanted.tenant_id, wanted.transaction_id)
        before = seen.get(key)
        if before is not None:
            decisions.append(repeat(before, wanted))
            continue
        tenant_id = wanted.tenant_id
        wanted = _where_there_is_stock(wanted, free)
        taken = wanted.from_stock
        refused = _refuse_payment(wanted, wallets[tenant_id], balances[tenant_id], taken, free)
        if refused is not None:
            decisions.append(refused)
            continue
        for package_code, quantity in taken.items():
            free[package_code] -= quantity
        balances[tenant_id] -= wanted.amount
        versions[tenant_id] += 1
        order_id, first_profile_id = number(wanted.profile_count)
        seen[key] = ExistingOrder(order_id, wanted.digest)
        decisions.append(
            Placed(
                wanted,
                order_id,
                first_profile_id,
                versions[tenant_id],
                balances[tenant_id],
                wallets[tenant_id].currency,
                now,
            )
        )
    return decisions


def _where_there_is_stock(wanted: OrderRequest, free: Mapping[str, int]) -> OrderRequest:
    """The order with lines that the stock cannot serve given to whoever comes next on their route."""
    short = {code for code, quantity in wanted.from_stock.items() if quantity > free.get(code, 0)}
    if not any(line.fallback and line.package_code in short for line in wanted.lines):
        return wanted
    lines = tuple(
        msgspec.structs.replace(line, supplier=line.fallback) if line.fallback and line.package_code in short else line
        for line in wanted.lines
    )
    return msgspec.structs.replace(wanted, lines=lines)


def repeat(before: ExistingOrder, wanted: OrderRequest) -> Repeated | refusal.Refusal:
    """What a transactionId seen before gives: the original, or 310402 when the content differs."""
    return Repeated(before.order_id) if before.digest == wanted.digest else refusal.TransactionIdReused()


def placements(decisions: Iterable[Decision]) -> list[Placed]:
    return [decision for decision in decisions if isinstance(decision, Placed)]


def _refuse_payment(
    wanted: OrderRequest, of: Wallet, balance: int, taken: Mapping[str, int], free: Mapping[str, int]
) -> refusal.Refusal | None:
    """The refusals that need the wallet and the stock, in the order of decisions 2: 200020, 200011, 200007."""
    if of.frozen:
        return refusal.WalletFrozen()
    for package_code, quantity in taken.items():
        left = free.get(package_code, 0)
        if quantity > left:
            return refusal.OutOfStock(
                f"{package_code} has {left} profiles in stock, {quantity} wanted; nothing was charged"
            )
    return wallet.refuse_spending(of, balance, wanted.amount)


def as_placed(placed: Placed) -> Order:
    """The order as its payment leaves it (decisions 4: PAID, PENDING, PAID, PAID)."""
    wanted, first, items = placed.wanted, placed.first_profile_id, []
    for number, line in enumerate(wanted.lines):
        profiles = tuple([Profile(first + n) for n in range(line.quantity)])
        items.append(
            Item(
                number,
                line.package_code,
                line.supplier,
                line.quantity,
                line.period_num,
                line.price,
                first,
                "PAID",
                profiles,
            )
        )
        first += line.quantity
    return Order(
        wanted.tenant_id,
        placed.order_id,
        wanted.transaction_id,
        placed.currency,
        wanted.amount,
        0,
        "PAID",
        "PENDING",
        "PAID",
        1,
        placed.at,
        tuple(items),
    )


def _refuse_lines(
    call: PlaceOrder,
    currency: str,
    wallet_currency: bool,
    offers: Sequence[Offer | None],
    prices: Sequence[int],
    amount: int,
) -> refusal.Refusal | None:
    """The first business refusal that needs no wallet, in the order of decisions 2."""
    known = [offer for offer in offers if offer is not None]
    if len(known) < len(offers):
        index = offers.index(None)
        return refusal.PackageUnknown(f"items[{index}].packageCode {call.items[index].package_code!r} does not exist")
    expected = [offer.price for offer in known]
    if None in expected:
        index = expected.index(None)
        return refusal.NotOnSale(f"items[{index}].packageCode {call.items[index].package_code} is not on sale")
    inconsistent = _inconsistency(call, known)
    if inconsistent:
        return refusal.LinesInconsistent(inconsistent)
    if not wallet_currency:
        return refusal.CurrencyDiffers(f"currency {call.currency!r} is not the wallet's; accepted: {currency}")
    if expected != list(prices):
        return _refuse_prices(currency, known, prices)
    return _refuse_amount(call, currency, prices, amount)


def _inconsistency(call: PlaceOrder, offers: Sequence[Offer]) -> str:
    """What is wrong between the lines and their packages (200008), or ""."""
    seen: dict[tuple[str, int], int] = {}
    for index, (line, offer) in enumerate(zip(call.items, offers, strict=True)):
        package, name = offer.package, f"items[{index}]"
        first = seen.setdefault((line.package_code, line.period_num or 1), index)
        if first != index:
            return f"{name} repeats the packageCode and periodNum of items[{first}]; add the quantities up in one line"
        if package.data_type == "TOTAL":
            if line.period_num not in (None, 1):
                return f"{name}.periodNum is {line.period_num}; {line.package_code} is a fixed package: leave it out"
        elif not package.min_period_num <= (line.period_num or 0) <= package.max_period_num:
            return (
                f"{name}.periodNum is {line.period_num}; {line.package_code} takes "
                f"{package.min_period_num} to {package.max_period_num}"
            )
        if line.quantity > package.max_quantity:
            return f"{name}.quantity is {line.quantity}; {line.package_code} takes at most {package.max_quantity}"
    profiles = sum([line.quantity for line in call.items])
    if profiles > MAX_PROFILES_PER_ORDER:
        return f"items ask for {profiles} profiles; an order takes at most {MAX_PROFILES_PER_ORDER}"
    return ""


def _refuse_prices(currency: str, offers: Sequence[Offer], prices: Sequence[int]) -> refusal.Refusal:
    wrong = [
        {
            "index": index,
            "packageCode": offer.package.package_code,
            "expectedPrice": money.text(offer.price or 0, currency),
            "currency": currency,
        }
        for index, (offer, price) in enumerate(zip(offers, prices, strict=True))
        if price != offer.price
    ]
    first = wrong[0]
    return refusal.PriceDiffers(
        f"items[{first['index']}].price is not your price of {first['packageCode']}; "
        f"accepted: {first['expectedPrice']} {currency}",
        {"lines": wrong},
    )


def _refuse_amount(call: PlaceOrder, currency: str, prices: Sequence[int], amount: int) -> refusal.Refusal | None:
    expected = sum(
        [price * line.quantity * (line.period_num or 1) for price, line in zip(prices, call.items, strict=True)]
    )
    if amount == expected:
        return None
    text = money.text(expected, currency)
    return refusal.AmountDiffers(
        f"amount is not the sum of price x quantity x periodNum; accepted: {text} {currency}", {"expectedAmount": text}
    )


def _amounts(call: PlaceOrder, currency: str) -> tuple[tuple[int, ...], int]:
    """The prices of the lines and the amount. Raises the refusal of the first that is malformed."""
    try:
        prices = tuple([_amount(bytes(line.price), currency) for line in call.items])
        return prices, _amount(bytes(call.amount), currency)
    except ValueError:
        named = {f"items[{index}].price": line.price for index, line in enumerate(call.items)} | {"amount": call.amount}
        raise next(
            why for name, literal in named.items() if (why := _refuse_amount_form(name, literal, currency))
        ) from None


@lru_cache(8192)
def _amount(literal: bytes, currency: str) -> int:
    """A JSON number or string as ten-thousandths, never through a float (decisions 3). Raises ValueError."""
    return money.parse(literal.decode().strip('"'), currency)


def read_amount(name: str, literal: msgspec.Raw, currency: str) -> int:
    """An amount as sent, in ten-thousandths. Raises 000106, 000108."""
    if why := _refuse_amount_form(name, literal, currency):
        raise why
    return _amount(bytes(literal), currency)


def _refuse_amount_form(name: str, literal: msgspec.Raw, currency: str) -> refusal.Refusal | None:
    if bytes(literal) in (b"null", b'""'):
        return refusal.ParameterEmpty(f"{name} is empty; accepted: a decimal number or string such as 1.80")
    try:
        _amount(bytes(literal), currency)
    except ValueError as error:
        return refusal.ParameterInvalid(f"{name} {error}")
    return None


def demand(batch: Iterable[OrderRequest]) -> dict[str, int]:
    """How many profiles of each stock package these orders ask for."""
    total: dict[str, int] = {}
    for wanted in batch:
        for package_code, quantity in wanted.from_stock.items():
            total[package_code] = total.get(package_code, 0) + quantity
    return total
