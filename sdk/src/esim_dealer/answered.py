"""What does a client keep of the last answer? The ids that support needs, and the rate limit."""

from collections.abc import Mapping
from dataclasses import dataclass

from esim_dealer.wire import signing


@dataclass(frozen=True, slots=True)
class Answered:
    """How the last call of a thread or task was answered. `request_id` is its RT-RequestID; give it and the `trace_id`
    to support. `headers` are the answer's, looked up without regard to case."""

    request_id: str
    http_status: int
    headers: Mapping[str, str]

    @property
    def trace_id(self) -> str | None:
        return self.headers.get(signing.TRACE_ID)

    @property
    def rate_limit(self) -> int | None:
        """Calls a second that the dealer may make; None without a limit."""
        return self._number("X-RateLimit-Limit")

    @property
    def rate_remaining(self) -> int | None:
        """Calls that would pass at once."""
        return self._number("X-RateLimit-Remaining")

    def _number(self, name: str) -> int | None:
        value = self.headers.get(name, "")
        return int(value) if value.isascii() and value.isdigit() else None
