"""How does an operator correct a balance by hand? With one ADJUST entry in the ledger and a reason in the audit log."""

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.audit.record_change import record_change
from dealer_server.operations.errors import OperatorError, require_reason
from dealer_server.operations.tenants import parsing
from dealer_server.operations.tenants.set_terms import describe, locked_tenant
from dealer_server.rules.money import money
from dealer_server.store.tenants.tenant import Tenant


async def adjust_balance(
    database: Database, tenant_id: int, amount: str, reason: str, author: str, clock: Clock
) -> Tenant:
    """Adds a signed amount (major units) to a dealer's balance, down to minus its credit limit. Gives the dealer as it
    is then. Raises OperatorError."""
    require_reason(reason, "an adjustment needs a reason, for the audit log")

    async def work(connection: Connection) -> Tenant:
        tenant = await locked_tenant(connection, tenant_id)
        difference = parsing.signed_amount(amount, tenant.currency, "amount")
        if difference == 0:
            raise OperatorError(
                "amount is 0; accepted: an amount to add, or to take away where it begins with -", "amount"
            )
        before = await describe(connection, tenant_id)
        try:
            version = await store.wallet.move(connection, tenant_id, "ADJUST", difference, None, clock())
        except store.wallet.NotCovered:
            raise OperatorError(
                f"balance {before['balance']} and credit limit {before['creditLimit']} do not cover {amount}",
                "amount",
            ) from None
        detail = {"reason": reason, "amount": money.text(difference, tenant.currency), "entryVersion": version}
        after = await describe(connection, tenant_id)
        await record_change(connection, author, "tenant.adjust", tenant_id, detail, before, after)
        return tenant._replace(balance=tenant.balance + difference)

    return await database.run(work)
