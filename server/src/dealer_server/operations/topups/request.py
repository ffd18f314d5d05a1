"""How does a dealer ask for a top-up? A request credits nothing until an operator approves it (specification 4)."""

import hashlib
from datetime import datetime

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.rules import refusal
from dealer_server.rules.money import money
from dealer_server.rules.money.wallet import Wallet
from dealer_server.rules.orders import identity, priced_lines, snapshot
from dealer_server.store.audit.audit_log import record_act
from dealer_server.store.wallets.topup import Topup
from esim_dealer.wire import calls

MAX_PENDING = 20


async def request_topup(
    database: Database, tenant_id: int, call: calls.RequestTopup, now: datetime, author: str | None = None
) -> calls.Topup:
    """/account/topup: the request; a repeat gives the original. `author`: a person, recorded in the audit log. Raises
    200015, 000106, 000108, 310402, 200021."""

    async def work(connection: Connection) -> calls.Topup:
        wallet = (await store.wallet.lock(connection, [tenant_id]))[tenant_id]
        if call.currency not in (None, wallet.currency):
            raise refusal.CurrencyDiffers(f"currency is {call.currency}; the wallet's is {wallet.currency}")
        amount = _amount(call, wallet.currency)
        digest = _digest(call, amount)
        original = await store.topup.find(connection, tenant_id, None, call.transaction_id)
        if original is not None:
            if original.digest != digest:
                raise refusal.TransactionIdReused(
                    "transactionId was already used for another top-up; send a new one for a new request"
                )
            return answer(original, duplicate=True)
        topup = await _add(connection, wallet, call, amount, digest, now)
        if author is not None:
            detail = {"topupNo": identity.topup_no(topup.topup_id), "amount": money.text(amount, wallet.currency)}
            await record_act(connection, author, "topup.request", tenant_id, detail)
        return answer(topup, duplicate=False)

    return await database.run(work)


async def _add(
    connection: Connection, wallet: Wallet, call: calls.RequestTopup, amount: int, digest: bytes, now: datetime
) -> Topup:
    """Writes a new request; the wallet is locked. Raises 200021."""
    if await store.topup.pending(connection, wallet.tenant_id) >= MAX_PENDING:
        raise refusal.TooManyTopups(f"{MAX_PENDING} top-ups wait for review already; wait until they are reviewed")
    first_id = identity.first_id_at(int(now.timestamp()))
    topup = Topup(
        tenant_id=wallet.tenant_id,
        topup_id=await store.order.next_block(connection, "topup", first_id, 1),
        transaction_id=call.transaction_id,
        digest=digest,
        amount=amount,
        currency=wallet.currency,
        status="PENDING",
        pay_method=call.pay_method,
        pay_reference=call.pay_reference,
        remark=call.remark,
        reject_reason=None,
        reviewer=None,
        created_at=now,
        reviewed_at=None,
    )
    assert await store.topup.add(connection, topup), "the wallet is locked"
    return topup


async def query_topup(database: Database, tenant_id: int, call: calls.QueryTopup) -> calls.Topup:
    """/account/topup/query. Raises 000105, 310405."""
    async with database.connection() as connection:
        return answer(await _find(connection, tenant_id, call), duplicate=False)


async def cancel_topup(
    database: Database, tenant_id: int, call: calls.CancelTopup, now: datetime, author: str | None = None
) -> calls.Topup:
    """/account/topup/cancel: withdraws a request that waits for review; a repeat is success.

    Dealer and operator both update the row only while it is PENDING, so the first of them decides. `author`: a person,
    recorded in the audit log. Raises 000105, 310405, 200002.
    """

    async def work(connection: Connection) -> calls.Topup:
        topup = await _find(connection, tenant_id, call)
        reviewer = author or "dealer"
        if not await store.topup.review(connection, tenant_id, topup.topup_id, "CANCELLED", None, reviewer, now):
            decided = await store.topup.by_id(connection, topup.topup_id)
            assert decided is not None
            if decided.status != "CANCELLED":
                raise refusal.StatusForbids(f"the top-up is {decided.status} already", data={"status": decided.status})
            return answer(decided, duplicate=True)
        if author is not None:
            detail = {
                "topupNo": identity.topup_no(topup.topup_id),
                "amount": money.text(topup.amount, topup.currency),
                "before": {"status": "PENDING"},
                "after": {"status": "CANCELLED"},
            }
            await record_act(connection, author, "topup.cancel", tenant_id, detail)
        return answer(topup._replace(status="CANCELLED", reviewer=reviewer, reviewed_at=now), duplicate=False)

    return await database.run(work)


async def _find(connection: Connection, tenant_id: int, call: calls.QueryTopup | calls.CancelTopup) -> Topup:
    """The request a call names by topupNo, transactionId or both. Raises 000105, 310405."""
    if call.topup_no is None and call.transaction_id is None:
        raise refusal.ParameterMissing("topupNo is required; accepted: topupNo or transactionId, or both")
    topup_id = None if call.topup_no is None else identity.topup_id(call.topup_no)
    if call.topup_no is not None and topup_id is None:
        raise refusal.TopupNotFound
    topup = await store.topup.find(connection, tenant_id, topup_id, call.transaction_id)
    if topup is None:
        raise refusal.TopupNotFound
    return topup


def answer(topup: Topup, *, duplicate: bool) -> calls.Topup:
    return calls.Topup(
        topup_no=identity.topup_no(topup.topup_id),
        transaction_id=topup.transaction_id,
        amount=money.text(topup.amount, topup.currency),
        currency=topup.currency,
        status=topup.status,
        reject_reason=topup.reject_reason or UNSET,
        create_time=snapshot.whole_seconds(topup.created_at),
        review_time=snapshot.whole_seconds(topup.reviewed_at) if topup.reviewed_at else UNSET,
        duplicate=duplicate,
    )


def _amount(call: calls.RequestTopup, currency: str) -> int:
    """Raises 000106, 000108."""
    amount = priced_lines.read_amount("amount", call.amount, currency)
    if amount == 0:
        raise refusal.ParameterInvalid("amount is 0; accepted: more than that")
    return amount


def _digest(call: calls.RequestTopup, amount: int) -> bytes:
    """16 bytes that two calls share when they ask for the same."""
    parts = (str(amount), call.pay_method or "", call.pay_reference or "")
    return hashlib.sha256("\0".join(parts).encode()).digest()[:16]
