"""Can a dealer spend more than its balance and credit limit? No: this rule and the wallet table's CHECK refuse it."""

import msgspec

from dealer_server.rules import refusal
from dealer_server.rules.money import money


class Wallet(msgspec.Struct, frozen=True):
    """A tenant's BALANCE wallet. Amounts are ten-thousandths of the major unit; `version` counts its ledger entries."""

    tenant_id: int
    currency: str
    balance: int
    credit_limit: int
    version: int
    frozen: bool

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


def credited(wallet: Wallet, amount: int) -> Wallet:
    """The wallet after one entry that credits it. A frozen wallet can be credited."""
    return msgspec.structs.replace(wallet, balance=wallet.balance + amount, version=wallet.version + 1)


def refuse_spending(wallet: Wallet, balance: int, amount: int) -> refusal.Refusal | None:
    """Why `amount` cannot be spent while `balance` is left (200020, 200007), or None."""
    if wallet.frozen:
        return refusal.WalletFrozen()
    available = balance + wallet.credit_limit
    if amount <= available:
        return None
    return refusal.BalanceInsufficient(
        f"the order costs {money.text(amount, wallet.currency)} {wallet.currency}, "
        f"the wallet has {money.text(available, wallet.currency)} available",
        {
            "requiredAmount": money.text(amount, wallet.currency),
            "availableBalance": money.text(available, wallet.currency),
            "currency": wallet.currency,
        },
    )
