"""How does a list of all dealers look back in time, where no index runs over all of them?

Every order would pay for such an index. Ids hold their time, so it looks at spans of time, tenant by tenant by primary
key, and at a bounded number of rows: where few match, the page is short and the next one goes on from there.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from dealer_server.db.connection import Connection
from dealer_server.rules.orders import identity

T = TypeVar("T")
LOOKED = 10_000
"""How many rows a page looks at, at most."""
_FIRST_SPAN_SECONDS, _GROWTH = 60, 16


class Reach(NamedTuple):
    """Where it looks: a table whose key is tenant_id and an id that holds its time (`column`), from the id `first` on;
    one dealer's rows or, None, everybody's."""

    table: str
    column: str
    tenant_id: int | None
    first: int = 0


class Page(NamedTuple, Generic[T]):
    """`next`: the id the next page goes on before; None where there are no more."""

    rows: Sequence[T]
    next: int | None


async def back(
    connection: Connection,
    reach: Reach,
    until: int,
    size: int,
    matching: Callable[[int, int, int], Awaitable[Sequence[T]]],
    id_of: Callable[[T], int],
    most: int = LOOKED,
) -> Page[T]:
    """The newest rows that match, before an id. `matching(begin, end, limit)` gives those of a span, newest first;
    `most`: how many rows it looks at."""
    found: list[T] = []
    looked, seconds = 0, _FIRST_SPAN_SECONDS
    while len(found) <= size and looked < most:
        seconds, count = await _span(connection, reach, until, seconds, most)
        if not count:  # over the gap
            newest = await _newest(connection, reach, until)
            if newest is None:
                return Page(found, None)
            until = newest + 1
            continue
        begin = _begin(reach, until, seconds)
        found += await matching(begin, until, size + 1 - len(found))
        looked, until = looked + count, begin
        seconds *= min(_GROWTH, max(1, (most - looked) // count))
    if len(found) > size:
        return Page(found[:size], id_of(found[size - 1]))
    return Page(found, until)


def _begin(reach: Reach, until: int, seconds: int) -> int:
    return max(until - seconds * identity.SEQUENCE, reach.first)


async def _newest(connection: Connection, reach: Reach, until: int) -> int | None:
    return await connection.fetchval(
        "SELECT max(id) FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT {reach.column} AS id FROM {reach.table} o"
        f" WHERE o.tenant_id = t.tenant_id AND {reach.column} >= $2 AND {reach.column} < $3"
        f" ORDER BY {reach.column} DESC LIMIT 1) o WHERE $1::bigint IS NULL OR t.tenant_id = $1",
        *(reach.tenant_id, reach.first, until),
    )


async def _span(connection: Connection, reach: Reach, until: int, seconds: int, most: int) -> tuple[int, int]:
    """How many seconds up to this id hold no more rows than that, and how many they hold; one second at least."""
    while True:
        count = await _count(connection, reach, _begin(reach, until, seconds), until, most + 1)
        if count <= most or seconds == 1:
            return seconds, count
        seconds = max(seconds // _GROWTH, 1)


async def _count(connection: Connection, reach: Reach, begin: int, end: int, most: int) -> int:
    """How many rows, and no more than so many."""
    found: int | None = await connection.fetchval(
        "SELECT count(*) FROM (SELECT FROM tenant t CROSS JOIN LATERAL ("
        f" SELECT FROM {reach.table} o WHERE o.tenant_id = t.tenant_id AND {reach.column} >= $2 AND {reach.column} < $3"
        " LIMIT $4) o WHERE $1::bigint IS NULL OR t.tenant_id = $1 LIMIT $4) counted",
        *(reach.tenant_id, begin, end, most),
    )
    return found or 0
