"""How is an eSIM recharged? An order is placed that names it (specification 4.14, docs/decisions/0030-recharges.md).

Recharges are decided in batches, as orders are: find, lock wallets and the orders of the eSIMs, decide, write, commit.
The orders that are written differ from others in their one profile only, which has no codes but an eSIM that it
recharges; the worker has its supplier apply it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dealer_server import audit_context, failpoints, store
from dealer_server.audit_context import Actor
from dealer_server.clock import Clock
from dealer_server.db.batcher import Answer
from dealer_server.db.database import Database
from dealer_server.db.errors import DatabaseLost
from dealer_server.db.locking_batcher import LockingBatcher
from dealer_server.db.session import Session
from dealer_server.operations.catalogue.catalogue import Catalogue
from dealer_server.operations.orders.id_allocator import IdAllocator
from dealer_server.operations.profiles.profile_key import profile_key
from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, order
from dealer_server.rules.orders.order import Decision, OrderRequest, Placed, Recharge
from dealer_server.rules.orders.pricing import PriceList
from dealer_server.rules.recharges import recharge
from dealer_server.rules.recharges.recharge import Target, Wanted
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.profiles import iccid as iccids
from dealer_server.store.recharges import recharge as recharges
from dealer_server.suppliers import registry
from esim_dealer.wire import calls

RECHARGES_PER_BATCH = 200


class RechargeRequest(msgspec.Struct, frozen=True):
    """A recharge that a dealer asks for. `refused`: a refusal of the price, which comes after those of the eSIM.
    `act`: the person who asks at the console, for the audit log."""

    order: OrderRequest
    wanted: Wanted
    refused: refusal.Refusal | None
    act: Actor | None = None

    @property
    def tenant_id(self) -> int:
        return self.order.tenant_id


class RechargeBatcher:
    """Decides and writes the recharges that arrive together as one batch. One per process."""

    def __init__(self, database: Database, ids: IdAllocator, clock: Clock, placed: Callable[[], None] = lambda: None):
        self._ids = ids
        self._clock = clock
        self._placed = placed
        self._batcher: LockingBatcher[RechargeRequest, Decision] = LockingBatcher(
            database, self._decide, bound=RECHARGES_PER_BATCH
        )

    def submit(self, request: RechargeRequest) -> asyncio.Future[Decision]:
        """The decision on a recharge; a refusal is raised."""
        return self._batcher.submit(request)

    async def open(self) -> None:
        """Opens the connections that the first call needs. Raises DatabaseLost."""
        await self._batcher.open()

    async def close(self) -> None:
        """Answers everything submitted, then closes the connections."""
        await self._batcher.close()

    async def _decide(
        self, session: Session, batch: Sequence[RechargeRequest], wait: bool
    ) -> Sequence[Answer[Decision]]:
        """Decides under locks. Without `wait`, recharges that need a wallet or an order which another transaction holds
        are left to the lock waiters."""
        located = await iccids.locate(
            session, [(request.tenant_id, request.wanted.profile_id, request.wanted.iccid) for request in batch]
        )
        take_ids = await self._ids.reserve(len(batch), len(batch))
        try:
            async with session.transaction():
                wallets = await store.wallet.lock(session, sorted({one.tenant_id for one in batch}), wait=wait)
                of_esims = sorted({key[:2] for key in located if key is not None and key[0] in wallets})
                locked = await store.order.lock(session, of_esims, wait=wait)
                free = [
                    (request, key)
                    for request, key in zip(batch, located, strict=True)
                    if request.tenant_id in wallets and (key is None or key[:2] in locked)
                ]
                existing = await store.order.find(
                    session, [(one.tenant_id, one.order.transaction_id) for one, _ in free]
                )
                targets = await recharges.targets(session, sorted({(key[0], key[2]) for _, key in free if key}))
                requests = _with_targets(free, targets)
                now = self._clock()
                decisions = order.decide(requests, wallets, existing, {}, take_ids, now)
                placed = order.placements(decisions)
                if placed:
                    await store.order.write(session, placed)
                    await _record_acts(session, zip([request for request, _ in free], decisions, strict=True))
                failpoints.hit("recharge.written")
            failpoints.hit("recharge.committed")
        except DatabaseLost as lost:
            if not lost.sent:
                raise
            return [refusal.OutcomeUnknown() for _ in batch]
        if placed:
            self._placed()
        decided = {id(request): decision for (request, _), decision in zip(free, decisions, strict=True)}
        return [decided.get(id(request)) or self._batcher.wait_for_lock(request) for request in batch]


async def _record_acts(session: Session, decided: Iterable[tuple[RechargeRequest, Decision]]) -> None:
    """Records the recharges that people asked for."""
    for request, decision in decided:
        if request.act is None or not isinstance(decision, Placed):
            continue
        added = decision.request.recharge
        assert added is not None, "a recharge that is placed names its eSIM"
        detail = {
            "profileId": added.profile_id,
            "orderNo": identity.order_no(decision.order_id),
            "packageCode": request.order.lines[0].package_code,
            "amount": money.text(request.order.amount, request.order.currency),
        }
        # The batch runs in a task of its own, which has the source of no request.
        audit_context.source.set(request.act.source)
        await record_act(session, request.act.author, "profile.recharge", request.tenant_id, detail)


def recharge_request(
    tenant_id: int,
    call: calls.RechargeProfile,
    catalogue: Catalogue,
    prices: PriceList,
    act: Actor | None = None,
) -> RechargeRequest:
    """The call at this dealer's prices. Raises 000105, 000106, 000108, 000111."""
    profile_id, iccid = profile_key(call.profile_id, call.iccid)
    offer = catalogue.offer(call.package_code, prices)
    priced = recharge.price(call, prices.currency, offer)
    wanted = Wanted(
        profile_id=profile_id,
        iccid=iccid,
        package=offer.package if offer else None,
        period_num=call.period_num,
        base=catalogue.package,
        can_recharge=registry.RECHARGING.__contains__,
        refused=priced.refused,
    )
    placed = OrderRequest(
        tenant_id=tenant_id,
        transaction_id=call.transaction_id,
        digest=priced.digest,
        currency=prices.currency,
        amount=priced.amount,
        lines=(priced.line,),
        remark=call.remark,
    )
    return RechargeRequest(placed, wanted, priced.refused_price, act)


def _with_targets(
    free: Sequence[tuple[RechargeRequest, tuple[int, int, int] | None]], targets: dict[tuple[int, int], Target]
) -> list[OrderRequest]:
    """The orders to be placed: each with its plan_no, or with why its eSIM cannot be recharged."""
    found = []
    plans = {key: target.plans for key, target in targets.items()}
    for request, key in free:
        target = targets.get((key[0], key[2])) if key is not None else None
        refused = recharge.refuse(request.wanted, target) or request.refused
        if refused is not None or target is None:
            found.append(msgspec.structs.replace(request.order, refused=refused))
            continue
        at = target.tenant_id, target.profile_id
        plans[at] += 1
        lines = tuple(msgspec.structs.replace(line, supplier=target.supplier) for line in request.order.lines)
        added = Recharge(target.profile_id, plans[at], target.order_id)
        found.append(msgspec.structs.replace(request.order, lines=lines, recharge=added))
    return found
