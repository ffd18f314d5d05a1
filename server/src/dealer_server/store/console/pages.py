"""How does a list of all dealers go through time without an index over all of them?

Every order would pay for such an index. Ids hold their time, so the list scans spans of time, tenant by tenant by
primary key, and a bounded number of rows: where few match, the page is short and the next one continues from there.
Backwards from the newest row, or forwards from the oldest one.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity

T = TypeVar("T")
ALL_IDS = (0, 2**53)
MAX_SCANNED = 10_000
"""How many rows a page scans at most."""
_FIRST_SPAN_SECONDS, _GROWTH = 60, 16


class ScanRange(NamedTuple):
    """What is scanned: a table whose key is tenant_id and an id that holds its time (`column`), from the id `first` on,
    before the id `end`; one dealer's rows or, None, everybody's. `oldest_first`: forwards. `step`: how many ids a span
    grows by; where they hold no time, so that they are dense, 1."""

    table: str
    column: str
    tenant_id: int | None
    first: int
    end: int
    oldest_first: bool
    step: int = identity.SEQUENCE

    @property
    def direction(self) -> str:
        """Of ORDER BY."""
        return "ASC" if self.oldest_first else "DESC"

    def after(self, seen: int | None) -> "ScanRange":
        """What is left after a page whose last row, or last id looked at, was this one."""
        if seen is None:
            return self
        return (
            self._replace(first=max(self.first, seen + 1))
            if self.oldest_first
            else self._replace(end=min(self.end, seen))
        )


class ListPage(NamedTuple, Generic[T]):
    """`next`: the id after which the next page begins; None where there are no more rows."""

    rows: Sequence[T]
    next: int | None


def by_id(*, oldest_first: bool) -> dict[str, str]:
    """For a statement that reads in the order of ids that hold time."""
    return {"direction": "ASC", "beyond": ">"} if oldest_first else {"direction": "DESC", "beyond": "<"}


async def scan(
    connection: Connection,
    scan: ScanRange,
    size: int,
    matching: Callable[[int, int, int], Awaitable[Sequence[T]]],
    id_of: Callable[[T], int],
    max_scanned: int = MAX_SCANNED,
) -> ListPage[T]:
    """The first rows that match. `matching(begin, end, limit)` reads those of a span, in the order of the scan."""
    rows: list[T] = []
    left, scanned, seconds = scan, 0, _FIRST_SPAN_SECONDS
    while len(rows) <= size and scanned < max_scanned:
        seconds, count = await _span(connection, left, seconds, max_scanned)
        if not count:  # over the gap
            nearest = await _nearest(connection, left)
            if nearest is None:
                return ListPage(rows, None)
            left = left._replace(first=nearest) if left.oldest_first else left._replace(end=nearest + 1)
            continue
        begin, end = _part(left, seconds)
        rows += await matching(begin, end, size + 1 - len(rows))
        scanned += count
        left = left._replace(first=end) if left.oldest_first else left._replace(end=begin)
        seconds *= min(_GROWTH, max(1, (max_scanned - scanned) // count))
    if len(rows) > size:
        return ListPage(rows[:size], id_of(rows[size - 1]))
    return ListPage(rows, left.first - 1 if left.oldest_first else left.end)


def _part(left: ScanRange, seconds: int) -> tuple[int, int]:
    """The ids of so many seconds at the end where the scan is; the end is not one of them."""
    ids = seconds * left.step
    if left.oldest_first:
        return left.first, min(left.first + ids, left.end)
    return max(left.end - ids, left.first), left.end


async def _nearest(connection: Connection, left: ScanRange) -> int | None:
    """The id of the next row."""
    return await connection.fetchval(
        f"SELECT {'min' if left.oldest_first else 'max'}(id) FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT {left.column} AS id FROM {left.table} o"
        f" WHERE o.tenant_id = t.tenant_id AND {left.column} >= $2 AND {left.column} < $3"
        f" ORDER BY {left.column} {left.direction} LIMIT 1) o WHERE $1::bigint IS NULL OR t.tenant_id = $1",
        left.tenant_id,
        left.first,
        left.end,
    )


async def _span(connection: Connection, left: ScanRange, seconds: int, most: int) -> tuple[int, int]:
    """How many seconds hold no more rows than that, and how many they hold; one second at least."""
    while True:
        count = await _count(connection, left, *_part(left, seconds), most + 1)
        if count <= most or seconds == 1:
            return seconds, count
        seconds = max(seconds // _GROWTH, 1)


async def _count(connection: Connection, scan: ScanRange, begin: int, end: int, most: int) -> int:
    """How many rows, and no more than so many."""
    counted: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT 1 FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT 1 FROM {scan.table} o WHERE o.tenant_id = t.tenant_id AND {scan.column} >= $2 AND {scan.column} < $3"
        " LIMIT $4) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT $4) counted",
        scan.tenant_id,
        begin,
        end,
        most,
    )
    return counted or 0
