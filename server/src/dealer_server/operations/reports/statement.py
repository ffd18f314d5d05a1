"""What is the statement of a dealer's wallet for a month? The page, the PDF file and the command show this one."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from dealer_server.db.connection import Connection
from dealer_server.db.database import Database
from dealer_server.operations.errors import OperatorError
from dealer_server.operations.reports.fold import fold_dealer
from dealer_server.rules.reports import period as periods
from dealer_server.rules.reports import statement as rules
from dealer_server.rules.reports.period import Month
from dealer_server.rules.reports.statement import Account
from dealer_server.store.console import dealer as console_dealer
from dealer_server.store.reports import statement as store
from dealer_server.store.reports.statement import PackageSums
from dealer_server.store.wallets.ledger import Entry

MOST_ENTRIES = 500
"""A statement with more shows the sums of its days instead."""
_ROOM = 1_000


class Statement(NamedTuple):
    """`entries`: None where there are too many of them. `complete`: the month is over."""

    tenant_id: int
    dealer: str
    currency: str
    month: Month
    complete: bool
    account: Account
    packages: Sequence[PackageSums]
    entries: Sequence[Entry] | None


async def statement(database: Database, tenant_id: int, month: Month, now: datetime) -> Statement:
    """What is not in the sums yet is added first. Raises OperatorError for a month that has not begun, and where too
    much is still to be added."""
    if month.period.first > periods.day_of(now):
        raise OperatorError(f"month {month} has not begun: {periods.month_of(periods.day_of(now))} is the latest")
    if not await fold_dealer(database, tenant_id):
        raise OperatorError(f"the sums of dealer {tenant_id} are still being added up: try again in a few minutes")
    async with (
        database.connection() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        wallet = await console_dealer.wallet(connection, tenant_id)
        opening = await store.opening(connection, tenant_id, month.period.first)
        days = await store.days(connection, tenant_id, month.period)
        account = rules.account(opening, days, month.period)
        return Statement(
            tenant_id=tenant_id,
            dealer=wallet.name,
            currency=wallet.currency,
            month=month,
            complete=periods.day_of(now) > month.period.last,
            account=account,
            packages=await store.packages(connection, tenant_id, wallet.currency, month.period),
            entries=await _entries(connection, tenant_id, month, account, wallet.version),
        )


async def _entries(
    connection: Connection, tenant_id: int, month: Month, account: Account, newest: int
) -> Sequence[Entry] | None:
    """The month's entries, where they are few and are those of its sums."""
    if account.entries > MOST_ENTRIES:
        return None
    start, end = periods.start_of(month.period.first), periods.start_of(month.next_first)
    first = await console_dealer.version_at(connection, tenant_id, start, newest)
    last = await console_dealer.version_at(connection, tenant_id, end, newest)
    found = await store.entries(connection, tenant_id, first - _ROOM, last + _ROOM, month.period)
    whole = len(found) == account.entries and sum(entry.amount for entry in found) == account.closing - account.opening
    return found if whole else None
