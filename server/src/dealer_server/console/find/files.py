"""A list as a CSV file: all of it, some thousand rows at a time."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeVar

from dealer_server.console.shared import params
from dealer_server.console.shared.request_context import Download, RequestContext
from dealer_server.db.connection import Connection
from dealer_server.store.console.pages import ListPage

T = TypeVar("T")
Columns = Mapping[str, Callable[[T], str]]
"""Of a file: what stands in each, by its name."""
Read = Callable[[Connection, int | None, int], Awaitable[ListPage[T]]]
"""(connection, the id seen last, how many) to the next rows."""
ROWS_PER_CHUNK = 5_000


def download(context: RequestContext, name: str, columns: Columns[T], read: Read[T]) -> Download:
    file = f"{name}-{context.now:%Y%m%d-%H%M%S}.csv"
    return Download(file, "text/csv; charset=utf-8", _lines(context, columns, read))


async def _lines(context: RequestContext, columns: Columns[T], read: Read[T]) -> AsyncIterator[bytes]:
    yield params.csv_lines([tuple(columns)])
    seen: int | None = None
    while True:
        async with context.parts.database.connection() as connection:
            found = await read(connection, seen, ROWS_PER_CHUNK)
        if found.rows:
            yield params.csv_lines([[cell(row) for cell in columns.values()] for row in found.rows])
        if (seen := found.next) is None:
            return
