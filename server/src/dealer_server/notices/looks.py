"""What is told although no transaction says it: balances and stock that are low, queues that are old, plans that end.

Each look is one transaction; of several workers one looks at a time, and the others leave it to that one.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dealer_server.clock import Clock
from dealer_server.db.session import Session
from dealer_server.rules.notices import ending_plans, low_balance
from dealer_server.rules.notices.notice import OPERATOR_TYPES, OPERATORS, NewNotice, OperatorNoticeType, of_dealer
from dealer_server.rules.notices.subjects import Subject, subject
from dealer_server.store.notices import looks, outbox, states

WALLETS_AT_ONCE = 500
OPEN_AT_ONCE = 1_000
REVIEWS: Mapping[str, OperatorNoticeType] = {"TOPUPS": "TOPUP_WAITING", "REFUNDS": "REFUND_WAITING"}


class Limits(NamedTuple):
    """stock_low: operators are told of less; queue_hours: of what waits for longer. 0: of nothing."""

    stock_low: int = 10
    queue_hours: float = 24.0


class Looks:
    """`balances` is to be called every few seconds, `conditions` every minute."""

    def __init__(self, session: Session, clock: Clock, limits: Limits):
        self._session = session
        self._clock = clock
        self._limits = limits

    async def balances(self) -> int:
        """Looks at wallets that moved; how many there were, WALLETS_AT_ONCE at most. Raises DatabaseLost."""
        async with self._session.transaction() as session:
            if not await looks.only_look(session):
                return 0
            moved = await looks.moved_wallets(session, WALLETS_AT_ONCE)
            told = [notice for wallet, before in moved if (notice := low_balance.notice(wallet, before)) is not None]
            names = await looks.names(session, [notice.tenant_id for notice in told]) if told else {}
            of_dealers = [of_dealer(notice, names.get(notice.tenant_id, "")) for notice in told]
            await outbox.add(session, [*told, *filter(None, of_dealers)], self._clock())
            if moved:
                seen = [(wallet, low_balance.told_after(wallet, before)) for wallet, before in moved]
                await looks.put_looks(session, seen)
            return len(moved)

    async def conditions(self) -> None:
        """Looks at stock, queues and plans that end. Raises DatabaseLost."""
        async with self._session.transaction() as session:
            if await looks.only_look(session):
                now = self._clock()
                await self._stock(session, now)
                await self._queues(session, now)
                await self._reviews(session, now)
                await self._plans(session, now)
                await self._end(session, now)

    async def _stock(self, session: Session, now: datetime) -> None:
        """A package is told of once, until its stock was no longer low."""
        low = {stock.package_code: stock for stock in await looks.stocks(session, self._limits.stock_low)}
        low = {code: stock for code, stock in low.items() if stock.free < self._limits.stock_low}
        known = await looks.conditions(session, "STOCK_LOW")
        if over := sorted(known.keys() - low.keys()):
            await looks.end_conditions(session, "STOCK_LOW", over)
        if begun := sorted(low.keys() - known.keys()):
            await looks.begin_conditions(session, "STOCK_LOW", begun, now)
            await outbox.add(session, [self._stock_low(low[code], now) for code in begun], now)

    def _stock_low(self, stock: looks.Stock, now: datetime) -> NewNotice:
        data = {
            "packageCode": stock.package_code,
            "packageName": stock.name,
            "free": stock.free,
            "below": self._limits.stock_low,
        }
        return NewNotice(OPERATORS, "STOCK_LOW", f"{stock.package_code}:{now.isoformat()}", data)

    async def _queues(self, session: Session, now: datetime) -> None:
        """A queue in which something is old is told of once a day."""
        if not self._limits.queue_hours:
            return
        for queue in looks.QUEUES:
            old = await looks.waiting(session, queue, now - timedelta(hours=self._limits.queue_hours))
            if old is not None:
                oldest = f"{old.oldest_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
                data = {"queue": queue, "count": old.total, "oldestTime": oldest, "hours": self._limits.queue_hours}
                fact = f"{queue}:{now.astimezone(UTC):%Y-%m-%d}"
                await outbox.add(session, [NewNotice(OPERATORS, "QUEUE_OLD", fact, data)], now)

    async def _reviews(self, session: Session, now: datetime) -> None:
        """What waits for a decision is told of once, until nothing did."""
        for queue, notice_type in REVIEWS.items():
            waiting = await looks.waiting(session, queue, now)
            known = await looks.conditions(session, notice_type)
            if waiting is None:
                await looks.end_conditions(session, notice_type, sorted(known))
            elif not known:
                await looks.begin_conditions(session, notice_type, [queue], now)
                oldest = f"{waiting.oldest_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
                data = {"count": waiting.total, "oldestTime": oldest}
                await outbox.add(session, [NewNotice(OPERATORS, notice_type, now.isoformat(), data)], now)

    async def _plans(self, session: Session, now: datetime) -> None:
        """Dealers are told once a day of the plans that end the day after."""
        day = ending_plans.day(now)
        told = await looks.conditions(session, "PLANS_ENDING")
        if day.isoformat() in told:
            return
        begin = ending_plans.begin_of(day)
        plans = await looks.ending_plans(session, begin, begin + timedelta(days=1))
        await looks.end_conditions(session, "PLANS_ENDING", sorted(told))
        await looks.begin_conditions(session, "PLANS_ENDING", [day.isoformat()], now)
        await outbox.add(session, ending_plans.notices(plans, day), now)

    async def _end(self, session: Session, now: datetime) -> None:
        """Notices to operators of what no longer holds are over."""
        told = await states.open_ones(session, OPERATOR_TYPES, OPEN_AT_ONCE)
        about = {one.notice_id: subject(one.notice_type, one.data) for one in told}
        holding = await _holding(session, {of for of in about.values() if of is not None})
        if over := sorted(notice_id for notice_id, of in about.items() if of not in holding):
            await states.end(session, over, now)


async def _holding(session: Session, told: AbstractSet[Subject]) -> AbstractSet[Subject]:
    """Which of these hold still, those of _stock and _reviews as these have just found them."""
    if not told:
        return set()
    suppliers = await states.failing_suppliers(session, [one.name for one in told if one.kind == "SUPPLIER"])
    wallets = await states.low_wallets(session, [int(one.name) for one in told if one.kind == "BALANCE"])
    endpoints = await states.failing_endpoints(session, [int(one.name) for one in told if one.kind == "RECEIVER"])
    return {
        *(Subject("STOCK", code) for code in await looks.conditions(session, "STOCK_LOW")),
        *(Subject("TOPUPS") for _ in await looks.conditions(session, "TOPUP_WAITING")),
        *(Subject("REFUNDS") for _ in await looks.conditions(session, "REFUND_WAITING")),
        *(Subject("SUPPLIER", code) for code in suppliers),
        *(Subject("BALANCE", f"{tenant_id}") for tenant_id in wallets),
        *(Subject("RECEIVER", f"{tenant_id}") for tenant_id in endpoints),
    }
