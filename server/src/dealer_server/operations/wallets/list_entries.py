"""What has moved a dealer's balance? /account/statement: pages of its ledger (specification 4)."""

from msgspec import UNSET

from dealer_server import store
from dealer_server.db.database import Database
from dealer_server.operations.paging import paged, utc, wanted, window
from dealer_server.rules.money import money
from dealer_server.rules.orders import identity, snapshot
from dealer_server.store.wallets.ledger import Entry, Filter
from esim_dealer.wire import calls


async def list_entries(database: Database, tenant_id: int, currency: str, call: calls.Statement) -> calls.Entries:
    """Newest first; all filters must match. Raises 000108."""
    pager = wanted(call.pager)
    filters = Filter(call.entry_type, utc("startTime", call.start_time), utc("endTime", call.end_time))
    async with database.connection() as connection:
        entries = await store.ledger.page(connection, tenant_id, filters, window(pager))
        total = await store.ledger.count(connection, tenant_id, filters)
    page = entries[: pager.page_size]
    after = page[-1].version if len(entries) > len(page) else None
    return calls.Entries(entries=tuple(_entry(entry, currency) for entry in page), pager=paged(pager, total, after))


def _entry(entry: Entry, currency: str) -> calls.Entry:
    return calls.Entry(
        entry_no=str(entry.version),
        entry_type=entry.entry_type,
        amount=money.text(entry.amount, currency),
        balance_after=money.text(entry.balance_after, currency),
        currency=currency,
        order_no=UNSET if entry.order_id is None else identity.order_no(entry.order_id),
        topup_no=UNSET if entry.topup_id is None else identity.topup_no(entry.topup_id),
        create_time=snapshot.whole_seconds(entry.created_at),
    )
