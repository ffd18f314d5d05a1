"""Asking for money in the wallet, and giving it: a request never credits by itself (decisions 4 /account/topup)."""

import hashlib
from collections.abc import Sequence
from datetime import datetime

from msgspec import UNSET

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.tenants.tenant import OperatorError, require_reason
from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, order, snapshot
from dealer_server.store.wallets import topup as rows
from dealer_server.store.wallets.topup import Topup
from esim_dealer.wire import calls

MOST_PENDING = 20


async def request(
    database: Database, tenant_id: int, call: calls.RequestTopup, now: datetime, author: str | None = None
) -> calls.Topup:
    """/account/topup: the request as it stands; a repeat is the original. A person's (`author`) stands in the audit log
    too. Raises 200015, 000108, 310402, 200021."""

    async def work(connection: Connection) -> calls.Topup:
        wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
        if call.currency not in (None, wallet.currency):
            raise refusal.CurrencyDiffers(f"currency is {call.currency}; the wallet's is {wallet.currency}")
        amount = _amount(call, wallet.currency)
        digest = _meaning(call, amount)
        before = await rows.find(connection, tenant_id, None, call.transaction_id)
        if before is not None:
            if before.digest != digest:
                raise refusal.TransactionIdReused(
                    "transactionId was already used for another top-up; send a new one for a new request"
                )
            return answer(before, duplicate=True)
        if await rows.pending(connection, tenant_id) >= MOST_PENDING:
            raise refusal.TooManyTopups(f"{MOST_PENDING} top-ups wait for review already; wait until they are reviewed")
        first = identity.first_id_at(int(now.timestamp()))
        new = Topup(
            *(tenant_id, await store.order.next_block(connection, "topup", first, 1), call.transaction_id, digest),
            *(amount, wallet.currency, "PENDING", call.pay_method, call.pay_reference, call.remark, None, None),
            *(now, None),
        )
        assert await rows.add(connection, new), "the wallet is locked"
        if author is not None:
            detail = {"topupNo": identity.topup_no(new.topup_id), "amount": money.text(amount, wallet.currency)}
            await store.audit_log.record_act(connection, author, "topup.request", tenant_id, detail)
        return answer(new, duplicate=False)

    return await database.run(work)


async def query(database: Database, tenant_id: int, call: calls.QueryTopup) -> calls.Topup:
    """/account/topup/query. Raises 000105, 310405."""
    async with database.connection() as connection:
        return answer(await _named(connection, tenant_id, call), duplicate=False)


async def cancel(
    database: Database, tenant_id: int, call: calls.CancelTopup, now: datetime, author: str | None = None
) -> calls.Topup:
    """/account/topup/cancel: withdraws a request that waits for review; a repeat is success.

    Whoever ends the request first, dealer or operator, has ended it: both update the row only while it is PENDING. A
    person's act (`author`) stands in the audit log. Raises 000105, 310405, 200002.
    """

    async def work(connection: Connection) -> calls.Topup:
        found = await _named(connection, tenant_id, call)
        who = author or "dealer"
        if not await rows.review(connection, tenant_id, found.topup_id, "CANCELLED", None, who, now):
            ended = await rows.by_id(connection, found.topup_id)
            assert ended is not None
            if ended.status != "CANCELLED":
                raise refusal.StatusForbids(f"the top-up is {ended.status} already", data={"status": ended.status})
            return answer(ended, duplicate=True)
        if author is not None:
            detail = {
                "topupNo": identity.topup_no(found.topup_id),
                "amount": money.text(found.amount, found.currency),
                "before": {"status": "PENDING"},
                "after": {"status": "CANCELLED"},
            }
            await store.audit_log.record_act(connection, author, "topup.cancel", tenant_id, detail)
        return answer(found._replace(status="CANCELLED", reviewer=who, reviewed_at=now), duplicate=False)

    return await database.run(work)


