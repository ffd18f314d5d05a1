"""How do orders come to be found by a part of their texts? The worker collects them in the wake of their transactions
(docs/decisions/0041-search.md)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from dealer_server.clock import Clock
from dealer_server.db.database import Database
from dealer_server.db.polling import attempt
from dealer_server.rules.orders import identity
from dealer_server.store.search import pages
from dealer_server.store.search.pages import Page, Text

COLLECT_SECONDS = 20.0
# An id is given out before its order is committed; no transaction of an order lasts as long as this.
SETTLED_AFTER = timedelta(seconds=60)
ORDERS_AT_ONCE, LEAST_SECONDS = 2_000, 60
PAGE_BYTES, BYTES_BESIDE = 7_400, 17
_BLANKS = str.maketrans({"\n": " ", "\r": " ", "\t": " "})


class SearchCollector:
    """Of several workers one collects at a time. `_seconds`: how many seconds of orders are read at once, so that about
    ORDERS_AT_ONCE are in them."""

    def __init__(self, database: Database, clock: Clock):
        self._session = database.session(synchronous_commit="off")
        self._clock = clock
        self._seconds = LEAST_SECONDS

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await attempt("search", self.collect)
            finally:
                await self.close()
            await asyncio.sleep(COLLECT_SECONDS)

    async def close(self) -> None:
        await self._session.close()

    async def collect(self) -> int:
        """Collects all that is old enough; how many orders. After each step it pauses for as long as that took."""
        clock, total, more = asyncio.get_running_loop().time, 0, True
        while more:
            begun = clock()
            count, more = await self._step()
            total += count
            if more:
                await asyncio.sleep(clock() - begun)
        return total

    async def _step(self) -> tuple[int, bool]:
        """How many orders, and whether there may be more."""
        settled = identity.ids_between(None, self._clock() - SETTLED_AFTER)[1]
        async with self._session.transaction() as session:
            reached = await pages.lock(session)
            if reached is None or settled <= reached:
                return 0, False
            end = min(settled, reached + self._seconds * identity.SEQUENCE)
            texts = await pages.uncollected(session, reached, end, ORDERS_AT_ONCE)
            if len(texts) == ORDERS_AT_ONCE:
                end, self._seconds = texts[-1].order_id + 1, max(self._seconds // 2, LEAST_SECONDS)
            elif len(texts) < ORDERS_AT_ONCE // 4:
                self._seconds *= 2
            await pages.write(session, pages_of(texts, await pages.newest(session)), end)
            return len(texts), end < settled


def pages_of(texts: Sequence[Text], newest: tuple[int, int] | None) -> list[Page]:
    """The pages of orders, given by rising ids; the first ones go to the newest page there is, (first orderId, bytes),
    while it has room."""
    made: list[Page] = []
    first, size = newest or (0, PAGE_BYTES)
    lines: list[str] = []
    own: list[Text] = []
    for text in texts:
        added = line(text)
        bytes_added = len(added.encode()) + BYTES_BESIDE
        if size + bytes_added > PAGE_BYTES:
            if own:
                made.append(_page(first, own, lines))
            first, size, lines, own = text.order_id, 0, [], []
        size += bytes_added
        lines.append(added)
        own.append(text)
    return [*made, _page(first, own, lines)] if own else made


def _page(first: int, own: Sequence[Text], lines: Sequence[str]) -> Page:
    order_ids, tenant_ids = [text.order_id for text in own], [text.tenant_id for text in own]
    return Page(first, order_ids[::-1], tenant_ids[::-1], "\n".join(reversed(lines)))


def line(text: Text) -> str:
    """In small letters, as a query's words are."""
    return "\t".join(word.translate(_BLANKS) for word in (text.transaction_id, text.remark or "")).lower()
