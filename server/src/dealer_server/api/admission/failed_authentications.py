"""May this address try to authenticate again? Failed attempts are limited per client."""

from dealer_server.api.client_network import client_network
from dealer_server.rules.access import rate_limit


class FailedAuthentications:
    """The bucket of failed authentications of each client address.

    An IPv6 client owns its whole /64 and may fail from another address of it each time, so a /64 counts as one client.
    A bucket that is full again tells nothing and is dropped: what is kept are the clients that failed in the last
    `burst / rate` seconds, at most twice.
    """

    LEAST_PRUNED = 4096

    def __init__(self, rate_per_second: float, burst: int) -> None:
        self._rate = rate_per_second
        self._burst = burst
        self._full_at: dict[str | bytes, float] = {}
        self._prune_at = self.LEAST_PRUNED

    def __len__(self) -> int:
        return len(self._full_at)

    def record(self, ip: str, now: float) -> None:
        """Counts a failure, but none beyond an empty bucket: no client is blocked for longer than that."""
        client = client_network(ip)
        full_at = rate_limit.spend(self._full_at.get(client, 0.0), now, self._rate, self._burst)
        if full_at is None:
            return
        self._full_at[client] = full_at
        if len(self._full_at) >= self._prune_at:
            self._prune(now)

    def wait_seconds(self, ip: str, now: float) -> float:
        """How long this client has to wait before it may try again; 0 for nearly everyone."""
        if not self._full_at:  # the usual case, and it saves reading an IPv6 address
            return 0.0
        full_at = self._full_at.get(client_network(ip))
        return 0.0 if full_at is None else rate_limit.wait_seconds(full_at, now, self._rate, self._burst)

    def _prune(self, now: float) -> None:
        self._full_at = {client: full_at for client, full_at in self._full_at.items() if full_at > now}
        self._prune_at = max(self.LEAST_PRUNED, 2 * len(self._full_at))
