"""Below which amounts is a dealer told of a low balance, where it has no threshold of its own?"""

from collections.abc import Sequence

from dealer_server.db.connection import Connection
from dealer_server.rules.notices.low_balance import limits
from dealer_server.store.wallets import ledger


async def low_limits(connection: Connection, tenant_id: int, currency: str) -> Sequence[int]:
    """Empty before its first top-up."""
    topped_up = await ledger.balance_after_topup(connection, tenant_id)
    return limits(topped_up, currency) if topped_up else ()
