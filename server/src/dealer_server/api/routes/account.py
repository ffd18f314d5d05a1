"""The routes of the account: whether calls arrive, the wallet's balance, its ledger."""

from dealer_server.api.routes.route import Parts, let_others_in, route
from dealer_server.operations.cache import Caller
from dealer_server.operations.wallets.list_entries import list_entries
from dealer_server.operations.wallets.query_balance import query_balance
from esim_dealer.wire import calls, operations

FIELDS = {
    "status": "`UP` when healthy.",
    "tenantId": "Your tenant's id.",
    "clientName": "Your tenant's name.",
    "accountType": "The kind of wallet.",
    "balance": "What the wallet holds; below zero while credit is used.",
    "creditLimit": "How far the balance may fall below zero.",
    "availableBalance": "balance plus creditLimit.",
    "lowBalanceThreshold": "Below this, lowBalance is true.",
    "lowBalance": "Whether availableBalance is below lowBalanceThreshold.",
    "entries": "Newest first.",
    "entryNo": "Counts the entries of your wallet from 1.",
    "entryType": "What moved the money.",
    "Statement.entryType": "Only these.",
    "Statement.startTime": "Made at or after.",
    "Statement.endTime": "Made before.",
    "Entry.amount": "Below zero where money left the wallet.",
    "balanceAfter": "The balance after this entry.",
    "Entry.createTime": "When it was made.",
    "Entry.orderNo": "Of a debit or a refund.",
    "Entry.topupNo": "Of a top-up.",
}


@route(
    operations.HEALTH,
    summary="Verify signing and connectivity",
    description="The first call to make: when it answers `UP`, headers and signature are right.",
)
async def health(parts: Parts, caller: Caller, _: calls.Empty) -> calls.Health:
    await let_others_in()
    parts.record_step(caller.tenant_id, "HEALTH")
    return calls.Health(status="UP", tenant_id=str(caller.tenant_id), client_name=caller.access.name)


@route(
    operations.BALANCE,
    summary="Read the BALANCE wallet",
    description=(
        "What can be spent is `availableBalance`: `balance` plus `creditLimit`. `lowBalance` is true while that is"
        " below `lowBalanceThreshold`."
    ),
)
async def read_balance(parts: Parts, caller: Caller, _: calls.Empty) -> calls.Balance:
    parts.record_step(caller.tenant_id, "BALANCE")
    return await query_balance(parts.accounts, caller.tenant_id)


@route(
    operations.STATEMENT,
    summary="Read the ledger",
    description=(
        "Every movement of money, newest first; the amounts of all entries sum to the balance. All filters must match."
    ),
)
async def read_statement(parts: Parts, caller: Caller, call: calls.Statement) -> calls.Entries:
    currency = caller.access.prices.currency
    return await parts.lists.run(lambda reads: list_entries(reads, caller.tenant_id, currency, call), exact=True)
