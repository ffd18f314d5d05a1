"""How do made-up dealers pay? By bank transfer, whenever the balance falls below what they like to have."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random

from dealer_server.dev.history import Dealer
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity
from dealer_server.store.past.orders import PastOrder
from dealer_server.store.wallets.topup import Topup

REVIEWER = "console:operator"
ASKED_AFTER, REVIEWED_AFTER = timedelta(minutes=20), timedelta(hours=4)
"""The money is low; it was asked for: at most so long."""
BEGINS_AFTER = timedelta(minutes=30)
"""Of the days: the first top-up is approved, before the first order."""
WAITS = timedelta(hours=2)
"""Since when the last request of a dealer waits who has one that does."""
MISTAKEN = timedelta(days=4)
"""How long ago that dealer asked for money that never came."""


def payments(dealer: Dealer, orders: Sequence[PastOrder], since: datetime, now: datetime) -> Sequence[Topup]:
    """So that the orders are paid, of a wallet that is empty before, and the dealer's balance is left."""
    chance, left, each = Random(dealer.seed), dealer.balance * money.SCALE, dealer.tops_up * money.SCALE
    moves = sorted(
        [(identity.created_at(one.order.order_id), -one.order.amount) for one in orders]
        + [(one.refund.settled_at, one.order.refund_amount) for one in orders if one.refund and one.refund.settled_at]
    )
    spent = -sum(amount for _, amount in moves)
    count = max(spent // each, 0)
    balance = left + spent - count * each
    topups = [_approved(_requested(dealer, balance, 0, since), since + BEGINS_AFTER)]
    for at, amount in moves:
        balance += amount
        if balance <= left and len(topups) <= count:
            asked_at = min(at + chance.random() * ASKED_AFTER, now)
            reviewed_at = min(asked_at + chance.random() * REVIEWED_AFTER, now)
            topups.append(_approved(_requested(dealer, each, len(topups), asked_at), reviewed_at))
            balance += each
    if dealer.asks and orders:
        missing = _requested(dealer, each, len(topups), now - MISTAKEN)
        said = "No transfer with this reference has come. Please check it with your bank."
        topups += [
            missing._replace(
                status="REJECTED", reject_reason=said, reviewer=REVIEWER, reviewed_at=now - MISTAKEN + REVIEWED_AFTER
            ),
            _requested(dealer, each * 2, len(topups) + 1, now - WAITS),
        ]
    return topups


def _approved(topup: Topup, at: datetime) -> Topup:
    return topup._replace(status="APPROVED", reviewer=REVIEWER, reviewed_at=at)


def _requested(dealer: Dealer, amount: int, number: int, at: datetime) -> Topup:
    """`number` counts those of its dealer."""
    topup_id = identity.first_id_at(int(at.timestamp())) + dealer.seed
    return Topup(0, topup_id, f"transfer-{number + 1}", bytes(16), amount, "USD", "PENDING", "BANK_TRANSFER",
                 f"RF{dealer.seed}{number + 1:04d}", None, None, None, at, None)  # fmt: skip
