"""How does an operator decide on refunds? The worker then settles them (fulfillment/refund_settler.py)."""

from collections.abc import Sequence

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError, require_reason
from dealer_server.rules.money import money
from dealer_server.rules.notices.notice import NewNotice
from dealer_server.rules.orders import identity
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.notices import outbox
from dealer_server.store.refunds.refund import Refund


async def list_refunds(
    database: Database, tenant_id: int | None, status: str | None, limit: int = 200
) -> Sequence[Refund]:
    """The newest first."""
    async with database.connection() as connection:
        return await store.refund.listed(connection, tenant_id, status, limit)


async def approve_refund(database: Database, refund_no: str, author: str, clock: Clock) -> Refund:
    """Lets the profiles that wait for a review be refunded. Raises OperatorError."""
    return await _review(database, refund_no, None, author, clock)


async def reject_refund(database: Database, refund_no: str, reason: str, author: str, clock: Clock) -> Refund:
    """Raises OperatorError."""
    require_reason(reason, "a rejection needs a reason: the dealer reads it")
    return await _review(database, refund_no, reason, author, clock)


async def _review(database: Database, refund_no: str, reason: str | None, author: str, clock: Clock) -> Refund:
    """`reason` None: approves."""
    refund_id = identity.refund_id(refund_no)

    async def work(connection: Connection) -> Refund:
        refund = await store.refund.by_id(connection, refund_id) if refund_id is not None else None
        if refund is None:
            raise OperatorError(f"no refund {refund_no}")
        await store.order.lock(connection, [(refund.tenant_id, refund.order_id)])
        waiting = [line for line in refund.lines if line.way == "REVIEW" and line.status == "PENDING"]
        decided = [(refund.tenant_id, refund.refund_id, line.profile_id, reason is None, reason) for line in waiting]
        if not await store.refund.decide_lines(connection, decided, clock()):
            raise OperatorError(f"{refund_no} is {refund.status}: none of its profiles waits for a review")
        after = await store.refund.by_id(connection, refund.refund_id)
        assert after is not None
        detail = {
            "refundNo": refund_no,
            "orderNo": identity.order_no(refund.order_id),
            "profiles": len(waiting),
            "before": {"lines": "PENDING"},
            "after": {"lines": "READY" if reason is None else "REJECTED"},
        }
        if reason is not None:
            detail["reason"] = reason
        action = "refund.approve" if reason is None else "refund.reject"
        currency = await store.refund.currency(connection, refund.tenant_id, refund.order_id)
        amount = money.text(sum(line.amount for line in waiting), currency)
        await outbox.add(connection, [_notice(after, waiting[0].profile_id, amount, currency, reason)], clock())
        await record_act(connection, author, action, refund.tenant_id, detail)
        return after

    return await database.run(work)


def _notice(refund: Refund, first: int, amount: str, currency: str, reason: str | None) -> NewNotice:
    """What the dealer is told of a review. `first`: a profile it decides about, `amount`: of all of them; `reason`
    None: approved."""
    data = {
        "refundNo": identity.refund_no(refund.refund_id),
        "orderNo": identity.order_no(refund.order_id),
        "status": "APPROVED" if reason is None else "REJECTED",
        "currency": currency,
        "amount": amount,
    }
    if reason is not None:
        data["rejectReason"] = reason
    return NewNotice(refund.tenant_id, "REFUND_REVIEWED", f"refund:{refund.refund_id}:{first}", data)
