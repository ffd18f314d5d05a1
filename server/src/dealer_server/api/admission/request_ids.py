"""Was this request id used before? The ids of the last eleven minutes, in the memory of one process."""

from array import array

REQUEST_ID_SECONDS = 660  # eleven minutes (specification 5.3)


class UsedRequestIds:
    """The request ids of the last eleven minutes, about 17 bytes each, found in about a microsecond.

    Open addressing in `array('Q')`: an entry is 54 bits of a keyed hash and, in the low 10 bits, the tick at which it
    was stored. The hash is Python's own, keyed afresh in every process, so that no client can aim for a collision. Its
    low bits choose the shard: the entries keep what the shard does not tell. A table is rebuilt whole, when it is full
    or its turn has come; there are many shards so that this pauses the process for a millisecond and not for a hundred.
    A rebuild drops what has expired; until then an expired entry takes room and nothing else.
    """

    SHARDS = 1024
    TICK_SECONDS = 10
    LIFE_TICKS = REQUEST_ID_SECONDS // TICK_SECONDS
    CODES = 1023  # ticks are stored modulo this, plus one: an entry is never 0, and 0 is a free slot
    TURNS_PER_TICK = 2  # every shard is rebuilt before the code of its oldest entry could come round again
    LEAST_SLOTS = 32

    def __init__(self) -> None:
        self._tick = 0
        self._code = 1
        self._next_turn = 0
        # Tables of one age fill up together. Different thresholds keep them from being rebuilt together.
        self._fullest = [0.55 + 0.2 * shard / self.SHARDS for shard in range(self.SHARDS)]
        self._clear()

    def use(self, app_key: str, request_id: str, now_seconds: float) -> bool:
        """Record the id. False when this AppKey has used it within eleven minutes."""
        tick = int(now_seconds) // self.TICK_SECONDS
        if tick > self._tick:
            self._advance(tick)
        hashed = hash((app_key, request_id))  # 1023 below: the shard's bits, and in an entry the tick's
        shard = hashed & 1023
        lowest = hashed & 0xFFFF_FFFF_FFFF_FC00
        highest = lowest | 1023
        table = self._tables[shard]
        mask = len(table) - 1
        slot = (hashed >> 10) & mask
        while entry := table[slot]:
            if lowest < entry <= highest:
                if not self._expired(entry):
                    return False
                table[slot] = lowest | self._code
                return True
            slot = (slot + 1) & mask
        table[slot] = lowest | self._code
        self._room[shard] -= 1
        if not self._room[shard]:
            self._rebuild(shard)
        return True

    def memory_bytes(self) -> int:
        """What the tables take, for the metrics."""
        return sum(table.itemsize * len(table) for table in self._tables)

    def _expired(self, entry: int) -> bool:
        return (self._code - (entry & 1023)) % self.CODES > self.LIFE_TICKS

    def _advance(self, tick: int) -> None:
        """Time has reached a new tick (it never goes back here): give the next shards their turn."""
        ticks = tick - self._tick
        self._tick = tick
        self._code = tick % self.CODES + 1
        if ticks > self.LIFE_TICKS:  # everything has expired; reading it all would be one long pause
            self._clear()
            return
        for _ in range(ticks * self.TURNS_PER_TICK):
            self._rebuild(self._next_turn)
            self._next_turn = (self._next_turn + 1) % self.SHARDS

    def _clear(self) -> None:
        self._tables = [array("Q", bytes(8 * self.LEAST_SLOTS)) for _ in range(self.SHARDS)]
        self._room = [int(self.LEAST_SLOTS * fullest) for fullest in self._fullest]

    def _rebuild(self, shard: int) -> None:
        """Move the living entries of a shard to a table of which they fill a quarter to a half."""
        code, codes, life = self._code, self.CODES, self.LIFE_TICKS
        living = [entry for entry in self._tables[shard] if entry and (code - (entry & 1023)) % codes <= life]
        slots = self.LEAST_SLOTS
        while slots < 2 * len(living):
            slots *= 2
        table = array("Q", bytes(8 * slots))
        mask = slots - 1
        for entry in living:
            slot = (entry >> 10) & mask
            while table[slot]:
                slot = (slot + 1) & mask
            table[slot] = entry
        self._tables[shard] = table
        self._room[shard] = int(slots * self._fullest[shard]) - len(living)
