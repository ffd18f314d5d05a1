"""Where do order and profile ids come from? Blocks that the database hands out (rules/identity.py)."""

import time

from dealer_server import store
from dealer_server.clock import Clock
from dealer_server.rules import identity
from dealer_server.store.database import Session

BLOCK = 5_000
FRESH_SECONDS = 1.0


class Numbers:
    """The ids this process may give out. A block is dropped after a second, so that ids tell the time."""

    def __init__(self, session: Session, clock: Clock):
        self._session = session
        self._clock = clock
        self._order = self._order_end = 0
        self._profile = self._profile_end = 0
        self._until = 0.0

    async def provide(self, orders: int, profiles: int) -> None:
        """Makes sure of this many ids."""
        now = time.monotonic()
        if now > self._until:
            self._order_end = self._profile_end = 0
            self._until = now + FRESH_SECONDS
        if self._order + orders > self._order_end:
            self._order = await self._block("order", max(orders, BLOCK))
            self._order_end = self._order + max(orders, BLOCK)
        if self._profile + profiles > self._profile_end:
            self._profile = await self._block("profile", max(profiles, BLOCK))
            self._profile_end = self._profile + max(profiles, BLOCK)

    def take(self, profiles: int) -> tuple[int, int]:
        """An orderId, and the first of `profiles` profileIds in a row."""
        order_id, profile_id = self._order, self._profile
        self._order += 1
        self._profile += profiles
        assert self._order <= self._order_end and self._profile <= self._profile_end
        return order_id, profile_id

    async def _block(self, kind: str, size: int) -> int:
        first = identity.first_id_at(int(self._clock().timestamp()))
        return await store.order.next_block(self._session, kind, first, size)
