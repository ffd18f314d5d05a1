"""What is in a dealer's wallet? /account/balance (specification 4.10). Concurrent calls share one statement."""

import asyncio
from collections.abc import Sequence

from dealer_server import store
from dealer_server.db.batcher import Batcher
from dealer_server.db.session import Session
from dealer_server.rules.money import money
from dealer_server.rules.orders import snapshot
from dealer_server.store.wallets.wallet import Account
from esim_dealer.wire.calls import Balance

WALLETS_PER_STATEMENT = 500


class BalanceBatcher:
    """Answers the balance calls that arrive together with one statement. One per process."""

    def __init__(self, session: Session):
        self._session = session
        self._batcher: Batcher[int, Account] = Batcher(self._run, bound=WALLETS_PER_STATEMENT, name="balances")

    def submit(self, tenant_id: int) -> asyncio.Future[Account]:
        return self._batcher.submit(tenant_id)

    async def _run(self, tenant_ids: Sequence[int]) -> Sequence[Account]:
        accounts = await store.wallet.accounts(self._session, list(set(tenant_ids)))
        return [accounts[tenant_id] for tenant_id in tenant_ids]


async def query_balance(batcher: BalanceBatcher, tenant_id: int) -> Balance:
    account = await batcher.submit(tenant_id)
    currency, available = account.currency, account.balance + account.credit_limit
    return Balance(
        account_type="BALANCE",
        currency=currency,
        balance=money.text(account.balance, currency),
        credit_limit=money.text(account.credit_limit, currency),
        available_balance=money.text(available, currency),
        low_balance_threshold=money.text(account.low_balance_threshold, currency),
        low_balance=available < account.low_balance_threshold,
        update_time=snapshot.whole_seconds(account.updated_at),
    )
