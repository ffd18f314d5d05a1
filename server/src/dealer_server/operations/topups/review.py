"""How does an operator decide on a top-up? Approving credits the wallet, once; rejecting gives the dealer a reason."""

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
from dealer_server.store.wallets.topup import Topup


async def list_topups(
    database: Database, tenant_id: int | None, status: str | None, limit: int = 200
) -> Sequence[Topup]:
    async with database.connection() as connection:
        return await store.topup.listed(connection, tenant_id, status, limit)


async def approve_topup(database: Database, topup_no: str, author: str, clock: Clock) -> Topup:
    """Credits the wallet. A second review is an error. Raises OperatorError."""
    return await _review(database, topup_no, None, author, clock)


async def reject_topup(database: Database, topup_no: str, reason: str, author: str, clock: Clock) -> Topup:
    """Raises OperatorError."""
    require_reason(reason, "a rejection needs a reason: the dealer reads it")
    return await _review(database, topup_no, reason, author, clock)


async def _review(database: Database, topup_no: str, reason: str | None, author: str, clock: Clock) -> Topup:
    """`reason` None: approves."""
    topup_id = identity.topup_id(topup_no)

    async def work(connection: Connection) -> Topup:
        topup = await store.topup.by_id(connection, topup_id) if topup_id is not None else None
        if topup is None:
            raise OperatorError(f"no top-up {topup_no}")
        wallet = (await store.wallet.lock(connection, [topup.tenant_id]))[topup.tenant_id]
        now, status = clock(), "APPROVED" if reason is None else "REJECTED"
        if not await store.topup.review(connection, topup.tenant_id, topup.topup_id, status, reason, author, now):
            decided = await store.topup.by_id(connection, topup.topup_id)
            assert decided is not None
            raise OperatorError(f"{topup_no} is {decided.status} already, by {decided.reviewer}")
        detail: dict[str, object] = {"topupNo": topup_no, "amount": money.text(topup.amount, topup.currency)}
        before, after = {"status": "PENDING"}, {"status": status}
        if reason is None:
            version = await store.wallet.move(connection, topup.tenant_id, "TOPUP", topup.amount, topup.topup_id, now)
            detail["entryVersion"] = version
            before["balance"] = money.text(wallet.balance, topup.currency)
            after["balance"] = money.text(wallet.balance + topup.amount, topup.currency)
        else:
            detail["reason"] = reason
        detail |= {"before": before, "after": after}
        await outbox.add(connection, [notice(topup, status, reason, wallet.balance)], now)
        action = "topup.approve" if reason is None else "topup.reject"
        await record_act(connection, author, action, topup.tenant_id, detail)
        return topup._replace(status=status, reject_reason=reason, reviewer=author, reviewed_at=now)

    return await database.run(work)


def notice(topup: Topup, status: str, reason: str | None, balance: int) -> NewNotice:
    """What the dealer is told of a review. `balance`: before."""
    data = {
        "topupNo": identity.topup_no(topup.topup_id),
        "transactionId": topup.transaction_id,
        "status": status,
        "currency": topup.currency,
        "amount": money.text(topup.amount, topup.currency),
        "balance": money.text(balance + (topup.amount if reason is None else 0), topup.currency),
    }
    if reason is not None:
        data["rejectReason"] = reason
    return NewNotice(topup.tenant_id, "TOPUP_REVIEWED", f"topup:{topup.topup_id}", data)
