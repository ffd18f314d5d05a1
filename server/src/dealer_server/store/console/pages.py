"""How does a list of all dealers go back in time without an index over all of them?

Every order would pay for such an index. Ids hold their time, so the list scans spans of time, tenant by tenant by
primary key, and a bounded number of rows: where few match, the page is short and the next one continues from there.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity

T = TypeVar("T")
MAX_SCANNED = 10_000
"""How many rows a page scans at most."""
_FIRST_SPAN_SECONDS, _GROWTH = 60, 16


class ScanRange(NamedTuple):
    """What is scanned: a table whose key is tenant_id and an id that holds its time (`column`), from the id `first` on;
    one dealer's rows or, None, everybody's."""

    table: str
    column: str
    tenant_id: int | None
    first: int = 0


class ListPage(NamedTuple, Generic[T]):
    """`next`: the id before which the next page begins; None where there are no more rows."""

    rows: Sequence[T]
    next: int | None


async def scan_back(
    connection: Connection,
    scan: ScanRange,
    until: int,
    size: int,
    matching: Callable[[int, int, int], Awaitable[Sequence[T]]],
    id_of: Callable[[T], int],
    max_scanned: int = MAX_SCANNED,
) -> ListPage[T]:
    """The newest rows that match, before an id. `matching(begin, end, limit)` reads those of a span, newest first."""
    rows: list[T] = []
    scanned, seconds = 0, _FIRST_SPAN_SECONDS
    while len(rows) <= size and scanned < max_scanned:
        seconds, count = await _span(connection, scan, until, seconds, max_scanned)
        if not count:  # over the gap
            newest = await _newest(connection, scan, until)
            if newest is None:
                return ListPage(rows, None)
            until = newest + 1
            continue
        begin = _begin(scan, until, seconds)
        rows += await matching(begin, until, size + 1 - len(rows))
        scanned, until = scanned + count, begin
        seconds *= min(_GROWTH, max(1, (max_scanned - scanned) // count))
    if len(rows) > size:
        return ListPage(rows[:size], id_of(rows[size - 1]))
    return ListPage(rows, until)


def _begin(scan: ScanRange, until: int, seconds: int) -> int:
    return max(until - seconds * identity.SEQUENCE, scan.first)


async def _newest(connection: Connection, scan: ScanRange, until: int) -> int | None:
    return await connection.fetchval(
        "SELECT max(id) FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT {scan.column} AS id FROM {scan.table} o"
        f" WHERE o.tenant_id = t.tenant_id AND {scan.column} >= $2 AND {scan.column} < $3"
        f" ORDER BY {scan.column} DESC LIMIT 1) o WHERE $1::bigint IS NULL OR t.tenant_id = $1",
        *(scan.tenant_id, scan.first, until),
    )


async def _span(connection: Connection, scan: ScanRange, until: int, seconds: int, most: int) -> tuple[int, int]:
    """How many seconds up to this id hold no more rows than that, and how many they hold; one second at least."""
    while True:
        count = await _count(connection, scan, _begin(scan, until, seconds), until, most + 1)
        if count <= most or seconds == 1:
            return seconds, count
        seconds = max(seconds // _GROWTH, 1)


async def _count(connection: Connection, scan: ScanRange, begin: int, end: int, most: int) -> int:
    """How many rows, and no more than so many."""
    counted: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT FROM {scan.table} o WHERE o.tenant_id = t.tenant_id AND {scan.column} >= $2 AND {scan.column} < $3"
        " LIMIT $4) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT $4) counted",
        *(scan.tenant_id, begin, end, most),
    )
    return counted or 0
