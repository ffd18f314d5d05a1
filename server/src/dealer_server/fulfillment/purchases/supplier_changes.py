"""What a worker changes of a remote supplier by itself: its price, once it is accepted, and its status, once it refuses
us as a whole. Each change is an act in the audit log."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog

from dealer_server import metrics, store
from dealer_server.db.errors import LockTimeout
from dealer_server.db.session import Session
from dealer_server.rules.notices import supplier_down
from dealer_server.store.notices import outbox
from dealer_server.store.suppliers import purchase as purchases
from dealer_server.store.suppliers import supplier as suppliers
from dealer_server.store.suppliers.purchase import Claimed, Hop

log = structlog.get_logger()


async def reprice(session: Session, supplier: str, accepted: Sequence[tuple[Claimed, int]]) -> None:
    """Costs that were accepted for purchases are the route's costs from now on.

    In a transaction of its own: routes are locked before orders (docs/decisions/0016). Where it is not carried out, the
    next purchase is refused at the old cost and comes back here.
    """
    prices = {
        (purchase.package_code, purchase.sku, purchase.cost_currency): (purchase.cost, cost)
        for purchase, cost in accepted
    }
    acts = list[dict[str, object]]()
    try:
        async with session.transaction():
            for (package_code, sku, currency), (old_cost, cost) in sorted(prices.items(), key=lambda each: each[0][:2]):
                before = await purchases.reprice(session, package_code, Hop(supplier, sku, old_cost, currency), cost)
                if before is not None:
                    acts.append({"code": supplier, "package": package_code, "sku": sku, "before": before,
                                 "after": cost, "currency": currency})  # fmt: skip
            for act in acts:
                await _record_act(session, "supplier.cost", act)
    except LockTimeout:
        log.warning("supplier_price_not_recorded", supplier=supplier, reason="its route is locked")
        return
    for act in acts:
        log.warning("supplier_price_accepted", supplier=supplier, package_code=act["package"], sku=act["sku"],
                    before=act["before"], after=act["after"], currency=act["currency"])  # fmt: skip


async def pause(session: Session, supplier: str, reason: str, now: datetime) -> None:
    """Nothing new is bought from it until an operator resumes it."""
    async with session.transaction():
        paused = await suppliers.pause(session, supplier, reason)
        if paused:
            await outbox.add(session, [supplier_down.paused(supplier, reason, now)], now)
            after = {"status": "PAUSED", "reason": reason}
            await _record_act(session, "supplier.status", {"code": supplier, "after": after})
    if paused:
        metrics.suppliers_paused.labels(supplier).inc()
        log.error("supplier_paused", supplier=supplier, reason=reason)


async def _record_act(session: Session, action: str, detail: Mapping[str, object]) -> None:
    await store.audit_log.record_act(session, "system", action, None, detail)
