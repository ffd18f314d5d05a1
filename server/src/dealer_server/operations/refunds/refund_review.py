"""An operator sees, approves and rejects refunds; the worker settles them (fulfillment/refund_settler.py)."""

from collections.abc import Sequence

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.tenants.tenant import OperatorError, require_reason
from dealer_server.rules.orders import identity
from dealer_server.store.refunds import refund as rows
from dealer_server.store.refunds.refund import Refund


async def listed(database: Database, tenant_id: int | None, status: str | None, limit: int = 200) -> Sequence[Refund]:
    """The newest first."""
    async with database.connection() as connection:
        return await rows.listed(connection, tenant_id, status, limit)


async def approve(database: Database, refund_no: str, author: str, clock: Clock) -> Refund:
    """Lets the profiles that wait for a review be given back. Raises OperatorError."""
    return await _review(database, refund_no, None, author, clock)


async def reject(database: Database, refund_no: str, reason: str, author: str, clock: Clock) -> Refund:
    """Raises OperatorError."""
    require_reason(reason, "a rejection needs a reason, for the audit log")
    return await _review(database, refund_no, reason, author, clock)


async def _review(database: Database, refund_no: str, reason: str | None, author: str, clock: Clock) -> Refund:
    refund_id = identity.refund_id(refund_no)

    async def work(connection: Connection) -> Refund:
        found = await rows.by_id(connection, refund_id) if refund_id is not None else None
        if found is None:
            raise OperatorError(f"no refund {refund_no}")
        await store.order.lock(connection, [(found.tenant_id, found.order_id)])
        waiting = [line for line in found.lines if line.way == "REVIEW" and line.status == "PENDING"]
        decided = [(found.tenant_id, found.refund_id, line.profile_id, reason is None, reason) for line in waiting]
        if not await rows.decide_lines(connection, decided, clock()):
            raise OperatorError(f"{refund_no} is {found.status}: nothing of it waits for a review")
        detail = {
            "refundNo": refund_no,
            "orderNo": identity.order_no(found.order_id),
            "profiles": len(waiting),
            "before": {"lines": "PENDING"},
            "after": {"lines": "READY" if reason is None else "REJECTED"},
        }
        if reason is not None:
            detail["reason"] = reason
        again = await rows.by_id(connection, found.refund_id)
        assert again is not None
        action = f"refund.{'approve' if reason is None else 'reject'}"
        await store.audit_log.record_act(connection, author, action, found.tenant_id, detail)
        return again

    return await database.run(work)
