"""What does a claim cost while a dead tenant's backlog lies beside a live tenant's deliveries? The statements alone."""

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from bench.support import growth, measure
from bench.support.failure import Failed
from bench.support.instance import Instance
from bench.support.measure import Reading
from dealer_server import clock
from dealer_server.db.database import Database
from dealer_server.db.session import Session
from dealer_server.store.webhooks import claim as webhook_claim
from dealer_server.store.webhooks.claim import TenantQuota

WAITING = 50_000
CAP = 32  # of attempts in flight per tenant, unless set otherwise
PROBE = 1  # what an open breaker lets through
_LIVE_ORDERS = 200
_CLAIMS = 200
_OVER = timedelta(minutes=10)
_TENANTS = 500

# Both events of an order have failed and are due again, so that half of what is due may not go before the other half.
_DEAD = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, attempt_count, hints, body, due_at,
    created_at)
SELECT tenant_id, order_id, event_type, order_version, 'RETRY', 3, '{{}}', decode(repeat('5a', 1400), 'hex'),
    now() - random() * interval '10 minutes', {growth.AT}
FROM stored, (VALUES ('ORDER_PAID', 1), ('DELIVERY_UPDATED', 2)) AS event(event_type, order_version)
ORDER BY order_id, order_version
"""
_LIVE = f"""
INSERT INTO webhook_delivery (tenant_id, order_id, event_type, order_version, state, due_at, created_at)
SELECT tenant_id, order_id, 'DELIVERY_UPDATED', 2, 'READY', {growth.AT}, {growth.AT} FROM stored ORDER BY order_id
"""


def load(instance: Instance, waiting: int = WAITING) -> str:
    """A database with a dead tenant, of which so many deliveries wait, and a live one; its name."""
    database, (dead, live) = instance.fresh(), instance.dealers[:2]
    instance.subscribe(database, dict.fromkeys((dead, live), "http://127.0.0.1:8443/webhooks"))
    growth.load(instance, database, waiting // 2, _OVER, _OVER, dealers=[dead], events=_DEAD)
    growth.load(instance, database, _LIVE_ORDERS, _OVER, dealers=[live], events=_LIVE)
    growth.vacuum(instance, database)
    return database


def claim(instance: Instance, database: str, dead_share: int) -> Reading:
    """Claims of a cap's worth for the live tenant and so many for the dead one, undone each time."""
    dead, live = instance.dealers[:2]
    shares = [TenantQuota(dead.tenant_id, dead_share), TenantQuota(live.tenant_id, CAP)]

    async def once(session: Session) -> float:
        await session.execute("BEGIN")
        begun = time.perf_counter()
        claimed = await webhook_claim.due_deliveries(session, shares, clock.now())
        taken = time.perf_counter() - begun
        await session.execute("ROLLBACK")
        if len(claimed) != dead_share + CAP:
            raise Failed(f"{len(claimed)} deliveries were claimed, not {dead_share + CAP}")
        return taken

    return _timed(instance, database, once)


def look(instance: Instance, database: str) -> Reading:
    """Which tenants have something to deliver, and how many may each have: asked before every claim."""

    async def once(session: Session) -> float:
        begun = time.perf_counter()
        waiting = await webhook_claim.tenants_waiting(session, 0, _TENANTS, clock.now())
        taken = time.perf_counter() - begun
        if len(waiting) != 2:
            raise Failed(f"{len(waiting)} tenants were found waiting, not 2")
        return taken

    return _timed(instance, database, once)


def _timed(instance: Instance, database: str, once: Callable[[Session], Awaitable[float]]) -> Reading:
    """On a session as the worker has it."""

    async def work(opened: Database) -> Reading:
        session = opened.session(idle_in_transaction_session_timeout="30s")
        try:
            return measure.percentiles([await once(session) * 1000 for _ in range(_CLAIMS)])
        finally:
            await session.close()

    return instance.run(database, work)
