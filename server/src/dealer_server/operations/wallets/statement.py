"""/account/statement: a dealer's own ledger (decisions 4)."""

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.operations.orders.lists import paged, utc, window
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, snapshot
from dealer_server.store.wallets import ledger as rows
from dealer_server.store.wallets.ledger import Entry, Filter
from esim_dealer.wire import calls


async def statement(database: Database, tenant_id: int, currency: str, call: calls.Statement) -> calls.Entries:
    """Newest first; all filters must match. Raises 000108."""
    pager = call.pager or calls.Pager()
    wanted = Filter(call.entry_type, utc("startTime", call.start_time), utc("endTime", call.end_time))
    async with database.connection() as connection:
        found = await store.ledger.page(connection, tenant_id, wanted, window(pager))
        total = await rows.count(connection, tenant_id, wanted)
    page = found[: pager.page_size]
    after = page[-1].version if len(found) > len(page) else None
    return calls.Entries(entries=tuple(_entry(one, currency) for one in page), pager=paged(pager, total, after))


def _entry(one: Entry, currency: str) -> calls.Entry:
    return calls.Entry(
        entry_no=str(one.version),
        entry_type=one.entry_type,
        amount=money.text(one.amount, currency),
        balance_after=money.text(one.balance_after, currency),
        currency=currency,
        order_no=UNSET if one.order_id is None else identity.order_no(one.order_id),
        topup_no=UNSET if one.topup_id is None else identity.topup_no(one.topup_id),
        create_time=snapshot.whole_seconds(one.created_at),
    )