async def _named(connection: Connection, tenant_id: int, call: calls.QueryTopup | calls.CancelTopup) -> Topup:
    """The request a call names by topupNo, transactionId or both. Raises 000105, 310405."""
    if call.topup_no is None and call.transaction_id is None:
        raise refusal.ParameterMissing("topupNo is required; accepted: topupNo or transactionId, or both")
    topup_id = None if call.topup_no is None else identity.topup_id(call.topup_no)
    if call.topup_no is not None and topup_id is None:
        raise refusal.TopupNotFound
    found = await rows.find(connection, tenant_id, topup_id, call.transaction_id)
    if found is None:
        raise refusal.TopupNotFound
    return found


# The operator


async def listed(database: Database, tenant_id: int | None, status: str | None, limit: int = 200) -> Sequence[Topup]:
    async with database.connection() as connection:
        return await rows.listed(connection, tenant_id, status, limit)


async def approve(database: Database, topup_no: str, author: str, clock: Clock) -> Topup:
    """Credits the wallet, once, whatever is pressed twice. Raises OperatorError."""
    return await _review(database, topup_no, None, author, clock)


async def reject(database: Database, topup_no: str, reason: str, author: str, clock: Clock) -> Topup:
    """Raises OperatorError."""
    require_reason(reason, "a rejection needs a reason: the dealer reads it")
    return await _review(database, topup_no, reason, author, clock)


async def _review(database: Database, topup_no: str, reason: str | None, author: str, clock: Clock) -> Topup:
    topup_id = identity.topup_id(topup_no)

    async def work(connection: Connection) -> Topup:
        found = await rows.by_id(connection, topup_id) if topup_id is not None else None
        if found is None:
            raise OperatorError(f"no top-up {topup_no}")
        wallet = (await store.wallet.lock(connection, [found.tenant_id]))[found.tenant_id]
        now, status = clock(), "APPROVED" if reason is None else "REJECTED"
        if not await rows.review(connection, found.tenant_id, found.topup_id, status, reason, author, now):
            again = await rows.by_id(connection, found.topup_id)
            assert again is not None
            raise OperatorError(f"{topup_no} is {again.status} already, by {again.reviewer}")
        detail: dict[str, object] = {"topupNo": topup_no, "amount": money.text(found.amount, found.currency)}
        before, after = {"status": "PENDING"}, {"status": status}
        if reason is None:
            version = await store.wallet.move(connection, found.tenant_id, "TOPUP", found.amount, found.topup_id, now)
            detail["entryVersion"] = version
            before["balance"] = money.text(wallet.balance, found.currency)
            after["balance"] = money.text(wallet.balance + found.amount, found.currency)
        else:
            detail["reason"] = reason
        await store.audit_log.record_act(
            connection, author, f"topup.{'approve' if reason is None else 'reject'}", found.tenant_id,
            detail | {"before": before, "after": after},
        )  # fmt: skip
        return found._replace(status=status, reject_reason=reason, reviewer=author, reviewed_at=now)

    return await database.run(work)


def answer(one: Topup, *, duplicate: bool) -> calls.Topup:
    return calls.Topup(
        topup_no=identity.topup_no(one.topup_id),
        transaction_id=one.transaction_id,
        amount=money.text(one.amount, one.currency),
        currency=one.currency,
        status=one.status,
        reject_reason=one.reject_reason or UNSET,
        create_time=snapshot.whole_seconds(one.created_at),
        review_time=snapshot.whole_seconds(one.reviewed_at) if one.reviewed_at else UNSET,
        duplicate=duplicate,
    )


def _amount(call: calls.RequestTopup, currency: str) -> int:
    """Raises 000108."""
    amount = order.read_amount("amount", call.amount, currency)
    if amount == 0:
        raise refusal.ParameterInvalid("amount is 0; accepted: more than that")
    return amount


def _meaning(call: calls.RequestTopup, amount: int) -> bytes:
    parts = (str(amount), call.pay_method or "", call.pay_reference or "")
    return hashlib.sha256("\0".join(parts).encode()).digest()[:16]
