"""A resolver that answers what a test says."""

import socket
from collections.abc import Sequence

from dealer_server.webhooks.http_client.resolver import Address


class FakeResolver:
    """Returns the given addresses, one list for each lookup, the last one repeatedly."""

    def __init__(self, *answers: list[str]):
        self.answers = list(answers)
        self.lookups = 0

    async def resolve(self, host: str, port: int) -> Sequence[Address]:
        found = self.answers[min(self.lookups, len(self.answers) - 1)]
        self.lookups += 1
        return [
            (socket.AF_INET6 if ":" in one else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port))
            for one in found
        ]
