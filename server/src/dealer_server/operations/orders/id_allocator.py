"""Where do order and profile ids come from? From blocks of the database (docs/decisions/0002-ids-from-blocks.md)."""

import asyncio
import time
from collections.abc import Callable

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.db.session import Session
from dealer_server.rules.orders import identity

BLOCK_SIZE = 5_000
BLOCK_LIFETIME_SECONDS = 1.0


class IdAllocator:
    """The ids this process may give out. A block is dropped after a second, as ids contain the time."""

    def __init__(self, session: Session, clock: Clock):
        self._session = session
        self._clock = clock
        self._order = self._order_end = 0
        self._profile = self._profile_end = 0
        self._valid_until = 0.0
        self._filling = asyncio.Lock()

    async def reserve(self, orders: int, profiles: int) -> Callable[[int], tuple[int, int]]:
        """Ids for one batch. Called for each of its orders with a number of profiles, the function gives an orderId and
        the first of as many consecutive profileIds."""
        async with self._filling:
            now = time.monotonic()
            if now > self._valid_until:
                self._order_end = self._profile_end = 0
                self._valid_until = now + BLOCK_LIFETIME_SECONDS
            if self._order + orders > self._order_end:
                self._order = await self._next_block("order", max(orders, BLOCK_SIZE))
                self._order_end = self._order + max(orders, BLOCK_SIZE)
            if self._profile + profiles > self._profile_end:
                self._profile = await self._next_block("profile", max(profiles, BLOCK_SIZE))
                self._profile_end = self._profile + max(profiles, BLOCK_SIZE)
            order_id, profile_id = self._order, self._profile
            self._order += orders
            self._profile += profiles

        def take(count: int) -> tuple[int, int]:
            nonlocal order_id, profile_id
            taken = order_id, profile_id
            order_id, profile_id = order_id + 1, profile_id + count
            return taken

        return take

    async def _next_block(self, kind: str, size: int) -> int:
        first = identity.first_id_at(int(self._clock().timestamp()))
        return await store.order.next_block(self._session, kind, first, size)
