"""When is an order placed, and when is it refused? (specification 4.2)

The lines of a call are priced first (`priced_lines`). `decide` then decides the orders of a batch together: each
becomes a placement, a repeat of an earlier order, or a refusal, and a refusal does not affect the other orders. How its
statuses change afterwards, up to COMPLETED, is in rules/delivery/delivery.py.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.money import wallet as wallet_rules
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders.model import STOCK
from dealer_server.rules.orders.priced_lines import OrderLine, PricedLines
from esim_dealer.wire.calls import CheckOrder, PlaceOrder

MOST_PLANS = 100  # of one eSIM


class OrderRequest(msgspec.Struct, frozen=True):
    """An order that a dealer asks for. `refused`: why its lines cannot be bought, unless it is a repeat. `recharge`:
    the eSIM that it adds a plan to; None: it sells eSIMs."""

    tenant_id: int
    transaction_id: str
    digest: bytes
    currency: str
    amount: int
    lines: tuple[OrderLine, ...]
    remark: str | None = None
    refused: refusal.Refusal | None = None
    recharge: "NextPlan | None" = None

    @property
    def profile_count(self) -> int:
        lines = self.lines
        return lines[0].quantity if len(lines) == 1 else sum([line.quantity for line in lines])

    @property
    def from_stock(self) -> dict[str, int]:
        """How many profiles it takes of each package that is sold from stock."""
        taken: dict[str, int] = {}
        for line in self.lines:
            if line.supplier == STOCK:
                taken[line.package_code] = taken.get(line.package_code, 0) + line.quantity
        return taken


class NextPlan(msgspec.Struct, frozen=True):
    """What an order adds to an eSIM: the eSIM, which plan of it that will be, and the order of the eSIM with the
    version that was looked at. Until it is decided plan_no is the first that is free. Only the eSIM is known where the
    statement that writes the order is to find the rest."""

    profile_id: int
    plan_no: int = 0
    order_id: int = 0
    version: int = 0
    iccid: str | None = None


class ExistingOrder(msgspec.Struct, frozen=True):
    """An order that already has a transactionId."""

    order_id: int
    digest: bytes


class Placed(msgspec.Struct, frozen=True):
    """An order to be written."""

    request: OrderRequest
    order_id: int
    first_profile_id: int
    at: datetime

    def with_plan(self, plan: NextPlan) -> "Placed":
        return msgspec.structs.replace(self, request=msgspec.structs.replace(self.request, recharge=plan))


class Repeated(msgspec.Struct, frozen=True):
    """The transactionId was used before with the same content."""

    order_id: int


Decision = Placed | Repeated | refusal.Refusal


def order_request(tenant_id: int, call: PlaceOrder | CheckOrder, priced: PricedLines) -> OrderRequest:
    """`transaction_id` is empty where a check leaves it out: no order has that."""
    return OrderRequest(
        tenant_id=tenant_id,
        transaction_id=call.transaction_id or "",
        digest=priced.digest,
        currency=priced.currency,
        amount=priced.amount,
        lines=priced.lines,
        remark=call.remark,
        refused=priced.refused,
    )


def decide(
    batch: Sequence[OrderRequest],
    wallets: Mapping[int, Wallet] | None,
    existing: Mapping[tuple[int, str], ExistingOrder],
    stock: Mapping[str, int],
    take_ids: Callable[[int], tuple[int, int]],
    now: datetime,
) -> list[Decision]:
    """One decision per order, in the order of the batch.

    `wallets`: None where the statement that writes the orders is to check them. `existing`: orders by (tenant_id,
    transactionId). `stock`: how many codes of each stock package are free, at least as many as the batch asks for if
    there are. `take_ids(profiles)` gives an orderId and a first profileId. Later orders of the batch see the debits,
    transactionIds and stock of earlier ones.
    """
    placed_before = dict(existing)
    free = dict(stock)
    plans: dict[tuple[int, int], int] = {}  # the last plan that was added to each eSIM
    balances = {tenant_id: wallet.balance for tenant_id, wallet in wallets.items()} if wallets is not None else {}
    decisions: list[Decision] = []
    for request in batch:
        tenant_id = request.tenant_id
        key = (tenant_id, request.transaction_id)
        if (before := placed_before.get(key)) is not None:
            decisions.append(repeat(before, request))
            continue
        if request.refused is not None:
            decisions.append(request.refused)
            continue
        if request.recharge is not None:
            request = _numbered(request, request.recharge, plans)
        taken = request.from_stock
        if taken:
            request = _with_fallbacks(request, free)
            taken = request.from_stock
        wallet = wallets[tenant_id] if wallets is not None else None
        refused = _refuse_now(request, wallet, balances.get(tenant_id, 0), taken, free)
        if refused is not None:
            decisions.append(refused)
            continue
        for package_code, quantity in taken.items():
            free[package_code] -= quantity
        if wallet is not None:
            balances[tenant_id] -= request.amount
        if request.recharge is not None:
            plans[tenant_id, request.recharge.profile_id] = request.recharge.plan_no
        order_id, first_profile_id = take_ids(request.profile_count)
        placed_before[key] = ExistingOrder(order_id, request.digest)
        decisions.append(Placed(request=request, order_id=order_id, first_profile_id=first_profile_id, at=now))
    return decisions


def check(
    request: OrderRequest, before: ExistingOrder | None, wallet: Wallet, stock: Mapping[str, int]
) -> Repeated | refusal.Refusal | None:
    """What `decide` would make of an order now, were it the only one: None where it would be placed."""
    if before is not None:
        return repeat(before, request)
    if request.refused is not None:
        return request.refused
    supplied = _with_fallbacks(request, stock)
    return _refuse_now(supplied, wallet, wallet.balance, supplied.from_stock, stock)


def _with_fallbacks(request: OrderRequest, free: Mapping[str, int]) -> OrderRequest:
    """The order with each line that the stock is too short for given to the next supplier on its route, if any."""
    short = {code for code, quantity in request.from_stock.items() if quantity > free.get(code, 0)}
    if not any(line.fallback and line.package_code in short for line in request.lines):
        return request
    lines = tuple(
        msgspec.structs.replace(line, supplier=line.fallback) if line.fallback and line.package_code in short else line
        for line in request.lines
    )
    return msgspec.structs.replace(request, lines=lines)


def _numbered(request: OrderRequest, added: NextPlan, plans: Mapping[tuple[int, int], int]) -> OrderRequest:
    """A recharge with the number of its plan: behind those that earlier ones of the batch add."""
    last = plans.get((request.tenant_id, added.profile_id))
    if last is None:
        return request
    return msgspec.structs.replace(request, recharge=msgspec.structs.replace(added, plan_no=last + 1))


def refuse_plan(profile_id: int, plan_no: int) -> refusal.Refusal | None:
    """200002 for one plan too many."""
    if plan_no <= MOST_PLANS:
        return None
    about = {"profileId": profile_id, "reason": "TOO_MANY_PLANS"}
    return refusal.StatusForbids(f"an eSIM has at most {MOST_PLANS} plans", about)


def repeat(before: ExistingOrder, request: OrderRequest) -> Repeated | refusal.Refusal:
    """The decision on a transactionId that was used before: the original, or 310402 where the content differs."""
    return Repeated(before.order_id) if before.digest == request.digest else refusal.TransactionIdReused()


def placements(decisions: Iterable[Decision]) -> list[Placed]:
    return [decision for decision in decisions if isinstance(decision, Placed)]


def _refuse_now(
    request: OrderRequest, wallet: Wallet | None, balance: int, taken: Mapping[str, int], free: Mapping[str, int]
) -> refusal.Refusal | None:
    """The refusals that depend on the orders before: 200002 of a recharge and, in the order of specification 4.2, those
    that need the wallet and the stock: 200020, 200011, 200007."""
    if request.recharge is not None and (why := refuse_plan(request.recharge.profile_id, request.recharge.plan_no)):
        return why
    if wallet is not None and wallet.frozen:
        return refusal.WalletFrozen()
    for package_code, quantity in taken.items():
        left = free.get(package_code, 0)
        if quantity > left:
            return refusal.OutOfStock(
                f"{package_code} has {left} {'profile' if left == 1 else 'profiles'} in stock, {quantity} wanted; "
                "nothing was charged"
            )
    return None if wallet is None else wallet_rules.refuse_spending(wallet, balance, request.amount)


def demand(batch: Iterable[OrderRequest]) -> dict[str, int]:
    """How many profiles of each stock package these orders ask for."""
    total: dict[str, int] = {}
    for request in batch:
        for package_code, quantity in request.from_stock.items():
            total[package_code] = total.get(package_code, 0) + quantity
    return total
