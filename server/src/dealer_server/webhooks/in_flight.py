"""How many deliveries of each tenant does this worker have in flight? A delivery that its receiver has accepted is in
flight in the database until that is recorded, but the receiver has nothing more to do for it."""

from collections import Counter


class InFlight:
    def __init__(self) -> None:
        self._claimed: Counter[int] = Counter()
        self._accepted: Counter[int] = Counter()

    def started(self, tenant_id: int) -> None:
        self._claimed[tenant_id] += 1

    def accepted(self, tenant_id: int) -> None:
        self._accepted[tenant_id] += 1

    def ended(self, tenant_id: int, *, accepted: bool) -> None:
        """Its outcome is recorded, or left to its lease."""
        _subtract(self._claimed, tenant_id)
        if accepted:
            _subtract(self._accepted, tenant_id)

    def at_receiver(self, tenant_id: int, counted: int) -> int:
        """How many of the tenant are at its receiver, of all workers; `counted` are in flight by the database. Those of
        other workers count until they are recorded."""
        claimed = self._claimed[tenant_id]
        return claimed - self._accepted[tenant_id] + max(counted - claimed, 0)


def _subtract(counter: Counter[int], tenant_id: int) -> None:
    counter[tenant_id] -= 1
    if not counter[tenant_id]:
        del counter[tenant_id]
