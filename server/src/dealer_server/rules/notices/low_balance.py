"""When is a balance low, and when is that told? (docs/decisions/0035-notices.md)

Below the dealer's own threshold, or where there is none below 25 and 10 % of the balance after the last top-up. Each is
told once after a top-up; the own threshold again after the balance was clearly above it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dealer_server.rules.money import money
from dealer_server.rules.notices.notice import NewNotice

PERCENTS = (25, 10)
"""Of the balance after the last top-up: what `told` 1 and 2 stand for."""
CLEARLY_ABOVE_PERCENT = 110  # of the threshold, so that a balance that moves about it is told of once


class WalletState(NamedTuple):
    """A wallet as a look sees it. `topup_version`, `topup_balance`: of the last top-up, 0 where there was none."""

    tenant_id: int
    currency: str
    version: int
    balance: int
    credit_limit: int
    threshold: int
    topup_version: int
    topup_balance: int

    @property
    def available(self) -> int:
        return self.balance + self.credit_limit


class Told(NamedTuple):
    """What was told of a wallet: 0 nothing, 1 below the threshold or 25 %, 2 below 10 %. `since`: the wallet version
    from which on."""

    level: int = 0
    since: int = 0


NOTHING = Told()


def level(wallet: WalletState) -> int:
    """How low the balance is, as in Told."""
    if wallet.threshold > 0:
        return 1 if wallet.available < wallet.threshold else 0
    return sum(wallet.balance * 100 < wallet.topup_balance * percent for percent in PERCENTS)


def limit(wallet: WalletState, low: int) -> int:
    """The amount that the balance is below, at a level of 1 or 2."""
    if wallet.threshold > 0:
        return wallet.threshold
    return limits(wallet.topup_balance, wallet.currency)[low - 1]


def limits(topup_balance: int, currency: str) -> Sequence[int]:
    """The amounts below which it is told where the dealer has no threshold of its own: PERCENTS of the balance after
    the last top-up."""
    unit = money.unit(currency)
    return [topup_balance * percent // 100 // unit * unit for percent in PERCENTS]


def told_after(wallet: WalletState, before: Told) -> Told:
    """What has been told once this wallet was looked at; it is to be told now where the level is greater than that of
    `rearmed`."""
    armed = rearmed(wallet, before)
    return Told(max(level(wallet), armed.level), armed.since)


def rearmed(wallet: WalletState, before: Told) -> Told:
    """What counts as told: nothing after a top-up, or once the balance was clearly above the threshold."""
    if wallet.topup_version > before.since:
        return Told(0, wallet.topup_version)
    if before.level and wallet.threshold and wallet.available * 100 >= wallet.threshold * CLEARLY_ABOVE_PERCENT:
        return Told(0, wallet.version)
    return before


def notice(wallet: WalletState, before: Told) -> NewNotice | None:
    """What the dealer is told now, where anything is. `before`: what was told when the wallet was last looked at."""
    armed, low = rearmed(wallet, before), level(wallet)
    if low <= armed.level:
        return None
    own = wallet.threshold > 0
    data: dict[str, Any] = {
        "currency": wallet.currency,
        "balance": money.text(wallet.balance, wallet.currency),
        "availableBalance": money.text(wallet.available, wallet.currency),
        "below": money.text(limit(wallet, low), wallet.currency),
        **({} if own else _topup(wallet, low)),
    }
    return NewNotice(wallet.tenant_id, "LOW_BALANCE", f"{armed.since}:{'own' if own else PERCENTS[low - 1]}", data)


def _topup(wallet: WalletState, low: int) -> Mapping[str, Any]:
    balance = money.text(wallet.topup_balance, wallet.currency)
    return {"percent": PERCENTS[low - 1], "balanceAfterTopup": balance}
